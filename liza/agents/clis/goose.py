"""What `goose run --output-format stream-json` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from liza.agents.clis.parsing import (
    join_texts,
    json_objects,
    message_text,
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

_ERROR: Final = "Ran into this error:"  # said as the assistant, in a run that is called completed


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    found = list(json_objects(printed.out))
    messages = [
        value_at(event, "message") for event in found if event.get("type") == "message"
    ] or _messages_of_one_object(printed.out)
    done = next((event for event in reversed(found) if event.get("type") == "complete"), {})
    said = _assistant_texts(messages)
    trouble = next((text for text in reversed(said) if text.startswith(_ERROR)), "")
    failed = next((event for event in reversed(found) if event.get("type") == "error"), None)
    if failed:
        trouble = str(failed.get("error") or failed.get("message") or failed)
    parsed = ParsedRun(
        RunEnding.DONE,
        text=join_texts(text for text in said if not text.startswith(_ERROR)),
        usage=usage_from_counts(
            token_count(done.get("input_tokens")), token_count(done.get("output_tokens"))
        ),
    )
    return with_ending(printed, now, parsed, trouble=trouble)


def _assistant_texts(messages: list[Json]) -> list[str]:
    """Return what the assistant said; a message comes in pieces under one id."""
    said: dict[str, str] = {}
    for number, message in enumerate(messages):
        if value_at(message, "role") == "assistant":
            name = str(value_at(message, "id") or number)
            said[name] = said.get(name, "") + message_text(value_at(message, "content"))
    return list(said.values())


def _messages_of_one_object(out: str) -> list[Json]:
    """Return the messages of `--output-format json`, which is one object behind a banner."""
    try:
        found, _ = json.JSONDecoder().raw_decode(out[max(0, out.find("\n{")) :].lstrip())
    except ValueError:
        return []
    return [one for one in value_at(found, "messages") or () if isinstance(one, dict)]
