"""Files that git ignores and a project needs, such as `.env.test`: copied into each tree, part of none."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from liza.errors import UnfitRepository, UsageError
from liza.system.no_follow import write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from liza.repo.repository import Repository


_OBSTACLES: Final = {
    "tracked": "is tracked by git, so every worktree has it; take it out of the list",
    "loose": "is not ignored by git, so an agent would commit it; add it to .gitignore",
}


class Standing(StrEnum):
    """How git knows a path of the checkout."""

    TRACKED = "tracked"
    IGNORED = "ignored"
    LOOSE = "loose"  # neither


def standing_of(repository: Repository, name: str) -> Standing:
    if repository.ask_checkout("ls-files", "--error-unmatch", "--", name).code == 0:
        return Standing.TRACKED
    ignored = repository.ask_checkout("check-ignore", "-q", "--no-index", "--", name).code == 0
    return Standing.IGNORED if ignored else Standing.LOOSE


def copy_obstacle(repository: Repository, name: str) -> str | None:
    """Return what is wrong with copying *name* from the checkout, to stand behind the name; None: nothing."""
    path = repository.root / name
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return "is not below the repository; name a path inside"
    if not path.resolve().is_relative_to(repository.root.resolve()):
        return "leads out of the repository; put the file itself there"
    if not path.exists():
        return "does not exist in your checkout; make it, or take it out of the list"
    return _OBSTACLES.get(standing_of(repository, name))


def require_copies(repository: Repository, names: Iterable[str]) -> None:
    """Refuse a list of which something cannot be copied."""
    for name in names:
        if why := copy_obstacle(repository, name):
            raise UsageError(f"worktree.copy: {name!r} {why}")


def copy_into(repository: Repository, names: Iterable[str], top: Path) -> None:
    """Put the files of these *names* into the tree at *top*, where it has none."""
    for name in names:
        source = repository.root / name
        if not source.exists():
            raise UnfitRepository(f"worktree.copy: {name!r} {copy_obstacle(repository, name)}")
        for file in _files(source):
            inside = str(file.relative_to(repository.root))
            if not os.path.lexists(top / inside):
                write_file(top, inside, file.read_bytes(), mode=file.stat().st_mode & 0o777)


def _files(source: Path) -> Iterator[Path]:
    if source.is_dir():
        yield from (path for path in sorted(source.rglob("*")) if path.is_file())
    else:
        yield source


def committed_copies(names: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return which of *paths* were copied into the worktree, so that nobody may commit them."""
    copied = [PurePosixPath(name) for name in names]
    return [path for path in paths if any(PurePosixPath(path).is_relative_to(name) for name in copied)]
