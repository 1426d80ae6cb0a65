"""The exclusive lock of the board, released by the kernel when its holder dies.

A queue lock in front of the board lock: only its holder waits for the board lock itself. A lock that thirty
processes wait for wakes all thirty each time, and its last holder wins again too often. For other programs
the board lock is a `filelock.FileLock` on its file.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from liza.board.lock_state import read_lock_state, write_lock_state
from liza.errors import DiskTrouble
from liza.system.locks import LockFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.disk import Disk
    from liza.board.lock_state import LockState

QUEUE: Final = ".next"  # behind the name of the lock file: the lock of whoever is next


class BoardLock:
    """The board's lock file, with the state that each holder leaves for the next."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._door = LockFile(path, disk.lock, disk.unlock)
        self._queue = LockFile(path.with_name(path.name + QUEUE), disk.lock, disk.unlock)

    @contextmanager
    def held(self, prepare: Callable[[], object]) -> Iterator[LockState]:
        """Wait for the lock and hold it; the baton is left whatever happens meanwhile.

        *prepare* is done while this process is next and the holder still at work, to shorten its own turn;
        it may raise, and the lock is not taken.
        """
        # Locking stands inside: a signal handler may raise right after it, and unlocking twice does no harm.
        try:
            try:
                self._queue.lock()
                prepare()
                descriptor = self._door.lock()
            finally:
                try:
                    self._queue.unlock()
                except BaseException:  # a signal handler raised before it was done
                    self._queue.close()  # which gives the lock back as well
                    raise
            baton = read_lock_state(descriptor)
            baton.pid = os.getpid()
            with suppress(OSError):  # a baton that cannot be left only costs the next holder a closer look
                write_lock_state(baton)
            try:
                yield baton
            finally:
                with suppress(OSError):
                    write_lock_state(baton)
        finally:
            try:
                self._door.unlock()
            except BaseException:
                self._door.close()
                raise

    def has_next(self) -> bool:
        """Return whether another process is next, as seen by the holder."""
        try:
            return self._queue.is_taken()
        except BaseException:  # a signal handler raised, perhaps while the lock was ours for a moment
            self._queue.close()  # which gives the lock back
            raise

    def peek(self) -> LockState | None:
        """Return the baton as it is now, without the lock, or None where there is no lock file."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskTrouble(f"open {self.path}", error) from error
        try:
            return read_lock_state(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._door.close()
        self._queue.close()
