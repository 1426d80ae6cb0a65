"""The columns of the table of coding programs in `table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.agents.protocol import Usage
from liza.domain.answers import Step
from liza.system.run_control import RunEnding

Words = tuple[str, ...]
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Permission(StrEnum):
    """What an agent may do to its worktree."""

    NONE = "none"  # it only speaks
    READ = "read"
    WRITE = "write"


PERMISSION_BY_STEP: Final[dict[Step, Permission]] = {
    Step.PLAN: Permission.READ,
    Step.REPLAN: Permission.READ,
    Step.CHECKPOINT: Permission.READ,
    Step.IMPLEMENT: Permission.WRITE,
    Step.REVIEW: Permission.READ,
}


class Effort(StrEnum):
    """How hard a model should think, from least to most."""

    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class PromptInput(StrEnum):
    """How a program wants its prompt. Never as an argument: one of 128 KiB is refused by the kernel."""

    STDIN = "stdin"
    FILE = "file"  # whose path is `$prompt`
    YAML = "yaml"  # as `run.task` of a YAML file whose path is `$prompt`


class RunOutput(NamedTuple):
    """All output of a program: stdout, stderr, exit code and its report file."""

    out: str
    err: str = ""
    code: int | None = 0
    report: str = ""  # what it wrote into the file that its row names


class ParsedRun(NamedTuple):
    """What a program's output means."""

    ending: RunEnding
    text: str = ""  # of the assistant alone: what a tool printed is not the agent's word
    why: str = ""
    usage: Usage = Usage()
    reset: datetime | None = None
    session: str | None = None


class SetupVariant(NamedTuple):
    """Environment and files for a program, used where the variable *key* is set; without a key, always."""

    key: str | None = None
    environment: Mapping[str, str] = NOTHING  # `$NAME` stands for the user's variable of that name
    files: Mapping[str, str] = NOTHING  # by path in the private home


class PermissionFlags(NamedTuple):
    """Arguments, variables and files that tell a program which permissions it has."""

    words: Words = ()
    environment: Mapping[str, str] = NOTHING
    files: Mapping[str, str] = NOTHING  # JSON, laid over that of the setting


OutputParser = Callable[[RunOutput, datetime], ParsedRun]


@dataclass(frozen=True)
class Cli:
    """One coding program. In words and values, `$model`, `$effort`, `$session`, `$run`, `$prompt`, `$report`
    and `$home` stand for what a run knows.
    """

    name: str
    programs: Words  # looked for on the PATH, in this order
    provider: str | None  # None: the model's name says it
    parse: OutputParser
    begin: Words
    resume: Words  # instead of *begin*, where a session goes on; empty: it cannot
    names_sessions: bool = field(default=False, kw_only=True)  # by `$run`; else its output names them
    words: Words
    permission_flags: Mapping[Permission, PermissionFlags]
    feed: PromptInput = PromptInput.STDIN
    prompt: Words = ()  # the last words
    model: Words = ("--model", "$model")
    effort: Words = ()
    efforts: Mapping[Effort, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[SetupVariant, ...] = ()  # the first that applies counts
    keys: Words = ()  # variables that log it in
    env_passthrough: Words = ()  # further variables of the user's that it may see
    credentials: Words = ()  # files in the user's home that log it in where no key is set
    licences: Words = ()  # variables, without one of which those files are a login that nobody serves
    advice: str = ""  # what its prompt needs beside ours
    report: str | None = None  # a file that it writes in its home
    is_cumulative: bool = False  # a resumed session reports the usage of all of it
    # It has a mode in which it cannot write; without, Liza finds out afterwards.
    has_read_only_mode: bool = True
    version: Words = ("--version",)
    flags_in_sandbox: PermissionFlags | None = None  # instead of *permission_flags*, in a sandbox of ours
    writable: Words = ()  # paths below the user's home that it writes
    brings_own_sandbox: bool = False
    endpoints: Words = ()  # hosts that it calls
