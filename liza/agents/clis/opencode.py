"""What `opencode run --format json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.agents.clis.parsing import concluded, count, dug, events, joined, reported
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed
    from liza.agents.protocol import Usage


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out))
    error = next((dug(event, "error") for event in reversed(found) if event.get("type") == "error"), None)
    steps = [dug(event, "part") for event in found if event.get("type") == "step_finish"]
    parsed = Parsed(
        Ending.DONE,
        text=joined(str(dug(event, "part", "text") or "") for event in found if event.get("type") == "text"),
        usage=_usage(steps),
        session=next((str(event["sessionID"]) for event in found if event.get("sessionID")), None),
    )
    if error:
        trouble = str(dug(error, "data", "message") or dug(error, "name") or "an error")
        body = dug(error, "data", "responseBody")
        said = f"{trouble} {body}" if body else trouble
        status = count(dug(error, "data", "statusCode")) or None
        return concluded(printed, now, parsed, trouble=said, status=status)
    return concluded(printed, now, parsed, trouble=_cut(found, steps))


def _cut(found: list[Json], steps: list[Json]) -> str:
    """Return what is wrong with the last step: without a reason to stop, its stream was cut."""
    if found and not steps:
        return "its output breaks off in the middle of a step"
    reason = dug(steps[-1], "reason") if steps else "stop"
    return {"unknown": "the stream of its model was cut", "length": "its model's answer was too long"}.get(
        str(reason), ""
    )


def _usage(steps: list[Json]) -> Usage:
    def total(*path: str) -> int:
        return sum(count(dug(step, "tokens", *path)) for step in steps)

    costs = [dug(step, "cost") for step in steps]
    usd = sum(float(cost) for cost in costs if isinstance(cost, int | float))
    into = total("input") + total("cache", "read") + total("cache", "write")
    return reported(into, total("output") + total("reasoning"), usd or None)
