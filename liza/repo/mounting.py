"""Mount points inside a worktree: empty files and directories, created before a run and removed after it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from liza.repo.dependencies import is_free
from liza.repo.worktree import write_text_whole
from liza.system.no_follow import make_directory, remove_empty, write_file

if TYPE_CHECKING:
    from pathlib import Path


class MountPoints:
    """The mount points in the worktree *top*, which is seen at *root*; *record* outlives a crash."""

    def __init__(self, top: Path, root: Path, record: Path) -> None:
        self._top = top
        self._root = root
        self._record = record
        self._wanted: dict[Path, bool] = {}  # whether a directory is mounted there

    @classmethod
    def recover(cls, top: Path, root: Path, record: Path) -> Self:
        """Remove the mount points that a killed run left, and return an empty set of them."""
        points = cls(top, root, record)
        if record.exists():
            points.__exit__()
        return points

    def has(self, path: Path) -> bool:
        """Return whether *path*, which is below the root, can be mounted: a path of the tree itself wins."""
        name = path.relative_to(self._root)
        if not name.parts:
            return False
        if any(name.is_relative_to(known) for known in self._wanted):
            return True
        if not is_free(self._top, name):
            return False
        self._wanted[name] = path.is_dir()
        return True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self._wanted))

    def __enter__(self) -> Self:
        """Make them."""
        made = [
            str(place)
            for name in self._wanted
            for place in (*reversed(name.parents), name)
            if place.parts and not (self._top / place).exists()
        ]
        write_text_whole(self._record, "\0".join(made))
        for name, is_directory in self._wanted.items():
            if is_directory:
                make_directory(self._top, str(name))
            else:
                write_file(self._top, str(name), b"")
        return self

    def __exit__(self, *_: object) -> None:
        for name in filter(None, reversed(self._record.read_text().split("\0"))):
            with suppress(OSError):  # something is in it, which somebody else put there
                remove_empty(self._top, name)
        self._record.unlink()
