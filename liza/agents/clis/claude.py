"""What `claude -p --output-format stream-json` prints, and qwen, which took the format over."""

from __future__ import annotations

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
    from liza.agents.protocol import Usage

_API_ERROR: Final = "[API Error:"  # qwen reports an error as if the model had said it, and calls it a success


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    found = list(json_objects(printed.out))
    result = next((event for event in reversed(found) if event.get("type") == "result"), None)
    said = join_texts(_assistant_texts(found))
    parsed = ParsedRun(
        RunEnding.DONE,
        text=said or str(value_at(result, "result") or ""),
        usage=_usage(found, result).replace(model=_model(found)),
        session=next((str(event["session_id"]) for event in found if event.get("session_id")), None),
    )
    if result is None:
        return _conclude_unfinished(printed, now, parsed, found)
    parsed = with_ending(
        printed,
        now,
        parsed,
        trouble=_trouble(result),
        status=token_count(result.get("api_error_status")) or None,
    )
    denied = sorted({str(one.get("tool_name")) for one in result.get("permission_denials") or ()})
    if denied and parsed.ending is RunEnding.DONE:
        return parsed._replace(why=f"it was not allowed to use {', '.join(denied)}")
    return parsed


def _assistant_texts(found: list[Json]) -> list[str]:
    """Return what the agent itself said; a subagent's words have a parent, and are its tool's output."""
    return [
        message_text(value_at(event, "message", "content"))
        for event in found
        if event.get("type") == "assistant" and not event.get("parent_tool_use_id")
    ]


def _trouble(result: Json) -> str:
    """Return what went wrong; `subtype` says success also where `is_error` is set, and qwen's never is."""
    said = str(result.get("result") or "")
    errors = "; ".join(map(str, result.get("errors") or ()))
    if result.get("is_error"):
        return (
            said or errors or str(value_at(result, "error", "message") or result.get("subtype") or "an error")
        )
    return said if said.startswith(_API_ERROR) else ""


def _conclude_unfinished(
    printed: RunOutput, now: datetime, parsed: ParsedRun, found: list[Json]
) -> ParsedRun:
    """Judge a run that ended before its result: perhaps it was still trying to reach its provider."""
    last = found[-1] if found else {}
    if last.get("subtype") == "api_retry":
        status = token_count(last.get("error_status")) or None
        return with_ending(
            printed, now, parsed, trouble=f"still trying again: {last.get('error')}", status=status
        )
    if not found:
        return with_ending(printed, now, parsed)
    trouble = printed.err.strip() or "its output breaks off before the result"
    return with_ending(printed, now, parsed, trouble=trouble)


def _model(found: list[Json]) -> str | None:
    """Return the model that the agent itself worked with; a subagent's may be another."""
    named = (
        value_at(event, "message", "model")
        for event in reversed(found)
        if not event.get("parent_tool_use_id")
    )
    return next((name for name in named if isinstance(name, str) and name.strip()), None)


def _usage(found: list[Json], result: Json | None) -> Usage:
    models = [model for model in (value_at(result, "modelUsage") or {}).values() if isinstance(model, dict)]
    if models:
        into = sum(
            token_count(model.get(name))
            for model in models
            for name in ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        )
        return usage_from_counts(
            into,
            sum(token_count(model.get("outputTokens")) for model in models),
            value_at(result, "total_cost_usd"),
        )
    messages = {
        value_at(event, "message", "id"): value_at(event, "message", "usage")
        for event in found
        if event.get("type") == "assistant"
    }
    usages = [value_at(result, "usage")] if value_at(result, "usage") else list(messages.values())
    into = sum(
        token_count(value_at(usage, name))
        for usage in usages
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )
    usd = value_at(result, "total_cost_usd")
    return usage_from_counts(
        into, sum(token_count(value_at(usage, "output_tokens")) for usage in usages), usd
    )
