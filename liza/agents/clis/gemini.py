"""What `gemini -o stream-json` prints, and `-o json`, which is one object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from liza.agents.clis.parsing import (
    STDERR_TAIL,
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
    found = list(json_objects(printed.out)) or _single_object(printed.out) or _single_object(printed.err)
    result = next((event for event in reversed(found) if _is_result(event)), None)
    parsed = ParsedRun(
        RunEnding.DONE,
        text=_text(found, result),
        usage=_usage(value_at(result, "stats")),
        session=next((str(event["session_id"]) for event in found if event.get("session_id")), None),
    )
    status = token_count(value_at(result, "error", "code")) or None
    return with_ending(printed, now, parsed, trouble=_trouble(printed, found, result), status=status)


def _is_result(event: Json) -> bool:
    return event.get("type") == "result" or "response" in event or isinstance(event.get("error"), dict)


def _single_object(text: str) -> list[Json]:
    """Return the one object that is printed over many lines, behind warnings."""
    start = text.find("\n{") + 1 if not text.startswith("{") else 0
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return []
    return [found] if isinstance(found, dict) else []


def _text(found: list[Json], result: Json | None) -> str:
    if value_at(result, "response") is not None:
        return str(value_at(result, "response"))
    # A message comes in pieces; what is between two pieces belongs to a tool, and starts another message.
    texts = [""]
    for event in found:
        if event.get("type") == "message" and event.get("role") == "assistant":
            texts[-1] += str(event.get("content") or "")
        else:
            texts.append("")
    return join_texts(texts)


def _trouble(printed: RunOutput, found: list[Json], result: Json | None) -> str:
    error = value_at(result, "error")
    if error:
        return str(value_at(error, "message") or error)
    if (
        found and result is None
    ):  # perhaps it was still trying to reach its provider, which it tells on stderr
        return printed.err.strip()[-STDERR_TAIL:] or "its output breaks off before the result"
    return ""


def _usage(stats: object) -> Usage:
    models = [value_at(model, "tokens") for model in (value_at(stats, "models") or {}).values()]
    if any(models):
        spoken = sum(
            token_count(value_at(model, name)) for model in models for name in ("candidates", "thoughts")
        )
        return usage_from_counts(sum(token_count(value_at(model, "prompt")) for model in models), spoken)
    return usage_from_counts(
        token_count(value_at(stats, "input_tokens")), token_count(value_at(stats, "output_tokens"))
    )
