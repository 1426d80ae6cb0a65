"""The end of a transcript, and what comes after it, without reading all of it: it may be of any size."""

from __future__ import annotations

import os
import stat
from typing import IO, TYPE_CHECKING, Final

from liza.cli.views.transcript import TranscriptReader

if TYPE_CHECKING:
    from pathlib import Path

    from liza.cli.views.transcript import TranscriptLine

WINDOW: Final = 64 << 10  # bytes from the end that are looked at first; more, until there are lines enough
MOST: Final = 8 << 20  # bytes from the end that are looked at in all
CHUNK: Final = 1 << 20  # bytes that are read at a time


def last_lines(path: Path, count: int, *, most: int = WINDOW) -> tuple[TranscriptLine, ...]:
    """Return the last *count* readable lines in the last *most* bytes of *path*; none where it is gone."""
    try:
        return tuple(end_of(path, count, most=most)[0])
    except OSError:
        return ()


def end_of(path: Path, count: int, *, most: int = MOST) -> tuple[list[TranscriptLine], int]:
    """Return the last *count* readable lines of *path*, and the offset of what has not been read."""
    size = min(WINDOW, most)
    while True:
        data, start = end_bytes(path, size)
        is_whole = start == 0
        # The first line is cut unless the file begins with it; what is left of an event cannot be read.
        whole = data if is_whole else data[data.find(b"\n") + 1 :]
        reader = TranscriptReader()
        lines = reader.feed(whole[: whole.rfind(b"\n") + 1])
        if is_whole or len(lines) >= count or size >= most:
            end = start + len(data) - (len(whole) - whole.rfind(b"\n") - 1)
            return [*lines, *reader.rest()][-count:] if count else [], end
        size *= 4


def end_bytes(path: Path, size: int) -> tuple[bytes, int]:
    """Return the last *size* bytes of *path*, and the offset at which they begin."""
    with open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
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
