"""The artifact gate on real commits: what has to be there, and what must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from liza.domain import lifecycle as e
from liza.domain.model import Outcome
from liza.gates.registry import run_gate
from tests.support.gate_cases import GateCase, blamed, checkpoint, scope, told
from tests.support.sample_tasks import CODER, claim, new_task, submit, walked

DIFF: Final = {"diff": "required"}
TESTS: Final = {"tests": "required"}


@pytest.fixture
def desk(tmp_path: Path) -> GateCase:
    return GateCase(tmp_path)


class TestCheckpoint:
    def test_work_without_a_checkpoint_goes_back(self, desk: GateCase) -> None:
        """The coder says what it will do before it does it."""
        desk.commit({"src/b.py": "B = 2\n"})

        assert desk.judged("artifact", {"checkpoint": "required"}).outcome is Outcome.REVISE

    def test_a_checkpoint_of_this_attempt_passes(self, desk: GateCase) -> None:
        """Written after the claim, before the work was handed in."""
        said = e.Write(checkpoint=checkpoint("src/b.py"))
        task = walked(new_task(), claim(), (said, CODER), submit())
        desk.commit({"src/b.py": "B = 2\n"})

        verdict = desk.judged("artifact", {"checkpoint": "required"}, **task.model_dump())

        assert verdict.outcome is Outcome.PASS

    def test_a_checkpoint_that_nobody_wrote_in_this_attempt_goes_back(self, desk: GateCase) -> None:
        """One that came with the task, or from another attempt, says nothing about this one."""
        task = walked(new_task(), claim(), submit()).replace(checkpoint=checkpoint("src/b.py"))

        verdict = desk.judged("artifact", {"checkpoint": "required"}, **task.model_dump())

        assert verdict.reason == "the checkpoint was not written in this attempt"


class TestDiff:
    def test_an_empty_diff_goes_back(self, desk: GateCase) -> None:
        """Also where there are commits: what counts is the tree."""
        desk.commit()

        verdict = desk.judged("artifact", DIFF)

        assert (verdict.outcome, verdict.reason) == (Outcome.REVISE, "the diff is empty")

    def test_an_ordinary_diff_passes_and_names_its_tree(self, desk: GateCase) -> None:
        """Text, a rename, a deletion, a link inside: nothing of it is odd."""
        desk.home.git("mv", "a.txt", "notes.txt")
        (desk.home.directory / "src" / "link.py").symlink_to("b.py")
        head = desk.commit({"src/c.py": "C = 1\n", ".gitignore": None})

        verdict = desk.judged("artifact", DIFF)

        assert (verdict.outcome, verdict.feedback) == (Outcome.PASS, ())
        assert verdict.tree == desk.home.git("rev-parse", f"{head}^{{tree}}")

    @pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "src/../../x"])
    def test_a_link_that_leads_out_goes_back(self, desk: GateCase, target: str) -> None:
        """Whoever reads through it reads somebody else's files."""
        (desk.home.directory / "link").symlink_to(target)
        desk.commit()

        assert blamed(desk.judged("artifact", DIFF)) == ["link"]

    def test_a_repository_inside_goes_back(self, desk: GateCase) -> None:
        """Pains, B: a worktree was committed as a submodule."""
        desk.home.git("update-index", "--add", "--cacheinfo", f"160000,{desk.base},inner")
        desk.home.git("commit", "--quiet", "-m", "inner")

        assert blamed(desk.judged("artifact", DIFF)) == ["inner"]

    def test_a_large_file_goes_back_unless_the_scope_names_it(self, desk: GateCase) -> None:
        """A repository never forgets what was once in it."""
        desk.commit({"big.txt": "x" * 2000 + "\n"})

        assert blamed(desk.judged("artifact", {**DIFF, "max_bytes": 1000})) == ["big.txt"]
        assert desk.judged("artifact", DIFF).outcome is Outcome.PASS
        named = desk.judged("artifact", {**DIFF, "max_bytes": 1000}, scope=scope("big.txt"))
        assert named.outcome is Outcome.PASS

    def test_a_binary_goes_back_unless_the_scope_has_it(self, desk: GateCase) -> None:
        """Nobody can review it."""
        (desk.home.directory / "logo.png").write_bytes(b"\x89PNG\0\0\1")
        desk.commit()

        assert blamed(desk.judged("artifact", DIFF)) == ["logo.png"]
        assert desk.judged("artifact", DIFF, scope=scope("logo.png")).outcome is Outcome.PASS

    @pytest.mark.parametrize("path", ["__pycache__/a.cpython-311.pyc", "src/b.so", "B.class"])
    def test_compiled_code_goes_back_unless_the_scope_names_it(self, desk: GateCase, path: str) -> None:
        """Python runs it instead of the source that was reviewed, even where the two differ."""
        desk.commit({path: "x"})

        assert blamed(desk.judged("artifact", DIFF, scope=scope("**"))) == [path]
        assert desk.judged("artifact", DIFF, scope=scope(path)).outcome is Outcome.PASS

    @pytest.mark.parametrize(
        "name", ["a\nb.py", "a\x1b[31m.py", "a\u202egpj.py", "a\u200b.py", "a\u061cb.py", "a\u2028b.py"]
    )
    def test_a_name_that_cannot_be_read_goes_back(self, desk: GateCase, name: str) -> None:
        """A newline or a turned direction hides what a file is; the verdict shows it escaped."""
        desk.commit({name: "x\n"})

        verdict = desk.judged("artifact", DIFF)

        assert verdict.outcome is Outcome.REVISE
        assert all(sign.isprintable() for one in verdict.feedback for sign in str(one.file))

    def test_two_names_that_differ_by_case_go_back(self, desk: GateCase) -> None:
        """On some systems one of them overwrites the other."""
        desk.commit({"A.txt": "x\n"})

        assert blamed(desk.judged("artifact", DIFF)) == ["A.txt"]

    @pytest.mark.parametrize("path", [".liza/state.yaml", ".worktrees/t1/a.txt", ".Liza/x"])
    def test_what_belongs_to_others_goes_back(self, desk: GateCase, path: str) -> None:
        """Pains, B: an agent committed `.liza/` to master."""
        blob = desk.home.git("hash-object", "-w", "a.txt")
        desk.home.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        desk.home.git("commit", "--quiet", "-m", "foreign")

        assert blamed(desk.judged("artifact", DIFF)) == [path]


class TestTests:
    def test_code_without_tests_goes_back(self, desk: GateCase) -> None:
        """TDD is a rule, whatever the plan calls the task."""
        desk.commit({"src/b.py": "B = 2\n"})

        verdict = desk.judged("artifact", TESTS, kind="docs")

        assert (verdict.outcome, blamed(verdict)) == (Outcome.REVISE, ["src/b.py"])

    def test_code_with_tests_passes(self, desk: GateCase) -> None:
        """A test file that has a test in it."""
        desk.commit({"src/b.py": "B = 2\n", "tests/test_b.py": "def test_b():\n    assert B == 2\n"})

        assert desk.judged("artifact", TESTS).outcome is Outcome.PASS

    @pytest.mark.parametrize("text", ["", "# def test_b\n", "B = 2\n"])
    def test_a_test_file_without_a_test_is_none(self, desk: GateCase, text: str) -> None:
        """A name alone proves nothing."""
        desk.commit({"src/b.py": "B = 2\n", "tests/test_b.py": text})

        assert desk.judged("artifact", TESTS).outcome is Outcome.REVISE

    def test_tests_inside_the_code_count(self, desk: GateCase) -> None:
        """As Rust has them."""
        code = "pub fn b() -> i32 { 2 }\n"
        test = "#[cfg(test)]\nmod tests {\n#[test]\nfn b() { assert_eq!(super::b(), 2); }\n}\n"
        desk.commit({"src/lib.rs": code + test})

        assert desk.judged("artifact", TESTS).outcome is Outcome.PASS

    def test_documents_and_settings_need_no_tests(self, desk: GateCase) -> None:
        """Work that runs nothing is exempt, and the facts say so."""
        desk.commit({"README.md": "# Hello\n", "settings.yaml": "a: 1\n"})

        assert desk.judged("artifact", TESTS).outcome is Outcome.PASS
        with desk.case() as case:
            assert "no_code" in case.facts

    @pytest.mark.parametrize(
        "files",
        [{"Makefile": "all:\n"}, {".github/workflows/ci.yml": "on: push\n"}, {"tool": "#!/bin/sh\nexit 0\n"}],
    )
    def test_what_runs_is_no_document(self, desk: GateCase, files: dict[str, str]) -> None:
        """A build, a CI job or a script needs a test, or a scope that says otherwise."""
        desk.commit({"README.md": "# Hello\n", **files})

        assert blamed(desk.judged("artifact", TESTS)) == list(files)

    def test_a_document_made_executable_is_code(self, desk: GateCase) -> None:
        """The mode alone turns it into a program."""
        (desk.home.directory / "a.txt").chmod(0o755)
        desk.commit()

        with desk.case() as case:
            assert "no_code" not in case.facts


def test_the_same_defect_has_the_same_reason(desk: GateCase) -> None:
    """The rule about a reason that comes twice relies on it."""
    desk.commit({"src/b.py": "B = 2\n"})
    before = desk.judged("artifact", TESTS)
    desk.commit({"src/b.py": "B = 3\n"})

    after = desk.judged("artifact", TESTS)

    assert before.tree != after.tree
    assert told(before) == told(after)


def test_git_is_asked_once(desk: GateCase) -> None:
    """All gates of a case share one diff: their own time is what every task pays."""
    desk.commit({"src/b.py": "B = 2\n", "tests/test_b.py": "def test_b():\n    assert B == 2\n"})
    with desk.case() as case:
        first = case.diff
        for kind, options in (("artifact", TESTS), ("scope", {}), ("scan", {})):
            assert run_gate(kind, kind, options, case).outcome is Outcome.PASS

        assert case.diff is first
