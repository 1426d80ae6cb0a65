"""A small real agent that speaks the Agent Client Protocol; its prompt is a JSON list of what to do."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema


class Obedient:
    """Does what its prompt says, and asks before it writes, unless told not to."""

    def __init__(self) -> None:
        self._client: Any = None
        self._cwd = Path()
        self._mode = "default"

    def on_connect(self, conn: Any) -> None:  # noqa: ANN401 - the protocol's
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:  # noqa: ANN401
        can = schema.AgentCapabilities(load_session=True)
        return schema.InitializeResponse(protocol_version=protocol_version, agent_capabilities=can)

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:  # noqa: ANN401
        self._cwd = Path(cwd)
        if "--locked" in sys.argv:
            raise acp.RequestError.auth_required()
        modes = [schema.SessionMode(id=name, name=name) for name in ("default", "plan")]
        state = schema.SessionModeState(current_mode_id="default", available_modes=modes)
        return schema.NewSessionResponse(session_id="s-1", modes=state if "--modes" in sys.argv else None)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:  # noqa: ANN401
        self._cwd = Path(cwd)
        await self.say(session_id, "what was said before")
        return schema.LoadSessionResponse()

    async def set_session_mode(self, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:  # noqa: ANN401
        self._mode = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:  # noqa: ANN401
        for verb, what in json.loads(prompt[0].text):
            await getattr(self, verb)(session_id, what)
        usage = schema.Usage(input_tokens=1200, output_tokens=34, total_tokens=1234)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)

    async def say(self, session: str, text: str) -> None:
        for piece in (text[:3], text[3:]):
            await self._client.session_update(
                session_id=session, update=acp.update_agent_message_text(piece.replace("MODE", self._mode))
            )

    async def write(self, session: str, name: str) -> None:
        call = schema.ToolCallUpdate(tool_call_id="c-1", kind="edit", title=f"write {name}")
        kinds: tuple[Any, ...] = ("allow_always", "allow_once", "reject_once")
        options = [schema.PermissionOption(option_id=kind, kind=kind, name=kind) for kind in kinds]
        reply = await self._client.request_permission(session_id=session, tool_call=call, options=options)
        chosen = getattr(reply.outcome, "option_id", reply.outcome.outcome)
        await self._client.session_update(
            session_id=session, update=acp.start_tool_call("c-1", f"write {name}: {chosen}", kind="edit")
        )
        if chosen == "allow_once":
            (self._cwd / name).write_text("written\n")

    async def hang(self, _session: str, _what: str) -> None:
        await asyncio.Event().wait()

    async def linger(self, _session: str, name: str) -> None:
        """Leave a process behind that ignores its end."""
        script = f"trap '' TERM; echo $$ > {name}; while :; do sleep 1; done"
        await asyncio.create_subprocess_exec("sh", "-c", script, cwd=self._cwd, start_new_session=True)
        while not (self._cwd / name).exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Obedient()))  # type: ignore[arg-type]  # the rest of the protocol is not used
