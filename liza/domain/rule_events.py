"""What the board remembers, as the events that rules count: all that knows where each of them is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from liza.domain.anomalies import HypothesisExhaustion, anomaly_sentence
from liza.domain.model import Role, Status
from liza.domain.rules import CountedEvent, EventKind
from liza.domain.verdicts import Outcome, SignalName

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.anomalies import Anomaly
    from liza.domain.model import Metrics, State, Task, WorkerRecord

FAIL: Final = "fail"  # what history calls it; a look at the board is not worth loading all events for
LONGEST_SENTENCE: Final = 300  # characters of what is told of one event; the board has all of it
_CONSENT: Final = frozenset({"approve", "confirm", "accept_taint"})  # what history calls the yes of a person
MIN_REVIEWS: Final = 10  # first looks of a reviewer before its rate says anything
RUBBER_STAMP_RATE: Final = 0.95  # share of work approved at first sight that nobody believes
_KINDS: Final = {SignalName.VERDICT: EventKind.VERDICT, SignalName.SILENCE: EventKind.SILENCE}
_MOMENT: Final = "%Y%m%dT%H%M%S.%fZ"


def task_events(state: State, task: Task) -> tuple[CountedEvent, ...]:
    """Return what the board still remembers of *task*; of coders before this one it is nothing."""
    begun = [
        CountedEvent(EventKind.ASSIGN, task.created, f"{task.id}/{coder}", task=task.id)
        for coder in task.authors[-1:]
    ]
    return (
        *begun,
        *_decision_events(task),
        *_signal_events(task),
        *_human_events(state, task),
        *_dependency_events(state, task),
        *_round_events(task),
    )


def _round_events(task: Task) -> Iterator[CountedEvent]:
    """Yield what is true of the round that goes on: after all that was decided before it."""
    at = task.decisions[-1].at if task.decisions else task.created
    if task.checkpoint and (said := task.checkpoint.assumptions):
        told = "; ".join(said)
        name = f"{task.id}/{task.iteration}/assumptions"
        yield CountedEvent(EventKind.ASSUMPTION, at, name, told, task.id, weight=len(said))
    if task.attempt:
        told = f"attempt {task.attempt} of round {task.iteration}"
        yield CountedEvent(EventKind.ATTEMPT, at, f"{task.id}/{told}", told, task.id, weight=task.attempt)


def _decision_events(task: Task) -> Iterator[CountedEvent]:
    for one in task.decisions:
        yield CountedEvent(
            EventKind.DECISION,
            one.at,
            f"{task.id}/{one.phase}@{one.at:{_MOMENT}}",
            task=task.id,
            phase=one.phase,
            outcome=one.outcome,
            reason=one.reason,
            fields={"output": one.output, "is_merge": one.is_merge},
        )


def _signal_events(task: Task) -> Iterator[CountedEvent]:
    for one in task.signals:
        yield CountedEvent(
            _KINDS.get(one.name, EventKind.SIGNAL),
            one.at,
            f"{task.id}/{one.name}@{one.at:{_MOMENT}}",
            f"{one.name} {one.value}" if one.value is not None else one.name,
            task.id,
            name=one.name,
            value=one.value,
            phase=one.phase,
            role=one.role,
        )
    if task.checkpoint and (risk := task.checkpoint.risk_level):
        at = task.history[-1].at if task.history else task.created
        name = f"{task.id}/{task.iteration}/risk"
        yield CountedEvent(
            EventKind.SIGNAL, at, name, f"the risk is {risk}", task.id, name="risk", value=risk.value
        )


def _human_events(state: State, task: Task) -> Iterator[CountedEvent]:
    for note in state.human_notes.values():
        if note.about == task.id:
            yield CountedEvent(EventKind.HUMAN, note.timestamp, note.id, note.message, task.id)
    for entry in task.history:
        if entry.role is Role.HUMAN:
            name = f"{task.id}/{entry.event}@{entry.at:{_MOMENT}}"
            outcome = Outcome.PASS if entry.event in _CONSENT else None
            yield CountedEvent(EventKind.HUMAN, entry.at, name, task=task.id, outcome=outcome)


def _dependency_events(state: State, task: Task) -> Iterator[CountedEvent]:
    for name in task.depends_on:
        other = state.tasks.get(name)
        if other and other.status is Status.BLOCKED:
            at = other.history[-1].at if other.history else other.created
            told = f"{name} is BLOCKED: {other.blocked_reason}"[:LONGEST_SENTENCE]
            yield CountedEvent(EventKind.DEPENDENCY, at, f"{name}@{at:{_MOMENT}}", told, task.id)


def board_events(state: State, now: datetime, checkpoint: datetime | None = None) -> tuple[CountedEvent, ...]:
    """Return what happened on the whole board; *checkpoint* is when a CHECKPOINT was thrown that still is."""
    return (
        *_anomaly_events(state),
        *(event for task in state.tasks.values() for event in _failure_events(task)),
        *_sprint_events(state, now),
        *(event for worker in state.agents.values() for event in crash_events(worker)),
        *_note_events(state),
        *_clock_events(state, checkpoint),
    )


def _anomaly_events(state: State) -> Iterator[CountedEvent]:
    for anomaly in state.anomalies.values():
        if not _is_counted(state, anomaly):
            continue
        facts = anomaly.details.to_json().items()
        event = CountedEvent(
            *(EventKind.ANOMALY, anomaly.timestamp, anomaly.id, anomaly_sentence(anomaly, LONGEST_SENTENCE)),
            task=anomaly.task_id,
            name=anomaly.type,
            fields={key: " ".join(value) if isinstance(value, list) else value for key, value in facts},
        )
        yield event
        if isinstance(anomaly.details, HypothesisExhaustion):
            yield event._replace(kind=EventKind.FAILURE, weight=2)


def _is_counted(state: State, anomaly: Anomaly) -> bool:
    """Return whether *anomaly* is of this goal, and nobody but a planner, which only read it, closed it."""
    reader = (anomaly.processed_by or "").partition("-")[0]
    is_open = anomaly.processed is None or reader == Role.PLANNER
    return is_open and anomaly.timestamp >= state.goal.since


def _failure_events(task: Task) -> Iterator[CountedEvent]:
    """Yield one for each coder that failed *task*, at the last of the failures."""
    failed = next((entry for entry in reversed(task.history) if entry.event == FAIL), None)
    if failed is None:
        return
    for coder in task.failed_by:
        told = f"{task.id}: {coder} could not do it: {failed.facts.get('reason', '')}"[:LONGEST_SENTENCE]
        name = f"{task.id}/{coder}@{failed.at:{_MOMENT}}"
        yield CountedEvent(EventKind.FAILURE, failed.at, name, told, task.id, coder)


def _sprint_events(state: State, now: datetime) -> Iterator[CountedEvent]:
    counted = state.sprint.metrics
    for name in counted.fruitless:
        told = f"{name}: an attempt that came to nothing"
        yield CountedEvent(EventKind.FRUITLESS, now, name, told, name.partition("#")[0])
    for name in counted.killed:
        told = f"{name}: its agent was killed every time"
        yield CountedEvent(EventKind.KILLED, now, name, told, name.partition("#")[0])
    for one in counted.red_gates:
        name, _, reason = one.partition(" ")
        told = f"{name}: {reason}"[:LONGEST_SENTENCE]
        yield CountedEvent(EventKind.RED_GATE, now, name, told, name.partition("#")[0])
    for worker, rate in rubber_stampers(counted).items():
        told = f"{worker} approves {rate:.0%} of what it sees for the first time"
        yield CountedEvent(
            EventKind.STAMP, now, f"{worker}/sprint-{state.sprint.number}", told, worker=worker
        )


def rubber_stampers(metrics: Metrics) -> dict[str, float]:
    """Return the reviewers that approve nearly everything at first review, with their approval rate."""
    rates = {
        name: found.first_approved / found.first_seen
        for name, found in metrics.reviews.items()
        if found.first_seen >= MIN_REVIEWS
    }
    return {name: rate for name, rate in rates.items() if rate >= RUBBER_STAMP_RATE}


def crash_events(worker: WorkerRecord) -> Iterator[CountedEvent]:
    for at in worker.crashes:
        name = f"{worker.id}@{at:{_MOMENT}}"
        yield CountedEvent(EventKind.CRASH, at, name, f"{worker.id} crashed", worker=worker.id)


def _note_events(state: State) -> Iterator[CountedEvent]:
    for note in state.human_notes.values():
        yield CountedEvent(EventKind.HUMAN, note.timestamp, note.id, note.message, note.about)


def _clock_events(state: State, checkpoint: datetime | None) -> Iterator[CountedEvent]:
    yield CountedEvent(EventKind.CLOCK, state.goal.since, "goal", "the goal is worked on", name="goal")
    if checkpoint is not None:
        told = "CHECKPOINT waits for somebody"
        yield CountedEvent(EventKind.CLOCK, checkpoint, "checkpoint", told, name="checkpoint")
