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
from typing import TYPE_CHECKING, Any, Final

from liza.agents.select import backend_of, program_obstacle
from liza.board.journal import can_exchange
from liza.board.location import address_in
from liza.board.protocol import SUPERVISOR_NAME, open_board, validate_board
from liza.cli.views.health import GateHealth, HealthFinding, HealthMark, MachineFacts, ProjectFacts, diagnose
from liza.cli.views.hosts import host_views
from liza.daemon.baseline import BaselineContext, cached_baseline, run_baseline
from liza.daemon.policy.recovery import finished_tasks
from liza.daemon.project import home_from
from liza.daemon.project_sandbox import require_sandbox, sandbox_warning
from liza.daemon.recover import RUNS, is_run_of, orphaned_workers
from liza.daemon.travel import shared_remote
from liza.domain.lifecycle import TERMINAL
from liza.domain.record import utc_now
from liza.errors import LizaError, SandboxUnavailable, UsageError
from liza.repo import command, salvage
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.system import files
from liza.system.disk_space import disk_usage
from liza.system.process import leftover_processes
from liza.system.run_control import RunControl
from liza.system.sandbox.bubblewrap import sandbox_obstacle

if TYPE_CHECKING:
    from liza.board.protocol import Board
    from liza.domain.config import Config
    from liza.domain.model import State

# Coding programs that people have; each tells its version by --version.
PROGRAMS: Final = ("claude", "codex", "gemini", "opencode", "aider", "qwen", "mini", "goose", "crush")
KEYS: Final = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
    *("MISTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "AZURE_API_KEY"),
    *("ANTHROPIC_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "DASHSCOPE_API_KEY"),
)
PATIENCE: Final = 10.0  # seconds that a program may take to tell its version
LONGEST_VERSION: Final = 40  # characters of a version


def examine(directory: Path, *, baseline: bool = True) -> list[HealthFinding]:
    """Return what there is to say about this machine, and about the project around *directory* if any.

    With *baseline* the project's gates are tried where nobody knows yet what they come to.
    """
    try:
        home = home_from(directory)
    except UsageError:
        return [*diagnose(_machine_facts(directory), None), *_checkout_findings(directory)]
    return diagnose(_machine_facts(home), _project_facts(home, baseline=baseline))


def _checkout_findings(directory: Path) -> list[HealthFinding]:
    """Return why no project can begin in *directory*; where there is no git at all, none was meant to."""
    try:
        command.top_level(directory)
    except UsageError as error:
        sentence, _, do = str(error).partition("; ")
        return (
            [HealthFinding("repository", HealthMark.FAIL, sentence, do)]
            if "not in a git" not in sentence
            else []
        )
    return []


def _machine_facts(place: Path) -> MachineFacts:
    return MachineFacts(
        python=tuple(sys.version_info[:3]),
        git=_git_version(),
        obstacle=sandbox_obstacle(),
        namespaces=_sysctl("user/max_user_namespaces"),
        exchanges=can_exchange(place),
        watches=_sysctl("fs/inotify/max_user_watches"),
        instances=_sysctl("fs/inotify/max_user_instances"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        programs=programs(),
        keys=tuple(name for name in KEYS if os.environ.get(name)),
        space=disk_usage(place),
        skew=_skew(place),
    )


def _git_version() -> tuple[int, ...]:
    try:
        return command.git_version()
    except LizaError:
        return ()


def _sysctl(name: str) -> int | None:
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
    return lines[0][:LONGEST_VERSION] if done.returncode == 0 and lines else "(does not tell its version)"


def _skew(place: Path) -> float:
    """Return by how many seconds the time of a new file is ahead of the clock."""
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".liza-doctor-") as file:
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0  # what cannot be written to is told by the board


def _project_facts(home: Path, *, baseline: bool) -> ProjectFacts:
    repository = Repository.around(home.parent)
    state, trouble = _read_board(home)
    board = open_board(home)
    holder = board.presence.holder_of(SUPERVISOR_NAME)
    living = board.presence.live_workers() | {SUPERVISOR_NAME} if holder else frozenset()
    config = state.config if state else None
    ref = BRANCHES + (config.integration_branch if config else "")
    checked_out = repository.checked_out_at(ref) if config else None
    return ProjectFacts(
        trouble=trouble,
        is_writable=os.access(home, os.W_OK),
        sandbox=sandbox_warning(config.sandbox) if config else None,
        refused=_refusal(state) if state else None,
        holder=str(holder) if holder else None,
        real_holder=lock_holder_pid(home / files.SUPERVISOR_LOCK) if holder else None,
        orphans=() if holder else tuple(map(str, orphaned_workers(home))),
        leftovers=tuple(
            map(
                str,
                leftover_processes(home / RUNS, lambda run: not any(is_run_of(run, name) for name in living)),
            )
        ),
        stale=_stale(repository, state) if state else (),
        salvages=len(salvage.list_salvages(repository)),
        has_identity=not repository.author_variables,
        integration=ref.removeprefix(BRANCHES),
        has_commit=repository.head() is not None,
        integration_at=repository.commit_at(ref) if config else None,
        checked_out=str(checked_out) if checked_out else None,
        has_agent=bool(config and backend_of(config.agents.default)),
        agent_trouble=program_obstacle(config.agents.default, repository.root) if config else None,
        switches=tuple(board.switches.thrown()),
        gates=gates_of(BaselineContext(home, repository, config), baseline=baseline) if config else None,
        **_distance(board, home),
        **(_ask_remote(repository, config) if config else {}),
    )


def _distance(board: Board, home: Path) -> dict[str, Any]:
    """Return how far a board on a server is, and the hosts that share it; nothing where it is here."""
    if address_in(home) is None:
        return {}
    began = time.monotonic()
    signs = board.presence.hosts()
    latency, skew = time.monotonic() - began, utc_now() - board.now()
    return {"hosts": host_views(signs), "latency": latency, "board_skew": skew.total_seconds()}


def _ask_remote(repository: Repository, config: Config) -> dict[str, Any]:
    """Return how the remote takes what hosts ask of it; nothing where none is named."""
    began = time.monotonic()
    try:
        remote = shared_remote(repository, config)
        if remote is None:
            return {}
        remote.check(repository.head())
    except LizaError as error:
        return {"remote_seconds": time.monotonic() - began, "remote_trouble": str(error)}
    return {"remote_seconds": time.monotonic() - began}


def gates_of(project: BaselineContext, *, baseline: bool) -> tuple[GateHealth, ...] | None:
    """Return what the project's gates come to on what work is based on; None where nobody knows."""
    if not any(project.config.gates.to_json().values()):
        return ()
    try:
        is_tried = baseline and os.access(project.home, os.W_OK)
        found = run_baseline(project, RunControl()) if is_tried else cached_baseline(project)
    except SandboxUnavailable:  # said elsewhere: a run would not start either
        return None
    if found is None:
        return None
    return tuple(GateHealth(one.sentence(), one.is_blocking, one.likely) for one in found.tried)


def _read_board(home: Path) -> tuple[State | None, str | None]:
    try:
        return validate_board(home), None
    except LizaError as error:
        return None, str(error)


def _refusal(state: State) -> str | None:
    try:
        require_sandbox(state.config.sandbox)
    except SandboxUnavailable as error:
        return str(error)
    return None


def _stale(repository: Repository, state: State) -> tuple[str, ...]:
    names = Worktrees(repository).tasks()
    finished = [task.id for task in finished_tasks(state) if task.id in names]
    kept = finished[max(0, len(finished) - state.config.limits.kept_worktrees) :]
    over = (name for name in names if (status := state.status_of(name)) is None or status in TERMINAL)
    return tuple(name for name in over if name not in kept)


def lock_holder_pid(path: Path) -> int | None:
    """Return the process that has a lock on *path*, as the kernel tells; None where it does not."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines if "->" not in line)
    owners = (int(row[4]) for row in fields if row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode))
    return next(owners, None)
