"""When an anomaly is over: somebody dealt with it, or what it was about is finished.

What the planner only read still counts for the circuit breaker, which looks for what comes again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.lifecycle import TERMINAL
from liza.domain.record import with_records

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.anomalies import Anomaly
    from liza.domain.model import State

# What Liza itself states about the run: no agent's answer is about these.
OF_THE_RUN: Final = frozenset(
    {"merge_conflict", "checkout_drift", "crash_loop", "edit_rejected", "no_sandbox"}
)
OVER_WITH_ITS_TASK: Final = frozenset({"merge_conflict"})


def is_of_agents(anomaly: Anomaly) -> bool:
    """Return whether a planner can do something about *anomaly*."""
    return anomaly.type not in OF_THE_RUN


def open_ones(state: State, about: str | None = None) -> tuple[Anomaly, ...]:
    """Return the anomalies that nobody dealt with: all of them, or those of the task *about*."""
    return tuple(
        one
        for one in state.anomalies.values()
        if one.processed is None and (about is None or one.task_id == about)
    )


def close(state: State, names: Collection[str], *, by: str, at: datetime) -> State:
    """Return the board with the anomalies *names* processed; what an open trip saw stays open."""
    trips = state.circuit_breaker.trips
    held = {name for trip in trips if trip.resolved_at is None for name in trip.evidence}
    over = {
        name: state.anomalies[name].but(processed=at, processed_by=by)
        for name in names
        if name not in held and state.anomalies[name].processed is None
    }
    return state.but(anomalies=with_records(state.anomalies, over)) if over else state


def close_finished(old: State, new: State) -> State:
    """Return *new* without open anomalies that were about a task which was finished since *old*."""
    for one in open_ones(new) if new.tasks is not old.tasks else ():
        task = new.tasks.get(one.task_id or "")
        if one.type in OVER_WITH_ITS_TASK and task is not None and task.status in TERMINAL:
            new = close(new, (one.id,), by=task.history[-1].by, at=task.history[-1].at)
    return new
