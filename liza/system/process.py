"""A command in a session of its own: fed, read, watched, frozen, ended, and swept up after.

The leader is not reaped until all of its processes are gone: while it is a zombie, its pid names its group
and nobody else's.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.system.host import host
from liza.system.liveness import LivenessMonitor, Stopwatch
from liza.system.memory import shared_by, shared_on_machine
from liza.system.output_log import OutputLog
from liza.system.pipes import ProcessPipes, close_pipes
from liza.system.proc_table import (
    RUN_MARK,
    STANDING_STATES,
    RunProcesses,
    kill_all,
    reap_adopted,
    send_signal,
)
from liza.system.run_control import RunEnding, RunLimits, StopLevel, wait_while_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from liza.system.platform import Process
    from liza.system.run_control import RunControl

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
    is_sandboxed: bool = False  # whether *argv* is a cage, which tells a signal as a shell does
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
    """Return the exit code as of the agent itself; the cage outlives it, and says 128 and the signal."""
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
    quarry = RunProcesses.of(leader.pid, job.marked)
    wires = ProcessPipes(stop)
    gone = False
    try:
        running = _RunMonitor(job, leader, stop, watch, quarry, wires)
        running.connect(*spools)
        verdict = running.watch()
        gone = running.ask()
    finally:
        survivors = [] if gone else _kill_run(leader, quarry)
        reap_adopted(but=[leader.pid])
        if all(process.pid != leader.pid for process in survivors):
            leader.wait()
        wires.drain()
        wires.close()
        close_pipes(leader)
    return verdict, survivors


def _kill_run(leader: subprocess.Popen[bytes], quarry: RunProcesses) -> list[Process]:
    """Kill the group, then whatever left it; return what would not die."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    return kill_all(quarry.live_processes)


class _RunMonitor:
    """The policy of a run: its limits, pauses and polite end."""

    def __init__(
        self,
        job: Job,
        leader: subprocess.Popen[bytes],
        stop: RunControl,
        watch: Stopwatch,
        quarry: RunProcesses,
        wires: ProcessPipes,
    ) -> None:
        self._job = job
        self._leader = leader
        self._stop = stop
        self._watch = watch
        self._quarry = quarry
        self._wires = wires
        self._evidence = LivenessMonitor(watch, job.cwd, quarry.cpu_seconds)
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
        self._wires.await_end(self._leader.pid)
        self._printed = out
        for pipe, spool in ((self._leader.stdout, out), (self._leader.stderr, err)):
            if pipe:
                self._wires.read_into(pipe, spool, self._sign)
        if self._leader.stdin:
            self._wires.feed(self._leader.stdin, self._job.feed)

    def _sign(self) -> None:
        self._evidence.note_output()
        self._stop.note_life()
        if self._job.meter:
            self._next_reading = self._no_reading_before

    def watch(self) -> _EndReason:
        """Wait until the leader ends or has to be ended; return why."""
        while True:
            self._wires.wait(self._patience())
            if self._leader.pid not in self._wires.awaited:
                return _EndReason(RunEnding.DONE)
            if self._stop.level is not StopLevel.GO:
                return _EndReason(RunEnding.STOPPED, "it was told to stop")
            self._obey_pause()
            if not self._is_frozen and (verdict := self._tripped()):
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

    def _tripped(self) -> _EndReason | None:
        """Return the limit that is over, after a look for signs of life where one is due."""
        total, elapsed = self._job.limits.total, self._watch.elapsed()
        if elapsed >= total:
            return _EndReason(RunEnding.TIMEOUT, f"it was not done after {total:g} seconds, its limit in all")
        if elapsed >= self._next_weighing and (heavy := self._heavy()):
            return heavy
        if elapsed >= self._next_count and (crowded := self._crowded()):
            return crowded
        if elapsed >= self._next_reading:
            self._read_meter()
        if elapsed < self._next_look:
            return None
        if self._evidence.look(give_up=lambda: self._stop.level is not StopLevel.GO):
            self._stop.note_life()
        self._next_look = self._watch.elapsed() + self._look_every
        return self._silent(elapsed)

    def _heavy(self) -> _EndReason | None:
        """Weigh what its processes share, if there is enough of it on the machine for it to be too much."""
        self._next_weighing = self._watch.elapsed() + WEIGH_EVERY
        most, now = (self._job.shared_mb or 0) * _MB, shared_on_machine()
        self._shared_before = min(self._shared_before, now)
        if now - self._shared_before <= most:
            return None
        if (weight := shared_by(process.pid for process in self._quarry.live_processes())) <= most:
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

    def _crowded(self) -> _EndReason | None:
        """Count, also where the kernel limits: it lets root go on, and one cage may have many processes."""
        self._next_count = self._watch.elapsed() + COUNT_EVERY
        most = self._job.processes
        if most is None or (count := len(self._quarry.live_processes())) <= most:
            return None
        return _EndReason(RunEnding.CRASHED, f"it had {count} processes at once, and may have {most}")

    def _silent(self, elapsed: float) -> _EndReason | None:
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
        found = self._quarry.live_processes()
        for process in found:
            if process.group != self._leader.pid:
                for number in numbers:
                    send_signal(process, number)
        return found

    def ask(self) -> bool:
        """Send SIGTERM to what is left and wait for the grace; tell whether there was nothing left at all."""
        if self._is_urgent():
            return False
        if not self._quarry.live_processes():
            return True
        # What is frozen gets the first signal only with the second.
        for process in self._signal(signal.SIGTERM, signal.SIGCONT):
            if process.pid not in self._wires.awaited:
                self._wires.await_end(process.pid)
        grace = Stopwatch()
        while self._wires.awaited and not self._is_urgent() and (left := GRACE - grace.elapsed()) > 0:
            self._wires.wait(left)
        return False

    def _is_urgent(self) -> bool:
        return self._stop.level is StopLevel.NOW
