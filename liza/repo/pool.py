"""Worktrees by task, taken from a pool and given back to it: making one costs seconds, reusing one a tenth.

`.worktrees/<task>` is a task's; whatever starts with a dot is ours: `.pool/` has the worktrees that wait,
`.kept/` what we remember of each, `.salvage/` what was too much for git. A worktree is ready when its
marker names the task, which is the last step of preparing it; a step that was cut short is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

from liza.errors import LizaError, UnfitRepository
from liza.repo import salvage
from liza.repo.repository import BRANCHES, Repository, branch_of
from liza.repo.salvage import Salvage
from liza.repo.worktree import KEPT, Worktree, worktree_paths
from liza.system.locks import hold_lock, release_and_remove, try_lock
from liza.system.no_follow import directories, first_line, remove

log = logging.getLogger(__name__)

POOL: Final = ".pool"
LOCK: Final = ".lock"
SCRATCH: Final = ".scratch-"
POOL_LIMIT: Final = 8  # worktrees that wait; a run has hardly more coders, and each is a copy of the checkout

MOST_SLOTS: Final = 1024
_SLOTS: Final[dict[Path, Path]] = {}  # where each worktree was seen last: looking at all of them takes longer


def _remember_slot(worktree: Worktree) -> Worktree:
    if len(_SLOTS) >= MOST_SLOTS:
        _SLOTS.clear()
    _SLOTS[worktree.path] = worktree.admin
    return worktree


def scratch_lock_of(path: Path) -> Path:
    """Return the lock by which a process says that it looks at the scratch directory *path*."""
    return path.with_name(f"{path.name}.lock")


@dataclass(frozen=True)
class Worktrees:
    """Every worktree of Liza's in one repository."""

    repository: Repository

    @property
    def area(self) -> Path:
        area = self.repository.area
        if area.is_symlink():
            # What is removed below it would be somebody else's.
            raise UnfitRepository(f"{area} is a link to {area.readlink()}; put a directory there instead")
        return area

    def path_of(self, task: str) -> Path:
        return self.area / task

    def of(self, task: str) -> Worktree | None:
        """Return the worktree of *task*; None where it is not ready, or somebody deleted it."""
        found = self.worktree_at(self.path_of(task))
        return found if found and found.task == task and found.is_there else None

    def tasks(self) -> list[str]:
        """Return which tasks have a worktree, ready or not, or one that somebody deleted."""
        on_disk = list(self.area.iterdir()) if self.area.is_dir() else []
        known = [path for path in self._places().values() if path.parent == self.area]
        return sorted({path.name for path in [*on_disk, *known] if not path.name.startswith(".")})

    def prepare(self, task: str, base: str, *, at: datetime) -> Worktree:
        """Return the worktree of *task* as it was left, or one at its branch, which begins at *base*."""
        (self.repository.common / f"{branch_of(task)}.lock").unlink(missing_ok=True)  # its agents are dead
        found = self.of(task)
        tip = self.repository.commit_at(branch_of(task))
        if found is None or tip is None:
            self._clear(task, at)
            return self._make(task, tip or base, tip)
        self.secure(found, task, at=at)
        if found.branch() != branch_of(task).removeprefix(BRANCHES):
            # Nothing that is committed there could be handed in; what it has is saved.
            self._clear(task, at)
            return self._make(task, tip, tip)
        return found

    def secure(self, worktree: Worktree, task: str, *, at: datetime) -> None:
        """Put back what ties *worktree* to git, after every run of *task* in it.

        A repository that an agent put there may name programs, which the next prompt or editor that runs git
        in the directory would start.
        """
        if not worktree.is_there:
            return
        if worktree.has_foreign_git:
            try:
                salvage.save_work(self.repository, task, worktree, at=at)
            except LizaError as error:
                log.warning("%s: its own repository is set aside without a record: %s", task, error)
                salvage.set_repository_aside(worktree, task)
        worktree.mend()

    def renew(self, task: str, base: str, *, at: datetime) -> Worktree:
        """Return a fresh worktree of *task* at *base*; what was there, and on the branch, is saved first."""
        self._clear(task, at, losing=branch_of(task))
        tip = self.repository.commit_at(branch_of(task))
        if tip or (self.repository.common / "logs" / branch_of(task)).exists():
            salvage.save_work(self.repository, task, None, at=at, losing=branch_of(task))
        return self._make(task, base, tip)

    def release(self, task: str, *, at: datetime) -> Salvage | None:
        """Give the worktree of *task* back to the pool and return what was saved of it; the branch stays."""
        return self._clear(task, at)

    def retire_branch(self, task: str, *, into: str) -> bool:
        """Delete the branch of *task* if *into* contains all of it; say whether it is gone."""
        ref = branch_of(task)
        tip = self.repository.commit_at(ref)
        if tip is None:
            return True
        return self.repository.contains(into, tip) and self.repository.delete(ref, expected=tip)

    def branches(self, *, merged_into: str | None = None) -> list[str]:
        """Return which tasks have a branch: all, or those of which *merged_into* contains the tip."""
        merged = () if merged_into is None else (f"--merged={merged_into}",)
        found = self.repository.git(
            "for-each-ref", "--format=%(refname)", *merged, branch_of("")
        ).splitlines()
        return [name.removeprefix(branch_of("")) for name in found]

    def take(self, path: Path, commit: str) -> Worktree:
        """Return a detached worktree at *path*, where nothing is, that is exactly *commit*."""
        with self._locked():
            parked = next(iter(self._parked()), None)
            worktree = self._move(parked or self._add_slot(commit), path)
        try:
            worktree.reset(commit)
        except (LizaError, OSError) as error:
            if parked is None:
                raise
            log.warning("%s cannot be used again and is replaced: %s", worktree.admin.name, error)
            self._discard(worktree)
            return self._new(path, commit)
        return worktree

    def _new(self, path: Path, commit: str) -> Worktree:
        with self._locked():
            worktree = self._move(self._add_slot(commit), path)
        worktree.reset(commit)
        return worktree

    def park(self, worktree: Worktree, commit: str | None = None) -> None:
        """Put *worktree* into the pool, clean; where that is full, or it cannot be cleaned, remove it.

        *commit* is what it is put back to; if not given, what it is at.
        """
        worktree.mark("")
        commit = commit or worktree.head() or self.repository.head()
        if commit is None or not worktree.is_there or len(self._parked()) >= POOL_LIMIT:
            self._discard(worktree)
            return
        try:
            # Cleaned before it is in the pool, where another process may take it at once.
            worktree.clear(commit)
            worktree.normalize_modes()
            with self._locked():
                self._move(worktree, self.area / POOL / worktree.admin.name)
        except (LizaError, OSError) as error:
            log.warning("%s cannot be cleaned and is removed: %s", worktree.admin.name, error)
            self._discard(worktree)

    def drain(self) -> None:
        """Remove every worktree that waits, and all that we remember, as at the end of a run."""
        if not self.area.is_dir():
            return
        self.discard_parked()
        for lock in self.area.glob(f"{SCRATCH}*.lock"):
            self._drop(lock)
        if self._places() or self.tasks():
            return
        for name in (POOL, KEPT, LOCK):
            remove(self.area / name)
        with suppress(OSError):  # what was set aside stays
            self.area.rmdir()

    def discard_parked(self) -> None:
        """Remove every worktree that waits, as where the disk has too little room; others go on."""
        if not self.area.is_dir():
            return
        with self._locked():
            for admin, path in self._places().items():
                if path.parent.name == POOL:
                    self._discard(Worktree(self.repository, path, admin))

    def _drop(self, lock: Path) -> None:
        """Remove the scratch directory of *lock*, unless a living process looks at it."""
        held = try_lock(lock)
        if held is None:
            return
        left = self.worktree_at(lock.with_suffix(""))
        if left:
            self._discard(left)
        release_and_remove(held)

    def _make(self, task: str, commit: str, tip: str | None) -> Worktree:
        """Make the worktree of *task* at *commit*, where its branch, which is at *tip*, goes, too."""
        worktree = self.take(self.path_of(task), commit)
        ref = branch_of(task)
        if not self.repository.move_ref(ref, to=commit, expected=tip, why=f"{task} begins"):
            raise UnfitRepository(f"{task}: somebody else moves {ref.removeprefix(BRANCHES)}; try again")
        worktree.point_head(ref)
        worktree.mark(task)
        return worktree

    def _clear(self, task: str, at: datetime, *, losing: str | None = None) -> Salvage | None:
        """Leave nothing at the path of *task*, nor in git's records of it, that is not saved."""
        path = self.path_of(task)
        if path.is_symlink():
            path.unlink()
        elif path.is_file():
            self._set_aside(path)
        found = self.worktree_at(path) or self._adopt(path, task)
        if found is None:
            return None
        saved = None
        if found.task != "":
            saved = salvage.save_work(self.repository, task, found, at=at, losing=losing)
        for admin in salvage.nested_admins(found):
            remove(admin)
        self.park(found)
        return saved

    def _set_aside(self, path: Path) -> None:
        aside = self.area / salvage.ASIDE / path.name
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)

    def _adopt(self, path: Path, task: str) -> Worktree | None:
        """Give a directory that git knows nothing of a slot, so that what is in it can be saved."""
        if not path.is_dir():
            return None
        tip = self.repository.commit_at(branch_of(task)) or self.repository.head()
        if tip is None:
            return None
        with self._locked():
            slot = self._add_slot(tip)
            remove(slot.path)
            remove(slot.kept)
            adopted = Worktree(self.repository, path, slot.admin)
            adopted.claim()
        return adopted

    def _parked(self) -> list[Worktree]:
        pool = self.area / POOL
        paths = sorted(pool.iterdir()) if pool.is_dir() else []
        return [found for path in paths if (found := self.worktree_at(path)) and found.is_there]

    def _add_slot(self, commit: str) -> Worktree:
        """Add a worktree without files to the pool."""
        pool = self.area / POOL
        pool.mkdir(parents=True, exist_ok=True)
        admins = self.repository.common / "worktrees"
        names = (f"liza-{number}" for number in count(1))
        name = next(name for name in names if not (admins / name).exists() and not (pool / name).exists())
        added = Worktree(self.repository, pool / name, admins / name)
        if self.repository.has_reftable:
            words = ("worktree", "add", "--quiet", "--no-checkout", "--detach")
            self.repository.git(*words, str(pool / name), commit)
        else:
            # `git worktree add` reads HEAD of every other worktree, where an agent may have put a pipe.
            added.path.mkdir()
            added.admin.mkdir(parents=True)
            added.strip(commit)
        added.mark("")
        return added

    def _move(self, worktree: Worktree, path: Path) -> Worktree:
        path.parent.mkdir(parents=True, exist_ok=True)
        worktree.path.rename(path)
        moved = Worktree(self.repository, path, worktree.admin)
        moved.mend()
        _remember_slot(moved)
        return moved

    def _places(self) -> dict[Path, Path]:
        """Return where our worktrees are, by git's directory for each.

        Of one that is ready for a task we know it; what git says of it, its agent may have written.
        """
        admins = self.repository.common / "worktrees"
        known = (Worktree(self.repository, self.area, admins / name) for name in directories(admins))
        ready = {tree.admin: self.path_of(tree.task) for tree in known if tree.task}
        found = worktree_paths(self.repository) | ready
        return {admin: path for admin, path in found.items() if path.is_relative_to(self.area)}

    def worktree_at(self, path: Path) -> Worktree | None:
        """Return the worktree that git has for *path*, whether or not the directory is there."""
        if path in _SLOTS and self._is_in_slot(found := Worktree(self.repository, path, _SLOTS[path])):
            return found
        known = self._places()
        for admin, place in known.items():
            if place == path:
                return _remember_slot(Worktree(self.repository, path, admin))
        # A move that was cut short: the directory names its slot, and where the slot says it is, nothing is.
        link = path / ".git"
        admin = Path(first_line(link).removeprefix("gitdir: "))
        if admin not in known or known[admin].exists():
            return None
        return Worktree(self.repository, path, admin)

    def _is_in_slot(self, worktree: Worktree) -> bool:
        """Return whether *worktree* is still where it was seen; else all of them are looked at."""
        if not worktree.admin.is_dir():
            return False
        if task := worktree.task:
            return self.path_of(task) == worktree.path
        return first_line(worktree.admin / "gitdir") == str(worktree.path / ".git")

    def _discard(self, worktree: Worktree) -> None:
        worktree.mark("")
        remove(worktree.path)
        remove(worktree.admin)
        remove(worktree.kept)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of ours from picking the same slot; held for milliseconds."""
        self.area.mkdir(exist_ok=True)
        with hold_lock(self.area / LOCK):
            yield
