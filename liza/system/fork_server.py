"""A process that has loaded everything and forks others on demand, each a child of whoever asked.

Starting Python and loading Liza takes half a second of a core; a fork takes a hundredth of that. A process
with threads must not fork, so a copy of it that was made before its first thread does. Only where orphans are
adopted by the asking process (see `Platform.adopt_orphans`): the copy forks twice and the one between ends.

A child does nothing before the asking process knows its pid. So one that was forked by a server which was
given up, or whose asking process died, ends without a trace.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from liza.system.host import host

PATIENCE: Final = 5.0  # seconds for one fork; who waits longer asks a stopped process
SERVER_NAME: Final = "liza fork server"
_LARGEST: Final = 1 << 16  # bytes of one request
_STREAMS: Final = (0, 1, 2)
_GO: Final = b"g"
_FAILED: Final = 70  # exit code of a process that failed before it had one, as sysexits.h has it

Entry = Callable[[Sequence[str]], None]

# Streams that a forked process replaced. Freed, they would close the descriptors of those in their place.
_replaced: Final[list[object]] = []


class NoForkServer(Exception):
    """The fork server ended, or does not answer; nothing was started."""


class ForkServer:
    """The asking side: for the process that is to be the parent."""

    def __init__(self, entry: Entry) -> None:
        """Copy this process, which has no second thread yet; *entry* gets the words of each request."""
        if threading.active_count() > 1:
            raise RuntimeError("a process with threads cannot be copied: a lock that one holds stays locked")
        sys.stdout.flush()
        gc.collect()  # a finalizer that runs in the copy would close descriptors of others
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _serve(theirs.fileno(), parent, entry)
        theirs.close()
        self._process = host().process_of(pid)
        self._socket.settimeout(PATIENCE)

    def fork(self, words: Sequence[str], output: int, variables: Mapping[str, str], *, cwd: Path) -> int:
        """Let a new child of this process run *words* in *cwd*; return its pid. *output* is where it prints.

        Raise NoForkServer where that is not possible, now and from now on.
        """
        request = json.dumps([list(words), dict(variables), str(cwd)]).encode()
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._socket, [request], [output, reader])
            pid = _pid_in(self._socket.recv(_LARGEST))
            os.write(writer, _GO)
        except OSError as error:
            self.close()
            raise NoForkServer from error
        finally:
            os.close(reader)
            os.close(writer)
        return pid

    def close(self) -> None:
        """End the server; whoever was forked goes on."""
        self._socket.close()
        if self._process and host().send_signal(self._process, signal.SIGKILL):
            with suppress(ChildProcessError):
                os.waitpid(self._process.pid, 0)
        self._process = None


def _pid_in(answer: bytes) -> int:
    if not answer.isdigit():
        raise OSError(answer.decode() or "the fork server ended")
    return int(answer)


def _serve(requests: int, parent: int, entry: Entry) -> NoReturn:
    try:
        requests = fcntl.fcntl(requests, fcntl.F_DUPFD_CLOEXEC, 3)  # it may be a standard stream's number
        # Whoever waits for the end of a pipe, or for a lock, must not wait for us or for those we fork.
        _close_all_but(requests)
        for standard in _STREAMS:
            os.dup2(os.open(os.devnull, os.O_RDWR), standard)  # opened as the lowest number that is free
        os.setpgid(0, 0)  # Ctrl-C is for the parent to pass on
        host().die_with(parent, signal.SIGKILL)
        host().rename_process(SERVER_NAME)
        with socket.socket(fileno=requests) as listener:
            while True:
                request, descriptors, _, _ = socket.recv_fds(listener, _LARGEST, 2)
                if not request:
                    os._exit(0)
                listener.send(_answer(request, descriptors, requests, entry))
                for descriptor in descriptors:
                    os.close(descriptor)
    except BaseException:  # noqa: BLE001 - it must not go on as a second of what it is a copy of
        os._exit(_FAILED)


def _close_all_but(*kept: int) -> None:
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - names are enough
        if number not in kept:
            with suppress(OSError):  # the list itself was read by one of them
                os.close(number)


def _answer(request: bytes, descriptors: Sequence[int], listener: int, entry: Entry) -> bytes:
    """Fork for *request*; return the pid of the child that waits to be let go, or why there is none."""
    words, variables, cwd = json.loads(request)
    output, go = descriptors

    def be_child() -> None:
        os.close(listener)
        _become(words, variables, cwd, output)
        entry(words)

    try:
        return str(_fork_orphan(be_child, go)).encode()
    except OSError as error:
        return f"no process: {error}".encode()


def _fork_orphan(act: Callable[[], None], go: int) -> int:
    """Fork a process without a parent, which does *act* once *go* says so; return its pid."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(writer)
            # When it is let go, the one between has ended, and its parent is the one that asked.
            _exit_with(act) if os.read(go, 1) == _GO else os._exit(0)
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.close(writer)
    try:
        os.waitpid(between, 0)
        said = os.read(reader, 32)
    finally:
        os.close(reader)
    if not said:
        raise OSError("the second fork failed")
    return int(said)


def _become(words: Sequence[str], variables: Mapping[str, str], cwd: str, output: int) -> None:
    """Make this process what a program would be that was started with *words*."""
    os.setpgid(0, 0)
    os.chdir(cwd)
    os.environ.update(variables)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _close_all_but(*_STREAMS)
    _replaced.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a descriptor, for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - as above
    host().rename_process(" ".join(("liza worker", *words)))


def _exit_with(act: Callable[[], None]) -> NoReturn:
    """Do *act* and end as Python itself ends a program."""
    code = _FAILED
    try:
        act()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does
        code = 1
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
