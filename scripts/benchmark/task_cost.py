"""What a task costs beside its agents: CPU by process, and how many processes of what kind are started."""

from __future__ import annotations

import json
import os
import pstats
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.config import Workers
from liza.domain.model import Status
from scripts.benchmark.bare import children_cpu
from scripts.benchmark.projects import Project, agent_cpu, task
from scripts.benchmark.speed import progress
from scripts.benchmark.tables import Table

RECORDER: Final = Path(__file__).parent / "recorder"
TASKS: Final = 10
STEPS: Final = 3  # of an agent, for a task
STARTS: Final = 20  # of the agent, by which it is told what it takes
PATIENCE: Final = 300.0  # seconds for a run of agents that answer at once, on a busy machine
SHOWN: Final = 15  # rows of a table of functions
_ROLE: Final = re.compile(r"worker (planner|coder|reviewer)|fork server|liza run")


class Cost(NamedTuple):
    """What a run of *tasks* tasks came to."""

    tasks: int
    cpu: float  # seconds of the whole run, without what the agents themselves take
    started: Counter[str]  # processes by kind
    used: dict[str, tuple[float, float]]  # CPU seconds by role: its own, and those of what it started
    functions: dict[str, pstats.Stats]  # by role, where they were wanted

    @property
    def git(self) -> int:
        return sum(count for kind, count in self.started.items() if kind.startswith("git "))


def run_tasks(place: Path, tasks: int = TASKS, *, profiles: bool = False) -> Cost | str:
    """Let one coder and one reviewer do *tasks* tasks whose agents answer at once, and return the cost."""
    with TemporaryDirectory(dir=place) as directory:
        notes = Path(directory) / "recorded"
        notes.mkdir()
        project = Project(Path(directory), Workers(coder=1, reviewer=1), 0.0)
        project.add(*(task(f"t{number}") for number in range(tasks)))
        agents = STEPS * tasks * agent_cpu(Path(directory), STARTS)
        before = children_cpu()
        with _recorder(notes, profiles=profiles), project.running() as run:
            run.wait(PATIENCE)
        merged = sum(one.status is Status.MERGED for one in project.state().tasks.values())
        if merged != tasks:
            return f"{merged} of {tasks} were merged: {project.last_words()}"
        return _read(notes, tasks, children_cpu() - before - agents)


class _recorder:  # noqa: N801 - a context, written as one
    """Let the processes that are started meanwhile write down what they do."""

    def __init__(self, notes: Path, *, profiles: bool) -> None:
        known = os.environ.get("PYTHONPATH")
        self._variables = {
            "LIZA_RECORDER": str(notes),
            "LIZA_RECORDER_PROFILES": "1" if profiles else "0",
            "PYTHONPATH": os.pathsep.join([str(RECORDER), *([known] if known else [])]),
        }
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._variables}
        os.environ.update(self._variables)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _read(notes: Path, tasks: int, cpu: float) -> Cost:
    started: Counter[str] = Counter()
    used: dict[str, tuple[float, float]] = {}
    functions: dict[str, pstats.Stats] = {}
    for line in (notes / "notes").read_text().splitlines():
        fact = json.loads(line)
        if kind := fact.get("started"):
            started[kind] += 1
        elif role := _role_of(fact["ended"]):
            own, others = used.get(role, (0.0, 0.0))
            used[role] = (own + fact["cpu"], others + fact["children"])
            if (path := notes / f"{fact['pid']}.prof").exists():
                functions.setdefault(role, pstats.Stats()).add(str(path))
    return Cost(tasks, cpu, started, used, functions)


def _role_of(words: str) -> str | None:
    found = _ROLE.search(words)
    return None if found is None else (found[1] or found[0].removeprefix("liza "))


def cost_table(cost: Cost | str) -> Table:
    table = Table("What a task costs, agents that answer at once", ("what", "a task"))
    if isinstance(cost, str):
        table.notes.append(cost)
        return table
    table.add("CPU seconds", cost.cpu / cost.tasks)
    table.add("git processes", cost.git / cost.tasks)
    table.add("processes", sum(cost.started.values()) / cost.tasks)
    for kind, count in cost.started.most_common():
        table.add(f"  {kind}", count / cost.tasks)
    return table


def profile_tables(cost: Cost) -> Iterator[Table]:
    """Yield who used the CPU, and in which functions."""
    whole = Table("CPU seconds by process", ("process", "its own", "of what it started"))
    for role, (own, others) in sorted(cost.used.items(), key=lambda row: -sum(row[1])):
        whole.add(role, own, others)
    yield whole
    for role, stats in cost.functions.items():
        table = Table(f"Functions of the {role}, main thread", ("function", "calls", "own ms", "with calls"))
        rows = sorted(_rows(stats), key=lambda row: -row[2])
        for name, calls, own, within in rows[:SHOWN]:
            table.add(name, calls, own * 1000, within * 1000)
        yield table


def _rows(stats: pstats.Stats) -> Iterator[tuple[str, int, float, float]]:
    known: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = stats.stats  # type: ignore[attr-defined]
    for (path, line, name), (_, calls, own, within, _callers) in known.items():
        where = f"{'/'.join(Path(path).parts[-2:])}:{line} {name}" if line else name
        yield where, calls, own, within


def measure_cost(place: Path) -> Cost | str:
    progress(f"what each of {TASKS} tasks costs")
    return run_tasks(place)
