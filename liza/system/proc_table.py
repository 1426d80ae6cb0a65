"""The processes of a run, wherever they hid: found by session, descent and mark, and ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from liza.system.host import host
from liza.system.platform import DEAD_STATES, STOPPED, Process
from liza.system.wakeup import wait_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

# Its value is the folder of the run: a bare id could be the same in another project on this machine, whose
# agents are none of ours.
RUN_MARK: Final = "LIZA_RUN"
PATIENCE: Final = 2.0  # seconds until what does not die by SIGKILL is reported: it hangs in the kernel

# A shell that waits for a child which was stopped before it became a program is in "D", and stands still too.
STANDING_STATES: Final = frozenset({STOPPED, "t", "D"})


def process_of(pid: int) -> Process | None:
    """Return the process *pid*, or None."""
    return host().process_of(pid)


def process_table() -> dict[int, Process]:
    """Return every process there is, by pid."""
    return host().process_table()


def mark_of(pid: int) -> str | None:
    """Return the folder of the run that *pid* was started for, or None where no mark can be read."""
    return host().variable_of(pid, RUN_MARK)


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal *process* if it is still the one that was seen; return whether it was."""
    return host().send_signal(process, number)


class ResourceUse(NamedTuple):
    """What the processes of a run use at one moment."""

    processes: int
    cpu_seconds: float
    memory: int  # bytes that are resident; what processes share counts for each of them

    def __str__(self) -> str:
        return (
            f"{self.processes} processes, {self.cpu_seconds:.1f} s of CPU, {self.memory >> 20} MB of memory"
        )


class RunProcesses(NamedTuple):
    """All processes of the run in *folder* that *leader* started."""

    leader: Process
    folder: Path

    @classmethod
    def of(cls, pid: int, folder: Path) -> Self:
        """Return the quarry whose leader is our child *pid*, which is there until we reap it."""
        leader = process_of(pid)
        if leader is None:
            raise ProcessLookupError(pid)
        return cls(leader, folder)

    def live_processes(self) -> list[Process]:
        """Return its processes that live, the leader included."""
        return _only_live(self._all())

    def cpu_seconds(self) -> float:
        """Return the CPU that its processes used; what the dead used goes over to whoever reaps them."""
        return sum(process.cpu for process in self._all())

    def resource_use(self) -> ResourceUse:
        """Return what its live processes use; for views, since it asks for each of them by itself."""
        return resource_use(self.live_processes())

    def _all(self) -> list[Process]:
        everyone = process_table()
        return _with_descendants(everyone, (each for each in everyone.values() if self._is_ours(each)))

    def _is_ours(self, process: Process) -> bool:
        if process.started < self.leader.started:
            return False
        if self.leader.pid in (process.group, process.session):
            return True
        mark = mark_of(process.pid)
        return mark == str(self.folder) or (_is_adopted(process) and not self._is_of_a_sibling(mark))

    def _is_of_a_sibling(self, mark: str | None) -> bool:
        return mark is not None and Path(mark).parent == self.folder.parent


def process_uses(runs: Path, names: Iterable[str]) -> dict[str, ResourceUse]:
    """Return what the live processes of each run in *names*, recorded in *runs*, use; for views.

    One look at the table of processes serves all of them. What hid from its session and its mark is missing:
    only the worker that started it can tell that it is there.
    """
    folders = {str(runs.resolve() / name): name for name in names}
    everyone = process_table()
    roots: dict[str, list[Process]] = {}
    for pid, process in everyone.items():
        if (mark := mark_of(pid)) in folders:
            roots.setdefault(folders[mark], []).append(process)
    return {
        name: resource_use(_only_live(_with_descendants(everyone, found))) for name, found in roots.items()
    }


def resource_use(processes: Collection[Process]) -> ResourceUse:
    import psutil  # noqa: PLC0415 - only who shows it pays for its import

    memory = 0
    for process in processes:
        with suppress(psutil.Error):  # it ended meanwhile
            memory += psutil.Process(process.pid).memory_info().rss
    return ResourceUse(len(processes), sum(process.cpu for process in processes), memory)


def _is_adopted(process: Process) -> bool:
    """Return whether *process* is an orphan that came to us because we adopt.

    What we start beside an agent is in our session, and an agent with all that it starts is not.
    """
    return process.parent == os.getpid() and process.session != os.getsid(0) and host().is_adopting_orphans()


def _only_live(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if process.state not in DEAD_STATES]


def _with_descendants(everyone: Mapping[int, Process], roots: Iterable[Process]) -> list[Process]:
    """Return *roots* and whoever descends from them, but never ourselves nor whom we descend from."""
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    spared = set(_ancestry(everyone))
    found: dict[int, Process] = {}
    waiting = [root.pid for root in roots]
    while waiting:
        pid = waiting.pop()
        if pid not in found and pid not in spared:
            found[pid] = everyone[pid]
            waiting += children.get(pid, ())
    return list(found.values())


def _ancestry(everyone: Mapping[int, Process]) -> Iterator[int]:
    pid = os.getpid()
    while pid in everyone:
        yield pid
        pid = everyone[pid].parent


def kill_all(find: Callable[[], list[Process]], patience: float = PATIENCE) -> list[Process]:
    """Kill what *find* returns until it returns nothing; return the survivors after *patience* seconds."""
    deadline = time.monotonic() + patience
    while found := find():
        for process in found:
            send_signal(process, signal.SIGKILL)
        _await_end(found, deadline)
        if time.monotonic() >= deadline:
            return find()
    return []


def _await_end(processes: Iterable[Process], deadline: float) -> None:
    for process in processes:
        with suppress(OSError):  # it is gone, which is what we wait for
            descriptor = host().open_exit(process.pid)
            try:
                wait_readable(descriptor, deadline - time.monotonic())
            finally:
                os.close(descriptor)


def reap_adopted(but: Collection[int]) -> None:
    """Forget the dead that we adopted; nobody else would. *but* are children that somebody here waits for."""
    if not host().is_adopting_orphans():
        return
    for process in host().children():
        if process.state in DEAD_STATES and _is_adopted(process) and process.pid not in but:
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


class SweepResult(NamedTuple):
    """What a dead worker's runs had left behind."""

    ended: tuple[str, ...]
    survivors: tuple[str, ...]


def leftover_processes(runs: Path, whose: Callable[[str], bool]) -> list[Process]:
    """Return the live processes of runs recorded in *runs* whose ids satisfy *whose*."""
    runs = runs.resolve()  # as the marks are: the same folder may be reached by another path next time
    everyone = process_table()
    marked = {pid: mark for pid in everyone if (mark := mark_of(pid))}
    roots = {pid for pid, mark in marked.items() if Path(mark).parent == runs and whose(Path(mark).name)}
    # A process that wrote over its environment is still in the session of one that did not.
    sessions = {everyone[pid].session for pid in roots} - {os.getsid(0)}
    found = (process for pid, process in everyone.items() if pid in roots or process.session in sessions)
    return _only_live(_with_descendants(everyone, found))


def sweep(runs: Path, whose: Callable[[str], bool] = lambda _: True) -> SweepResult:
    """Kill the processes left by runs in *runs* whose ids satisfy *whose*; for after a worker's death."""
    before = leftover_processes(runs, whose)
    survivors = kill_all(lambda: leftover_processes(runs, whose)) if before else []
    known: Collection[int] = {process.pid for process in survivors}
    return SweepResult(
        tuple(str(process) for process in before if process.pid not in known), tuple(map(str, survivors))
    )
