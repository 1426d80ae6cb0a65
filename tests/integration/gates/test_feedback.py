"""What a red gate printed reaches whoever has to mend it: the coder, the reviewer, and people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from liza.cli.views import status
from liza.cli.views.explain import explanation_of, observed_run_context
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.gates.context import CommandResult, cause_of, failed_tests
from liza.gauntlet.verdict import fence_breaks
from liza.system.run_control import RunEnding
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

TEST = "seq 1 60; echo 'api_key = hunter2hunter2hunter2'; echo boom: the widget is upside down; false"


class TestTold:
    def test_everybody_who_has_to_mend_a_red_gate_is_shown_its_last_lines(self, tmp_path: Path) -> None:
        """Forty in the next prompt, inside of a fence; five for people, with the folder that has the rest."""
        team = ScriptedTeam(tmp_path, gates={"test": f"test ! -f t1.txt || {{ {TEST}; }}"})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert task.status is Status.REJECTED
        assert task.rejection_reason == "test failed: boom: the widget is upside down"
        self.is_shown_to_people(team, str(task.rejection_output and task.rejection_output.run))

        team.turn("coder-1")

        prompts = [path.read_text() for path in (team.home / "runs").glob("*/prompt.md")]
        told = [text for text in prompts if "upside down" in text]
        assert sorted(re.findall(r"step: (\w+)", "\n".join(told))) == ["checkpoint", "implement"]
        for text in told:
            assert not fence_breaks(text, "the widget is upside down")
            assert "\n60\n" in text
            assert "\n24\n" in text
            assert "\n10\n" not in text

    def test_a_reviewer_is_shown_what_the_gates_printed(self, tmp_path: Path) -> None:
        """Inside of a fence, and with what may be a secret masked: also in what passed."""
        rest = "a1B2" * 9
        team = ScriptedTeam(
            tmp_path, gates={"test": f"printf 'token: ghp'; echo _{rest}; echo 7 tests passed"}
        )
        team.task()

        team.turns("coder-1", "reviewer-1")

        prompts = [path.read_text() for path in (team.home / "runs").glob("*/prompt.md")]
        (text,) = [one for one in prompts if "step: review" in one]
        assert "exit code 0" in text
        for line in ("    token: [masked]", "    7 tests passed"):
            assert line in text
            assert not fence_breaks(text, line)

    def is_shown_to_people(self, team: ScriptedTeam, run: str) -> None:
        assert (team.home / "runs" / run / "stdout").read_text().startswith("1\n2\n")
        shown = status.status_text(team.state, {})
        told = explanation_of("t1", observed_run_context(team.board, team.state), utc_now()).told(utc_now())
        for text in (shown, told):
            assert "the widget is upside down" in text
            assert "said    60" in text or "said   60" in text
            assert "said    50" not in text
            assert f".liza/runs/{run}" in text

    def test_people_are_told_what_a_check_without_a_command_found(self, tmp_path: Path) -> None:
        """The reason alone is the same for every file."""
        team = ScriptedTeam(tmp_path)
        team.task(scope={"in": ["elsewhere/"]})

        team.turn("coder-1")

        told = explanation_of("t1", observed_run_context(team.board, team.state), utc_now()).told(utc_now())
        assert team.state.status_of("t1") is Status.REJECTED
        assert re.search(r"  said   t1\.txt: .*scope", told), told

    def test_a_reason_is_cut_only_where_the_terminal_ends(self, tmp_path: Path) -> None:
        """What matters comes last in a long sentence."""
        team = ScriptedTeam(
            tmp_path, gates={"test": f"test ! -f t1.txt || {{ echo {'word ' * 29}end; false; }}"}
        )
        team.task()
        team.turn("coder-1")

        assert "word end\n" in status.status_text(team.state, {}, width=200)
        assert "word end\n" not in status.status_text(team.state, {}, width=80).partition("said")[0]


PYTEST = """
=================================== FAILURES ===================================
ERROR    root:x.py:3 not a test
=========================== short test summary info ============================
FAILED tests/test_a.py::test_add[a b] - assert 1 == 2
ERROR tests/test_b.py - ModuleNotFoundError: No module named 'b'
2 failed in 0.1s
"""
NODE = """not ok 1 - fails inside
  ---
    not ok 2 - deep
    not ok 3 - some day # TODO later
not ok 4 - another day # todo
"""


class TestFailures:
    @pytest.mark.parametrize(
        ("line", "said", "failed"),
        [
            ("python3 -m pytest -q", PYTEST, {"tests/test_a.py::test_add[a b]", "tests/test_b.py"}),
            ("pytest -x", PYTEST, None),
            ("pytest", "!!!!!! stopping after 1 failures !!!!!!\n" + PYTEST, None),
            ("pytest", "FAILED tests/test_a.py::test_a - but no summary", None),
            ("python3 -m unittest", "FAIL: test_a (t.T.test_a)\n", {"test_a (t.T.test_a)"}),
            ("node --test", NODE, {"fails inside", "deep"}),
            ("bats t", "1..2\nnot ok 1 fails\nnot ok 2 some day # TODO later\n", {"fails"}),
            ("go test ./...", "--- FAIL: TestA (0.0s)\nFAIL\nFAIL\tx.org/a\t0.1s\n", {"TestA", "x.org/a"}),
            ("cargo test", "test a::b ... FAILED\n", None),
            ("cargo test --no-fail-fast", "test a::b ... FAILED\n", {"a::b"}),
            ("make test", PYTEST, None),
        ],
    )  # fmt: skip
    def test_failed_tests_are_named_where_none_can_be_unseen(
        self, line: str, said: str, failed: set[str] | None
    ) -> None:
        """A runner that stops early, or that nobody knows, may hide what else is red."""
        assert failed_tests(line, said) == failed

    @pytest.mark.parametrize(
        ("line", "said", "cause"),
        [
            ("pytest", PYTEST, "tests/test_a.py::test_add[a b], tests/test_b.py"),
            ("python3 -m pytest", "py: No module named pytest", "py: No module named pytest"),
            ("make test", "a.c:1: error: no\nmake: *** [test] Error 1\n", "make: *** [test] Error 1"),
            ("./run", "", None),
        ],
    )  # fmt: skip
    def test_a_cause_is_one_line(self, line: str, said: str, cause: str | None) -> None:
        """The failed tests, the line that tells, or the last one."""
        assert cause_of(line, CommandResult(1, RunEnding.DONE, out=said)) == cause
