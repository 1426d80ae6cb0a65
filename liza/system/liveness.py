"""Signs of life of an agent: output, CPU time, writes in its working directory."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUSY: Final = 0.02  # of one core: an event loop that only waits uses less
# Seconds by which the time of a file may lie behind the clock: it is that of the kernel's last tick. Without
# it, an agent that always writes right after a look would never be seen.
GRAIN: Final = 0.02
_SKIPPED: Final = frozenset({".git"})


class Stopwatch:
    """Time that passes, but not while it is frozen."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._frozen_at: float | None = None

    def elapsed(self) -> float:
        return (self._frozen_at or time.monotonic()) - self._began

    def freeze(self) -> None:
        self._frozen_at = self._frozen_at or time.monotonic()

    def thaw(self) -> None:
        if self._frozen_at is not None:
            self._began += time.monotonic() - self._frozen_at
            self._frozen_at = None


class LivenessMonitor:
    """When a run last gave a sign of life, on its own stopwatch; cheap signs are looked at first."""

    def __init__(self, watch: Stopwatch, cwd: Path, cpu_seconds: Callable[[], float]) -> None:
        self.last: float | None = None
        self._watch = watch
        self._cwd = cwd
        self._cpu_seconds = cpu_seconds
        self._cpu = 0.0
        self._printed = False
        self._looked = watch.elapsed()
        self._wall = time.time()

    def note_output(self) -> None:
        """Note that it printed something."""
        self.last = self._watch.elapsed()
        self._printed = True

    def look(self, give_up: Callable[[], bool]) -> bool:
        """Return whether there was a sign since the last look; *give_up* ends a long walk early."""
        now, wall = self._watch.elapsed(), time.time()
        interval, since = now - self._looked, self._wall - GRAIN
        cpu = self._cpu_seconds()
        used, printed = cpu - self._cpu, self._printed
        self._cpu, self._printed, self._looked, self._wall = cpu, False, now, wall
        if printed:
            return True
        is_alive = used > BUSY * interval or has_writes_since(self._cwd, since, give_up)
        if is_alive:
            self.last = now
        return is_alive


def has_writes_since(root: Path, since: float, give_up: Callable[[], bool]) -> bool:
    """Return whether anything below *root* was written after the moment *since*."""
    waiting = [str(root)]
    while waiting and not give_up():
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.stat(follow_symlinks=False).st_mtime > since:
                        return True
                    if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                        waiting.append(entry.path)
        except OSError:
            continue  # it is being changed under our eyes, or is not ours to read
    return False
