"""What people tell a run: the `config` of the board, `liza.yaml` in the same shape, and the switches."""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from liza.domain.experiment_config import ExperimentConfig
from liza.domain.record import Id, NonEmptyStr, Record, default_record
from liza.domain.shared_refs import INTEGRATION_BRANCH
from liza.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


# Agent settings by override key: each field comes from the first key of a chain that sets it.
#
# Keys are a role, a hat, a step, a phase, `<PHASE>_<ROLE>` or `<PHASE>_<ROLE>_<NAME>`, in any case.

T = TypeVar("T")

DEFAULT: Final = "default"
BACKEND_FIELDS: Final = frozenset({"command", "arguments", "model", "passing", "own_home"})  # to one backend
ALIASES: Final = {"REVIEWER": "REVIEW", "ASSESSOR": "COMPLEXITY", "COMPLEXITY_ASSESSOR": "COMPLEXITY"}
JUDGING_ROLE: Final = "reviewer"  # that of whoever judges, under any hat
_JUDGING_HATS: Final = frozenset({"JUDGE", "ASSESSOR", "COMPLEXITY_ASSESSOR"})


def check_overrides(overrides: dict[str, T]) -> dict[str, T]:
    """Return *overrides*, unless a key is there twice; whether it is used, the workflow says."""
    seen: dict[str, str] = {}
    for key in overrides:
        word = key.upper()
        if word in seen:
            raise ValueError(f"{key!r} and {seen[word]!r} are the same key; keep one")
        seen[word] = key
    return overrides


def suggest_key(key: str, usable: Iterable[str]) -> str:
    """Return which of the keys that are *usable* to write instead of *key*."""
    from difflib import get_close_matches  # noqa: PLC0415 - only who mistyped a key needs it

    known = [one.lower() for one in usable]
    near = get_close_matches(key.lower(), known, n=1)
    all_of_them = ", ".join(known)
    return f"did you mean {near[0]!r}? Known: {all_of_them}" if near else f"use one of {all_of_them}"


class RouteKey(NamedTuple):
    """Who is asked: a role in a step, perhaps in a phase, under a hat, as one of several by name."""

    role: str
    step: str
    phase: str | None = None
    hat: str | None = None
    name: str | None = None


def override_keys(who: RouteKey) -> list[str]:
    """Return the keys that count for *who*, most particular first, without the default.

    Under a hat neither the step nor the role counts: a judge is asked in a review, and is no reviewer. A
    phase by itself stands for whoever works in it, not for whoever judges.
    """
    acting = (who.hat or who.role).upper()
    words = [acting, *([ALIASES[acting]] if acting in ALIASES else [])]
    phase = (who.phase or "").upper()
    names = [f"{phase}_{word}_{who.name.upper()}" for word in words] if phase and who.name else []
    phased = [f"{phase}_{word}" for word in words] if phase else []
    works = who.role != JUDGING_ROLE and acting not in _JUDGING_HATS
    step = [] if who.hat else [who.step.upper()]
    return list(dict.fromkeys([*names, *phased, *step, *words, *([phase] if phase and works else [])]))


class Route(NamedTuple):
    """The fields of a choice, and for each the key that it comes from."""

    fields: dict[str, Any]
    origin: dict[str, str]


def resolve_route(overrides: Mapping[str, Record], default: Record, keys: Iterable[str]) -> Route:
    """Take each field from the first of *keys* that sets it, else from *default*.

    What is meant for one backend is not inherited by another: below the key that names the backend, a key
    with another one gives nothing of it.
    """
    there = {key.upper(): (key, choice) for key, choice in overrides.items()}
    fields: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for key, choice in [*(there[key] for key in keys if key in there), (DEFAULT, default)]:
        found = choice.to_json()
        own = found.get("backend") or ("command" if "command" in found else None)
        strange = "backend" in fields and own not in {None, fields["backend"]}
        for name, value in found.items():
            if name not in fields and not (strange and name in BACKEND_FIELDS):
                fields[name], origin[name] = value, key
    return Route(fields, origin)


Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
# No infinities: JSON, and so the journal, cannot say them.
Minutes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ChannelOption = bool | int | str | tuple[str, ...]


class Workers(Record):
    planner: AtLeastOne = 1
    coder: AtLeastOne = 2
    reviewer: AtLeastOne = 1


class Needs(Record):
    """The labels that a host must have to work in a role."""

    planner: tuple[Id, ...] = ()
    coder: tuple[Id, ...] = ()
    reviewer: tuple[Id, ...] = ()


class AgentChoice(Record):
    """Which agent plays a role; a field that is absent falls back to the next key of the chain."""

    backend: NonEmptyStr | None = None
    command: tuple[NonEmptyStr, ...] | None = None
    model: NonEmptyStr | None = None
    effort: NonEmptyStr | None = None
    # Who sells the model, for agents that share its limits; else the backend's name.
    provider: Id | None = None
    arguments: tuple[NonEmptyStr, ...] | None = None  # further words for a coding program
    passing: tuple[NonEmptyStr, ...] | None = None  # names of variables that it may see beside the usual ones
    own_home: bool | None = None  # it works in your home, with your settings, hooks and servers


class Agents(Record):
    default: AgentChoice = default_record(AgentChoice)
    overrides: Annotated[dict[str, AgentChoice], AfterValidator(check_overrides)] = Field(
        default_factory=dict
    )
    # Stands in where the chosen agent cannot be started, its provider's quota is used up or its key refused;
    # a field that is absent is the chosen agent's.
    fallback: AgentChoice | None = None
    prefer_different_reviewer: bool = False  # a reviewer of another provider than the coder's


class Gates(Record):
    """The project's own commands; an absent one is not run."""

    setup: NonEmptyStr | None = None
    test: NonEmptyStr | None = None
    lint: NonEmptyStr | None = None
    teardown: NonEmptyStr | None = None


class Limits(Record):
    max_coder_iterations: AtLeastOne = 10
    max_review_cycles: AtLeastOne = 5
    max_rejections: AtLeastOne = 3
    max_same_reason: AtLeastOne = 2
    assumption_budget: Count = 5
    max_plan_tasks: AtLeastOne = 50
    # Submitted and approved tasks; while so many wait for their review or merge, no new task is begun.
    max_unmerged: AtLeastOne = 12
    agent_minutes: Minutes = 30
    silence_minutes: Minutes = 10
    lease_seconds: Seconds = 60
    finished_on_board: Count = 100
    kept_worktrees: Count = 4  # of finished tasks, to look at; the oldest go first
    free_disk_mb: Count = 500
    attempts_without_progress: AtLeastOne = 6
    checkpoint_hours: Hours = 8


class Budget(Record):
    run_usd: Usd = 20
    task_usd: Usd = 5


def _check_webhook(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{address!r} is no web address; give one that begins with `https://` or `http://`")
    return address


class Notify(Record):
    """Who else is told what is in alerts.log; the secret itself is never on the board."""

    command: tuple[NonEmptyStr, ...] | None = None
    webhook: Annotated[NonEmptyStr, AfterValidator(_check_webhook)] | None = None
    secret_env: NonEmptyStr = "LIZA_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    # Further ones by name, that packages add, each with what it is told.
    channels: dict[NonEmptyStr, dict[NonEmptyStr, ChannelOption]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _refuse_idle_secret(self) -> Self:
        if self.webhook is None and self.secret_env != type(self).model_fields["secret_env"].default:
            raise ValueError("secret_env does nothing without a webhook; name one, or leave it out")
        return self


class SprintLength(Record):
    """How long a sprint is; with neither limit the goal is one sprint."""

    hours: Hours | None = None
    tasks: AtLeastOne | None = None


class PlanApproval(StrEnum):
    """Who says yes to a plan before anybody works on it."""

    NONE = "none"
    REVIEWER = "reviewer"  # an agent; people, where it sends the plan back too often
    HUMAN = "human"


class PlanConfig(Record):
    """What becomes of a planner's tasks before coders may claim them."""

    approval: PlanApproval = PlanApproval.NONE


class SandboxMode(StrEnum):
    """Whether agents and gates run in a sandbox: where possible, always, or never."""

    AUTO = "auto"
    REQUIRE = "require"
    OFF = "off"


class Network(StrEnum):
    """What a sandboxed agent can reach: everything, only hosts that serve models, or nothing."""

    FULL = "full"
    MODEL_ONLY = "model-only"
    NONE = "none"


def _parse_mode(value: object) -> object:
    """Return `off` for a plain no, or in other case: it has but one meaning."""
    return SandboxMode.OFF if str(value).lower() in {"off", "false"} else value


def _check_host(text: str) -> str:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found["port"] or 443) <= LAST_PORT:
        raise ValueError(
            f"{text!r} is no host; give one as `api.example.org`, `*.example.org` or `localhost:8080`"
        )
    return text


LAST_PORT: Final = 65535
_HOST: Final = re.compile(r"(?:[\w*.-]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>\d{1,5}))?")
Host = Annotated[str, AfterValidator(_check_host)]


class SandboxConfig(Record):
    """The sandbox around agents and around gates, which run code that agents wrote."""

    mode: Annotated[SandboxMode, BeforeValidator(_parse_mode)] = SandboxMode.AUTO
    network: Network = Network.FULL
    memory_mb: AtLeastOne | None = 8192  # that one process may write to; what is only reserved is free
    processes: AtLeastOne | None = 1024  # at once, threads included
    file_mb: AtLeastOne | None = 4096  # of one file
    show: tuple[
        NonEmptyStr, ...
    ] = ()  # what an agent may read of your home or your checkout beside its worktree
    write: tuple[
        NonEmptyStr, ...
    ] = ()  # what it may change beside its worktree, such as a cache of downloads
    hosts: tuple[Host, ...] = ()  # reached under `model-only` beside those of the well-known providers

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse what would do nothing: whoever set it believes that it does."""
        if self.mode is SandboxMode.OFF and (idle := [name for name in _NEEDS_SANDBOX if self._is_set(name)]):
            message = f"{', '.join(idle)} {'does' if len(idle) == 1 else 'do'} nothing while mode is `off`"
            raise ValueError(f"{message}; take it out, or set mode to `require`")
        if self.hosts and self.network is not Network.MODEL_ONLY:
            raise ValueError(f"hosts do nothing while network is `{self.network}`; set it to `model-only`")
        return self

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


_NEEDS_SANDBOX: Final = (
    "network",
    "memory_mb",
    "file_mb",
    "show",
    "write",
    "hosts",
)  # what only a sandbox can keep


class AssistantConfig(Record):
    """What an assistant may do that steers a run in your name (`liza mcp`)."""

    approvals: bool = True  # it may accept and reject work, and allow money


class WorktreeConfig(Record):
    """What a worktree of an agent's and a tree under test have beside what git has."""

    copied: tuple[NonEmptyStr, ...] = Field(default=(), alias="copy")  # ignored files of your checkout


def _require_one(forges: dict[str, dict[str, ChannelOption]]) -> dict[str, dict[str, ChannelOption]]:
    if len(forges) > 1:
        raise ValueError(f"{' and '.join(forges)} are two forges; keep one")
    return forges


def _parse_issues(value: object) -> object:
    """Return a selection of issues as it is said, once it is known to be one."""
    from liza.domain.issues import parse_selection  # noqa: PLC0415 - few boards have any

    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        try:
            parse_selection(text)
        except UsageError as error:
            raise ValueError(str(error)) from error
    return text


def _refuse_password(remote: str) -> str:
    if _WITH_PASSWORD.match(remote):
        raise ValueError("it holds a password, which agents could read; use ssh or a credential helper")
    return remote


_WITH_PASSWORD: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/@]*:[^/@]*@")


class Config(Record):
    spec: NonEmptyStr | None = None
    workflow: NonEmptyStr = "liza"
    integration_branch: NonEmptyStr = INTEGRATION_BRANCH
    # The bare repository through which hosts exchange work: a URL, a path, or the name of a git remote.
    remote: Annotated[NonEmptyStr, AfterValidator(_refuse_password)] | None = None
    # A directory that all machines reach: each run is copied there when it ends, and `liza logs` finds it.
    transcripts: NonEmptyStr | None = None
    workers: Workers = default_record(Workers)
    needs: Needs = default_record(Needs)
    agents: Agents = default_record(Agents)
    gates: Gates = default_record(Gates)
    worktree: WorktreeConfig = default_record(WorktreeConfig)
    limits: Limits = default_record(Limits)
    budget: Budget = default_record(Budget)
    notify: Notify = default_record(Notify)
    sprint: SprintLength = default_record(SprintLength)
    plan: PlanConfig = default_record(PlanConfig)
    sandbox: SandboxConfig = default_record(SandboxConfig)
    assistant: AssistantConfig = default_record(AssistantConfig)
    experiment: ExperimentConfig = default_record(ExperimentConfig)
    # Where issues come from and pull requests go: the name of a forge, and what it is told.
    forge: Annotated[dict[NonEmptyStr, dict[NonEmptyStr, ChannelOption]], AfterValidator(_require_one)] = (
        Field(default_factory=dict)
    )
    issues: Annotated[NonEmptyStr, BeforeValidator(_parse_issues)] | None = None  # `1-5,8` or `label:agent`


# The files by which people stop a run: ABORT beats PAUSE beats CHECKPOINT.


class Switch(IntEnum):
    """A stop, by rank; the name of each but NORMAL is the name of its file in `.liza/`."""

    NORMAL = 0
    CHECKPOINT = 1
    PAUSE = 2
    ABORT = 3


SWITCH_MEANING: Final[dict[Switch, str]] = {
    Switch.NORMAL: "no file is there; everybody works",
    Switch.CHECKPOINT: "everybody ends their turn, then a summary is in `checkpoints/`, and all wait",
    Switch.PAUSE: "nothing new starts; work goes on where it was when the file is removed",
    Switch.ABORT: "every agent ends, work in progress is saved, workers exit",
}
BREAKER_PREFIX: Final = "circuit breaker: "  # what the file of a switch starts with that the breaker threw
WORKER_PREFIX: Final = "by Liza: "  # the same of a worker, for something that only people can mend
SWITCH_FILES: Final = tuple(switch.name for switch in reversed(Switch) if switch is not Switch.NORMAL)


def strongest_switch(files: Collection[str]) -> Switch:
    """Return the strongest switch among *files*."""
    return max((Switch[name] for name in SWITCH_FILES if name in files), default=Switch.NORMAL)


def worker_pause(thrown: Mapping[str, str]) -> str | None:
    """Return why a worker threw PAUSE; None where nobody did, or a person, who knows of it."""
    said = thrown.get(Switch.PAUSE.name, "")
    return said.removeprefix(WORKER_PREFIX) if said.startswith(WORKER_PREFIX) else None


def resume_command(said: str) -> str:
    """Return the command that resumes the agents, given the text of a switch file."""
    if not said.startswith(BREAKER_PREFIX):
        return "liza resume"
    _, _, command = said.rstrip("`").rpartition("`")
    return command if command.startswith("liza ") else "liza breaker"


def switch_cause(said: str) -> str:
    """Return why a switch was thrown, without the command that the breaker names behind it."""
    cause, _, command = said.rpartition("; ")
    return cause if cause and said.startswith(BREAKER_PREFIX) and command.endswith("`") else said
