"""How much memory the processes of a run share, which no limit of a single process counts.

It is anonymous memory that is mapped by several, files in memory (`memfd_create`) and segments of System V.
All of it is also in one number of the kernel's for the whole machine: only where that grew by as much as a
run may have is it worth asking whose it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_KB: Final = 1024
_BLOCK: Final = 512  # bytes of a block, as stat() counts them
_IN_MEMORY: Final = ("/memfd:", "/dev/shm/", "/SYSV", "/dev/zero")  # noqa: S108 - names are compared
_PATIENCE: Final = 2.0  # seconds to look into a namespace


def shared_on_machine() -> int:
    """Return the bytes that all processes of the machine share; 0 where the kernel does not tell."""
    return _kilobytes(_PROC / "meminfo", "Shmem:") * _KB


def shared_by(pids: Iterable[int]) -> int:
    """Return the bytes that *pids* share with each other; what is mapped and has a name counts twice."""
    found = list(pids)
    mapped = sum(_kilobytes(_PROC / str(pid) / "smaps_rollup", "Pss_Shmem:") for pid in found) * _KB
    files = {place: size for pid in found for place, size in _files_of(pid)}
    namespaces = {space: pid for pid in found if (space := _link_target(_PROC / str(pid) / "ns" / "ipc"))}
    namespaces.pop(_link_target(_PROC / "self/ns/ipc"), None)
    return mapped + sum(files.values()) + sum(map(_segments_of, namespaces.values()))


def _kilobytes(path: Path, name: str) -> int:
    with suppress(OSError):  # it ended
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def _files_of(pid: int) -> Iterable[tuple[tuple[int, int], int]]:
    """Yield the files in memory that *pid* has open, each by its place, with its size."""
    folder = _PROC / str(pid) / "fd"
    with suppress(OSError):  # it ended, or it is not ours
        for name in os.listdir(folder):  # noqa: PTH208 - names are enough
            with suppress(OSError):
                if _link_target(folder / name).startswith(_IN_MEMORY):
                    facts = (folder / name).stat()
                    yield (facts.st_dev, facts.st_ino), facts.st_blocks * _BLOCK


def _link_target(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - of what is no path
    except OSError:
        return ""


def _segments_of(pid: int) -> int:
    """Return the bytes of System V's segments in the namespace of *pid*, also of those that nobody maps."""
    if shutil.which("nsenter") is None:
        return 0
    words = ["nsenter", f"--target={pid}", "--user", "--ipc", "--preserve-credentials"]
    try:
        done = subprocess.run(
            [*words, "cat", "/proc/sysvipc/shm"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return sum(int(row[14]) + int(row[15]) for row in rows if len(row) > 15)  # noqa: PLR2004 - resident, swapped
