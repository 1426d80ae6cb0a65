"""How much is measured: the whole benchmark, or a small one that a test can afford."""

from __future__ import annotations

from typing import Final, NamedTuple


class Plan(NamedTuple):
    sizes: tuple[int, ...]  # tasks on the boards of a lone writer
    round: float  # seconds that a lone writer writes at a time
    rounds: int
    crowded_sizes: tuple[int, ...]
    writers: tuple[int, ...]
    crowded: float  # seconds that many writers write at once
    histories: tuple[int, ...]  # earlier events of each task
    traced: int  # updates under strace
    idle: float  # seconds that a watcher waits in vain
    wakings: int
    shell_sizes: tuple[int, ...]
    shell_runs: int


FULL: Final = Plan(
    sizes=(10, 100, 1_000, 10_000),
    round=0.6,
    rounds=3,
    crowded_sizes=(100, 1_000),
    writers=(2, 8, 32),
    crowded=2.0,
    histories=(0, 8, 80, 800),
    traced=200,
    idle=6.0,
    wakings=200,
    shell_sizes=(10, 1_000, 10_000),
    shell_runs=11,
)

QUICK: Final = Plan(
    sizes=(10, 100),
    round=0.2,
    rounds=1,
    crowded_sizes=(100,),
    writers=(2, 8),
    crowded=0.3,
    histories=(0, 8),
    traced=20,
    idle=0.5,
    wakings=20,
    shell_sizes=(10,),
    shell_runs=3,
)


class DaemonPlan(NamedTuple):
    seconds: float  # after which nothing more is begun
    steps: tuple[tuple[float, int], ...]  # seconds that an agent takes, and tasks that wait for nothing
    coders: tuple[int, ...]
    aborts: int  # rounds that end in ABORT
    pauses: int  # in each of them
    files: tuple[int, ...]  # in the repositories
    merges: int
    worktrees: int  # rounds, of which the first makes them and the others use them again
    rest: float  # seconds that an idle run is watched
    judged: tuple[int, ...]  # files in the repositories on which gates are asked
    rounds: int  # of all gates
    queued: int  # tasks that four reviewers merge


# Rows are left out when the time is used up; those that run by then may take it to eight minutes.
DAEMON: Final = DaemonPlan(
    seconds=420.0,
    steps=((0.2, 40), (1.0, 8)),
    coders=(1, 2, 4, 8),
    aborts=6,
    pauses=4,
    files=(100, 5_000, 50_000),
    merges=20,
    worktrees=4,
    rest=30.0,
    judged=(50, 5_000),
    rounds=5,
    queued=100,
)

QUICK_DAEMON: Final = DaemonPlan(
    seconds=90.0,
    steps=((0.2, 6), (1.0, 2)),
    coders=(1, 8),
    aborts=1,
    pauses=2,
    files=(100, 1_000),
    merges=5,
    worktrees=2,
    rest=3.0,
    judged=(50, 5_000),
    rounds=1,
    queued=12,
)
