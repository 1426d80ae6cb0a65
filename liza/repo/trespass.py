"""Whether somebody was in a worktree that nobody works in: without a cage, only a look afterwards can tell.

The ctime of a file is what no program can set back. A directory has one as well, so that what was deleted
or renamed is seen too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from liza.repo.pool import Worktrees

GRAIN: Final = 0.02  # seconds by which the time of a file may lie behind the clock


def trespasses(worktrees: Worktrees, tasks: Iterable[str], *, since: float) -> list[str]:
    """Return what was touched after the moment *since* in the worktrees of *tasks*, as sentences."""
    found = ((task, _touched(worktrees.path_of(task), since - GRAIN)) for task in sorted(tasks))
    return [f"{path} in the worktree of {task} was touched" for task, path in found if path]


def _touched(root: Path, since: float) -> str | None:
    """Return the first path below *root* that changed after *since*."""
    waiting = [str(root)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.stat(follow_symlinks=False).st_ctime > since:
                        return os.path.relpath(entry.path, root)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # it is gone, with its task
    return None
