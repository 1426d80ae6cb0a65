"""What Liza does without a git process comes to what git says, and where it might not, git is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.repo.merge import merge_disjoint
from liza.repo.snapshot import commit_all, snapshot
from tests.support.git_processes import count_git
from tests.support.repos import NOW, Hand, Home

if TYPE_CHECKING:
    from collections.abc import Callable

FILES: Final = {"a.txt": "a\n", "lib/b.txt": "b\n", "lib/deep/c.txt": "c\n"}


def set_back(path: Path) -> None:
    """Change a file and give it its old size and time, as somebody does who hides it."""
    facts = path.stat()
    path.write_text("x\n")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def replace_by(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


CHANGES: Final[dict[str, Callable[[Path], object]]] = {
    "a file is written": lambda at: (at / "a.txt").write_text("x\n"),
    "a file is written and its time set back": lambda at: set_back(at / "a.txt"),
    "a file is added": lambda at: (at / "new.txt").write_text("x\n"),
    "a file is added below": lambda at: (at / "lib" / "new.txt").write_text("x\n"),
    "a folder is added": lambda at: (at / "more").mkdir(),
    "a file goes": lambda at: (at / "lib" / "b.txt").unlink(),
    "a file becomes a program": lambda at: (at / "a.txt").chmod(0o755),
    "a file becomes a link": lambda at: replace_by(at / "a.txt", lambda path: path.symlink_to("lib")),
    "a file becomes a folder": lambda at: replace_by(at / "a.txt", Path.mkdir),
    "a pipe is added": lambda at: os.mkfifo(at / "pipe"),
    "a file is ignored": lambda at: (at / "x.ignored").write_text("x\n"),
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.base = home.commit({**FILES, ".gitignore": "*.ignored\n"})
    home.repository.ensure_branch("integration")
    return home


def test_only_a_checkout_that_nobody_touched_is_taken_for_one(home: Home) -> None:
    worktree, _ = home.task("t1")
    head = str(worktree.head())
    for name, change in CHANGES.items():
        worktree.reset(head)
        assert worktree.is_exactly(head), name
        change(worktree.path)
        assert not worktree.is_exactly(head), name
    worktree.reset(head)
    assert not worktree.is_exactly("0" * 40)


def test_a_clean_tree_is_known_without_git_and_one_that_was_committed_as_well(home: Home) -> None:
    worktree, _ = home.task("t1")
    with count_git() as started:
        clean = snapshot(worktree)
    assert clean == home.repository.tree_of(str(worktree.head()))
    assert not started

    (worktree.path / "a.txt").write_text("more\n")
    tree = snapshot(worktree)
    commit = commit_all(worktree, "More", at=NOW, tree=tree)
    assert commit
    assert worktree.is_exactly(commit)
    agent = Hand(worktree.path)
    assert agent.git("status", "--porcelain") == ""
    assert agent.git("show", "HEAD:a.txt") == "more"


def test_the_index_of_other_files_is_not_used_for_a_commit(home: Home) -> None:
    worktree, _ = home.task("t1")
    (worktree.path / "a.txt").write_text("first\n")
    first = snapshot(worktree)
    (worktree.path / "a.txt").write_text("second\n")
    second = snapshot(worktree)

    commit = commit_all(worktree, "The first", at=NOW, tree=first)

    assert commit
    assert first != second
    assert home.repository.tree_of(commit) == first
    assert not worktree.is_exactly(commit)
    assert Hand(worktree.path).git("diff", "--name-only") == "a.txt"


MERGES: Final[dict[str, tuple[dict[str, str | None], dict[str, str | None], bool]]] = {
    # what one side does, what the other does, whether it is merged without git
    "two files of one folder": ({"lib/b.txt": "x\n"}, {"lib/new.txt": "y\n"}, True),
    "two folders": ({"lib/deep/c.txt": "x\n"}, {"other/d.txt": "y\n"}, True),
    "the same change on both sides": ({"a.txt": "x\n", "n": "1\n"}, {"a.txt": "x\n", "m": "2\n"}, True),
    "one file on both sides": ({"a.txt": "x\n"}, {"a.txt": "y\n"}, False),
    "two new files of one name": ({"new": "x\n"}, {"new": "y\n"}, False),
    "a file and a folder of one name": ({"new": "x\n"}, {"new/inside": "y\n"}, False),
    "a file that one side moved": ({"a.txt": None, "moved.txt": "a\n"}, {"lib/b.txt": "x\n"}, False),
    "a folder moved, and a file added to it": (
        {"lib/b.txt": None, "lib/deep/c.txt": None, "new/b.txt": "b\n", "new/deep/c.txt": "c\n"},
        {"lib/added.txt": "x\n"},
        False,
    ),
}


def test_what_is_merged_without_git_is_what_git_merges(home: Home) -> None:
    for number, (case, (one, other, is_merged)) in enumerate(MERGES.items()):
        sides = {f"ours-{number}": one, f"theirs-{number}": other}
        ours, theirs = (side(home, name, files) for name, files in sides.items())
        tree = merge_disjoint(home.repository, ours, theirs)
        assert (tree is not None) == is_merged, case
        if tree:
            assert tree == home.git("merge-tree", "--write-tree", ours, theirs), case


def side(home: Home, task: str, files: dict[str, str | None]) -> str:
    worktree, agent = home.task(task)
    for name in [name for name, text in files.items() if text is None]:
        (worktree.path / name).unlink()
    return agent.commit({name: text for name, text in files.items() if text is not None})


NAMES: Final = ("Ada", "Ada, Countess <of> Lovelace.", "  Ada  ", "Ada\tL", "Ädä")
MESSAGES: Final = ("One line\n", "no end", "", "a\n\nb: c\n\n", "\n\nlate\n")


def test_a_commit_is_the_one_that_git_makes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, head = home.repository, home.git("rev-parse", "HEAD")
    tree = repository.tree_of(head)
    moment = f"@{int(NOW.timestamp())} +0000"
    for name, message in [*((name, MESSAGES[0]) for name in NAMES), *((NAMES[0], text) for text in MESSAGES)]:
        monkeypatch.setenv("GIT_AUTHOR_NAME", name)
        wanted = subprocess.run(
            ["git", "commit-tree", "-p", head, "-F", "-", tree],
            cwd=home.directory,
            env={**os.environ, "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment},
            input=message.encode(),
            capture_output=True,
            check=True,
        ).stdout.decode()
        made = repository.commit_tree(tree, parents=(head, head), message=message, at=NOW)
        assert made == wanted.strip(), (name, message)
