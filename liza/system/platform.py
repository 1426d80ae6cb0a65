"""What Liza asks of the operating system beyond POSIX, as one protocol that two modules fulfil.

`linux` has the kernel do it. `portable` stands beside it for all other systems: by psutil, polling and plain
renames, with weaker promises, which each of its functions names.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

STOPPED: Final = "T"  # by a signal; a debugger's are "t"
DEAD_STATES: Final = frozenset("ZX")


class Process(NamedTuple):
    pid: int
    started: int  # of what tells it from a later process of the same pid; greater is later
    name: str
    state: str  # the letter that Linux has for it
    parent: int
    group: int
    session: int
    cpu: float  # seconds, its reaped children included

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


class Platform(Protocol):
    """An operating system."""

    SANDBOX_LACK: str  # why there is no sandbox on any such system, or ""
    ADOPTS_ORPHANS: bool  # whether `adopt_orphans` does anything
    SIGNALS_FILE_CHANGES: bool  # whether `open_file_watch` works; else files are looked at

    def process_of(self, pid: int) -> Process | None:
        """Return the process *pid*, or None."""

    def process_table(self) -> dict[int, Process]:
        """Return every process there is, by pid."""

    def children(self) -> list[Process]:
        """Return the processes whose parent we are."""

    def variable_of(self, pid: int, name: str) -> str | None:
        """Return what *name* was in the environment of *pid* at its start, or None."""

    def open_files_of(self, pid: int) -> set[str]:
        """Return the paths of the files that *pid* has open, as far as they can be read."""

    def is_locked_by(self, pid: int, path: Path) -> bool:
        """Return whether *pid* has *path* open and locked."""

    def send_signal(self, process: Process, number: signal.Signals) -> bool:
        """Signal *process* if it is still the one that was seen; return whether it was."""

    def open_exit(self, pid: int) -> int:
        """Return a descriptor that becomes readable when *pid* ends; raise ProcessLookupError if it did."""

    def open_file_watch(self, directory: Path) -> int:
        """Return a descriptor that becomes readable when a file directly in *directory* changes."""

    def changed_files(self, watch: int) -> set[str]:
        """Return the names of the files that changed since the last call; "" where some were missed."""

    def open_wakeup(self) -> tuple[int, int]:
        """Return two descriptors, neither of which blocks: what is written to the second wakes the first."""

    def adopt_orphans(self) -> None:
        """Become the parent of every descendant whose own parent ends, so that a double fork is still found.

        For workers and the supervisor, once, at their start. Whoever adopts must reap: see `process`.
        """

    def is_adopting_orphans(self) -> bool: ...

    def die_with(self, parent: int, by: signal.Signals = signal.SIGTERM) -> None:
        """End this process by *by* when *parent* ends, even by SIGKILL; at once if that is over."""

    def rename_process(self, words: str) -> None:
        """Let lists of processes show *words* for this one, as far as they can."""

    def forbid_memory_reads(self) -> None:
        """Keep what this process has, its keys among it, from the processes that it starts."""

    def parent_death_prefix(self) -> tuple[str, ...]:
        """Return the words to put before a command so that it is killed when the starting thread ends."""

    def exchange_names(self, one: Path, other: Path) -> bool:
        """Let two files trade names in one step; return False where that is not to be had."""

    def rename_to_free(self, old: Path, new: Path) -> bool:
        """Rename *old* if nobody has the name *new*, else raise FileExistsError; return False as above."""

    def is_opened_by_us_alone(self, descriptor: int) -> bool:
        """Return whether surely nobody else has this file open."""

    def may_have_writer(self, descriptor: int) -> bool:
        """Return whether somebody is known to have this file open for writing."""

    def boot_id(self) -> str:
        """Return what tells this start of the machine from the one before."""
