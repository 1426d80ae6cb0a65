"""Locks between our own processes: held by the kernel, so that whoever is killed lets go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock at *path* and hold it."""
    descriptor = None
    while descriptor is None:
        descriptor = _taken(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def taken(path: Path) -> int | None:
    """Return a descriptor that holds the lock at *path* until it is closed; None where another has it."""
    try:
        return _taken(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _taken(path: Path, how: int) -> int | None:
    """Return None where the file went while we waited: whoever comes next would lock another one."""
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
