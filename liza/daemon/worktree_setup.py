"""The project's setup in the worktree of an agent: once, until a lock file or a manifest changes.

Gates set up every tree that they test, since what a setup builds belongs to the tree. An agent keeps its
worktree over many turns and can build by itself; what it needs again is what was installed.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from liza.daemon.course import Halted, setup_runner
from liza.gates.checkout import SETUP, TEARDOWN
from liza.gates.finding import tail
from liza.gates.runner import describe_ending
from liza.repo.copies import copy_into
from liza.repo.snapshot import added_paths, altered_paths, restore_paths, snapshot
from liza.repo.worktree import write_text_whole
from liza.system.no_follow import first_line, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from liza.daemon.turn import Turn
    from liza.gates.runner import CommandResult
    from liza.repo.worktree import Worktree

# What says which packages a project has, by the end of the path.
DEPENDENCY_FILES: Final = (
    *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock"),
    *("bun.lockb", "pyproject.toml", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile", "Pipfile.lock"),
    *("setup.py", "setup.cfg", "requirements*.txt", "environment.yml", "Cargo.toml", "Cargo.lock", "go.mod"),
    *("go.sum", "Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "pom.xml", "build.gradle"),
    *(
        "build.gradle.kts",
        "gradle.lockfile",
        "mix.exs",
        "mix.lock",
        "pubspec.yaml",
        "pubspec.lock",
        "Makefile",
    ),
)
SHOWN_LINES: Final = 15  # lines of a failed setup that people are told

log = logging.getLogger(__name__)


def run_setup(turn: Turn, worktree: Worktree) -> str | None:
    """Run the project's setup in *worktree*, unless it ran there; return why nobody can work there."""
    config = turn.state.config
    copy_into(turn.place.repository, config.worktree.copied, worktree.path)
    line = config.gates.setup
    if line is None:
        return None
    key = _setup_key(line, worktree)
    if first_line(worktree.setup_record) == key:
        return None
    before = snapshot(worktree)
    ran = setup_runner(turn)(line, worktree.path, SETUP)
    _exclude_setup_files(worktree, before)
    if ran.is_green:
        write_text_whole(worktree.setup_record, key)
        return None
    why = f"setup ({line}) {describe_ending(ran)} in the worktree of {turn.task}: {_last_lines(ran)}"
    if before == turn.place.repository.tree_of(str(turn.state.task(str(turn.task)).base_commit)):
        return why
    log.warning("%s; its agent goes on, since it changed what is there", why)
    return None


def run_teardown(turn: Turn, worktree: Worktree) -> None:
    """Run the project's teardown where its setup ran; the next turn begins with the setup then."""
    line = turn.state.config.gates.teardown
    if line is None or not worktree.is_there or not worktree.setup_record.exists():
        return
    with suppress(Halted):
        ran = setup_runner(turn)(line, worktree.path, TEARDOWN)
        worktree.setup_record.unlink()
        # It runs what the agent left, after all that its run left was put right.
        turn.place.worktrees.secure(worktree, str(turn.task), at=turn.place.clock())
        if not ran.is_green:
            log.warning("teardown (%s) %s in the worktree of %s", line, describe_ending(ran), turn.task)


def _setup_key(line: str, worktree: Worktree) -> str:
    """Return a name for what a setup depends on; equal ones make equal environments."""
    patterns = [f":(glob)**/{name}" for name in DEPENDENCY_FILES]
    names = worktree.git("ls-files", "-z", "--", *patterns).split("\0")
    known = hashlib.sha256(line.encode(errors="surrogateescape"))
    for name in sorted(filter(None, names)):
        known.update(f"\0{name}\0".encode(errors="surrogateescape") + _content(worktree.path, name))
    return known.hexdigest()


def _content(top: Path, name: str) -> bytes:
    try:
        return read_file(top, name)
    except OSError:
        return b""


def _exclude_setup_files(worktree: Worktree, before: str) -> None:
    """Keep what a setup wrote beside ignored files out of the work: it is nobody's change."""
    after = snapshot(worktree)
    if after == before:
        return
    repository = worktree.repository
    restore_paths(worktree, before, altered_paths(repository, before, after))
    worktree.exclude(added_paths(repository, before, after))


def _last_lines(ran: CommandResult) -> str:
    lines = [line.strip() for line in tail(ran.said).splitlines() if line.strip()]
    return " / ".join(lines[-SHOWN_LINES:]) or "it said nothing"
