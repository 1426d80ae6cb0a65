"""Wakes the supervisor's loop: signals, exits of children, other threads."""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Wakeup:
    """An eventfd that any thread may write; counts the signals that asked the process to end."""

    def __init__(self) -> None:
        self.asked = 0
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_write(self._descriptor, 1)

    def rest(self, seconds: float) -> None:
        """Wait until it rings, for *seconds* at most."""
        if select.select([self._descriptor], [], [], max(0.0, seconds))[0]:
            os.eventfd_read(self._descriptor)

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
