"""What the daemon adds to the time of its agents, and how soon one worker goes on where another stopped."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.config import Workers
from liza.domain.lifecycle import ADDED
from liza.domain.model import Status, Task
from scripts.benchmark.bare import children_cpu
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.projects import Project, start_cost, task
from scripts.benchmark.race import quantile
from scripts.benchmark.schedule import Team, ideal
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

CHAIN: Final = 3  # tasks of which each waits for the one before it
FIRST: Final = 2  # the priority of the chain, above that of the others
PATIENCE: Final = 30.0  # seconds that a run may take beyond the longest that is expected
LONGEST: Final = 6.0  # times the ideal that is still waited for
POLLS: Final = (1.0, 30.0)  # seconds between two looks of a worker that polls
STARTS: Final = 20  # starts of the agent of which the median is taken
SUBMITTED: Final = "submit"
TAKEN: Final = "take_review"
# What ends the work of a reviewer on a task.
REVIEWED: Final = frozenset({"merge", "reject", "fail_integration", "release", "reclaim", "block"})


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
    """A run that merged everything: seconds before the first claim, from it to the last merge, and after."""

    start: float
    work: float
    end: float
    handed_over: list[float]  # seconds from a submission to the review, where a reviewer was free
    cpu: float  # seconds of all processes of the run, its agents too

    @property
    def whole(self) -> float:
        return self.start + self.work + self.end


History = list[tuple[float, str]]  # when, and the event
Histories = dict[str, History]  # by task
Runs = dict[Case, Done | str]  # a string says why there is no measurement


def cases_of(plan: DaemonPlan, step: float) -> list[Case]:
    """Return the runs of *plan* with agents that take *step* seconds."""
    return [Case(step, tasks, coders) for each, tasks in plan.steps if each == step for coders in plan.coders]


def run_case(case: Case, place: Path, deadline: float) -> Done | str:
    if time.monotonic() + case.ideal > deadline:
        return "skipped: the time for the daemon's part is used up"
    progress(f"{case.tasks} tasks, {case.step:g} s a step, coders: {case.coders}")
    with TemporaryDirectory(prefix="run-", dir=place) as name:
        return _run(case, Path(name))


def _run(case: Case, place: Path) -> Done | str:
    coders, reviewers = case.team
    project = Project(place, Workers(planner=1, coder=coders, reviewer=reviewers), case.step)
    project.add(*_tasks(case))
    begun, before = time.time(), children_cpu()
    with project.running() as run:
        try:
            code = run.wait(PATIENCE + LONGEST * case.ideal)
        except subprocess.TimeoutExpired:
            return f"not done in {LONGEST:g} times the ideal: {project.last_words()}"
    ended = time.time()
    state = project.state()
    if code or any(each.status is not Status.MERGED for each in state.tasks.values()):
        return f"failed with exit code {code}: {project.last_words()}"
    histories = project.histories()
    moments = [at for each in histories.values() for at, event in each if event != ADDED]
    first, last = min(moments), max(moments)
    if last - first < case.ideal:
        return f"measured wrongly: {last - first:.2f} s is less than the agents alone take"
    waits = sorted(_handed_over(histories, reviewers))
    return Done(first - begun, last - first, ended - last, waits, children_cpu() - before)


def _tasks(case: Case) -> Iterator[Task]:
    """Yield the chain first, as the ideal schedule has it: what others wait for is begun at once."""
    names = [None, *(f"chain-{number}" for number in range(CHAIN))]
    for before, name in pairwise(names):
        yield task(str(name), after=before, priority=FIRST)
    for number in range(case.tasks):
        yield task(f"task-{number}")


def _handed_over(histories: Histories, reviewers: int) -> Iterator[float]:
    """Yield how long each submission waited, unless every reviewer had work, which no wake-up can help."""
    busy = [span for each in histories.values() for span in _spans(each, SUBMITTED, REVIEWED)]
    for each in histories.values():
        for submitted, taken in _spans(each, SUBMITTED, frozenset({TAKEN})):
            if sum(begun < submitted < ended for begun, ended in busy) < reviewers:
                yield taken - submitted


def _spans(
    history: list[tuple[float, str]], first: str, last: frozenset[str]
) -> Iterator[tuple[float, float]]:
    begun: float | None = None
    for at, event in history:
        if event == first:
            begun = at
        elif event in last and begun is not None:
            yield begun, at
            begun = None


def overhead_table(found: Runs, place: Path) -> Table:
    ours = ("work s", "% of ideal", "% by its CPU", "start s", "end s", "% with both")
    table = Table(
        f"Orchestration: a chain of {CHAIN} and tasks that wait for nothing, against the ideal schedule",
        ("step s", "tasks", "coders", "reviewers", "ideal s", *ours),
    )
    for case, done in found.items():
        known = (case.step, case.tasks + CHAIN, *case.team, case.ideal)
        if isinstance(done, str):
            table.notes.append(f"{case.step:g} s a step, coders: {case.coders}: {done}")
            table.add(*known, *[None] * len(ours))
        else:
            shares = percent(case, done.work), possible_percent(case, done)
            table.add(*known, done.work, *shares, done.start, done.end, percent(case, done.whole))
    alone = start_cost(place, STARTS)
    table.notes += [
        "work: from the first claim to the last merge; start and end: the rest of `liza run`",
        "by its CPU: what the cores would allow if they were never idle, the agents' own CPU included",
        f"not in the ideal: the agent itself takes {alone * MS:.1f} ms for a step of 0 s",
    ]
    return table


def percent(case: Case, took: float) -> float:
    return 100 * case.ideal / took


def possible_percent(case: Case, done: Done) -> float:
    """Return what the cores allow: the CPU of the run, agents and all, shared out without a gap."""
    return percent(case, max(case.ideal, done.cpu / (os.cpu_count() or 1)))


def latency_table(found: Runs) -> Table:
    table = Table(
        "From the write of one worker (submit) to the start of the next (take_review)",
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
