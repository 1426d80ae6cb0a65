"""The scope and refs gates on real commits: what may be touched, how much, and what is cited."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.domain.model import Feedback, Outcome
from liza.gates.context import Statements
from tests.support.gate_cases import GateCase, blamed, checkpoint, scope

LINE = "a line of text\n"


@pytest.fixture
def desk(tmp_path: Path) -> GateCase:
    return GateCase(tmp_path)


class TestPaths:
    def test_work_inside_its_scope_passes(self, desk: GateCase) -> None:
        """Also where the checkpoint announces nothing: IN says enough."""
        desk.commit({"src/b.py": "B = 2\n", "src/deep/c.py": "C = 1\n"})

        verdict = desk.judged("scope", scope=scope("src/"), checkpoint=checkpoint())

        assert (verdict.outcome, verdict.feedback) == (Outcome.PASS, ())

    def test_a_test_that_comes_with_the_work_is_inside(self, desk: GateCase) -> None:
        """Every code task brings tests; a scope that forgets them means no harm."""
        desk.commit({"src/b.py": "B = 2\n", "tests/test_b.py": "def test_b():\n    assert B == 2\n"})

        assert desk.judged("scope", scope=scope("src/b.py")).outcome is Outcome.PASS

    def test_what_steers_the_runner_does_not_come_with_the_work(self, desk: GateCase) -> None:
        """A conftest.py decides which tests run."""
        desk.commit({"src/b.py": "B = 2\n", "tests/conftest.py": "collect_ignore = ['x']\n"})

        assert blamed(desk.judged("scope", scope=scope("src/b.py"))) == ["tests/conftest.py"]

    def test_touching_what_is_out_goes_back(self, desk: GateCase) -> None:
        """OUT beats IN."""
        desk.commit({"src/b.py": "B = 2\n", "src/c.py": "C = 1\n"})

        assert blamed(desk.judged("scope", scope=scope("src/", out=("src/b.py",)))) == ["src/b.py"]

    def test_a_deletion_outside_goes_back(self, desk: GateCase) -> None:
        """To remove is to touch."""
        desk.commit({"src/b.py": "B = 2\n", "a.txt": None})

        assert blamed(desk.judged("scope", scope=scope("src/"))) == ["a.txt"]

    def test_a_rename_counts_at_both_ends(self, desk: GateCase) -> None:
        """Moving a file out of its place does not dodge the scope."""
        (desk.home.directory / "docs").mkdir()
        desk.home.git("mv", "a.txt", "docs/a.txt")
        desk.commit()

        assert blamed(desk.judged("scope", scope=scope("docs/"))) == ["a.txt"]
        assert blamed(desk.judged("scope", scope=scope("a.txt"))) == ["docs/a.txt"]

    def test_a_scope_in_words_is_left_to_the_reader(self, desk: GateCase) -> None:
        """It stops nobody, and is said."""
        desk.commit({"src/b.py": "B = 2\n"})

        verdict = desk.judged("scope", scope=scope("the greeting of users"))

        assert verdict.outcome is Outcome.PASS
        assert "judge it yourself" in verdict.feedback[0].message


class TestAnnounced:
    def test_a_file_that_was_announced_passes(self, desk: GateCase) -> None:
        """As a path, a directory or with a remark."""
        desk.commit({"src/b.py": "B = 2\n", "docs/b.md": LINE})

        assert (
            desk.judged("scope", checkpoint=checkpoint("src/b.py (change B)", "docs/")).outcome
            is Outcome.PASS
        )

    def test_a_file_that_was_not_goes_back(self, desk: GateCase) -> None:
        """Where no scope says what is IN, the checkpoint does."""
        desk.commit({"src/b.py": "B = 2\n", "a.txt": LINE})

        assert blamed(desk.judged("scope", checkpoint=checkpoint("src/b.py"))) == ["a.txt"]

    def test_a_file_may_be_announced_as_its_coder_sees_it(self, desk: GateCase) -> None:
        """In the sandbox a worktree is at the path of the checkout, without one it is where it is."""
        desk.commit({"src/b.py": "B = 2\n", "a.txt": "x\n"})
        root = desk.home.directory
        announced = checkpoint(f"{root}/src/b.py", f"{root}/.worktrees/t1/a.txt (the text)")

        assert desk.judged("scope", checkpoint=announced).feedback == ()

    def test_a_directory_in_the_scope_announces_nothing_that_is_there(self, desk: GateCase) -> None:
        """What is new inside of it may come up during the work, and a file that it names is known."""
        desk.commit({"src/b.py": "B = 2\n", "src/c.py": "C = 1\n"})

        assert blamed(desk.judged("scope", scope=scope("src/"), checkpoint=checkpoint("src/c.py"))) == [
            "src/b.py"
        ]
        named = desk.judged("scope", scope=scope("src/", "src/b.py"), checkpoint=checkpoint("src/c.py"))
        assert named.outcome is Outcome.PASS

    def test_it_can_be_recorded_instead(self, desk: GateCase) -> None:
        """A workflow decides how strict it is."""
        desk.commit({"a.txt": LINE})

        verdict = desk.judged("scope", {"announced": "recorded"}, checkpoint=checkpoint("src/b.py"))

        assert (verdict.outcome, verdict.feedback[0].file) == (Outcome.PASS, "a.txt")


class TestSize:
    def test_what_a_package_manager_writes_is_not_counted(self, desk: GateCase) -> None:
        """Nobody reads it, so it is not too long."""
        desk.commit({"poetry.lock": LINE * 50, "a.txt": LINE * 5})

        assert desk.judged("scope", {"max_loc": 10}).outcome is Outcome.PASS
        assert desk.judged("scope", {"max_loc": 4}).outcome is Outcome.REVISE

    @pytest.mark.parametrize(
        ("lines", "files", "mode", "outcome"),
        [
            (150, 3, "any", Outcome.PASS),
            (151, 2, "any", Outcome.PASS),
            (151, 3, "any", Outcome.REVISE),
            (151, 2, "all", Outcome.REVISE),
            (150, 3, "all", Outcome.REVISE),
            (150, 2, "all", Outcome.PASS),
        ],
    )
    def test_either_limit_is_enough_unless_both_are_asked(
        self, desk: GateCase, lines: int, files: int, mode: str, outcome: Outcome
    ) -> None:
        """Behaviour 1.7: a violation is more lines AND more files; `all` makes it OR."""
        texts = {f"src/f{number}.py": "x = 1\n" for number in range(files - 1)}
        desk.commit({**texts, "src/long.py": "x = 1\n" * (lines - files + 1)})

        assert desk.judged("scope", {"max_loc": 150, "max_files": 2, "limit": mode}).outcome is outcome

    @pytest.mark.parametrize(
        ("path", "lines", "outcome"),
        [("a.md", 164, Outcome.PASS), ("a.md", 165, Outcome.REVISE), ("a.py", 151, Outcome.REVISE)],
    )
    def test_documents_alone_may_be_a_little_longer(
        self, desk: GateCase, path: str, lines: int, outcome: Outcome
    ) -> None:
        """By less than a tenth; code never."""
        desk.commit({path: LINE * lines})

        assert desk.judged("scope", {"max_loc": 150}).outcome is outcome

    def test_a_binary_and_a_rename_have_no_lines(self, desk: GateCase) -> None:
        """They count as files."""
        (desk.home.directory / "x.bin").write_bytes(b"\0" * 5000)
        desk.home.git("mv", "a.txt", "b.txt")
        desk.commit()

        assert desk.judged("scope", {"max_loc": 1}).outcome is Outcome.PASS
        assert desk.judged("scope", {"max_files": 1}).outcome is Outcome.REVISE


class TestRefs:
    def test_what_exists_may_be_cited(self, desk: GateCase) -> None:
        """At the base or at the head, by its path or its name."""
        desk.commit({"src/c.py": "one\ntwo\n", "a.txt": None})
        said = Statements(answers=("a.txt:3 is gone, c.py:2 is new, src/b.py:1 stays",))

        assert desk.judged("refs", said=said).outcome is Outcome.PASS

    @pytest.mark.parametrize("text", ["src/ghost.py:3", "src/b.py:900"])
    def test_what_does_not_exist_goes_back(self, desk: GateCase, text: str) -> None:
        """A file, or a line behind the end of one."""
        desk.commit({"src/c.py": "one\n"})

        verdict = desk.judged("refs", said=Statements(answers=(f"as {text} shows",)))

        assert verdict.outcome is Outcome.REVISE
        assert f"{verdict.feedback[0].file}:{verdict.feedback[0].line}" == text

    def test_a_reviewer_cites_too(self, desk: GateCase) -> None:
        """Feedback about a file that nobody has helps nobody; it can be recorded instead."""
        desk.commit({"src/c.py": "one\n"})
        said = Statements(feedback=(Feedback(message="mend it", file="src/ghost.py", line=1),))

        assert blamed(desk.judged("refs", said=said)) == ["src/ghost.py"]
        assert desk.judged("refs", {"on_miss": "record"}, said=said).outcome is Outcome.PASS

    def test_more_documents_than_allowed_go_back(self, desk: GateCase) -> None:
        """The diet of behaviour 1.7."""
        desk.commit({"docs/a.md": LINE, "docs/b.md": LINE, "docs/c.md": LINE})
        said = Statements(answers=("docs/a.md, docs/b.md and docs/c.md say so",))

        assert desk.judged("refs", {"max_docs": 2}, said=said).outcome is Outcome.REVISE
        assert desk.judged("refs", {"max_docs": 3}, said=said).outcome is Outcome.PASS


class TestCompanions:
    """Hostile, 21: a directory is not for tests because it is called so."""

    @pytest.mark.parametrize(
        ("path", "is_one"),
        [
            ("tests/helpers.py", True),
            ("tests/data/a.json", True),
            ("lib/test_more.py", True),
            ("pkg/tests/util.py", True),
            ("pkg/fixtures/a.json", False),
            ("pkg/tests/fixtures/a.json", True),
            ("src/fixtures/backdoor.py", False),
            ("app/test/deploy.py", False),
            ("deploy/specs/run.rb", False),
        ],
    )
    def test_a_companion_is_a_test_or_lies_where_the_base_has_tests(
        self, tmp_path: Path, path: str, *, is_one: bool
    ) -> None:
        desk = GateCase(tmp_path)
        desk.begin({"pkg/tests/test_a.py": "def test_a():\n    assert True\n"})
        desk.commit({path: "x = 1\n", "src/b.py": "B = 2\n"})

        assert (path in blamed(desk.judged("scope", scope=scope("src/b.py")))) is not is_one
