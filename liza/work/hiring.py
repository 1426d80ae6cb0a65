"""Which agent plays a step: what the settings say, field by field, and the backend that knows how."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.agents.cage import UNGUARDED
from liza.agents.protocol import Ending, Reply
from liza.config import AgentChoice
from liza.errors import UsageError
from liza.record import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from liza.agents.cage import Warden
    from liza.agents.protocol import Agent, Brief, Stop
    from liza.agents.replay import Apply
    from liza.config import Agents
    from liza.model import Role
    from liza.replies import Step

LITELLM: Final = "litellm"
REPLAY: Final = "replay"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")  # for an id


def chosen(agents: Agents, role: Role, step: Step) -> AgentChoice:
    """Return what the settings say about *step* of *role*; a field that is absent falls back."""
    chain = [agents.overrides.get(step), agents.overrides.get(role), agents.default]
    fields: dict[str, object] = {}
    for choice in filter(None, chain):
        fields = choice.plain() | fields
    return AgentChoice.model_validate(fields)


def provider_of(choice: AgentChoice) -> str:
    """Return who sells the model of *choice*: agents of one provider share its limits."""
    backend = backend_of(choice) or "nobody"
    if choice.provider:
        return choice.provider
    if backend == LITELLM and choice.model:
        return _UNFIT.sub("-", choice.model.partition("/")[0]) if "/" in choice.model else backend
    return backend


def backend_of(choice: AgentChoice) -> str | None:
    return choice.backend or ("command" if choice.command else None)


class Nobody:
    """An agent that cannot be hired says so in every run, as a program that cannot be started does."""

    def __init__(self, why: str) -> None:
        self._why = why

    def run(self, _brief: Brief, _stop: Stop) -> Reply:
        return Reply(ending=Ending.NOT_STARTED, why=self._why, began=utc_now())


@cache
def hired(choice: AgentChoice, root: Path, apply: Apply, warden: Warden = UNGUARDED) -> Agent:
    """Return the agent of *choice*; the same one for as long as the choice is the same."""
    backend = backend_of(choice)
    if backend is None:
        return Nobody("no agent is set up; say in agents.default.command of the settings what to run")
    make = _BACKENDS.get(backend)
    if make is None:
        return Nobody(f"there is no backend {backend!r}; known: {', '.join(_BACKENDS)}")
    try:
        return make(choice, root, apply, warden)
    except UsageError as error:
        return Nobody(str(error))


def _command(choice: AgentChoice, _root: Path, _apply: Apply, warden: Warden) -> Agent:
    from liza.agents.command import Command  # noqa: PLC0415 - a worker loads only the backend that it needs

    return Command(choice.command or (), warden=warden)


def _replay(choice: AgentChoice, root: Path, apply: Apply, _warden: Warden) -> Agent:
    """Play a recording: the command is its path and, if wanted, its pace (0: at once)."""
    from liza.agents.recording import loaded  # noqa: PLC0415 - as above
    from liza.agents.replay import Replay  # noqa: PLC0415 - as above

    match choice.command or ():
        case (path,):
            return Replay(loaded(root / path), apply)
        case (path, pace) if pace.replace(".", "", 1).isdecimal():
            return Replay(loaded(root / path), apply, pace=float(pace))
    raise UsageError("the replay backend needs a command of a path and perhaps a pace, such as [runs, 0]")


def _litellm(choice: AgentChoice, _root: Path, _apply: Apply, _warden: Warden) -> Agent:
    from liza.agents.llm.backend import Llm  # noqa: PLC0415 - as above

    if not choice.model:
        raise UsageError("the litellm backend needs a model, such as agents.default.model: openai/gpt-5-mini")
    return Llm(choice.model, effort=choice.effort)


_BACKENDS: Final[dict[str, Callable[[AgentChoice, Path, Apply, Warden], Agent]]] = {
    "command": _command,
    REPLAY: _replay,
    LITELLM: _litellm,
}
