"""What the board costs besides time: bytes, watching it, being woken by it, and asking for it in a shell."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from liza.board.file import FileBoard
from scripts.benchmark.boards import board_of
from scripts.benchmark.plan import Plan
from scripts.benchmark.processes import child
from scripts.benchmark.race import quantile
from scripts.benchmark.rivals import C_YAML, LIZA, Ours
from scripts.benchmark.speed import CONTENDERS, MS, prepared, progress
from scripts.benchmark.tables import Table
from scripts.benchmark.traced import Written, traced

SETTLE: Final = 0.3  # seconds in which a watcher starts its threads, which is no cost of idling
GAP: Final = 0.02  # seconds between two updates, so that the watcher waits again by then
LONGEST: Final = 10.0  # seconds that a watcher waits for an update
# What a command that reads the board cannot do without.
IMPORTS: Final = "import yaml; from pydantic import BaseModel"
WATCHED: Final = 100  # tasks on the board that is watched
OPENING_AIMS: Final = {1_000: 30.0, 10_000: 100.0}  # ms to open and read a board of so many tasks
STATUS_AIMS: Final = {1: 1.3, 1_000: 2.0, 10_000: 4.0}  # times the imports, by tasks


class Idle(NamedTuple):
    """What a process uses a second while it waits for a board on which nothing happens."""

    cpu: float
    wakeups: float


def bytes_table(plan: Plan, place: Path) -> Table:
    size = plan.crowded_sizes[-1]
    table = Table(
        f"4. What an update writes, {size:,} tasks",
        ("engine", "syncs", "bytes synced", "bytes written", "told by"),
    )
    for row in CONTENDERS:
        progress(f"bytes that an update writes, {row.name}")
        with prepared(place, row, board_of(size)) as directory:
            told = traced(row, directory, 1 if row is C_YAML else plan.traced)
        if isinstance(told, Written):
            table.add(row.name, *told)
        else:
            table.notes.append(f"{row.name}: {told}")
    return table


def opening_table(plan: Plan, place: Path) -> Table:
    table = Table("   A new process", ("tasks", "open and read ms", "aim", "first update ms"))
    for size in plan.sizes:
        progress(f"a new process, {size:,} tasks")
        with prepared(place, LIZA, board_of(size)) as directory, child(_open, directory) as line:
            opened, updated = line.recv()
        table.add(size, opened * MS, _verdict(opened * MS, OPENING_AIMS.get(size)), updated * MS)
    return table


def _open(line: Connection, directory: Path) -> None:
    begun = time.monotonic()
    with closing(Ours(directory)) as board:
        opened = time.monotonic()
        board.update(0)
        line.send((opened - begun, time.monotonic() - opened))


def watch_table(plan: Plan, place: Path) -> Table:
    table = Table(f"   Watching, {WATCHED} tasks", ("what", "value", "unit"))
    progress("an idle watcher, and how soon one wakes")
    with prepared(place, LIZA, board_of(WATCHED)) as directory:
        used = idle(directory, plan.idle)
        took = wakings(directory, plan.wakings)
    table.add("CPU of an idle watcher", used.cpu * MS, "ms a second")
    table.add("wake-ups of an idle watcher", used.wakeups, "a second")
    table.add("from the call of update until wait returns elsewhere, p50", quantile(took, 0.5) * MS, "ms")
    table.add("from the call of update until wait returns elsewhere, p99", quantile(took, 0.99) * MS, "ms")
    return table


def idle(directory: Path, seconds: float) -> Idle:
    with child(_wait_in_vain, directory, seconds) as line:
        used: Idle = line.recv()
        return used


def _wait_in_vain(line: Connection, directory: Path, seconds: float) -> None:
    with closing(FileBoard(directory / ".liza")) as board:
        revision = board.read().revision
        board.wait(revision, SETTLE)
        before = resource.getrusage(resource.RUSAGE_SELF)
        board.wait(revision, seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line.send(Idle(cpu / seconds, (after.ru_nvcsw - before.ru_nvcsw) / seconds))


def wakings(directory: Path, updates: int) -> list[float]:
    """Return the seconds from the call of an update until `wait` returned in another process, sorted."""
    took = []
    with child(_watch, directory, updates) as line, closing(Ours(directory)) as writer:
        line.recv()
        for number in range(updates):
            time.sleep(GAP)
            begun = time.monotonic()
            writer.update(number)
            took.append(line.recv() - begun)
    return sorted(took)


def _watch(line: Connection, directory: Path, updates: int) -> None:
    with closing(FileBoard(directory / ".liza")) as board:
        revision = board.read().revision
        line.send("ready")
        for _ in range(updates):
            revision = board.wait(revision, LONGEST).revision
            line.send(time.monotonic())


def shell_table(plan: Plan, place: Path) -> Table:
    table = Table("   From the shell", ("command", "tasks", "median ms", "times the imports", "aim"))
    progress("`liza status` from the shell")
    imports = None
    for words in ("pass", IMPORTS):
        imports = _ms(table, python("-c", words, at=place, runs=plan.shell_runs))
        table.add(f"python -c '{words}'", None, imports, None, None)
    for size in (1, *plan.shell_sizes):
        with prepared(place, LIZA, board_of(size)) as directory:
            took = _ms(table, python("-m", "liza", "status", at=_repository(directory), runs=plan.shell_runs))
        times = took / imports if took and imports else None
        table.add("python -m liza status", size, took, times, _verdict(times, STATUS_AIMS.get(size)))
    return table


def _verdict(measured: float | None, most: float | None) -> str | None:
    if measured is None or most is None:
        return None
    return f"{'met' if measured <= most else 'NOT MET'}: at most {most:g}"


def _ms(table: Table, took: float | str) -> float | None:
    if isinstance(took, str):
        table.notes.append(took)
        return None
    return took * MS


def _repository(directory: Path) -> Path:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "begin"]):
        subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True)
    return directory


def python(*words: str, at: Path, runs: int) -> float | str:
    """Return the median of seconds that Python takes with *words*, or the sentence it failed with."""
    took = []
    for _ in range(runs):
        begun = time.monotonic()
        ended = subprocess.run([sys.executable, *words], cwd=at, capture_output=True, text=True, check=False)
        took.append(time.monotonic() - begun)
        if ended.returncode:
            return f"failed: {(ended.stderr.strip() or 'without a word').splitlines()[-1]}"
    return quantile(sorted(took), 0.5)
