"""What it takes to look on: the screen of `liza watch` before a thousand tasks that change all the time."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.board.file import FileBoard
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.record import utc_now
from liza.system.process import process_of, resource_use
from liza.workflow.transition import apply
from scripts.benchmark.aims import Aim
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Cell, Table
from tests.support.sample_tasks import board, claim, new_task, worker

TASKS: Final = 1_000
INTERVAL: Final = 0.1  # seconds between two changes
SIZES: Final = ((80, 24), (200, 60))
PATIENCE: Final = 60.0  # seconds until the first drawing
SETTLE: Final = 3.0  # seconds in which what a first drawing loads comes to rest
MOST_SHARE: Final = 0.10  # of a core
MOST_MB: Final = 150.0
MOST_DELAY: Final = 1.0  # seconds until a change is on the screen, of 99 in a hundred
_REVISION: Final = re.compile(rb"revision (\d+)")


class Looking(NamedTuple):
    share: float  # of a core
    megabytes: float
    delays: list[float]  # seconds from a change to its drawing

    def percentile(self, share: float) -> float:
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Terminal:
    """A pseudo-terminal that notes when which revision was drawn."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.drawn: dict[int, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                rest = rest[-64:] + os.read(self._master, 1 << 16)
            except OSError:
                return
            now = time.monotonic()
            for found in _REVISION.findall(rest):
                self.drawn.setdefault(int(found), now)


@contextmanager
def _watching(directory: Path, size: tuple[int, int]) -> Iterator[tuple[int, _Terminal]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    words = [sys.executable, "-m", "liza", "watch"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    child = subprocess.Popen(
        words, cwd=directory, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield child.pid, _Terminal(master)
    finally:
        child.terminate()
        child.wait()
        os.close(master)


def run_terminal(plan: DaemonPlan, place: Path, size: tuple[int, int]) -> Looking:
    """Let somebody look on for as long as *plan* rests, while the board changes ten times a second."""
    progress(f"a terminal of {size[0]}x{size[1]} before {TASKS} tasks for {plan.rest:g} s")
    with TemporaryDirectory(prefix="screen-", dir=place) as name:
        home = Path(name) / ".liza"
        ours = FileBoard.create(home, board(*(new_task(f"t{number:04}") for number in range(TASKS))))
        taken, by = claim(worker("coder-1"), at=utc_now())  # where nobody works, nothing changes
        ours.update(apply(taken, to=f"t{TASKS - 1:04}", by=by, at=utc_now()))
        with _watching(Path(name), size) as (pid, terminal):
            deadline = time.monotonic() + PATIENCE
            while not terminal.drawn and time.monotonic() < deadline:
                time.sleep(INTERVAL)
            time.sleep(SETTLE)
            began, before = time.monotonic(), cpu_of(pid)
            made = change_tasks(ours, plan.rest)
            share = (cpu_of(pid) - before) / (time.monotonic() - began)
            time.sleep(2 * MOST_DELAY)
            process = process_of(pid)
            megabytes = resource_use([process]).memory / (1 << 20) if process else 0.0
            return Looking(share, megabytes, delays_of(made, terminal.drawn))


def change_tasks(ours: FileBoard, seconds: float) -> dict[int, float]:
    """Change a task every tenth of a second, and return when each revision was made."""
    made: dict[int, float] = {}
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        number = len(made)
        amend = e.Amend(fields={"priority": number % 7 + 1})
        state = ours.update(apply(amend, to=f"t{number * 37 % TASKS:04}", by=HUMAN, at=utc_now()))
        made[state.revision] = time.monotonic()
        time.sleep(max(0.0, INTERVAL - (time.monotonic() - now)))
    return made


def delays_of(made: dict[int, float], drawn: dict[int, float]) -> list[float]:
    """Return how long each change took to be on the screen, by itself or with a later one."""
    shown = sorted(drawn.items())
    return [
        max(0.0, next((at for later, at in shown if later >= revision), float("inf")) - when)
        for revision, when in made.items()
    ]


def cpu_of(pid: int) -> float:
    process = process_of(pid)
    return process.cpu if process else 0.0


def tables(plan: DaemonPlan, place: Path) -> Iterator[Table]:
    found = {size: run_terminal(plan, place, size) for size in SIZES}
    table = Table(
        f"Looking on: {TASKS} tasks, a change every {INTERVAL:g} s",
        ("terminal", "cores", "MB", "p50 ms", "p99 ms", "verdict"),
    )
    for size, one in found.items():
        table.add(f"{size[0]}x{size[1]}", *looking_cells(one))
    yield table


def looking_cells(one: Looking) -> tuple[Cell, ...]:
    """Return the cells of a row: what it took, how late it was, and whether that is within the aims."""
    aims = (
        Aim("cores", one.share, most=MOST_SHARE),
        Aim("memory", one.megabytes, most=MOST_MB),
        Aim("delay", one.percentile(0.99), most=MOST_DELAY),
    )
    missed = [aim.says for aim in aims if aim.verdict() != "met"]
    verdict = f"NOT MET: {', '.join(missed)}" if missed else "met"
    delays = (one.percentile(share) * MS for share in (0.5, 0.99))
    return (one.share, one.megabytes, *delays, verdict)
