"""Which rules of a workflow are broken: a pure look at what happened, all rules on the same snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from liza.domain.config import Limits
from liza.domain.model import Task
from liza.domain.similarity import are_similar
from liza.workflow.catalogue import (
    ACTION_ORDER,
    SEVERITY,
    CountMode,
    EventKind,
    RuleAction,
    RuleEvent,
    RuleScope,
    WorkflowRule,
)
from liza.workflow.document import Workflow

SHOWN: Final = 3  # events that the evidence tells one by one; the rest is a number


class FiredRule(NamedTuple):
    """A rule that is broken, with what it saw."""

    rule: str
    action: RuleAction
    evidence: tuple[str, ...]
    severity: str


def broken_task_rules(workflow: Workflow, task: Task, limits: Limits, now: datetime) -> tuple[FiredRule, ...]:
    """Return the rules about one task that *task* breaks at *now*, weakest action first."""
    rules = [
        rule
        for rule in workflow.watched_rules()
        if rule.scope is RuleScope.TASK and rule.mode is not CountMode.ELAPSED
    ]
    return fired_rules(rules, [event for event in task_events(task) if event.at <= now], limits)


def fired_rules(
    rules: Iterable[WorkflowRule], events: Sequence[RuleEvent], limits: Limits, new: int = 1
) -> tuple[FiredRule, ...]:
    """Return the *rules* that hold after *events*, weakest action first; only *new* events tell an alert."""
    told = ((rule, _evidence(rule, events, limits, new)) for rule in rules)
    found = [FiredRule(rule.name, rule.action, why, SEVERITY[rule.action]) for rule, why in told if why]
    return tuple(sorted(found, key=lambda one: ACTION_ORDER.index(one.action)))


def task_events(task: Task) -> tuple[RuleEvent, ...]:
    """Return what the board still remembers of *task*, as events; a new coder starts with none of it."""
    decided = [
        RuleEvent(
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
        *_count_event(EventKind.SIGNAL, task, decided[0].at if decided else latest, "assumptions", said),
        *decided,
        *_count_event(EventKind.CRASH, task, latest, "attempts", task.attempt),
    )


def _count_event(kind: EventKind, task: Task, at: datetime, field: str, number: int) -> tuple[RuleEvent, ...]:
    return (RuleEvent(kind=kind, at=at, task=task.id, fields={field: number}),) if number else ()


def _evidence(rule: WorkflowRule, events: Sequence[RuleEvent], limits: Limits, new: int) -> tuple[str, ...]:
    """Return why *rule* fires, as sentences; nothing where it does not."""
    concerned = [event for event in events if _has_same_subject(rule, event, events[-1])]
    start = _reset_index(rule, concerned)
    if rule.mode is CountMode.ELAPSED:
        return _elapsed_evidence(rule, concerned[max(start, 0) :], new)
    counted = _counted_events(rule, concerned[start + 1 :], events)
    count, needed = _weighted_count(rule, counted), _needed_count(rule, limits)
    before = _weighted_count(
        rule, [event for event in counted if not any(event is one for one in events[-new:])]
    )
    if count < needed or (rule.action is RuleAction.ALERT and before >= needed):
        return ()
    return (f"{rule.says}: {count} of {needed} that {rule.name} waits for", *_event_sentences(counted))


def _needed_count(rule: WorkflowRule, limits: Limits) -> int:
    count: int = getattr(limits, rule.count) if isinstance(rule.count, str) else rule.count
    return count + 1 if rule.beyond else count


def _has_same_subject(rule: WorkflowRule, event: RuleEvent, newest: RuleEvent) -> bool:
    """Return whether *event* is about whom the newest one is about, as far as the scope of *rule* asks."""
    if rule.scope is RuleScope.TASK:
        return event.task == newest.task
    return rule.scope is not RuleScope.AGENT or event.agent == newest.agent


def _reset_index(rule: WorkflowRule, events: list[RuleEvent]) -> int:
    """Return which of *events* the rule starts to count after; -1 where it counts from the first."""
    return max((number for number, event in enumerate(events) if _is_reset(rule, event)), default=-1)


def _is_reset(rule: WorkflowRule, event: RuleEvent) -> bool:
    """What a person resolved does not trip again on what was seen before."""
    resolved = event.kind is EventKind.HUMAN and event.fields.get("resolved") == rule.name
    return resolved or any(one.matches(event) for one in rule.reset_on)


def _counted_events(
    rule: WorkflowRule, since: list[RuleEvent], events: Sequence[RuleEvent]
) -> list[RuleEvent]:
    matching = [event for event in since if rule.match.matches(event)]
    if rule.mode is CountMode.WITHIN:
        matching = [one for one in matching if events[-1].at - one.at <= (rule.within or timedelta.max)]
    if rule.same is None or not matching:
        return matching
    alike = [_is_same(rule.same, event, matching[-1]) for event in matching]
    if rule.mode is CountMode.CONSECUTIVE and False in alike:
        first = len(alike) - alike[::-1].index(False)
        return matching[first:]
    return [event for event, counts in zip(matching, alike, strict=True) if counts]


def _is_same(field: str, one: RuleEvent, other: RuleEvent) -> bool:
    mine, others = _value(field, one), _value(field, other)
    if mine is None or others is None:  # absent never equals absent
        return False
    if field != "reason":
        return bool(mine == others)
    # The same command may be red for another reason: then the second attempt was an honest one.
    return are_similar(mine, others) and one.fields.get("output") == other.fields.get("output")


def _value(field: str, event: RuleEvent) -> Any:  # noqa: ANN401 - fields hold what the board's YAML can say
    return getattr(event, field) if field in RuleEvent.model_fields else event.fields.get(field)


def _weighted_count(rule: WorkflowRule, events: Iterable[RuleEvent]) -> int:
    return sum(int(event.fields.get(rule.weigh, 1)) if rule.weigh else 1 for event in events)


def _elapsed_evidence(rule: WorkflowRule, since: list[RuleEvent], new: int) -> tuple[str, ...]:
    """Return why the window of *rule* is over, if it is; it begins with the first event of *since*."""
    ticks = [event for event in since if rule.match.matches(event)]
    over = [event for event in ticks if event.at - since[0].at >= (rule.within or timedelta.max)]
    if not over or (rule.action is RuleAction.ALERT and not any(over[0] is one for one in since[-new:])):
        return ()
    return (f"{rule.says}: {over[-1].at - since[0].at}; {rule.name} allows {rule.within}",)


def _event_sentences(counted: Sequence[RuleEvent]) -> tuple[str, ...]:
    return tuple(f"{event.at:%Y-%m-%dT%H:%M:%SZ}: {_event_text(event)}" for event in counted[-SHOWN:])


def _event_text(event: RuleEvent) -> str:
    return " ".join(filter(None, (event.phase, event.outcome, event.reason))) or event.kind
