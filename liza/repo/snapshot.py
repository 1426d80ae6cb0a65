"""What a worktree holds, as a tree: to compare, to commit, to put back, to record and to play again."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from liza.domain.record import Record, utc_now
from liza.errors import LizaError
from liza.repo import salvage
from liza.repo.command import encode_git
from liza.repo.objects import commit_message, list_tree
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository, branch_of
from liza.repo.worktree import Worktree
from liza.system.no_follow import read_file


class Patch(Record):
    """A part of what a run did to its tree: one commit, or what it left without one."""

    message: str | None = None  # of the commit; None where there was none
    diff: bytes = b""  # as `git diff --binary` prints it, new files included


def snapshot(worktree: Worktree) -> str:
    """Return the tree that the directory is now, with what is not committed and not ignored."""
    return _snapshot(worktree, worktree.head())


def _snapshot(worktree: Worktree, head: str | None) -> str:
    if head is not None and worktree.is_exactly(head):
        return worktree.repository.tree_of(head)
    with worktree.private_index(head) as index:
        if not worktree.stage_all(index) and head is not None:
            return worktree.repository.tree_of(head)
        tree = worktree.git("write-tree", environment=index)
        worktree.keep_staged(index, tree)
        return tree


def commit_all(worktree: Worktree, message: str, *, at: datetime, tree: str | None = None) -> str | None:
    """Commit whatever is not committed on the branch that is checked out; return None where nothing is.

    *tree* is what the directory is, for whoever knows it already.
    """
    spot, repository = worktree.head_position(), worktree.repository
    if spot is None or spot.branch is None:
        return None
    head, branch = spot.head, spot.branch
    tree = tree or _snapshot(worktree, head)
    if tree == spot.tree:
        return None
    commit = repository.commit_tree(tree, parents=(head,), message=f"{message.strip()}\n", at=at)
    if not repository.move_ref(BRANCHES + branch, to=commit, expected=head, why="commit what the agent left"):
        raise LizaError(f"the branch {branch} moved while its work was being committed; nothing was changed")
    if not worktree.use_staged(tree, commit):
        worktree.git("read-tree", "--reset", commit)
    return commit


def overlay(worktree: Worktree, tree: str) -> None:
    """Make the directory the *tree*, without a commit."""
    head = str(worktree.head())
    worktree.checkout_tree(tree)
    worktree.git("read-tree", "--reset", head)


def roll_back(worktree: Worktree, task: str, *, head: str, tree: str, at: datetime) -> None:
    """Undo all that was done since the directory was *tree* on *head*; what that was is saved first."""
    repository, ref = worktree.repository, branch_of(task)
    salvage.save_work(repository, task, worktree, at=at, losing=ref)
    worktree.mend()
    if not repository.move_ref(ref, to=head, expected=repository.commit_at(ref), why=f"{task} is put back"):
        raise LizaError(f"{task}: its branch moved while it was being put back; nothing more was changed")
    worktree.git("symbolic-ref", "HEAD", ref)
    with worktree.private_index(head) as index:
        worktree.stage_all(index)
        worktree.git("read-tree", "--reset", "-u", tree, environment=index)
    worktree.git("read-tree", "--reset", head)


class WorktreeState(NamedTuple):
    """What a worktree is: the commit of its HEAD, and the tree of its directory."""

    head: str
    tree: str


def worktree_state(worktree: Worktree) -> WorktreeState:
    head = worktree.head()
    return WorktreeState(str(head), _snapshot(worktree, head))


def altered_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths of the tree *before* that are not the same in *after*; additions do not count."""
    old, new = list_tree(repository, before), list_tree(repository, after)
    return [path for path, item in old.items() if new.get(path) != item]


def added_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths of the tree *after* that *before* does not have."""
    old = list_tree(repository, before)
    return [path for path in list_tree(repository, after) if path not in old]


def restore_paths(worktree: Worktree, tree: str, paths: list[str]) -> None:
    """Put files back to what they are in *tree*; all else stays as it is."""
    with worktree.private_index(tree) as index:
        stdin = b"".join(encode_git(path) + b"\0" for path in paths)
        worktree.git("checkout-index", "--force", "-z", "--stdin", environment=index, stdin=stdin)


def conflict_marked_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths in which git's marks of a conflict came with the change from *before* to *after*."""
    lines = repository.ask("diff", "--check", before, after).text.splitlines()
    return sorted({line.split(":")[0] for line in lines if line.endswith(": leftover conflict marker")})


@dataclass(eq=False)
class WorktreeTracker:
    """Records what runs do to their worktrees, and applies recorded patches.

    The state before the first run since `begin` and after the last is cached: reading a large tree is slow.
    """

    worktrees: Worktrees
    before: WorktreeState | None = None
    after: WorktreeState | None = None
    _known: WorktreeState | None = None  # what the next run begins with, where somebody has just looked

    def begin(self, known: WorktreeState | None = None) -> None:
        """Forget: what comes next is asked anew, perhaps in several runs; the first begins at *known*."""
        self.before = self.after = None
        self._known = known

    def mark(self, cwd: Path) -> str:
        known, self._known = self._known, None
        now = known or worktree_state(self._at(cwd))
        self.before, self.after = self.before or now, None
        return " ".join(now)

    def patches(self, cwd: Path, mark: str) -> list[Patch]:
        """Return what was done since *mark*: commit by commit where history only grew, else as one."""
        worktree = self._at(cwd)
        self.after = worktree_state(worktree)
        head, before = mark.split(" ")
        if self.after == (head, before):
            return []
        found = []
        for commit in _commits_since(worktree, head, self.after.head):
            message = commit_message(worktree.repository, commit).strip()
            tree = worktree.repository.tree_of(commit)
            found.append(Patch(message=message or commit, diff=_diff(worktree, before, tree)))
            before = tree
        rest = _diff(worktree, before, self.after.tree)
        return [*found, *([Patch(diff=rest)] if rest else [])]

    def apply(self, cwd: Path, patch: Patch) -> None:
        worktree = self._at(cwd)
        if patch.diff:
            diff = _with_local_labels(patch.diff, cwd)
            worktree.git("apply", "--binary", "--whitespace=nowarn", "-", stdin=diff)
        if patch.message is not None:
            commit_all(worktree, patch.message, at=utc_now())

    def _at(self, cwd: Path) -> Worktree:
        worktree = self.worktrees.worktree_at(cwd)
        if worktree is None or not worktree.is_there:
            raise LizaError(f"{cwd} is no worktree of Liza's, or somebody deleted it")
        return worktree


def _commits_since(worktree: Worktree, head: str, now: str) -> list[str]:
    if now == head or not worktree.repository.contains(now, head):
        return []
    return worktree.git("rev-list", "--reverse", "--first-parent", f"{head}..{now}").split()


def _with_local_labels(diff: bytes, cwd: Path) -> bytes:
    """Return *diff* with the commits in git's conflict marks as *cwd* has them: they are new each time."""
    if not _MARK.search(diff):
        return diff
    here = dict(_LABEL.findall(b"\n".join(_file_content(cwd, name) for name in _OLD.findall(diff))))
    for label, commit in here.items():
        diff = re.sub(rb"^([ -]" + label + b")" + _HASH, rb"\g<1>" + commit, diff, flags=re.MULTILINE)
    return diff


def _file_content(cwd: Path, name: bytes) -> bytes:
    try:
        return read_file(cwd, os.fsdecode(name), _LARGEST)
    except OSError:  # it is gone, or no file
        return b""


_LARGEST: Final = 16 << 20  # bytes of a file in which marks are looked for
_HASH: Final = rb"([0-9a-f]{40,64})$"
_LABEL: Final = re.compile(rb"^(<{7} |>{7} )" + _HASH, re.MULTILINE)
_MARK: Final = re.compile(rb"^[ -](?:<{7}|>{7}) " + _HASH, re.MULTILINE)
_OLD: Final = re.compile(rb"^--- a/(.+?)\t?$", re.MULTILINE)


def _diff(worktree: Worktree, before: str, after: str) -> bytes:
    words = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", before, after)
    return worktree.ask(*words).output
