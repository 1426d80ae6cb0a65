"""How fast the engines are: alone on boards of growing size, in a crowd, and with growing histories."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.model import State
from scripts.benchmark.boards import board_of
from scripts.benchmark.plan import Plan
from scripts.benchmark.race import Finish, race, together
from scripts.benchmark.rivals import C_YAML, ENGINES, LIZA, SQLITE, Row
from scripts.benchmark.tables import Table

MS: Final = 1000.0
BEGAN: Final = time.monotonic()
TOO_SLOW: Final = 15.0  # seconds an update; what is slower is said to be so instead of measured
ENOUGH: Final = 3.0  # seconds after which an engine gets no further round
LONGEST_TURN: Final = 10.0  # seconds that all writers of a race may take for one update each
CONTENDERS: Final = (LIZA, SQLITE, C_YAML)
HISTORY_SIZE: Final = 100  # tasks on the boards with growing histories
SYNC: Final = (
    "sync ms: what appending 300 bytes and syncing them took just before, whoever else used the disk"
)

Outcome = Finish | str  # a string says why there is no measurement
Alone = dict[tuple[str, int], Outcome]  # by engine, and by tasks or earlier events
Crowded = dict[tuple[str, int, int], Outcome]  # by engine, tasks and writers


class Entrant(NamedTuple):
    row: Row
    state: State
    key: tuple[str, int]


def progress(words: str) -> None:
    print(f"bench: {time.monotonic() - BEGAN:4.0f} s: {words}", file=sys.stderr, flush=True)


@contextmanager
def prepared(place: Path, row: Row, state: State) -> Iterator[Path]:
    """Yield a directory with a fresh board, of whose making nothing is left to be written."""
    with TemporaryDirectory(prefix=f"{row.name}-", dir=place) as name:
        row.prepare(Path(name), state)
        os.sync()
        yield Path(name)


def in_rounds(plan: Plan, place: Path, entrants: Sequence[Entrant]) -> Alone:
    """Measure a lone writer on each board, round after round, so that a slow moment meets them all."""
    found: Alone = {}
    with ExitStack() as stack:
        places = [stack.enter_context(prepared(place, row, state)) for row, state, _ in entrants]
        for number, (entrant, directory) in product(range(plan.rounds), zip(entrants, places, strict=True)):
            before = found.get(entrant.key)
            if isinstance(before, Finish) and before.elapsed > ENOUGH:
                continue
            name, amount = entrant.key
            progress(f"one writer, {name}, {amount:,}, round {number + 1}")
            now = race(entrant.row, directory, 1, plan.round)
            found[entrant.key] = together(before, now) if isinstance(before, Finish) else now
    return found


def run_alone(plan: Plan, place: Path) -> Alone:
    found: Alone = {}
    smaller = 0
    for size in plan.sizes:
        state = board_of(size)
        entrants = []
        for row in ENGINES.values():
            key = row.name, size
            if reason := row.missing() or _too_slow(found.get((row.name, smaller)), smaller, size):
                found[key] = reason
            else:
                entrants.append(Entrant(row, state, key))
        found |= in_rounds(plan, place, entrants)
        smaller = size
    return found


def _too_slow(before: Outcome | None, smaller: int, size: int) -> str | None:
    if not isinstance(before, Finish) or not smaller:
        return before if isinstance(before, str) else None
    expected = before.median * size / smaller
    return f"skipped: about {expected:,.0f} s an update" if expected > TOO_SLOW else None


def alone_tables(found: Alone) -> list[Table]:
    table = Table(
        "1. One writer: an update is one field and one history event of one task, durable on return",
        ("tasks", "engine", "median ms", "p99 ms", "updates/s", "updates", "lost", "sync ms"),
    )
    for size, name in product(_sizes(found), ENGINES):
        outcome = found[name, size]
        if isinstance(outcome, str):
            table.notes.append(f"{name} at {size:,} tasks: {outcome}")
        else:
            median, p99 = outcome.median * MS, outcome.p99 * MS
            numbers = (median, p99, outcome.rate, outcome.updates, outcome.lost, outcome.sync * MS)
            table.add(size, name, *numbers)
    table.notes.append(SYNC)
    return [table, _ratio_table(found)]


def _sizes(found: Alone) -> list[int]:
    return sorted({size for _, size in found})


def _ratio_table(found: Alone) -> Table:
    table = Table("   Ratios of the medians", ("tasks", "yaml-c / liza", "liza / sqlite"))
    for size in _sizes(found):
        ours, theirs, naive = (found[row.name, size] for row in CONTENDERS)
        table.add(size, ratio(naive, ours), ratio(ours, theirs))
    return table


def ratio(over: Outcome | None, under: Outcome | None) -> float | None:
    """Return how many times the one median is the other, where both were measured."""
    if isinstance(over, Finish) and isinstance(under, Finish):
        return over.median / under.median
    return None


def run_crowded(plan: Plan, place: Path, alone: Alone) -> Crowded:
    found: Crowded = {}
    for size in plan.crowded_sizes:
        state = board_of(size)
        for writers, row in product(plan.writers, CONTENDERS):
            progress(f"{writers} writers, {row.name}, {size:,} tasks")
            key = row.name, size, writers
            if reason := _too_long(alone[row.name, size], writers):
                found[key] = reason
                continue
            with prepared(place, row, state) as directory:
                found[key] = race(row, directory, writers, plan.crowded)
    return found


def _too_long(alone: Outcome, writers: int) -> str | None:
    if isinstance(alone, str):
        return alone
    turn = alone.median * writers
    return f"skipped: {writers} writers need {turn:,.0f} s for one turn" if turn > LONGEST_TURN else None


def crowded_table(found: Crowded, seconds: float) -> Table:
    shared, waited = ("fewest", "most"), ("p50 ms", "p99 ms", "longest ms")
    table = Table(
        f"2. Many writers for {seconds:g} s: updates of all, those of the writer with fewest and with most, "
        "and how long one takes",
        ("tasks", "writers", "engine", "updates/s", *shared, *waited, "lost", "sync ms"),
    )
    for (name, size, writers), outcome in found.items():
        if isinstance(outcome, str):
            table.notes.append(f"{name} at {size:,} tasks: {outcome}")
        else:
            shares, waits = outcome.in_time, (outcome.median, outcome.p99, outcome.longest)
            each = (wait * MS for wait in waits)
            numbers = (outcome.rate, shares[0], shares[-1], *each, outcome.lost, outcome.sync * MS)
            table.add(size, writers, name, *numbers)
    return table


def run_in_history(plan: Plan, place: Path) -> Alone:
    # A task has at least the event that added it.
    states = {events: board_of(HISTORY_SIZE, events=max(1, events)) for events in plan.histories}
    found = in_rounds(plan, place, [Entrant(LIZA, state, (LIZA.name, n)) for n, state in states.items()])
    fewer = 0
    for events, state in states.items():
        key = C_YAML.name, events
        if reason := _too_slow(found.get((C_YAML.name, fewer)), fewer, events):
            found[key] = reason
        else:
            found |= in_rounds(plan, place, [Entrant(C_YAML, state, key)])
        fewer = events
    return found


def history_table(found: Alone) -> Table:
    table = Table(
        f"3. Growth with history: {HISTORY_SIZE} tasks, one writer",
        ("earlier events a task", "engine", "median ms", "p99 ms", "updates", "sync ms"),
    )
    for (name, events), outcome in found.items():
        if isinstance(outcome, str):
            table.notes.append(f"{name} with {events:,} events a task: {outcome}")
        else:
            median, p99 = outcome.median * MS, outcome.p99 * MS
            table.add(events, name, median, p99, outcome.updates, outcome.sync * MS)
    return table
