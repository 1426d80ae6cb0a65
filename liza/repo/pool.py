"""Worktrees by task from a pool, exact trees for gates, and the dependencies that are installed in them.

Making a worktree costs seconds, reusing one a tenth. `.worktrees/<task>` is a task's; whatever starts with a
dot is ours: `.pool/` has the worktrees that wait, `.kept/` what we remember of each, `.salvage/` what was too
much for git. A worktree is ready when its marker names the task, which is the last step of preparing it; a
step that was cut short is done again.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, lru_cache
from itertools import count
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from liza.errors import LizaError, UnfitRepository, UsageError
from liza.repo import salvage
from liza.repo.command import REPOSITORY_MODE
from liza.repo.repository import AREA, BRANCHES, Repository, branch_of
from liza.repo.salvage import Salvage
from liza.repo.worktree import KEPT, Worktree, worktree_paths, write_text_whole
from liza.system import files
from liza.system.files import (
    directories,
    first_line,
    hold_lock,
    make_directory,
    release_and_remove,
    remove,
    remove_empty,
    stamp_of,
    try_lock,
    write_file,
)
from liza.system.sandbox.bubblewrap import DEPENDENCIES, is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
        with self._hold_lock():
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
        with self._hold_lock():
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
            with self._hold_lock():
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
        with self._hold_lock():
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
        with self._hold_lock():
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
    def _hold_lock(self) -> Iterator[None]:
        """Keep other processes of ours from picking the same slot; held for milliseconds."""
        self.area.mkdir(exist_ok=True)
        with hold_lock(self.area / LOCK):
            yield


# An exact tree on disk for as long as a gate looks at it.

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


# What a project needs and git does not have: installed packages and ignored files, in any tree.
#
# A tree that is worked on or tested has none of it, yet its commands name it: `.venv/bin/python`, `npx jest`.
# So it is borrowed. In a sandbox it is mounted inside of the tree, to read; without one the tree gets a
# directory of links. A link that leads to the project itself, as of a workspace of npm's, leads to the tree.

# Files that git ignores and a project needs, such as `.env.test`: copied into each tree, part of none.

_OBSTACLES: Final = {
    "tracked": "is tracked by git, so every worktree has it; take it out of the list",
    "loose": "is not ignored by git, so an agent would commit it; add it to .gitignore",
}


class Standing(StrEnum):
    """How git knows a path of the checkout."""

    TRACKED = "tracked"
    IGNORED = "ignored"
    LOOSE = "loose"  # neither
    SUBMODULE = "submodule"  # git has its commit, and leaves it empty in every other worktree


def standing_of(repository: Repository, name: str) -> Standing:
    found = repository.ask_checkout("ls-files", "--error-unmatch", "--stage", "--", name)
    if found.code == 0:
        is_submodule = found.text.startswith(REPOSITORY_MODE) and len(found.text.splitlines()) == 1
        return Standing.SUBMODULE if is_submodule else Standing.TRACKED
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


def submodules_of(repository: Repository) -> list[str]:
    """Return the submodules that the checkout has files of."""
    staged = repository.ask_checkout("ls-files", "--stage", "-z").text.split("\0")
    names = [entry.partition("\t")[2] for entry in staged if entry.startswith(REPOSITORY_MODE)]
    return [name for name in names if any((repository.root / name).iterdir())]


def _files(source: Path) -> Iterator[Path]:
    if source.is_dir():
        # The `.git` of a submodule leads to the repository by a path that holds only where it stands.
        found = (path for path in sorted(source.rglob("*")) if path.is_file())
        yield from (path for path in found if ".git" not in path.relative_to(source).parts)
    else:
        yield source


def committed_copies(names: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return which of *paths* were copied into the worktree, so that nobody may commit them."""
    copied = [PurePosixPath(name) for name in names]
    return [path for path in paths if any(PurePosixPath(path).is_relative_to(name) for name in copied)]


# Beside these something may be installed, also below the root of the project.
MANIFESTS: Final = (
    *("package.json", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"),
    "tox.ini",
)
MOST_PROJECTS: Final = 200  # directories of one repository in which something may be installed
STRICT_EDITABLE_PREFIX: Final = "__editable__."  # how setuptools names its directory of links to single files
_LINK_FOLDER_IGNORE: Final = (
    "# Links to what is installed in the checkout that this worktree belongs to.\n*\n"
)
# Of these the entries are links one by one, since each may lead to another package of the project.
_SCOPES: Final = ("@", ".bin")


def installed_folders(repository: Repository) -> tuple[Path, ...]:
    """Return the directories of the checkout that were installed and are not tracked, without links."""
    root = repository.root.resolve()
    tracked = _tracked_manifests(repository, stamp_of(repository.home / "index"))
    projects = dict.fromkeys(["", *(os.path.dirname(path) for path in tracked if path)])  # noqa: PTH120 - text
    found = [root / project / name for project in list(projects)[:MOST_PROJECTS] for name in DEPENDENCIES]
    kept = {Path(path).parts[:depth] for path in tracked for depth in range(1, len(Path(path).parts))}
    return tuple(path for path in found if path.is_dir() and path.relative_to(root).parts not in kept)


@lru_cache(4)
def _tracked_manifests(repository: Repository, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    patterns = [f":(glob)**/{name}" for name in MANIFESTS]
    answer = repository.ask_checkout("ls-files", "-z", "--", *patterns, *DEPENDENCIES)
    return tuple(answer.text.split("\0"))


def strict_editable_folders(root: Path) -> tuple[Path, ...]:
    """Return the link directories of strict editable installs below *root*."""
    found = sorted(root.glob(f"build/{STRICT_EDITABLE_PREFIX}*"))
    # A copy of a file would be the checkout's, whatever is there.
    return tuple(path for path in found if not any(_is_copy(file) for file in path.rglob("*.py")))


def _is_copy(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def is_free(top: Path, name: Path) -> bool:
    """Return whether nothing of the tree at *top* is at *name*, so that it can be put there."""
    path = top
    for part in name.parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return False
        if not path.exists():
            return True
    return not any(path.iterdir()) or _is_link_folder(path)


def link_dependencies(root: Path, top: Path, names: Iterable[Path]) -> None:
    """Link the dependencies at *names* of the checkout *root* into the tree *top*, where it has nothing
    there.
    """
    for name in names:
        if is_free(top, name):
            _link_all(root, top, name)
            (top / name / ".gitignore").write_text(_LINK_FOLDER_IGNORE)


def remove_dependency_links(top: Path, names: Iterable[Path]) -> None:
    """Remove what `lend` put into the tree at *top*."""
    for name in names:
        if (top / name).is_dir() and not (top / name).is_symlink() and _is_link_folder(top / name):
            remove(top / name)


def _is_link_folder(directory: Path) -> bool:
    mark = directory / ".gitignore"
    return (
        mark.is_file() and not mark.is_symlink() and mark.read_text(errors="replace") == _LINK_FOLDER_IGNORE
    )


def _link_all(root: Path, top: Path, name: Path) -> None:
    """Make a directory with a link for each entry; links of another time are made again."""
    directory = top / name
    directory.mkdir(parents=True, exist_ok=True)
    for entry in _entries(directory):
        if entry.is_symlink():
            Path(entry.path).unlink()
    for entry in _entries(root / name):
        target = directory / entry.name
        if os.path.lexists(target):
            continue
        if entry.is_dir(follow_symlinks=False) and entry.name.startswith(_SCOPES):
            _link_all(root, top, name / entry.name)
        else:
            target.symlink_to(_target(root, top, Path(entry.path)))


def _target(root: Path, top: Path, path: Path) -> Path:
    """Return where a link that stands for *path* has to lead: into the tree where *path* leads to ours."""
    if not path.is_symlink():
        return path
    where = Path(os.path.normpath(path.parent / path.readlink()))
    return top / where.relative_to(root) if where.is_relative_to(root) else path


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        return sorted(found, key=lambda entry: entry.name)


# Packages that an interpreter finds in the user's checkout, and how it finds them in another tree instead.
#
# `pip install -e .` writes a path of the checkout into a file of the environment. Where there is no sandbox,
# a test that is run with this environment in another tree would import the checkout: it would be judged by
# code that nobody handed in. What such files say is read here, and a PYTHONPATH is made that comes before
# it.

PATIENCE: Final = 10.0  # seconds for an interpreter to say where its packages are; it takes a few hundredths
_ASK: Final = "import json, site; print(json.dumps([*site.getsitepackages(), site.getusersitepackages()]))"
_FINDER: Final = re.compile(r"__editable__.*finder\.py|_editable_impl_.*\.py|__editable__.*\.py")
_CODE: Final = ("import ", "import\t")
# Options by which Python does not look at PYTHONPATH at all.
_ISOLATED: Final = re.compile(r"python[\d.]*\s+(?:-\S+\s+)*?-[A-Za-z]*[IE]")


class EditableLink(NamedTuple):
    """One editable installation: the *file* that points into the checkout, and the *path* it names."""

    file: Path
    path: Path
    name: str | None = None  # of the module that is there; None: all that is in *path* can be imported


def editable_links(site: Path, root: Path, installed: Iterable[Path]) -> Iterator[EditableLink]:
    """Yield how the packages in *site* lead into the checkout *root*, but for what is *installed* there."""
    for lead in _links_in_site(site):
        if lead.path.is_relative_to(root) and not is_below(lead.path, installed):
            yield lead


def unexplained_install(site: Path, root: Path, leads: Sequence[EditableLink]) -> Path | None:
    """Return the record of an editable installation from *root* that *leads* do not explain."""
    for record in sorted(site.glob("*.dist-info/direct_url.json")):
        told = _json(record)
        where = Path(unquote(urlsplit(str(told.get("url", ""))).path) or "/")
        is_editable = bool(told.get("dir_info", {}).get("editable"))
        if (
            is_editable
            and where.is_relative_to(root)
            and not any(is_below(one.path, [where]) for one in leads)
        ):
            return record
    return None


def _links_in_site(site: Path) -> Iterator[EditableLink]:
    for file in sorted([*site.glob("*.pth"), *site.glob("*.egg-link")]):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.startswith((*_CODE, "#")) and not line.startswith(".."):
                yield EditableLink(file, Path(os.path.normpath(site / line.strip())))
    for file in sorted(site.glob("*.py")):
        if _FINDER.fullmatch(file.name):
            yield from (EditableLink(file, Path(path), name) for name, path in _mapping(file).items())


def _mapping(file: Path) -> dict[str, str]:
    """Return the table of modules that a finder of setuptools' has."""
    try:
        tree = files.parse_python(file.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            try:
                return dict(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                return {}
    return {}


def _json(path: Path) -> dict[str, dict[str, object]]:
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def search_path(leads: Iterable[EditableLink], root: Path, top: Path, links: Path) -> list[str]:
    """Return the directories of the tree *top* in which the modules of *leads* are found first.

    Modules that are found under another name than that of their directory get one in *links*.
    """
    found: dict[Path, None] = {}
    for lead in leads:
        for base, name, path in _search_entries(lead):
            here = top / base.relative_to(root)
            if name is None and (base != root or not _hides_the_library(top)):
                found[here] = None
                continue
            found[links] = None
            _make_links(links, name, top / path.relative_to(root), here)
    return [str(path) for path in found]


def _search_entries(lead: EditableLink) -> Iterator[tuple[Path, str | None, Path]]:
    """Yield the directory to search, the name that it has to be found by where that differs, and its path."""
    if lead.name is not None:
        parts = lead.name.split(".")
        is_there = lead.path.parts[-len(parts) :] == tuple(parts)
        base = lead.path.parents[len(parts) - 1] if is_there else lead.path.parent
        yield base, None if is_there else lead.name, lead.path
    elif lead.path.name.startswith(STRICT_EDITABLE_PREFIX):
        yield from ((base, None, base) for base in dict.fromkeys(_link_sources(lead.path)))
    else:
        yield lead.path, None, lead.path


def _link_sources(directory: Path) -> Iterator[Path]:
    """Yield where the files are that a strict installation has links to, without the path inside of it."""
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory).parts
        if path.is_symlink() and (real := path.resolve()).parts[-len(inside) :] == inside:
            yield real.parents[len(inside) - 1]


def _hides_the_library(top: Path) -> bool:
    """Return whether a directory, searched before Python's own, would hide modules of that."""
    names = {path.stem for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return bool(names & sys.stdlib_module_names)


def _make_links(links: Path, name: str | None, path: Path, here: Path) -> None:
    """Put links to what can be imported into *links*: one module by its *name*, or all but Python's own."""
    wanted = {name.replace(".", "/"): path} if name else _importable(here)
    for at, target in wanted.items():
        suffix = "" if target.is_dir() else ".py"
        link = links / f"{at}{suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target if target.is_dir() else target.with_suffix(".py"))


def _importable(top: Path) -> dict[str, Path]:
    found = [path for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return {path.stem: path for path in found if path.stem not in sys.stdlib_module_names}


def site_packages(environment: Mapping[str, str], line: str, installed: Iterable[Path]) -> list[Path]:
    """Return where the interpreters have their packages that *line* may run."""
    words = [Path(word) for word in re.findall(r"(?:^|[\s='\"])(/[^\s'\";|&]+)", line)]
    path = environment.get("PATH", os.defpath)
    homes = [*installed, *(word.parent.parent for word in words if word.parent.name == "bin")]
    homes += [Path(environment["VIRTUAL_ENV"])] if environment.get("VIRTUAL_ENV") else []
    homes += [Path(word).parent for word in path.split(os.pathsep) if Path(word).name == "bin"]
    found = [
        site
        for home in homes
        if os.path.exists(home / "pyvenv.cfg")  # noqa: PTH110 - the other raises where we may not look
        for site in home.glob("lib/python*/site-packages")
    ]
    programs = dict.fromkeys(shutil.which(name, path=path) for name in ("python3", "python"))
    found += [Path(site) for program in programs if program for site in _site_packages_of(program)]
    return [site for site in dict.fromkeys(found) if os.path.isdir(site)]  # noqa: PTH112 - as above


@cache
def _site_packages_of(program: str) -> tuple[str, ...]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [program, "-c", _ASK],
            cwd="/",
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        return tuple(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


class Redirection(NamedTuple):
    """How what runs in the tree *top* finds that tree, and never the checkout *root* that it belongs to."""

    root: Path
    top: Path
    installed: Sequence[Path]  # in the checkout
    links: Path  # a directory for modules that are found under another name than that of their file

    def require_redirectable(self, environment: Mapping[str, str], line: str) -> None:
        """Refuse to run *line* where it would import the checkout and cannot be led elsewhere."""
        for site in site_packages(environment, line, self.installed):
            leads = list(editable_links(site, self.root, self.installed))
            if record := unexplained_install(site, self.root, leads):
                raise ImportsUserCheckout(record)
            if leads and _ISOLATED.search(line):
                raise ImportsUserCheckout(
                    leads[0].file, f", and `{line}` ignores where else to look (-I, -E)"
                )

    def environment(self, environment: Mapping[str, str], line: str = "") -> dict[str, str]:
        """Return *environment* with every search path in it leading to the tree."""
        known = site_packages(environment, line, self.installed)
        leads = [lead for site in known for lead in editable_links(site, self.root, self.installed)]
        mapped = {
            name: os.pathsep.join(map(self._mapped, value.split(os.pathsep)))
            for name in ("PATH", "PYTHONPATH", "NODE_PATH")
            if (value := environment.get(name))
        }
        first = [*search_path(leads, self.root, self.top, self.links), mapped.get("PYTHONPATH", "")]
        python = {"PYTHONPATH": os.pathsep.join(filter(None, first))} if any(first) else {}
        return {**environment, **mapped, **python}

    def _mapped(self, word: str) -> str:
        path = Path(word)
        if not path.is_relative_to(self.root) or is_below(path, [*self.installed, self.top]):
            return word
        return str(self.top / path.relative_to(self.root))

    def line(self, line: str) -> str:
        """Return *line* with the paths of the checkout, or of a worktree, as those of the tree."""
        stay = [re.escape(str(path.relative_to(self.root))) for path in self.installed]
        own = rf"{re.escape(str(self.root))}(?:/{re.escape(AREA)}/[^/\s'\";]+)?(?![\w.-])"
        kept = rf"(?!/(?:{'|'.join(stay)})(?![\w.-]))" if stay else ""
        return re.sub(own + kept, lambda _: str(self.top), line)


class ImportsUserCheckout(UnfitRepository):
    """Tests would import the user's checkout."""

    def __init__(self, file: Path, more: str = "") -> None:
        super().__init__(
            f"{file} leads Python to your checkout, so tests would judge that instead of the work{more}; "
            "install bubblewrap for a sandbox, or let `gates.setup` make an environment in each tree, as by "
            "`python3 -m venv .venv && .venv/bin/pip install -e .`"
        )


# Mount points inside a worktree: empty files and directories, created before a run and removed after it.


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
