"""A supervisor in a process of its own, over workers with habits, on a real board in a real repository."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.board.alerts import ALERTS
from liza.board.file import FileBoard
from liza.cli.views.screen import LineView
from liza.daemon.supervisor import Until, supervise
from liza.domain.config import Config, Workers
from liza.errors import LizaError
from liza.system.process import leftover_processes
from tests.support.boards import PROCESSES
from tests.support.fake_worker import said, starts
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkServerProcess

    from liza.domain.model import State

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 120.0  # seconds anything may take on a busy machine
GRACE: Final = 1.0  # seconds that workers get to end, or the tests of those who do not would take long
TICK: Final = 0.02  # seconds between two looks at what has no event to wait for


def run(home: Path, habits: Path, out: Path, *, until_idle: bool, grace: float) -> None:
    """Be the supervisor; for a process of its own."""
    os.environ["PYTHONPATH"] = str(ROOT)
    worker = [sys.executable, str(ROOT / "tests" / "support" / "fake_worker.py"), str(home), str(habits)]
    with out.open("a") as stream:
        try:
            until = Until.IDLE if until_idle else Until.COMPLETE
            code = supervise(home, LineView(stream), until=until, worker=worker, grace=grace)
        except LizaError as error:
            stream.write(f"liza: {error}\n")
            code = error.exit_code
    sys.exit(code)


class SupervisorProcess:
    """A project with a board, and the supervisors that were started on it."""

    def __init__(self, root: Path, *, workers: Workers | None = None) -> None:
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the beginning"]):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)
        self.home = root / ".liza"
        config = Config(workers=workers or Workers(coder=1))
        self.board = FileBoard.create(self.home, story(new_task("t1"), config=config))
        self.habits = root / "habits.json"
        self.out = root / "out"
        self.started: list[ForkServerProcess] = []
        self.behave()

    def behave(self, **habits: str) -> None:
        self.habits.write_text(json.dumps({name.replace("_", "-"): habit for name, habit in habits.items()}))

    def start(self, *, until_idle: bool = False, grace: float = GRACE) -> ForkServerProcess:
        process = PROCESSES.Process(
            target=run,
            args=(self.home, self.habits, self.out),
            kwargs={"until_idle": until_idle, "grace": grace},
        )
        process.start()
        self.started.append(process)
        return process

    def until(self, is_so: Callable[[State], bool]) -> State:
        """Return the board once *is_so*."""
        deadline = time.monotonic() + PATIENCE
        state = self.board.read()
        while not is_so(state):
            assert time.monotonic() < deadline, self.told()
            state = self.board.wait(state.revision, 1.0)
        return state

    def eventually(self, is_so: Callable[[], object]) -> None:
        """Wait for something outside the board."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, self.told()
            time.sleep(TICK)

    def ended(self, process: ForkServerProcess) -> int:
        process.join(PATIENCE)
        assert process.exitcode is not None, self.told()
        return process.exitcode

    def told(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    def alerts(self) -> str:
        """Return what people were told, which is nothing before the first alert makes the file."""
        log = self.home / ALERTS
        return log.read_text() if log.exists() else ""

    def starts(self, name: str) -> list[int]:
        return starts(self.home, name)

    def said(self, name: str) -> list[str]:
        return said(self.home, name)

    def pids(self) -> list[int]:
        """Return every process that was ever a worker here."""
        return [pid for path in self.home.glob("*.said") for pid in self.starts(path.stem)]

    def is_quiet(self) -> bool:
        """Return whether neither a worker nor anything of an agent is left."""
        return not any(map(is_alive, self.pids())) and not leftover_processes(
            self.home / "runs", lambda _: True
        )

    def close(self) -> None:
        forks: list[int] = []
        for process in self.started:
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGSTOP)  # so that it starts nobody between the look and its end
                forks += children_of(process.pid)
                process.kill()
            process.join()
        for pid in [
            *forks,  # one that had not become its program yet has no command line that names this place
            *self.pids(),
            *started_for(self.home),  # one that was killed before it could say its number
            *(process.pid for process in leftover_processes(self.home / "runs", lambda _: True)),
        ]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.board.close()


def children_of(pid: int) -> list[int]:
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in paths for child in path.read_text().split()]


def started_for(home: Path) -> list[int]:
    """Return the processes whose command line names *home*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(home) in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def supervised_project(root: Path, workers: Workers | None = None) -> Iterator[SupervisorProcess]:
    found = SupervisorProcess(root, workers=workers)
    try:
        yield found
    finally:
        found.close()
