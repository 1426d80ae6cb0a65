"""The daemon's part of the benchmark: rows that can each be measured alone, with their aims.

Whole runs have an agent that does nothing, in the time it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from os import getloadavg
from pathlib import Path
from statistics import median
from typing import Final

from scripts.benchmark import bare
from scripts.benchmark.aims import MISSED, Aim
from scripts.benchmark.gating import ALL, gates_table, run_gates
from scripts.benchmark.idling import Idle, idle_table, run_idle
from scripts.benchmark.overhead import (
    Case,
    Done,
    Runs,
    cases_of,
    latency_table,
    overhead_table,
    percent,
    possible_percent,
    run_case,
)
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.queueing import REVIEWERS, queue_table, run_queue
from scripts.benchmark.race import quantile
from scripts.benchmark.sandboxing import SandboxTimes, run_sandboxes, sandbox_table
from scripts.benchmark.speed import MS
from scripts.benchmark.stopping import AGENTS, run_stops, stops_table
from scripts.benchmark.tables import Table
from scripts.benchmark.task_cost import Cost, cost_table, measure_cost
from scripts.benchmark.trees import Found, Sizes, merge_table, run_sizes, worktree_table
from scripts.benchmark.trees import median as middle

LONG_STEP, SHORT_STEP = 1.0, 0.2  # seconds that an agent takes
LEAST_SHARES: Final = {  # percent of the ideal, by the seconds of a step and coders
    **{(LONG_STEP, coders): 92 for coders in (1, 2, 4, 8)},
    (SHORT_STEP, 1): 75,
    (SHORT_STEP, 2): 70,
    (SHORT_STEP, 4): 60,
    (SHORT_STEP, 8): 50,
}
TEAM: Final = 8  # coders whose run is looked at for its start, its end and its hand-overs
SMALL: Final = 100  # files
LARGE: Final = 50_000
GATED: Final = 5_000
TRIES: Final = 1.1  # merges that are tried for each that lands
# What of this is no time by the clock, so that others at work hardly change it.
STEADY: Final = frozenset({"idle", "task", "tries"})
BUSY: Final = 1.2  # times as long as its CPU that a calculation takes where others are at work
UNSURE: Final = "unsure: others at work"
# What stands in the way of an aim that is missed, as `make profile` and the tables tell it.
WHY: Final[dict[str, str]] = {
    "task": "of a run of ten tasks an eighth is starting, most of it imports (160 pydantic classes); of the "
    "rest the coder has two fifths, the reviewer a quarter, and a third of either is git and the sandbox",
    "start": "three quarters of its CPU are imports, beside which nothing can be done; then one fork after "
    "the other, each of which waits for the fork server while those before it begin to work",
    "steps": "a task has some 0.23 s of CPU on its way, a third of it git and the sandbox; nothing of the "
    "next "
    "step is begun before the last is on the board, so that no promise rests on what may be lost",
    "short-steps": "as with long steps; eight coders at 0.2 s a step ask for more CPU than two cores have",
    "hand-over": "two synced updates, the submission and the claim, and what is looked at before a turn lie "
    "between; every idle worker wakes at once, and on two cores one looks after the other",
    "abort": "no git is asked; each worker gives its task back, says that it ends, and ends, one after the "
    "other at the board's lock, then hidden processes are looked for and the report is written",
    "sandbox": "three git processes take what was committed inside over into the repository, with its syncs",
    "gates": "after each of ten runs of commands (lint, tests, tests that are made to fail so that the "
    "command must notice, the proof on base and head, tests after the merge) one look at every file finds "
    "what it touched, some two microseconds a file, most of them the kernel's; only what differs is written; "
    "lint and test share one directory, since a second would need the project's set-up once more",
}


class Bench:
    """One run of the daemon's part, with what rows have measured that others need as well."""

    def __init__(self, plan: DaemonPlan, place: Path) -> None:
        self.plan = plan
        self.place = place
        self.ends = time.monotonic() + plan.seconds
        self._runs: Runs = {}

    def runs(self, cases: Iterable[Case]) -> Runs:
        for case in cases:
            if case not in self._runs:
                self._runs[case] = run_case(case, self.place, self.ends)
        return {case: self._runs[case] for case in cases}

    def runs_of_team(self, step: float) -> Runs:
        return self.runs([case for case in cases_of(self.plan, step) if case.coders == TEAM])


def measure_idle(bench: Bench) -> Iterator[Table | Aim]:
    idle = run_idle(bench.plan, bench.place)
    yield idle_table(idle)
    known = idle if isinstance(idle, Idle) else None
    largest = max(worker.megabytes for worker in known.workers) if known else None
    yield Aim("idle: % of a core, supervisor and workers together", known and known.share * 100, most=1)
    yield Aim("idle: MB of a worker", largest, most=60)


def measure_merges(bench: Bench) -> Iterator[Table | Aim]:
    sizes = run_sizes(bench.plan, bench.place, bench.ends)
    yield merge_table(sizes)
    yield worktree_table(sizes)
    for files, found in sizes.items():
        if isinstance(found, Found):
            proven, theirs = (middle(took) * MS for took in (found.merges.proven, found.merges.theirs))
            limit = f"git merge with the same syncs {theirs:.1f} ms"
            yield Aim(
                f"ms of a merge with proof, {files:,} files: as git at most", proven, most=theirs, limit=limit
            )
    yield from _growth(sizes)


def _growth(sizes: Sizes) -> Iterator[Aim]:
    small, large = sizes.get(SMALL), sizes.get(LARGE)
    if isinstance(small, Found) and isinstance(large, Found):
        growth = middle(large.merges.ours) / middle(small.merges.ours)
        recycled = middle(large.checkouts.later) / min(large.checkouts.first)
        yield Aim(f"a merge at {LARGE:,} files, times one at {SMALL:,}", growth, most=1.5)
        yield Aim(f"a recycled worktree at {LARGE:,} files, times a quick new one", recycled, most=0.5)


def measure_stops(bench: Bench) -> Iterator[Table | Aim]:
    stops = run_stops(bench.plan, bench.place, bench.ends)
    yield stops_table(stops)
    limit = f"killing {AGENTS} processes {bare.kill_seconds(AGENTS) * MS:.1f} ms, {bare.describe_git()}"
    for says, took, most in (
        ("ABORT until all agents have ended, p99 s", stops.aborted, 1.0),
        ("ABORT until `liza run` has ended, work saved, p99 s", stops.ended, 0.7),
    ):
        yield Aim(says, quantile(sorted(took), 0.99) if took else None, most=most, limit=limit)


def measure_sandbox(bench: Bench) -> Iterator[Table | Aim]:
    found = run_sandboxes(bench.place)
    yield sandbox_table(found)
    adds = found.commits - found.free_commits if isinstance(found, SandboxTimes) else None
    limit = f"{bare.describe_sandbox()}, {bare.describe_git()}"
    if isinstance(found, SandboxTimes):
        limit += f"; the sandbox adds {found.cpu:.0f} ms of CPU"
    yield Aim("ms that the sandbox adds to a run with a commit", adds, most=30, limit=limit)


def measure_gates(bench: Bench) -> Iterator[Table | Aim]:
    found = run_gates(bench.place, bench.plan.judged, bench.plan.rounds)
    yield gates_table(found, bench.plan.rounds)
    own = median(found[GATED][ALL].own) * MS if GATED in found else None
    limit = f"one look by git status {bare.status_seconds(bench.place, GATED) * MS:.1f} ms"
    yield Aim(f"ms of the gates' own for a task, {GATED:,} files", own, most=120, limit=limit)


def measure_task(bench: Bench) -> Iterator[Table | Aim]:
    cost = measure_cost(bench.place)
    yield cost_table(cost)
    known = cost if isinstance(cost, Cost) else None
    git = known and known.git / known.tasks
    alone = bare.process_cpu(bare.GIT)
    limit = f"a git process {alone:.4f} s, {bare.describe_fork()}"
    yield Aim("CPU s a task beside its agents", known and known.cpu / known.tasks, most=0.3, limit=limit)
    yield Aim("git processes a task", git, most=15)


def measure_queue(bench: Bench) -> Iterator[Table | Aim]:
    queue = run_queue(bench.place, bench.plan.queued)
    yield queue_table(queue)
    says = f"merges tried for {bench.plan.queued} that land, {REVIEWERS} reviewers"
    tried = None if isinstance(queue, str) else float(queue.tried)
    yield Aim(says, tried, most=bench.plan.queued * TRIES, limit=f"{bench.plan.queued}")


def measure_steps(bench: Bench, step: float) -> Iterator[Table | Aim]:
    runs = bench.runs(cases_of(bench.plan, step))
    yield overhead_table(runs, bench.place)
    for case, done in runs.items():
        known = done if isinstance(done, Done) else None
        limit = f"ideal {case.ideal:.1f} s"
        if known:
            limit += f"; the cores allow {possible_percent(case, known):.0f} % at the CPU of this run"
        yield Aim(
            f"% of the ideal, {step:g} s a step, coders: {case.coders}",
            known and percent(case, known.work),
            least=LEAST_SHARES[step, case.coders],
            limit=limit,
        )


def measure_start(bench: Bench) -> Iterator[Table | Aim]:
    runs = [done for done in bench.runs_of_team(LONG_STEP).values() if isinstance(done, Done)]
    start, end = (median(took) if took else None for took in ([d.start for d in runs], [d.end for d in runs]))
    imports = f"{bare.describe_imports()}, {bare.describe_fork()}"
    yield Aim(f"s from `liza run` to the first claim, {TEAM} coders", start, most=1.0, limit=imports)
    yield Aim(
        f"s from the last merge to its end, {TEAM} coders",
        end,
        most=0.5,
        limit=bare.describe_sync(bench.place),
    )


def measure_hand_over(bench: Bench) -> Iterator[Table | Aim]:
    runs = {**bench.runs_of_team(LONG_STEP), **bench.runs_of_team(SHORT_STEP)}
    yield latency_table(runs)
    waits = sorted(wait for done in runs.values() if isinstance(done, Done) for wait in done.handed_over)
    limit = f"{bare.describe_sync(bench.place)}, {bare.describe_fork()}"
    for name, share, most in (("p50", 0.5, 15), ("p99", 0.99, 50)):
        waited = quantile(waits, share) * MS if waits else None
        yield Aim(f"ms from submit to take_review, {TEAM} coders, {name}", waited, most=most, limit=limit)


ROWS: Final[dict[str, Callable[[Bench], Iterator[Table | Aim]]]] = {
    "idle": measure_idle,
    "merge": measure_merges,
    "abort": measure_stops,
    "sandbox": measure_sandbox,
    "gates": measure_gates,
    "task": measure_task,
    "tries": measure_queue,
    # These come last, because they can be left out one by one.
    "steps": lambda bench: measure_steps(bench, LONG_STEP),
    "start": measure_start,
    "short-steps": lambda bench: measure_steps(bench, SHORT_STEP),
    "hand-over": measure_hand_over,
}


def tables(plan: DaemonPlan, place: Path, rows: Iterable[str] = tuple(ROWS)) -> Iterator[Table]:
    """Yield each table as soon as it is known; what there is no time for is said in its place."""
    bench, before = Bench(plan, place), getloadavg()[0]
    aims = Table(
        "Aims of the daemon",
        ("row", "aim", "at least", "at most", "measured", "verdict", "the machine itself"),
    )
    slower = bare.stretch()
    for row in rows:
        for found in ROWS[row](bench):
            if isinstance(found, Table):
                yield found
            else:
                _add(aims, row, found, slower)
    slower = max(slower, bare.stretch())
    if slower > BUSY:
        aims.notes.append(
            f"others are at work: a second of CPU takes {slower:.1f} s here, and all times are longer"
        )
    aims.notes.append(f"load of the machine: {before:.1f} before, {getloadavg()[0]:.1f} after (1 minute)")
    yield aims


def _add(aims: Table, row: str, aim: Aim, slower: float) -> None:
    least, most = (None if abs(bound) == float("inf") else bound for bound in (aim.least, aim.most))
    verdict = aim.verdict()
    unsure = verdict == MISSED and row not in STEADY and slower > BUSY
    aims.add(row, aim.says, least, most, aim.measured, UNSURE if unsure else verdict, aim.limit)
    why = f"{row}: {WHY[row]}" if verdict == MISSED and row in WHY else None
    if why and why not in aims.notes:
        aims.notes.append(why)
