"""When an anomaly is closed: it was processed, or its task is finished.

Anomalies that only a planner processed still count for the circuit breaker.
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
STATED_BY_LIZA: Final = frozenset(
    {"merge_conflict", "checkout_drift", "crash_loop", "edit_rejected", "no_sandbox"}
)
ENDS_WITH_TASK: Final = frozenset({"merge_conflict"})


def is_for_planner(anomaly: Anomaly) -> bool:
    """Return whether a planner can do something about *anomaly*."""
    return anomaly.type not in STATED_BY_LIZA


def open_anomalies(state: State, about: str | None = None) -> tuple[Anomaly, ...]:
    """Return the anomalies that are not processed: all, or those of the task *about*."""
    return tuple(
        one
        for one in state.anomalies.values()
        if one.processed is None and (about is None or one.task_id == about)
    )


def close_anomalies(state: State, names: Collection[str], *, by: str, at: datetime) -> State:
    """Return the board with the anomalies *names* processed; evidence of an open trip stays open."""
    trips = state.circuit_breaker.trips
    held = {name for trip in trips if trip.resolved_at is None for name in trip.evidence}
    over = {
        name: state.anomalies[name].replace(processed=at, processed_by=by)
        for name in names
        if name not in held and state.anomalies[name].processed is None
    }
    return state.replace(anomalies=with_records(state.anomalies, over)) if over else state


def close_with_finished_tasks(old: State, new: State) -> State:
    """Return *new* with the anomalies closed whose task was finished since *old*."""
    for one in open_anomalies(new) if new.tasks is not old.tasks else ():
        task = new.tasks.get(one.task_id or "")
        if one.type in ENDS_WITH_TASK and task is not None and task.status in TERMINAL:
            new = close_anomalies(new, (one.id,), by=task.history[-1].by, at=task.history[-1].at)
    return new
