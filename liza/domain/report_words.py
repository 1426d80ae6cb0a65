"""Words that several reports and views have in common."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.model import SUCCEEDED, GoalStatus, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from liza.domain.model import State

_MINUTE: Final = 60
_HOUR: Final = 3600
GIVEN_UP: Final = frozenset({Status.ABANDONED, Status.SUPERSEDED})


def duration_text(length: timedelta) -> str:
    """Return a length of time as people say it, in two units at most."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m{seconds % _MINUTE:02}s"
    return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE:02}m"


class Tally(NamedTuple):
    """How many tasks there are, by what became of them."""

    total: int
    done: int  # they succeeded
    given_up: int  # abandoned or superseded
    by_status: Mapping[str, int]

    @property
    def ended(self) -> int:
        return self.done + self.given_up

    def __str__(self) -> str:
        if not self.total:
            return "no task yet"
        return f"{self.done} of {self.total} tasks done" + f", {self.given_up} given up" * bool(self.given_up)


def tally_of(state: State) -> Tally:
    """Return how many tasks of *state* are where, those that left the board included."""
    counts = Counter(task.status for task in state.tasks.values()) + Counter(state.archived.values())
    done = sum(counts[status] for status in SUCCEEDED)
    given_up = sum(counts[status] for status in GIVEN_UP)
    by_status = {str(status): counts[status] for status in Status if counts[status]}
    return Tally(counts.total(), done, given_up, by_status)


def run_outcome(state: State) -> str:
    """Return in one line what came of a run."""
    unfinished = "" if state.goal.status is GoalStatus.COMPLETE else f", the goal is {state.goal.status}"
    ended = f"; {state.goal.search_ended}" if state.goal.search_ended else ""
    return f"{tally_of(state)}{unfinished}{ended}"
