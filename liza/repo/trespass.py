"""Whether somebody was in a worktree that nobody works in: without a sandbox, only a later look can tell.

What was seen is remembered and compared with what is seen later; no clock is asked, since clocks step back.
The ctime of a file is what no program can set. After each run only what leads git into a worktree is looked
at, one file each; the whole of a worktree is compared once, when its task is taken again.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from liza.repo.worktree import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.repo.pool import Worktrees
    from liza.repo.worktree import Worktree


def links_of(worktrees: Worktrees) -> dict[str, str]:
    """Return by what the `.git` of each task's worktree is known."""
    area = worktrees.area
    if not area.is_dir():
        return {}
    return {
        entry.name: _mark(os.path.join(entry.path, ".git"))  # noqa: PTH118 - one call for each of hundreds
        for entry in os.scandir(area)
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    }


def leave_at_rest(worktree: Worktree) -> None:
    """Remember what *worktree* is, for whoever takes its task again."""
    write(worktree.at_rest, json.dumps(dict(_folders(worktree.path))))


def touched_at_rest(worktree: Worktree) -> str | None:
    """Return the first directory in which anything changed since the worktree was left, and forget that."""
    path = worktree.at_rest
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    path.unlink(missing_ok=True)
    now = dict(_folders(worktree.path))
    return next(
        (name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)), None
    )


def _folders(root: Path) -> Iterator[tuple[str, str]]:
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
                    digest.update(os.fsencode(f"{entry.name}\0{'' if is_directory else _facts(entry)}\0"))
                    if is_directory:
                        waiting.append(name)
        except OSError:
            digest.update(b"unreadable")
        yield inside or ".", digest.hexdigest()


def _facts(entry: os.DirEntry[str]) -> str:
    facts = entry.stat(follow_symlinks=False)
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"


def _mark(path: str) -> str:
    try:
        facts = os.lstat(path)
    except OSError:
        return "absent"
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"
