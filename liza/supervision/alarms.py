"""What people have to be told, as a function of the board and the time; `telling` sees that it is once.

An alarm has a key that names this very occurrence, so that it can be told on its edge although it is looked
at as a level, by a supervisor that may have been another one a minute ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.breaker import sentence
from liza.lifecycle import TERMINAL
from liza.metrics import stampers
from liza.model import Status
from liza.report.trips import file_name, resolving
from liza.roles import outlook
from liza.supervision.guard import REPORTS
from liza.switches import way_on

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from liza.model import State, Task, Trip
    from liza.roles.outlook import Wait

WARN_ITERATIONS: Final = 8  # rounds of one coder; a lower limit blocks the task without a warning
WARN_REVIEWS: Final = 3  # rejections of one coder's work; likewise
# The crash itself, and the edit itself, are told by whoever saw it, with more to say.
_TOLD_ELSEWHERE: Final = frozenset({"crash_loop", "rejected_edit", "gate_broken"})


class Alarm(NamedTuple):
    key: str
    says: str
    stands: bool = False  # somebody is waited for, so whoever starts the next run hears of it as well


def alarms(state: State, now: datetime, named: Collection[str] | None = None) -> Iterator[Alarm]:
    """Yield all that the board gives reason to tell; *named* are the rules of the workflow; None is all."""
    yield from _waits(state, now)
    yield from (_of_trip(trip) for trip in state.circuit_breaker.trips if trip.rule not in _TOLD_ELSEWHERE)
    for task in state.tasks.values():
        if task.status not in TERMINAL:
            yield from _of_task(task, state, warns=named is None or "warn_iterations" in named)
    for name, rate in stampers(state.sprint.metrics).items():
        says = f"{name} approves {rate:.0%} of what it sees for the first time; look at some of it yourself"
        yield Alarm(f"stamp {name} {state.sprint.number}", says)
    if state.sprint.retrospective is not None:
        where = state.sprint.retrospective
        yield Alarm(f"sprint {state.sprint.number}", f"sprint {state.sprint.number} is over; see {where}")


def _waits(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield what only people can answer; the trips among it are told by themselves."""
    only = [wait for wait in outlook.only_people(state, now) if not _is_trip(state, wait)]
    yield from (Alarm(_key(wait), f"only people can make progress: {wait}", stands=True) for wait in only)
    theirs = {task.id for task in state.tasks.values() if _is_theirs(task)}
    for wait in outlook.asks(state):
        if wait not in only and wait.what.partition(" ")[0] in theirs:
            yield Alarm(_key(wait), f"a person is needed: {wait}", stands=True)


def _key(wait: Wait) -> str:
    return f"waits {wait.what} {wait.since}"


def _is_trip(state: State, wait: Wait) -> bool:
    return any(wait.since == trip.id for trip in state.circuit_breaker.trips)


def _is_theirs(task: Task) -> bool:
    if task.status is Status.BLOCKED:
        return task.asked is not None  # before that, the planner thinks about it
    return task.status is Status.AWAITING_APPROVAL or (task.status is Status.APPROVED and task.is_tainted)


def _of_trip(trip: Trip) -> Alarm:
    is_open = trip.resolved_at is None
    then = f" (`{resolving(trip)}`)" if is_open else ""
    return Alarm(
        f"trip {trip.id}", f"{sentence(trip)}; see {REPORTS}/{file_name(trip)}{then}", stands=is_open
    )


def _of_task(task: Task, state: State, *, warns: bool) -> Iterator[Alarm]:
    coder, limits = task.authors[-1] if task.authors else "", state.config.limits
    if warns and WARN_ITERATIONS <= task.iteration < limits.max_coder_iterations:
        most = f"{task.iteration} of {limits.max_coder_iterations}"
        yield Alarm(f"rounds {task.id} {coder}", f"{task.id}: {coder} is in round {most} and not through yet")
    allowed = min(limits.max_rejections, limits.max_review_cycles)
    if WARN_REVIEWS <= task.review_cycles_current < allowed:
        most = f"{task.review_cycles_current} of {allowed}"
        yield Alarm(f"reviews {task.id} {coder}", f"{task.id}: the work of {coder} was rejected {most} times")


def stale(thrown: datetime, now: datetime, hours: float, said: str) -> Alarm | None:
    """Return the alarm that nobody resumed a CHECKPOINT that was thrown long ago; another one a period."""
    periods = int((now - thrown).total_seconds() // (hours * 3600))
    if periods < 1:
        return None
    says = f"CHECKPOINT waits for somebody since {thrown:%Y-%m-%dT%H:%M:%SZ}; `{way_on(said)}` goes on"
    return Alarm(f"stale {thrown.isoformat()} {periods}", says)
