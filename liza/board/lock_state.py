"""What the last holder of the lock left for the next, in the lock file itself.

It only saves work and tells races apart: a baton that is lost or torn costs one comparison of texts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from liza.board.disk import Print

_SIZE: Final = 1024  # bytes, so that the usual baton covers whatever was there and needs no truncation
_LONGEST: Final = 1 << 16


@dataclass
class Baton:
    descriptor: int  # of the lock file
    pid: int = 0  # 0 where no baton could be read
    sum: str = ""  # the journal's, at what state.yaml shows; empty where that is not known
    state: Print | None = None  # state.yaml, as Liza last put it there
    spare: Print | None = None  # the file that was there before; None while it is being written
    held: dict[str, Print] = field(default_factory=dict)  # swapped-out files that an editor had open
    boot: str = ""  # of the machine, when it was left

    def is_from_before_a_crash(self) -> bool:
        """Tell whether the machine was started since: what was not synced may be half there."""
        return self.boot not in {"", boot()}


def taken(descriptor: int) -> Baton:
    """Return the baton in the lock file, empty where it cannot be read."""
    line = os.pread(descriptor, _LONGEST, 0).partition(b"\n")[0]
    try:
        pid, since, total, state, spare, *held = line.decode().split()
        names = (name.split("=") for name in held)
        return Baton(
            descriptor,
            int(pid),
            "" if total == "-" else total,
            _read(state),
            _read(spare),
            {name: _print(there) for name, there in names},
            since,
        )
    except ValueError:
        return Baton(descriptor)


def left(baton: Baton) -> None:
    """Write the baton; it is not synced, because nothing depends on it."""
    held = "".join(f" {name}={_shown(there)}" for name, there in baton.held.items())
    text = f"{baton.pid} {boot()} {baton.sum or '-'} {_shown(baton.state)} {_shown(baton.spare)}{held}"
    os.pwrite(baton.descriptor, text.encode().ljust(_SIZE - 1) + b"\n", 0)


@cache
def boot() -> str:
    """Return what tells this start of the machine from the one before."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _shown(there: Print | None) -> str:
    return f"{there.inode}:{there.mtime_ns}:{there.size}" if there else "-"


def _read(text: str) -> Print | None:
    return None if text == "-" else _print(text)


def _print(text: str) -> Print:
    inode, mtime_ns, size = text.split(":")
    return Print(int(inode), int(mtime_ns), int(size))
