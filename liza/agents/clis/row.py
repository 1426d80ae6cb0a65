"""What Liza has to know about a coding program to drive it: the columns of the table in `table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.agents.protocol import Ending, Usage
from liza.replies import Step

Words = tuple[str, ...]
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Permit(StrEnum):
    """What an agent may do to its worktree."""

    NONE = "none"  # it only speaks
    READ = "read"
    WRITE = "write"


PERMITS: Final[dict[Step, Permit]] = {
    Step.PLAN: Permit.READ,
    Step.REPLAN: Permit.READ,
    Step.CHECKPOINT: Permit.READ,
    Step.IMPLEMENT: Permit.WRITE,
    Step.REVIEW: Permit.READ,
}


class Effort(StrEnum):
    """How hard a model should think, from least to most."""

    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Feed(StrEnum):
    """How a program wants its prompt. Never as an argument: one of 128 KiB is refused by the kernel."""

    STDIN = "stdin"
    FILE = "file"  # whose path is `$prompt`
    YAML = "yaml"  # as `run.task` of a YAML file whose path is `$prompt`


class Printed(NamedTuple):
    """All that a program left behind."""

    out: str
    err: str = ""
    code: int | None = 0
    report: str = ""  # what it wrote into the file that its row names


class Parsed(NamedTuple):
    """What a program's output means."""

    ending: Ending
    text: str = ""  # of the assistant alone: what a tool printed is not the agent's word
    why: str = ""
    usage: Usage = Usage()
    reset: datetime | None = None
    session: str | None = None


class Setting(NamedTuple):
    """What a program needs beside its command line, where the variable *key* is set, or always."""

    key: str | None = None
    environment: Mapping[str, str] = NOTHING  # `$NAME` stands for the user's variable of that name
    files: Mapping[str, str] = NOTHING  # by path in the private home


class Way(NamedTuple):
    """How a program is told what it may do."""

    words: Words = ()
    environment: Mapping[str, str] = NOTHING
    files: Mapping[str, str] = NOTHING  # JSON, laid over that of the setting


Parse = Callable[[Printed, datetime], Parsed]


@dataclass(frozen=True)
class Cli:
    """One coding program. In words and values, `$model`, `$effort`, `$session`, `$run`, `$prompt`, `$report`
    and `$home` stand for what a run knows.
    """

    name: str
    programs: Words  # looked for on the PATH, in this order
    provider: str | None  # None: the model's name says it
    parse: Parse
    begin: Words
    resume: Words  # instead of *begin*, where a session goes on; empty: it cannot
    names_sessions: bool = field(default=False, kw_only=True)  # by `$run`; else its output names them
    words: Words
    ways: Mapping[Permit, Way]
    feed: Feed = Feed.STDIN
    prompt: Words = ()  # the last words
    model: Words = ("--model", "$model")
    effort: Words = ()
    efforts: Mapping[Effort, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()  # the first that applies counts
    keys: Words = ()  # variables that log it in
    passing: Words = ()  # further variables of the user's that it may see
    credentials: Words = ()  # files in the user's home that log it in where no key is set
    licences: Words = ()  # variables, without one of which those files are a login that nobody serves
    advice: str = ""  # what its prompt needs beside ours
    report: str | None = None  # a file that it writes in its home
    is_cumulative: bool = False  # a resumed session reports the usage of all of it
    holds_back: bool = True  # it has a mode in which it cannot write; without, Liza finds out afterwards
    version: Words = ("--version",)
    # For the cage: where it writes below the user's home, whether it makes a cage of its own, whom it calls.
    caged: Way | None = None  # instead of its ways, where the cage already holds back what they would
    writable: Words = ()
    brings_own_sandbox: bool = False
    endpoints: Words = ()
