"""The circuit breaker as it is on the board: each time that a rule fired, until a person resolves it.

A rule fires once on what it saw: a trip names all of it, and what a trip of the rule has seen counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.domain.model import BreakerStatus, CircuitBreaker, Remedy, Role, Trip
from liza.domain.record import next_id, with_records
from liza.domain.rule_events import LONGEST_SENTENCE, board_events
from liza.domain.rules import (
    RULE_BY_NAME,
    RULES,
    SEVERITY,
    RuleAction,
    Subject,
    evaluate,
    event_sentence,
    likeness_of,
)
from liza.errors import NotThere, Refused

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State
    from liza.domain.rules import CountedEvent, FiredRule, Rule

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
