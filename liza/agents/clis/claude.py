"""What `claude -p --output-format stream-json` prints, and qwen, which took the format over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.agents.clis.parsing import concluded, count, dug, events, joined, reported, text_of
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed
    from liza.agents.protocol import Usage

_API_ERROR: Final = "[API Error:"  # qwen reports an error as if the model had said it, and calls it a success


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out))
    result = next((event for event in reversed(found) if event.get("type") == "result"), None)
    said = joined(_said(found))
    parsed = Parsed(
        Ending.DONE,
        text=said or str(dug(result, "result") or ""),
        usage=_usage(found, result).but(model=_model(found)),
        session=next((str(event["session_id"]) for event in found if event.get("session_id")), None),
    )
    if result is None:
        return _unfinished(printed, now, parsed, found)
    parsed = concluded(
        printed, now, parsed, trouble=_trouble(result), status=count(result.get("api_error_status")) or None
    )
    denied = sorted({str(one.get("tool_name")) for one in result.get("permission_denials") or ()})
    if denied and parsed.ending is Ending.DONE:
        return parsed._replace(why=f"it was not allowed to use {', '.join(denied)}")
    return parsed


def _said(found: list[Json]) -> list[str]:
    """Return what the agent itself said; a subagent's words have a parent, and are its tool's output."""
    return [
        text_of(dug(event, "message", "content"))
        for event in found
        if event.get("type") == "assistant" and not event.get("parent_tool_use_id")
    ]


def _trouble(result: Json) -> str:
    """Return what went wrong; `subtype` says success also where `is_error` is set, and qwen's never is."""
    said = str(result.get("result") or "")
    errors = "; ".join(map(str, result.get("errors") or ()))
    if result.get("is_error"):
        return said or errors or str(dug(result, "error", "message") or result.get("subtype") or "an error")
    return said if said.startswith(_API_ERROR) else ""


def _unfinished(printed: Printed, now: datetime, parsed: Parsed, found: list[Json]) -> Parsed:
    """Judge a run that ended before its result: perhaps it was still trying to reach its provider."""
    last = found[-1] if found else {}
    if last.get("subtype") == "api_retry":
        status = count(last.get("error_status")) or None
        return concluded(
            printed, now, parsed, trouble=f"still trying again: {last.get('error')}", status=status
        )
    if not found:
        return concluded(printed, now, parsed)
    trouble = printed.err.strip() or "its output breaks off before the result"
    return concluded(printed, now, parsed, trouble=trouble)


def _model(found: list[Json]) -> str | None:
    """Return the model that the agent itself worked with; a subagent's may be another."""
    named = (
        dug(event, "message", "model") for event in reversed(found) if not event.get("parent_tool_use_id")
    )
    return next((name for name in named if isinstance(name, str) and name.strip()), None)


def _usage(found: list[Json], result: Json | None) -> Usage:
    models = [model for model in (dug(result, "modelUsage") or {}).values() if isinstance(model, dict)]
    if models:
        into = sum(
            count(model.get(name))
            for model in models
            for name in ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        )
        return reported(
            into, sum(count(model.get("outputTokens")) for model in models), dug(result, "total_cost_usd")
        )
    messages = {
        dug(event, "message", "id"): dug(event, "message", "usage")
        for event in found
        if event.get("type") == "assistant"
    }
    usages = [dug(result, "usage")] if dug(result, "usage") else list(messages.values())
    into = sum(
        count(dug(usage, name))
        for usage in usages
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )
    usd = dug(result, "total_cost_usd")
    return reported(into, sum(count(dug(usage, "output_tokens")) for usage in usages), usd)
