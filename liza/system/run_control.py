"""How a run of a program is steered, and how it ended: limits, the stop request, the kinds of end."""

from __future__ import annotations

import os
import time
import weakref
from enum import IntEnum, StrEnum
from typing import Final

from liza.domain.config import Seconds
from liza.domain.record import Record
from liza.system.linux import readable


class Limits(Record):
    """How long a run may take, in seconds; a paused agent's clock stands still."""

    start: Seconds | None = None  # until its first sign of life
    silence: Seconds | None = None  # between two signs of life
    total: Seconds = 1800


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
