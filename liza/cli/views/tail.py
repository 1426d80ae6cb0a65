"""The end of a transcript, and what comes after it, without reading all of it: it may be of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.cli.views.transcript import TranscriptReader

if TYPE_CHECKING:
    from pathlib import Path

    from liza.cli.views.transcript import TranscriptLine

WINDOW: Final = 64 << 10  # bytes from the end that are looked at first; doubled until there are lines enough
MOST: Final = 8 << 20  # bytes from the end that are looked at in all


def last_lines(path: Path, count: int, *, most: int = WINDOW) -> tuple[TranscriptLine, ...]:
    """Return the last *count* readable lines in the last *most* bytes of *path*; none where it is gone."""
    return tuple(end_of(path, count, most=most)[0])


def end_of(path: Path, count: int, *, most: int = MOST) -> tuple[list[TranscriptLine], int]:
    """Return the last *count* readable lines of *path*, and the offset behind the last byte that was read."""
    size = min(WINDOW, most)
    while True:
        try:
            data, end, is_whole = _read_end(path, size)
        except OSError:
            return [], 0
        reader = TranscriptReader()
        lines = [*reader.feed(data), *reader.rest()]
        if is_whole or len(lines) >= count or size >= most:
            return lines[-count:] if count else [], end
        size *= 4


def _read_end(path: Path, size: int) -> tuple[bytes, int, bool]:
    with path.open("rb") as file:
        end = file.seek(0, 2)
        start = max(0, end - size)
        file.seek(start)
        data = file.read(end - start)
    # The first line is cut unless the file begins with it; what is left of an event cannot be read.
    return (data if start == 0 else data[data.find(b"\n") + 1 :]), end, start == 0
