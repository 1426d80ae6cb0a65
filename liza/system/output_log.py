"""What a process prints, of any size: the beginning goes to disk, the end is kept, the middle is counted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from liza.system.masking import Mask

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ON_DISK: Final = 32 << 20  # bytes of the beginning that are kept in the file
TAIL: Final = 1 << 20  # bytes of the end that are kept: an answer stands at the end
HEAD: Final = 256 << 10  # bytes of the beginning that a reply quotes


def cut_line(count: int) -> str:
    return f"\n[liza: {count:,} bytes cut here]\n"


class OutputLog:
    """One stream of one process. Memory holds no more than the tail."""

    def __init__(self, path: Path, secrets: Iterable[str] = (), *, on_disk: int = ON_DISK) -> None:
        self.path = path
        self.total = 0
        self._on_disk = on_disk
        self._secrets = tuple(secrets)
        self._mask = Mask(self._secrets)
        self._file = path.open("wb", buffering=0)
        self._tail: deque[bytes] = deque()
        self._kept = 0  # bytes in the tail
        self._cut = 0  # bytes that are nowhere any more

    def take(self, data: bytes) -> None:
        room = max(0, self._on_disk - self.total)
        self.total += len(data)
        if room:
            self._file.write(self._mask.feed(data[:room]))
        if len(data) > room:
            self._keep(data[room:])

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._kept += len(data)
        # A secret that begins before the tail would not be found in it: keep enough to see it whole.
        while self._kept - len(self._tail[0]) >= TAIL + self._mask.longest:
            gone = len(self._tail.popleft())
            self._kept -= gone
            self._cut += gone

    def close(self) -> None:
        """Write the end to the file, behind a line that says how much was cut."""
        with self._file:
            if self._cut:
                self._close_cut()
            else:
                for data in self._tail:
                    self._file.write(self._mask.feed(data))
                self._file.write(self._mask.rest())
        self._tail.clear()

    def _close_cut(self) -> None:
        mask = Mask(self._secrets)
        end = mask.feed(b"".join(self._tail)) + mask.rest()
        spare = len(end) - TAIL
        count = self._cut + self._mask.dropped() + spare
        self._file.write(cut_line(count).encode() + end[spare:])

    def text(self) -> str:
        """Return what was printed, or its beginning and its end; bytes that are no text are replaced."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= HEAD + TAIL:
                return _decode(file.read())
            head = file.read(HEAD)
            file.seek(size - TAIL)
            return _decode(head) + cut_line(self.total - HEAD - TAIL) + _decode(file.read())


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")
