"""What `codex exec --json` prints."""

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


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    found = list(json_objects(printed.out))
    items = [value_at(event, "item") for event in found if event.get("type") == "item.completed"]
    usage: Json | None = next(
        (value_at(event, "usage") for event in reversed(found) if event.get("type") == "turn.completed"), {}
    )
    parsed = ParsedRun(
        RunEnding.DONE,
        text=join_texts(
            str(value_at(item, "text") or "") for item in items if value_at(item, "type") == "agent_message"
        ),
        # What was read from the cache is part of the input tokens.
        usage=usage_from_counts(
            token_count(value_at(usage, "input_tokens")), token_count(value_at(usage, "output_tokens"))
        ),
        session=next((str(event["thread_id"]) for event in found if event.get("thread_id")), None),
    )
    return with_ending(printed, now, parsed, trouble=_trouble(found))


def _trouble(found: list[Json]) -> str:
    """Return why the turn failed; an item of type error is a remark, and an error within a turn passes."""
    last = next((event for event in reversed(found) if str(event.get("type")).startswith("turn.")), {})
    if last.get("type") == "turn.failed":
        return str(value_at(last, "error", "message") or "the turn failed")
    errors = [str(event.get("message")) for event in found if event.get("type") == "error"]
    if last.get("type") != "turn.completed" and errors:
        return errors[-1]
    if last.get("type") == "turn.started":
        return "its output breaks off in the middle of a turn"
    return ""
