"""The table of commands, and what most of them need: the board, a change, a sentence."""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.cli.actions import ActionResult
    from liza.errors import LizaError

PATIENCE: Final = 5.0  # seconds a command waits for the board before it says who has it

Run = Callable[[Namespace], "int | None"]


class Argument(NamedTuple):
    names: tuple[str, ...]
    options: dict[str, Any]


class Command(NamedTuple):
    summary: str
    run: Run
    arguments: tuple[Argument, ...]


COMMANDS: Final[dict[str, Command]] = {}
GROUPS: Final = {
    "agents": "the coding programs here",
    "plan": "a plan that waits for approval",
    "task": "add a task, look at one, or move one",
    "board": "print, compare, copy or share the board",
    "hook": "who may push to the repository that hosts share",
    "salvage": "work that was saved before its worktree was removed",
    "baseline": "the results that ideas of an experiment must beat",
    "breaker": "what the circuit breaker saw, and how to resolve it",
}
AS_JSON: Final = Argument(("--json",), {"action": "store_true", "help": "print JSON"})


def argument(*names: str, **options: Any) -> Argument:  # noqa: ANN401 - argparse's own options
    return Argument(names, options)


def command(name: str, summary: str, *arguments: Argument) -> Callable[[Run], None]:
    """Put a function into the table of commands; *name* may be of two words."""

    def register(run: Run) -> None:
        COMMANDS[name] = Command(summary, run, arguments)

    return register


NO_BASELINE: Final = argument("--no-baseline", dest="baseline", action="store_false",
                              help="do not try the project's gates on what work is based on")  # fmt: skip
MANY: Final[dict[str, Any]] = {"nargs": "+", "action": "extend", "default": []}
LABELS: Final = argument("--label", metavar="L", action="append", default=[],
                         help="what this machine has that tasks may need, such as gpu")  # fmt: skip
TRIP: Final = argument("trip", metavar="TRIP", help="the id of a trip")
TASK: Final = argument("task", metavar="TASK", help="the id of a task")


def refuse_beside(option: str, **others: object) -> None:
    """Raise where one of the options *others* was given, which does nothing beside *option*."""
    idle = [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if idle:
        verb = "does" if len(idle) == 1 else "do"
        raise UsageError(f"{' and '.join(idle)} {verb} nothing beside {option}; leave one of them out")


def home_of(args: Namespace) -> Path:
    from liza.board.location import home_from

    return home_from(args.directory)


def board_of(args: Namespace) -> Board:
    from liza.board.protocol import open_board

    return open_board(home_of(args))


def perform_action(args: Namespace, action: Callable[..., ActionResult], **fields: Any) -> None:  # noqa: ANN401 - of the action
    """Do *action* to the board in the name of the person who typed it, and say what it came to."""
    from liza.domain.changes import HUMAN
    from liza.domain.record import utc_now

    board = board_of(args)
    with tell_if_waiting(board):
        done = action(board, by=HUMAN, at=utc_now(), **fields)
    print(json.dumps({"revision": done.revision}) if vars(args).get("json") else done)


@contextmanager
def tell_if_waiting(board: Board) -> Iterator[None]:
    """Tell a person who waits for the lock whom they wait for."""
    told = threading.Timer(
        PATIENCE, lambda: print(f"liza: waiting for {board.lock_holder()}", file=sys.stderr)
    )
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def report_error(error: LizaError) -> int:
    print(f"liza: {error}", file=sys.stderr)
    return error.exit_code
