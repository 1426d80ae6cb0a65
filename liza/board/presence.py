"""Who is alive, for a board in files: a name is a lock file, held from start to exit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from liza.board.protocol import PLANNING_NAME, SUPERVISOR_NAME
from liza.system import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.system.locks import Holder

_NOT_WORKERS: Final = frozenset({SUPERVISOR_NAME, PLANNING_NAME})


def is_worker_name(name: str) -> bool:
    return name not in _NOT_WORKERS


class FilePresence:
    def __init__(self, home: Path) -> None:
        self._home = home

    @contextmanager
    def hold(self, name: str, *, at: datetime) -> Iterator[None]:
        path = self._path(name)
        path.parent.mkdir(exist_ok=True)
        with locks.hold_for_life(path, at=at):
            yield

    def holder_of(self, name: str) -> Holder | None:
        return locks.holder_of(self._path(name))

    def is_held(self, name: str) -> bool:
        return locks.is_held(self._path(name))

    def live_workers(self) -> frozenset[str]:
        return locks.live_workers(self._home)

    def remove_stale(self) -> None:
        locks.remove_stale(self._home)

    def _path(self, name: str) -> Path:
        folder = self._home / locks.WORKERS_DIRECTORY if is_worker_name(name) else self._home
        return folder / f"{name}.lock"
