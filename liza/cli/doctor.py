"""The facts that `liza doctor` judges, collected without changing anything but a file that goes at once."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.board.disk import can_exchange
from liza.board.validate import of_path
from liza.cli.views.health import Finding, Gate, Machine, Mark, Project, judged
from liza.daemon.baseline import Ground, kept_base, try_base
from liza.daemon.project import home_from, switches_of
from liza.daemon.project_sandbox import required, warning
from liza.daemon.recover import RUNS, is_of, orphaned
from liza.domain.lifecycle import TERMINAL
from liza.errors import LizaError, NoCage, UsageError
from liza.repo import command, salvage
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.system import locks
from liza.system.disk_space import space
from liza.system.proc_table import left_behind
from liza.system.run_control import Stop
from liza.system.sandbox.bubblewrap import obstacle

if TYPE_CHECKING:
    from liza.domain.model import State

# Coding programs that people have; each tells its version by --version.
PROGRAMS: Final = ("claude", "codex", "gemini", "opencode", "aider", "qwen", "mini", "goose", "crush")
KEYS: Final = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
    *("MISTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "AZURE_API_KEY"),
    *("ANTHROPIC_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "DASHSCOPE_API_KEY"),
)
PATIENCE: Final = 10.0  # seconds that a program may take to tell its version
LONGEST: Final = 40  # characters of a version


def examined(directory: Path, *, baseline: bool = True) -> list[Finding]:
    """Return what there is to say about this machine, and about the project around *directory* if any.

    With *baseline* the project's gates are tried where nobody knows yet what they come to.
    """
    try:
        home = home_from(directory)
    except UsageError:
        return [*judged(_machine(directory), None), *_no_checkout(directory)]
    return judged(_machine(home), _project(home, baseline=baseline))


def _no_checkout(directory: Path) -> list[Finding]:
    """Return why no project can begin in *directory*; where there is no git at all, none was meant to."""
    try:
        command.top_level(directory)
    except UsageError as error:
        sentence, _, do = str(error).partition("; ")
        return [Finding("repository", Mark.FAIL, sentence, do)] if "not in a git" not in sentence else []
    return []


def _machine(place: Path) -> Machine:
    return Machine(
        python=tuple(sys.version_info[:3]),
        git=_git_version(),
        obstacle=obstacle(),
        namespaces=_number("user/max_user_namespaces"),
        exchanges=can_exchange(place),
        watches=_number("fs/inotify/max_user_watches"),
        instances=_number("fs/inotify/max_user_instances"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        programs=programs(),
        keys=tuple(name for name in KEYS if os.environ.get(name)),
        space=space(place),
        skew=_skew(place),
    )


def _git_version() -> tuple[int, ...]:
    try:
        return command.version()
    except LizaError:
        return ()


def _number(name: str) -> int | None:
    try:
        return int((Path("/proc/sys") / name).read_text())
    except (OSError, ValueError):
        return None


def programs() -> dict[str, str]:
    """Return the coding programs on the PATH, with what each says of its version."""
    found = {name: path for name in PROGRAMS if (path := shutil.which(name))}
    with ThreadPoolExecutor(len(PROGRAMS)) as threads:
        return dict(zip(found, threads.map(_version, found.values()), strict=True))


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "(does not tell its version)"
    lines = done.stdout.strip().splitlines()
    return lines[0][:LONGEST] if done.returncode == 0 and lines else "(does not tell its version)"


def _skew(place: Path) -> float:
    """Return by how many seconds the time of a new file is ahead of the clock."""
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".liza-doctor-") as file:
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0  # what cannot be written to is told by the board


def _project(home: Path, *, baseline: bool) -> Project:
    repository = Repository.around(home.parent)
    state, trouble = _board(home)
    lock = home / locks.SUPERVISOR
    holder = locks.holder(lock)
    living = locks.living(home) if holder else frozenset()
    config = state.config if state else None
    ref = BRANCHES + (config.integration_branch if config else "")
    checked_out = repository.checked_out_at(ref) if config else None
    return Project(
        trouble=trouble,
        sandbox=warning(config.sandbox) if config else None,
        refused=_refusal(state) if state else None,
        holder=str(holder) if holder else None,
        real_holder=holding(lock) if holder else None,
        orphans=() if holder else tuple(map(str, orphaned(home))),
        leftovers=tuple(
            map(str, left_behind(home / RUNS, lambda run: not any(is_of(run, name) for name in living)))
        ),
        stale=_stale(repository, state) if state else (),
        salvages=len(salvage.listed(repository)),
        has_identity=not repository.signature,
        integration=ref.removeprefix(BRANCHES),
        integration_at=repository.commit_at(ref) if config else None,
        checked_out=str(checked_out) if checked_out else None,
        has_agent=bool(config and (config.agents.default.backend or config.agents.default.command)),
        switches=tuple(switches_of(home)),
        gates=gates_of(Ground(home, repository, config), baseline=baseline) if config else None,
    )


def gates_of(ground: Ground, *, baseline: bool) -> tuple[Gate, ...] | None:
    """Return what the project's gates come to on what work is based on; None where nobody knows."""
    if not any(ground.config.gates.plain().values()):
        return ()
    try:
        found = try_base(ground, Stop()) if baseline else kept_base(ground)
    except NoCage:  # said elsewhere: a run would not start either
        return None
    if found is None:
        return None
    return tuple(Gate(one.sentence(), one.is_in_the_way, one.likely) for one in found.tried)


def _board(home: Path) -> tuple[State | None, str | None]:
    try:
        return of_path(home), None
    except LizaError as error:
        return None, str(error)


def _refusal(state: State) -> str | None:
    try:
        required(state.config.sandbox)
    except NoCage as error:
        return str(error)
    return None


def _stale(repository: Repository, state: State) -> tuple[str, ...]:
    names = Worktrees(repository).tasks()
    return tuple(name for name in names if (status := state.status_of(name)) is None or status in TERMINAL)


def holding(path: Path) -> int | None:
    """Return the process that has a lock on *path*, as the kernel tells; None where it does not."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines if "->" not in line)
    owners = (int(row[4]) for row in fields if row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode))
    return next(owners, None)
