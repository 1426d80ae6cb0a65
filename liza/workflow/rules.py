"""Which rules of a workflow are broken: a pure look at what happened, all rules on the same snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from liza.domain.config import Limits
from liza.domain.model import Task
from liza.domain.similarity import similar
from liza.workflow.catalogue import ORDER, SEVERITY, Action, Event, EventKind, Mode, Rule, Scope
from liza.workflow.document import Workflow

SHOWN: Final = 3  # events that the evidence tells one by one; the rest is a number


class Fired(NamedTuple):
    """A rule that is broken, with what it saw."""

    rule: str
    action: Action
    evidence: tuple[str, ...]
    severity: str


def broken(workflow: Workflow, task: Task, limits: Limits, now: datetime) -> tuple[Fired, ...]:
    """Return the rules about one task that *task* breaks at *now*, weakest action first."""
    rules = [
        rule for rule in workflow.watched() if rule.scope is Scope.TASK and rule.mode is not Mode.ELAPSED
    ]
    return fired(rules, [event for event in decisions(task) if event.at <= now], limits)


def fired(rules: Iterable[Rule], events: Sequence[Event], limits: Limits, new: int = 1) -> tuple[Fired, ...]:
    """Return the *rules* that hold after *events*, weakest action first; only *new* events tell an alert."""
    told = ((rule, _evidence(rule, events, limits, new)) for rule in rules)
    found = [Fired(rule.name, rule.action, why, SEVERITY[rule.action]) for rule, why in told if why]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.action)))


def decisions(task: Task) -> tuple[Event, ...]:
    """Return what the board still remembers of *task*, as events; a new coder starts with none of it."""
    decided = [
        Event(
            kind=EventKind.DECISION,
            at=one.at,
            task=task.id,
            phase=one.phase,
            outcome=one.outcome,
            reason=one.reason,
            fields={"output": one.output, "is_merge": one.is_merge},
        )
        for one in task.decisions
    ]
    latest = decided[-1].at if decided else task.created
    said = len(task.checkpoint.assumptions) if task.checkpoint else 0
    return (
        # First, so that the newest event is a decision wherever there is one: alerts are about that.
        *_counted(EventKind.SIGNAL, task, decided[0].at if decided else latest, "assumptions", said),
        *decided,
        *_counted(EventKind.CRASH, task, latest, "attempts", task.attempt),
    )


def _counted(kind: EventKind, task: Task, at: datetime, field: str, number: int) -> tuple[Event, ...]:
    return (Event(kind=kind, at=at, task=task.id, fields={field: number}),) if number else ()


def _evidence(rule: Rule, events: Sequence[Event], limits: Limits, new: int) -> tuple[str, ...]:
    """Return why *rule* fires, as sentences; nothing where it does not."""
    concerned = [event for event in events if _concerns(rule, event, events[-1])]
    start = _reset(rule, concerned)
    if rule.mode is Mode.ELAPSED:
        return _elapsed(rule, concerned[max(start, 0) :], new)
    counted = _counting(rule, concerned[start + 1 :], events)
    count, needed = _sum(rule, counted), _needed(rule, limits)
    before = _sum(rule, [event for event in counted if not any(event is one for one in events[-new:])])
    if count < needed or (rule.action is Action.ALERT and before >= needed):
        return ()
    return (f"{rule.says}: {count} of {needed} that {rule.name} waits for", *_told(counted))


def _needed(rule: Rule, limits: Limits) -> int:
    count: int = getattr(limits, rule.count) if isinstance(rule.count, str) else rule.count
    return count + 1 if rule.beyond else count


def _concerns(rule: Rule, event: Event, newest: Event) -> bool:
    """Say whether *event* is about whom the newest one is about, as far as the scope of *rule* asks."""
    if rule.scope is Scope.TASK:
        return event.task == newest.task
    return rule.scope is not Scope.AGENT or event.agent == newest.agent


def _reset(rule: Rule, events: list[Event]) -> int:
    """Return which of *events* the rule starts to count after; -1 where it counts from the first."""
    return max((number for number, event in enumerate(events) if _resets(rule, event)), default=-1)


def _resets(rule: Rule, event: Event) -> bool:
    """What a person resolved does not trip again on what was seen before."""
    resolved = event.kind is EventKind.HUMAN and event.fields.get("resolved") == rule.name
    return resolved or any(one.fits(event) for one in rule.reset_on)


def _counting(rule: Rule, since: list[Event], events: Sequence[Event]) -> list[Event]:
    matching = [event for event in since if rule.match.fits(event)]
    if rule.mode is Mode.WITHIN:
        matching = [one for one in matching if events[-1].at - one.at <= (rule.within or timedelta.max)]
    if rule.same is None or not matching:
        return matching
    alike = [_same(rule.same, event, matching[-1]) for event in matching]
    if rule.mode is Mode.CONSECUTIVE and False in alike:
        first = len(alike) - alike[::-1].index(False)
        return matching[first:]
    return [event for event, counts in zip(matching, alike, strict=True) if counts]


def _same(field: str, one: Event, other: Event) -> bool:
    mine, others = _value(field, one), _value(field, other)
    if mine is None or others is None:  # absent never equals absent
        return False
    if field != "reason":
        return bool(mine == others)
    # The same command may be red for another reason: then the second attempt was an honest one.
    return similar(mine, others) and one.fields.get("output") == other.fields.get("output")


def _value(field: str, event: Event) -> Any:  # noqa: ANN401 - fields hold what the board's YAML can say
    return getattr(event, field) if field in Event.model_fields else event.fields.get(field)


def _sum(rule: Rule, events: Iterable[Event]) -> int:
    return sum(int(event.fields.get(rule.weigh, 1)) if rule.weigh else 1 for event in events)


def _elapsed(rule: Rule, since: list[Event], new: int) -> tuple[str, ...]:
    """Return why the window of *rule* is over, if it is; it begins with the first event of *since*."""
    ticks = [event for event in since if rule.match.fits(event)]
    over = [event for event in ticks if event.at - since[0].at >= (rule.within or timedelta.max)]
    if not over or (rule.action is Action.ALERT and not any(over[0] is one for one in since[-new:])):
        return ()
    return (f"{rule.says}: {over[-1].at - since[0].at}; {rule.name} allows {rule.within}",)


def _told(counted: Sequence[Event]) -> tuple[str, ...]:
    return tuple(f"{event.at:%Y-%m-%dT%H:%M:%SZ}: {_what(event)}" for event in counted[-SHOWN:])


def _what(event: Event) -> str:
    return " ".join(filter(None, (event.phase, event.outcome, event.reason))) or event.kind
