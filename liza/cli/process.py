"""A process of Liza's, whatever it runs: its environment, its streams, its log, and its exit code.

This is the one place where a failure becomes a sentence.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.cli.registry import report_error
from liza.domain.printed_text import UnwritableOutput, visible_stream
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import Callable

# New objects until cycles are looked for. There are few cycles here, and with Python's own 700 the search for
# them is a fifth of what it takes to start a worker.
GARBAGE: Final = (50_000, 20, 100)


def prepare_process() -> None:
    """Settle what every command relies on."""
    gc.set_threshold(*GARBAGE)
    # We use no plugins of pydantic, and looking for them takes as long as reading a board.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ["PATH"] = anchor(os.environ.get("PATH", os.defpath), Path.cwd())
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the locale has no sign for
    sys.stdout, sys.stderr = visible_stream(sys.stdout), visible_stream(sys.stderr)


def _open_standard_streams() -> None:
    """Lead to nowhere what was closed before we began.

    Else the first file that is opened, such as the journal, would be the standard output of each child.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # noqa: FBT003 - it has no other form
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def anchor(path: str, here: Path) -> str:
    """Return a search *path* that means the same from everywhere as it means *here*.

    In the worktree of an agent, `.` or `node_modules/.bin` would be a directory with the agent's programs.
    """
    return os.pathsep.join(str(here / word) for word in path.split(os.pathsep))


def configure_logging(command: str) -> None:
    """Let a worker write down all that its operator wants to see, and every other command only trouble."""
    if command == "status":
        return  # a look at the board has nothing to log, and loading what logs takes a while
    import logging

    if command == "worker":
        logging.Formatter.converter = time.gmtime
        line = "%(asctime)sZ %(levelname)s %(message)s"
        # Anew: a forked worker has what the supervisor configured, with descriptors that were closed.
        logging.getLogger().handlers.clear()
        logging.basicConfig(level=logging.INFO, format=line, datefmt="%Y-%m-%dT%H:%M:%S")
    else:
        logging.basicConfig(level=logging.WARNING, format="liza: %(message)s")


def exit_code_of(run: Callable[[], int | None]) -> int:
    """Return the exit code that *run* comes to; say on stderr what failed."""
    code = 0
    try:
        code = _reported_code(run)
        sys.stdout.flush()  # while what fails can still be told
    except BrokenPipeError:
        _drop_output()  # whoever read it has left, which changes nothing about what *run* came to
    except UnwritableOutput as error:
        _drop_output()
        return report_error(LizaError(f"standard output cannot be written: {error.strerror}"))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _reported_code(run: Callable[[], int | None]) -> int:
    try:
        return run() or 0
    except LizaError as error:
        return report_error(error)
    except SystemExit as end:  # of the parser, which has said why
        return end.code if isinstance(end.code, int) else 1


def _drop_output() -> None:
    """Let Python not complain, while it ends, of what it could not write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
