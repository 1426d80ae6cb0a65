"""Which agent plays a step: what the settings say, field by field, and the backend that knows how."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents import detect as programs
from liza.agents.clis.table import CLIS
from liza.agents.detect import provider
from liza.agents.protocol import STARTING, Reply
from liza.domain.answers import Step
from liza.domain.budget import FIRST_GUESS, Run, Want, kind_of
from liza.domain.config import AgentChoice
from liza.domain.model import Role
from liza.domain.providers import is_worth_another
from liza.domain.record import utc_now
from liza.domain.routing import Who, chain, routed
from liza.errors import UsageError
from liza.system.run_control import Ending
from liza.system.sandbox.bubblewrap import UNGUARDED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from liza.agents.detect import Available
    from liza.agents.protocol import Agent, Brief
    from liza.agents.replay import Apply
    from liza.domain.config import Agents
    from liza.domain.model import State
    from liza.system.run_control import Stop
    from liza.system.sandbox.bubblewrap import Warden

_SHUT_OUT: Final = {Ending.NOT_STARTED, Ending.AUTH, Ending.QUOTA}
FALLBACK: Final = "FALLBACK"

COMMAND: Final = "command"
LITELLM: Final = "litellm"
REPLAY: Final = "replay"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")  # for an id


class Hire(NamedTuple):
    """Who plays a step, and why."""

    choice: AgentChoice
    why: str
    warning: str = ""


def chosen(
    agents: Agents, role: Role, step: Step, *, available: Sequence[Available] = (), phase: str | None = None
) -> AgentChoice:
    """Return what the settings say about *step* of *role*; a field that is absent falls back."""
    return hire(agents, Who(role, step, phase), available).choice


def hire(agents: Agents, who: Who, available: Sequence[Available] = ()) -> Hire:
    """Return who plays, and why: by the settings, else the first that is *available*."""
    found = _settled(agents, who, available)
    if not agents.prefer_different_reviewer or who.role != Role.REVIEWER:
        return found
    coder = _settled(agents, Who(Role.CODER, Step.IMPLEMENT, who.phase), available)
    return _different(agents, found, provider(coder.choice), available)


def _settled(agents: Agents, who: Who, available: Sequence[Available]) -> Hire:
    fields, origin = routed(agents.overrides, agents.default, chain(who))
    choice = AgentChoice.model_validate(fields)
    if choice.backend or choice.command:
        return Hire(choice, f"agents.{_named(origin.get('backend') or origin['command'])}")
    if not available:
        return Hire(choice, "nothing is set up, and nothing was found")
    best, why = available[0]
    return Hire(AgentChoice.model_validate(best.plain() | fields), f"nothing is set up, and {why}")


def _named(key: str) -> str:
    return key if key == "default" else f"overrides.{key}"


def _different(agents: Agents, found: Hire, other: str | None, available: Sequence[Available]) -> Hire:
    """Return *found*, or somebody whose provider is not *other*, the coder's."""
    own = provider(found.choice)
    if own is not None and own != other:
        return found
    configured = [agents.default, *agents.overrides.values(), *([agents.fallback] if agents.fallback else [])]
    candidates = [(one, "it is configured") for one in configured if one.backend]
    candidates += [(one.choice, one.why) for one in available]
    for choice, why in candidates:
        if provider(choice) not in {None, other}:
            said = (
                f"agents.prefer_different_reviewer: the coder's provider is {other or 'not known'}, and {why}"
            )
            return Hire(choice, said)
    warning = f"the reviewer has the coder's provider ({other or 'not known'}): no other one was found"
    return found._replace(warning=warning)


def stand_in(agents: Agents, own: AgentChoice) -> AgentChoice | None:
    """Return who stands in for *own*: `agents.fallback`, and for each field that it leaves out, *own*'s.

    What is meant for one backend is not inherited by another, and never who sells the model.
    """
    if agents.fallback is None:
        return None
    named = agents.fallback.but(backend=backend_of(agents.fallback))
    rest = own.but(backend=backend_of(own), provider=None)
    fields = routed({FALLBACK: named}, rest, [FALLBACK]).fields
    return AgentChoice.model_validate(fields)


def calls_for_another(reply: Reply) -> bool:
    """Return whether another agent may do better: this one could not work at all, or may do so no more."""
    if reply.ending in _SHUT_OUT:
        return True
    # A negative code is a signal: somebody ended it, which says nothing about it.
    ended_itself = reply.code is not None and reply.code >= 0
    soon = reply.seconds < STARTING and not reply.usage.tokens_out and not reply.text.strip()
    return reply.ending is Ending.CRASHED and ended_itself and soon


def provider_of(choice: AgentChoice) -> str:
    """Return who sells the model of *choice*: agents of one provider share its limits."""
    backend = backend_of(choice) or "nobody"
    if choice.provider:
        return choice.provider
    if backend == LITELLM and choice.model:
        return _UNFIT.sub("-", choice.model.partition("/")[0]) if "/" in choice.model else backend
    return backend


class Asker(NamedTuple):
    """A worker that is about to begin a run."""

    role: Role
    name: str
    now: datetime


def playing(state: State, who: Asker, step: Step) -> AgentChoice:
    """Return who plays *step* now: as the settings say, or who stands in while its provider is shut."""
    agents = state.config.agents
    own = chosen(agents, who.role, step, available=programs.available())
    other = stand_in(agents, own)
    if other is None or not is_worth_another(state, provider_of(own), who.name, who.now):
        return own
    return own if is_worth_another(state, provider_of(other), who.name, who.now) else other


def run_of(
    state: State,
    who: Asker,
    step: Step,
    task: str | None,
    *later: Step,
    instead: AgentChoice | None = None,
) -> Run:
    """Return the run of *step* that *who* would begin; *later* are steps that follow in the same turn.

    *instead* is who plays the step, where that is settled.
    """
    first = step, instead or playing(state, who, step)
    others = [(one, playing(state, who, one)) for one in later]
    backend = backend_of(first[1]) or ""
    want = Want(
        who.name,
        task,
        _kind(*first),
        # What is only played back costs nothing that is not in the recording.
        guess=0.0 if backend == REPLAY else FIRST_GUESS,
        later=tuple(_kind(*other) for other in others),
        is_metered=backend != COMMAND,
    )
    needed = dict.fromkeys(provider_of(choice) for _, choice in (first, *others))
    return Run(want, provider_of(first[1]), tuple(needed), first[1])


def _kind(step: Step, choice: AgentChoice) -> str:
    return kind_of(step, choice.model or backend_of(choice) or "")


def backend_of(choice: AgentChoice) -> str | None:
    return choice.backend or (COMMAND if choice.command else None)


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
        return Nobody(
            "no agent is set up, and none was found on the PATH; "
            "say in agents.default.backend or agents.default.command of the settings what to run"
        )
    make = _BACKENDS.get(backend)
    if make is None:
        return Nobody(f"there is no backend {backend!r}; known: {', '.join(_BACKENDS)}")
    try:
        return make(choice, root, apply, warden)
    except UsageError as error:
        return Nobody(str(error))


def homes(root: Path) -> Path:
    """Return the folder in which the programs that work on *root* get homes of their own.

    Not below *root*, which agents work in, and not in the temporary directory, where codex does not run.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(root).encode(errors="surrogateescape")).hexdigest()[:12]
    return cache_home / "liza" / "homes" / name


def _command(choice: AgentChoice, root: Path, _apply: Apply, warden: Warden) -> Agent:
    from liza.agents.command import Command  # noqa: PLC0415 - a worker loads only the backend that it needs

    return Command(_words(choice, root) or (), passing=choice.passing or (), warden=warden)


def _words(choice: AgentChoice, root: Path) -> tuple[str, ...] | None:
    """Return the command of *choice*, with the files of the repository *root* that it names."""
    from liza.agents.command import missing_file, resolve  # noqa: PLC0415 - as above

    if choice.command is None:
        return None
    if word := missing_file(choice.command, root):
        raise UsageError(f"the agent's command names {word!r}, and {root} has no such file; mend the command")
    return resolve(choice.command, root)


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


def _litellm(choice: AgentChoice, _root: Path, _apply: Apply, warden: Warden) -> Agent:
    from liza.agents.llm.backend import Llm  # noqa: PLC0415 - as above

    if not choice.model:
        raise UsageError("the litellm backend needs a model, such as agents.default.model: openai/gpt-5-mini")
    return Llm(choice.model, effort=choice.effort, warden=warden)


def _cli(name: str, choice: AgentChoice, root: Path, _apply: Apply, warden: Warden) -> Agent:
    from liza.agents.clis.agent import CliAgent  # noqa: PLC0415 - as above

    return CliAgent(CLIS[name], choice.but(command=_words(choice, root)), homes(root), warden=warden)


def _acp(choice: AgentChoice, root: Path, _apply: Apply, warden: Warden) -> Agent:
    from liza.agents.acp import row  # noqa: PLC0415 - as above
    from liza.agents.clis.agent import CliAgent  # noqa: PLC0415 - as above

    cli = row(choice.but(command=_words(choice, root)))
    return CliAgent(cli, choice.but(command=None, arguments=None), homes(root), warden=warden)


_BACKENDS: Final[dict[str, Callable[[AgentChoice, Path, Apply, Warden], Agent]]] = {
    COMMAND: _command,
    REPLAY: _replay,
    LITELLM: _litellm,
    **{name: partial(_cli, name) for name in CLIS},
    "acp": _acp,
}
