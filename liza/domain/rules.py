"""All rules, one row each: what counts, what makes two the same, how many it takes, and what then.

Rules about a task run inside the update that broke them, all others in the supervisor, and both by
`evaluate`. It sees events alone, which the second half makes of what the board remembers. A workflow document
chooses rows by their names and may change their numbers; those that are always on watch over every workflow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain import similarity
from liza.domain.anomalies import HypothesisExhaustion, anomaly_sentence
from liza.domain.model import BreakerStatus, CircuitBreaker, Outcome, Remedy, Role, SignalName, Status, Trip
from liza.domain.record import next_id, with_records
from liza.domain.similarity import are_similar_words
from liza.errors import NotThere, Refused

if TYPE_CHECKING:
    from liza.domain.anomalies import Anomaly
    from liza.domain.config import Limits
    from liza.domain.model import Metrics, State, Task, WorkerRecord


SHOWN: Final = 3  # events that a reason tells one by one; the rest is a number
MIN_CONFIDENCE: Final = 5  # of ten; whoever is less sure than this asks a person
# What the contract asks where the rounds are used up.
UNCLEAR_SPEC: Final = ("Is the spec clear enough?", "Should task be decomposed?")
WHAT_NOW: Final = ("What should be done differently, or should the task be given up?",)
_LINE_NUMBER: Final = re.compile(r"(?::\d+)+$")
# What people and models write where they have nothing to say.
_NOTHING: Final = frozenset({"", "-", "?", "n/a", "na", "nil", "none", "null", "tbd", "unknown", "unclear"})

Words = frozenset[str]


class EventKind(StrEnum):
    """What rules can count; `MEANING` says what each is."""

    ASSIGN = "assign"
    DECISION = "decision"
    SILENCE = "silence"
    VERDICT = "verdict"
    SIGNAL = "signal"
    HUMAN = "human"
    ASSUMPTION = "assumption"
    ATTEMPT = "attempt"
    FAILURE = "failure"
    DEPENDENCY = "dependency"
    ANOMALY = "anomaly"
    CRASH = "crash"
    FRUITLESS = "fruitless"
    KILLED = "killed"
    RED_GATE = "red_gate"
    STAMP = "stamp"
    CLOCK = "clock"


MEANING: Final[Mapping[EventKind, str]] = {
    EventKind.ASSIGN: "a coder began; what the one before it did counts no more",
    EventKind.DECISION: "a phase came to an outcome",
    EventKind.SILENCE: "who had to decide gave no verdict",
    EventKind.VERDICT: "who had to decide did",
    EventKind.SIGNAL: "an agent said how sure it is, how risky the work, or how its tests ended",
    EventKind.HUMAN: "a person said something",
    EventKind.ASSUMPTION: "an assumption that a coder announced (its checkpoint)",
    EventKind.ATTEMPT: "of a coder, since the last decision",
    EventKind.FAILURE: "a coder gave up",
    EventKind.DEPENDENCY: "a task that this one waits for is BLOCKED",
    EventKind.ANOMALY: "something that should not have happened, by its type",
    EventKind.CRASH: "of a worker's process",
    EventKind.FRUITLESS: "an attempt that came to nothing",
    EventKind.KILLED: "an attempt whose agent was killed every time",
    EventKind.RED_GATE: "a gate failed as the one before it did",
    EventKind.STAMP: "a reviewer approves nearly all at first sight",
    EventKind.CLOCK: "something lasts since then",
}


class CountedEvent(NamedTuple):
    """Something that happened, as small as a rule needs it."""

    kind: EventKind
    at: datetime
    id: str
    says: str = ""  # the same as a sentence
    task: str | None = None
    worker: str | None = None
    name: str | None = None  # of the signal, the anomaly or the clock
    value: str | int | None = None  # of the signal
    phase: str | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    role: str | None = None
    weight: int = 1  # how many it stands for
    fields: Mapping[str, Any] = MappingProxyType({})


class Subject(StrEnum):
    """Whose events a rule counts together, and whom its action meets."""

    TASK = "task"
    WORKER = "worker"
    BOARD = "board"


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
SEVERITY: Final[Mapping[RuleAction, str]] = {
    RuleAction.ALERT: "low",
    RuleAction.CHECKPOINT: "high",
    RuleAction.FORCE_PASS: "medium",
    RuleAction.ASK: "medium",
    RuleAction.PAUSE: "critical",
    RuleAction.BLOCK: "high",
    RuleAction.STOP: "high",
}
# What can be done to whom; only these a document may put in place of a row's own.
ACTIONS: Final[Mapping[Subject, frozenset[RuleAction]]] = {
    Subject.TASK: frozenset(RuleAction) - {RuleAction.CHECKPOINT},
    Subject.WORKER: frozenset({RuleAction.ALERT}),
    Subject.BOARD: frozenset({RuleAction.ALERT, RuleAction.CHECKPOINT, RuleAction.PAUSE}),
}


class Pattern(NamedTuple):
    """Which events are meant; what is None is not asked."""

    kind: EventKind
    outcome: Outcome | None = None
    phase: str | None = None
    names: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    where: Callable[[CountedEvent], bool] | None = None
    says: str = ""  # what *where* asks, for people

    def __str__(self) -> str:
        named = " or ".join(sorted(self.names))
        who = " or ".join(sorted(self.roles))
        return " ".join(filter(None, (who, self.phase, self.kind, named, self.outcome, self.says)))

    def matches(self, event: CountedEvent) -> bool:
        return (
            event.kind is self.kind
            and (self.outcome is None or event.outcome is self.outcome)
            and (self.phase is None or event.phase == self.phase)
            and (not self.names or event.name in self.names)
            and (not self.roles or event.role in self.roles)
            and (self.where is None or self.where(event))
        )


class Count(NamedTuple):
    """How many it takes: a number, or what a limit of the settings comes to."""

    number: int
    limit: str | None = None
    times: int = 1

    def __str__(self) -> str:
        if self.limit is None:
            return str(self.number)
        more = f" {'+' if self.number > 0 else '-'} {abs(self.number)}" if self.number else ""
        return f"{f'{self.times} times ' if self.times > 1 else ''}`{self.limit}`{more}"

    def value(self, limits: Limits) -> int:
        return self.number + (self.times * int(getattr(limits, self.limit)) if self.limit else 0)


class Likeness(NamedTuple):
    """By which an event is the same as another: nearly all words, and a text to the letter."""

    words: Words
    exact: str = ""

    def is_same(self, other: Likeness) -> bool:
        return self.exact == other.exact and are_similar_words(self.words, other.words)


class Sameness(NamedTuple):
    """What makes two events the same; what has no words is the same as nothing."""

    says: str
    likeness: Callable[[CountedEvent], Likeness]


@dataclass(frozen=True)
class Rule:
    """One row."""

    name: str
    subject: Subject
    counts: Pattern
    count: Count
    action: RuleAction
    sentence: str  # what it means that it fired
    then: tuple[str, ...]  # what people should do; of a task that is blocked, what they are asked
    same: Sameness | None = None
    window: timedelta | str | None = None  # in which they happen; or the limit, in hours, that says it
    reset: tuple[Pattern, ...] = ()  # after which it counts anew
    always: bool = False  # it watches over every workflow, and no document can change it
    reason: str = ""  # why a task is blocked, where the contract has words for it

    @property
    def is_clock(self) -> bool:
        return self.counts.kind is EventKind.CLOCK

    @property
    def options(self) -> frozenset[str]:
        """What a document may change of it."""
        has = {
            "phase": self.counts.kind in {EventKind.DECISION, EventKind.SILENCE},
            "count": not self.is_clock,
            "minutes": isinstance(self.window, timedelta),
            "action": True,
        }
        return frozenset() if self.always else frozenset(name for name, can in has.items() if can)

    @property
    def minutes(self) -> int | None:
        return round(self.window.total_seconds() / 60) if isinstance(self.window, timedelta) else None

    def window_in(self, limits: Limits) -> timedelta:
        if isinstance(self.window, str):
            return timedelta(hours=getattr(limits, self.window))
        return self.window or timedelta.max


def fuzzy_words(text: str) -> Words:
    """Return the significant words of *text*, for fuzzy comparison."""
    plain = text.strip().casefold()
    if plain in _NOTHING:
        return frozenset()
    return similarity.significant_words(text) or frozenset(plain.split())


def exact_word(text: str) -> Words:
    """Return *text* as one word, for exact comparison but for case and a line number."""
    plain = " ".join(text.casefold().split())
    return frozenset() if plain in _NOTHING else frozenset({_LINE_NUMBER.sub("", plain)})


def _same(field: str, words: Callable[[str], Words] = exact_word) -> Sameness:
    """Return that events are the same by the *words* of a *field* of their details."""
    near = "nearly " if words is fuzzy_words else ""
    return Sameness(
        f"{near}the same {field}", lambda event: Likeness(words(str(event.fields.get(field) or "")))
    )


# The same command may be red for another reason: then the second attempt was an honest one.
_REASON: Final = Sameness(
    "nearly the same reason, and the same output",
    lambda event: Likeness(fuzzy_words(event.reason or ""), str(event.fields.get("output"))),
)
_PHASE: Final = Sameness("the same phase", lambda event: Likeness(exact_word(event.phase or "")))
_OF_TASK: Final = Sameness("the same task", lambda event: Likeness(exact_word(event.task or event.id)))
_ALL_ALIKE: Final = Likeness(frozenset({"all"}))

_REVISED: Final = Pattern(EventKind.DECISION, Outcome.REVISE)
# By a gate or by a reviewer; that others were merged meanwhile says nothing against the work.
_REJECTED: Final = _REVISED._replace(where=lambda event: not event.fields.get("is_merge"), says="of the work")
_REVIEWED: Final = _REVISED._replace(phase="REVIEW")
_JUDGED: Final = _REVISED._replace(phase="JUDGE")
_ACTED: Final = _REVISED._replace(phase="ACT")
_HUMAN: Final = Pattern(EventKind.HUMAN)
_ASSIGNED: Final = Pattern(EventKind.ASSIGN)
_UNSURE: Final = Pattern(
    EventKind.SIGNAL,
    names=frozenset({"confidence"}),
    roles=frozenset({"planner", "judge"}),
    where=lambda event: isinstance(event.value, int) and event.value < MIN_CONFIDENCE,
    says=f"below {MIN_CONFIDENCE}",
)


def _signal(name: str, value: str) -> Pattern:
    return Pattern(
        EventKind.SIGNAL, names=frozenset({name}), where=lambda event: event.value == value, says=value
    )


def _anomaly(*types: str) -> Pattern:
    return Pattern(EventKind.ANOMALY, names=frozenset(types))


def _clock(name: str) -> Pattern:
    return Pattern(EventKind.CLOCK, names=frozenset({name}))


_DEBT: Final = _anomaly("trade_off", "debt_created")._replace(
    where=lambda event: event.name == "debt_created" or event.fields.get("debt") is True, says="that is debt"
)
_TASK, _WORKER, _BOARD = Subject
_LOOK: Final = RuleAction.CHECKPOINT

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "same_reason_twice", _TASK, _REJECTED, Count(0, "max_same_reason"), RuleAction.BLOCK,
        "work is rejected for the same reason", WHAT_NOW, same=_REASON, reset=(_ASSIGNED,),
    ),
    Rule(
        "rejected_3x", _TASK, _REJECTED, Count(0, "max_rejections"), RuleAction.BLOCK,
        "work is rejected, by a gate or a reviewer", WHAT_NOW, reset=(_ASSIGNED,),
    ),
    Rule(
        "warn_rejections", _TASK, _REJECTED, Count(-1, "max_rejections"), RuleAction.ALERT,
        "the next rejection blocks the task",
        ("look at the feedback (`liza task show TASK`); `liza note … --for TASK` helps",), reset=(_ASSIGNED,),
    ),
    Rule(
        "max_review_cycles", _TASK, _REVIEWED, Count(0, "max_review_cycles"), RuleAction.BLOCK,
        "a reviewer sends the work back", UNCLEAR_SPEC, reset=(_ASSIGNED,),
        reason="Max review cycles ({count}) reached without approval",
    ),
    Rule(
        "review_deadlock", _TASK, _REVIEWED, Count(0, "max_review_cycles"), RuleAction.ALERT,
        "a coder and its reviewer do not come to an end with each other",
        ("read both sides (`liza task show TASK`) and decide: `liza note … --for TASK`, or `liza answer`",),
        reset=(_ASSIGNED,), always=True,
    ),
    Rule(
        "warn_iterations", _TASK, _REVISED, Count(-2, "max_coder_iterations"), RuleAction.ALERT,
        "nearly all rounds of a coder are used up, and the work is not through yet",
        ("look at the feedback (`liza task show TASK`); `liza note … --for TASK` helps",), reset=(_ASSIGNED,),
    ),
    Rule(
        "assumption_budget", _TASK, Pattern(EventKind.ASSUMPTION), Count(1, "assumption_budget"),
        RuleAction.BLOCK, "the checkpoint assumes more than the specification says", WHAT_NOW,
    ),
    Rule(
        "no_progress", _TASK, Pattern(EventKind.ATTEMPT), Count(5), RuleAction.BLOCK,
        "attempts at the task end without a commit or a verdict", WHAT_NOW,
        reset=(Pattern(EventKind.DECISION), _ASSIGNED),
    ),
    Rule(
        "no_signal", _TASK, Pattern(EventKind.SILENCE), Count(2), RuleAction.BLOCK,
        "who has to decide gives no verdict", WHAT_NOW, same=_PHASE,
        reset=(Pattern(EventKind.VERDICT), _HUMAN),
    ),
    Rule(
        "test_failures", _TASK, _signal("tests", "failed"), Count(3), RuleAction.BLOCK,
        "the worker says that its tests fail", WHAT_NOW, reset=(_signal("tests", "passed"), _HUMAN),
    ),
    Rule(
        "low_confidence", _TASK, _UNSURE, Count(1), RuleAction.ASK,
        "who decides is not sure", ("Is it right?",), reset=(_HUMAN,),
    ),
    Rule(
        "high_risk_unapproved", _TASK, _signal("risk", "high"), Count(1), RuleAction.ALERT,
        "an agent says that the risk is high, and no person has approved",
        ("look at what it is about to do (`liza task show TASK`), and stop it where it must not",),
        reset=(Pattern(EventKind.HUMAN, Outcome.PASS),),
    ),
    Rule(
        "dep_blocked", _TASK, Pattern(EventKind.DEPENDENCY), Count(1), RuleAction.BLOCK,
        "a task that it waits for is BLOCKED", WHAT_NOW,
    ),
    Rule(
        "five_loop_pause", _TASK, _JUDGED, Count(5), RuleAction.PAUSE,
        "the judge keeps sending the work back", WHAT_NOW,
        reset=(_JUDGED._replace(outcome=Outcome.PASS), _HUMAN, _ASSIGNED),
    ),
    Rule(
        "stuck_cycle", _TASK, _JUDGED, Count(3), RuleAction.ALERT,
        "the judge keeps sending the work back",
        ("look at what it says (`liza task show TASK`); `liza note … --for TASK` helps",),
        reset=(_HUMAN, _ASSIGNED),
    ),
    Rule(
        "actor_fail_pause", _TASK, _ACTED, Count(5), RuleAction.PAUSE,
        "the actor keeps failing", WHAT_NOW,
        reset=(_ACTED._replace(outcome=Outcome.PASS), _HUMAN, _ASSIGNED),
    ),
    Rule(
        "crash_loop", _WORKER, Pattern(EventKind.CRASH), Count(3), RuleAction.STOP,
        "a worker process keeps crashing and was stopped",
        ("see workers/NAME.log, then `liza stop; liza run` gives it another chance",),
        window=timedelta(minutes=5), always=True,
    ),
    Rule(
        "rubber_stamp", _WORKER, Pattern(EventKind.STAMP), Count(1), RuleAction.ALERT,
        "a reviewer approves nearly everything that it sees for the first time",
        ("look at some of it yourself",), always=True,
    ),
    Rule(
        "retry_cluster", _BOARD, _anomaly("retry_loop"), Count(3), _LOOK,
        "agents keep running into the same error",
        ("find the cause of the error itself: a wrong specification, a missing tool, a broken environment",),
        same=_same("error_pattern", fuzzy_words),
    ),
    Rule(
        "debt_accumulation", _BOARD, _DEBT, Count(3), _LOOK,
        "debt is piling up faster than it is paid",
        ("decide which of it is acceptable, and `liza task add` what has to be paid now",),
    ),
    Rule(
        "assumption_cascade", _BOARD, _anomaly("assumption_violated"), Count(2), _LOOK,
        "several tasks build on the same wrong assumption",
        ("say in the specification what is so, and look at the tasks that were merged on the assumption",),
        same=_same("assumption", fuzzy_words),
    ),
    Rule(
        "workaround_pattern", _BOARD, _anomaly("workaround"), Count(2), _LOOK,
        "the same cause is worked around again and again",
        ("remove the cause: `liza task add` a task for it, before more is built around it",),
        same=_same("root_cause", fuzzy_words),
    ),
    Rule(
        "spec_gap_cluster", _BOARD, _anomaly("spec_ambiguity", "spec_gap"), Count(2), _LOOK,
        "the same part of the specification does not say enough",
        ("complete that part of the specification, then `liza note` what changed",), same=_same("spec_ref"),
    ),
    Rule(
        "external_service_outage", _BOARD, _anomaly("external_blocker"), Count(2), _LOOK,
        "a service that the work needs does not answer",
        ("wait until the service is back, or tell the agents by `liza note` how to do without it",),
        same=_same("service"),
    ),
    Rule(
        "checkout_drift", _BOARD, _anomaly("checkout_drift"), Count(1), RuleAction.PAUSE,
        "an agent changed what is yours: your checkout, your index, your branches",
        ("look at what moved and put it back, then confine the agent before it goes on",),
        same=_same("moved"), always=True,
    ),
    Rule(
        "rejected_edit", _BOARD, _anomaly("edit_rejected"), Count(1), RuleAction.ALERT,
        "an edit of state.yaml broke a rule of the board; the agents were paused",
        ("mend the kept text and save it again, or leave it; then `liza resume`",),
        same=_same("file"), always=True,
    ),
    Rule(
        "gate_broken", _BOARD, _anomaly("gate_broken"), Count(1), RuleAction.PAUSE,
        "a gate's command cannot run, or fails alike without any work, so that it can judge nothing",
        ("mend what it needs; work that was done is kept, and judged again once this is resolved",),
        same=Sameness(
            "the same gate and command",
            lambda event: Likeness(exact_word(f"{event.fields.get('gate')} {event.fields.get('command')}")),
        ),
        always=True,
    ),
    Rule(
        "fruitless_attempts", _BOARD, Pattern(EventKind.FRUITLESS), Count(0, "attempts_without_progress"),
        _LOOK, "attempts are paid for, and none leads to a commit or a verdict",
        ("see the latest of runs/ for how the agents end, and mend what they need",), always=True,
    ),
    Rule(
        # Each of them is several kills in a row, which say nothing about the task: patience is in order.
        "agents_killed", _BOARD, Pattern(EventKind.KILLED), Count(0, "attempts_without_progress", 3),
        _LOOK, "agents are killed again and again before they are done",
        ("see whether memory is short (the kernel's log tells) or who kills them; fewer workers need less",),
        always=True,
    ),
    Rule(
        "equal_failures", _BOARD, Pattern(EventKind.RED_GATE), Count(10), _LOOK,
        "gates fail again and again for the same reason, whoever's work it is",
        ("run the command by hand on the integration branch: the project or the machine may be at fault",),
        always=True,
    ),
    Rule(
        # One who says so has tried several ways; of those who only fail, it takes two.
        "hypothesis_exhaustion", _BOARD, Pattern(EventKind.FAILURE), Count(2), RuleAction.ALERT,
        "those who tried a task have no idea left",
        ("the planner thinks about the task; `liza note … --for TASK` helps it",), same=_OF_TASK, always=True,
    ),
    Rule(
        "cycle_duration", _BOARD, _clock("goal"), Count(1), RuleAction.ALERT,
        "nobody has said anything for long", ("see `liza status` whether it goes where you want",),
        window=timedelta(minutes=30), reset=(_HUMAN,),
    ),
    Rule(
        "session_duration", _BOARD, _clock("goal"), Count(1), _LOOK,
        "the work on the goal lasts longer than a session may", ("see `liza status` whether it is to go on",),
        window=timedelta(hours=2),
    ),
    Rule(
        "stale_checkpoint", _BOARD, _clock("checkpoint"), Count(1), RuleAction.ALERT,
        "a CHECKPOINT waits for somebody", ("look at what it is about; `liza resume` goes on",),
        window="checkpoint_hours", always=True,
    ),
)  # fmt: skip
RULE_BY_NAME: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}
ALWAYS: Final = tuple(rule for rule in RULES if rule.always)
# A name for several, so that a workflow need not list them.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "anomaly_patterns": tuple(
        rule.name for rule in RULES if rule.counts.kind is EventKind.ANOMALY and not rule.always
    ),
}


class FiredRule(NamedTuple):
    """A rule that fires, with all that it saw."""

    row: Rule
    events: tuple[CountedEvent, ...]
    words: Words  # what they have in common
    needed: int

    @property
    def rule(self) -> str:
        return self.row.name

    @property
    def action(self) -> RuleAction:
        return self.row.action

    @property
    def evidence(self) -> tuple[str, ...]:
        """Why it fires, as sentences."""
        count = sum(event.weight for event in self.events)
        first = f"{self.row.sentence}: {count} of {self.needed} that {self.rule} waits for"
        shown = (f"{event.at:%Y-%m-%dT%H:%M:%SZ}: {event_sentence(event)}" for event in self.events[-SHOWN:])
        return first, *shown


def event_sentence(event: CountedEvent) -> str:
    return event.says or " ".join(filter(None, (event.phase, event.outcome, event.reason))) or event.kind


def evaluate(
    rules: Iterable[Rule],
    events: Sequence[CountedEvent],
    limits: Limits,
    now: datetime,
    seen: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[FiredRule, ...]:
    """Return which of *rules* fire on *events*, weakest action first: all look at the same events.

    A rule fires once for each subject and each group of events that are the same. *seen* has by rule what it
    fired on before, which counts no more.
    """
    found = [
        fired
        for rule in rules
        for part in _subjects(rule, events)
        for fired in _fired(rule, part, limits, now, seen.get(rule.name, ()))
    ]
    return tuple(sorted(found, key=lambda fired: ACTION_ORDER.index(fired.action)))


def _subjects(rule: Rule, events: Sequence[CountedEvent]) -> Iterable[list[CountedEvent]]:
    """Return *events* of one task, one worker, or all, in the order in which they happened."""
    parts: dict[str | None, list[CountedEvent]] = {}
    for event in sorted(events, key=lambda event: event.at):
        whose = {Subject.TASK: event.task, Subject.WORKER: event.worker, Subject.BOARD: None}
        parts.setdefault(whose[rule.subject], []).append(event)
    return parts.values()


def _fired(
    rule: Rule, events: list[CountedEvent], limits: Limits, now: datetime, seen: Collection[str]
) -> Iterator[FiredRule]:
    start = max((n for n, event in enumerate(events, 1) if _is_reset(rule, event)), default=0)
    if rule.is_clock:
        since = events[start - 1].at if start else None
        counted = [_tick(rule, event, since, limits, now) for event in events if rule.counts.matches(event)]
    else:
        counted = [event for event in events[start:] if rule.counts.matches(event)]
    fresh = [event for event in counted if event is not None and event.id not in seen]
    needed = rule.count.value(limits)
    for likeness, group in group_events(rule, fresh):
        near = group if rule.is_clock else _within(group, rule.window_in(limits))
        if 0 < needed <= sum(event.weight for event in near):
            yield FiredRule(rule, tuple(near), likeness.words, needed)


def _is_reset(rule: Rule, event: CountedEvent) -> bool:
    return any(pattern.matches(event) for pattern in rule.reset)


def _tick(
    rule: Rule, event: CountedEvent, since: datetime | None, limits: Limits, now: datetime
) -> CountedEvent | None:
    """Return the latest time that the window of *rule* was over since *event*, or None."""
    start, window = max(event.at, since or event.at), rule.window_in(limits)
    times = (now - start) // window
    at = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    name = f"{event.id} since {at}, {times}"
    return event._replace(id=name, says=f"{event.says} since {at}") if times > 0 else None


def _within(events: list[CountedEvent], window: timedelta) -> list[CountedEvent]:
    return [event for event in events if events[-1].at - event.at <= window]


def group_events(rule: Rule, events: Iterable[CountedEvent]) -> list[tuple[Likeness, list[CountedEvent]]]:
    """Return *events* in groups of those that are the same to *rule*; the likeness is that of the first."""
    groups: list[tuple[Likeness, list[CountedEvent]]] = []
    for event in events:
        likeness = likeness_of(rule, event)
        if not likeness.words:
            continue
        group = next((members for first, members in groups if first.is_same(likeness)), None)
        if group is None:
            groups.append((likeness, [event]))
        else:
            group.append(event)
    return groups


def likeness_of(rule: Rule, event: CountedEvent) -> Likeness:
    return rule.same.likeness(event) if rule.same else _ALL_ALIKE


# What the board remembers, as the events that rules count, and each time that a rule fired.

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


# The circuit breaker as it is on the board: each time that a rule fired, until a person resolves it.
#
# A rule fires once on what it saw: a trip names all of it, and what a trip of the rule has seen counts no
# more.

# All that can fire on the board itself, whatever the time is and whatever the workflow says.
TIMELESS: Final = tuple(rule for rule in RULES if rule.subject is not Subject.TASK and not rule.is_clock)
ALERT_RESOLUTION: Final = "told; it stops nobody, so there is nothing to resolve"
_TICK: Final = timedelta(microseconds=1)  # between trips of one moment, whose reports are named by the time
_REMEDIES: Final = {RuleAction.CHECKPOINT: Remedy.CHECKPOINT, RuleAction.PAUSE: Remedy.PAUSE}


def due_trips(
    state: State,
    now: datetime,
    rules: Iterable[Rule] = TIMELESS,
    events: Sequence[CountedEvent] | None = None,
) -> tuple[Trip, ...]:
    """Return the trips of *rules* that are due on *events*: those of the whole board unless given."""
    if events is None:
        events = board_events(state, now)
    fired = evaluate(rules, events, state.config.limits, now, seen_evidence(state))
    new = [one for one in fired if not _has_open_trip(state, one, events)]
    taken = [trip.id for trip in state.circuit_breaker.trips]
    found: list[Trip] = []
    for one in new:
        taken.append(next_id(taken, "trip"))
        found.append(_make_trip(one, taken[-1], now + len(found) * _TICK))
    return tuple(found)


def with_due_trips(
    state: State,
    now: datetime,
    rules: Iterable[Rule] = TIMELESS,
    events: Sequence[CountedEvent] | None = None,
) -> State:
    """Return the board with the trips that are due; the same board where there are none."""
    new = due_trips(state, now, rules, events)
    return _with_trips(state, (*state.circuit_breaker.trips, *new)) if new else state


def seen_evidence(state: State) -> dict[str, set[str]]:
    """Return by rule what its trips have seen."""
    seen: dict[str, set[str]] = {}
    for trip in state.circuit_breaker.trips:
        seen.setdefault(trip.rule, set()).update(trip.evidence)
    return seen


def _has_open_trip(state: State, fired: FiredRule, events: Sequence[CountedEvent]) -> bool:
    """Return whether an open trip already covers what fired."""
    held = {name for trip in open_trips(state) if trip.rule == fired.rule for name in trip.evidence}
    known = [event for event in events if event.id in held and fired.row.counts.matches(event)]
    mine = likeness_of(fired.row, fired.events[0])
    # What an open trip saw may be gone from the board; then it is not told apart from anything.
    return any(likeness_of(fired.row, one).is_same(mine) for one in known) or bool(held and not known)


def _make_trip(fired: FiredRule, name: str, at: datetime) -> Trip:
    action = _REMEDIES.get(fired.action, Remedy.ALERT)
    is_only_told = action is Remedy.ALERT
    return Trip(
        id=name,
        rule=fired.rule,
        severity=SEVERITY[fired.action],
        at=at,
        action=action,
        about=" ".join(sorted(fired.words)),
        evidence=tuple(dict.fromkeys(event.id for event in fired.events)),
        says=tuple(event_sentence(event)[:LONGEST_SENTENCE] for event in fired.events),
        tasks=tuple(dict.fromkeys(event.task for event in fired.events if event.task)),
        resolved_at=at if is_only_told else None,
        resolution=ALERT_RESOLUTION if is_only_told else None,
    )


def open_trips(state: State) -> tuple[Trip, ...]:
    return tuple(trip for trip in state.circuit_breaker.trips if trip.resolved_at is None)


def resolve_trip(state: State, name: str, reason: str, now: datetime) -> State:
    """Return the board with a trip resolved and the anomalies that it saw marked as processed."""
    trip = trip_of(state, name)
    if trip.resolved_at is not None:
        message = f"{name}: it was resolved at {trip.resolved_at:%Y-%m-%dT%H:%M:%SZ}: {trip.resolution}"
        raise Refused(message)
    mended = trip.replace(resolved_at=now, resolution=reason)
    state = _with_trips(
        state, tuple(mended if other.id == name else other for other in state.circuit_breaker.trips)
    )
    seen = {
        anomaly.id: anomaly.replace(processed=now, processed_by=Role.HUMAN)
        for anomaly in state.anomalies.values()
        if anomaly.id in trip.evidence
    }
    return state.replace(anomalies=with_records(state.anomalies, seen)) if seen else state


def trip_of(state: State, name: str) -> Trip:
    found = next((trip for trip in state.circuit_breaker.trips if trip.id == name), None)
    if found is None:
        raise NotThere("trip", name, "`liza breaker` lists them")
    return found


def _with_trips(state: State, found: tuple[Trip, ...]) -> State:
    is_open = any(trip.resolved_at is None for trip in found)
    status = BreakerStatus.TRIPPED if is_open else BreakerStatus.OK
    return state.replace(circuit_breaker=CircuitBreaker(status=status, trips=found))


def report_name(trip: Trip) -> str:
    """Return the name of the report of *trip* in `report/`."""
    return f"breaker-{trip.at:%Y%m%dT%H%M%S.%fZ}-{trip.rule}.md"


def resolve_command(trip: Trip) -> str:
    """Return the command that resolves *trip*."""
    # Whoever resumes has looked at what moved: that is all there is to resolve.
    return "liza resume" if trip.rule == "checkout_drift" else f'liza breaker resolve {trip.id} --reason "…"'


def trip_sentence(trip: Trip) -> str:
    """Return in one line what fired, for a switch and an alert."""
    affected = f" ({', '.join(trip.tasks)})" if trip.tasks else ""
    means = RULE_BY_NAME[trip.rule].sentence if trip.rule in RULE_BY_NAME else "; ".join(trip.says)
    return f"{trip.id}: the rule {trip.rule} fired{affected}: {means}"
