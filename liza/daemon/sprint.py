"""The end of a sprint: recorded, looked back on, and halted at; the next begins when people resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.daemon import files
from liza.daemon.breaker import REPORTS
from liza.daemon.reports.metrics import retrospective
from liza.domain import sprints
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.model import GoalStatus
from liza.domain.switches import Switch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.model import State


def advance_sprint(board: Board, state: State, switches: Mapping[str, str], now: datetime) -> State:
    """Advance the sprint by one step where that is due; every step can be repeated."""
    if state.goal.status is not GoalStatus.IN_PROGRESS or sprints.why_over(state, now):
        state = board.update(
            Change(SUPERVISOR.id, "end the sprint", lambda latest: sprints.end_sprint(latest, now))
        )
    sprint = state.sprint
    if sprint.ended is None:
        return state
    if sprint.retrospective is None:
        return _write_retrospective(board, state)
    if Switch.CHECKPOINT.name in switches or state.goal.status is not GoalStatus.IN_PROGRESS:
        return state
    return board.update(
        Change(SUPERVISOR.id, "begin a sprint", lambda latest: sprints.begin_next_sprint(latest, now))
    )


def _write_retrospective(board: Board, state: State) -> State:
    """Write the files first: that the board names the retrospective says that people were halted for it."""
    sprint, why = state.sprint, sprints.why_ended(state)
    path = board.home / REPORTS / f"sprint-{sprint.number}.md"
    files.write_report(path, retrospective(state, why, sprint.ended or state.goal.created))
    if state.goal.status is GoalStatus.IN_PROGRESS:
        said = f"sprint {sprint.number} is over, because {why}; see {REPORTS}/{path.name}"
        board.switches.throw(Switch.CHECKPOINT, f"{said}, then `liza resume` begins the next")
    name = f"{REPORTS}/{path.name}"
    change = Change(
        SUPERVISOR.id, "look back", lambda latest: sprints.with_retrospective(latest, sprint.number, name)
    )
    return board.update(change)
