"""The circuit breaker of the whole board: one table of patterns, each of which fires once on what it saw.

A rule turns the board into sightings, each with an id and the words by which two are the same. Those that no
earlier trip of the rule has seen are counted; a trip names all of them. What has no words matches nothing:
two things that nobody said are not the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain import anomalies as a
from liza.domain import similarity
from liza.domain.model import BreakerStatus, CircuitBreaker, Remedy, Role, Trip
from liza.domain.record import next_id, with_records
from liza.domain.similarity import are_similar_words
from liza.errors import NotThere, Refused

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.anomalies import Anomaly
    from liza.domain.model import State, Task

FAIL: Final = "fail"  # what history calls it; a look at the board is not worth loading all events for
EQUAL_FAILURES: Final = 10  # of gates in a row
KILLED_PATIENCE: Final = 3  # times as many attempts may end by kills as may come to nothing otherwise
FAILED_CODERS: Final = 2  # after which a third would only fail as well
LONGEST_SENTENCE: Final = 300  # characters of what a trip says of one sighting; the anomaly has all of it
ALERT_RESOLUTION: Final = "told; it stops nobody, so there is nothing to resolve"
_TICK: Final = timedelta(microseconds=1)  # between trips of one moment, whose reports are named by the time

_LINE_NUMBER: Final = re.compile(r"(?::\d+)+$")
# What people and models write where they have nothing to say.
_NOTHING: Final = frozenset({"", "-", "?", "n/a", "na", "nil", "none", "null", "tbd", "unknown", "unclear"})

Words = frozenset[str]


class Sighting(NamedTuple):
    """One thing that counts towards a rule."""

    id: str
    words: Words  # by which it is the same as another
    says: str
    task: str | None = None


class BreakerRule(NamedTuple):
    """A pattern: what counts, how many of the same, how grave it is, what is done, what people should do."""

    name: str
    severity: str
    action: Remedy
    count: Callable[[State], int]
    sightings: Callable[[State], Iterator[Sighting]]
    means: str
    then: str


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


def _anomaly_sightings(
    *kinds: type, by: Callable[[a.Details], str | None], words: Callable[[str], Words]
) -> Callable[[State], Iterator[Sighting]]:
    """Return what sees the open anomalies of *kinds*, told apart by the *words* of what *by* gives."""

    def sightings(state: State) -> Iterator[Sighting]:
        for anomaly in state.anomalies.values():
            if _is_counted(state, anomaly) and isinstance(anomaly.details, kinds):
                said = by(anomaly.details)
                if said is not None:
                    yield Sighting(anomaly.id, words(said), anomaly_sentence(anomaly), anomaly.task_id)

    return sightings


def _is_counted(state: State, anomaly: Anomaly) -> bool:
    """Return whether *anomaly* is of this goal, and nobody but a planner, which only read it, closed it."""
    reader = (anomaly.processed_by or "").partition("-")[0]
    is_open = anomaly.processed is None or reader == Role.PLANNER
    return is_open and anomaly.timestamp >= state.goal.since


def anomaly_sentence(anomaly: Anomaly) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in anomaly.details.to_json().items() if key != "type")
    about = f" of {anomaly.task_id}" if anomaly.task_id else ""
    return f"{anomaly.id}: {anomaly.type}{about} by {anomaly.logged_by}: {facts[:LONGEST_SENTENCE]}"


def _debt_key(details: a.Details) -> str | None:
    if isinstance(details, a.TradeOff) and not details.debt:
        return None
    return "debt"


def _exhausted_hypotheses(state: State) -> Iterator[Sighting]:
    """See the anomalies of that type, and every task that two coders failed, at the last of the failures."""
    logged = _anomaly_sightings(a.HypothesisExhaustion, by=lambda _: "", words=lambda _: frozenset())
    for one in logged(state):
        yield one._replace(words=frozenset({one.id}))
    for task in state.tasks.values():
        failed = next((entry for entry in reversed(task.history) if entry.event == FAIL), None)
        if len(task.failed_by) >= FAILED_CODERS and failed is not None:
            name = f"{task.id}@{failed.at:%Y%m%dT%H%M%S.%fZ}"
            why = f"{' and '.join(task.failed_by)} could not do it: {failed.facts.get('reason', '')}"
            yield Sighting(name, frozenset({name}), f"{task.id}: {why[:LONGEST_SENTENCE]}", task.id)


def _deadlocks(state: State) -> Iterator[Sighting]:
    """See every coder whose work on a task keeps being rejected."""
    for task in state.tasks.values():
        if task.review_cycles_current >= state.config.limits.max_review_cycles:
            # The total when these two began with each other stays as it is while they go on.
            name = f"{task.id}/{_current_coder(task)}/{task.review_cycles_total - task.review_cycles_current}"
            why = f"{task.id}: {task.review_cycles_current} rejections of {_current_coder(task)}'s work"
            yield Sighting(
                name, frozenset({task.id}), f"{why}: {task.rejection_reason}"[:LONGEST_SENTENCE], task.id
            )


def _current_coder(task: Task) -> str:
    return task.authors[-1] if task.authors else "nobody"


def _fruitless_attempts(state: State) -> Iterator[Sighting]:
    for name in state.sprint.metrics.fruitless:
        task = name.partition("#")[0]
        yield Sighting(name, frozenset({"progress"}), f"{name}: an attempt that came to nothing", task)


def _killed_attempts(state: State) -> Iterator[Sighting]:
    for name in state.sprint.metrics.killed:
        task = name.partition("#")[0]
        yield Sighting(name, frozenset({"killed"}), f"{name}: its agent was killed every time", task)


def _red_gates(state: State) -> Iterator[Sighting]:
    """See the failures of gates in a row that are the same, whoever's work they are about."""
    for one in state.sprint.metrics.red_gates:
        name, _, reason = one.partition(" ")
        yield Sighting(
            name, frozenset({"gate"}), f"{name}: {reason}"[:LONGEST_SENTENCE], name.partition("#")[0]
        )


# Columns: name, severity, what is done, how many, what counts, what it means, what people should do.
BREAKER_RULES: Final[tuple[BreakerRule, ...]] = (
    BreakerRule(
        "retry_cluster", "high", Remedy.CHECKPOINT, lambda _: 3,
        _anomaly_sightings(a.RetryLoop, by=lambda one: one.error_pattern, words=fuzzy_words),  # type: ignore[union-attr]
        "agents keep running into the same error",
        "find the cause of the error itself: a wrong specification, a missing tool or a broken environment",
    ),
    BreakerRule(
        "debt_accumulation", "medium", Remedy.CHECKPOINT, lambda _: 3,
        _anomaly_sightings(a.TradeOff, a.DebtCreated, by=_debt_key, words=exact_word),
        "debt is piling up faster than it is paid",
        "decide which of it is acceptable, and `liza task add` what has to be paid now",
    ),
    BreakerRule(
        "assumption_cascade", "high", Remedy.CHECKPOINT, lambda _: 2,
        _anomaly_sightings(a.AssumptionViolated, by=lambda one: one.assumption, words=fuzzy_words),  # type: ignore[union-attr]
        "several tasks build on the same wrong assumption",
        "say in the specification what is so, and look at the tasks that were merged on the assumption",
    ),
    BreakerRule(
        "workaround_pattern", "medium", Remedy.CHECKPOINT, lambda _: 2,
        _anomaly_sightings(a.Workaround, by=lambda one: one.root_cause, words=fuzzy_words),  # type: ignore[union-attr]
        "the same cause is worked around again and again",
        "remove the cause: `liza task add` a task for it, before more is built around it",
    ),
    BreakerRule(
        "spec_gap_cluster", "high", Remedy.CHECKPOINT, lambda _: 2,
        _anomaly_sightings(a.SpecAmbiguity, a.SpecGap, by=lambda one: one.spec_ref, words=exact_word),  # type: ignore[union-attr]
        "the same part of the specification does not say enough",
        "complete that part of the specification, then `liza note` what changed",
    ),
    BreakerRule(
        "external_service_outage", "high", Remedy.CHECKPOINT, lambda _: 2,
        _anomaly_sightings(a.ExternalBlocker, by=lambda one: one.service, words=exact_word),  # type: ignore[union-attr]
        "a service that the work needs does not answer",
        "wait until the service is back, or tell the agents by `liza note` how to do without it",
    ),
    BreakerRule(
        "crash_loop", "high", Remedy.ALERT, lambda _: 1,
        _anomaly_sightings(a.CrashLoop, by=lambda one: one.agent, words=exact_word),  # type: ignore[union-attr]
        "a worker process crashed three times in five minutes and was stopped",
        "see workers/NAME.log, then `liza stop; liza run` gives it another chance",
    ),
    BreakerRule(
        "checkout_drift", "critical", Remedy.PAUSE, lambda _: 1,
        _anomaly_sightings(a.CheckoutDrift, by=lambda one: " ".join(one.moved), words=exact_word),  # type: ignore[union-attr]
        "an agent changed what is yours: your checkout, your index, your branches",
        "look at what moved and put it back, then confine the agent before it goes on",
    ),
    BreakerRule(
        "rejected_edit", "high", Remedy.ALERT, lambda _: 1,
        _anomaly_sightings(a.RejectedEdit, by=lambda one: one.file, words=exact_word),  # type: ignore[union-attr]
        "an edit of state.yaml broke a rule of the board; the agents were paused",
        "mend the kept text and save it again, or leave it; then `liza resume`",
    ),
    BreakerRule(
        "no_progress", "high", Remedy.CHECKPOINT, lambda state: state.config.limits.attempts_without_progress,
        _fruitless_attempts,
        "attempts are paid for, and none leads to a commit or a verdict",
        "see the latest of runs/ for how the agents end, and mend what they need",
    ),
    BreakerRule(
        # Each of them is several kills in a row, which say nothing about the task: patience is in order.
        "agents_killed", "high", Remedy.CHECKPOINT,
        lambda state: KILLED_PATIENCE * state.config.limits.attempts_without_progress,
        _killed_attempts,
        "agents are killed again and again before they are done",
        "see whether memory is short (the kernel's log tells) or who kills them; fewer workers need less",
    ),
    BreakerRule(
        "gate_broken", "high", Remedy.PAUSE, lambda _: 1,
        _anomaly_sightings(a.GateBroken, by=lambda one: f"{one.gate} {one.command}", words=exact_word),  # type: ignore[union-attr]
        "a gate's command cannot run, or fails alike without any work, so that it can judge nothing",
        "mend what it needs; work that was done is kept, and judged again once this is resolved",
    ),
    BreakerRule(
        "equal_failures", "high", Remedy.CHECKPOINT, lambda _: EQUAL_FAILURES,
        _red_gates,
        "gates fail again and again for the same reason, whoever's work it is",
        "run the command by hand on the integration branch: the project or the machine may be at fault",
    ),
    BreakerRule(
        "hypothesis_exhaustion", "medium", Remedy.ALERT, lambda _: 1,
        _exhausted_hypotheses,
        "those who tried a task have no idea left",
        "the planner thinks about the task; `liza note … --for TASK` helps it",
    ),
    BreakerRule(
        # It stops nobody else: the limits of the task itself block it.
        "review_deadlock", "high", Remedy.ALERT, lambda _: 1,
        _deadlocks,
        "a coder and its reviewer do not come to an end with each other",
        "read both sides (`liza task show TASK`) and decide: `liza note … --for TASK`, or `liza answer`",
    ),
)  # fmt: skip
RULE_BY_NAME: Final = {rule.name: rule for rule in BREAKER_RULES}


class SightingGroup(NamedTuple):
    """Sightings that are the same thing; the words are those of the first."""

    words: Words
    members: list[Sighting]


def group_sightings(sightings: Iterable[Sighting]) -> list[SightingGroup]:
    groups: list[SightingGroup] = []
    for one in sightings:
        if not one.words:
            continue
        group = next((group for group in groups if are_similar_words(group.words, one.words)), None)
        if group is None:
            groups.append(SightingGroup(one.words, [one]))
        else:
            group.members.append(one)
    return groups


def due_trips(state: State, now: datetime, rules: Iterable[BreakerRule] = BREAKER_RULES) -> tuple[Trip, ...]:
    """Return those of *rules* that fire on what no trip has seen yet, each with all of its evidence."""
    found: list[Trip] = []
    taken = [trip.id for trip in state.circuit_breaker.trips]
    for rule in rules:
        for group in group_sightings(_unseen_sightings(rule, state)):
            if len(group.members) >= rule.count(state) and not _has_open_trip(state, rule, group):
                taken.append(next_id(taken, "trip"))
                found.append(_make_trip(rule, group, taken[-1], now + len(found) * _TICK))
    return tuple(found)


def _unseen_sightings(rule: BreakerRule, state: State) -> Iterator[Sighting]:
    seen = {name for trip in state.circuit_breaker.trips if trip.rule == rule.name for name in trip.evidence}
    return (one for one in rule.sightings(state) if one.id not in seen)


def _has_open_trip(state: State, rule: BreakerRule, group: SightingGroup) -> bool:
    """Return whether an open trip already covers *group*."""
    held = {name for trip in open_trips(state) if trip.rule == rule.name for name in trip.evidence}
    known = [one for one in rule.sightings(state) if one.id in held]
    # What an open trip saw may be gone from the board; then it is not told apart from anything.
    return any(are_similar_words(one.words, group.words) for one in known) or bool(held and not known)


def _make_trip(rule: BreakerRule, group: SightingGroup, name: str, at: datetime) -> Trip:
    members = group.members
    is_only_told = rule.action is Remedy.ALERT
    return Trip(
        id=name,
        rule=rule.name,
        severity=rule.severity,
        at=at,
        action=rule.action,
        about=" ".join(sorted(group.words)),
        evidence=tuple(one.id for one in members),
        says=tuple(one.says for one in members),
        tasks=tuple(dict.fromkeys(one.task for one in members if one.task)),
        resolved_at=at if is_only_told else None,
        resolution=ALERT_RESOLUTION if is_only_told else None,
    )


def open_trips(state: State) -> tuple[Trip, ...]:
    return tuple(trip for trip in state.circuit_breaker.trips if trip.resolved_at is None)


def with_due_trips(state: State, now: datetime, rules: Iterable[BreakerRule] = BREAKER_RULES) -> State:
    """Return the board with the trips that are due; the same board where there are none."""
    new = due_trips(state, now, rules)
    return _with_trips(state, (*state.circuit_breaker.trips, *new)) if new else state


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
    means = RULE_BY_NAME[trip.rule].means if trip.rule in RULE_BY_NAME else "; ".join(trip.says)
    return f"{trip.id}: the rule {trip.rule} fired{affected}: {means}"
