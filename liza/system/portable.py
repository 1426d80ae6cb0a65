"""What `platform` asks for, wherever there are Python and psutil; what cannot be promised is said at each."""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import psutil

from liza.system.platform import DEAD_STATES, STOPPED, Process

if TYPE_CHECKING:
    from pathlib import Path

SANDBOX_LACK: Final = "there is no sandbox on this system: bubblewrap is for Linux"
SIGNALS_FILE_CHANGES: Final = False
ADOPTS_ORPHANS: Final = False

POLL_INTERVAL: Final = 0.05  # seconds between two looks whether a process ended
SAVING: Final = 0.1  # seconds since the last write after which a save is over
_MILLISECONDS: Final = 1000
_LETTERS: Final = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_STOPPED: STOPPED,
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_DEAD: "X",
}


def process_of(pid: int) -> Process | None:
    try:
        return _read(psutil.Process(pid))
    except (psutil.Error, OSError):
        return None


def process_table() -> dict[int, Process]:
    return {pid: process for pid in psutil.pids() if (process := process_of(pid))}


def children() -> list[Process]:
    return [process for process in process_table().values() if process.parent == os.getpid()]


def _read(one: psutil.Process) -> Process:
    with one.oneshot():
        times = one.cpu_times()
        return Process(
            pid=one.pid,
            started=round(one.create_time() * _MILLISECONDS),
            name=one.name(),
            state=_LETTERS.get(one.status(), "S"),
            parent=one.ppid(),
            group=os.getpgid(one.pid),
            session=os.getsid(one.pid),
            cpu=times.user + times.system + times.children_user + times.children_system,
        )


def variable_of(pid: int, name: str) -> str | None:
    try:
        return psutil.Process(pid).environ().get(name)
    except (psutil.Error, OSError):
        return None


def open_files_of(pid: int) -> set[str]:
    try:
        return {file.path for file in psutil.Process(pid).open_files()}
    except (psutil.Error, OSError):
        return set()


def is_locked_by(pid: int, path: Path) -> bool:
    """Return whether *pid* has *path* open and is named in it: nobody tells who has the lock itself."""
    try:
        words = path.read_text(errors="replace").split()
    except OSError:
        return False
    return words[:1] == [str(pid)] and str(path) in open_files_of(pid)


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal by number, right after a look at the start time: another may get the number in between."""
    now = process_of(process.pid)
    if now is None or now.started != process.started:
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def open_exit(pid: int) -> int:
    """Return a pipe that a thread closes when *pid* ended, as looks of *POLL_INTERVAL* tell."""
    process = process_of(pid)
    if process is None:
        raise ProcessLookupError(pid)
    reader, writer = os.pipe()
    threading.Thread(target=_close_at_exit, args=(process, writer), name=f"exit-{pid}", daemon=True).start()
    return reader


def _close_at_exit(process: Process, writer: int) -> None:
    nobody_reads = select.poll()
    nobody_reads.register(writer, 0)  # an error is told in any case: the reader was closed
    while not nobody_reads.poll(POLL_INTERVAL * _MILLISECONDS):
        now = process_of(process.pid)
        if now is None or now.started != process.started or now.state in DEAD_STATES:
            break
    os.close(writer)


def open_file_watch(directory: Path) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(directory))


def changed_files(watch: int) -> set[str]:  # noqa: ARG001 - as Linux has it
    return set()


def open_wakeup() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer


def adopt_orphans() -> None:
    """Do nothing: orphans go to the first process, and only mark and session tell whose they are."""


def is_adopting_orphans() -> bool:
    return False


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """Look every now and then whether *parent* is still ours, from a thread."""
    if os.getppid() != parent:
        signal.raise_signal(by)
        return
    threading.Thread(target=_end_with, args=(parent, by), name="die-with", daemon=True).start()


def _end_with(parent: int, by: signal.Signals) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(POLL_INTERVAL)
    os.kill(os.getpid(), by)


def rename_process(words: str) -> None:
    """Leave the name as it is."""


def forbid_memory_reads() -> None:
    """Do nothing: where debugging needs a privilege, as on macOS, others of the same user cannot read it."""


def parent_death_prefix() -> tuple[str, ...]:
    """Return nothing: the sweep of the next supervisor ends the orphans."""
    return ()


def exchange_names(one: Path, other: Path) -> bool:  # noqa: ARG001 - as the protocol has it
    return False


def rename_to_free(old: Path, new: Path) -> bool:  # noqa: ARG001 - as above
    return False


def is_opened_by_us_alone(descriptor: int) -> bool:  # noqa: ARG001 - as above
    """Return False: nobody knows, so a file that was swapped out is kept instead of written again."""
    return False


def may_have_writer(descriptor: int) -> bool:
    """Return whether it changed just now: who is in the middle of a save writes again soon."""
    return abs(time.time() - os.fstat(descriptor).st_mtime) < SAVING


def boot_id() -> str:
    return f"booted-{psutil.boot_time():.0f}"
