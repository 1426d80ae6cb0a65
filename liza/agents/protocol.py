"""What Liza asks of an agent and gets back; whatever can `run` a brief is an agent."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

from pydantic import AfterValidator, Field

from liza.agents.kernel import readable
from liza.config import Count, Seconds
from liza.model import Role
from liza.record import Id, Line, Record, Time
from liza.replies import Step
from liza.spending import Provenance as Provenance  # noqa: PLC0414 - whoever makes a reply needs it
from liza.spending import Usage as Usage  # noqa: PLC0414 - as above


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        message = f"{str(path)!r} is relative: an agent must not depend on where Liza was started"
        raise ValueError(message)
    return path


Absolute = Annotated[Path, AfterValidator(_absolute)]


class Limits(Record):
    """How long a run may take, in seconds; a paused agent's clock stands still."""

    start: Seconds | None = None  # until its first sign of life
    silence: Seconds | None = None  # between two signs of life
    total: Seconds = 1800


class Session(Record):
    """A conversation that a program can go on with, and what all of it has used so far."""

    id: Line
    tokens_in: Count = 0
    tokens_out: Count = 0


class Brief(Record):
    """One run: who is asked to do what, where, and for how long."""

    run: Id
    role: Role
    step: Step
    task: Id | None = None
    iteration: Count = 0
    prompt: str
    cwd: Absolute
    folder: Absolute  # where this run is recorded; its name is the run's
    limits: Limits = Limits()
    session: Session | None = None  # to go on with, where the program can
    is_again: bool = False  # the same was asked before, and the answer could not be used
    only_answer: bool = False  # the work is done: its answer is asked for, and nothing else
    facts: Mapping[str, Any] = Field(default_factory=dict)  # whatever else an agent may want to know
    # May hold keys: it reaches the agent and no file.
    environment: Mapping[str, str] = Field(default_factory=dict, exclude=True, repr=False)


class Ending(StrEnum):
    """How a run ended; `MEANING` says what each means."""

    DONE = "done"
    TIMEOUT = "timeout"
    SILENT = "silent"
    SLOW_START = "slow_start"
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    AUTH = "auth"
    CONTEXT_FULL = "context_full"
    CRASHED = "crashed"
    KILLED = "killed"
    EMPTY = "empty"
    STOPPED = "stopped"
    CAPPED = "capped"
    NOT_STARTED = "not_started"


MEANING: Final[dict[Ending, str]] = {
    Ending.DONE: "it ended by itself and said something",
    Ending.TIMEOUT: "it took longer than it may in all",
    Ending.SILENT: "it gave no sign of life for too long",
    Ending.SLOW_START: "it gave no first sign of life in time",
    Ending.RATE_LIMITED: "its provider asks to wait, until the time that it names",
    Ending.QUOTA: "its provider's quota is used up",
    Ending.AUTH: "its provider does not accept the key",
    Ending.CONTEXT_FULL: "its context is full; a fresh one can go on from its notes",
    Ending.CRASHED: "it ended with an error",
    Ending.KILLED: "somebody killed it, or the kernel did because memory was short",
    Ending.EMPTY: "it ended by itself and said nothing",
    Ending.STOPPED: "Liza was told to stop it",
    Ending.CAPPED: "it reached what it may cost, and Liza ended it",
    Ending.NOT_STARTED: "there was nothing to run, or it could not be started",
}


class Reply(Record):
    """What came of a run."""

    ending: Ending
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
_TURNED_DOWN: Final = frozenset({Ending.RATE_LIMITED, Ending.QUOTA, Ending.AUTH})


def did_nothing(reply: Reply) -> bool:
    """Return whether no model can have worked for *reply*, so that it cost nothing."""
    if reply.usage.usd or reply.usage.tokens_out:
        return False
    is_mute = not reply.text.strip()
    match reply.ending:
        case Ending.NOT_STARTED:
            return True
        case Ending.STOPPED | Ending.CAPPED:
            return reply.code is None  # it was stopped before it began
        case Ending.CRASHED:
            # A negative code is a signal: somebody ended it, which says nothing about what it did.
            is_own = reply.code is not None and reply.code >= 0
            return is_own and reply.seconds < (STARTING if is_mute else AT_ONCE)
        case ending:
            return ending in _TURNED_DOWN and is_mute


class Level(IntEnum):
    """How much the caller wants a run to end."""

    GO = 0
    ASK = 1
    NOW = 2


class Stop:
    """What a caller tells the one run that it waits for: end, end now, freeze, go on.

    Setting it is safe in a signal handler and from any thread: it stores a value and wakes the run through a
    descriptor, and takes no lock.
    """

    def __init__(self) -> None:
        self.level = Level.GO
        self.paused = False
        self.seen = time.monotonic()  # when the run last gave a sign of life
        self.usd = 0.0  # what the run has cost so far, as far as it tells
        self.capped: str | None = None  # why the money ended it
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)

    def ask(self) -> None:
        """Ask the run to end; it gets a moment to tidy up."""
        self.level = max(self.level, Level.ASK)
        self._ring()

    def now(self) -> None:
        """End the run at once."""
        self.level = Level.NOW
        self._ring()

    def pause(self) -> None:
        self.paused = True
        self._ring()

    def resume(self) -> None:
        self.paused = False
        self._ring()

    def saw_life(self) -> None:
        """Note a sign of life; for the run, whose caller keeps a lease for as long as there are any."""
        self.seen = time.monotonic()

    def cap(self, why: str) -> None:
        """Ask the run to end, because of what it costs."""
        self.capped = why
        self.ask()

    def costs(self, usd: float) -> None:
        """Note what the run has cost so far; for the run, whose caller ends it where that is too much."""
        self.usd = max(self.usd, usd)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def fileno(self) -> int:
        """Return what becomes readable when something was said."""
        return self._bell

    def heard(self) -> None:
        """Be ready to be woken again."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return  # somebody else was told the same, and every caller looks at the level afterwards

    def wait(self, seconds: float | None) -> None:
        """Wait until something is said, or for *seconds*."""
        if readable(self._bell, seconds):
            self.heard()


SIGN: Final = 1.0  # seconds between two signs of life of a run that only waits


def may_start(stop: Stop) -> bool:
    """Wait while the run is paused; tell whether it may go on afterwards."""
    while stop.paused and stop.level is Level.GO:
        stop.wait(None)
    return stop.level is Level.GO


def rest(stop: Stop, seconds: float) -> bool:
    """Wait for *seconds*, not counting pauses; return False at once where the run is to end."""
    while seconds > 0 and may_start(stop):
        stop.saw_life()
        began = time.monotonic()
        stop.wait(min(seconds, SIGN))
        seconds -= time.monotonic() - began
    return may_start(stop)


class Agent(Protocol):
    def run(self, brief: Brief, stop: Stop) -> Reply:
        """Do what *brief* asks for and return what came of it; end early where *stop* says so."""
        ...
