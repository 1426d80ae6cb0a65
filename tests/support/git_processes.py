"""Counts the git processes that this test process starts, by their commands."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_counting: Final[list[Counter[str]]] = []


def _hear(event: str, args: tuple[object, ...]) -> None:
    if not _counting or event != "subprocess.Popen" or not isinstance(args[1], list | tuple):
        return
    words = [os.fsdecode(word) for word in args[1]]
    if Path(words[0]).name == "git":
        rest = iter(words[1:])
        command = next(word for word in rest if word != "-c" or not next(rest))  # each -c has a value
        for counted in _counting:
            counted[command] += 1


sys.addaudithook(_hear)  # for good: there is no way to take one back


@contextmanager
def count_git() -> Iterator[Counter[str]]:
    """Count while the block lasts."""
    counted: Counter[str] = Counter()
    _counting.append(counted)
    try:
        yield counted
    finally:
        _counting.remove(counted)
