"""What the sandbox adds to a run of a program that does nothing, or that commits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.daemon.project_sandbox import ProjectSandbox
from liza.domain.config import Network, SandboxConfig
from liza.domain.record import utc_now
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.system import process
from liza.system.run_control import RunControl
from liza.system.sandbox.bubblewrap import UNSANDBOXED, Sandbox, Tenant, sandbox_obstacle
from scripts.benchmark.bare import all_cpu
from scripts.benchmark.projects import git
from scripts.benchmark.race import quantile
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

RUNS: Final = 20
COMMIT: Final = "date +%N > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x"


class SandboxTimes(NamedTuple):
    """Milliseconds of a run, the median."""

    free: float
    reads: float
    closed: float  # without a network
    free_commits: float
    commits: float
    cpu: float  # milliseconds of CPU that the sandbox adds to a run with a commit


def run_sandboxes(place: Path) -> SandboxTimes | str:
    if why := sandbox_obstacle():
        return f"skipped: {why}"
    progress("the sandbox")
    with TemporaryDirectory(prefix="sandbox-", dir=place) as name:
        return _measure(Path(name))


def sandbox_table(found: SandboxTimes | str) -> Table:
    table = Table("The sandbox: milliseconds a run, from its start to its end", ("how", "p50 ms", "adds ms"))
    if isinstance(found, str):
        table.notes.append(found)
        return table
    table.add("free", found.free, None)
    table.add("sandboxed, reads", found.reads, found.reads - found.free)
    table.add("sandboxed, without a network", found.closed, found.closed - found.free)
    table.add("free, with a commit", found.free_commits, None)
    table.add("sandboxed, with a commit", found.commits, found.commits - found.free_commits)
    table.notes.append(f"of {RUNS} runs of a shell; what git commits in the sandbox is taken over after it")
    return table


def _measure(root: Path) -> SandboxTimes:
    git(root, "init", "-q")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    repository = Repository.around(root)
    worktree = Worktrees(repository).prepare("t", str(repository.head()), at=utc_now())

    def took(sandbox: Sandbox, tenant: Tenant, script: str) -> float:
        return _median(lambda: _run(root, worktree.path, sandbox, tenant, script))

    guard = ProjectSandbox(root / ".liza", repository, SandboxConfig())
    closed = ProjectSandbox(root / ".liza", repository, SandboxConfig(network=Network.NONE))
    reads, writes = Tenant("t.reads", writes=False), Tenant("t.writes", task="t")
    times = (
        took(UNSANDBOXED, reads, "true"),
        took(guard, reads, "true"),
        took(closed, reads, "true"),
    )
    begun = all_cpu()
    free = took(UNSANDBOXED, writes, COMMIT)
    between = all_cpu()
    wrap = took(guard, writes, COMMIT)
    return SandboxTimes(*times, free, wrap, (all_cpu() - 2 * between + begun) / RUNS * MS)


def _run(root: Path, cwd: Path, sandbox: Sandbox, tenant: Tenant, script: str) -> None:
    job = process.Job(("/bin/sh", "-c", script), cwd, root / ".liza" / "runs" / "r", dict(os.environ))
    with sandbox.wrap(job, tenant) as wrapped:
        outcome = process.run_job(wrapped, RunControl())
    if outcome.code != 0:
        raise RuntimeError(outcome.err)


def _median(run: Callable[[], None]) -> float:
    took = []
    for _ in range(RUNS):
        begun = time.monotonic()
        run()
        took.append((time.monotonic() - begun) * MS)
    return quantile(sorted(took), 0.5)
