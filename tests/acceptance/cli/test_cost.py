"""`liza cost` and `liza run --plan-bound`: what it cost, and what it can cost at most."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import liza.daemon.supervisor  # noqa: F401 - imported here, so that no child of the shell has to
from liza.domain import budget
from liza.domain.waits import human_waits
from tests.support.scripted_team import STEPS, ScriptedTeam, dear
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

REJECT = {
    "verdict": "reject",
    "reason": "empty",
    "feedback": [{"message": "say more"}],
    "usage": {"usd": 0.1},
}


@pytest.fixture
def team(tmp_path: Path) -> ScriptedTeam:
    """A task that was rejected once and merged then, and one whose agent crashed."""
    script = dear(0.5)
    approve = script.pop("review")
    done = [{"message": "say more", "status": "addressed"}]
    approve["answer"]["prior_feedback"] = done
    script["review t1"] = [{"answer": REJECT}, approve]
    script["implement t1 2"] = {
        "write": {"t1.txt": "more\n"},
        "answer": {"status": "done", "summary": "more", "usage": {"usd": 0.25, "model": "big"}},
    }
    script["checkpoint t2"] = {"exit": 1, "print": "no"}
    team = ScriptedTeam(tmp_path, script)
    team.task("t1")
    team.turns("coder-1", "reviewer-1")
    team.task("t2")
    team.turn("coder-1")
    return team


class TestCost:
    def test_every_run_is_counted_by_what_became_of_it(self, team: ScriptedTeam) -> None:
        """Money for a rejected round is not money for the merge, and who dies at once costs nothing."""
        found = json.loads(Shell(team.user.directory).ok("cost", "--json"))

        outcomes = {
            name: (one["runs"], one["marks"]["reported"]) for name, one in found["by_outcome"].items()
        }
        assert outcomes == {"rejected": (3, 1.1), "merged": (3, 1.25), "crashed": (1, 0.0)}
        assert (found["by_outcome"]["crashed"]["usd"], found["total"]["unreported"]) == (0, 0)
        assert found["by_task"]["t1"]["usd"] == 2.35
        assert found["by_role"]["reviewer"]["usd"] == 0.6
        assert found["by_model"]["big"]["runs"] == 1
        assert found["total"]["usd"] == team.state.spend.total.usd
        assert found["usd_per_merged_task"] == found["total"]["usd"]

    def test_it_is_read_by_people(self, team: ScriptedTeam) -> None:
        """Each sum says where it comes from."""
        said = Shell(team.user.directory).ok("cost")

        assert "1 merged, $2." in said
        assert "reported" in said

    def test_what_is_counted_for_runs_that_did_not_report_is_told(self, tmp_path: Path) -> None:
        """`liza status` has it in its sum, so that the two would seem to contradict each other."""
        script = dear(0.5)
        script["implement t2"] = {"write": {"t2.txt": "x\n"}, "answer": {"status": "done", "summary": "x"}}
        team = ScriptedTeam(tmp_path, script)
        for task in ("t1", "t2"):
            team.task(task)
            team.turn("coder-1")
        shell = Shell(team.user.directory)

        said = shell.ok("cost")

        assert "$    1.50  $1.50 reported, 1 not reported" in said
        assert "$2.00 against the budget" in said
        assert "Spent     $2.00" in shell.ok("status")

    def test_a_run_that_never_ended_is_counted_as_lost(self, team: ScriptedTeam) -> None:
        """Its agent worked before its worker died."""
        reply = min(team.home.glob("runs/*t1*/reply.json"), default=None) or min(
            team.home.glob("runs/*/reply.json")
        )
        reply.unlink()

        found = json.loads(Shell(team.user.directory).ok("cost", "--json"))

        assert found["by_outcome"]["lost"]["marks"]["estimated"] > 0


class TestTheBound:
    def test_nothing_is_started(self, tmp_path: Path) -> None:
        """It prints the worst case, and what the caps make of it."""
        team = ScriptedTeam(
            tmp_path, budget={"run_usd": 8, "task_usd": 3}, limits={"max_coder_iterations": 4}
        )
        team.task("t1")
        team.task("t2")

        said = Shell(team.user.directory).ok("run", "--plan-bound")

        assert "implement      8 runs; what one costs is not known yet" in said
        assert "With $3.00 a task (budget.task_usd): $6.00 for 2 tasks" in said
        assert "at most $8.00 more" in said
        assert "can pass a cap by that run" in said
        assert not (team.home / "runs").exists()

    def test_every_hat_of_the_workflow_counts_by_its_own_rounds(self, tmp_path: Path) -> None:
        dear = {"JUDGE": {"model": "dear"}, "PLAN_JUDGE": {"model": "dearest"}}
        team = ScriptedTeam(tmp_path, workflow="phased", agents={"overrides": dear})
        shell = Shell(team.user.directory)

        said = shell.ok("run", "--plan-bound")
        assert "  judge in PLAN    6 runs" in said
        assert "  worker in IMPLEMENT   10 runs" in said
        assert "checkpoint" not in said
        agents = {(one["phase"], one["hat"]): one["agent"].get("model")
                  for one in json.loads(shell.ok("agents", "--json"))["steps"]}  # fmt: skip
        assert agents["PLAN", "judge"] == "dearest"
        assert agents["DOCS", "judge"] == "dear"
        assert "  PLAN judge  reviewer  nobody dearest" in shell.ok("agents")

    def test_it_counts_with_the_dearest_run_so_far(self, team: ScriptedTeam) -> None:
        """An average is no bound."""
        said = Shell(team.user.directory).ok("run", "--plan-bound")

        assert "implement     20 runs of at most $0.50 = $10.00" in said
        assert "With $20.00 in all (budget.run_usd): at most $17.65 more" in said

    def test_without_a_plan_only_the_caps_bound_it(self, tmp_path: Path) -> None:
        """How many tasks there will be is not known before there is one."""
        team = ScriptedTeam(tmp_path)

        said = Shell(team.user.directory).ok("run", "--plan-bound")

        assert "is not known" in said
        assert "at most $20.00 more" in said


def test_dear_surprises_pass_the_cap_once_at_most(tmp_path: Path) -> None:
    """Runs that report $30 where $0.04 was usual, with four coders that would all begin one at once.

    Nobody can end a run that tells its cost only when it is over; but no second one begins beside it.
    """
    script = dear(0.04)
    for step in STEPS:
        script[step]["answer"]["usage"] = {"usd": 30 if step == "implement" else 0.04}
    team = ScriptedTeam(
        tmp_path, {**script, "implement": {**script["implement"], "write": {"a": "a"}}}, workers={"coder": 4}
    )
    for number in range(4):
        team.task(f"t{number}")
    shell = Shell(team.user.directory)

    done = shell("run", "--until-idle")

    spend = team.state.spend
    assert done.code == 3, done
    assert [one.runs for one in spend.kinds if one.kind == "implement command"] == [1]
    assert spend.total.usd < 20 + 30
    assert spend.reserved == ()
    proposed = human_waits(team.state)[0].then.split()[1:]
    shell.ok(*proposed)
    assert not budget.is_budget_question_open(team.state)
