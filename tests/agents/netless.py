"""A program that runs a command where nothing but loopback is reached, with a model there.

`unshare --net python -m tests.agents.netless MODEL LOG FAULTS SECONDS -- COMMAND …`, where MODEL is
`scripted` or the path of a real one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tests.agents.endpoint import PORT, Endpoint, Fault

SCRIPTED: Final = "scripted"
GRACE: Final = 30.0  # seconds that a command gets to end after SIGTERM
TOO_LONG: Final = 124  # the exit code then
MOST_WORDS: Final = (
    60  # tokens of one answer of the real model: it has nothing to say, and the test ends soon
)
# Of Linux, which alone has network namespaces.
SET_FLAGS: Final = 0x8914
UP: Final = 0x1


@cache
def words() -> tuple[str, ...]:
    """Return what starts a command in a network of its own, or nothing where that cannot be had."""
    alone = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--net", "--map-root-user")
    found = shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True, check=False)
    return alone if found and found.returncode == 0 else ()


def raise_loopback() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14s", b"lo", UP, b""))


@contextmanager
def scripted(log: Path, faults: list[Fault]) -> Iterator[None]:
    with Endpoint(log, faults) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield
        server.shutdown()


@contextmanager
def real(model: str) -> Iterator[None]:
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - only where it is asked for

    told = xllamacpp.CommonParams()
    told.model.path, told.hostnames, told.port = model, ["127.0.0.1"], PORT
    told.n_ctx, told.n_parallel, told.warmup, told.n_predict = 8192, 1, False, MOST_WORDS
    # More threads wait for each other, which on a busy machine takes a hundred times as long.
    told.cpuparams.n_threads = told.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(told)
    yield
    del server


def run(command: list[str], seconds: float) -> int:
    child = subprocess.Popen(command)
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
        return TOO_LONG


def main(model: str, log: str, faults: str, seconds: str, *command: str) -> int:
    raise_loopback()
    told = [Fault.model_validate(one) for one in json.loads(faults)]
    with scripted(Path(log), told) if model == SCRIPTED else real(model):
        return run(list(command[1:]), float(seconds))


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(*sys.argv[1:]))  # a server in native code would keep the process
