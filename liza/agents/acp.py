"""Any agent that speaks the Agent Client Protocol: a row like any other, with our bridge as the program.

The bridge is a process of its own between Liza and the agent. So such an agent is watched, frozen, ended and
swept up after as any other, whatever it does with the protocol, and no worker imports the protocol's package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.clis.parsing import concluded, count, dug, events, joined, reported
from liza.agents.clis.spec import NOTHING, Cli, Parsed, Permit, Way
from liza.agents.clis.table import CLIS, MODEL_HOSTS, MODEL_KEYS
from liza.errors import UsageError
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from liza.agents.clis.parsing import Json
    from liza.agents.clis.spec import Printed
    from liza.agents.protocol import Usage
    from liza.domain.config import AgentChoice

BRIDGE: Final = Path(__file__).with_name("acp_bridge.py")
# Why a turn stopped, other than that it was over.
STOPS: Final = {
    "max_tokens": "its model's answer was too long, and was cut",
    "max_turn_requests": "it reached its limit of turns",
    "refusal": "its model refused",
    "cancelled": "it was cancelled",
}


class Speaker(NamedTuple):
    """A program that Liza drives by the protocol alone, and what logs it in."""

    provider: str
    keys: tuple[str, ...]
    passing: tuple[str, ...] = ()
    environment: Mapping[str, str] = NOTHING


SPEAKERS: Final[dict[str, Speaker]] = {
    "copilot": Speaker(
        "github",
        ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
        (
            *("COPILOT_MODEL", "COPILOT_OFFLINE", "COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_TYPE"),
            *("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_WIRE_API", "COPILOT_PROVIDER_MODEL_ID"),
        ),
        {"COPILOT_AUTO_UPDATE": "false"},
    ),
}


def row(choice: AgentChoice) -> Cli:
    """Return the row of the agent that the command of *choice* starts."""
    if not choice.command:
        raise UsageError("the acp backend needs a command, such as [gemini, --acp]")
    name = Path(choice.command[0]).name
    # What logs in a program of the table logs it in here too: its name, perhaps with `-acp` behind it.
    kin = next((cli for cli in CLIS.values() if name.split("-")[0] in cli.programs), None)
    speaker = SPEAKERS.get(name) or Speaker("", MODEL_KEYS)
    return Cli(
        name="acp",
        programs=(sys.executable,),
        provider=kin.provider if kin else speaker.provider or None,
        parse=parse,
        begin=("-I", str(BRIDGE)),  # isolated: nothing in the worktree is imported
        resume=("-I", str(BRIDGE), "--load", "$session"),
        words=(),
        ways={permit: Way((permit.value,), kin.ways[permit].environment if kin else {}) for permit in Permit},
        prompt=("--", *choice.command, *(choice.arguments or ())),
        model=(),
        environment=kin.environment if kin else speaker.environment,
        settings=kin.settings if kin else (),
        keys=kin.keys if kin else speaker.keys,
        passing=kin.passing if kin else speaker.passing,
        credentials=kin.credentials if kin else (),
        holds_back=False,  # only what an agent asks for can be refused, and some never ask
        writable=kin.writable if kin else (),
        brings_own_sandbox=kin.brings_own_sandbox if kin else False,
        endpoints=kin.endpoints if kin else MODEL_HOSTS,
    )


def parse(printed: Printed, now: datetime) -> Parsed:
    found = list(events(printed.out))
    reply = next((dug(one, "data") for one in reversed(found) if one.get("kind") == "prompt"), None)
    error = next((str(one.get("data")) for one in reversed(found) if one.get("kind") == "error"), "")
    updates = [dug(one, "data") for one in found if one.get("kind") == "update"]
    session = next((str(one.get("data")) for one in found if one.get("kind") == "session"), None)
    parsed = Parsed(Ending.DONE, text=_text(updates), usage=_usage(reply, updates), session=session)
    trouble = error or STOPS.get(str(dug(reply, "stopReason")), "")
    if reply is None and not trouble and printed.code in {0, None}:
        trouble = "its output breaks off before the end of its turn"
    parsed = concluded(printed, now, parsed, trouble=trouble)
    denied = sorted({str(one.get("data")) for one in found if one.get("kind") == "denied"})
    if denied and parsed.ending is Ending.DONE:
        return parsed._replace(why=f"it was not allowed to: {'; '.join(denied)}")
    return parsed


def _text(updates: list[Json]) -> str:
    """Return what the agent said; it comes in pieces, and whatever is between two begins another message."""
    texts = [""]
    for update in updates:
        kind = dug(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            texts[-1] += str(dug(update, "content", "text") or "")
        elif kind in {"tool_call", "tool_call_update"}:
            texts.append("")
    return joined(texts)


def _usage(reply: object, updates: list[Json]) -> Usage:
    """Return what was used, by whichever of the ways an agent tells it; some only tell of their last call."""
    usage, quota = dug(reply, "usage"), dug(reply, "_meta", "quota", "token_count")
    names = ("inputTokens", "cachedReadTokens", "cachedWriteTokens")
    into = sum(count(dug(usage, name)) for name in names) or count(dug(quota, "input_tokens"))
    out_of = count(dug(usage, "outputTokens")) or count(dug(quota, "output_tokens"))
    costs = [dug(update, "cost", "amount") for update in updates if dug(update, "cost", "currency") == "USD"]
    return reported(into, out_of, costs[-1] if costs else None)
