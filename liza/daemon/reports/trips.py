"""The circuit breaker as people see it: a line a trip, and the report that is written when one happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from liza.domain.model import Remedy
from liza.domain.rules import RULE_BY_NAME, report_name, resolve_command, trip_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.domain.model import State, Trip


def trip_report(trip: Trip, state: State) -> str:
    """Return what fired, on what evidence, and what to do about it, as Markdown."""
    return "\n".join([*_head(trip), *_body(trip, state)]) + "\n"


def _head(trip: Trip) -> Iterator[str]:
    yield f"# Circuit breaker: {trip.rule}"
    yield ""
    yield f"{trip_sentence(trip)}."
    yield ""
    yield f"- at {trip.at:%Y-%m-%dT%H:%M:%SZ}"
    yield f"- severity {trip.severity}"
    yield f"- action {trip.action}"
    if trip.about:
        yield f"- in common: {' '.join(trip.about.split())}"


def _body(trip: Trip, state: State) -> Iterator[str]:
    yield from _section("Evidence", trip.says or trip.evidence)
    affected = ((name, state.status_of(name)) for name in trip.tasks)
    yield from _section("Affected tasks", [f"{name} ({status})" for name, status in affected])
    rule = RULE_BY_NAME.get(trip.rule)
    yield from _section("Suggested", rule.then if rule else ())
    yield from _section("How to resolve", [_how_to_resolve(trip)])


def _section(title: str, items: tuple[str, ...] | list[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield from [f"- {' '.join(item.split())}" for item in items] or ["- none"]


def _how_to_resolve(trip: Trip) -> str:
    if trip.action is Remedy.ALERT:
        return "nothing was stopped, so there is nothing to resolve"
    return f"`{resolve_command(trip)}`; the agents go on once no trip is open"


def trip_list(state: State) -> str:
    """Return the status of the breaker and a line for each trip, the latest last."""
    trips = state.circuit_breaker.trips
    lines = [f"Breaker   {state.circuit_breaker.status}, {len(trips)} trips"]
    lines += [
        f"  {trip.id:<8} {trip.at:%Y-%m-%dT%H:%M:%SZ} {trip.severity:<8} {trip.rule}: {_state_of(trip)}"
        for trip in trips
    ]
    return "\n".join(lines) + "\n"


def _state_of(trip: Trip) -> str:
    if trip.resolved_at is None:
        return f"open (`{resolve_command(trip)}`)"
    return " ".join(str(trip.resolution).split())


def breaker_json(state: State) -> dict[str, Any]:
    breaker = state.circuit_breaker
    return {"status": str(breaker.status), "trips": [trip_json(trip) for trip in breaker.trips]}


def trip_json(trip: Trip) -> dict[str, Any]:
    return {**trip.model_dump(mode="json"), "report": f"report/{report_name(trip)}"}
