"""What the last holder of the lock left for the next, in the lock file itself.

It only saves work and detects races: a lost or torn state costs one comparison of texts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from liza.board.disk import FileId
from liza.system.host import host

_SIZE: Final = 1024  # bytes, so that the usual baton covers whatever was there and needs no truncation
_LONGEST: Final = 1 << 16


@dataclass
class LockState:
    descriptor: int  # of the lock file
    pid: int = 0  # 0 where no baton could be read
    sum: str = ""  # the journal's, at what state.yaml shows; empty where that is not known
    state: FileId | None = None  # state.yaml, as Liza last put it there
    spare: FileId | None = None  # the file that was there before; None while it is being written
    held: dict[str, FileId] = field(default_factory=dict)  # swapped-out files that an editor had open
    boot: str = ""  # of the machine, when it was left
    synced: int = -1  # bytes of the journal that are known to be on disk; -1 where that is not known

    def is_from_before_a_crash(self) -> bool:
        """Return whether the machine was started since: what was not synced may be half there."""
        return self.boot not in {"", host().boot_id()}


def read_lock_state(descriptor: int) -> LockState:
    """Return the state in the lock file; an empty one where it cannot be read."""
    line = os.pread(descriptor, _LONGEST, 0).partition(b"\n")[0]
    try:
        pid, since, total, synced, state, spare, *held = line.decode().split()
        names = (name.split("=") for name in held)
        return LockState(
            descriptor,
            int(pid),
            "" if total == "-" else total,
            _parse_optional_id(state),
            _parse_optional_id(spare),
            {name: _parse_file_id(there) for name, there in names},
            since,
            int(synced) if since == host().boot_id() else -1,
        )
    except ValueError:
        return LockState(descriptor)


def write_lock_state(baton: LockState) -> None:
    """Write the state to the lock file; not synced, because nothing depends on it."""
    held = "".join(f" {name}={_file_id_text(there)}" for name, there in baton.held.items())
    ids = f"{_file_id_text(baton.state)} {_file_id_text(baton.spare)}"
    text = f"{baton.pid} {host().boot_id()} {baton.sum or '-'} {baton.synced} {ids}{held}"
    os.pwrite(baton.descriptor, text.encode().ljust(_SIZE - 1) + b"\n", 0)


def _file_id_text(there: FileId | None) -> str:
    return f"{there.inode}:{there.mtime_ns}:{there.size}" if there else "-"


def _parse_optional_id(text: str) -> FileId | None:
    return None if text == "-" else _parse_file_id(text)


def _parse_file_id(text: str) -> FileId:
    inode, mtime_ns, size = text.split(":")
    return FileId(int(inode), int(mtime_ns), int(size))
