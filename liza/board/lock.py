"""The exclusive lock of the board; the kernel gives it back when its holder dies, however that happens."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from liza.board.baton import left, taken
from liza.errors import DiskTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.baton import Baton
    from liza.board.disk import Disk


class Lock:
    """The lock file, with the baton that each holder leaves in it for the next."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._descriptor = -1

    @contextmanager
    def held(self) -> Iterator[Baton]:
        """Wait for the lock and hold it; the baton is left whatever happens meanwhile."""
        descriptor = self._locked()
        try:
            baton = taken(descriptor)
            baton.pid = os.getpid()
            with suppress(OSError):  # a baton that cannot be left only costs the next holder a closer look
                left(baton)
            try:
                yield baton
            finally:
                with suppress(OSError):
                    left(baton)
        finally:
            self._unlock()

    def peek(self) -> Baton | None:
        """Return the baton as it is now, without the lock, or None where there is no lock file."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskTrouble(f"open {self.path}", error) from error
        try:
            return taken(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _locked(self) -> int:
        while True:
            if self._descriptor < 0:
                self._descriptor = self._opened()
            try:
                self._disk.lock(self._descriptor)
            except OSError as error:
                raise DiskTrouble(f"lock {self.path}", error) from error
            if os.fstat(self._descriptor).st_nlink:
                return self._descriptor
            self.close()  # somebody removed the file: whoever comes now locks another one

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags, 0o644)
        except OSError as error:
            raise DiskTrouble(f"open {self.path}", error) from error

    def _unlock(self) -> None:
        try:
            self._disk.unlock(self._descriptor)
        except OSError:
            self.close()  # which gives the lock back as well
