"""Selects the agent of a step: merges the settings field by field and creates the backend."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents import detect as programs
from liza.agents.clis.spec import Effort
from liza.agents.clis.table import CLIS
from liza.agents.detect import known_provider
from liza.agents.protocol import STARTING, Reply
from liza.domain.answers import Step
from liza.domain.budget import DEFAULT_RUN_USD, AdmissionRequest, RunRequest, cost_kind, should_use_fallback
from liza.domain.config import AgentChoice, RouteKey, override_keys, resolve_route
from liza.domain.model import Role
from liza.domain.record import utc_now
from liza.errors import UsageError
from liza.system.plugins import Registry
from liza.system.run_control import RunEnding
from liza.system.sandbox.bubblewrap import UNSANDBOXED
from liza.workflow.document import maker_route, route_at, workflow_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liza.agents.detect import AvailableAgent
    from liza.agents.protocol import Agent, Brief
    from liza.agents.replay import Apply
    from liza.domain.config import Agents
    from liza.domain.model import State
    from liza.system.run_control import RunControl
    from liza.system.sandbox.bubblewrap import Sandbox

_UNUSABLE_ENDINGS: Final = {RunEnding.NOT_STARTED, RunEnding.AUTH, RunEnding.QUOTA}
FALLBACK: Final = "FALLBACK"
ANY_CODER: Final = RouteKey(Role.CODER, Step.IMPLEMENT)

COMMAND: Final = "command"
LITELLM: Final = "litellm"
REPLAY: Final = "replay"
ACP: Final = "acp"
EFFORT: Final = "effort"
# Fields that every backend uses: by the model's name, what it reports is priced.
_COMMON_FIELDS: Final = frozenset({"backend", "model", "provider"})
_PROGRAM_FIELDS: Final = frozenset({"command", "arguments", "passing", "own_home"})
# The further fields that each backend uses; one that a package adds may use any.
USED_FIELDS: Final[dict[str, frozenset[str]]] = {
    COMMAND: frozenset({"command", "passing"}),
    REPLAY: frozenset({"command"}),
    LITELLM: frozenset({EFFORT}),
    ACP: _PROGRAM_FIELDS,
    **{name: _PROGRAM_FIELDS | ({EFFORT} if cli.efforts else set()) for name, cli in CLIS.items()},
}
REQUIRED_FIELD: Final = {COMMAND: "command", REPLAY: "command", LITELLM: "model", ACP: "command"}
_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9-]+")  # for an id


class Selection(NamedTuple):
    """Who plays a step, and why."""

    choice: AgentChoice
    why: str
    warning: str = ""


def configured_choice(agents: Agents, role: Role, step: Step) -> AgentChoice:
    """Return what the settings say about *step* of *role*; a field that is absent falls back."""
    return select_agent(agents, RouteKey(role, step)).choice


def select_agent(
    agents: Agents,
    who: RouteKey,
    available: Sequence[AvailableAgent] = (),
    maker: RouteKey = ANY_CODER,
) -> Selection:
    """Return who plays, and why: by the settings, else the first that is *available*.

    *maker* is who made what a reviewer is to judge.
    """
    found = _configured(agents, who, available)
    if not agents.prefer_different_reviewer or who.role != Role.REVIEWER:
        return found
    coder = _configured(agents, maker, available)
    return _with_other_provider(agents, found, known_provider(coder.choice), available)


def _configured(agents: Agents, who: RouteKey, available: Sequence[AvailableAgent]) -> Selection:
    fields, origin = resolve_route(agents.overrides, agents.default, override_keys(who))
    choice = AgentChoice.model_validate(fields)
    if choice.backend or choice.command:
        return Selection(choice, f"agents.{_settings_path(origin.get('backend') or origin['command'])}")
    if not available:
        return Selection(choice, "nothing is set up, and nothing was found")
    best, why = available[0]
    return Selection(AgentChoice.model_validate(best.to_json() | fields), f"nothing is set up, and {why}")


def _settings_path(key: str) -> str:
    return key if key == "default" else f"overrides.{key}"


def _with_other_provider(
    agents: Agents, found: Selection, other: str | None, available: Sequence[AvailableAgent]
) -> Selection:
    """Return *found*, or somebody whose provider is not *other*, the coder's."""
    own = known_provider(found.choice)
    if own is not None and own != other:
        return found
    configured = [agents.default, *agents.overrides.values(), *([agents.fallback] if agents.fallback else [])]
    candidates = [(one, "it is configured") for one in configured if one.backend]
    candidates += [(one.choice, one.why) for one in available]
    for choice, why in candidates:
        if known_provider(choice) not in {None, other}:
            said = (
                f"agents.prefer_different_reviewer: the coder's provider is {other or 'not known'}, and {why}"
            )
            return Selection(choice, said)
    warning = f"the reviewer has the coder's provider ({other or 'not known'}): no other one was found"
    return found._replace(warning=warning)


def fallback_of(agents: Agents, own: AgentChoice) -> AgentChoice | None:
    """Return the fallback for *own*: `agents.fallback`, with the fields that it leaves out taken from *own*.

    What is meant for one backend is not inherited by another, and the provider never is.
    """
    if agents.fallback is None:
        return None
    named = agents.fallback.replace(backend=backend_of(agents.fallback))
    rest = own.replace(backend=backend_of(own), provider=None)
    fields = resolve_route({FALLBACK: named}, rest, [FALLBACK]).fields
    return AgentChoice.model_validate(fields)


def may_fall_back(reply: Reply) -> bool:
    """Return whether another agent may do better: this one could not work at all, or may do so no more."""
    if reply.ending in _UNUSABLE_ENDINGS:
        return True
    # A negative code is a signal: somebody ended it, which says nothing about it.
    ended_itself = reply.code is not None and reply.code >= 0
    soon = reply.seconds < STARTING and not reply.usage.tokens_out and not reply.text.strip()
    return reply.ending is RunEnding.CRASHED and ended_itself and soon


def provider_of(choice: AgentChoice) -> str:
    """Return who sells the model of *choice*: agents of one provider share its limits."""
    backend = backend_of(choice) or "nobody"
    if choice.provider:
        return choice.provider
    if backend == LITELLM and choice.model:
        return _NOT_IN_ID.sub("-", choice.model.partition("/")[0]) if "/" in choice.model else backend
    return backend


class RunRequester(NamedTuple):
    """A worker that is about to begin a run."""

    role: Role
    name: str
    now: datetime
    hat: str | None = None  # the role of the workflow, where it is known already


def choice_for(state: State, who: RunRequester, step: Step, task: str | None = None) -> AgentChoice:
    """Return the agent of *step* now: the configured one, or its fallback while the provider is limited."""
    agents = state.config.agents
    own = _select_for(state, who, step, task).choice
    other = fallback_of(agents, own)
    if other is None or not should_use_fallback(state, provider_of(own), who.name, who.now):
        return own
    return own if should_use_fallback(state, provider_of(other), who.name, who.now) else other


def _select_for(state: State, who: RunRequester, step: Step, task: str | None) -> Selection:
    """Return whom the settings name for *who* in the phase of *task*, under the hat that is worn there."""
    agents, about = state.config.agents, state.tasks.get(task or "")
    route, maker = RouteKey(who.role, step), ANY_CODER
    if about is not None and agents.overrides:
        flow = workflow_on(state)
        route = route_at(flow, about.position, who.role, step, who.hat)
        maker = maker_route(flow, route)
    found = select_agent(agents, route, (), maker)
    if agents.prefer_different_reviewer or not (found.choice.backend or found.choice.command):
        # Only now is the machine searched for programs, which every step of every turn would pay for.
        return select_agent(agents, route, programs.available_agents(), maker)
    return found


def planned_run(
    state: State,
    who: RunRequester,
    step: Step,
    task: str | None,
    *later: Step,
    instead: AgentChoice | None = None,
) -> AdmissionRequest:
    """Return the run of *step* that *who* would begin; *later* are steps that follow in the same turn.

    *instead* is who plays the step, where that is settled.
    """
    first = step, instead or choice_for(state, who, step, task)
    others = [(one, choice_for(state, who, one, task)) for one in later]
    backend = backend_of(first[1]) or ""
    want = RunRequest(
        who.name,
        task,
        _run_kind(*first),
        # What is only played back costs nothing that is not in the recording.
        guess=0.0 if backend == REPLAY else DEFAULT_RUN_USD,
        later=tuple(_run_kind(*other) for other in others),
        is_metered=backend != COMMAND,
    )
    needed = dict.fromkeys(provider_of(choice) for _, choice in (first, *others))
    return AdmissionRequest(want, provider_of(first[1]), tuple(needed), first[1])


def _run_kind(step: Step, choice: AgentChoice) -> str:
    return cost_kind(step, choice.model or backend_of(choice) or "")


def backend_of(choice: AgentChoice) -> str | None:
    return choice.backend or (COMMAND if choice.command else None)


def settings_problem(agents: Agents) -> str | None:
    """Return the first field of *agents* that does nothing, or is missing, as a sentence; None if all act."""
    named = {f"overrides.{key}": choice for key, choice in agents.overrides.items()}
    entries = {"default": agents.default, **named}
    resolved = {path: _resolved_entry(agents, path) for path in entries}
    if agents.fallback is not None:
        entries["fallback"] = agents.fallback
        resolved["fallback"] = fallback_of(agents, agents.default) or agents.fallback
    backends = {path: backend_of(choice) for path, choice in resolved.items()}
    for path, choice in entries.items():
        backend = backends[path]
        if problem := _field_problem(choice, resolved[path], backend, set(backends.values())):
            return f"agents.{path}: {problem}"
    return None


def _resolved_entry(agents: Agents, path: str) -> AgentChoice:
    keys = [] if path == "default" else [path.removeprefix("overrides.").upper()]
    return AgentChoice.model_validate(resolve_route(agents.overrides, agents.default, keys).fields)


def _field_problem(
    own: AgentChoice, resolved: AgentChoice, backend: str | None, others: set[str | None]
) -> str | None:
    """Return what is wrong with the fields of one entry, whose *backend* is None where it is found later."""
    if backend not in USED_FIELDS:
        return None
    needed = REQUIRED_FIELD.get(backend)
    if needed and not getattr(resolved, needed):
        return f"the backend {backend} needs `{needed}`; add it"
    idle = [name for name in own.to_json() if name not in _COMMON_FIELDS | USED_FIELDS[backend]]
    # An effort is inherited by other backends, and need not be for this one.
    if EFFORT in idle and any(other not in USED_FIELDS or EFFORT in USED_FIELDS[other] for other in others):
        idle.remove(EFFORT)
    if idle:
        names, verb = " and ".join(f"`{name}`" for name in idle), "does" if len(idle) == 1 else "do"
        return f"{names} {verb} nothing with the backend {backend}; leave it out"
    if backend in CLIS and own.effort and own.effort.lower() not in set(Effort):
        return f"there is no effort {own.effort!r}; known: {', '.join(Effort)}"
    return None


def program_obstacle(choice: AgentChoice, root: Path) -> str | None:
    """Return why the program of *choice* could not be started in *root*; None for what is no program."""
    from liza.agents.clis.agent import program_of  # noqa: PLC0415 - a worker loads only the backend that it needs
    from liza.agents.command import start_obstacle  # noqa: PLC0415 - as above

    backend = backend_of(choice)
    try:
        if backend == COMMAND:
            argv = _resolved_command(choice, root) or ()
        elif backend in CLIS:
            argv = program_of(CLIS[backend], choice, os.environ)
        else:
            return None
    except UsageError as error:
        return str(error)
    return start_obstacle(argv, root, os.environ.get("PATH", os.defpath))


class UnavailableAgent:
    """Stands for an agent that cannot be created: every run ends as NOT_STARTED, with the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    def run(self, _brief: Brief, _stop: RunControl) -> Reply:
        return Reply(ending=RunEnding.NOT_STARTED, why=self._why, began=utc_now())


@cache
def agent_for(choice: AgentChoice, root: Path, apply: Apply, sandbox: Sandbox = UNSANDBOXED) -> Agent:
    """Return the agent of *choice*; cached, so equal choices share one agent."""
    backend = backend_of(choice)
    if backend is None:
        return UnavailableAgent(
            "no agent is set up, and none was found on the PATH; "
            "say in agents.default.backend or agents.default.command of the settings what to run"
        )
    try:
        return BACKENDS[backend](choice, root, apply, sandbox)
    except UsageError as error:
        return UnavailableAgent(str(error))


def private_homes(root: Path) -> Path:
    """Return the folder in which the programs that work on *root* get homes of their own.

    Not below *root*, which agents work in, and not in the temporary directory, where codex does not run.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(root).encode(errors="surrogateescape")).hexdigest()[:12]
    return cache_home / "liza" / "homes" / name


def _make_command_agent(choice: AgentChoice, root: Path, _apply: Apply, sandbox: Sandbox) -> Agent:
    from liza.agents.command import CommandAgent  # noqa: PLC0415 - a worker loads only the backend that it needs

    return CommandAgent(_resolved_command(choice, root) or (), passing=choice.passing or (), sandbox=sandbox)


def _resolved_command(choice: AgentChoice, root: Path) -> tuple[str, ...] | None:
    """Return the command of *choice*, with the files of the repository *root* that it names."""
    from liza.agents.command import missing_file, resolve_files  # noqa: PLC0415 - as above

    if choice.command is None:
        return None
    if word := missing_file(choice.command, root):
        raise UsageError(f"the agent's command names {word!r}, and {root} has no such file; mend the command")
    return resolve_files(choice.command, root)


def _make_replay_agent(choice: AgentChoice, root: Path, apply: Apply, _sandbox: Sandbox) -> Agent:
    """Play a recording: the command is its path and, if wanted, its pace (0: at once)."""
    from liza.agents.protocol import load_recording  # noqa: PLC0415 - as above
    from liza.agents.replay import ReplayAgent  # noqa: PLC0415 - as above

    match choice.command or ():
        case (path,):
            return ReplayAgent(load_recording(root / path), apply)
        case (path, pace) if pace.replace(".", "", 1).isdecimal():
            return ReplayAgent(load_recording(root / path), apply, pace=float(pace))
    raise UsageError("the replay backend needs a command of a path and perhaps a pace, such as [runs, 0]")


def _make_litellm_agent(choice: AgentChoice, _root: Path, _apply: Apply, sandbox: Sandbox) -> Agent:
    from liza.agents.llm.backend import LlmAgent  # noqa: PLC0415 - as above

    if not choice.model:
        raise UsageError("the litellm backend needs a model, such as agents.default.model: openai/gpt-5-mini")
    return LlmAgent(choice.model, effort=choice.effort, sandbox=sandbox)


def _make_cli_agent(name: str, choice: AgentChoice, root: Path, _apply: Apply, sandbox: Sandbox) -> Agent:
    from liza.agents.clis.agent import CliAgent  # noqa: PLC0415 - as above

    return CliAgent(
        CLIS[name],
        choice.replace(command=_resolved_command(choice, root)),
        private_homes(root),
        sandbox=sandbox,
    )


def _make_acp_agent(choice: AgentChoice, root: Path, _apply: Apply, sandbox: Sandbox) -> Agent:
    from liza.agents.acp import acp_cli  # noqa: PLC0415 - as above
    from liza.agents.clis.agent import CliAgent  # noqa: PLC0415 - as above

    cli = acp_cli(choice.replace(command=_resolved_command(choice, root)))
    return CliAgent(cli, choice.replace(command=None, arguments=None), private_homes(root), sandbox=sandbox)


MakeAgent = Callable[[AgentChoice, Path, "Apply", "Sandbox"], "Agent"]
# A package adds a backend as an entry point of the group `liza.agents` that makes an agent of a choice.
BACKENDS: Final[Registry[MakeAgent]] = Registry(
    "liza.agents",
    "backend",
    {
        COMMAND: _make_command_agent,
        REPLAY: _make_replay_agent,
        LITELLM: _make_litellm_agent,
        **{name: partial(_make_cli_agent, name) for name in CLIS},
        ACP: _make_acp_agent,
    },
    Callable,  # type: ignore[arg-type]  # isinstance knows it
)
