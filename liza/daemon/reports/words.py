"""Words that several reports and views have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import GoalStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from liza.domain.model import State

_MINUTE: Final = 60
_HOUR: Final = 3600


def duration_text(length: timedelta) -> str:
    """Return a length of time as people say it, in two units at most."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m{seconds % _MINUTE:02}s"
    return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE:02}m"


def run_outcome(state: State) -> str:
    """Return in one line what came of a run."""
    statuses = [*(task.status for task in state.tasks.values()), *state.archived.values()]
    done = sum(status in SUCCEEDED for status in statuses)
    unfinished = "" if state.goal.status is GoalStatus.COMPLETE else f", the goal is {state.goal.status}"
    return f"{done} of {len(statuses)} tasks done{unfinished}"
