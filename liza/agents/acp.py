"""Any agent that speaks the Agent Client Protocol: a row like any other, with our bridge as the program.

The bridge is a process of its own between Liza and the agent. So such an agent is watched, frozen, ended and
swept up after as any other, whatever it does with the protocol, and no worker imports the protocol's package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.clis.parsing import (
    join_texts,
    json_objects,
    token_count,
    usage_from_counts,
    value_at,
    with_ending,
)
from liza.agents.clis.spec import NOTHING, Cli, ParsedRun, Permission, PermissionFlags
from liza.agents.clis.table import CLIS, MODEL_HOSTS, MODEL_KEYS
from liza.errors import UsageError
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import RunOutput
    from liza.agents.protocol import Usage
    from liza.domain.config import AgentChoice

BRIDGE: Final = Path(__file__).with_name("acp_bridge.py")
# Why a turn stopped, other than that it was over.
STOP_REASONS: Final = {
    "max_tokens": "its model's answer was too long, and was cut",
    "max_turn_requests": "it reached its limit of turns",
    "refusal": "its model refused",
    "cancelled": "it was cancelled",
}


class AcpProgram(NamedTuple):
    """A program that is driven by the Agent Client Protocol alone, and the variables that log it in."""

    provider: str
    keys: tuple[str, ...]
    passing: tuple[str, ...] = ()
    environment: Mapping[str, str] = NOTHING


ACP_PROGRAMS: Final[dict[str, AcpProgram]] = {
    "copilot": AcpProgram(
        "github",
        ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
        (
            *("COPILOT_MODEL", "COPILOT_OFFLINE", "COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_TYPE"),
            *("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_WIRE_API", "COPILOT_PROVIDER_MODEL_ID"),
        ),
        {"COPILOT_AUTO_UPDATE": "false"},
    ),
}


def acp_cli(choice: AgentChoice) -> Cli:
    """Return the row of the agent that the command of *choice* starts."""
    if not choice.command:
        raise UsageError("the acp backend needs a command, such as [gemini, --acp]")
    name = Path(choice.command[0]).name
    # What logs in a program of the table logs it in here too: its name, perhaps with `-acp` behind it.
    kin = next((cli for cli in CLIS.values() if name.split("-")[0] in cli.programs), None)
    speaker = ACP_PROGRAMS.get(name) or AcpProgram("", MODEL_KEYS)
    return Cli(
        name="acp",
        programs=(sys.executable,),
        provider=kin.provider if kin else speaker.provider or None,
        parse=parse,
        begin=("-I", str(BRIDGE)),  # isolated: nothing in the worktree is imported
        resume=("-I", str(BRIDGE), "--load", "$session"),
        words=(),
        permission_flags={
            permit: PermissionFlags((permit.value,), kin.permission_flags[permit].environment if kin else {})
            for permit in Permission
        },
        prompt=("--", *choice.command, *(choice.arguments or ())),
        model=(),
        environment=kin.environment if kin else speaker.environment,
        settings=kin.settings if kin else (),
        keys=kin.keys if kin else speaker.keys,
        env_passthrough=kin.env_passthrough if kin else speaker.passing,
        credentials=kin.credentials if kin else (),
        has_read_only_mode=False,  # only what an agent asks for can be refused, and some never ask
        writable=kin.writable if kin else (),
        brings_own_sandbox=kin.brings_own_sandbox if kin else False,
        endpoints=kin.endpoints if kin else MODEL_HOSTS,
    )


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    found = list(json_objects(printed.out))
    reply = next((value_at(one, "data") for one in reversed(found) if one.get("kind") == "prompt"), None)
    error = next((str(one.get("data")) for one in reversed(found) if one.get("kind") == "error"), "")
    updates = [value_at(one, "data") for one in found if one.get("kind") == "update"]
    session = next((str(one.get("data")) for one in found if one.get("kind") == "session"), None)
    parsed = ParsedRun(
        RunEnding.DONE, text=_agent_text(updates), usage=_usage(reply, updates), session=session
    )
    trouble = error or STOP_REASONS.get(str(value_at(reply, "stopReason")), "")
    if reply is None and not trouble and printed.code in {0, None}:
        trouble = "its output breaks off before the end of its turn"
    parsed = with_ending(printed, now, parsed, trouble=trouble)
    denied = sorted({str(one.get("data")) for one in found if one.get("kind") == "denied"})
    if denied and parsed.ending is RunEnding.DONE:
        return parsed._replace(why=f"it was not allowed to: {'; '.join(denied)}")
    return parsed


def _agent_text(updates: list[Json]) -> str:
    """Return the agent's messages; chunks between two tool calls belong to one message."""
    texts = [""]
    for update in updates:
        kind = value_at(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            texts[-1] += str(value_at(update, "content", "text") or "")
        elif kind in {"tool_call", "tool_call_update"}:
            texts.append("")
    return join_texts(texts)


def _usage(reply: object, updates: list[Json]) -> Usage:
    """Return the usage, from whichever known fields the agent fills; some report only their last call."""
    usage, quota = value_at(reply, "usage"), value_at(reply, "_meta", "quota", "token_count")
    names = ("inputTokens", "cachedReadTokens", "cachedWriteTokens")
    into = sum(token_count(value_at(usage, name)) for name in names) or token_count(
        value_at(quota, "input_tokens")
    )
    out_of = token_count(value_at(usage, "outputTokens")) or token_count(value_at(quota, "output_tokens"))
    costs = [
        value_at(update, "cost", "amount")
        for update in updates
        if value_at(update, "cost", "currency") == "USD"
    ]
    return usage_from_counts(into, out_of, costs[-1] if costs else None)
