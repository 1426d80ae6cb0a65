"""Facts of git about submitted work, whatever the agent says."""

from __future__ import annotations

from typing import Final, NamedTuple

from liza.repo.objects import list_tree
from liza.repo.repository import AREA, TASK_PREFIX
from liza.repo.worktree import Worktree

PATHS_NAMED: Final = 5  # paths in a sentence; more are counted
_LINK_MODE: Final = "160000"
_FORBIDDEN: Final = {".liza": "belongs to Liza", AREA: "belongs to Liza", ".git": "belongs to git"}


class Submission(NamedTuple):
    """The commit that a worktree is at, and every reason why it cannot be taken."""

    head: str | None
    reasons: tuple[str, ...]

    @property
    def is_acceptable(self) -> bool:
        return not self.reasons


class CommittedPath(NamedTuple):
    """One path of a commit that differs from the base."""

    mode: str
    path: str


def inspect_submission(worktree: Worktree, task: str, base: str, *, tree: str | None = None) -> Submission:
    """Return the facts of what *task* would hand in from its worktree.

    *tree* is what the directory is, for whoever knows it already.
    """
    if not worktree.is_there:
        return Submission(None, (f"{task}: the worktree {worktree.path} is gone",))
    spot = worktree.head_position()
    if spot is None:
        return Submission(
            None, (f"{task}: HEAD of the worktree names no commit; check out {TASK_PREFIX}/{task}",)
        )
    head = spot.head
    reasons = [
        *_branch_problems(spot.branch, task),
        *_history_problems(worktree, head, base),
        *refusals(introduced_paths(worktree, base, head)),
        *([] if tree == spot.tree else _uncommitted_problems(worktree, head)),
    ]
    return Submission(head, tuple(f"{task}: {reason}" for reason in reasons))


def refusals(entries: list[CommittedPath]) -> list[str]:
    """Return what must not be in a commit, as sentences."""
    links = [entry.path for entry in entries if entry.mode == _LINK_MODE]
    reasons = [
        f"{summarize_paths(links)}: a repository inside the repository cannot be merged; add files instead"
    ]
    for name, why in _FORBIDDEN.items():
        inside = [entry.path for entry in entries if entry.path.split("/")[0].casefold() == name]
        reasons += [f"{summarize_paths(inside)} {why} and cannot be committed"] if inside else []
    return reasons if links else reasons[1:]


def introduced_paths(worktree: Worktree, base: str, head: str) -> list[CommittedPath]:
    """Return what *head* has that *base* has not, path by path."""
    old = list_tree(worktree.repository, base)
    items = list_tree(worktree.repository, head).items()
    return [CommittedPath(item.mode, path) for path, item in items if old.get(path) != item]


def summarize_paths(paths: list[str]) -> str:
    """Return the first of *paths*, and how many more there are."""
    shown = ", ".join(sorted(paths)[:PATHS_NAMED])
    return f"{shown} and {len(paths) - PATHS_NAMED} more" if len(paths) > PATHS_NAMED else shown


def _branch_problems(branch: str | None, task: str) -> list[str]:
    if branch == f"{TASK_PREFIX}/{task}":
        return []
    where = f"on the branch {branch}" if branch else "on no branch"
    return [f"the worktree is {where}; check out {TASK_PREFIX}/{task} and commit there"]


def _history_problems(worktree: Worktree, head: str, base: str) -> list[str]:
    if head == base:
        return ["nothing was committed since the base"]
    if not worktree.repository.contains(head, base):
        return [f"the commit {head[:12]} does not descend from the base {base[:12]}; keep the base's history"]
    return []


def _uncommitted_problems(worktree: Worktree, head: str) -> list[str]:
    if worktree.is_exactly(head):
        return []
    with worktree.private_index(head) as index:
        changes = worktree.changes(index)
    untracked = [change.path for change in changes if change.is_untracked]
    changed = [change.path for change in changes if not change.is_untracked]
    sentences = {"has uncommitted changes": changed, "has untracked files": untracked}
    return [
        f"the worktree {what} ({summarize_paths(paths)}); commit or remove them"
        for what, paths in sentences.items()
        if paths
    ]
