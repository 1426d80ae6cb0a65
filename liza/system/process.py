"""A command in a session of its own: fed, read, watched, frozen, ended, and swept up after.

The leader is not reaped until all of its processes are gone: while it is a zombie, its pid names its group
and nobody else's.
"""

from __future__ import annotations

import math
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Self

from liza.system.files import Mask
from liza.system.host import host
from liza.system.platform import DEAD_STATES, STOPPED, Process
from liza.system.run_control import RunEnding, RunLimits, StopLevel, wait_readable, wait_while_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from liza.system.run_control import RunControl


# The processes of a run, wherever they hid: found by session, descent and mark, and ended.

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
        """Return the processes whose leader is our child *pid*, which is there until we reap it."""
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


def kill_all(find: Callable[[], list[Process]]) -> list[Process]:
    """Kill what *find* returns until it returns nothing; return the survivors after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
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


# Signs of life of an agent: output, CPU time, writes in its working directory.

BUSY: Final = 0.02  # of one core: an event loop that only waits uses less
# Seconds by which the time of a file may lie behind the clock: it is that of the kernel's last tick. Without
# it, an agent that always writes right after a look would never be seen.
GRAIN: Final = 0.02
_SKIPPED: Final = frozenset({".git"})


class Stopwatch:
    """Time that passes, but not while it is frozen."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._frozen_at: float | None = None

    def elapsed(self) -> float:
        return (self._frozen_at or time.monotonic()) - self._began

    def freeze(self) -> None:
        self._frozen_at = self._frozen_at or time.monotonic()

    def thaw(self) -> None:
        if self._frozen_at is not None:
            self._began += time.monotonic() - self._frozen_at
            self._frozen_at = None


class LivenessMonitor:
    """When a run last gave a sign of life, on its own stopwatch; cheap signs are looked at first."""

    def __init__(self, watch: Stopwatch, cwd: Path, cpu_seconds: Callable[[], float]) -> None:
        self.last: float | None = None
        self._watch = watch
        self._cwd = cwd
        self._cpu_seconds = cpu_seconds
        self._cpu = 0.0
        self._printed = False
        self._looked = watch.elapsed()
        self._wall = time.time()

    def note_output(self) -> None:
        """Note that it printed something."""
        self.last = self._watch.elapsed()
        self._printed = True

    def look(self, give_up: Callable[[], bool]) -> bool:
        """Return whether there was a sign since the last look; *give_up* ends a long walk early."""
        now, wall = self._watch.elapsed(), time.time()
        interval, since = now - self._looked, self._wall - GRAIN
        cpu = self._cpu_seconds()
        used, printed = cpu - self._cpu, self._printed
        self._cpu, self._printed, self._looked, self._wall = cpu, False, now, wall
        if printed:
            return True
        is_alive = used > BUSY * interval or has_writes_since(self._cwd, since, give_up)
        if is_alive:
            self.last = now
        return is_alive


def has_writes_since(root: Path, since: float, give_up: Callable[[], bool]) -> bool:
    """Return whether anything below *root* was written after the moment *since*."""
    waiting = [str(root)]
    while waiting and not give_up():
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.stat(follow_symlinks=False).st_mtime > since:
                        return True
                    if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                        waiting.append(entry.path)
        except OSError:
            continue  # it is being changed under our eyes, or is not ours to read
    return False


# How much memory the processes of a run share, which no limit of a single process counts.
#
# It is anonymous memory that is mapped by several, files in memory (`memfd_create`) and segments of System
# V. All of it is also in one number of the kernel's for the whole machine: only where that grew by as much
# as a run may have is it worth asking whose it is.

_PROC: Final = Path("/proc")
_KB: Final = 1024
_BLOCK: Final = 512  # bytes of a block, as stat() counts them
_IN_MEMORY: Final = ("/memfd:", "/dev/shm/", "/SYSV", "/dev/zero")  # noqa: S108 - names are compared
_PATIENCE: Final = 2.0  # seconds to look into a namespace


def shared_on_machine() -> int:
    """Return the bytes that all processes of the machine share; 0 where the kernel does not tell."""
    return _kilobytes(_PROC / "meminfo", "Shmem:") * _KB


def shared_by(pids: Iterable[int]) -> int:
    """Return the bytes that *pids* share with each other; what is mapped and has a name counts twice."""
    found = list(pids)
    mapped = sum(_kilobytes(_PROC / str(pid) / "smaps_rollup", "Pss_Shmem:") for pid in found) * _KB
    files = {place: size for pid in found for place, size in _files_of(pid)}
    namespaces = {space: pid for pid in found if (space := _link_target(_PROC / str(pid) / "ns" / "ipc"))}
    namespaces.pop(_link_target(_PROC / "self/ns/ipc"), None)
    return mapped + sum(files.values()) + sum(map(_segments_of, namespaces.values()))


def _kilobytes(path: Path, name: str) -> int:
    with suppress(OSError):  # it ended
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def _files_of(pid: int) -> Iterable[tuple[tuple[int, int], int]]:
    """Yield the files in memory that *pid* has open, each by its place, with its size."""
    folder = _PROC / str(pid) / "fd"
    with suppress(OSError):  # it ended, or it is not ours
        for name in os.listdir(folder):  # noqa: PTH208 - names are enough
            with suppress(OSError):
                if _link_target(folder / name).startswith(_IN_MEMORY):
                    facts = (folder / name).stat()
                    yield (facts.st_dev, facts.st_ino), facts.st_blocks * _BLOCK


def _link_target(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - of what is no path
    except OSError:
        return ""


def _segments_of(pid: int) -> int:
    """Return the bytes of System V's segments in the namespace of *pid*, also of those that nobody maps."""
    if shutil.which("nsenter") is None:
        return 0
    words = ["nsenter", f"--target={pid}", "--user", "--ipc", "--preserve-credentials"]
    try:
        done = subprocess.run(
            [*words, "cat", "/proc/sysvipc/shm"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return sum(int(row[14]) + int(row[15]) for row in rows if len(row) > 15)  # noqa: PLR2004 - resident, swapped


# What a process prints, of any size: the beginning goes to disk, the end is kept, the middle is counted.

ON_DISK: Final = 32 << 20  # bytes of the beginning that are kept in the file
TAIL: Final = 1 << 20  # bytes of the end that are kept: an answer stands at the end
HEAD: Final = 256 << 10  # bytes of the beginning that a reply quotes


def cut_line(count: int) -> str:
    return f"\n[liza: {count:,} bytes cut here]\n"


class OutputLog:
    """One stream of one process. Memory holds no more than the tail."""

    def __init__(self, path: Path, secrets: Iterable[str] = (), *, on_disk: int = ON_DISK) -> None:
        self.path = path
        self.total = 0
        self._on_disk = on_disk
        self._secrets = tuple(secrets)
        self._mask = Mask(self._secrets)
        self._file = path.open("wb", buffering=0)
        self._tail: deque[bytes] = deque()
        self._kept = 0  # bytes in the tail
        self._cut = 0  # bytes that are nowhere any more

    def take(self, data: bytes) -> None:
        room = max(0, self._on_disk - self.total)
        self.total += len(data)
        if room:
            self._file.write(self._mask.feed(data[:room]))
        if len(data) > room:
            self._keep(data[room:])

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._kept += len(data)
        # A secret that begins before the tail would not be found in it: keep enough to see it whole.
        while self._kept - len(self._tail[0]) >= TAIL + self._mask.longest:
            gone = len(self._tail.popleft())
            self._kept -= gone
            self._cut += gone

    def close(self) -> None:
        """Write the end to the file, behind a line that says how much was cut."""
        with self._file:
            if self._cut:
                self._close_cut()
            else:
                for data in self._tail:
                    self._file.write(self._mask.feed(data))
                self._file.write(self._mask.rest())
        self._tail.clear()

    def _close_cut(self) -> None:
        mask = Mask(self._secrets)
        end = mask.feed(b"".join(self._tail)) + mask.rest()
        spare = len(end) - TAIL
        count = self._cut + self._mask.drop_held() + spare
        self._file.write(cut_line(count).encode() + end[spare:])

    def text(self) -> str:
        """Return what was printed, or its beginning and its end; bytes that are no text are replaced."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= HEAD + TAIL:
                return _decode(file.read())
            head = file.read(HEAD)
            file.seek(size - TAIL)
            return _decode(head) + cut_line(self.total - HEAD - TAIL) + _decode(file.read())


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")


# The pipes of a running process and the ends of processes, waited for in one selector.

CHUNK: Final = 1 << 18  # bytes read at once; a pipe usually holds less, so that one read empties it
# Reads of what a pipe holds when all is over: somebody who did not die may still write.
MOST_READS: Final = 16


class ProcessPipes:
    """Pipes of a process, ends of processes and the caller's control, as one thing to wait for."""

    def __init__(self, stop: RunControl) -> None:
        self.awaited: set[int] = set()  # processes that have not ended yet, of those whose end is waited for
        self._selector = selectors.DefaultSelector()
        self._selector.register(stop, selectors.EVENT_READ, stop.clear_wakeup)
        self._open: set[int] = set()  # descriptors of ends, which are ours to close
        self._pipes: list[tuple[IO[bytes], Callable[[bytes], None]]] = []

    def wait(self, seconds: float | None) -> None:
        """Deal with what happens next, or return after *seconds*."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def await_end(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            descriptor = host().open_exit(pid)
            self.awaited.add(pid)
            self._open.add(descriptor)
            self._selector.register(descriptor, selectors.EVENT_READ, partial(self._gone, pid, descriptor))

    def _gone(self, pid: int, descriptor: int) -> None:
        self.awaited.discard(pid)
        self._open.discard(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def feed(self, pipe: IO[bytes], data: bytes) -> None:
        """Write *data* as far as the process reads it, then close the pipe: nobody will answer a question."""
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_WRITE, _PipeWriter(self._selector, pipe, data).more)

    def read_into(self, pipe: IO[bytes], output: OutputLog, on_output: Callable[[], None]) -> None:
        """Put what the process prints into *output*."""
        os.set_blocking(pipe.fileno(), False)
        self._pipes.append((pipe, output.take))
        self._selector.register(pipe, selectors.EVENT_READ, partial(self._read, pipe, output, on_output))

    def _read(self, pipe: IO[bytes], output: OutputLog, on_output: Callable[[], None]) -> None:
        if data := os.read(pipe.fileno(), CHUNK):
            output.take(data)
            on_output()
        else:
            self._selector.unregister(pipe)

    def drain(self) -> None:
        """Take what is left in the pipes, without waiting for anybody who may hold them open."""
        for pipe, take in self._pipes:
            with suppress(BlockingIOError):
                for data in islice(iter(partial(os.read, pipe.fileno(), CHUNK), b""), MOST_READS):
                    take(data)

    def close(self) -> None:
        self._selector.close()
        for descriptor in self._open:
            os.close(descriptor)


class _PipeWriter:
    def __init__(self, selector: selectors.BaseSelector, pipe: IO[bytes], data: bytes) -> None:
        self._selector = selector
        self._pipe = pipe
        self._left = memoryview(data)

    def more(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads nothing, or no more; that is its own affair
            self._left = self._left[:0]
        if not self._left:
            self._selector.unregister(self._pipe)
            self._pipe.close()


def close_pipes(leader: subprocess.Popen[bytes]) -> None:
    for pipe in (leader.stdin, leader.stdout, leader.stderr):
        if pipe:
            pipe.close()


GRACE: Final = 0.5  # seconds between SIGTERM and SIGKILL: after ABORT all agents are to be gone within one
LOOKS: Final = 4  # looks for signs of life within the shortest limit that needs them
LONGEST_LOOK: Final = 15.0  # seconds between two looks
METER_EVERY: Final = 1.0  # seconds between two readings of what a run has cost so far, at least
METER_SHARE: Final = 50  # times as long as a reading took passes before the next: a transcript gets long
COUNT_EVERY: Final = 2.0  # seconds between two counts of processes, where their number is limited
WEIGH_EVERY: Final = 0.25  # seconds between two looks at shared memory, which fills by gigabytes a second
_MB: Final = 1 << 20
_SIGNALLED: Final = 128
WHO_KILLS: Final = "by somebody, or by the kernel because memory was short"
STILL_LOOK: Final = 0.1  # seconds until a look whether all that was frozen stands still
SHORTEST_LOOK: Final = 0.05  # seconds; a look reads the process table, which takes milliseconds


@dataclass(frozen=True)
class Job:
    """What to run. *folder* gets what it prints, and its path marks every process of the job."""

    argv: Sequence[str]
    cwd: Path
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    feed: bytes = field(default=b"", repr=False)
    limits: RunLimits = field(default_factory=RunLimits)
    secrets: Sequence[str] = field(default=(), repr=False)
    processes: int | None = None  # that it may have at once
    shared_mb: int | None = None  # of memory that its processes may share
    is_sandboxed: bool = False  # whether *argv* is a sandbox, which tells a signal as a shell does
    mark: Path | None = None  # the folder that marks its processes, where it is part of another run
    # Reads what the run has cost so far out of what it printed so far; None where that is not to be known.
    meter: Callable[[str], float | None] | None = field(default=None, repr=False)

    @property
    def marked(self) -> Path:
        return (self.mark or self.folder).resolve()


class ProcessOutcome(NamedTuple):
    """How a job ended; *ending* is DONE where it ended by itself, whatever its exit code.

    KILLED is a SIGKILL that was not ours, which says nothing about the job.
    """

    ending: RunEnding
    why: str = ""
    code: int | None = None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    survivors: tuple[str, ...] = ()


class _EndReason(NamedTuple):
    ending: RunEnding
    why: str = ""


def run_job(job: Job, stop: RunControl) -> ProcessOutcome:
    """Run *job* until it ends, a limit trips or *stop* says so; none of its processes is left then."""
    if not wait_while_paused(stop):
        return ProcessOutcome(RunEnding.STOPPED, "it was stopped before it began")
    job.folder.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    with (
        closing(OutputLog(job.folder / "stdout", job.secrets)) as out,
        closing(OutputLog(job.folder / "stderr", job.secrets)) as err,
    ):
        try:
            leader = _start(job)
        except (OSError, ValueError) as error:
            return ProcessOutcome(RunEnding.NOT_STARTED, _why_not_started(job, error))
        verdict, survivors = _watch_to_end(job, leader, stop, watch, (out, err))
    code = _exit_code(job, leader.returncode)
    if verdict.ending is RunEnding.DONE and was_killed(code):
        verdict = _EndReason(
            RunEnding.KILLED, f"it was killed (SIGKILL) after {watch.elapsed():.1f} seconds, {WHO_KILLS}"
        )
    return ProcessOutcome(
        verdict.ending,
        verdict.why,
        code=code,
        out=out.text(),
        err=err.text(),
        seconds=watch.elapsed(),
        survivors=tuple(map(str, survivors)),
    )


def was_killed(code: int | None) -> bool:
    """Return whether *code* means SIGKILL, as the system has it or as a shell tells it."""
    return code in (-signal.SIGKILL, _SIGNALLED + signal.SIGKILL)


def _exit_code(job: Job, code: int | None) -> int | None:
    """Return the exit code as of the agent itself; the sandbox outlives it, and says 128 and the signal."""
    is_signal = job.is_sandboxed and code is not None and code - _SIGNALLED in signal.valid_signals()
    return _SIGNALLED - code if is_signal and code else code


def _start(job: Job) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*host().parent_death_prefix(), *job.argv],
        cwd=job.cwd,
        env={**job.environment, RUN_MARK: str(job.marked)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def _why_not_started(job: Job, error: OSError | ValueError) -> str:
    if not job.cwd.is_dir():
        return f"the working directory {job.cwd} does not exist"
    return f"{job.argv[0]!r} cannot be started: {getattr(error, 'strerror', None) or error}"


def _watch_to_end(
    job: Job,
    leader: subprocess.Popen[bytes],
    stop: RunControl,
    watch: Stopwatch,
    spools: tuple[OutputLog, OutputLog],
) -> tuple[_EndReason, list[Process]]:
    processes = RunProcesses.of(leader.pid, job.marked)
    pipes = ProcessPipes(stop)
    gone = False
    try:
        running = _RunMonitor(job, leader, stop, watch, processes, pipes)
        running.connect(*spools)
        verdict = running.watch()
        gone = running.ask()
    finally:
        survivors = [] if gone else _kill_run(leader, processes)
        reap_adopted(but=[leader.pid])
        if all(process.pid != leader.pid for process in survivors):
            leader.wait()
        pipes.drain()
        pipes.close()
        close_pipes(leader)
    return verdict, survivors


def _kill_run(leader: subprocess.Popen[bytes], processes: RunProcesses) -> list[Process]:
    """Kill the group, then whatever left it; return what would not die."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    return kill_all(processes.live_processes)


class _RunMonitor:
    """The policy of a run: its limits, pauses and polite end."""

    def __init__(
        self,
        job: Job,
        leader: subprocess.Popen[bytes],
        stop: RunControl,
        watch: Stopwatch,
        processes: RunProcesses,
        pipes: ProcessPipes,
    ) -> None:
        self._job = job
        self._leader = leader
        self._stop = stop
        self._watch = watch
        self._processes = processes
        self._pipes = pipes
        self._evidence = LivenessMonitor(watch, job.cwd, processes.cpu_seconds)
        self._is_frozen = False
        self._is_still = False  # frozen, and a look has found nothing that moves
        waits = [limit for limit in (job.limits.start, job.limits.silence) if limit]
        self._look_every = max(SHORTEST_LOOK, min([*waits, LOOKS * LONGEST_LOOK]) / LOOKS)
        self._next_look = self._look_every
        # Apart from the looks for signs of life, which may walk through a large worktree.
        self._next_count = COUNT_EVERY if job.processes else math.inf
        self._next_weighing = WEIGH_EVERY if job.shared_mb else math.inf
        self._shared_before = shared_on_machine() if job.shared_mb else 0
        self._printed: OutputLog | None = None
        self._next_reading = math.inf  # nothing was printed since the last
        self._no_reading_before = METER_EVERY

    def connect(self, out: OutputLog, err: OutputLog) -> None:
        self._pipes.await_end(self._leader.pid)
        self._printed = out
        for pipe, output in ((self._leader.stdout, out), (self._leader.stderr, err)):
            if pipe:
                self._pipes.read_into(pipe, output, self._sign)
        if self._leader.stdin:
            self._pipes.feed(self._leader.stdin, self._job.feed)

    def _sign(self) -> None:
        self._evidence.note_output()
        self._stop.note_life()
        if self._job.meter:
            self._next_reading = self._no_reading_before

    def watch(self) -> _EndReason:
        """Wait until the leader ends or has to be ended; return why."""
        while True:
            self._pipes.wait(self._patience())
            if self._leader.pid not in self._pipes.awaited:
                return _EndReason(RunEnding.DONE)
            if self._stop.level is not StopLevel.GO:
                return _EndReason(RunEnding.STOPPED, "it was told to stop")
            self._obey_pause()
            if not self._is_frozen and (verdict := self._check_limits()):
                return verdict

    def _patience(self) -> float | None:
        """Return for how long nothing is due unless something happens."""
        if self._is_frozen:
            return None if self._is_still else STILL_LOOK
        due = min(
            *(self._next_look, self._next_count, self._next_weighing, self._next_reading),
            self._job.limits.total,
        )
        return max(0.0, due - self._watch.elapsed())

    def _check_limits(self) -> _EndReason | None:
        """Return the limit that is over, after a look for signs of life where one is due."""
        total, elapsed = self._job.limits.total, self._watch.elapsed()
        if elapsed >= total:
            return _EndReason(RunEnding.TIMEOUT, f"it was not done after {total:g} seconds, its limit in all")
        if elapsed >= self._next_weighing and (heavy := self._check_memory()):
            return heavy
        if elapsed >= self._next_count and (crowded := self._check_process_count()):
            return crowded
        if elapsed >= self._next_reading:
            self._read_meter()
        if elapsed < self._next_look:
            return None
        if self._evidence.look(give_up=lambda: self._stop.level is not StopLevel.GO):
            self._stop.note_life()
        self._next_look = self._watch.elapsed() + self._look_every
        return self._check_silence(elapsed)

    def _check_memory(self) -> _EndReason | None:
        """Weigh what its processes share, if there is enough of it on the machine for it to be too much."""
        self._next_weighing = self._watch.elapsed() + WEIGH_EVERY
        most, now = (self._job.shared_mb or 0) * _MB, shared_on_machine()
        self._shared_before = min(self._shared_before, now)
        if now - self._shared_before <= most:
            return None
        if (weight := shared_by(process.pid for process in self._processes.live_processes())) <= most:
            return None
        said = f"its processes shared {weight // _MB} MB of memory, and may share {most // _MB}"
        return _EndReason(RunEnding.CRASHED, said)

    def _read_meter(self) -> None:
        began = self._watch.elapsed()
        usd = self._job.meter(self._printed.text()) if self._job.meter and self._printed else None
        if usd is not None:
            self._stop.note_cost(usd)
        took = self._watch.elapsed() - began
        self._no_reading_before = self._watch.elapsed() + max(METER_EVERY, METER_SHARE * took)
        self._next_reading = math.inf

    def _check_process_count(self) -> _EndReason | None:
        """Count, also where the kernel limits: it lets root go on, and a sandbox may have many processes."""
        self._next_count = self._watch.elapsed() + COUNT_EVERY
        most = self._job.processes
        if most is None or (count := len(self._processes.live_processes())) <= most:
            return None
        return _EndReason(RunEnding.CRASHED, f"it had {count} processes at once, and may have {most}")

    def _check_silence(self, elapsed: float) -> _EndReason | None:
        start, silence, last = self._job.limits.start, self._job.limits.silence, self._evidence.last
        nothing = "no output, no CPU and no write in its working directory"
        if start and last is None and elapsed >= start:
            return _EndReason(RunEnding.SLOW_START, f"{nothing} within {start:g} seconds of its start")
        if silence and elapsed - (last or 0.0) >= silence:
            return _EndReason(RunEnding.SILENT, f"{nothing} for {silence:g} seconds")
        return None

    def _obey_pause(self) -> None:
        paused = (
            self._stop.paused
        )  # asked once: whoever takes it back meanwhile wakes us, and finds us frozen
        if paused and not self._is_still:
            if not self._is_frozen:
                self._watch.freeze()
            # What begins between a look and its signal is not stopped by it, so that one is never enough.
            self._is_still = all(each.state in STANDING_STATES for each in self._signal(signal.SIGSTOP))
        elif self._is_frozen and not paused:
            self._signal(signal.SIGCONT)
            self._watch.thaw()
            self._is_still = False
        self._is_frozen = paused

    def _signal(self, *numbers: signal.Signals) -> list[Process]:
        """Signal the group, then what left it; return all that there was."""
        for number in numbers:
            with suppress(ProcessLookupError):
                os.killpg(self._leader.pid, number)
        found = self._processes.live_processes()
        for process in found:
            if process.group != self._leader.pid:
                for number in numbers:
                    send_signal(process, number)
        return found

    def ask(self) -> bool:
        """Send SIGTERM to what is left and wait for the grace; tell whether there was nothing left at all."""
        if self._is_urgent():
            return False
        if not self._processes.live_processes():
            return True
        # What is frozen gets the first signal only with the second.
        for process in self._signal(signal.SIGTERM, signal.SIGCONT):
            if process.pid not in self._pipes.awaited:
                self._pipes.await_end(process.pid)
        grace = Stopwatch()
        while self._pipes.awaited and not self._is_urgent() and (left := GRACE - grace.elapsed()) > 0:
            self._pipes.wait(left)
        return False

    def _is_urgent(self) -> bool:
        return self._stop.level is StopLevel.NOW
