"""A workflow of another shape than the default, by the real daemon with scripted agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.model import GoalStatus, Status
from tests.support.daemon_run import Daemon

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT: Final = {
    "review/complexity_assessor": {"answer": {"verdict": "approve", "reason": "small", "label": "SIMPLE"}},
    "implement/thinker": {"answer": {"status": "done", "summary": "Write goal-1.txt", "handoff": "do it"}},
    "implement/worker": {
        "run": "date +%s%N >> goal-1.txt",
        "answer": {"status": "done", "summary": "Write it"},
    },
}


def test_a_goal_is_planned_done_and_documented_by_one_run(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, SCRIPT, workflow="phased")

    assert daemon.run() == 0

    assert daemon.status("goal-1") is Status.COMPLETE
    assert daemon.state.goal.status is GoalStatus.COMPLETE
    assert daemon.head() == daemon.user.base
