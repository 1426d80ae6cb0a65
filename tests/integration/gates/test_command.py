"""The command and score gates: real commands on a checkout of exactly the head."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from liza.domain.model import Outcome
from liza.errors import BrokenGate, UsageError
from liza.gates.context import TAIL_LINES
from liza.gates.registry import run_gate
from liza.repo.pool import POOL
from tests.support.gate_cases import GateCase, checkpoint, told

TEST = {"command": "test"}
RED_WITH_WORK = "test ! -e c.txt || {{ {}; }}"  # c.txt is what was done; without it the command is green
VALIDATION = {"from": "checkpoint.validation"}


@pytest.fixture
def desk(tmp_path: Path) -> GateCase:
    return GateCase(tmp_path)


class TestOwnCommands:
    def test_a_green_command_passes_with_evidence(self, desk: GateCase) -> None:
        """What was run, how it ended, what it printed, and where the rest is."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", TEST, gates={"test": "cat c.txt"})

        assert verdict.outcome is Outcome.PASS
        assert verdict.evidence
        assert (verdict.evidence.command, verdict.evidence.code, verdict.evidence.tail) == (
            "cat c.txt",
            0,
            "hello",
        )
        assert (desk.runs / str(verdict.evidence.run) / "stdout").read_text() == "hello\n"

    def test_a_red_command_goes_back_with_its_places(self, desk: GateCase) -> None:
        """The end of a long output is kept without npm notices; the file and line in it are feedback."""
        desk.commit({"c.txt": "hello\n"})
        said = "seq 9999; echo src/b.py:1: wrong; echo npm notice there is a new npm; exit 3"

        verdict = desk.judged("command", TEST, gates={"test": RED_WITH_WORK.format(said)})

        assert (verdict.outcome, verdict.reason) == (
            Outcome.REVISE,
            "test failed: src/b.py:1: wrong",
        )
        assert verdict.evidence
        assert len(verdict.evidence.tail.splitlines()) == TAIL_LINES
        assert verdict.evidence.tail.endswith("src/b.py:1: wrong")
        assert ("src/b.py", 1, "wrong") in [(one.file, one.line, one.message) for one in verdict.feedback]

    @pytest.mark.parametrize(
        ("gates", "gate"),
        [({"test": "sleep 60"}, "test"), ({"setup": "sleep 60", "test": "true"}, "setup")],
    )
    def test_a_command_that_hangs_without_the_work_as_well_is_no_coders_mistake(
        self, desk: GateCase, gates: dict[str, str], gate: str
    ) -> None:
        """It waits for something that is not there, or it needs more time than it has."""
        desk.commit({"c.txt": "hello\n"})
        desk.longest = 1.0

        with pytest.raises(BrokenGate, match=f"{gate} cannot judge any work: was not through"):
            desk.judged("command", TEST, gates=gates)

    def test_a_command_that_hangs_only_with_the_work_goes_back(self, desk: GateCase) -> None:
        """Without the work it is through in time."""
        desk.commit({"c.txt": "hello\n"})
        desk.longest = 5.0

        verdict = desk.judged("command", TEST, gates={"test": RED_WITH_WORK.format("sleep 60")})

        assert (verdict.outcome, verdict.reason) == (
            Outcome.REVISE,
            "test was not through: it took longer than it may in all",
        )
        assert [name for name, _ in desk.ran] == ["test", "test-base"]

    def test_a_project_without_a_test_may_get_a_document(self, desk: GateCase) -> None:
        """Pytest, and unittest since Python 3.12, end with 5 where there is nothing to run, as before."""
        desk.commit({"GUIDE.md": "hello\n"})

        verdict = desk.judged("command", TEST, gates={"test": "echo NO TESTS RAN; exit 5"})

        assert (verdict.outcome, verdict.reason) == (Outcome.PASS, "test finds no tests yet, as on the base")

    def test_tests_that_are_not_found_any_more_go_back(self, desk: GateCase) -> None:
        """On the base some were."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged(
            "command", TEST, gates={"test": RED_WITH_WORK.format("echo NO TESTS RAN; exit 5")}
        )

        assert verdict.outcome is Outcome.REVISE

    def test_an_absent_command_is_said_to_be_absent(self, desk: GateCase) -> None:
        """It passes, and never silently."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", {"command": "lint"})

        assert (verdict.outcome, verdict.label) == (Outcome.PASS, "skipped")
        assert str(verdict.reason).startswith("not set up")

    def test_what_is_not_committed_cannot_help(self, desk: GateCase) -> None:
        """Leftovers and ignored files of a worktree are not in the checkout."""
        desk.commit({"c.txt": "hello\n"})
        desk.home.write("leftover.txt", "x")
        desk.home.write("ignored.log", "x")

        assert (
            desk.judged("command", TEST, gates={"test": RED_WITH_WORK.format("test -e leftover.txt")}).outcome
            is Outcome.REVISE
        )
        assert (
            desk.judged("command", TEST, gates={"test": RED_WITH_WORK.format("test -e ignored.log")}).outcome
            is Outcome.REVISE
        )

    def test_a_command_changes_nothing_that_is_judged(self, desk: GateCase) -> None:
        """Neither the tree, nor what the next command finds."""
        head = desk.commit({"c.txt": "hello\n"})
        line = 'test "$(cat c.txt)" = hello && ! test -e new && echo bye > c.txt && touch new'

        with desk.case(gates={"test": line, "lint": f"{line} "}) as case:
            verdicts = [run_gate(name, "command", {"command": name}, case) for name in ("test", "lint")]

        assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS, Outcome.PASS]
        assert {verdict.tree for verdict in verdicts} == {desk.home.git("rev-parse", f"{head}^{{tree}}")}

    def test_the_setup_runs_once_while_nobody_touches_what_it_made(self, desk: GateCase) -> None:
        """An installation takes minutes; what other commands add to it is removed, not kept."""
        desk.commit({"c.txt": "hello\n"})
        gates = {
            "setup": "mkdir made && echo x > made/it",
            "test": "cat made/it && touch made/cache",
            "lint": "ls made",
        }

        with desk.case(gates=gates) as case:
            verdicts = [
                run_gate(name, "command", {"command": name}, case) for name in ("test", "lint", "setup")
            ]

        assert [name for name, _ in desk.ran] == ["setup", "test", "lint"]
        assert [str(verdict.evidence and verdict.evidence.tail) for verdict in verdicts] == ["x", "it", ""]

    def test_what_was_tampered_with_is_set_up_again(self, desk: GateCase) -> None:
        """A test must not be able to change what the next command relies on."""
        desk.commit({"c.txt": "hello\n"})
        gates = {"setup": "echo good > made", "test": "echo bad > made", "lint": "cat made"}

        with desk.case(gates=gates) as case:
            verdicts = [run_gate(name, "command", {"command": name}, case) for name in ("test", "lint")]

        assert verdicts[1].evidence
        assert verdicts[1].evidence.tail == "good"
        assert [name for name, _ in desk.ran] == ["setup", "test", "setup", "lint"]

    def test_a_red_setup_is_the_reason(self, desk: GateCase) -> None:
        """The test is not run where nothing is ready for it."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged(
            "command", TEST, gates={"setup": RED_WITH_WORK.format("exit 4"), "test": "true"}
        )

        assert (verdict.outcome, verdict.reason) == (Outcome.REVISE, "setup ended with exit code 4")

    def test_a_command_that_removes_its_directory_spoils_nothing(self, desk: GateCase) -> None:
        """The next one gets a new one."""
        desk.commit({"c.txt": "hello\n"})

        with desk.case(gates={"test": 'rm -rf "$PWD"', "lint": "cat c.txt"}) as case:
            run_gate("test", "command", TEST, case)
            verdict = run_gate("lint", "command", {"command": "lint"}, case)

        assert verdict.outcome is Outcome.PASS

    def test_the_directory_is_given_back(self, desk: GateCase) -> None:
        """The pool has it for the next case, clean."""
        desk.commit({"c.txt": "hello\n"})
        desk.judged("command", TEST, gates={"test": "touch left"})

        waiting = list((desk.home.directory / ".worktrees" / POOL).iterdir())

        assert [(path / "left").exists() for path in waiting] == [False]

    def test_the_same_command_on_the_same_tree_runs_once(self, desk: GateCase) -> None:
        """Two gates that ask the same get the same answer."""
        desk.commit({"c.txt": "hello\n"})

        with desk.case(gates={"test": "cat c.txt"}) as case:
            run_gate("one", "command", TEST, case)
            run_gate("two", "command", {"run": "cat c.txt"}, case)

        assert len(desk.ran) == 1

    def test_a_recorded_command_does_not_decide(self, desk: GateCase) -> None:
        """Its end is told all the same."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", {"run": "exit 3", "mode": "record"})

        assert (verdict.outcome, verdict.label) == (Outcome.PASS, "recorded")
        assert "exit code 3" in str(verdict.reason)


class TestClaims:
    def test_a_true_claim_passes(self, desk: GateCase) -> None:
        """The exit code is 0 and the output has what was expected."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged(
            "command", VALIDATION, checkpoint=checkpoint(command="cat c.txt", expect="Hello")
        )

        assert verdict.outcome is Outcome.PASS

    @pytest.mark.parametrize(("command", "expect"), [("cat ghost.txt", ""), ("cat c.txt", "goodbye")])
    def test_a_false_claim_is_told_as_such(self, desk: GateCase, command: str, expect: str) -> None:
        """Pains, A15: an agent explains red tests away; here it is shown what its command said."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", VALIDATION, checkpoint=checkpoint(command=command, expect=expect))

        assert verdict.outcome is Outcome.REVISE
        assert "the checkpoint claims" in told(verdict)

    def test_a_dangerous_claim_is_not_run(self, desk: GateCase, tmp_path: Path) -> None:
        """The command is the agent's, the machine is not."""
        (tmp_path / "precious").mkdir()
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged(
            "command", VALIDATION, checkpoint=checkpoint(command=f"rm -rf {tmp_path}/precious")
        )

        assert (verdict.outcome, desk.ran) == (Outcome.REVISE, [])
        assert (tmp_path / "precious").exists()

    def test_no_claim_is_no_silent_pass(self, desk: GateCase) -> None:
        """The reviewer is told that nothing was run."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", VALIDATION, checkpoint=checkpoint())

        assert (verdict.outcome, verdict.label, len(verdict.feedback)) == (Outcome.PASS, "skipped", 1)


class TestDoneWhen:
    def test_lines_that_are_met_pass(self, desk: GateCase) -> None:
        """Those without a command are for the reviewer."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged(
            "command", {"from": "done_when"}, done_when=("`cat c.txt` prints hello", "it is nice")
        )

        assert verdict.outcome is Outcome.PASS

    def test_a_line_that_is_not_met_goes_back(self, desk: GateCase) -> None:
        """With what the command printed instead."""
        desk.commit({"c.txt": "goodbye\n"})

        verdict = desk.judged("command", {"from": "done_when"}, done_when=("`cat c.txt` prints hello",))

        assert verdict.outcome is Outcome.REVISE
        assert "goodbye" in told(verdict)

    def test_a_word_that_is_no_command_blames_nobody(self, desk: GateCase) -> None:
        """`greet` may be a function: that it was not checked is said."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("command", {"from": "done_when"}, done_when=("`greet_nobody` prints hello",))

        assert verdict.outcome is Outcome.PASS
        assert "was not checked" in told(verdict)


class TestScore:
    SWEEP = f"{sys.executable} -c \"print('speed,score'); print('1,4'); print('1,6')\" > results.csv"

    def options(self, **more: object) -> dict[str, object]:
        return {"run": self.SWEEP, "results": "results.csv", "column": "score", **more}

    def test_a_better_number_passes(self, desk: GateCase) -> None:
        """The delta to the baseline is the label."""
        desk.commit({"c.txt": "hello\n"})

        verdict = desk.judged("score", self.options(baseline=3))

        assert (verdict.outcome, verdict.label) == (Outcome.PASS, "+2")

    @pytest.mark.parametrize(
        "more", [{"baseline": 9}, {"at_least": 6}, {"baseline": 3, "higher_is_better": False}]
    )
    def test_a_worse_number_goes_back_unless_it_is_recorded(
        self, desk: GateCase, more: dict[str, object]
    ) -> None:
        """By the direction and the limits of the workflow."""
        desk.commit({"c.txt": "hello\n"})

        assert desk.judged("score", self.options(**more)).outcome is Outcome.REVISE
        assert desk.judged("score", self.options(**more, mode="record")).outcome is Outcome.PASS

    def test_a_file_that_the_command_did_not_write_is_no_result(self, desk: GateCase) -> None:
        """A number from yesterday says nothing about today's work."""
        desk.commit({"results.csv": "score\n99\n"})

        verdict = desk.judged("score", self.options(run="true", baseline=3))

        assert verdict.outcome is Outcome.NONE

    def test_the_baseline_can_be_a_file_of_the_base_or_measured(self, desk: GateCase) -> None:
        """An agent cannot change what it is compared with."""
        desk.begin({"baseline.csv": "score\n1\n", "number": "1\n"})
        desk.commit({"baseline.csv": "score\n-99\n", "number": "3\n"})

        by_file = desk.judged("score", self.options(baseline="baseline.csv"))
        measured = desk.judged("score", {"run": "cat number", "baseline": "run"})

        assert (by_file.label, measured.label) == ("+4", "+2")


def test_no_code_speaks_for_a_person(desk: GateCase) -> None:
    """The engine waits for their word; whoever asks a machine for it is refused."""
    desk.commit({"c.txt": "hello\n"})

    with pytest.raises(UsageError, match="is for a person to judge"):
        desk.judged("human")
