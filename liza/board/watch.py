"""File watch on `.liza/`: wakes waiters when a file changes."""

from __future__ import annotations

import logging
import os
import select
import threading
import weakref
from typing import TYPE_CHECKING, Final

from liza.domain.config import SWITCH_FILES
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MISSED: Final = ""  # stands for files of whose changes the kernel dropped the names
_ALARMING: Final = frozenset({*SWITCH_FILES, MISSED})
_ANY: Final = b"\1" * 8  # what an eventfd takes, and a pipe as well

log = logging.getLogger(__name__)


class Watch:
    """Counts changes of files directly in *directory*; any number of threads may wait."""

    def __init__(self, directory: Path, ignored: frozenset[str]) -> None:
        self.wakeups = 0
        self.alarms = 0  # how many of the rings were for a switch
        self._rung = threading.Condition()
        self._ignored = ignored
        ring = weakref.WeakMethod(self._ring)  # who listens keeps nobody's board alive

        def tell(names: set[str]) -> None:
            if (bound := ring()) is not None:
                bound(names)

        if host().SIGNALS_FILE_CHANGES:
            close = _listen_to_kernel(directory, tell)
        else:
            from liza.board.polled_watch import poll_files  # noqa: PLC0415 - only where the kernel tells nothing

            close = poll_files(directory, tell)
        # The kernel has few watches, so one that nobody holds any more is given back.
        self.close = weakref.finalize(self, close)
        self.close.atexit = False

    def _ring(self, names: set[str]) -> None:
        if names - self._ignored:
            with self._rung:
                self.wakeups += 1
                self.alarms += not names.isdisjoint(_ALARMING)
                self._rung.notify_all()

    def wait(self, heard: int, timeout: float) -> None:
        """Return after more than *heard* wake-ups, or after *timeout* seconds."""
        wait_for(self._rung, lambda: self.wakeups > heard, timeout)


def wait_for(condition: threading.Condition, is_over: Callable[[], bool], timeout: float) -> None:
    """Wait as `Condition.wait_for` does; what a signal handler raises meanwhile is raised as it is."""
    try:
        with condition:
            condition.wait_for(is_over, timeout)
    except RuntimeError as error:
        # Waiting lets the lock go. A handler that raises just then (Ctrl-C) makes `with` give it back twice.
        if error.__context__ is None:
            raise
        raise error.__context__ from None


def _listen_to_kernel(directory: Path, ring: Callable[[set[str]], None]) -> Callable[[], None]:
    """Call *ring* with the names of changed files, in a thread, until the returned function is called.

    By hand: a library makes objects of every event in three threads, which is a tenth of what a task costs
    with one coder, and a fifth with eight, since everybody hears of everything.
    """
    changes = host().open_file_watch(directory)
    over, end = host().open_wakeup()

    def listen() -> None:
        poll = select.poll()
        for descriptor in (changes, over):
            poll.register(descriptor, select.POLLIN)
        while all(ready != over for ready, _ in poll.poll()):
            ring(host().changed_files(changes))
        for descriptor in {changes, over, end}:
            os.close(descriptor)

    owner = os.getpid()
    listener = threading.Thread(target=listen, name="watch", daemon=True)
    listener.start()

    def close() -> None:
        if os.getpid() != owner:  # a fork has the descriptors, and not the thread
            return
        os.write(end, _ANY)
        if threading.current_thread() is not listener:  # which may be the last to let go of the watch
            listener.join()

    return close


def open_watch(directory: Path, ignored: frozenset[str]) -> Watch | None:
    """Return a watch, or None where the kernel grants none; the caller then polls."""
    try:
        return Watch(directory, ignored)
    except OSError as error:
        log.warning("no file watch on %s (%s): looking every so often instead", directory, error)
        return None
