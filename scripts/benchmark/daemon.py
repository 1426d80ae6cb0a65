"""The daemon's part of the benchmark: whole runs with an agent that does nothing, in the time it needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from os import getloadavg
from pathlib import Path
from typing import Final

from scripts.benchmark.aims import Aim
from scripts.benchmark.caging import cage_table
from scripts.benchmark.gating import gates_table
from scripts.benchmark.idling import Idle, idle_table, run_idle
from scripts.benchmark.overhead import Done, Runs, latency_table, overhead_table, percent, run_all
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.race import quantile
from scripts.benchmark.stopping import Stops, run_stops, stops_table
from scripts.benchmark.tables import Table
from scripts.benchmark.task_cost import Cost, cost_table, measure_cost
from scripts.benchmark.trees import Found, Sizes, median, merge_table, run_sizes, worktree_table

AIMED_STEP: Final = 1.0  # seconds a step, from which on the daemon should hardly be noticed
SMALL: Final = 100  # files
LARGE: Final = 50_000
POLL: Final = 1.0  # seconds between two looks of a quick poll, half of which it waits at the median


def tables(plan: DaemonPlan, place: Path) -> Iterator[Table]:
    """Yield each table as soon as it is known; what there is no time for is said in its place."""
    before, ends = getloadavg()[0], time.monotonic() + plan.seconds
    idle = run_idle(plan, place)
    yield idle_table(idle)
    sizes = run_sizes(plan, place, ends)
    yield merge_table(sizes)
    yield worktree_table(sizes)
    stops = run_stops(plan, place, ends)
    yield stops_table(stops)
    yield cage_table(place)
    yield gates_table(place, plan.judged, plan.rounds)
    cost = measure_cost(place)
    # These come last, because they can be left out one by one.
    runs = run_all(plan, place, ends)
    yield overhead_table(runs, place)
    yield latency_table(runs)
    yield cost_table(cost)
    aims = Table("12. Aims of the daemon", ("aim", "measured", "verdict"))
    for aim in (*_orchestration(runs), *_switches(stops), *_sizes(sizes), *_idleness(idle), *_costs(cost)):
        aims.add(aim.says, aim.measured, aim.verdict())
    aims.notes.append(f"load of the machine: {before:.1f} before, {getloadavg()[0]:.1f} after (1 minute)")
    yield aims


def _orchestration(runs: Runs) -> list[Aim]:
    aimed = {case: done for case, done in runs.items() if case.step == AIMED_STEP and isinstance(done, Done)}
    waits = sorted(wait for done in runs.values() if isinstance(done, Done) for wait in done.handed_over)
    says = f"{AIMED_STEP:g} s a step: over 90 % of ideal, the worst of all teams"
    worst = min((percent(case, done.work) for case, done in aimed.items()), default=None)
    whole = min((percent(case, done.whole) for case, done in aimed.items()), default=None)
    return [
        Aim(f"{says}, first claim to last merge", worst, least=90),
        Aim(f"{says}, the whole command", whole, least=90),
        Aim(
            f"hand-over: p50 in s, below half of a poll every {POLL:g} s",
            quantile(waits, 0.5) if waits else None,
            most=POLL / 2,
        ),
    ]


def _switches(stops: Stops) -> list[Aim]:
    took = sorted(stops.aborted)
    return [Aim("ABORT: p99 in s, under one", quantile(took, 0.99) if took else None, most=1)]


def _sizes(sizes: Sizes) -> list[Aim]:
    small, large = sizes.get(SMALL), sizes.get(LARGE)
    growth = recycled = None
    if isinstance(small, Found) and isinstance(large, Found):
        growth = median(large.merges.ours) / median(small.merges.ours)
        recycled = median(large.checkouts.later) / min(large.checkouts.first)
    return [
        Aim(f"a merge at {LARGE:,} files: at most 1.5 times one at {SMALL:,}", growth, most=1.5),
        Aim(
            f"{LARGE:,} files: a recycled worktree in half the time of a quick new one",
            recycled,
            most=0.5,
        ),
    ]


def _costs(cost: Cost | str) -> list[Aim]:
    known = cost if isinstance(cost, Cost) else None
    return [
        Aim("a task: under 0.3 CPU seconds beside its agents", known and known.cpu / known.tasks, most=0.3),
        Aim("a task: under 15 git processes", known and known.git / known.tasks, most=15),
    ]


def _idleness(idle: Idle | str) -> list[Aim]:
    known = idle if isinstance(idle, Idle) else None
    largest = max(worker.megabytes for worker in known.workers) if known else None
    return [
        Aim("idle: under 1 % of a core together", known and known.share * 100, most=1),
        Aim("idle: a worker under 60 MB", largest, most=60),
    ]
