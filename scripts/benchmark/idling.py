"""What the daemon costs while there is nothing to do."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.board.file import FileBoard
from liza.domain.config import Workers
from liza.domain.model import State, WorkerStatus
from liza.system.process import process_table as processes
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.projects import Project
from scripts.benchmark.speed import progress
from scripts.benchmark.tables import Table

TEAM: Final = Workers(planner=1, coder=5, reviewer=2)
WORKERS: Final = 8
PATIENCE: Final = 60.0  # seconds until everybody is there, and the planner has asked what nobody answers
SETTLE: Final = 2.0  # seconds in which the last of them comes to rest
TICKS: Final = os.sysconf("SC_CLK_TCK")
NANO: Final = 1e-9
PROC: Final = Path("/proc")
HOUR: Final = 3600.0
MB: Final = 1024.0  # kilobytes


class Rest(NamedTuple):
    """One process at rest: the share of a core that it uses, what it started included, and its memory."""

    share: float
    megabytes: float


class Idle(NamedTuple):
    seconds: float
    supervisor: Rest
    workers: list[Rest]
    busy: float  # cores that the whole machine used meanwhile

    @property
    def share(self) -> float:
        return self.supervisor.share + sum(worker.share for worker in self.workers)


def run_idle(plan: DaemonPlan, place: Path) -> Idle | str:
    """Watch a run that waits for an answer of a person."""
    progress(f"{WORKERS} idle workers for {plan.rest:g} s")
    with TemporaryDirectory(prefix="idle-", dir=place) as name:
        project = Project(Path(name), TEAM, 0.0)
        with project.running() as run:
            if not _is_at_rest(project):
                return f"it did not come to rest in {PATIENCE:g} s: {project.last_words()}"
            time.sleep(SETTLE)
            pids = [run.pid, *_workers_of(run.pid)]
            before, machine = {pid: _cpu(pid) for pid in pids}, _busy()
            time.sleep(plan.rest)
            rests = [Rest((_cpu(pid) - before[pid]) / plan.rest, _megabytes(pid)) for pid in pids]
            busy = (_busy() - machine) / plan.rest
        if len(rests) != WORKERS + 1:
            return f"there were {len(rests) - 1} workers instead of {WORKERS}: {project.last_words()}"
    return Idle(plan.rest, rests[0], rests[1:], busy)


def _workers_of(supervisor: int) -> list[int]:
    """Return the workers below *supervisor*, which are forks of another process that it has."""
    known, below, waiting = processes(), list[int](), [supervisor]
    while waiting:
        parent = waiting.pop()
        children = [pid for pid, each in known.items() if each.parent == parent]
        below += [pid for pid in children if known[pid].name.startswith("liza worker")]
        waiting += children
    return below


def _is_at_rest(project: Project) -> bool:
    deadline = time.monotonic() + PATIENCE
    with closing(FileBoard(project.home)) as board:
        state = board.read()
        while not _is_complete(state) and time.monotonic() < deadline:
            state = board.wait(state.revision, 1.0)
        return _is_complete(state)


def _is_complete(state: State) -> bool:
    running = [agent for agent in state.agents.values() if agent.status is WorkerStatus.RUNNING]
    return len(running) == WORKERS and bool(state.goal.questions)


def _cpu(pid: int) -> float:
    """Return the seconds that a process used: to the nanosecond its own, in ticks what its children did."""
    threads = (PROC / str(pid) / "task").glob("*/schedstat")
    own = sum(int(path.read_text().split()[0]) for path in threads)
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return own * NANO + sum(map(int, fields[13:15])) / TICKS


def _busy() -> float:
    """Return the seconds that all cores worked since the start of the machine."""
    user, nice, system = (PROC / "stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS


def _megabytes(pid: int) -> float:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / MB


def idle_table(found: Idle | str) -> Table:
    table = Table(
        f"Idle: the supervisor and {WORKERS} workers",
        ("who", "CPU s an hour", "% of a core", "RSS MB"),
    )
    if isinstance(found, str):
        table.notes.append(found)
        return table
    busiest = max(found.workers, key=lambda worker: worker.share)
    largest = max(worker.megabytes for worker in found.workers)
    total = found.supervisor.megabytes + sum(worker.megabytes for worker in found.workers)
    rows = {
        "supervisor": found.supervisor,
        "a worker, the most of each": Rest(busiest.share, largest),
        "all together": Rest(found.share, total),
    }
    for name, (share, megabytes) in rows.items():
        table.add(name, share * HOUR, share * 100, megabytes)
    table.notes += [
        f"over {found.seconds:g} s; pages that processes share count for each of them",
        f"all processes of the machine used {found.busy:.2f} of its {os.cpu_count()} cores meanwhile",
    ]
    return table
