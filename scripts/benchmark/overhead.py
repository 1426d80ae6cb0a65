"""What the daemon adds to the time of its agents, and how soon one worker goes on where another stopped."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.config import Workers
from liza.model import State, Status, Task
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.projects import Project, start_cost, task
from scripts.benchmark.race import quantile
from scripts.benchmark.schedule import Team, ideal
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

CHAIN: Final = 3  # tasks of which each waits for the one before it
PATIENCE: Final = 30.0  # seconds that a run may take beyond the longest that is expected
LONGEST: Final = 6.0  # times the ideal that is still waited for
POLLS: Final = (1.0, 30.0)  # seconds between two looks of a worker that polls
STARTS: Final = 20  # starts of the agent of which the median is taken
REVIEWED: Final = frozenset({"merge", "reject", "fail_integration", "release", "expire", "block"})


class Case(NamedTuple):
    step: float  # seconds that an agent takes
    tasks: int  # that wait for nothing
    coders: int

    @property
    def team(self) -> Team:
        # A task takes a coder two steps and a reviewer one.
        return Team(self.coders, (self.coders + 1) // 2)

    @property
    def ideal(self) -> float:
        waits_for = [None, *range(CHAIN - 1), *[None] * self.tasks]
        return ideal(waits_for, self.team, self.step)


class Done(NamedTuple):
    """A run that merged everything: seconds from the first claim to the last merge, and of the command."""

    work: float
    whole: float
    handed_over: list[float]  # seconds from a submission to the review, where a reviewer was free


Runs = dict[Case, Done | str]  # a string says why there is no measurement


def run_all(plan: DaemonPlan, place: Path, deadline: float) -> Runs:
    cases = [Case(step, tasks, coders) for step, tasks in plan.steps for coders in plan.coders]
    found: Runs = {}
    for case in cases:
        if time.monotonic() + case.ideal > deadline:
            found[case] = "skipped: the time for the daemon's part is used up"
            continue
        progress(f"{case.tasks} tasks, {case.step:g} s a step, coders: {case.coders}")
        with TemporaryDirectory(prefix="run-", dir=place) as name:
            found[case] = _run(case, Path(name))
    return found


def _run(case: Case, place: Path) -> Done | str:
    coders, reviewers = case.team
    project = Project(place, Workers(planner=1, coder=coders, reviewer=reviewers), case.step)
    project.add(*_tasks(case))
    begun = time.monotonic()
    with project.running() as run:
        try:
            code = run.wait(PATIENCE + LONGEST * case.ideal)
        except subprocess.TimeoutExpired:
            return f"not done in {LONGEST:g} times the ideal: {project.last_words()}"
    whole = time.monotonic() - begun
    state = project.state()
    if code or any(each.status is not Status.MERGED for each in state.tasks.values()):
        return f"failed with exit code {code}: {project.last_words()}"
    moments = [entry.at for each in state.tasks.values() for entry in each.history if entry.event != "add"]
    work = (max(moments) - min(moments)).total_seconds()
    return Done(work, whole, sorted(_handed_over(state, reviewers)))


def _tasks(case: Case) -> Iterator[Task]:
    """Yield the chain first, as the ideal schedule has it: what others wait for is begun at once."""
    names = [None, *(f"chain-{number}" for number in range(CHAIN))]
    for before, name in pairwise(names):
        yield task(str(name), after=before, priority=0)
    for number in range(case.tasks):
        yield task(f"task-{number}")


def _handed_over(state: State, reviewers: int) -> Iterator[float]:
    """Yield how long each submission waited, unless every reviewer was busy, which no wake-up can help."""
    busy = [span for each in state.tasks.values() for span in _spans(each, "take_review", REVIEWED)]
    for each in state.tasks.values():
        for submitted, taken in _spans(each, "submit", frozenset({"take_review"})):
            if sum(begun <= submitted < ended for begun, ended in busy) < reviewers:
                yield taken - submitted


def _spans(of: Task, first: str, last: frozenset[str]) -> Iterator[tuple[float, float]]:
    begun: float | None = None
    for entry in of.history:
        if entry.event == first:
            begun = entry.at.timestamp()
        elif entry.event in last and begun is not None:
            yield begun, entry.at.timestamp()
            begun = None


def overhead_table(found: Runs, place: Path) -> Table:
    table = Table(
        f"6. Orchestration: a chain of {CHAIN} and tasks that wait for nothing, against the ideal schedule",
        ("step s", "tasks", "coders", "reviewers", "ideal s", "work s", "% of ideal", "command s", "its %"),
    )
    for case, done in found.items():
        known = (case.step, case.tasks + CHAIN, *case.team, case.ideal)
        if isinstance(done, str):
            table.notes.append(f"{case.step:g} s a step, coders: {case.coders}: {done}")
            table.add(*known, None, None, None, None)
        else:
            table.add(*known, done.work, percent(case, done.work), done.whole, percent(case, done.whole))
    table.notes += [
        "work: from the first claim to the last merge; command: `liza run` from its start to its end",
        f"the agent alone takes {start_cost(place, STARTS) * MS:.1f} ms for a step of 0 s, which the ideal "
        "leaves out",
    ]
    return table


def percent(case: Case, took: float) -> float:
    return 100 * case.ideal / took


def latency_table(found: Runs) -> Table:
    table = Table(
        "7. From the write of one worker (submit) to the start of the next (take_review)",
        ("how", "coders", "step s", "hand-overs", "p50 ms", "p99 ms"),
    )
    for case, done in found.items():
        if isinstance(done, Done) and (took := done.handed_over):
            waits = quantile(took, 0.5) * MS, quantile(took, 0.99) * MS
            table.add("liza", case.coders, case.step, len(took), *waits)
    for every in POLLS:
        table.add(f"a poll every {every:g} s, computed", None, None, None, every / 2 * MS, every * 0.99 * MS)
    table.notes.append("without submissions that came while every reviewer was busy")
    return table
