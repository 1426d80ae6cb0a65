"""What merging and having a worktree cost on repositories of growing size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.record import utc_now
from liza.repo.command import exclude
from liza.repo.merge import (
    Landed,
    Merged,
    MergeDescription,
    Trailer,
    commit_merge,
    land_merge,
    merge,
    merge_doubts,
)
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.projects import git
from scripts.benchmark.race import quantile
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

FOLDER: Final = 100  # files in a directory
INTEGRATION: Final = f"{BRANCHES}liza/integration"
WORK: Final = "work"  # the branches to be merged are work-0, work-1 and so on
SYNCS: Final = ("-c", "core.fsync=committed,reference", "-c", "core.fsyncMethod=batch")  # as Liza's own git
LEAST_ROOM: Final = 30.0  # seconds that must be left for the largest repository


class Merges(NamedTuple):
    """Seconds of each merge: without a checkout, the same with its proof, and by git in a checkout."""

    ours: list[float]
    proven: list[float]
    theirs: list[float]


class Checkouts(NamedTuple):
    """Seconds until a task had its worktree, and until it was given back."""

    first: list[float]
    later: list[float]
    back: list[float]
    theirs: list[float]  # `git worktree add`


class Found(NamedTuple):
    merges: Merges
    checkouts: Checkouts


Sizes = dict[int, Found | str]  # by files; a string says why there is no measurement


def run_sizes(plan: DaemonPlan, place: Path, deadline: float) -> Sizes:
    found: Sizes = {}
    for files in plan.files:
        if time.monotonic() + LEAST_ROOM > deadline:
            found[files] = "skipped: the time for the daemon's part is used up"
            continue
        progress(f"a repository of {files:,} files")
        with _repository(place, files, plan.merges) as repository:
            merges = _merges(repository, plan.merges)
            found[files] = Found(merges, _checkouts(repository, plan.worktrees))
    return found


@contextmanager
def _repository(place: Path, files: int, branches: int) -> Iterator[Repository]:
    """Give a repository with a checkout, and *branches* branches that each changed a file of their own."""
    with TemporaryDirectory(prefix="files-", dir=place) as name:
        root = Path(name)
        git(root, "init", "-q", "-b", "main")
        git(root, "fast-import", "--quiet", stdin="".join(_stream(files, branches)).encode())
        git(root, "reset", "-q", "--hard")
        exclude(root, ("/.worktrees/",))
        repository = Repository.around(root)
        repository.ensure_branch(INTEGRATION.removeprefix(BRANCHES))
        yield repository


def _stream(files: int, branches: int) -> Iterator[str]:
    yield _commit("main", 1, "begin")
    for number in range(files):
        yield _file(number, f"file {number}\n")
    for branch in range(branches):
        yield _commit(f"{WORK}-{branch}", 2, f"work {branch}", parent="refs/heads/main")
        yield _file(branch * files // branches, f"changed by {branch}\n")


def _commit(branch: str, at: int, message: str, parent: str | None = None) -> str:
    lines = (
        f"commit {BRANCHES}{branch}",
        f"committer bench <bench@localhost> {at} +0000",
        f"data {len(message)}\n{message}",
        *([f"from {parent}"] if parent else []),
    )
    return "\n".join(lines) + "\n"


def _file(number: int, text: str) -> str:
    return f"M 100644 inline d{number // FOLDER}/f{number}.txt\ndata {len(text)}\n{text}\n"


def _merges(repository: Repository, branches: int) -> Merges:
    found = Merges([], [], [])
    for number in range(branches):
        begun = time.monotonic()
        commit, sealed, tree = _merge(repository, f"{WORK}-{number}")
        landed = time.monotonic()
        if merge_doubts(repository, INTEGRATION, sealed, commit=commit, tree=tree):
            raise RuntimeError(f"{WORK}-{number} was not merged")
        found.ours.append(landed - begun)
        found.proven.append(time.monotonic() - begun)
    for number in range(branches):
        words = (*SYNCS, "merge", "--quiet", "--no-ff", "--no-edit", f"{WORK}-{number}")
        found.theirs.append(_seconds(partial(git, repository.root, *words)))
    return found


def _merge(repository: Repository, branch: str) -> tuple[str, str, str]:
    """Merge as the reviewer does, and return the work, the merge and its tree."""
    onto, commit = repository.commit_at(INTEGRATION), repository.commit_at(BRANCHES + branch)
    merged = merge(repository, str(onto), str(commit))
    if not isinstance(merged, Merged):
        raise TypeError(f"{branch} conflicts: {merged}")
    account = MergeDescription(f"Merge {branch}", {Trailer.TASK: branch})
    sealed = commit_merge(repository, merged, account, onto=str(onto), commit=str(commit), at=utc_now())
    landed = land_merge(repository, INTEGRATION, sealed, onto=str(onto), task=branch)
    if not isinstance(landed, Landed):
        raise TypeError(f"{branch} was overtaken: {landed}")
    return str(commit), sealed, merged.tree


def _checkouts(repository: Repository, rounds: int) -> Checkouts:
    """Time two tasks at once, whose worktrees are made, then pairs of tasks that get the same ones again.

    Git's own are made between the two: the first files on fresh inodes can take ten times as long as the
    next, whoever makes them.
    """
    found = Checkouts([], [], [], [])
    worktrees, base = Worktrees(repository), str(repository.commit_at(INTEGRATION))
    for number in range(rounds):
        pair = (f"task-{number}-a", f"task-{number}-b")
        into = found.first if number == 0 else found.later
        for name in pair:
            if number == 0 and name == pair[1]:
                found.theirs.extend(_plain(repository, base, count) for count in range(len(pair)))
            into.append(_seconds(partial(worktrees.renew, name, base, at=utc_now())))
            path = worktrees.path_of(name)
            (path / "left.txt").write_text("what the task left behind\n")
            git(path, "add", "--all")
            git(path, "commit", "-q", "-m", "work")
        for name in pair:
            found.back.append(_seconds(partial(worktrees.release, name, at=utc_now())))
    return found


def _plain(repository: Repository, base: str, number: int) -> float:
    words = ("worktree", "add", "-q", "--detach", str(repository.root / f"plain-{number}"), base)
    return _seconds(partial(git, repository.root, *words))


def _seconds(do: Callable[[], object]) -> float:
    begun = time.monotonic()
    do()
    return time.monotonic() - begun


def merge_table(found: Sizes) -> Table:
    table = Table(
        "A merge, median: merge-tree, commit-tree and update-ref, against git with the same syncs",
        ("files", "merges", "liza ms", "with proof ms", "git merge --no-ff ms", "proven/git"),
    )
    for files, each in found.items():
        if isinstance(each, str):
            table.notes.append(f"{files:,} files: {each}")
        else:
            ours, proven, theirs = (median(took) for took in each.merges)
            numbers = (ours * MS, proven * MS, theirs * MS, proven / theirs)
            table.add(files, len(each.merges.ours), *numbers)
    return table


def worktree_table(found: Sizes) -> Table:
    table = Table(
        "   Until a task has its worktree",
        (
            "files",
            "first ms",
            "slower ms",
            "later ms",
            "giving back ms",
            "git worktree add ms",
            "its slower ms",
        ),
    )
    for files, each in found.items():
        if not isinstance(each, str):
            first, later, back, theirs = each.checkouts
            new, again = (min(first), max(first)), (median(later), median(back))
            numbers = (*new, *again, min(theirs), max(theirs))
            table.add(files, *(seconds * MS for seconds in numbers))
    table.notes += [
        "first: made, the quicker and the slower of two; git's two were made between them",
        "later: median, one that another task gave back, with a commit in it",
    ]
    return table


def median(took: list[float]) -> float:
    return quantile(sorted(took), 0.5)
