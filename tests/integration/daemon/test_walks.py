"""The workflows that come with Liza, walked by real workers with scripted agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from liza.domain.changes import HUMAN
from liza.domain.model import Status
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

    SCRIPT: Final = {
        "implement/planner": {"answer": {"status": "done", "summary": "Write goal-1.txt", "risk": "low"}},
    }

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

    def test_a_risk_is_for_a_person_to_take(self, tmp_path: Path) -> None:
        risky = {"implement/planner": {"answer": {"status": "done", "summary": "Drop it", "risk": "high"}}}
        team = walk(tmp_path, "cycle", risky)

        task = team.state.task("goal-1")
        assert (task.status, task.position and task.position.waiting) == (Status.AWAITING_APPROVAL, "risk")
        assert task.artifacts["plan"].text == "Drop it"


class TestPhased:
    """Plan, implement, document; rounds that are over leave a mark."""

    LABEL: Final = {"answer": {"verdict": "approve", "reason": "one file", "label": "SIMPLE"}}
    PLAN: Final = {"answer": {"status": "done", "summary": "Write goal-1.txt"}}
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
