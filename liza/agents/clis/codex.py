"""What `codex exec --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.agents.clis.parsing import concluded, count, dug, events, joined, reported
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out))
    items = [dug(event, "item") for event in found if event.get("type") == "item.completed"]
    usage: Json | None = next(
        (dug(event, "usage") for event in reversed(found) if event.get("type") == "turn.completed"), {}
    )
    parsed = Parsed(
        Ending.DONE,
        text=joined(str(dug(item, "text") or "") for item in items if dug(item, "type") == "agent_message"),
        # What was read from the cache is part of the input tokens.
        usage=reported(count(dug(usage, "input_tokens")), count(dug(usage, "output_tokens"))),
        session=next((str(event["thread_id"]) for event in found if event.get("thread_id")), None),
    )
    return concluded(printed, now, parsed, trouble=_trouble(found))


def _trouble(found: list[Json]) -> str:
    """Return why the turn failed; an item of type error is a remark, and an error within a turn passes."""
    last = next((event for event in reversed(found) if str(event.get("type")).startswith("turn.")), {})
    if last.get("type") == "turn.failed":
        return str(dug(last, "error", "message") or "the turn failed")
    errors = [str(event.get("message")) for event in found if event.get("type") == "error"]
    if last.get("type") != "turn.completed" and errors:
        return errors[-1]
    if last.get("type") == "turn.started":
        return "its output breaks off in the middle of a turn"
    return ""
