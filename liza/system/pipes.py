"""The pipes of a running process and the ends of processes, waited for in one selector."""

from __future__ import annotations

import os
import selectors
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Final

from liza.system.host import host

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from liza.system.output_log import OutputLog
    from liza.system.run_control import RunControl

CHUNK: Final = 1 << 18  # bytes read at once; a pipe usually holds less, so that one read empties it
# Reads of what a pipe holds when all is over: somebody who did not die may still write.
MOST_READS: Final = 16


class ProcessPipes:
    """Pipes of a process, ends of processes and the caller's control, as one thing to wait for."""

    def __init__(self, stop: RunControl) -> None:
        self.awaited: set[int] = set()  # processes that have not ended yet, of those whose end is waited for
        self._selector = selectors.DefaultSelector()
        self._selector.register(stop, selectors.EVENT_READ, stop.clear_wakeup)
        self._open: set[int] = set()  # descriptors of ends, which are ours to close
        self._pipes: list[tuple[IO[bytes], Callable[[bytes], None]]] = []

    def wait(self, seconds: float | None) -> None:
        """Deal with what happens next, or return after *seconds*."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def await_end(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            descriptor = host().open_exit(pid)
            self.awaited.add(pid)
            self._open.add(descriptor)
            self._selector.register(descriptor, selectors.EVENT_READ, partial(self._gone, pid, descriptor))

    def _gone(self, pid: int, descriptor: int) -> None:
        self.awaited.discard(pid)
        self._open.discard(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def feed(self, pipe: IO[bytes], data: bytes) -> None:
        """Write *data* as far as the process reads it, then close the pipe: nobody will answer a question."""
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_WRITE, _PipeWriter(self._selector, pipe, data).more)

    def read_into(self, pipe: IO[bytes], spool: OutputLog, on_output: Callable[[], None]) -> None:
        """Put what the process prints into *spool*."""
        os.set_blocking(pipe.fileno(), False)
        self._pipes.append((pipe, spool.take))
        self._selector.register(pipe, selectors.EVENT_READ, partial(self._read, pipe, spool, on_output))

    def _read(self, pipe: IO[bytes], spool: OutputLog, on_output: Callable[[], None]) -> None:
        if data := os.read(pipe.fileno(), CHUNK):
            spool.take(data)
            on_output()
        else:
            self._selector.unregister(pipe)

    def drain(self) -> None:
        """Take what is left in the pipes, without waiting for anybody who may hold them open."""
        for pipe, take in self._pipes:
            with suppress(BlockingIOError):
                for data in islice(iter(partial(os.read, pipe.fileno(), CHUNK), b""), MOST_READS):
                    take(data)

    def close(self) -> None:
        self._selector.close()
        for descriptor in self._open:
            os.close(descriptor)


class _PipeWriter:
    def __init__(self, selector: selectors.BaseSelector, pipe: IO[bytes], data: bytes) -> None:
        self._selector = selector
        self._pipe = pipe
        self._left = memoryview(data)

    def more(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads nothing, or no more; that is its own affair
            self._left = self._left[:0]
        if not self._left:
            self._selector.unregister(self._pipe)
            self._pipe.close()


def close_pipes(leader: subprocess.Popen[bytes]) -> None:
    for pipe in (leader.stdin, leader.stdout, leader.stderr):
        if pipe:
            pipe.close()
