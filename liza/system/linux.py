"""What only Linux can promise: that a process dies with its parent, and that no grandchild gets away.

A parent is a thread here, not a process: whoever starts what shall die with it must not do so from a thread
that ends sooner.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
from functools import cache
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37


def _prctl(option: int, value: int | ctypes.c_void_p) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that a double fork is still found.

    For workers and the supervisor, once, at their start. Whoever adopts must reap: see `sweep.reap`.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def is_adopting_orphans() -> bool:
    found = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.cast(ctypes.byref(found), ctypes.c_void_p))
    return bool(found.value)


def die_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """End this process by *by* when *parent* ends, even by SIGKILL; at once where it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        signal.raise_signal(by)


def forbid_memory_reads() -> None:
    """Keep what this process has, its keys among it, from whoever it starts: /proc would show it to them."""
    _prctl(_PR_SET_DUMPABLE, 0)


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until *descriptor* can be read, or for *seconds*. Unlike select(), it takes any number."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds * 1000)))


@cache
def parent_death_prefix() -> tuple[str, ...]:
    """Return the words to put before a command so that it is killed when the thread that started it ends.

    They are util-linux's setpriv: Python could only do this by running code between fork and exec, which is
    not safe in a process with threads. Empty where there is no such program; then the sweep of the next
    supervisor is what ends the orphans.
    """
    program = shutil.which("setpriv")
    if program is None:
        return ()
    words = (program, "--pdeathsig", "KILL", "--")
    done = subprocess.run([*words, program, "--version"], capture_output=True, check=False)
    return words if done.returncode == 0 else ()
