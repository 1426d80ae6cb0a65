"""What `goose run --output-format stream-json` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from liza.agents.clis.parsing import concluded, count, dug, events, joined, reported, text_of
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed

_ERROR: Final = "Ran into this error:"  # said as the assistant, in a run that is called completed


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out))
    messages = [dug(event, "message") for event in found if event.get("type") == "message"] or _whole(
        printed.out
    )
    done = next((event for event in reversed(found) if event.get("type") == "complete"), {})
    said = _pieces(messages)
    trouble = next((text for text in reversed(said) if text.startswith(_ERROR)), "")
    failed = next((event for event in reversed(found) if event.get("type") == "error"), None)
    if failed:
        trouble = str(failed.get("error") or failed.get("message") or failed)
    parsed = Parsed(
        Ending.DONE,
        text=joined(text for text in said if not text.startswith(_ERROR)),
        usage=reported(count(done.get("input_tokens")), count(done.get("output_tokens"))),
    )
    return concluded(printed, now, parsed, trouble=trouble)


def _pieces(messages: list[Json]) -> list[str]:
    """Return what the assistant said; a message comes in pieces under one id."""
    said: dict[str, str] = {}
    for number, message in enumerate(messages):
        if dug(message, "role") == "assistant":
            name = str(dug(message, "id") or number)
            said[name] = said.get(name, "") + text_of(dug(message, "content"))
    return list(said.values())


def _whole(out: str) -> list[Json]:
    """Return the messages of `--output-format json`, which is one object behind a banner."""
    try:
        found, _ = json.JSONDecoder().raw_decode(out[max(0, out.find("\n{")) :].lstrip())
    except ValueError:
        return []
    return [one for one in dug(found, "messages") or () if isinstance(one, dict)]
