"""The command line: what people type becomes one call, and the one place where a failure becomes a sentence.

Nothing heavy is imported until a command needs it, so that `liza --help` answers at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza import __version__
from liza.cli.commands import boards, environment, history, queries, runs, tasks
from liza.cli.registry import COMMANDS, GROUPS, report_error
from liza.domain.visible_text import visible_stream
from liza.errors import EXIT_CODES, LizaError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# New objects until cycles are looked for. There are few cycles here, and with Python's own 700 the search for
# them is a fifth of what it takes to start a worker.
GARBAGE: Final = (50_000, 20, 100)

# As help lists them: what people need first stands first.
SECTIONS: Final = tuple(room.__name__ for room in (boards, runs, tasks, queries, history, environment))


def parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of the commands in *names*, which are all in the table."""
    top = argparse.ArgumentParser(
        prog="liza",
        description="A supervisor for coding agents that you can leave alone overnight.",
        epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
    )
    top.add_argument("--version", action="version", version=f"liza {__version__}")
    top.add_argument("-C", dest="directory", metavar="DIR", type=Path, default=None, help="work in DIR")
    below = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    groups: dict[str, Any] = {}
    for name in sorted(names, key=lambda name: SECTIONS.index(COMMANDS[name].run.__module__)):
        summary, run, arguments = COMMANDS[name]
        group, _, word = name.rpartition(" ")
        if group and group not in groups:
            parent = below.choices.get(group) or below.add_parser(group, help=GROUPS[group])
            groups[group] = parent.add_subparsers(
                dest="word", metavar="COMMAND", required=group not in COMMANDS
            )
        one = (groups[group] if group else below).add_parser(word, help=summary, description=summary)
        one.set_defaults(run=run)
        for flags, options in arguments:
            one.add_argument(*flags, **options)
    return top


def _commands_for(words: Sequence[str]) -> Collection[str]:
    """Return the one command that *words* begin with where that is plain: to describe all takes a while."""
    first = words[0] if words else ""
    is_plain = first in COMMANDS and not any(name.startswith(f"{first} ") for name in COMMANDS)
    return (first,) if is_plain else COMMANDS


def _configure_logging(command: str) -> None:
    """Let a worker write down all that its operator wants to see, and every other command only trouble."""
    if command == "status":
        return  # a look at the board has nothing to log, and loading what logs takes a while
    import logging

    if command == "worker":
        logging.Formatter.converter = time.gmtime
        line = "%(asctime)sZ %(levelname)s %(message)s"
        logging.basicConfig(level=logging.INFO, format=line, datefmt="%Y-%m-%dT%H:%M:%S")
    else:
        logging.basicConfig(level=logging.WARNING, format="liza: %(message)s")


def anchor(path: str, here: Path) -> str:
    """Return a search *path* that means the same from everywhere as it means *here*.

    In the worktree of an agent, `.` or `node_modules/.bin` would be a directory with the agent's programs.
    """
    return os.pathsep.join(str(here / word) for word in path.split(os.pathsep))


def main(words: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    gc.set_threshold(*GARBAGE)
    # We use no plugins of pydantic, and looking for them takes as long as reading a board.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ["PATH"] = anchor(os.environ.get("PATH", os.defpath), Path.cwd())
    sys.stdout, sys.stderr = visible_stream(sys.stdout), visible_stream(sys.stderr)
    words = sys.argv[1:] if words is None else words
    args = parser(_commands_for(words)).parse_args(words)
    _configure_logging(args.command)
    args.directory = (args.directory or Path()).absolute()
    try:
        code = args.run(args)
    except LizaError as error:
        code = report_error(error)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code or 0)
