"""A process of Liza's, whatever it runs: its environment, its streams, its log, and its exit code.

This is the one place where a failure becomes a sentence.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.cli.registry import report_error
from liza.domain.printed_text import visible_stream
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
    sys.stdout, sys.stderr = visible_stream(sys.stdout), visible_stream(sys.stderr)


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
    try:
        return run() or 0
    except LizaError as error:
        return report_error(error)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
