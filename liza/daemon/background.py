"""A supervisor without a terminal: start it in the background, stop it from anywhere."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Final

from liza.daemon.recover import RUNS, await_exit, orphaned_workers, recover, supervisor_processes
from liza.errors import InvalidBoard, LizaError, RedBase, UsageError
from liza.system import files
from liza.system.host import host
from liza.system.platform import STOPPED
from liza.system.process import kill_all, process_of, send_signal, sweep
from liza.system.run_control import wait_readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG: Final = "supervisor.log"
STOP_TIMEOUT: Final = 30.0  # seconds `liza stop` waits: more than a supervisor gives its workers
ABORT_TIMEOUT: Final = 15.0  # seconds after ABORT in which a run that hears of it has ended
POLL_INTERVAL: Final = 0.2  # seconds between two looks for who was stopped


def detach(run: Callable[[Callable[[], None]], int], home: Path) -> int:
    """Run *run* in the background and return its pid once it calls its argument; re-raise what kept it from
    starting.

    It forks twice: the first child becomes session leader and exits, so that the second can never acquire a
    terminal.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        os._exit(0 if os.fork() else _run_detached(run, home, writer))
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    if said.isdecimal():
        return int(said)
    code, _, sentence = said.partition(" ")
    raise _BY_CODE.get(code, LizaError)(sentence or f"the supervisor did not start; {home / LOG} says why")


_BY_CODE: Final = {str(kind.exit_code): kind for kind in (LizaError, UsageError, InvalidBoard, RedBase)}


def _run_detached(run: Callable[[Callable[[], None]], int], home: Path, writer: int) -> int:
    with os.fdopen(writer, "w") as pipe:

        def ready() -> None:
            pipe.write(str(os.getpid()))
            pipe.close()

        try:
            _redirect(home / LOG)
            return run(ready)
        except LizaError as error:
            sys.stderr.write(f"liza: {error}\n")
            if not pipe.closed:
                pipe.write(f"{error.exit_code} {error}")
            return error.exit_code
        except BaseException:  # noqa: BLE001 - it belongs into the log: the fork must not go on as its parent
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(out)


def ensure_ended(home: Path, patience: float = ABORT_TIMEOUT) -> str:
    """Make sure that the run of *home*, which was asked to end, does; return what had to be done.

    A stopped process receives no signal: it is continued again and again, and killed after *patience*
    seconds.
    """
    deadline = time.monotonic() + patience
    while running := [process for process in supervisor_processes(home) if process.pid != os.getpid()]:
        for process in [*running, *orphaned_workers(home)]:
            if process.state == STOPPED:
                send_signal(process, signal.SIGCONT)
        if time.monotonic() > deadline:
            return _kill_run(home)
        await_exit(running, POLL_INTERVAL)
    return ""


def _kill_run(home: Path) -> str:
    killed = supervisor_processes(home)
    left = kill_all(lambda: [*supervisor_processes(home), *orphaned_workers(home)])
    survivors = [*map(str, left), *sweep(home / RUNS).survivors]
    if survivors:
        raise LizaError(f"these processes could not be ended: {', '.join(survivors)}; end them by hand")
    recover(home, dry_run=False)
    return f"{', '.join(map(str, killed))} did not hear, and was killed; what it held was given back"


def stop_supervisor(home: Path) -> str:
    """Send SIGTERM to the supervisor of *home*, wait for its exit, and return who it was."""
    path = home / files.SUPERVISOR_LOCK
    who = files.holder_of(path)
    if who is None:
        raise LizaError("no supervisor is running here; `liza run` starts one")
    if who.host != os.uname().nodename:
        raise LizaError(f"the supervisor is {who}; run `liza stop` there")
    process = process_of(who.pid)
    try:
        descriptor = host().open_exit(who.pid)
    except ProcessLookupError:
        return str(who)
    try:
        # The process was looked at first: who holds the lock now is the one that is signalled, or nobody.
        if process and files.holder_of(path) == who:
            send_signal(process, signal.SIGTERM)
            send_signal(process, signal.SIGCONT)  # who is stopped hears it only then
        if not wait_readable(descriptor, STOP_TIMEOUT):
            raise LizaError(f"{who} was asked to end and has not yet; a second `liza stop` ends it at once")
    finally:
        os.close(descriptor)
    return str(who)
