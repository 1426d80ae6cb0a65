"""Writers, each in its process, that start together on one board: what it took, and what was lost."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from scripts.benchmark.processes import child
from scripts.benchmark.rivals import ENGINES, Row

HEAD_START: Final = 0.05  # seconds until the start, so that every writer has heard of it by then
PROBES: Final = 20
PROBE_SIZE: Final = 300  # bytes, about a line of our journal
APART: Final = 1_000_003  # between the numbers of two writers, so that they meet different tasks


class Lap(NamedTuple):
    """One update: how long it took, and when it was done, in seconds from the start."""

    took: float
    done: float


class Finish(NamedTuple):
    laps: tuple[tuple[Lap, ...], ...]  # by writer
    seconds: float  # that the race was to last
    elapsed: float  # until the last update was done
    lost: int  # acknowledged, but not on the board
    syncs: tuple[float, ...]  # what the disk took for the least that is durable, just before

    @property
    def took(self) -> list[float]:
        return sorted(lap.took for laps in self.laps for lap in laps)

    @property
    def sync(self) -> float:
        return quantile(sorted(self.syncs), 0.5)

    @property
    def median(self) -> float:
        return quantile(self.took, 0.5)

    @property
    def p99(self) -> float:
        return quantile(self.took, 0.99)

    @property
    def longest(self) -> float:
        return self.took[-1]

    @property
    def updates(self) -> int:
        return sum(map(len, self.laps))

    @property
    def rate(self) -> float:
        return self.updates / self.elapsed

    @property
    def in_time(self) -> list[int]:
        """What each writer did before time was up, fewest first."""
        return sorted(sum(lap.done <= self.seconds for lap in laps) for laps in self.laps)


def together(one: Finish, other: Finish) -> Finish:
    """Return two rounds of one writer as one."""
    return Finish(
        laps=one.laps + other.laps,
        seconds=one.seconds + other.seconds,
        elapsed=one.elapsed + other.elapsed,
        lost=one.lost + other.lost,
        syncs=one.syncs + other.syncs,
    )


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def race(row: Row, directory: Path, writers: int, seconds: float) -> Finish:
    """Let *writers* processes update the board in *directory* all at once."""
    syncs = _syncs(directory / "probe")
    before = _count(row, directory)
    laps = _run(row, directory, writers, seconds)
    acknowledged = writers * row.warm_ups + sum(map(len, laps))
    lost = acknowledged - (_count(row, directory) - before)
    return Finish(laps, seconds, max(lap.done for each in laps for lap in each), lost, syncs)


def _syncs(path: Path) -> tuple[float, ...]:
    """Append a few lines, each synced: it tells how fast the disk is just now, which others use as well."""
    took = []
    with path.open("ab", buffering=0) as file:
        for _ in range(PROBES):
            begun = time.monotonic()
            file.write(bytes(PROBE_SIZE))
            os.fdatasync(file.fileno())
            took.append(time.monotonic() - begun)
    return tuple(took)


def _count(row: Row, directory: Path) -> int:
    with closing(row.open(directory)) as board:
        return board.count()


def _run(row: Row, directory: Path, writers: int, seconds: float) -> tuple[tuple[Lap, ...], ...]:
    with ExitStack() as stack:
        lines = [
            stack.enter_context(child(_write, row.name, directory, number * APART, seconds))
            for number in range(writers)
        ]
        for line in lines:
            line.recv()
        start = time.monotonic() + HEAD_START
        for line in lines:
            line.send(start)
        return tuple(line.recv() for line in lines)


def _write(line: Connection, engine: str, directory: Path, number: int, seconds: float) -> None:
    row = ENGINES[engine]
    with closing(row.open(directory)) as board:
        for extra in range(row.warm_ups):
            board.update(number + extra)
        line.send("ready")
        start = line.recv()
        time.sleep(max(0.0, start - time.monotonic()))
        laps: list[Lap] = []
        begin = 0.0
        while begin < seconds:
            board.update(number + len(laps))
            done = time.monotonic() - start
            laps.append(Lap(done - begin, done))
            begin = done
        line.send(tuple(laps))
