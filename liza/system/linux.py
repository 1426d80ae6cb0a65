"""What only Linux can promise, as `platform` asks for it: the kernel keeps it, also after SIGKILL.

A pid can be somebody else's by the time it is used. Every process is known by its pid and its start time, and
a signal goes through a descriptor that was opened before the two were compared.

A parent is a thread here, not a process: whoever starts what shall die with it must not do so from a thread
that ends sooner.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.system.platform import Process

if TYPE_CHECKING:
    from collections.abc import Callable

SANDBOX_LACK: Final = ""
SIGNALS_FILE_CHANGES: Final = True
ADOPTS_ORPHANS: Final = True

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PIECE: Final = 1 << 14  # bytes of a file in /proc that are read at once; most have less

_KERNEL_THREAD: Final = 0x00200000  # the flag of a process that is part of the kernel

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37


def _prctl(option: int, value: int | ctypes.c_void_p) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def is_adopting_orphans() -> bool:
    found = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.cast(ctypes.byref(found), ctypes.c_void_p))
    return bool(found.value)


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        signal.raise_signal(by)


def rename_process(words: str) -> None:
    """Write over the words that this process was started with, as far as there is room for others."""
    _prctl(_PR_SET_NAME, ctypes.cast(ctypes.c_char_p(words.encode()[:15]), ctypes.c_void_p))
    fields = _read("self/stat").decode(errors="replace").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, as proc(5) has them
    if 0 < begin < end:
        room = end - begin
        ctypes.memmove(begin, words.encode()[: room - 1].ljust(room, b"\0"), room)


def forbid_memory_reads() -> None:
    # /proc would show it to them.
    _prctl(_PR_SET_DUMPABLE, 0)


@cache
def parent_death_prefix() -> tuple[str, ...]:
    """Return util-linux's setpriv: Python could only do this by running code between fork and exec, which is
    not safe in a process with threads. Empty where there is no such program; then the sweep of the next
    supervisor is what ends the orphans.
    """
    import shutil  # noqa: PLC0415 - these are for those who start programs, and everybody imports this module
    import subprocess  # noqa: PLC0415 - as above

    program = shutil.which("setpriv")
    if program is None:
        return ()
    words = (program, "--pdeathsig", "KILL", "--")
    done = subprocess.run([*words, program, "--version"], capture_output=True, check=False)
    return words if done.returncode == 0 else ()


def process_of(pid: int) -> Process | None:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(descriptor, _PIECE)  # one line, which the kernel gives as a whole
        finally:
            os.close(descriptor)
    except OSError:
        return None
    head, _, rest = line.rpartition(b")")  # a name may hold blanks and brackets
    fields = rest.split(None, 20)
    if int(fields[6]) & _KERNEL_THREAD:
        return None  # nobody started it, and a third of all that there are would be looked at in vain
    return Process(
        pid=pid,
        started=int(fields[19]),
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu=(int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / _TICKS,
    )


def process_table() -> dict[int, Process]:
    # Not by psutil, which takes ten times as long: every run looks for its processes several times a minute.
    pids = (int(name) for name in os.listdir(_PROC) if name.isdigit())  # noqa: PTH208 - names are enough
    return {pid: process for pid in pids if (process := process_of(pid))}


def children() -> list[Process]:
    try:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208 - names are enough
        pids = [int(word) for thread in threads for word in _read(f"self/task/{thread}/children").split()]
    except OSError:  # this kernel lists none, or a thread ended meanwhile
        return [process for process in process_table().values() if process.parent == os.getpid()]
    return [process for pid in pids if (process := process_of(pid))]


def variable_of(pid: int, name: str) -> str | None:
    try:
        environment = _read(f"{pid}/environ")
    except OSError:
        return None
    # In one search each: a sweep asks this of every process, and an environment has a hundred variables.
    _, found, rest = b"\0".join([b"", environment]).partition(f"\0{name}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if found else None


def _read(name: str) -> bytes:
    # By descriptor and plain string: a sweep does this for every process of the machine.
    descriptor = os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while piece := os.read(descriptor, _PIECE):
            content += piece
        return content
    finally:
        os.close(descriptor)


def open_files_of(pid: int) -> set[str]:
    folder = _PROC / str(pid) / "fd"
    found: set[str] = set()
    with suppress(OSError):  # it ended, or it is not ours
        for name in os.listdir(folder):  # noqa: PTH208 - names are enough
            with suppress(OSError):
                found.add(os.readlink(folder / name))  # noqa: PTH115 - a string is compared
    return found


def is_locked_by(pid: int, path: Path) -> bool:
    folder = _PROC / str(pid)
    with suppress(OSError):  # it ended, or it is not ours
        for name in os.listdir(folder / "fd"):  # noqa: PTH208 - names are enough
            with suppress(OSError):
                is_it = os.readlink(folder / "fd" / name) == str(path)  # noqa: PTH115 - as above
                # Who looks whether it is locked only has it open.
                if is_it and " WRITE " in (folder / "fdinfo" / name).read_text():
                    return True
    return False


def send_signal(process: Process, number: signal.Signals) -> bool:
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = process_of(process.pid)
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def open_exit(pid: int) -> int:
    return os.pidfd_open(pid)


# Modified, closed after a write, moved away and here, created, deleted. Opening, and closing without a write,
# are left out: reading the board would wake whoever reads it.
_FILE_CHANGES: Final = 0x002 | 0x008 | 0x040 | 0x080 | 0x100 | 0x200
_ONLY_DIRECTORY: Final = 0x01000000
_FILE_EVENTS: Final = 1 << 16  # bytes that are read at once
_FILE_EVENT: Final = struct.Struct("iIII")  # watch, what, cookie, and the length of the name that follows


def open_file_watch(directory: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor >= 0:
        mask = _FILE_CHANGES | _ONLY_DIRECTORY
        if libc.inotify_add_watch(descriptor, os.fsencode(directory), mask) >= 0:
            return int(descriptor)
        number = ctypes.get_errno()
        os.close(descriptor)
    else:
        number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(directory))


def changed_files(watch: int) -> set[str]:
    try:
        data = os.read(watch, _FILE_EVENTS)
    except BlockingIOError:
        return set()
    found, at = set(), 0
    while at < len(data):
        _, _, _, length = _FILE_EVENT.unpack_from(data, at)
        at += _FILE_EVENT.size + length
        found.add(os.fsdecode(data[at - length : at].rstrip(b"\0")))
    return found


def open_wakeup() -> tuple[int, int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return descriptor, descriptor


_AT_FDCWD: Final = -100
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_UNKNOWN_TO_THE_FILE_SYSTEM: Final = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def exchange_names(one: Path, other: Path) -> bool:
    return _rename_with_flag(one, other, _EXCHANGE)


def rename_to_free(old: Path, new: Path) -> bool:
    return _rename_with_flag(old, new, _NO_REPLACE)


def _rename_with_flag(new: Path, current: Path, flag: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(current), flag) == 0:
        return True
    error = ctypes.get_errno()
    if error in _UNKNOWN_TO_THE_FILE_SYSTEM:
        return False
    raise OSError(error, os.strerror(error), str(current))


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def is_opened_by_us_alone(descriptor: int) -> bool:
    """Ask the kernel for a write lease, which it grants only then."""
    return _lease_error(descriptor, fcntl.F_WRLCK) == 0


def may_have_writer(descriptor: int) -> bool:
    """Ask the kernel for a read lease, which it refuses only then."""
    # Anything but EAGAIN means that leases are not to be had here, so nobody knows.
    return _lease_error(descriptor, fcntl.F_RDLCK) == errno.EAGAIN


def _lease_error(descriptor: int, kind: int) -> int:
    try:
        # Whoever opens the file meanwhile makes the kernel signal us: by SIGIO, which kills, if not told so.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
    except OSError as error:
        return error.errno or errno.EINVAL
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return 0


@cache
def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
