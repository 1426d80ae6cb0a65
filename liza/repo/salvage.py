"""Nothing is ever the only copy and then deleted: what a worktree holds is saved before it goes.

Saved as a commit under `refs/liza/salvage/<task>/<n>`: changes of tracked files, untracked files, and
commits that no ref reaches any more (amended, reset, rebased away, made on a detached HEAD). Ignored files
are not: the project itself says that they can be made again, and secrets live among them. Files too large
for a repository, and repositories that an agent made inside the worktree, are moved aside on disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from liza.errors import NotThere, Refused
from liza.repo.command import find_objects, is_near_ancestor
from liza.repo.merge import Trailer, message_with_trailers, shorten_subject, single_line
from liza.repo.repository import BRANCHES, Repository, branch_of
from liza.repo.worktree import StatusEntry, Worktree, hashes_below, hashes_in_file, worktree_paths

SALVAGE_REFS: Final = "refs/liza/salvage/"
ASIDE: Final = ".salvage"  # below the area of the worktrees
DISARMED_GIT: Final = "dot-git"  # what `.git` is called among what was moved aside
LARGEST_FILE: Final = 50 << 20  # bytes; one more blob of this size is for ever in the user's repository
LARGEST_WHOLE: Final = 500 << 20  # bytes of one salvage, for the same reason


class Salvage(NamedTuple):
    """One salvage: a commit that holds everything."""

    task: str
    number: int
    commit: str
    at: datetime
    subject: str

    @property
    def ref(self) -> str:
        return f"{SALVAGE_REFS}{self.task}/{self.number}"

    @property
    def branch(self) -> str:
        return f"salvage/{self.task}-{self.number}"

    def to_json(self) -> dict[str, str | int]:
        """Return it as JSON values."""
        return {
            **self._asdict(),
            "at": f"{self.at:%Y-%m-%dT%H:%M:%SZ}",
            "ref": self.ref,
            "branch": self.branch,
        }

    def __str__(self) -> str:
        command = f"liza salvage restore {self.task} {self.number}"
        return f"{self.subject}; `{command}` makes the branch {self.branch}"


class SalvageContents(NamedTuple):
    """What there is to save: a tree, the commits it must keep, and what is too much for git."""

    tree: str
    parents: tuple[str, ...]
    aside: tuple[str, ...]
    subject: str


def save_work(
    repository: Repository, task: str, worktree: Worktree | None, *, at: datetime, losing: str | None = None
) -> Salvage | None:
    """Save what would go with *worktree* and with the ref *losing*; return None where nothing would."""
    contents = _salvage_contents(repository, task, worktree, losing)
    if contents is None:
        return None
    known = list_salvages(repository, task)
    saved = _repeated_salvage(repository, known, contents)
    if saved is None:
        number = max((one.number for one in known), default=0)
        saved = _record_salvage(repository, task, contents, at, after=number)
    if worktree:
        _move_aside(worktree, saved, contents.aside)
    return saved


def list_salvages(repository: Repository, task: str | None = None) -> list[Salvage]:
    """Return every salvage, or those of *task*, oldest first."""
    fields = "%(refname)%00%(objectname)%00%(creatordate:unix)%00%(subject)"
    output = repository.git("for-each-ref", f"--format={fields}", f"{SALVAGE_REFS}{task or ''}")
    found = (_parse_ref_line(line) for line in output.splitlines())
    # git reads the name as a pattern, in which an asterisk stands for every task
    wanted = (saved for saved in found if saved and task in (None, saved.task))
    return sorted(wanted, key=lambda saved: (saved.at, saved.task, saved.number))


def restore_salvage(repository: Repository, task: str, number: int) -> str:
    """Make a branch of a salvage and return its name; a branch that is there is never overwritten."""
    known = list_salvages(repository, task)
    saved = next((saved for saved in known if saved.number == number), None)
    if saved is None:
        numbers = ", ".join(str(saved.number) for saved in known) or "nothing"
        raise NotThere("salvage", f"{task} {number}", f"of {task} there is {numbers}")
    if not repository.move_ref(
        BRANCHES + saved.branch, to=saved.commit, expected=None, why="salvage restored"
    ):
        raise Refused(
            f"{task}: the branch {saved.branch} is there already, with other commits; "
            f"rename it (`git branch -m {saved.branch} <name>`) and try again"
        )
    return saved.branch


def adopt_salvages(repository: Repository, found: Mapping[str, str]) -> None:
    """Give each salvage of *found*, the task by its commit, that came from elsewhere a number here."""
    known = list_salvages(repository)
    here = {saved.commit for saved in known}
    for commit, task in found.items():
        if commit in here:
            continue
        numbers = [saved.number for saved in known if saved.task == task]
        for number in count(max(numbers, default=0) + 1):
            ref = f"{SALVAGE_REFS}{task}/{number}"
            if repository.move_ref(ref, to=commit, expected=None, why="salvage of another host"):
                break
        known = list_salvages(repository)


def _parse_ref_line(line: str) -> Salvage | None:
    ref, commit, seconds, subject = line.split("\0")
    task, _, number = ref.removeprefix(SALVAGE_REFS).partition("/")
    if not number.isdecimal():
        return None
    return Salvage(task, int(number), commit, datetime.fromtimestamp(int(seconds), UTC), subject)


def _salvage_contents(
    repository: Repository, task: str, worktree: Worktree | None, losing: str | None
) -> SalvageContents | None:
    spot = worktree and worktree.head_position()
    head = spot.head if spot else repository.commit_at(branch_of(task))
    known = _known_hashes(repository, task, worktree)
    tip = repository.commit_at(branch_of(task))
    if tip and losing != branch_of(task):  # which stays, and mostly has all of them
        known = {one for one in known if not is_near_ancestor(repository.common, one, tip)}
    lost = unreachable_tips(repository, known, losing)
    kept: list[StatusEntry] = []
    aside: list[str] = []
    tree = spot.tree if spot else repository.tree_of(head or lost[0]) if head or lost else ""
    if worktree and worktree.is_there:
        tree, kept, aside = _stage_uncommitted(worktree, head, tree)
    if not (kept or aside or lost):
        return None
    parents = tuple(dict.fromkeys([*([head] if head and (kept or aside) else []), *lost]))
    return SalvageContents(tree, parents, tuple(aside), _subject(task, len(kept), len(aside), len(lost)))


def _stage_uncommitted(
    worktree: Worktree, head: str | None, tree: str
) -> tuple[str, list[StatusEntry], list[str]]:
    """Return the tree that the directory is, the changes in it, and the paths that it does not hold.

    *tree* is that of *head*.
    """
    if head and worktree.is_exactly(head) and not worktree.has_foreign_git:
        return tree, [], []
    with worktree.private_index(head) as index:
        kept, aside = _partition(worktree.path, worktree.changes(index))
        if kept or not head:
            _stage(worktree, kept, index)
            tree = worktree.git("write-tree", environment=index)
    if worktree.has_foreign_git:
        aside.append(".git")
    return tree, kept, aside


def _subject(task: str, kept: int, aside: int, lost: int) -> str:
    counts = {"uncommitted": kept, "lost commits": lost, "moved aside": aside}
    return shorten_subject(
        f"Salvage of {task}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}"
    )


def _partition(root: Path, changes: Iterable[StatusEntry]) -> tuple[list[StatusEntry], list[str]]:
    """Return which changes go into the commit, and which paths are too much for it."""
    kept: list[StatusEntry] = []
    aside: list[str] = []
    whole = 0
    for change in sorted(changes):
        path = root / change.path
        size = 0 if change.is_deletion else path.lstat().st_size
        # A directory here is another repository, which git would store as a bare link to it.
        is_repository = not change.is_deletion and path.is_dir() and not path.is_symlink()
        if is_repository or size > LARGEST_FILE or whole + size > LARGEST_WHOLE:
            aside.append(change.path)
        else:
            kept.append(change)
            whole += size
    return kept, aside


def _stage(worktree: Worktree, changes: Sequence[StatusEntry], index: dict[str, str]) -> None:
    for change in changes:
        if change.has_content(worktree.path):
            _make_readable(worktree.path / change.path)
    worktree.stage(changes, index)


def _make_readable(path: Path) -> None:
    if not path.is_symlink() and not os.access(path, os.R_OK):
        path.chmod(path.stat().st_mode | stat.S_IRUSR)


def _known_hashes(repository: Repository, task: str, worktree: Worktree | None) -> set[str]:
    """Return every hash that the branch of *task*, its worktree and worktrees made inside that remember."""
    found = set(hashes_in_file(repository.common / "logs" / branch_of(task)))
    tip = repository.commit_at(branch_of(task))
    if tip:
        found.add(tip)
    for admin in [worktree.admin, *nested_admins(worktree)] if worktree else []:
        found |= hashes_below(admin)
    return found


def nested_admins(worktree: Worktree) -> list[Path]:
    """Return git's admin directories of worktrees that an agent added inside its own."""
    known = worktree_paths(worktree.repository).items()
    return [admin for admin, path in known if path != worktree.path and path.is_relative_to(worktree.path)]


def unreachable_tips(repository: Repository, hashes: Iterable[str], losing: str | None = None) -> list[str]:
    """Return the commits among and above *hashes* that no ref but *losing* reaches; only the topmost."""
    commits = _commits(repository, hashes)
    if not commits:
        return []
    spared = [f"--exclude={losing}"] if losing else []
    words = ("rev-list", "--parents", "--stdin", "--not", *spared, "--glob=refs/*")
    rows = [line.split() for line in repository.git(*words, stdin="\n".join(commits).encode()).splitlines()]
    beneath = {parent for row in rows for parent in row[1:]}
    return [row[0] for row in rows if row[0] not in beneath]


def _commits(repository: Repository, hashes: Iterable[str]) -> list[str]:
    found = find_objects(repository.common, sorted(hashes))
    return [one.name for one in found if one and one.type == "commit"]


def _repeated_salvage(
    repository: Repository, known: Iterable[Salvage], contents: SalvageContents
) -> Salvage | None:
    """Return the latest salvage if it has the same contents: repeating a step after a crash adds nothing."""
    latest = max(known, key=lambda saved: saved.number, default=None)
    if latest is None:
        return None
    tree, *parents = repository.git("show", "--no-patch", "--format=%T %P", latest.commit).split()
    return latest if (tree, tuple(parents)) == (contents.tree, contents.parents) else None


def _record_salvage(
    repository: Repository, task: str, contents: SalvageContents, at: datetime, *, after: int
) -> Salvage:
    at = at.replace(microsecond=0)  # as git keeps it
    number = after
    while True:
        number += 1
        message = _message(task, number, contents)
        commit = repository.commit_tree(contents.tree, parents=contents.parents, message=message, at=at)
        saved = Salvage(task, number, commit, at, contents.subject)
        if repository.move_ref(saved.ref, to=commit, expected=None, why="salvage"):
            return saved


def _message(task: str, number: int, contents: SalvageContents) -> str:
    place = _aside_folder(task, number)
    moved = "".join(f"{place}/{single_line(_aside_name(path))}\n" for path in contents.aside)
    body = f"Too much for git, and kept on disk:\n{moved}" if moved else ""
    return message_with_trailers(contents.subject, body, {Trailer.TASK: task})


def _aside_name(path: str) -> str:
    return DISARMED_GIT if path == ".git" else path


def _aside_folder(task: str, number: int) -> str:
    return f"{ASIDE}/{task}-{number}"


def _move_aside(worktree: Worktree, saved: Salvage, paths: Iterable[str]) -> None:
    for path in paths:
        _move_disarmed(
            worktree.path / path, worktree.repository.area / _aside_folder(saved.task, saved.number) / path
        )


def set_repository_aside(worktree: Worktree, task: str) -> None:
    """Move a repository that stands in place of ours aside, without a record of it."""
    _move_disarmed(worktree.path / ".git", worktree.repository.area / ASIDE / task / ".git")


def _move_disarmed(source: Path, target: Path) -> None:
    """Move *source* to *target*, or beside it; what is moved is no repository any more to who looks there.

    Its configuration may name programs, and git would start them for whoever enters the directory.
    """
    if target.name == ".git":
        target = target.with_name(DISARMED_GIT)
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}~")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    if os.path.lexists(target / ".git"):
        (target / ".git").rename(target / DISARMED_GIT)
