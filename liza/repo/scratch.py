"""An exact tree on disk for as long as a gate looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from liza.errors import LizaError
from liza.repo.pool import SCRATCH, Worktrees, scratch_lock_of
from liza.repo.worktree import Worktree
from liza.system.locks import release_and_remove, try_lock
from liza.system.no_follow import remove

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@contextmanager
def scratch_tree(worktrees: Worktrees, name: str) -> Iterator[Path]:
    """Give a directory that is exactly the commit or tree *name*, and take it back afterwards."""
    commit = _commit_for(worktrees, name)
    with _reserve_path(worktrees) as path:
        left = worktrees.worktree_at(path)
        if left:  # by a process that was killed
            worktrees.park(left)
        worktree: Worktree = worktrees.take(path, commit)
        try:
            yield path
        finally:
            worktrees.park(worktree, commit)


def refill(worktrees: Worktrees, path: Path, name: str) -> None:
    """Make the scratch directory *path* exactly the commit or tree *name*, whatever was done in it."""
    worktree = worktrees.worktree_at(path)
    if worktree is None:
        raise LizaError(f"{path} is no scratch directory of Liza's any more; try again")
    if not worktree.is_there:  # what ran in it may have removed even that
        remove(path)
        path.mkdir()
    worktree.reset(_commit_for(worktrees, name))


def _commit_for(worktrees: Worktrees, name: str) -> str:
    """Return the commit *name*, or for a bare tree one that holds just that."""
    repository = worktrees.repository
    commit = repository.commit_at(name)
    if commit:
        return commit
    return repository.commit_tree(repository.tree_of(name), parents=(), message="scratch\n", at=_EPOCH)


@contextmanager
def _reserve_path(worktrees: Worktrees) -> Iterator[Path]:
    """Give a path that is ours while we live: the kernel lets go of the lock when we are killed."""
    worktrees.area.mkdir(exist_ok=True)
    paths = (worktrees.area / f"{SCRATCH}{number}" for number in count(1))
    path, lock = next((path, held) for path in paths if (held := try_lock(scratch_lock_of(path))))
    try:
        yield path
    finally:
        release_and_remove(lock)
