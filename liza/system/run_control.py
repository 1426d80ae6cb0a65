"""How a run of a program is steered and how it ended: limits, the stop request, what wakes a loop."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import weakref
from contextlib import contextmanager, suppress
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, Self

from liza.domain.config import Seconds
from liza.domain.record import Record
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Wakes a loop that waits: from signal handlers, other threads, exits of children.

_ONE: Final = (1).to_bytes(8, sys.byteorder)  # what an eventfd takes, and a pipe as well
_MOST: Final = 4096  # bytes; what a pipe has beyond them wakes once more


class WakeupPipe:
    """Becomes readable when it is woken. Safe in a signal handler and from any thread: it takes no lock."""

    def __init__(self) -> None:
        self._reader, self._writer = host().open_wakeup()
        for descriptor in {self._reader, self._writer}:
            weakref.finalize(self, os.close, descriptor)

    def fileno(self) -> int:
        return self._reader

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of what woke it before
            os.write(self._writer, _ONE)

    def clear(self) -> None:
        """Be ready to be woken again."""
        with suppress(BlockingIOError):  # somebody else was woken by the same
            os.read(self._reader, _MOST)

    def wait(self, seconds: float | None) -> None:
        """Wait until it is woken, or for *seconds*."""
        if wait_readable(self._reader, seconds):
            self.clear()


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until *descriptor* can be read, or for *seconds*. Unlike select(), it takes any number."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds * 1000)))


class Wakeup:
    """Wakes the supervisor; counts the signals that asked the process to end."""

    def __init__(self) -> None:
        self.asked = 0
        self._pipe = WakeupPipe()

    def wake(self) -> None:
        self._pipe.wake()

    def rest(self, seconds: float) -> None:
        """Wait until it rings, for *seconds* at most."""
        self._pipe.wait(seconds)

    @contextmanager
    def handle_signals(self) -> Iterator[Self]:
        """Ring for SIGTERM, Ctrl-C, a lost terminal and the end of a child."""
        # Handlers only note and ring: logging or locking in one could deadlock.
        handlers: dict[signal.Signals, Callable[..., None]] = {
            signal.SIGTERM: self._on_stop_signal,
            signal.SIGINT: self._on_stop_signal,
            signal.SIGCHLD: self._on_child_signal,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asked us to stay
            handlers[signal.SIGHUP] = self._on_stop_signal
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop_signal(self, *_: object) -> None:
        self.asked += 1
        self.wake()

    def _on_child_signal(self, *_: object) -> None:
        self.wake()


class RunLimits(Record):
    """How long a run may take, in seconds; a paused agent's clock stands still."""

    start: Seconds | None = None  # until its first sign of life
    silence: Seconds | None = None  # between two signs of life
    total: Seconds = 1800


class RunEnding(StrEnum):
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


MEANING: Final[dict[RunEnding, str]] = {
    RunEnding.DONE: "it ended by itself and said something",
    RunEnding.TIMEOUT: "it took longer than it may in all",
    RunEnding.SILENT: "it gave no sign of life for too long",
    RunEnding.SLOW_START: "it gave no first sign of life in time",
    RunEnding.RATE_LIMITED: "its provider asks to wait, until the time that it names",
    RunEnding.QUOTA: "its provider's quota is used up",
    RunEnding.AUTH: "its provider does not accept the key",
    RunEnding.CONTEXT_FULL: "its context is full; a fresh one can go on from its notes",
    RunEnding.CRASHED: "it ended with an error",
    RunEnding.KILLED: "somebody killed it, or the kernel did because memory was short",
    RunEnding.EMPTY: "it ended by itself and said nothing",
    RunEnding.STOPPED: "Liza was told to stop it",
    RunEnding.CAPPED: "it reached what it may cost, and Liza ended it",
    RunEnding.NOT_STARTED: "there was nothing to run, or it could not be started",
}


class StopLevel(IntEnum):
    """How much the caller wants a run to end."""

    GO = 0
    ASK = 1
    NOW = 2


class RunControl:
    """Controls one run: end, end now, pause, resume.

    Safe in a signal handler and from any thread: it stores a value, wakes the run, and takes no lock.
    """

    def __init__(self) -> None:
        self.level = StopLevel.GO
        self.paused = False
        self.seen = time.monotonic()  # when the run last gave a sign of life
        self.usd = 0.0  # what the run has cost so far, as far as it tells
        self.capped: str | None = None  # why the money ended it
        self._wakeup = WakeupPipe()

    def ask(self) -> None:
        """Ask the run to end; it gets a moment to tidy up."""
        self.level = max(self.level, StopLevel.ASK)
        self._wake()

    def now(self) -> None:
        """End the run at once."""
        self.level = StopLevel.NOW
        self._wake()

    def pause(self) -> None:
        self.paused = True
        self._wake()

    def resume(self) -> None:
        self.paused = False
        self._wake()

    def note_life(self) -> None:
        """Note a sign of life; for the run, whose caller keeps a lease for as long as there are any."""
        self.seen = time.monotonic()

    def cap(self, why: str) -> None:
        """Ask the run to end, because of what it costs."""
        self.capped = why
        self.ask()

    def note_cost(self, usd: float) -> None:
        """Note what the run has cost so far; for the run, whose caller ends it where that is too much."""
        self.usd = max(self.usd, usd)

    def _wake(self) -> None:
        self._wakeup.wake()

    def fileno(self) -> int:
        """Return what becomes readable when something was said."""
        return self._wakeup.fileno()

    def clear_wakeup(self) -> None:
        """Be ready to be woken again."""
        self._wakeup.clear()  # who else was told the same looks at the level afterwards, too

    def wait(self, seconds: float | None) -> None:
        """Wait until something is said, or for *seconds*."""
        self._wakeup.wait(seconds)


LIFE_SIGN_INTERVAL: Final = 1.0  # seconds between two signs of life of a run that only waits


def wait_while_paused(stop: RunControl) -> bool:
    """Wait while the run is paused; return whether it may continue."""
    while stop.paused and stop.level is StopLevel.GO:
        stop.wait(None)
    return stop.level is StopLevel.GO


def sleep_unless_stopped(stop: RunControl, seconds: float) -> bool:
    """Wait for *seconds*, not counting pauses; return False at once where the run is to end."""
    while seconds > 0 and wait_while_paused(stop):
        stop.note_life()
        began = time.monotonic()
        stop.wait(min(seconds, LIFE_SIGN_INTERVAL))
        seconds -= time.monotonic() - began
    return wait_while_paused(stop)
