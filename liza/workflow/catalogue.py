"""Every circuit-breaker rule that a workflow can name, one row each: what to count, how many, what then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import Field

from liza.domain.record import Line, Record, Time
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


class Event(Record):
    """Something that happened, as small as a rule needs it."""

    kind: EventKind
    at: Time
    task: Line | None = None
    agent: Line | None = None
    phase: Line | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    role: Line | None = None
    fields: Mapping[str, Any] = Field(default_factory=dict)


class Scope(StrEnum):
    """Whose events a rule counts, and whom its action meets."""

    TASK = "task"
    AGENT = "agent"
    SPRINT = "sprint"
    SYSTEM = "system"


class Mode(StrEnum):
    """How a rule counts; what came before the latest event that resets it never counts."""

    TOTAL = "total"  # all that match; with `same`, all that are the same as the newest of them
    CONSECUTIVE = "consecutive"  # a streak; with `same`, only the newest in a row that are the same
    WITHIN = "within"  # all that match and happened in the window that ends now
    ELAPSED = "elapsed"  # no count: the window has passed since the reset, or since the first event


class Action(StrEnum):
    """What a rule does, weakest first: that is the order in which several are applied."""

    ALERT = "alert"
    CHECKPOINT = "checkpoint"
    FORCE_PASS = "force_pass"  # noqa: S105 - no password
    ASK = "ask"
    PAUSE = "pause"
    BLOCK = "block"
    STOP = "stop"


ORDER: Final = tuple(Action)
# For people: how soon they should look.
SEVERITY: Final[dict[Action, str]] = {
    Action.ALERT: "warning",
    Action.CHECKPOINT: "warning",
    Action.FORCE_PASS: "warning",
    Action.ASK: "question",
    Action.PAUSE: "serious",
    Action.BLOCK: "serious",
    Action.STOP: "critical",
}


class Pattern(NamedTuple):
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

    def fits(self, event: Event) -> bool:
        return (
            event.kind is self.kind
            and (self.outcome is None or event.outcome is self.outcome)
            and (self.phase is None or event.phase == self.phase)
            and (not self.roles or event.role in self.roles)
            and (self.where is None or self.where(event.fields))
        )


@dataclass(frozen=True)
class Rule:
    """One row; *count* is a number or the name of one in `config.limits`."""

    name: str
    scope: Scope
    says: str
    match: Pattern
    mode: Mode
    count: int | str
    action: Action
    reset_on: tuple[Pattern, ...] = ()
    same: str | None = None
    within: timedelta | None = None
    weigh: str | None = None  # the field that says how many one event stands for
    beyond: bool = False  # fires only above the count: the count itself is allowed


CONFIDENT: Final = 5  # of ten; who is less sure than this asks a person
_REVIEW: Final = Pattern(EventKind.DECISION, Outcome.REVISE, "REVIEW")
_JUDGE: Final = Pattern(EventKind.DECISION, Outcome.REVISE, "JUDGE")
_REVISED: Final = Pattern(EventKind.DECISION, Outcome.REVISE)
# By a gate or by a reviewer; that others were merged meanwhile says nothing against the work.
_REJECTED: Final = Pattern(
    EventKind.DECISION, Outcome.REVISE, where=lambda fields: not fields.get("is_merge")
)
_HUMAN: Final = Pattern(EventKind.HUMAN)
_REASSIGNED: Final = Pattern(EventKind.ASSIGN)
_CLOCK: Final = Pattern(EventKind.CLOCK)


def _work(outcome: Outcome) -> Pattern:
    return Pattern(EventKind.WORK, outcome, roles=frozenset({"actor"}))


def _said(key: str, value: str, *roles: str) -> Pattern:
    return Pattern(
        EventKind.SIGNAL,
        roles=frozenset(roles),
        where=lambda fields: fields.get(key) == value,
        says=f"{key} {value}",
    )


def _anomaly(*types: str) -> Pattern:
    return Pattern(EventKind.ANOMALY, where=lambda fields: fields.get("type") in types)


def _is_unsure(fields: Mapping[str, Any]) -> bool:
    confidence = fields.get("confidence")
    return isinstance(confidence, int | float) and confidence < CONFIDENT


def _is_debt(fields: Mapping[str, Any]) -> bool:
    """A trade-off is debt only where it says so."""
    kind = fields.get("type")
    return kind == "debt_created" or (kind == "trade_off" and fields.get("debt") is True)


def _decides(fields: Mapping[str, Any]) -> bool:
    """A test that passes, or advice, between two silences of a judge does not break its silence."""
    return fields.get("kind") in {"agent", "human"} and fields.get("mode") == "decide"


def _is_exhausted(fields: Mapping[str, Any]) -> bool:
    return fields.get("exhausted") is True


_T, _A, _P, _S = Scope
_TOTAL, _STREAK, _WITHIN, _ELAPSED = Mode
_LOOK: Final = Action.CHECKPOINT
_CRASH: Final = Pattern(EventKind.CRASH)
_NONE: Final = Pattern(EventKind.VERDICT, Outcome.NONE, where=_decides)
_DEBT: Final = Pattern(EventKind.ANOMALY, where=_is_debt)
_UNSURE: Final = Pattern(EventKind.SIGNAL, roles=frozenset({"planner", "judge"}), where=_is_unsure)
_EXHAUSTED: Final = Pattern(EventKind.DECISION, where=_is_exhausted)
_ASSUMED: Final = Pattern(EventKind.SIGNAL, where=lambda fields: "assumptions" in fields)
_CALLED: Final = tuple(
    Pattern(EventKind.VERDICT, outcome, where=_decides) for outcome in Outcome if outcome is not Outcome.NONE
)
_DECIDED: Final = Pattern(EventKind.DECISION)
_VERDICT: Final = Pattern(EventKind.VERDICT)
_APPROVED: Final = Pattern(EventKind.HUMAN, Outcome.PASS)
_JUDGED: Final = Pattern(EventKind.DECISION, Outcome.PASS, "JUDGE")

_TABLE: Final[tuple[Rule, ...]] = (
    Rule("five_loop_pause", _T, "JUDGE decides revise", _JUDGE, _STREAK, 5, Action.PAUSE, (_JUDGED, _HUMAN)),
    Rule(
        "actor_fail_pause",
        _T,
        "the actor's work fails",
        _work(Outcome.REVISE),
        _STREAK,
        5,
        Action.PAUSE,
        (_work(Outcome.PASS), _HUMAN),
    ),
    Rule("stuck_cycle", _T, "JUDGE decides revise", _JUDGE, _STREAK, 3, Action.ALERT, (_HUMAN,)),
    Rule(
        "cycle_duration",
        _T,
        "no word from a person",
        _CLOCK,
        _ELAPSED,
        1,
        Action.ALERT,
        (_HUMAN,),
        within=timedelta(minutes=30),
    ),
    Rule(
        "high_risk_unapproved",
        _T,
        "the planner says that the risk is high",
        _said("risk", "high", "planner"),
        _TOTAL,
        1,
        Action.ALERT,
        (_APPROVED,),
    ),
    Rule(
        "low_confidence",
        _T,
        f"planner or judge less than {CONFIDENT} of 10 sure",
        _UNSURE,
        _TOTAL,
        1,
        Action.ASK,
        (_HUMAN,),
    ),
    Rule(
        "same_reason_twice",
        _T,
        "work is rejected for the same reason",
        _REJECTED,
        _TOTAL,
        "max_same_reason",
        Action.BLOCK,
        (_REASSIGNED,),
        same="reason",
    ),
    Rule(
        "rejected_3x",
        _T,
        "work is rejected, by a gate or a reviewer",
        _REJECTED,
        _TOTAL,
        "max_rejections",
        Action.BLOCK,
        (_REASSIGNED,),
    ),
    Rule(
        "max_review_cycles",
        _T,
        "REVIEW decides revise",
        _REVIEW,
        _TOTAL,
        "max_review_cycles",
        Action.BLOCK,
        (_REASSIGNED,),
    ),
    Rule(
        "coder_iterations",
        _T,
        "any phase decides revise",
        _REVISED,
        _TOTAL,
        "max_coder_iterations",
        Action.BLOCK,
        (_REASSIGNED,),
    ),
    Rule(
        "warn_iterations", _T, "any phase decides revise", _REVISED, _TOTAL, 8, Action.ALERT, (_REASSIGNED,)
    ),
    Rule("warn_review_cycles", _T, "REVIEW decides revise", _REVIEW, _TOTAL, 3, Action.ALERT, (_REASSIGNED,)),
    Rule(
        "assumption_budget",
        _T,
        "assumptions in checkpoints",
        _ASSUMED,
        _TOTAL,
        "assumption_budget",
        Action.BLOCK,
        weigh="assumptions",
        beyond=True,
    ),
    Rule(
        "agent_crash_loop",
        _A,
        "an agent's worker crashes",
        _CRASH,
        _WITHIN,
        3,
        Action.STOP,
        same="agent",
        within=timedelta(minutes=5),
    ),
    Rule(
        "no_progress",
        _T,
        "attempts without a verdict or a decision",
        _CRASH,
        _STREAK,
        5,
        Action.BLOCK,
        (_DECIDED, _VERDICT, _HUMAN, _REASSIGNED),
        weigh="attempts",
    ),
    Rule(
        "validation_failed",
        _S,
        "the board is invalid",
        _said("board", "invalid"),
        _TOTAL,
        1,
        Action.PAUSE,
        (_said("board", "valid"),),
    ),
    Rule("retry_cluster", _P, "anomaly: retry loop", _anomaly("retry_loop"), _TOTAL, 3, _LOOK),
    Rule("debt_accumulation", _P, "anomaly: debt, also by a trade-off", _DEBT, _TOTAL, 3, _LOOK),
    Rule(
        "assumption_cascade",
        _P,
        "anomaly: assumption failed",
        _anomaly("assumption_violated"),
        _TOTAL,
        2,
        _LOOK,
    ),
    Rule("workaround_pattern", _P, "anomaly: workaround", _anomaly("workaround"), _TOTAL, 2, _LOOK),
    Rule(
        "spec_gap_cluster",
        _P,
        "anomaly: the specification unclear or silent at one place",
        _anomaly("spec_ambiguity", "spec_gap"),
        _TOTAL,
        2,
        _LOOK,
        same="spec_ref",
    ),
    Rule(
        "external_service_outage",
        _P,
        "anomaly: one service in the way",
        _anomaly("external_blocker"),
        _TOTAL,
        2,
        _LOOK,
        same="service",
    ),
    Rule(
        "phase_exhausted",
        _T,
        "a phase used up its iterations",
        _EXHAUSTED,
        _TOTAL,
        1,
        Action.ALERT,
        (_HUMAN,),
    ),
    Rule(
        "no_signal",
        _T,
        "a deciding gate gives no verdict",
        _NONE,
        _STREAK,
        2,
        Action.BLOCK,
        (*_CALLED, _HUMAN),
        same="phase",
    ),
    Rule(
        "test_failures",
        _T,
        "the worker says TESTS_FAILED",
        _said("status", "TESTS_FAILED"),
        _STREAK,
        3,
        Action.BLOCK,
        (_said("status", "TESTS_PASSED"), _HUMAN),
    ),
    Rule(
        "session_duration",
        _P,
        "the session lasts",
        _CLOCK,
        _ELAPSED,
        1,
        Action.STOP,
        within=timedelta(hours=2),
    ),
    Rule(
        "dep_blocked",
        _T,
        "a task it depends on is BLOCKED",
        _said("parent", "BLOCKED"),
        _TOTAL,
        1,
        Action.BLOCK,
        (_said("parent", "UNBLOCKED"),),
    ),
    Rule("idea_budget", _P, "pieces of work begun", _REASSIGNED, _TOTAL, 10, Action.STOP, beyond=True),
)

CATALOGUE: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _TABLE}
# A name for several, so that a workflow need not list them.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "anomaly_patterns": tuple(rule.name for rule in _TABLE if rule.match.kind is EventKind.ANOMALY),
}
