"""Wakes a loop that waits: from signal handlers, other threads, exits of children."""

from __future__ import annotations

import os
import select
import signal
import sys
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
            signal.SIGTERM: self._asked,
            signal.SIGINT: self._asked,
            signal.SIGCHLD: self._rung,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asked us to stay
            handlers[signal.SIGHUP] = self._asked
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, *_: object) -> None:
        self.asked += 1
        self.wake()

    def _rung(self, *_: object) -> None:
        self.wake()
