"""The protocol of agents: a brief goes in, a reply comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

from pydantic import AfterValidator, Field

from liza.domain.answers import Step
from liza.domain.config import Count
from liza.domain.model import Role
from liza.domain.record import Id, NonEmptyStr, Record, Time
from liza.domain.spending import Provenance as Provenance  # noqa: PLC0414 - whoever makes a reply needs it
from liza.domain.spending import Usage as Usage  # noqa: PLC0414 - as above
from liza.system.run_control import RunControl, RunEnding, RunLimits
from liza.system.sandbox.bubblewrap import Tenant


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        message = f"{str(path)!r} is relative: an agent must not depend on where Liza was started"
        raise ValueError(message)
    return path


Absolute = Annotated[Path, AfterValidator(_absolute)]


class Session(Record):
    """A conversation that a program can go on with, and what all of it has used so far."""

    id: NonEmptyStr
    tokens_in: Count = 0
    tokens_out: Count = 0


class Brief(Record):
    """One run: who is asked to do what, where, and for how long."""

    run: Id
    role: Role
    step: Step
    hat: str = ""  # the role of the workflow that is asked, where it is another than the kind of worker
    task: Id | None = None
    iteration: Count = 0
    prompt: str
    cwd: Absolute
    folder: Absolute  # where this run is recorded; its name is the run's
    limits: RunLimits = RunLimits()
    session: Session | None = None  # to go on with, where the program can
    is_again: bool = False  # the same was asked before, and the answer could not be used
    only_answer: bool = False  # the work is done: its answer is asked for, and nothing else
    facts: Mapping[str, Any] = Field(default_factory=dict)  # whatever else an agent may want to know
    # May hold keys: it reaches the agent and no file.
    environment: Mapping[str, str] = Field(default_factory=dict, exclude=True, repr=False)


class Reply(Record):
    """What came of a run."""

    ending: RunEnding
    text: str = ""
    why: str = ""  # which limit tripped or what went wrong, as a sentence; empty where all went well
    code: int | None = None  # exit code; negative for a signal, as subprocess has it
    usage: Usage = Usage()
    began: Time
    seconds: Annotated[float, Field(ge=0)] = 0.0
    transcript: Path | None = None  # the whole of what it printed
    reset: Time | None = None  # when a rate limit or a quota ends
    session: Session | None = None  # that a later run can go on with
    survivors: tuple[str, ...] = ()  # processes of the run that could not be ended


AT_ONCE: Final = 1.0  # seconds; whoever ends sooner with an error has not worked
STARTING: Final = 30.0  # seconds; the same where it has said nothing at all
_REFUSED_BY_PROVIDER: Final = frozenset({RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH})


def is_session_broken(reply: Reply) -> bool:
    """Return whether the reply of a resumed run shows that its session cannot be resumed."""
    was_killed = reply.code is not None and reply.code < 0
    return reply.ending in {RunEnding.CRASHED, RunEnding.EMPTY} and not reply.text.strip() and not was_killed


def did_nothing(reply: Reply) -> bool:
    """Return whether no model can have worked for *reply*, so that it cost nothing."""
    if reply.usage.usd or reply.usage.tokens_out:
        return False
    is_mute = not reply.text.strip()
    match reply.ending:
        case RunEnding.NOT_STARTED:
            return True
        case RunEnding.STOPPED | RunEnding.CAPPED:
            return reply.code is None  # it was stopped before it began
        case RunEnding.CRASHED:
            # A negative code is a signal: somebody ended it, which says nothing about what it did.
            is_own = reply.code is not None and reply.code >= 0
            return is_own and reply.seconds < (STARTING if is_mute else AT_ONCE)
        case ending:
            return ending in _REFUSED_BY_PROVIDER and is_mute


def tenant_of(brief: Brief) -> Tenant:
    """Return the sandbox tenant for *brief*; only an implementation step may write."""
    writes = brief.step is Step.IMPLEMENT
    # By worker: one that lost its task may still be at work when the next one begins.
    name = f"{brief.task or brief.step}.{brief.run.partition('.')[0]}"
    return Tenant(name, task=brief.task if writes else None, writes=writes)


class Agent(Protocol):
    def run(self, brief: Brief, stop: RunControl) -> Reply:
        """Do what *brief* asks for and return what came of it; end early where *stop* says so."""
        ...
