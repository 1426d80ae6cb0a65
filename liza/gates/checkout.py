"""One scratch directory for all commands of a case: exact before each, prepared as rarely as possible.

There is one directory, because a project's setup may write its path somewhere (an editable installation). A
command may leave nothing to the next: what it made is removed, and where it touched what was there, all of
it is made again. What was touched is seen by the ctime of a file, which cannot be set back.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from liza.errors import LizaError
from liza.gates.runner import CommandResult, CommandRunner, describe_ending
from liza.repo.pool import Worktrees
from liza.repo.scratch import refill, scratch_tree
from liza.system.no_follow import remove

SETUP: Final = "setup"  # names the run of the project's setup
TEARDOWN: Final = "teardown"  # and of what follows the last command on a tree
# Commands that make an environment: the one of the user's checkout is in their way, or would be changed.
_INSTALLS: Final = re.compile(
    r"\b(?:npm|pnpm|yarn|bun|poetry|pdm|uv|hatch|bundle|composer|pipenv|conda|mamba|rye|pixi)\s+"
    r"(?:-\S+\s+)*(?:ci|i|install|add|sync|update|env|create|venv|pip)\b"
    r"|\bpip[\d.]*\s+(?:-\S+\s+)*install\b|\bvirtualenv\b|-m\s+(?:venv|virtualenv|pip)\b|\byarn\s*(?:$|[;&|])"
)

log = logging.getLogger(__name__)


def installs(line: str) -> bool:
    """Return whether the setup *line* installs packages, and so makes an environment of its own."""
    return _INSTALLS.search(line) is not None


class PreparedTree(NamedTuple):
    """A directory that is exactly a tree, and what the project's setup said there."""

    path: Path
    setup: CommandResult | None


class _FileStamp(NamedTuple):
    mode: int
    inode: int
    size: int
    changed: int  # nanoseconds; 0 for a directory, whose own time moves with every file in it


class Checkout:
    """The scratch directory of a case; nothing is taken before somebody asks."""

    def __init__(
        self, worktrees: Worktrees, run: CommandRunner, setup: str | None, teardown: str | None = None
    ) -> None:
        self._worktrees = worktrees
        self._run = run
        self._setup = setup
        self._teardown = teardown
        self._stack = ExitStack()
        self._tree: str | None = None
        self._prepared: PreparedTree | None = None
        self._marks: dict[str, _FileStamp] = {}

    def at(self, tree: str, commit: str | None = None) -> PreparedTree:
        """Return the directory as *tree*, which is that of *commit*, after the project's setup."""
        if self._prepared and self._tree == tree and self._restore(self._prepared.path):
            return self._prepared
        path = self._check_out(commit or tree)
        setup = self._run(self._setup, path, SETUP) if self._setup else None
        self._marks = dict(_file_stamps(path))
        self._tree, self._prepared = tree, PreparedTree(path, setup)
        return self._prepared

    def close(self) -> None:
        with self._stack:
            self._tear_down()
            self._tree = self._prepared = None

    def _tear_down(self) -> None:
        """Run what ends whatever the setup or the commands on a tree began."""
        if self._teardown and self._prepared:
            ran = self._run(self._teardown, self._prepared.path, TEARDOWN)
            if not ran.is_green:
                log.warning("teardown (%s) %s", self._teardown, describe_ending(ran))

    def _check_out(self, name: str) -> Path:
        if self._prepared is None:
            return self._stack.enter_context(scratch_tree(self._worktrees, name))
        self._tear_down()
        refill(self._worktrees, self._prepared.path, name)
        return self._prepared.path

    def _restore(self, path: Path) -> bool:
        """Remove files that a command created; return whether all others are unchanged."""
        now = dict(_file_stamps(path))
        if any(now.get(name) != mark for name, mark in self._marks.items()):
            return False
        try:
            for name in sorted(now.keys() - self._marks.keys()):
                remove(path / name)
        except (LizaError, OSError):
            return False
        return True


def _file_stamps(top: Path) -> Iterator[tuple[str, _FileStamp]]:
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            entries = list(os.scandir(top / inside))
        except OSError:  # a command took our rights away, so that its mode differs
            continue
        for entry in entries:
            name = f"{inside}/{entry.name}" if inside else entry.name
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                waiting.append(name)
                yield name, _FileStamp(facts.st_mode, facts.st_ino, 0, 0)
            else:
                yield name, _FileStamp(facts.st_mode, facts.st_ino, facts.st_size, facts.st_ctime_ns)
