"""What `gemini -o stream-json` prints, and `-o json`, which is one object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from liza.agents.clis.parsing import TAIL, concluded, count, dug, events, joined, reported
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed
    from liza.agents.protocol import Usage


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out)) or _whole(printed.out) or _whole(printed.err)
    result = next((event for event in reversed(found) if _is_result(event)), None)
    parsed = Parsed(
        Ending.DONE,
        text=_text(found, result),
        usage=_usage(dug(result, "stats")),
        session=next((str(event["session_id"]) for event in found if event.get("session_id")), None),
    )
    status = count(dug(result, "error", "code")) or None
    return concluded(printed, now, parsed, trouble=_trouble(printed, found, result), status=status)


def _is_result(event: Json) -> bool:
    return event.get("type") == "result" or "response" in event or isinstance(event.get("error"), dict)


def _whole(text: str) -> list[Json]:
    """Return the one object that is printed over many lines, behind warnings."""
    start = text.find("\n{") + 1 if not text.startswith("{") else 0
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return []
    return [found] if isinstance(found, dict) else []


def _text(found: list[Json], result: Json | None) -> str:
    if dug(result, "response") is not None:
        return str(dug(result, "response"))
    # A message comes in pieces; what is between two pieces belongs to a tool, and starts another message.
    texts = [""]
    for event in found:
        if event.get("type") == "message" and event.get("role") == "assistant":
            texts[-1] += str(event.get("content") or "")
        else:
            texts.append("")
    return joined(texts)


def _trouble(printed: Printed, found: list[Json], result: Json | None) -> str:
    error = dug(result, "error")
    if error:
        return str(dug(error, "message") or error)
    if (
        found and result is None
    ):  # perhaps it was still trying to reach its provider, which it tells on stderr
        return printed.err.strip()[-TAIL:] or "its output breaks off before the result"
    return ""


def _usage(stats: object) -> Usage:
    models = [dug(model, "tokens") for model in (dug(stats, "models") or {}).values()]
    if any(models):
        spoken = sum(count(dug(model, name)) for model in models for name in ("candidates", "thoughts"))
        return reported(sum(count(dug(model, "prompt")) for model in models), spoken)
    return reported(count(dug(stats, "input_tokens")), count(dug(stats, "output_tokens")))
