"""The alarms that people have to be told, computed from the board and the time; `notify` sends each once.

The key of an alarm names one occurrence. So a supervisor that was just restarted sees the same alarm again
and does not repeat it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.breaker import REPORTS
from liza.daemon.policy import progress
from liza.domain.lifecycle import TERMINAL
from liza.domain.metrics import rubber_stampers
from liza.domain.model import Status
from liza.domain.rules import report_name, resolve_command, trip_sentence
from liza.domain.switches import resume_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from liza.daemon.policy.progress import HumanWait
    from liza.domain.model import State, Task, Trip

WARN_ITERATIONS: Final = 8  # rounds of one coder; a lower limit blocks the task without a warning
WARN_REVIEWS: Final = 3  # rejections of one coder's work; likewise
# The crash itself, and the edit itself, are told by whoever saw it, with more to say.
_REPORTED_ELSEWHERE: Final = frozenset({"crash_loop", "rejected_edit", "gate_broken"})


class Alarm(NamedTuple):
    key: str
    says: str
    stands: bool = False  # somebody is waited for, so whoever starts the next run hears of it as well


def alarms(state: State, now: datetime, named: Collection[str] | None = None) -> Iterator[Alarm]:
    """Yield every alarm that the board gives reason for; *named* are the rules of the workflow, None means
    all.
    """
    yield from _wait_alarms(state, now)
    yield from (
        _trip_alarm(trip) for trip in state.circuit_breaker.trips if trip.rule not in _REPORTED_ELSEWHERE
    )
    for task in state.tasks.values():
        if task.status not in TERMINAL:
            yield from _task_alarms(task, state, warns=named is None or "warn_iterations" in named)
    for name, rate in rubber_stampers(state.sprint.metrics).items():
        says = f"{name} approves {rate:.0%} of what it sees for the first time; look at some of it yourself"
        yield Alarm(f"stamp {name} {state.sprint.number}", says)
    if state.sprint.retrospective is not None:
        where = state.sprint.retrospective
        yield Alarm(f"sprint {state.sprint.number}", f"sprint {state.sprint.number} is over; see {where}")


def _wait_alarms(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each thing that waits for people; open trips have alarms of their own."""
    only = [wait for wait in progress.only_people(state, now) if not _is_trip(state, wait)]
    yield from (
        Alarm(_wait_key(wait), f"only people can make progress: {wait}", stands=True) for wait in only
    )
    theirs = {task.id for task in state.tasks.values() if _needs_person(task)}
    for wait in progress.human_waits(state):
        if wait not in only and wait.what.partition(" ")[0] in theirs:
            yield Alarm(_wait_key(wait), f"a person is needed: {wait}", stands=True)


def _wait_key(wait: HumanWait) -> str:
    return f"waits {wait.what} {wait.since}"


def _is_trip(state: State, wait: HumanWait) -> bool:
    return any(wait.since == trip.id for trip in state.circuit_breaker.trips)


def _needs_person(task: Task) -> bool:
    if task.status is Status.BLOCKED:
        return task.asked is not None  # before that, the planner thinks about it
    return task.status is Status.AWAITING_APPROVAL or (task.status is Status.APPROVED and task.is_tainted)


def _trip_alarm(trip: Trip) -> Alarm:
    is_open = trip.resolved_at is None
    then = f" (`{resolve_command(trip)}`)" if is_open else ""
    return Alarm(
        f"trip {trip.id}", f"{trip_sentence(trip)}; see {REPORTS}/{report_name(trip)}{then}", stands=is_open
    )


def _task_alarms(task: Task, state: State, *, warns: bool) -> Iterator[Alarm]:
    coder, limits = task.authors[-1] if task.authors else "", state.config.limits
    if warns and WARN_ITERATIONS <= task.iteration < limits.max_coder_iterations:
        most = f"{task.iteration} of {limits.max_coder_iterations}"
        yield Alarm(f"rounds {task.id} {coder}", f"{task.id}: {coder} is in round {most} and not through yet")
    allowed = min(limits.max_rejections, limits.max_review_cycles)
    if WARN_REVIEWS <= task.review_cycles_current < allowed:
        most = f"{task.review_cycles_current} of {allowed}"
        yield Alarm(f"reviews {task.id} {coder}", f"{task.id}: the work of {coder} was rejected {most} times")


def stale_checkpoint(thrown: datetime, now: datetime, hours: float, said: str) -> Alarm | None:
    """Return an alarm if a CHECKPOINT thrown at *thrown* was not resumed; one alarm for every *hours*."""
    periods = int((now - thrown).total_seconds() // (hours * 3600))
    if periods < 1:
        return None
    says = (
        f"CHECKPOINT waits for somebody since {thrown:%Y-%m-%dT%H:%M:%SZ}; `{resume_command(said)}` goes on"
    )
    return Alarm(f"stale {thrown.isoformat()} {periods}", says)
