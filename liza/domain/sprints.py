"""When a sprint begins, what belongs to it, when it is over, and what the next one takes along.

With neither `sprint.hours` nor `sprint.tasks` in the settings the goal is one sprint and all tasks are in it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from liza.domain.lifecycle import TERMINAL
from liza.domain.model import GoalStatus, Sprint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from liza.domain.config import SprintLength
    from liza.domain.model import State


def is_limited(length: SprintLength) -> bool:
    return length.hours is not None or length.tasks is not None


def with_sprint_scope(old: State, new: State) -> State:
    """Return *new* with its sprint started by the first tasks, and with new tasks added to its scope."""
    sprint = new.sprint
    if sprint.ended is not None or len(new.tasks) <= len(old.tasks):
        return new
    if sprint.started is None:
        first = min(task.created for task in new.tasks.values())
        sprint = sprint.replace(started=first, deadline=sprint.deadline or _deadline(new, first))
    if is_limited(new.config.sprint):
        added = [name for name in new.tasks if name not in old.tasks and name not in sprint.tasks]
        sprint = sprint.replace(tasks=(*sprint.tasks, *added))
    return new.replace(sprint=sprint)


def _deadline(state: State, began: datetime) -> datetime | None:
    hours = state.config.sprint.hours
    return began + timedelta(hours=hours) if hours else None


def why_over(state: State, now: datetime) -> str | None:
    """Return why the sprint is over, or None while it goes on, or where that is written down already."""
    sprint, length = state.sprint, state.config.sprint
    if sprint.started is None or sprint.ended is not None:
        return None
    deadline = sprint.deadline or _deadline(state, sprint.started)
    if deadline is not None and now >= deadline:
        return f"its deadline, {deadline:%Y-%m-%dT%H:%M:%SZ}, has passed"
    finished = sum(sprint.metrics.outcomes.values())
    if length.tasks is not None and finished >= length.tasks:
        return f"{finished} tasks are finished"
    if is_limited(length) and sprint.tasks and not _open_tasks(state, sprint.tasks):
        return "all of its tasks are finished"
    return None


def why_ended(state: State) -> str:
    """Return why the sprint that is over was."""
    sprint = state.sprint
    if state.goal.status is not GoalStatus.IN_PROGRESS or sprint.ended is None:
        return f"the goal is {state.goal.status}"
    return why_over(state.replace(sprint=sprint.replace(ended=None)), sprint.ended) or "it was ended"


def _open_tasks(state: State, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if state.status_of(name) not in TERMINAL)


def end_sprint(state: State, now: datetime) -> State:
    """Return the board with its sprint ended, unless it is already."""
    if state.sprint.started is None or state.sprint.ended is not None:
        return state
    return state.replace(sprint=state.sprint.replace(ended=now))


def with_retrospective(state: State, number: int, file: str) -> State:
    """Return the board with the name of the file that looks back on sprint *number*."""
    if state.sprint.number != number:
        return state
    return state.replace(sprint=state.sprint.replace(retrospective=file))


def begin_next_sprint(state: State, now: datetime) -> State:
    """Return the board with the next sprint begun: what is open goes along, counters are fresh."""
    if state.sprint.ended is None:
        return state
    carried = _open_tasks(state, state.tasks) if is_limited(state.config.sprint) else ()
    sprint = Sprint(
        number=state.sprint.number + 1, tasks=carried, started=now, deadline=_deadline(state, now)
    )
    return state.replace(sprint=sprint)
