"""A disk on which a process dies, or fails, at a step of our choice; for child processes of the tests."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.board.journal import Disk

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: Final = tuple(name for name in vars(Disk) if not name.startswith("_"))


MOMENTS: Final = ("before", "half-way", "after")  # a step
BETWEEN: Final = "between"  # two calls of the operating system


class Death(NamedTuple):
    """Die at the *number*-th step, at one of its moments, or before the *number*-th call of the system."""

    number: int
    moment: str


class Calls:
    """Counts the calls by which files are changed, whichever module makes them; dies before one of them.

    Python's audit tells of opening, locking, renaming and removing, but not of writing.
    """

    def __init__(self, death: Death | None) -> None:
        self.number = 0
        self._fatal = death.number if death and death.moment == BETWEEN else -1
        sys.addaudithook(self._hear)
        for name in ("write", "pwrite", "ftruncate", "fsync", "fdatasync"):
            setattr(os, name, self._heard(getattr(os, name)))

    def _hear(self, event: str, _: tuple[Any, ...] = ()) -> None:
        if event == "open" or event.startswith(("os.", "fcntl.")):
            self.number += 1
            if self.number - 1 == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def _heard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def heard(*args: Any) -> Any:  # noqa: ANN401 - whatever the call takes and gives
            self._hear(f"os.{call.__name__}")
            return call(*args)

        return heard


class Mortal(Disk):
    """Counts its steps, and ends the process with SIGKILL at the one it was told."""

    def __init__(self, death: Death | None = None) -> None:
        self.steps: list[str] = []
        self._death = death if death and death.moment in MOMENTS else None

    def walk(self, name: str, step: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.steps.append(name)
        if self._death is None or len(self.steps) - 1 != self._death.number:
            step(self, *args)
            return
        if self._death.moment == "half-way" and isinstance(args[-1], bytes):
            # On a descriptor opened for appending this appends, whatever the offset.
            os.pwrite(args[0], args[-1][: len(args[-1]) // 2], 0)
        elif self._death.moment == "after":
            with suppress(OSError):
                step(self, *args)
        os.kill(os.getpid(), signal.SIGKILL)


class Failing(Disk):
    """Fails with an errno at the one step it was told, half-way through a write."""

    def __init__(self, number: int, errno: int) -> None:
        self.steps: list[str] = []
        self._number = number
        self._errno = errno

    def walk(self, name: str, step: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 != self._number:
            step(self, *args)
            return
        if isinstance(args[-1], bytes):
            os.pwrite(args[0], args[-1][: len(args[-1]) // 2], 0)
        raise OSError(self._errno, os.strerror(self._errno))


def _watched(name: str) -> Callable[..., None]:
    step = getattr(Disk, name)

    def method(self: Mortal | Failing, *args: Any) -> None:  # noqa: ANN401 - whatever the step takes
        self.walk(name, step, args)

    return method


for _name in STEPS:  # a step that is new in Disk is covered without a change here
    setattr(Mortal, _name, _watched(_name))
    setattr(Failing, _name, _watched(_name))
