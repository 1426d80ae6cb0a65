"""The one door to git: a subprocess, because no library is faster and none is as well tested."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from liza.errors import LizaError, UsageError

# A hook or an alias of the caller's must not point us at another repository than the one we stand in.
_POINTERS: Final = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"})


def git(*words: str, cwd: Path) -> str:
    """Run git in *cwd* and return what it printed; raise its own sentence where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _POINTERS}
    try:
        done = subprocess.run(
            ["git", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise LizaError("git is not installed, or not on the PATH; install it") from error
    if done.returncode != 0:
        raise LizaError(f"git {words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.removesuffix("\n")


def top_level(cwd: Path) -> Path:
    """Return the root of the checkout that *cwd* is in."""
    try:
        return Path(git("rev-parse", "--show-toplevel", cwd=cwd))
    except LizaError as error:
        raise UsageError(f"{cwd} is not in a git repository; run `git init` there first") from error


def exclude(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """Make git ignore *patterns* in this clone only; return those that were not ignored before."""
    path = root / git("rev-parse", "--git-path", "info/exclude", cwd=root)
    known = path.read_text().splitlines() if path.exists() else []
    missing = [pattern for pattern in patterns if pattern not in known]
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in ([""] if known and known[-1] else []) + missing))
    return missing
