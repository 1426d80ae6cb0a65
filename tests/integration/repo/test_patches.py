"""What a rehearsal needs of git: a repository of its own, and patches that fit the second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.repo.pool import Worktrees
from liza.repo.remote import clone_repository
from liza.repo.repository import Repository
from liza.repo.snapshot import Patch, WorktreeTracker
from tests.support.repos import NOW, Hand

if TYPE_CHECKING:
    from pathlib import Path

MARKED = "<<<<<<< {0}\nours\n=======\ntheirs\n>>>>>>> {1}\n"


def made(root: Path) -> Hand:
    root.mkdir()
    hand = Hand(root)
    hand.git("init", "--quiet", "-b", "main")
    hand.commit({"a": "a\n"})
    return hand


def test_a_clone_has_the_history_and_none_of_the_refs(tmp_path: Path) -> None:
    user = made(tmp_path / "user")
    first = user.git("rev-parse", "HEAD")
    user.git("branch", "liza/integration", user.commit({"b": "b\n"}))
    clone = clone_repository(Repository.around(user.directory), tmp_path / "clone", at=first)
    assert clone.head() == first
    assert (clone.root / "a").read_text() == "a\n"
    assert not (clone.root / "b").exists()
    assert clone.git("for-each-ref", "--format=%(refname)") == "refs/heads/rehearsal"
    assert clone.commit_at(user.git("rev-parse", "HEAD")) is not None


def test_a_conflict_is_resolved_again_though_its_commits_are_others(tmp_path: Path) -> None:
    """git names commits in its marks, and the same merge made again has other commits."""
    repository = Repository.around(made(tmp_path / "user").directory)
    trees = WorktreeTracker(Worktrees(repository))
    worktree = trees.worktrees.prepare("t1", str(repository.head()), at=NOW)
    file = worktree.path / "a"
    file.write_text(MARKED.format("1" * 40, "2" * 40))
    mark = trees.mark(worktree.path)
    file.write_text("both\n")
    (patch,) = trees.patches(worktree.path, mark)

    file.write_text(MARKED.format("3" * 40, "4" * 40))
    trees.apply(worktree.path, Patch(diff=patch.diff))
    assert file.read_text() == "both\n"
