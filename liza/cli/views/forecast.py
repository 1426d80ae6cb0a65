"""When a run will be done if it goes on as it did: from how long finished tasks were in work."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.reports.words import duration_text
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Status

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State, Task

# Where somebody works on a task, or could at once: what a forecast counts as work.
_IN_WORK: Final = frozenset(
    {Status.WORKING, Status.READY_FOR_REVIEW, Status.REJECTED, Status.APPROVED, Status.INTEGRATION_FAILED}
)
_LAST_PART: Final = 0.1  # share of the usual time that a task which takes longer still needs
_FOR_PEOPLE: Final = frozenset({Status.BLOCKED, Status.AWAITING_APPROVAL, Status.DRAFT})


class Forecast(NamedTuple):
    """When it will be done if it goes on as it did; *seconds* is None where too little is known."""

    seconds: float | None
    remaining: int  # tasks that agents can go on with
    for_people: int  # tasks that wait for people, which no time tells
    finished: int  # tasks that it is measured from
    seconds_per_task: float | None

    def done_at(self, now: datetime) -> datetime | None:
        return None if self.seconds is None else now + timedelta(seconds=self.seconds)


def forecast_of(state: State, now: datetime) -> Forecast:
    """Return when *state* will be done, from how long finished tasks of this sprint were in work."""
    tasks = [task for task in state.tasks.values() if task.status not in TERMINAL]
    for_people = sum(task.status in _FOR_PEOPLE for task in tasks)
    open_ones = [task for task in tasks if task.status not in _FOR_PEOPLE]
    counted = state.sprint.metrics
    finished = sum(counted.outcomes.values())
    if not finished:
        return Forecast(None, len(open_ones), for_people, 0, None)
    worked = sum(spent for name, spent in counted.seconds.items() if name.rpartition(".")[2] in _IN_WORK)
    each = worked / finished
    left = sum(_seconds_left(task, each, now) for task in open_ones)
    lanes = max(1, min(state.config.workers.coder, len(open_ones)))
    return Forecast(round(left / lanes, 1), len(open_ones), for_people, finished, round(each, 1))


def _seconds_left(task: Task, each: float, now: datetime) -> float:
    """Return what is left of *task* if it takes as long as others; one that takes longer is nearly done."""
    if task.status not in _IN_WORK:
        return each
    begun = next((entry.at for entry in task.history if entry.event == "claim"), task.created)
    return max(_LAST_PART * each, each - (now - begun).total_seconds())


def forecast_text(forecast: Forecast, now: datetime, *, is_going: bool) -> str:
    """Return in a few words when it will be done; nothing where too little is known, or nothing is left."""
    words = forecast_words(forecast, now, is_going=is_going)
    measured = f" (from {forecast.finished} finished task{'s' if forecast.finished > 1 else ''})"
    return f"{words}{measured}" if words else ""


def forecast_words(forecast: Forecast, now: datetime, *, is_going: bool) -> str:
    """Return the same without what it is measured from; of work that nobody does, no time of day is known."""
    done = forecast.done_at(now)
    if done is None or forecast.seconds is None or not forecast.remaining:
        return ""
    left = duration_text(timedelta(seconds=max(1.0, forecast.seconds)))
    return f"about {left} left, until {done:%H:%MZ}" if is_going else f"about {left} of work left"
