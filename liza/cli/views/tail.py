"""A window of a transcript, from its end or further back, without reading all of it: its size may be any."""

from __future__ import annotations

import os
import stat
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.transcript import LineKind, TranscriptLine, TranscriptReader

if TYPE_CHECKING:
    from pathlib import Path

WINDOW: Final = 64 << 10  # bytes from the end that are looked at first; more, until there are lines enough
MOST: Final = 8 << 20  # bytes from the end that are looked at in all
CHUNK: Final = 1 << 20  # bytes that are read at a time


def last_lines(path: Path, count: int, *, most: int = WINDOW) -> tuple[TranscriptLine, ...]:
    """Return the last *count* readable lines in the last *most* bytes of *path*; none where it is gone."""
    try:
        return end_of(path, count, most=most).lines
    except OSError:
        return ()


class TranscriptWindow(NamedTuple):
    """Readable lines; earlier ones end at the offset *start*, and what has not been read begins at *end*."""

    lines: tuple[TranscriptLine, ...]
    start: int
    end: int


def end_of(path: Path, count: int, *, most: int = MOST, before: int | None = None) -> TranscriptWindow:
    """Return the last *count* readable lines of *path*, or of what it has before the offset *before*."""
    size = min(WINDOW, most)
    while True:
        data, start = end_bytes(path, size, before)
        # The first line is cut unless the file begins with it; what is left of an event cannot be read.
        cut = data.find(b"\n") + 1 if start else 0
        if (cut in {0, len(data)} and start) and size >= most:
            return _endless_line(path, start + len(data))
        found = _readable(data[cut:], start + cut)
        if start == 0 or len(found.lines) >= count or size >= most:
            return _last(found, count)
        size *= 4


class _Found(NamedTuple):
    lines: list[tuple[TranscriptLine, int]]  # with the offset of the line of the file that completed it
    end: int


def _readable(data: bytes, offset: int) -> _Found:
    reader, lines = TranscriptReader(), list[tuple[TranscriptLine, int]]()
    *whole, last = data.split(b"\n")
    for raw in whole:
        lines += [(line, offset) for line in reader.feed(raw + b"\n")]
        offset += len(raw) + 1
    reader.feed(last)
    return _Found([*lines, *((line, offset) for line in reader.rest())], offset)


def _last(found: _Found, count: int) -> TranscriptWindow:
    hidden, shown = (found.lines[:-count], found.lines[-count:]) if count else (found.lines, [])
    start = shown[0][1] if shown else found.end
    if hidden and hidden[-1][1] == start:  # an event of many lines, cut: who goes back sees it as a whole
        start = next((place for _, place in shown if place > start), start)
    return TranscriptWindow(tuple(line for line, _ in shown), start, found.end)


def _endless_line(path: Path, end: int) -> TranscriptWindow:
    """Return a window that tells of the line before *end*, which is too long to be read."""
    start = end - 1
    with open_plain(path) as file:
        while start > 0:
            size = min(CHUNK, start)
            file.seek(start - size)
            place = file.read(size).rfind(b"\n")
            if place >= 0:
                start += place + 1 - size
                break
            start -= size
    told = TranscriptLine(LineKind.NOTE, f"a line of {end - start:,} bytes (`--raw` has it)")
    return TranscriptWindow((told,), start, end)


def end_bytes(path: Path, size: int, before: int | None = None) -> tuple[bytes, int]:
    """Return the last *size* bytes of *path*, or those before an offset, and where they begin."""
    with open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
        end = end if before is None else min(before, end)
        start = max(0, end - size)
        file.seek(start)
        return file.read(end - start), start


def bytes_from(path: Path, offset: int) -> bytes:
    """Return some bytes of *path* from *offset* on; none where there are none yet."""
    with open_plain(path) as file:
        file.seek(offset)
        return file.read(CHUNK)


def open_plain(path: Path) -> IO[bytes]:
    """Open the plain file *path*; a link, or a pipe that would keep us waiting, is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return os.fdopen(descriptor, "rb")
