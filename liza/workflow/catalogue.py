"""Every circuit-breaker rule that a workflow can name, one row each: what to count, how many, what then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import Field

from liza.domain.record import NonEmptyStr, Record, Time
from liza.domain.verdicts import Outcome


class EventKind(StrEnum):
    DECISION = "decision"
    WORK = "work"
    VERDICT = "verdict"
    SIGNAL = "signal"
    ANOMALY = "anomaly"
    HUMAN = "human"
    ASSIGN = "assign"
    CRASH = "crash"
    CLOCK = "clock"


class RuleEvent(Record):
    """Something that happened, as small as a rule needs it."""

    kind: EventKind
    at: Time
    task: NonEmptyStr | None = None
    agent: NonEmptyStr | None = None
    phase: NonEmptyStr | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    role: NonEmptyStr | None = None
    fields: Mapping[str, Any] = Field(default_factory=dict)


class RuleScope(StrEnum):
    """Whose events a rule counts, and whom its action meets."""

    TASK = "task"
    AGENT = "agent"
    SPRINT = "sprint"
    SYSTEM = "system"


class CountMode(StrEnum):
    """How a rule counts; what came before the latest event that resets it never counts."""

    TOTAL = "total"  # all that match; with `same`, all that are the same as the newest of them
    CONSECUTIVE = "consecutive"  # a streak; with `same`, only the newest in a row that are the same
    WITHIN = "within"  # all that match and happened in the window that ends now
    ELAPSED = "elapsed"  # no count: the window has passed since the reset, or since the first event


class RuleAction(StrEnum):
    """What a rule does, weakest first: that is the order in which several are applied."""

    ALERT = "alert"
    CHECKPOINT = "checkpoint"
    FORCE_PASS = "force_pass"  # noqa: S105 - no password
    ASK = "ask"
    PAUSE = "pause"
    BLOCK = "block"
    STOP = "stop"


ACTION_ORDER: Final = tuple(RuleAction)
# For people: how soon they should look.
SEVERITY: Final[dict[RuleAction, str]] = {
    RuleAction.ALERT: "warning",
    RuleAction.CHECKPOINT: "warning",
    RuleAction.FORCE_PASS: "warning",
    RuleAction.ASK: "question",
    RuleAction.PAUSE: "serious",
    RuleAction.BLOCK: "serious",
    RuleAction.STOP: "critical",
}


class EventPattern(NamedTuple):
    """Which events are meant; what is None is not asked."""

    kind: EventKind
    outcome: Outcome | None = None
    phase: str | None = None
    roles: frozenset[str] = frozenset()
    where: Callable[[Mapping[str, Any]], bool] | None = None
    says: str = ""  # what *where* asks, for people

    def __str__(self) -> str:
        who = " or ".join(sorted(self.roles))
        return " ".join(filter(None, (who, self.phase, self.outcome, self.says or self.kind)))

    def matches(self, event: RuleEvent) -> bool:
        return (
            event.kind is self.kind
            and (self.outcome is None or event.outcome is self.outcome)
            and (self.phase is None or event.phase == self.phase)
            and (not self.roles or event.role in self.roles)
            and (self.where is None or self.where(event.fields))
        )


@dataclass(frozen=True)
class WorkflowRule:
    """One row; *count* is a number or the name of one in `config.limits`."""

    name: str
    scope: RuleScope
    says: str
    match: EventPattern
    mode: CountMode
    count: int | str
    action: RuleAction
    reset_on: tuple[EventPattern, ...] = ()
    same: str | None = None
    within: timedelta | None = None
    weigh: str | None = None  # the field that says how many one event stands for
    beyond: bool = False  # fires only above the count: the count itself is allowed


MIN_CONFIDENCE: Final = 5  # of ten; who is less sure than this asks a person
_REVIEW: Final = EventPattern(EventKind.DECISION, Outcome.REVISE, "REVIEW")
_JUDGE: Final = EventPattern(EventKind.DECISION, Outcome.REVISE, "JUDGE")
_REVISED: Final = EventPattern(EventKind.DECISION, Outcome.REVISE)
# By a gate or by a reviewer; that others were merged meanwhile says nothing against the work.
_REJECTED: Final = EventPattern(
    EventKind.DECISION, Outcome.REVISE, where=lambda fields: not fields.get("is_merge")
)
_HUMAN: Final = EventPattern(EventKind.HUMAN)
_REASSIGNED: Final = EventPattern(EventKind.ASSIGN)
_CLOCK: Final = EventPattern(EventKind.CLOCK)


def _work_pattern(outcome: Outcome) -> EventPattern:
    return EventPattern(EventKind.WORK, outcome, roles=frozenset({"actor"}))


def _signal_pattern(key: str, value: str, *roles: str) -> EventPattern:
    return EventPattern(
        EventKind.SIGNAL,
        roles=frozenset(roles),
        where=lambda fields: fields.get(key) == value,
        says=f"{key} {value}",
    )


def _anomaly_pattern(*types: str) -> EventPattern:
    return EventPattern(EventKind.ANOMALY, where=lambda fields: fields.get("type") in types)


def _is_unsure(fields: Mapping[str, Any]) -> bool:
    confidence = fields.get("confidence")
    return isinstance(confidence, int | float) and confidence < MIN_CONFIDENCE


def _is_debt(fields: Mapping[str, Any]) -> bool:
    """A trade-off is debt only where it says so."""
    kind = fields.get("type")
    return kind == "debt_created" or (kind == "trade_off" and fields.get("debt") is True)


def _is_deciding_gate(fields: Mapping[str, Any]) -> bool:
    """A test that passes, or advice, between two silences of a judge does not break its silence."""
    return fields.get("kind") in {"agent", "human"} and fields.get("mode") == "decide"


def _is_exhausted(fields: Mapping[str, Any]) -> bool:
    return fields.get("exhausted") is True


_T, _A, _P, _S = RuleScope
_TOTAL, _STREAK, _WITHIN, _ELAPSED = CountMode
_LOOK: Final = RuleAction.CHECKPOINT
_CRASH: Final = EventPattern(EventKind.CRASH)
_NONE: Final = EventPattern(EventKind.VERDICT, Outcome.NONE, where=_is_deciding_gate)
_DEBT: Final = EventPattern(EventKind.ANOMALY, where=_is_debt)
_UNSURE: Final = EventPattern(EventKind.SIGNAL, roles=frozenset({"planner", "judge"}), where=_is_unsure)
_EXHAUSTED: Final = EventPattern(EventKind.DECISION, where=_is_exhausted)
_ASSUMED: Final = EventPattern(EventKind.SIGNAL, where=lambda fields: "assumptions" in fields)
_CALLED: Final = tuple(
    EventPattern(EventKind.VERDICT, outcome, where=_is_deciding_gate)
    for outcome in Outcome
    if outcome is not Outcome.NONE
)
_DECIDED: Final = EventPattern(EventKind.DECISION)
_VERDICT: Final = EventPattern(EventKind.VERDICT)
_APPROVED: Final = EventPattern(EventKind.HUMAN, Outcome.PASS)
_JUDGED: Final = EventPattern(EventKind.DECISION, Outcome.PASS, "JUDGE")

_TABLE: Final[tuple[WorkflowRule, ...]] = (
    WorkflowRule(
        "five_loop_pause", _T, "JUDGE decides revise", _JUDGE, _STREAK, 5, RuleAction.PAUSE, (_JUDGED, _HUMAN)
    ),
    WorkflowRule(
        "actor_fail_pause",
        _T,
        "the actor's work fails",
        _work_pattern(Outcome.REVISE),
        _STREAK,
        5,
        RuleAction.PAUSE,
        (_work_pattern(Outcome.PASS), _HUMAN),
    ),
    WorkflowRule("stuck_cycle", _T, "JUDGE decides revise", _JUDGE, _STREAK, 3, RuleAction.ALERT, (_HUMAN,)),
    WorkflowRule(
        "cycle_duration",
        _T,
        "no word from a person",
        _CLOCK,
        _ELAPSED,
        1,
        RuleAction.ALERT,
        (_HUMAN,),
        within=timedelta(minutes=30),
    ),
    WorkflowRule(
        "high_risk_unapproved",
        _T,
        "the planner says that the risk is high",
        _signal_pattern("risk", "high", "planner"),
        _TOTAL,
        1,
        RuleAction.ALERT,
        (_APPROVED,),
    ),
    WorkflowRule(
        "low_confidence",
        _T,
        f"planner or judge less than {MIN_CONFIDENCE} of 10 sure",
        _UNSURE,
        _TOTAL,
        1,
        RuleAction.ASK,
        (_HUMAN,),
    ),
    WorkflowRule(
        "same_reason_twice",
        _T,
        "work is rejected for the same reason",
        _REJECTED,
        _TOTAL,
        "max_same_reason",
        RuleAction.BLOCK,
        (_REASSIGNED,),
        same="reason",
    ),
    WorkflowRule(
        "rejected_3x",
        _T,
        "work is rejected, by a gate or a reviewer",
        _REJECTED,
        _TOTAL,
        "max_rejections",
        RuleAction.BLOCK,
        (_REASSIGNED,),
    ),
    WorkflowRule(
        "max_review_cycles",
        _T,
        "REVIEW decides revise",
        _REVIEW,
        _TOTAL,
        "max_review_cycles",
        RuleAction.BLOCK,
        (_REASSIGNED,),
    ),
    WorkflowRule(
        "coder_iterations",
        _T,
        "any phase decides revise",
        _REVISED,
        _TOTAL,
        "max_coder_iterations",
        RuleAction.BLOCK,
        (_REASSIGNED,),
    ),
    WorkflowRule(
        "warn_iterations",
        _T,
        "any phase decides revise",
        _REVISED,
        _TOTAL,
        8,
        RuleAction.ALERT,
        (_REASSIGNED,),
    ),
    WorkflowRule(
        "warn_review_cycles",
        _T,
        "REVIEW decides revise",
        _REVIEW,
        _TOTAL,
        3,
        RuleAction.ALERT,
        (_REASSIGNED,),
    ),
    WorkflowRule(
        "assumption_budget",
        _T,
        "assumptions in checkpoints",
        _ASSUMED,
        _TOTAL,
        "assumption_budget",
        RuleAction.BLOCK,
        weigh="assumptions",
        beyond=True,
    ),
    WorkflowRule(
        "agent_crash_loop",
        _A,
        "an agent's worker crashes",
        _CRASH,
        _WITHIN,
        3,
        RuleAction.STOP,
        same="agent",
        within=timedelta(minutes=5),
    ),
    WorkflowRule(
        "no_progress",
        _T,
        "attempts without a verdict or a decision",
        _CRASH,
        _STREAK,
        5,
        RuleAction.BLOCK,
        (_DECIDED, _VERDICT, _HUMAN, _REASSIGNED),
        weigh="attempts",
    ),
    WorkflowRule(
        "validation_failed",
        _S,
        "the board is invalid",
        _signal_pattern("board", "invalid"),
        _TOTAL,
        1,
        RuleAction.PAUSE,
        (_signal_pattern("board", "valid"),),
    ),
    WorkflowRule(
        "retry_cluster", _P, "anomaly: retry loop", _anomaly_pattern("retry_loop"), _TOTAL, 3, _LOOK
    ),
    WorkflowRule("debt_accumulation", _P, "anomaly: debt, also by a trade-off", _DEBT, _TOTAL, 3, _LOOK),
    WorkflowRule(
        "assumption_cascade",
        _P,
        "anomaly: assumption failed",
        _anomaly_pattern("assumption_violated"),
        _TOTAL,
        2,
        _LOOK,
    ),
    WorkflowRule(
        "workaround_pattern", _P, "anomaly: workaround", _anomaly_pattern("workaround"), _TOTAL, 2, _LOOK
    ),
    WorkflowRule(
        "spec_gap_cluster",
        _P,
        "anomaly: the specification unclear or silent at one place",
        _anomaly_pattern("spec_ambiguity", "spec_gap"),
        _TOTAL,
        2,
        _LOOK,
        same="spec_ref",
    ),
    WorkflowRule(
        "external_service_outage",
        _P,
        "anomaly: one service in the way",
        _anomaly_pattern("external_blocker"),
        _TOTAL,
        2,
        _LOOK,
        same="service",
    ),
    WorkflowRule(
        "phase_exhausted",
        _T,
        "a phase used up its iterations",
        _EXHAUSTED,
        _TOTAL,
        1,
        RuleAction.ALERT,
        (_HUMAN,),
    ),
    WorkflowRule(
        "no_signal",
        _T,
        "a deciding gate gives no verdict",
        _NONE,
        _STREAK,
        2,
        RuleAction.BLOCK,
        (*_CALLED, _HUMAN),
        same="phase",
    ),
    WorkflowRule(
        "test_failures",
        _T,
        "the worker says TESTS_FAILED",
        _signal_pattern("status", "TESTS_FAILED"),
        _STREAK,
        3,
        RuleAction.BLOCK,
        (_signal_pattern("status", "TESTS_PASSED"), _HUMAN),
    ),
    WorkflowRule(
        "session_duration",
        _P,
        "the session lasts",
        _CLOCK,
        _ELAPSED,
        1,
        RuleAction.STOP,
        within=timedelta(hours=2),
    ),
    WorkflowRule(
        "dep_blocked",
        _T,
        "a task it depends on is BLOCKED",
        _signal_pattern("parent", "BLOCKED"),
        _TOTAL,
        1,
        RuleAction.BLOCK,
        (_signal_pattern("parent", "UNBLOCKED"),),
    ),
    WorkflowRule(
        "idea_budget", _P, "pieces of work begun", _REASSIGNED, _TOTAL, 10, RuleAction.STOP, beyond=True
    ),
)

CATALOGUE: Final[Mapping[str, WorkflowRule]] = {rule.name: rule for rule in _TABLE}
# A name for several, so that a workflow need not list them.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "anomaly_patterns": tuple(rule.name for rule in _TABLE if rule.match.kind is EventKind.ANOMALY),
}
