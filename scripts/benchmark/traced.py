"""What an update writes and syncs, told by strace; run as a program, it makes the updates that are traced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from scripts.benchmark.rivals import ENGINES, LIZA, Row

WRITES: Final = frozenset({"write", "writev", "pwrite64", "pwritev"})
SYNCS: Final = frozenset({"fsync", "fdatasync"})
MARK: Final = "mark"  # a file that is written to before and after the updates that count
CALL: Final = re.compile(r"(\w+)\(\d+<([^>]*)>.*?(?:= (\d+))?$")


class Written(NamedTuple):
    """What one update costs the disk, on average."""

    syncs: float
    synced: float  # bytes that were waiting in the files that were synced
    written: float  # bytes in all
    told_by: str


def traced(row: Row, directory: Path, updates: int) -> Written | str:
    """Return what *updates* updates of the board in *directory* write each, or why that is not known."""
    log = directory / "strace"
    calls = ",".join(sorted(WRITES | SYNCS))
    strace = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(log)]
    program = [sys.executable, "-m", __name__, row.name, str(directory), str(updates)]
    try:
        ended = subprocess.run([*strace, *program], capture_output=True, check=False)
    except FileNotFoundError:
        return _by_growth(row, directory, updates, "strace is not installed")
    if ended.returncode:
        return _by_growth(row, directory, updates, "strace may not trace here")
    with log.open() as lines:
        return summed(lines, updates)


def summed(lines: Iterable[str], updates: int) -> Written:
    waiting: Counter[str] = Counter()
    total: Counter[str] = Counter()
    counts = False
    for line in lines:
        if (found := CALL.search(line)) is None:
            continue
        call, path, size = found.group(1), found.group(2), int(found.group(3) or 0)
        if path.endswith(f"/{MARK}"):
            counts = not counts
        elif counts and call in SYNCS:
            total.update(syncs=1, synced=waiting.pop(path, 0))
        elif counts and call in WRITES:
            waiting[path] += size
            total["written"] += size
    syncs, synced, written = (total[what] / updates for what in ("syncs", "synced", "written"))
    return Written(syncs, synced, written, told_by="strace")


def _by_growth(row: Row, directory: Path, updates: int, why: str) -> Written | str:
    if row is not LIZA:
        return why
    journal = directory / ".liza" / "journal.jsonl"
    with closing(row.open(directory)) as board:
        before = journal.stat().st_size
        for number in range(updates):
            board.update(number)
    grown = (journal.stat().st_size - before) / updates
    return Written(syncs=1, synced=grown, written=grown, told_by=f"growth of journal.jsonl ({why})")


def main() -> None:
    name, directory, updates = sys.argv[1:]
    mark = os.open(Path(directory) / MARK, os.O_WRONLY | os.O_CREAT, 0o644)
    with closing(ENGINES[name].open(Path(directory))) as board:
        board.update(0)  # the first update of a process may read what the others need not
        os.write(mark, b".")
        for number in range(int(updates)):
            board.update(1 + number)
        os.write(mark, b".")


if __name__ == "__main__":
    main()
