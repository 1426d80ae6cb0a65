"""Locks between Liza's own processes; the kernel releases them when a process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for the lock at *path* and hold it."""
    descriptor = None
    while descriptor is None:
        descriptor = _open_locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock at *path* until it is closed; None where another has it."""
    try:
        return _open_locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _open_locked(path: Path, how: int) -> int | None:
    """Lock *path*; return None where the file was removed meanwhile, since others would lock a new one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
