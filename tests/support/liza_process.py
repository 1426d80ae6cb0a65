"""`liza`, or one of its workers, as a process of its own that goes on, forked from one that has loaded it.

Starting Python and loading Liza takes half a second of a core, and the tests start it more than a hundred
times. That the program itself can be started is shown where somebody types it: `acceptance/daemon/test_run`.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from liza.cli.main import main
from liza.daemon import worker
from liza.domain.model import Role
from tests.support.boards import PATIENCE, PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]


def be_liza(words: Sequence[str], cwd: Path, environment: Mapping[str, str], log: Path) -> None:
    """Be `liza` with *words*; for a process of its own, which appends what it prints to *log*."""
    gc.freeze()  # what was loaded stays shared
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1))
    main(words)


def be_worker(home: Path, name: str, environment: Mapping[str, str], dies_at: str) -> None:
    """Be the worker *name*, which kills itself before it writes a file whose path has *dies_at*."""
    gc.freeze()
    os.environ.clear()
    os.environ.update(environment)
    if dies_at:
        sys.addaudithook(lambda event, said: _die_at(dies_at, event, said))
    sys.exit(worker.main(home, Role(name.partition("-")[0]), name))


def _die_at(where: str, event: str, said: tuple[object, ...]) -> None:
    if event in {"open", "os.link"} and where in str(said[:2]):
        os.kill(os.getpid(), signal.SIGKILL)


class ForkedProcess:
    """A process that calls *target*, to be waited for and signalled as `Popen` has it."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._process = PROCESSES.Process(target=target, args=arguments)
        self._process.start()
        self.pid: Final = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = PATIENCE) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join()


class LizaProcess(ForkedProcess):
    """A process that runs `liza` with *words* in *cwd*."""

    def __init__(self, *words: str, cwd: Path, log: Path = Path(os.devnull), **environment: str) -> None:
        super().__init__(be_liza, words, cwd, {**os.environ, "PYTHONPATH": str(ROOT), **environment}, log)
