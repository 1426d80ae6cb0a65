"""What the machine itself takes, beside which the daemon's figures stand: a sync, a fork, a process."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Final

from scripts.benchmark.race import quantile
from scripts.benchmark.speed import MS

TIMES: Final = 20
BUSY: Final = 0.1  # seconds of CPU by which it is told how busy others are
LINE: Final = b"x" * 200  # bytes of a short line of the journal
GIT: Final = ("git", "version")
PYTHON: Final = (sys.executable, "-c", "import liza.cli.main, liza.daemon.supervisor")
SANDBOX: Final = (
    "bwrap",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--unshare-pid",
    "--die-with-parent",
    "true",
)


def _median(act: Callable[[], object], times: int = TIMES) -> float:
    took = []
    for _ in range(times):
        begun = time.monotonic()
        act()
        took.append(time.monotonic() - begun)
    return quantile(sorted(took), 0.5)


def _run(words: Sequence[str], cwd: Path | None = None) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)


@cache
def sync_seconds(place: Path) -> float:
    """Return the seconds of a line that is appended and synced."""
    with TemporaryFile(dir=place, buffering=0) as file:

        def append() -> None:
            file.write(LINE)
            os.fdatasync(file.fileno())

        return _median(append)


@cache
def fork_seconds() -> float:
    """Return the seconds of a fork of this process that ends at once, and of waiting for it."""

    def fork() -> None:
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    return _median(fork)


@cache
def process_seconds(words: tuple[str, ...]) -> float:
    return _median(lambda: _run(words))


@cache
def process_cpu(words: tuple[str, ...]) -> float:
    """Return the CPU seconds of one process, as the kernel counts them over many."""
    before = children_cpu()
    for _ in range(TIMES):
        _run(words)
    return (children_cpu() - before) / TIMES


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stretch() -> float:
    """Return how long a second of CPU takes here while others are at work: 1 where nobody is."""
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < BUSY:
        sum(range(1000))
    return (time.monotonic() - begun) / (time.process_time() - used)


def all_cpu() -> float:
    """Return the CPU seconds of this process and of its children that ended."""
    return time.process_time() + children_cpu()


@cache
def kill_seconds(processes: int) -> float:
    """Return the seconds from the first SIGKILL until the last of so many processes is reaped."""
    sleeping = [subprocess.Popen(("sleep", "60")) for _ in range(processes)]
    begun = time.monotonic()
    for one in sleeping:
        one.kill()
    for one in sleeping:
        one.wait()
    return time.monotonic() - begun


@cache
def status_seconds(place: Path, files: int) -> float:
    """Return the seconds in which git looks at a checkout of so many files once."""
    with TemporaryDirectory(prefix="bare-", dir=place) as name:
        root = Path(name)
        for number in range(files):
            path = root / f"d{number // 100}" / f"f{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"file {number}\n")
        _run(("git", "init", "-q"), root)
        _run(("git", "add", "--all"), root)
        return _median(lambda: _run(("git", "status", "--porcelain"), root))


def describe_sync(place: Path) -> str:
    return f"a sync {sync_seconds(place) * MS:.1f} ms"


def describe_fork() -> str:
    return f"a fork {fork_seconds() * MS:.1f} ms"


def describe_git() -> str:
    return f"a git process {process_seconds(GIT) * MS:.1f} ms"


def describe_imports() -> str:
    return f"python with the imports {process_seconds(PYTHON):.2f} s"


def describe_sandbox() -> str:
    if shutil.which(SANDBOX[0]) is None:
        return "no bwrap"
    return f"a bare bwrap {process_seconds(SANDBOX) * MS:.1f} ms"
