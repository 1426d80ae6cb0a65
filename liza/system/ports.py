"""Ports for what tests start: each worktree has some of its own, so that two side by side do not collide."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

WIDTH: Final = 10  # ports of one worktree
FIRST: Final = 10_000
_SLOTS: Final = 32  # worktrees of one project before its ports may be those of another project
_PROJECTS: Final = 70  # so that all ports are below 32768, where the kernel gives out its own


def ports_of(root: Path, slot: str) -> dict[str, str]:
    """Return the variables that name the ports of the worktree that has this *slot* in the project *root*."""
    number = int((re.findall(r"\d+", slot) or ["0"])[-1])
    project = zlib.crc32(str(root).encode(errors="surrogateescape")) % _PROJECTS
    first = FIRST + (project * _SLOTS + number) % (_PROJECTS * _SLOTS) * WIDTH
    return {"LIZA_PORT": str(first), "LIZA_PORTS": f"{first}-{first + WIDTH - 1}"}
