"""Who is alive, for a board in files: a name is a lock file, held from start to exit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from liza.board.protocol import HOST_PREFIX, PLANNING_NAME, SUPERVISOR_NAME
from liza.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import HostSign
    from liza.system.files import Holder

_NOT_WORKERS: Final = frozenset({SUPERVISOR_NAME, PLANNING_NAME})


def is_worker_name(name: str) -> bool:
    return name not in _NOT_WORKERS and not name.startswith(HOST_PREFIX)


class FilePresence:
    def __init__(self, home: Path) -> None:
        self._home = home

    @contextmanager
    def hold(
        self,
        name: str,
        *,
        at: datetime,
        on_lost: Callable[[], None] | None = None,  # noqa: ARG002 - nobody can take a lock from its holder
    ) -> Iterator[None]:
        path = self.path_of(name)
        path.parent.mkdir(exist_ok=True)
        with files.hold_for_life(path, at=at):
            yield

    def holder_of(self, name: str) -> Holder | None:
        return files.holder_of(self.path_of(name))

    def is_held(self, name: str) -> bool:
        return files.is_held(self.path_of(name))

    def live_workers(self) -> frozenset[str]:
        return files.live_workers(self._home)

    def remove_stale(self) -> None:
        files.remove_stale(self._home)

    def advertise(self, host: str, facts: dict[str, Any]) -> None:
        """Do nothing: a board in files has no other hosts."""

    def depose(self, silence: float) -> None:
        """Do nothing: no host leads a board of one machine."""

    def share_secret(self, secret: str) -> str:
        """Return *secret*: a board in files has no other hosts to share it with."""
        return secret

    def hosts(self) -> tuple[HostSign, ...]:
        return ()

    def path_of(self, name: str) -> Path:
        """Return the lock file of *name*: a host is the one supervisor of its machine."""
        if name.startswith(HOST_PREFIX):
            return self._home / files.SUPERVISOR_LOCK
        folder = self._home / files.WORKERS_DIRECTORY if is_worker_name(name) else self._home
        return folder / f"{name}.lock"
