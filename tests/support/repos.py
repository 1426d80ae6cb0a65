"""Real repositories in a temporary directory, and people and agents who work in them with plain git."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from liza.repo.command import NOTHING, exclude
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.repo.worktree import Worktree

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
INTEGRATION: Final = "refs/heads/integration"


class Hand:
    """Somebody at a shell in *directory*: git as it is, with everything on that we switch off."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def git(self, *words: str, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(
            ["git", *words],
            input=stdin,
            cwd=self.directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr, done.stdout)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> Path:
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def commit(self, files: Mapping[str, str] = NOTHING) -> str:
        """Write *files* and commit everything."""
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "--all")
        self.git(
            "commit", "--quiet", "--no-verify", "--allow-empty", "-m", f"add {' '.join(files) or 'nothing'}"
        )
        return self.git("rev-parse", "HEAD")


@cache
def model() -> tuple[TemporaryDirectory[str], str]:
    """Make the repository that all others are copies of, and return it with its first commit."""
    place = TemporaryDirectory(prefix="liza-model-")
    atexit.register(place.cleanup)  # before Python itself, which would warn
    hand = Hand(Path(place.name))
    hand.git("init", "--quiet", "--initial-branch=main", "--template=")
    hand.git("config", "user.name", "Ada")
    hand.git("config", "user.email", "ada@example.org")
    exclude(hand.directory, ("/.liza/", "/.worktrees/"))
    files = {"a.txt": "one\ntwo\nthree\n", "src/b.py": "B = 1\n", ".gitignore": "*.log\n"}
    return place, hand.commit(files)


class Home(Hand):
    """The user's checkout, with the objects that Liza works with."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        place, self.base = model()
        if not directory.exists():
            shutil.copytree(place.name, directory)
        self.repository = Repository(directory, directory / ".git", directory / ".git")
        self.worktrees = Worktrees(self.repository)

    def task(self, name: str = "t1", base: str | None = None) -> tuple[Worktree, Hand]:
        """Prepare the worktree of a task and return it with an agent in it."""
        worktree = self.worktrees.prepare(name, base or self.base, at=NOW)
        return worktree, Hand(worktree.path)

    def reachable(self, commit: str) -> bool:
        return commit in self.git("rev-list", "--glob=refs/*").split()


def snapshot(directory: Path) -> dict[str, str]:
    """Return every path below *directory*, but for git's and Liza's, with its kind, mode and content."""
    found = {}
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name not in {".git", ".worktrees"}]
        for name in {*directories, *names} - {".git"}:
            path = Path(parent) / name
            mode = f"{path.lstat().st_mode:o}"
            content = str(path.readlink()) if path.is_symlink() else "" if path.is_dir() else path.read_text()
            found[str(path.relative_to(directory))] = f"{mode} {content}"
    return found
