"""The worker processes of one supervisor: started, signalled and reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.daemon.policy.staffing import PARENT_VARIABLE, Slot
from liza.errors import DiskTrouble
from liza.system import files
from liza.system.fork_server import ForkServer, NoForkServer
from liza.system.platform import STOPPED
from liza.system.process import process_of, send_signal

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterator, Sequence

POLL_INTERVAL: Final = 0.5  # seconds between two looks for workers that somebody stopped
STOPPED_TIMEOUT: Final = 2.0  # seconds that a worker may be stopped
LONGEST_LOG: Final = 1 << 20  # bytes of a worker's log that a new process writes on after
INFO: Final = "Z INFO "  # what stands in a line of a worker's log that tells of no trouble
_LAST: Final = 4096  # bytes of a log that are looked at for its last line


class ForkedWorker:
    """A child of the fork server; not reaped before `wait`, so that no other process gets its pid."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class WorkerProcesses:
    """The worker processes that this supervisor started.

    They come from *forks* as long as it is there; else each is a program of its own, started by *command*.
    """

    def __init__(
        self, home: Path, command: Sequence[str], cwd: Path, forks: ForkServer | None = None
    ) -> None:
        self._logs = home / files.WORKERS_DIRECTORY
        self._command = command
        self._cwd = cwd
        self._forks = forks
        self._running: dict[str, subprocess.Popen[bytes] | ForkedWorker] = {}
        self.stopped: set[str] = set()  # workers that were killed because somebody had stopped them

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._running)

    def start(self, slot: Slot) -> None:
        try:
            self._running[slot.name] = self._start_process(slot)
        except OSError as error:  # no room for a process, or for its log
            raise DiskTrouble(f"start {slot.name}", error) from error

    def _start_process(self, slot: Slot) -> subprocess.Popen[bytes] | ForkedWorker:
        # By number: a worker that has to ask may find that it is an orphan already.
        parent = {PARENT_VARIABLE: str(os.getpid())}
        with self._log(slot.name).open("ab") as log:
            if self._forks:
                try:
                    words = (slot.role, slot.name)
                    return ForkedWorker(self._forks.fork(words, log.fileno(), parent, cwd=self._cwd))
                except NoForkServer:
                    self._forks = None
            return subprocess.Popen(
                [*self._command, slot.role, slot.name],
                cwd=self._cwd,
                env={**os.environ, **parent},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for us to pass on
            )

    def last_words(self, name: str) -> str:
        """Return the last line of the log of worker *name*; empty where that is of level INFO."""
        try:
            text = self._path(name).read_bytes()[-_LAST:].decode(errors="replace").strip()
        except OSError:
            return ""
        last = text.splitlines()[-1] if text else ""
        return "" if INFO in last else last

    def reap(self) -> Iterator[tuple[str, int]]:
        """Yield the workers that ended since the last time, each with its exit code."""
        while pid := _exited_child():
            name = next((name for name, process in self._running.items() if process.pid == pid), None)
            if name is None:
                os.waitpid(pid, 0)  # an orphan that we adopted
            else:
                yield name, self._running.pop(name).wait()

    def send(self, number: signal.Signals, to: Collection[str]) -> None:
        for name in to:
            process = self._running[name]  # not reaped yet, so that its pid is nobody else's
            with suppress(ProcessLookupError):
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)  # a stopped process gets the signal only then
                if number is signal.SIGKILL:
                    os.killpg(process.pid, number)

    def kill_stopped(self, is_over: threading.Event) -> None:
        """Kill every worker that is stopped (SIGSTOP), until *is_over*; for a thread of its own.

        It holds its task, and perhaps the lock of the board, which nobody else can take before it is gone.
        """
        since: dict[int, float] = {}
        while not is_over.wait(POLL_INTERVAL):
            now, names = time.monotonic(), {leader.pid: name for name, leader in [*self._running.items()]}
            stopped = [found for pid in names if (found := process_of(pid)) and found.state == STOPPED]
            since = {process.pid: since.get(process.pid, now) for process in stopped}
            for process in stopped:
                if now - since[process.pid] >= STOPPED_TIMEOUT and send_signal(process, signal.SIGKILL):
                    self.stopped.add(names[process.pid])

    def _log(self, name: str) -> Path:
        path = self._path(name)
        path.parent.mkdir(exist_ok=True)
        if path.exists() and path.stat().st_size > LONGEST_LOG:
            path.unlink()
        return path

    def _path(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def _exited_child() -> int:
    """Return the pid of a child that ended and is not reaped, or 0; looking does not reap."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return found.si_pid if found else 0
