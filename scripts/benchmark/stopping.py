"""How soon a switch reaches the last agent."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.daemon.recover import RUNS
from liza.domain.config import Switch, Workers
from liza.system.platform import Process
from liza.system.process import leftover_processes, process_of
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.projects import Project, task
from scripts.benchmark.race import quantile
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

AGENTS: Final = 8
ENDLESS: Final = 3600.0  # seconds that an agent takes which is going to be stopped
PATIENCE: Final = 60.0  # seconds that anything may take on a busy machine
TICK: Final = 0.002  # seconds between two looks at whether a process is frozen, of which nobody tells
FROZEN: Final = frozenset("TtZX")


class Stops(NamedTuple):
    """Seconds until the last agent was frozen, went on, or was gone, and until the whole run had ended."""

    paused: list[float]
    resumed: list[float]
    aborted: list[float]
    ended: list[float]
    trouble: list[str]


def run_stops(plan: DaemonPlan, place: Path, deadline: float) -> Stops:
    stops = Stops([], [], [], [], [])
    with TemporaryDirectory(prefix="stop-", dir=place) as name:
        project = Project(Path(name), Workers(planner=1, coder=AGENTS, reviewer=1), ENDLESS)
        project.add(*(task(f"task-{number}") for number in range(AGENTS)))
        for number in range(plan.aborts):
            if time.monotonic() > deadline:
                stops.trouble.append(f"{plan.aborts - number} rounds skipped: the time is used up")
                break
            progress(f"switches, round {number + 1} of {plan.aborts}")
            try:
                _round(project, plan.pauses, stops)
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                stops.trouble.append(f"round {number + 1}: {error}: {project.last_words()}")
            for switch in (Switch.PAUSE, Switch.ABORT):
                (project.home / switch.name).unlink(missing_ok=True)
    return stops


def _round(project: Project, pauses: int, stops: Stops) -> None:
    """Run until every coder has an agent, freeze and wake them a few times, then abort."""
    pause, abort = project.home / Switch.PAUSE.name, project.home / Switch.ABORT.name
    with project.running() as run:
        agents = _agents(project)
        for _ in range(pauses):
            pause.touch()
            stops.paused.append(_timed(lambda: all(map(_is_frozen, agents)), "PAUSE"))
            pause.unlink()
            stops.resumed.append(_timed(lambda: not any(map(_is_frozen, agents)), "the end of PAUSE"))
        with ExitStack() as stack:
            ends = [os.pidfd_open(agent.pid) for agent in agents]
            for end in ends:
                stack.callback(os.close, end)
            begun = time.monotonic()
            abort.touch()
            stops.aborted.append(_last(ends, begun))
        run.wait(PATIENCE)
        stops.ended.append(time.monotonic() - begun)


def _agents(project: Project) -> list[Process]:
    """Return the processes of all agents, once each has come to the one that waits."""
    found: list[Process] = []

    def is_complete() -> bool:
        # Without the git processes of workers, which bear the same kind of mark and are not frozen.
        found[:] = leftover_processes(project.home / RUNS, lambda run: not run.endswith(".git"))
        # Its shell has read the prompt by then and starts nothing more, so this is all there is to stop.
        return sum(process.name == "sleep" for process in found) == AGENTS

    _timed(is_complete, f"having {AGENTS} agents")
    return found


def _timed(holds: Callable[[], bool], what: str) -> float:
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > PATIENCE:
            raise TimeoutError(f"{what} took longer than {PATIENCE:g} s")
        time.sleep(TICK)
    return time.monotonic() - begun


def _is_frozen(process: Process) -> bool:
    now = process_of(process.pid)
    return now is None or now.started != process.started or now.state in FROZEN


def _last(ends: list[int], begun: float) -> float:
    """Return the seconds from *begun* until every descriptor says that its process ended."""
    poll, left = select.poll(), set(ends)
    for end in ends:
        poll.register(end, select.POLLIN)
    while left:
        ready = poll.poll(PATIENCE * MS)
        if not ready:
            raise TimeoutError(f"{len(left)} processes outlived ABORT by {PATIENCE:g} s")
        for end, _ in ready:
            poll.unregister(end)
            left.remove(end)
    return time.monotonic() - begun


def stops_table(stops: Stops) -> Table:
    table = Table(
        f"Switches with {AGENTS} agents at work: from the file until the last process of an agent follows",
        ("switch", "rounds", "p50 ms", "p99 ms", "longest ms"),
    )
    rows = {
        "PAUSE, until all are frozen": stops.paused,
        "PAUSE taken back, until all go on": stops.resumed,
        "ABORT, until all have ended": stops.aborted,
        "ABORT, until `liza run` has ended, work saved": stops.ended,
    }
    for name, took in rows.items():
        if took:
            table.add(name, len(took), *(_quantile_ms(took, share) for share in (0.5, 0.99, 1.0)))
    table.notes += stops.trouble
    return table


def _quantile_ms(took: list[float], share: float) -> float:
    return quantile(sorted(took), share) * MS
