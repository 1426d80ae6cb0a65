"""What the board costs besides time: bytes, watching it, being woken by it, and asking for it in a shell."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from liza.board.file import FileBoard
from liza.board.quick_read import read_quickly
from scripts.benchmark.aims import MISSED
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
OPENING_AIMS: Final = {1_000: 30.0, 10_000: 100.0}  # ms in which a new process reads what a look needs
STATUS_AIMS: Final = {1: 1.3, 1_000: 2.0, 10_000: 4.0}  # times the imports, by tasks
WHY_STATUS: Final = (
    "beyond the imports `liza status` takes as long again: two fifths of it make the classes of a hundred "
    "kinds of record, a fifth is the command line, a fifth builds what checks the kinds that it meets, and a "
    "sixth is what pydantic loads to look for plugins; less needs a second reader and a second rendering "
    "that know no records"
)
WHY_LOOK: Final = (
    "a look is longer than aimed at: of a snapshot its sum, its index of all tasks and all but the tasks are "
    "read; without a snapshot every line of the journal is"
)
LOOK: Final = "a look: what `liza status` reads; bare read: the bytes of state.yaml, nothing done with them"


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
    columns = ("tasks", "a look ms", "aim", "bare read ms", "open ms", "first update ms")
    table = Table("   A new process", columns)
    for size in plan.sizes:
        progress(f"a new process, {size:,} tasks")
        with prepared(place, LIZA, board_of(size)) as directory:
            with child(_look, directory) as line:
                looked, read = line.recv()
            with child(_open, directory) as line:
                opened, updated = line.recv()
        aim = _verdict(looked * MS, OPENING_AIMS.get(size))
        table.add(size, looked * MS, aim, read * MS, opened * MS, updated * MS)
    table.notes += [LOOK, *_reasons(table, WHY_LOOK)]
    return table


def _look(line: Connection, directory: Path) -> None:
    home = directory / ".liza"
    begun = time.monotonic()
    seen = read_quickly(home)
    looked = time.monotonic()
    if seen is None:
        raise RuntimeError(f"{home} cannot be read at a glance")
    (home / "state.yaml").read_bytes()
    line.send((looked - begun, time.monotonic() - looked))


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
    with ExitStack() as stack:
        cases = [_Asked(None, ("-c", words), place) for words in ("pass", IMPORTS)]
        for size in (1, *plan.shell_sizes):
            at = _repository(stack.enter_context(prepared(place, LIZA, board_of(size))))
            cases.append(_Asked(size, ("-m", "liza", "status"), at))
        found = _in_turn(cases, plan.shell_runs)
    imports = _ms(table, found[1])
    for case, seconds in zip(cases, found, strict=True):
        words, took = " ".join(("python", *map(shlex.quote, case.words))), _ms(table, seconds)
        times = took / imports if case.tasks and took and imports else None
        table.add(words, case.tasks, took, times, _verdict(times, STATUS_AIMS.get(case.tasks or 0)))
    table.notes += _reasons(table, WHY_STATUS)
    return table


class _Asked(NamedTuple):
    """A command that is asked from the shell, on a board of so many *tasks* or on none."""

    tasks: int | None
    words: tuple[str, ...]
    at: Path


def _in_turn(cases: Sequence[_Asked], runs: int) -> list[float | str]:
    """Return the median seconds of each, or what it failed with; in turn, so that a slow moment meets all."""
    rounds = [[python(*case.words, at=case.at) for case in cases] for _ in range(runs)]
    return [_median(took) for took in zip(*rounds, strict=True)]


def _median(took: Sequence[float | str]) -> float | str:
    known = [seconds for seconds in took if not isinstance(seconds, str)]
    failed = [words for words in took if isinstance(words, str)]
    return failed[0] if failed else quantile(sorted(known), 0.5)


def _reasons(table: Table, why: str) -> list[str]:
    """Return *why* where an aim of *table* is missed."""
    return [why] if any(str(cell).startswith(MISSED) for row in table.rows for cell in row) else []


def _verdict(measured: float | None, most: float | None) -> str | None:
    if measured is None or most is None:
        return None
    return f"{'met' if measured <= most else MISSED}: at most {most:g}"


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


def python(*words: str, at: Path) -> float | str:
    """Return the seconds that Python takes with *words*, or the sentence it failed with."""
    begun = time.monotonic()
    ended = subprocess.run([sys.executable, *words], cwd=at, capture_output=True, text=True, check=False)
    took = time.monotonic() - begun
    if ended.returncode:
        return f"failed: {(ended.stderr.strip() or 'without a word').splitlines()[-1]}"
    return took
