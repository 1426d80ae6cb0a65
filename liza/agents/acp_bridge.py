"""The editor's part of the Agent Client Protocol: `acp_bridge.py [--load SESSION] PERMIT -- COMMAND…`.

The prompt comes on stdin; what happens goes to stdout as lines of JSON. It is run by its path and imports
nothing of Liza, so that it runs isolated from the worktree in which it stands.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

NONE, READ = "none", "read"
READ_ONLY_KINDS: Final = {"read", "search", "think", "fetch"}  # kinds of calls that change nothing
READ_MODES: Final = ("plan", "read-only", "readonly", "ask")  # ids of modes in which an agent only reads
LONGEST_LINE: Final = 64 << 20  # bytes of one message; a diff of a large file is one


def emit(kind: str, data: object) -> None:
    print(json.dumps({"kind": kind, "data": data}), flush=True)  # noqa: T201 - its output is its purpose


def to_json(value: Any) -> object:  # noqa: ANN401 - any message of the protocol
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class AcpClient:
    """The client side of the protocol: it answers every request at once and grants permissions only once."""

    def __init__(self, permit: str) -> None:
        self._permit = permit
        self.is_listening = True

    def on_connect(self, _connection: object) -> None:
        """Do nothing: the agent has nothing to be told."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ANN401, ARG002
        if self.is_listening:
            emit("update", to_json(update))

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002 - the protocol's
        tool_call: ToolCallUpdate,
        options: Sequence[PermissionOption],
        **_: Any,  # noqa: ANN401
    ) -> RequestPermissionResponse:
        from acp import schema  # noqa: PLC0415 - an extra, which is imported only where it is used

        allowed = self._permit != NONE and (self._permit != READ or tool_call.kind in READ_ONLY_KINDS)
        if not allowed:
            emit("denied", tool_call.title or tool_call.kind or "an unnamed call")
        # Once: what is allowed for ever changes the agent's mode for the rest of the session.
        wanted = "allow_once" if allowed else "reject_once"
        option = next((option for option in options if option.kind == wanted), None)
        if option is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)


def read_mode(session: Any) -> str | None:  # noqa: ANN401 - the protocol's answer
    """Return the mode of *session* in which its agent only reads, if it has one."""
    modes = session.modes.available_modes if session and session.modes else ()
    return next((mode.id for known in READ_MODES for mode in modes if mode.id.casefold() == known), None)


async def begin_session(connection: Any, editor: Any, here: str, load: str | None) -> Any:  # noqa: ANN401
    """Start a session, or load the session *load* without reporting its replayed history."""
    if load is None:
        session = await connection.new_session(cwd=here, mcp_servers=[])
        emit("session", session.session_id)
        return session
    editor.is_listening = False
    session = await connection.load_session(cwd=here, mcp_servers=[], session_id=load)
    editor.is_listening = True
    emit("session", load)
    return session


async def converse(permit: str, command: Sequence[str], prompt: str, load: str | None = None) -> None:
    import acp  # noqa: PLC0415 - an extra, which is imported only where it is used
    from acp import schema  # noqa: PLC0415

    here = os.getcwd()  # noqa: PTH109 - a string is what the protocol wants
    editor: Any = AcpClient(permit)
    async with acp.spawn_agent_process(
        editor,
        *command,
        env=dict(os.environ),
        cwd=here,
        transport_kwargs={"limit": LONGEST_LINE, "stderr": None},
    ) as (connection, _process):
        # It has its own hands: files and terminals of ours would only be a second way in.
        hands = schema.FileSystemCapabilities(read_text_file=False, write_text_file=False)
        await connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=hands, terminal=False),
        )
        session = await begin_session(connection, editor, here, load)
        name = load or session.session_id
        if permit in {NONE, READ} and (mode := read_mode(session)):
            await connection.set_session_mode(session_id=name, mode_id=mode)
        reply = await connection.prompt(session_id=name, prompt=[acp.text_block(prompt)])
        emit("prompt", to_json(reply))
        # Not the polite end, for which some agents take longer than for their work: whoever started us
        # ends all that is left.
        sys.stdout.flush()
        os._exit(0)


def main(words: Sequence[str]) -> int:
    load, words = (words[1], words[2:]) if words[0] == "--load" else (None, words)
    permit, _, *command = words
    try:
        asyncio.run(converse(permit, command, sys.stdin.read(), load))
    except ImportError as error:
        emit("error", f"the protocol's package is missing ({error}); `pip install 'liza[acp]'` brings it")
    except Exception as error:  # noqa: BLE001 - whatever the agent did, Liza is told in one line
        emit("error", f"{type(error).__name__}: {error} {getattr(error, 'data', None) or ''}".strip())
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
