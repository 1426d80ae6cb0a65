"""How much room there is: a fact, on which others decide."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

MEGABYTE: Final = 1_000_000  # bytes, as disks are sold


class DiskSpace(NamedTuple):
    """Bytes of the file system that a path is on."""

    free: int
    total: int

    def __str__(self) -> str:
        return f"{self.free / 2**30:.1f} GB of {self.total / 2**30:.1f} GB are free"


def disk_shortage(path: Path, floor_mb: int) -> str | None:
    """Return why nothing new may start around *path*, or None where *floor_mb* megabytes are free."""
    there = disk_usage(path)
    if there.free >= floor_mb * MEGABYTE:
        return None
    return (
        f"nothing new starts: {there.free // MEGABYTE} MB are free on the disk of {path}, and "
        f"limits.free_disk_mb asks for {floor_mb}; make room, and it goes on by itself"
    )


def disk_usage(path: Path) -> DiskSpace:
    usage = shutil.disk_usage(path)
    return DiskSpace(usage.free, usage.total)
