"""What the cage adds to a run: a program that does nothing, free, caged to read, and caged to commit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from liza.daemon.project_sandbox import ProjectSandbox
from liza.domain.config import Network, SandboxConfig
from liza.domain.record import utc_now
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.system import process
from liza.system.run_control import RunControl
from liza.system.sandbox.bubblewrap import UNSANDBOXED, Sandbox, Tenant, sandbox_obstacle
from scripts.benchmark.projects import git
from scripts.benchmark.race import quantile
from scripts.benchmark.speed import MS
from scripts.benchmark.tables import Table

RUNS: Final = 20
COMMIT: Final = "date +%N > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x"


def cage_table(place: Path) -> Table:
    table = Table("12. The cage: milliseconds a run, from its start to its end", ("how", "p50 ms", "adds ms"))
    if why := sandbox_obstacle():
        table.notes.append(f"skipped: {why}")
        return table
    with TemporaryDirectory(prefix="cage-", dir=place) as name:
        _measure(Path(name), table)
    table.notes.append(f"of {RUNS} runs of a shell; what git commits in the cage is taken over after it")
    return table


def _measure(root: Path, table: Table) -> None:
    git(root, "init", "-q")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    repository = Repository.around(root)
    worktree = Worktrees(repository).prepare("t", str(repository.head()), at=utc_now())

    def took(warden: Sandbox, visit: Tenant, script: str) -> float:
        return _median(lambda: _run(root, worktree.path, warden, visit, script))

    guard = ProjectSandbox(root / ".liza", repository, SandboxConfig())
    closed = ProjectSandbox(root / ".liza", repository, SandboxConfig(network=Network.NONE))
    reads, writes = Tenant("t.reads", writes=False), Tenant("t.writes", task="t")
    free, commits = took(UNSANDBOXED, reads, "true"), took(UNSANDBOXED, writes, COMMIT)
    table.add("free", free, None)
    for how, visit, warden in (("caged, reads", reads, guard), ("caged, without a network", reads, closed)):
        caged = took(warden, visit, "true")
        table.add(how, caged, caged - free)
    table.add("free, with a commit", commits, None)
    caged = took(guard, writes, COMMIT)
    table.add("caged, with a commit", caged, caged - commits)


def _run(root: Path, cwd: Path, warden: Sandbox, visit: Tenant, script: str) -> None:
    job = process.Job(("/bin/sh", "-c", script), cwd, root / ".liza" / "runs" / "r", dict(os.environ))
    with warden.caged(job, visit) as caged:
        outcome = process.run_job(caged, RunControl())
    if outcome.code != 0:
        raise RuntimeError(outcome.err)


def _median(run: Callable[[], None]) -> float:
    took = []
    for _ in range(RUNS):
        begun = time.monotonic()
        run()
        took.append((time.monotonic() - begun) * MS)
    return quantile(sorted(took), 0.5)
