"""Makes commits durable before the board names them, and finds what a crash of the machine damaged.

Git syncs neither objects nor refs by default. Liza's own git does (`core.fsync` in `repo.command`); what an
agent committed with its own git is synced here before it is handed in. After a crash, empty or missing
objects and refs without a hash are found here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from liza.repo.object_reader import find_objects
from liza.repo.objects import objects_between
from liza.repo.repository import BRANCHES, HASH, TASK_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from liza.repo.repository import Repository


def sync_work(repository: Repository, base: str, commit: str, ref: str) -> None:
    """Have all that *commit* adds to *base*, and the *ref* that leads to it, on disk."""
    objects = repository.common / "objects"
    # The commit itself may be the agent's own, or an old one that it only moved the branch to.
    listed = objects_between(repository, base, commit)
    loose = [objects / name[:2] / name[2:] for name in listed]
    there = [path for path in loose if path.exists()]
    packs = [*(objects / "pack").glob("*.pack"), *(objects / "pack").glob("*.idx")]
    files = [*there, *(packs if len(there) < len(loose) else [])]
    names = [repository.common / ref, repository.common / "packed-refs"]
    files += [path for path in names if path.is_file()]
    for path in [*files, *{file.parent for file in files}]:
        _sync(path)


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):  # packed meanwhile, and synced by whoever did that
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class BrokenRef(NamedTuple):
    """A ref whose file names no commit, as a crash of the machine leaves it."""

    ref: str
    path: Path


def broken_refs(repository: Repository, *more: str) -> list[BrokenRef]:
    """Return those of Liza's refs, and of *more*, whose file has no hash in it."""
    folders = (f"{BRANCHES}{TASK_PREFIX}", "refs/liza")
    files = [path for name in folders for path in (repository.common / name).glob("**/*") if path.is_file()]
    files += [path for name in more if (path := repository.common / name).is_file()]
    return [
        BrokenRef(str(path.relative_to(repository.common)), path)
        for path in files
        if path.suffix != ".lock" and not _names_a_commit(path)
    ]


def _names_a_commit(path: Path) -> bool:
    text = path.read_bytes()[:1024].decode(errors="replace").strip()
    return bool(HASH.fullmatch(text)) or text.startswith("ref: refs/")


def present(repository: Repository, commits: Iterable[str]) -> frozenset[str]:
    """Return those of *commits*, by hash, that are there."""
    found = find_objects(repository.common, sorted(set(commits)))
    return frozenset(one.name for one in found if one and one.type == "commit")


def missing_commits(repository: Repository, bases: Mapping[str, str | None]) -> frozenset[str]:
    """Return those of *commits* that are incomplete: an object since *base* is missing."""
    if not bases or _are_whole(repository, bases):
        return frozenset()
    return frozenset(commit for commit, base in bases.items() if not _are_whole(repository, {commit: base}))


def _are_whole(repository: Repository, bases: Mapping[str, str | None]) -> bool:
    since = present(repository, filter(None, bases.values()))
    # With the sizes of what is listed: an empty file is found as a name, and is no object.
    answer = repository.ask(
        "rev-list", "--objects", "--no-object-names", *bases, *(["--not", *since] if since else [])
    )
    if answer.code != 0:
        return False
    checked = repository.ask("cat-file", "--batch-check", stdin=f"{answer.text}\n".encode())
    return checked.code == 0 and not any(line.endswith(" missing") for line in checked.text.splitlines())


def empty_objects(repository: Repository) -> Iterator[Path]:
    """Yield the files of objects that have nothing in them: git takes them for written, and for damaged."""
    objects = repository.common / "objects"
    for folder in objects.glob("[0-9a-f][0-9a-f]"):
        yield from (path for path in folder.iterdir() if path.is_file() and not path.stat().st_size)
