"""Detects changes in a worktree while nobody works in it; without a sandbox only a later look can tell.

States are compared by ctime, which no program can set, and not with a clock, since clocks step back. After
each run only the `.git` file of each worktree is checked; the whole worktree is compared once, when its task
is claimed again.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from liza.repo.worktree import write_text_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.repo.pool import Worktrees
    from liza.repo.worktree import Worktree


def git_link_stamps(worktrees: Worktrees) -> dict[str, str]:
    """Return a stamp of the `.git` file of each task's worktree."""
    area = worktrees.area
    if not area.is_dir():
        return {}
    return {
        entry.name: _path_stamp(os.path.join(entry.path, ".git"))  # noqa: PTH118 - one call for each of hundreds
        for entry in os.scandir(area)
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    }


def record_idle_state(worktree: Worktree) -> None:
    """Record the state of *worktree*, to be compared when its task is claimed again."""
    write_text_whole(worktree.at_rest, json.dumps(dict(_folder_digests(worktree.path))))


def pop_idle_change(worktree: Worktree) -> str | None:
    """Return the first directory that changed since the state was recorded, and remove the record."""
    path = worktree.at_rest
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    path.unlink(missing_ok=True)
    now = dict(_folder_digests(worktree.path))
    return next(
        (name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)), None
    )


def _folder_digests(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each directory below *root* with a digest of what its entries are."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        digest = blake2b(digest_size=16)
        try:
            with os.scandir(root / inside) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if not inside and entry.name == ".git":
                        continue  # it is looked at by itself, and Liza puts it right
                    name = os.path.join(inside, entry.name)  # noqa: PTH118 - a string is wanted
                    is_directory = entry.is_dir(follow_symlinks=False)
                    # The time of a directory says no more than its names do.
                    digest.update(
                        os.fsencode(f"{entry.name}\0{'' if is_directory else _entry_stamp(entry)}\0")
                    )
                    if is_directory:
                        waiting.append(name)
        except OSError:
            digest.update(b"unreadable")
        yield inside or ".", digest.hexdigest()


def _entry_stamp(entry: os.DirEntry[str]) -> str:
    facts = entry.stat(follow_symlinks=False)
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"


def _path_stamp(path: str) -> str:
    try:
        facts = os.lstat(path)
    except OSError:
        return "absent"
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"
