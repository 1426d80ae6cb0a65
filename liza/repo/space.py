"""How much room there is: a fact, on which others decide."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple


class Space(NamedTuple):
    """Bytes of the file system that a path is on."""

    free: int
    total: int

    def __str__(self) -> str:
        return f"{self.free / 2**30:.1f} GB of {self.total / 2**30:.1f} GB are free"


def space(path: Path) -> Space:
    usage = shutil.disk_usage(path)
    return Space(usage.free, usage.total)
