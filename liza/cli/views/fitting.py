"""Lines that fit the reader's terminal: what is too long is cut, and the command at its end stays whole.

Where nothing is cut there is no terminal: whoever reads from a pipe or a file gets all of it.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import TYPE_CHECKING, Final
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_COMMAND_AT_END: Final = re.compile(r" (?:Next: |\()?`[^`]+`[^`]{0,12}$")
_LABEL: Final = re.compile(r" +(\w+) +")  # what a line of `liza explain` begins with
_COPIED: Final = frozenset({"then", "whole"})  # lines that people copy: a command, a path
_LEAST: Final = 20  # columns of the cause that are worth a command beside it


def terminal_width(stream: TextIO) -> int | None:
    """Return how many columns the terminal *stream* has; None where it is none, or does not know."""
    if not stream.isatty():
        return None
    try:
        found = int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return None
    return found if found > 0 else None


def fit_text(text: str, width: int | None) -> str:
    """Return *text* with each line cut to *width* columns; None leaves all as it is."""
    return text if width is None else "\n".join(fit_line(line, width) for line in text.split("\n"))


def fit_line(line: str, width: int) -> str:
    """Return *line* in at most *width* columns: the cause is cut, a command at the end is kept."""
    if _cells(line) <= width:
        return line
    found = _COMMAND_AT_END.search(line)
    if found and width - _cells(found[0]) >= _LEAST:
        return _cut(line[: found.start()], width - _cells(found[0])) + found[0]
    return _cut(line, width)


def fold_text(text: str, width: int | None) -> str:
    """Return *text* with long lines folded between words: all of it is shown, and commands stay whole."""
    return text if width is None else "\n".join(_fold(text, max(width, _LEAST)))


def _fold(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        label = _LABEL.match(line)
        if label and label[1] in _COPIED:
            yield line
            continue
        indent = " " * (len(label[0]) if label else 2)
        yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [line]


def _cut(text: str, width: int) -> str:
    """Return the start of *text* in *width* columns, with the sign that says that there was more."""
    used, kept = 1, list[str]()
    for sign in text:
        used += _cells(sign)
        if used > width:
            break
        kept.append(sign)
    return f"{''.join(kept).rstrip()}…"


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)
