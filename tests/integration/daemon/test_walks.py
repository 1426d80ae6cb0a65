"""The workflows that come with Liza, walked by real workers with scripted agents."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from liza.domain.changes import HUMAN
from liza.domain.model import Outcome, Status
from liza.domain.record import utc_now
from liza.workflow.transition import accept_task, reject_task
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = ("planner-1", "coder-1", "reviewer-1")


def walk(directory: Path, workflow: str, script: dict[str, Any], **files: str) -> ScriptedTeam:
    team = ScriptedTeam(directory, script, workflow=workflow)
    for name, text in files.items():
        (team.user.directory / name.replace("__", ".")).write_text(text)
    team.turns(*ALL)
    return team


class TestCycle:
    """Small steps, each planned by one hat, done by another, judged by a third, approved by a person."""

    STEP: Final = {
        "objective": "a file",
        "instructions": "write goal-1.txt",
        "files": ["goal-1.txt"],
        "loc_estimate": 1,
        "risk": "low",
        "success_criteria": ["it is there"],
        "avoid": ["other files"],
    }
    PLAN: Final = {"status": "done", "summary": "Write goal-1.txt", "confidence": 9, "step": STEP}
    SCRIPT: Final = {"implement/planner": {"answer": PLAN}}

    def planned(self, **changes: object) -> dict[str, Any]:
        """Return a script whose planner issues another step."""
        return {"implement/planner": {"answer": {**self.PLAN, "step": {**self.STEP, **changes}}}}

    def test_a_step_waits_for_a_person_and_is_merged(self, tmp_path: Path) -> None:
        team = walk(tmp_path, "cycle", self.SCRIPT)
        assert team.status("goal-1") is Status.AWAITING_APPROVAL

        team.board.update(accept_task("goal-1", "good", by=HUMAN, at=utc_now()))
        team.turns(*ALL)

        assert team.status("goal-1") is Status.MERGED
        assert team.events("goal-1")[:8] == [
            *("added", "claim", "proceed", "claim", "proceed", "claim", "submit", "take_review"),
        ]
        assert (team.home / "finished/goal-1.json").is_file()

    def test_what_a_person_rejects_goes_back_to_who_plans(self, tmp_path: Path) -> None:
        team = walk(tmp_path, "cycle", self.SCRIPT)

        team.board.update(reject_task("goal-1", "too long", by=HUMAN, at=utc_now()))

        task = team.state.task("goal-1")
        assert (task.status, task.position and task.position.phase) == (Status.REJECTED, "PLAN")
        assert team.turn("coder-1").name == "WAIT"

    def test_people_are_asked_only_when_the_goal_is_reached_where_an_edge_says_so(
        self, tmp_path: Path
    ) -> None:
        judged = [
            {"answer": {"verdict": "approve", "reason": "a beginning", "label": "progressing"}},
            {"answer": {"verdict": "approve", "reason": "all of it", "label": "sufficient"}},
        ]
        act = {"run": "date +%s%N >> goal-1.txt", "answer": {"status": "done", "summary": "Add a line"}}
        script = {**self.SCRIPT, "implement/actor": act, "review/judge": judged}
        team = ScriptedTeam(tmp_path, script, workflow="mine.yaml")
        text = files("liza.workflow").joinpath("cycle.yaml").read_text(encoding="utf-8")
        mine = text.replace("    next: APPROVE\n", "      pass/progressing: PLAN\n    next: APPROVE\n")
        (team.user.directory / "mine.yaml").write_text(mine)
        team.turns(*ALL)

        task = team.state.task("goal-1")
        assert task.status is Status.AWAITING_APPROVAL
        assert (task.position and task.position.loop, team.events("goal-1").count("ask_human")) == (2, 1)

    def test_a_risk_is_for_a_person_to_take(self, tmp_path: Path) -> None:
        # What the step is about counts for more than the word of who plans it.
        team = walk(tmp_path, "cycle", self.planned(operations=["data_deletion"]))

        task = team.state.task("goal-1")
        assert (task.status, task.position and task.position.waiting) == (Status.AWAITING_APPROVAL, "risk")
        assert json.loads(task.artifacts["step"].text)["base"] == team.user.base

    def test_a_forbidden_command_in_a_step_is_for_a_person_to_allow(self, tmp_path: Path) -> None:
        team = walk(tmp_path, "cycle", self.planned(instructions="clean up\nrm -rf /"))

        task = team.state.task("goal-1")
        assert (task.status, task.position and task.position.waiting) == (Status.AWAITING_APPROVAL, "risk")

    def test_a_step_that_is_too_large_never_reaches_the_actor(self, tmp_path: Path) -> None:
        large = self.planned(loc_estimate=151, files=["a.txt", "b.txt", "c.txt"])
        team = walk(tmp_path, "cycle", large)

        task = team.state.task("goal-1")
        assert task.status is Status.BLOCKED
        assert "split the step over several loops" in task.rejection_feedback[0].message
        assert task.review_commit is None

    def test_who_answers_without_a_step_is_told_what_it_needs(self, tmp_path: Path) -> None:
        team = ScriptedTeam(
            tmp_path, {"implement/planner": {"answer": {"status": "done", "summary": "x"}}}, workflow="cycle"
        )
        for _ in range(3):
            team.turn("planner-1")

        task = team.state.task("goal-1")
        assert (task.position and task.position.phase, task.status) == ("PLAN", Status.REJECTED)
        assert "loc_estimate, risk, success_criteria, avoid" in task.rejection_feedback[0].message

    def test_the_actor_keeps_to_the_files_of_its_step(self, tmp_path: Path) -> None:
        team = walk(
            tmp_path,
            "cycle",
            {
                **self.SCRIPT,
                "implement/actor": {
                    "write": {"other.txt": "x\n"},
                    "answer": {"status": "done", "summary": "Write more"},
                },
            },
        )

        task = team.state.task("goal-1")
        assert task.status is Status.BLOCKED
        assert task.decisions[0].phase == "ACT"
        assert (task.blocked_rule, len(task.decisions)) == ("actor_fail_pause", 5)

    def test_a_planner_that_is_not_sure_asks(self, tmp_path: Path) -> None:
        team = walk(tmp_path, "cycle", {"implement/planner": {"answer": {**self.PLAN, "confidence": 4}}})

        task = team.state.task("goal-1")
        assert (task.status, task.blocked_rule) == (Status.BLOCKED, "low_confidence")
        assert task.questions == ("Is it right?",)

    def test_five_loops_that_the_judge_sends_back_pause_it(self, tmp_path: Path) -> None:
        no = {"answer": {"verdict": "reject", "reason": "no", "feedback": [{"message": "more"}]}}
        act = {"run": "date +%s%N >> goal-1.txt", "answer": {"status": "done", "summary": "Write it"}}
        script = {**self.SCRIPT, "implement/actor": act, "review/judge": no}
        team = walk(tmp_path, "cycle", script)

        task = team.state.task("goal-1")
        assert (task.status, task.blocked_rule) == (Status.BLOCKED, "five_loop_pause")
        assert [one.phase for one in task.decisions if one.outcome is Outcome.REVISE] == ["JUDGE"] * 5
        assert team.events("goal-1").count("claim") == 1 + 2 * 5
        assert [trip.rule for trip in team.state.circuit_breaker.trips].count("stuck_cycle") == 1


class TestPhased:
    """Plan, implement, document; rounds that are over leave a mark."""

    LABEL: Final = {"answer": {"verdict": "approve", "reason": "one file", "label": "SIMPLE"}}
    PLAN: Final = {"answer": {"status": "done", "summary": "Write goal-1.txt", "handoff": "write it"}}
    WORK: Final = {
        "run": "date +%s%N >> goal-1.txt",
        "answer": {"status": "done", "summary": "Write it"},
    }

    def script(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent may be told
        return {
            "review/complexity_assessor": self.LABEL,
            "implement/thinker": self.PLAN,
            "implement/worker": self.WORK,
            **more,
        }

    def test_simple_work_needs_no_review_of_its_plan(self, tmp_path: Path) -> None:
        team = walk(tmp_path, "phased", self.script())

        task = team.state.task("goal-1")
        assert (task.status, task.position and task.position.path) == (Status.COMPLETE, "SIMPLE")
        assert not task.taints
        assert team.events("goal-1").count("claim") == 3

    def test_what_the_judge_never_lets_pass_waits_for_a_person(self, tmp_path: Path) -> None:
        no = {"answer": {"verdict": "reject", "reason": "no", "feedback": [{"message": "more"}]}}
        team = walk(tmp_path, "phased", self.script(**{"review/judge": no}))

        task = team.state.task("goal-1")
        assert task.status is Status.AWAITING_APPROVAL
        assert [one.mark for one in task.taints] == ["forced:IMPLEMENT"]

        team.board.update(accept_task("goal-1", "good enough", by=HUMAN, at=utc_now()))
        team.turns(*ALL)
        assert team.status("goal-1") is Status.COMPLETE
