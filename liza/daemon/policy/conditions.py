"""What has to be true before a worker takes a task, as objects that workers ask and people are shown.

A worker takes a task when every condition of its role holds. `liza explain` walks the very same tuple and
tells of the first that does not: in words, since when, who can change it, and by which command.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from liza.domain.model import State, Task, WorkerStatus


class Candidate(NamedTuple):
    """A task that the worker *me* may take."""

    state: State
    task: Task
    me: str
    now: datetime


class Blocker(NamedTuple):
    """Why something does not go on."""

    what: str  # completes "t1 is IDLE: …"
    who: str
    command: str
    since: datetime | None = None


class Condition(NamedTuple):
    holds: Callable[[Candidate], bool]
    blocker: Callable[[Candidate], Blocker]


def all_hold(conditions: tuple[Condition, ...], look: Candidate) -> bool:
    """Tell whether every condition holds."""
    return all(condition.holds(look) for condition in conditions)


def first_blocker(conditions: tuple[Condition, ...], look: Candidate) -> tuple[int, Blocker] | None:
    """Return the first condition that does not hold, by its place, with what to tell; None if all do."""
    for place, condition in enumerate(conditions):
        if not condition.holds(look):
            return place, condition.blocker(look)
    return None


def status_since(task: Task) -> datetime:
    """Return when *task* came to the status it has."""
    arrived = (
        entry.at
        for entry in reversed(task.history)
        if entry.target is task.status and entry.source is not task.status
    )
    return next(arrived, task.created)


def is_at_work(state: State, me: str) -> bool:
    return task_held_by(state, me) is not None


def task_held_by(state: State, me: str) -> Task | None:
    """Return what *me* works on."""
    return next((task for task in state.tasks.values() if task.lease and task.lease.holder == me), None)


def _busy_blocker(look: Candidate) -> Blocker:
    other = task_held_by(look.state, look.me)
    name = other.id if other else "nothing"
    return Blocker(f"{look.me} is at work on {name}", look.me, f"liza task show {name}")


def _missing_labels(look: Candidate) -> list[str]:
    """Return the labels that the task, or the role of the worker, needs and its host does not have."""
    role = look.me.partition("-")[0]
    needed = {*look.task.needs, *getattr(look.state.config.needs, role, ())}
    return sorted(needed.difference(_labels_of(look.state, look.me))) if needed else []


def _labels_of(state: State, worker: str) -> tuple[str, ...]:
    known = state.agents.get(worker)
    return known.labels if known and known.status is not WorkerStatus.STOPPED else ()


def _label_blocker(look: Candidate) -> Blocker:
    missing = _missing_labels(look)
    named = " and ".join(missing)
    if any(set(missing) <= set(_labels_of(look.state, name)) for name in look.state.agents):
        return Blocker(
            f"it needs a host with the label {named}, and {look.me} is on one without",
            f"a host with {named}",
            f"liza task show {look.task.id}",
        )
    command = f"liza host {' '.join(f'--label {one}' for one in missing)}"
    return Blocker(f"it needs a host with the label {named}, and no host has it", "you", command)


LABELLED: Final = Condition(lambda look: not _missing_labels(look), _label_blocker)
FREE: Final = Condition(lambda look: not is_at_work(look.state, look.me), _busy_blocker)
