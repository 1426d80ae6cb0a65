"""What `opencode run --format json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.agents.clis.parsing import (
    join_texts,
    json_objects,
    token_count,
    usage_from_counts,
    value_at,
    with_ending,
)
from liza.agents.clis.spec import ParsedRun
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import RunOutput
    from liza.agents.protocol import Usage


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    found = list(json_objects(printed.out))
    error = next(
        (value_at(event, "error") for event in reversed(found) if event.get("type") == "error"), None
    )
    steps = [value_at(event, "part") for event in found if event.get("type") == "step_finish"]
    parsed = ParsedRun(
        RunEnding.DONE,
        text=join_texts(
            str(value_at(event, "part", "text") or "") for event in found if event.get("type") == "text"
        ),
        usage=_usage(steps),
        session=next((str(event["sessionID"]) for event in found if event.get("sessionID")), None),
    )
    if error:
        trouble = str(value_at(error, "data", "message") or value_at(error, "name") or "an error")
        body = value_at(error, "data", "responseBody")
        said = f"{trouble} {body}" if body else trouble
        status = token_count(value_at(error, "data", "statusCode")) or None
        return with_ending(printed, now, parsed, trouble=said, status=status)
    return with_ending(printed, now, parsed, trouble=_cut_reason(found, steps))


def _cut_reason(found: list[Json], steps: list[Json]) -> str:
    """Return what is wrong with the last step: without a reason to stop, its stream was cut."""
    if found and not steps:
        return "its output breaks off in the middle of a step"
    reason = value_at(steps[-1], "reason") if steps else "stop"
    return {"unknown": "the stream of its model was cut", "length": "its model's answer was too long"}.get(
        str(reason), ""
    )


def _usage(steps: list[Json]) -> Usage:
    def total(*path: str) -> int:
        return sum(token_count(value_at(step, "tokens", *path)) for step in steps)

    costs = [value_at(step, "cost") for step in steps]
    usd = sum(float(cost) for cost in costs if isinstance(cost, int | float))
    into = total("input") + total("cache", "read") + total("cache", "write")
    return usage_from_counts(into, total("output") + total("reasoning"), usd or None)
