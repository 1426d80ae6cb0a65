"""A worker that does as it is told: what a supervisor has to cope with, as a program.

`python fake_worker.py HOME HABITS ROLE NAME`, where the file HABITS has JSON: a habit by name or role. The
habits that need a board are in `tests.support.board_habits`, because most workers only have to be there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from liza.errors import LizaError
from liza.system import files


class Ending:
    """Told by a signal handler: that may not set an event, whose lock the same thread may hold just then."""

    def __init__(self) -> None:
        self._told, self._tell = os.pipe()

    def set(self) -> None:
        os.write(self._tell, b".")

    def wait(self, timeout: float | None = None) -> bool:
        return bool(select.select([self._told], [], [], timeout)[0])


class Worker:
    def __init__(self, home: Path, role: str, name: str) -> None:
        self.home = home
        self.role = role
        self.name = name
        self.over = Ending()

    def wait(self) -> int:
        """Live until told to end, or nobody is there any more who could tell."""
        parent = os.getppid()
        while not self.over.wait(0.05):
            if (self.home / "ABORT").exists() or os.getppid() != parent:
                return 0
        return 0

    def crash(self) -> int:
        sys.stderr.write("ValueError: the worker is broken\n")
        return 1

    def again(self) -> int:
        """Ask to be started again, twice."""
        return 42 if len(starts(self.home, self.name)) <= 2 else self.wait()

    def engrossed(self) -> int:
        """Look at no switch, as whoever waits for the board; hear SIGTERM."""
        self.say("engrossed")
        self.over.wait()
        return 0

    def deaf(self) -> int:
        """Hang, and hear neither SIGTERM nor ABORT."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.say("deaf")
        while True:
            signal.pause()

    def busy(self, habit: str) -> int:
        from tests.support import board_habits  # noqa: PLC0415 - half of the time that a worker takes to start

        return int(getattr(board_habits, habit)(self))

    def say(self, line: str) -> None:
        with (self.home / f"{self.name}.said").open("a") as file:
            file.write(f"{line}\n")


def starts(home: Path, name: str) -> list[int]:
    """Return the pids of the processes that were *name*, in order."""
    return [int(line.split()[1]) for line in said(home, name) if line.startswith("start ")]


def said(home: Path, name: str) -> list[str]:
    path = home / f"{name}.said"
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    worker = Worker(Path(sys.argv[1]), sys.argv[3], sys.argv[4])
    habits = json.loads(Path(sys.argv[2]).read_text())
    habit = habits.get(worker.name) or habits.get(worker.role) or "wait"
    signal.signal(signal.SIGTERM, lambda *_: worker.over.set())
    (worker.home / files.WORKERS_DIRECTORY).mkdir(exist_ok=True)
    with files.hold_for_life(
        worker.home / files.WORKERS_DIRECTORY / f"{worker.name}.lock", at=datetime.now(UTC)
    ):
        worker.say(f"start {os.getpid()}")
        try:
            return int(getattr(worker, habit)()) if hasattr(worker, habit) else worker.busy(habit)
        except LizaError as error:
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
