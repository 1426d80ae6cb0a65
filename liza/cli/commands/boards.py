"""The board: made, looked at, told and edited."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from argparse import Namespace
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from liza.cli.registry import (
    AS_JSON,
    NO_BASELINE,
    argument,
    board_of,
    command,
    home_of,
    perform_action,
    report_error,
)
from liza.errors import InvalidBoard, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State

_NO_PLUGINS: Final = "PYDANTIC_DISABLE_PLUGINS"


@command(
    "init",
    "make a board in this repository",
    argument(
        "goal", metavar="GOAL", nargs="?", help="what to build, in a sentence; --issues says it as well"
    ),
    argument("--spec", metavar="PATH", help="the file that says it at length"),
    argument("--workflow", metavar="W", help="which workflow runs it (liza)"),
    argument("--issues", metavar="N", help="the issues of the forge to work on: 1-5,8 or label:agent"),
    NO_BASELINE,
)
def _init(args: Namespace) -> None:
    from liza.daemon.project import create_board
    from liza.daemon.workflow_in_use import workflow_of

    goal = args.goal if args.goal is not None else _goal_elsewhere(args)
    words = {"spec": args.spec, "workflow": args.workflow, "issues": args.issues}
    board, choices = create_board(args.directory, goal, **words, fit=workflow_of)
    print(f"Made a board in {board.home}, which git ignores in this clone.")
    for what, value, why in choices:
        print(f"  {what:<9} {value}{f'  ({why})' if why else ''}")
    print(f"Next: {_show_baseline(board) if args.baseline else RUN_NEXT}")


def _goal_elsewhere(args: Namespace) -> str:
    """Return the goal that issues are, or that a person wrote into the page of the workflow."""
    from liza.daemon.project import goal_on_page

    if args.issues is not None:
        return f"Settle the issues {args.issues}"
    return goal_on_page(args.directory, args.workflow)


RUN_NEXT: Final = "`liza run`; or first `liza task add`, `liza edit`."


def _show_baseline(board: Board) -> str:
    """Try the project's gates at once, and return what to do next: whoever made the board can mend them."""
    from liza.daemon.baseline import BaselineContext, run_baseline
    from liza.errors import SandboxUnavailable
    from liza.repo.repository import Repository
    from liza.system.run_control import RunControl

    project = BaselineContext(board.home, Repository.around(board.home.parent), board.read().config)
    if project.base() is None:
        return "make a first commit, as by `git commit --allow-empty -m 'the beginning'`; then `liza run`."
    try:
        found = run_baseline(project, RunControl(), lambda line: print(f"  gates     {line} …", flush=True))
    except SandboxUnavailable:  # `liza run` says so
        return RUN_NEXT
    for line in found.lines() if found else ():
        print(f"  gates     {line}")
    if found and found.blocking_gates:
        return "mend what the gates said, since nothing is started before; `liza run` tries them again."
    return RUN_NEXT


@command("status", "show how the run stands: tasks, questions, money", AS_JSON)
def _status(args: Namespace) -> int | None:
    with _hurry():
        return _show_status(args)


@contextmanager
def _hurry() -> Iterator[None]:
    """Leave out what takes time and what who only looks can do without.

    That is collecting garbage, for a process that soon ends, and the search for plugins of pydantic's, of
    which Liza uses none; nothing is started that would inherit the variable.
    """
    known, was_enabled = os.environ.get(_NO_PLUGINS), gc.isenabled()
    os.environ[_NO_PLUGINS] = "1"
    gc.disable()
    try:
        yield
    finally:
        os.environ.pop(_NO_PLUGINS) if known is None else os.environ.update({_NO_PLUGINS: known})
        if was_enabled:
            gc.enable()


def _show_status(args: Namespace) -> int | None:
    from liza.board.protocol import SUPERVISOR_NAME, Glance, glance_at
    from liza.cli.views import status
    from liza.cli.views.fitting import fit_text, terminal_width
    from liza.cli.views.headline import headline_of
    from liza.system.disk_space import disk_shortage

    home, trouble = home_of(args), None
    seen = None if args.json else glance_at(home)  # all of the board is written, so all of it is read
    if seen is None:
        board = board_of(args)
        state, trouble = _absorb(board)
        seen = Glance(state, board.switches.thrown(), board.presence.is_held(SUPERVISOR_NAME))
    state = seen.state
    if args.json:
        print(json.dumps(status.board_json(state)))
        return report_error(trouble) if trouble else None
    lack = disk_shortage(home.parent, state.config.limits.free_disk_mb)
    width = terminal_width(sys.stdout)
    headline = headline_of(state, seen.switches, is_running=seen.is_running, shortage=lack)
    print(fit_text(headline.told(width), width))
    if seen.hosts:
        from liza.cli.views.hosts import host_views

        for number, host in enumerate(host_views(seen.hosts)):
            print(fit_text(f"{'' if number else 'Hosts':<10}{host}", width))
    print(status.status_text(state, seen.switches, shortage=lack, width=width).rstrip("\n"))
    return report_error(trouble) if trouble else None


def _absorb(board: Board) -> tuple[State, InvalidBoard | None]:
    """Return the board with what a person saved, or as it was with why that was not taken."""
    try:
        return board.absorb(), None
    except InvalidBoard as error:
        return board.read(), error


@command("validate", "check the board, or a file, and report everything that is wrong", AS_JSON,
         argument("path", metavar="PATH", nargs="?", help="a state.yaml or a .liza directory"))  # fmt: skip
def _validate(args: Namespace) -> int | None:
    from liza.board.protocol import validate_board

    path = args.directory / args.path if args.path else home_of(args)
    if not path.exists() and not path.is_symlink():
        raise UsageError(f"{path} does not exist; name a state.yaml or a .liza directory")
    try:
        state = validate_board(path)
    except InvalidBoard as error:
        if args.json:
            print(json.dumps({"valid": False, "violations": [wrong._asdict() for wrong in error.violations]}))
        raise
    count = {"valid": True, "revision": state.revision, "tasks": len(state.tasks)}
    print(json.dumps(count) if args.json else f"VALID: revision {state.revision}, {len(state.tasks)} tasks")
    return None


@command("note", "tell the agents something", AS_JSON,
         argument("text", metavar="TEXT", help="what you want them to know"),
         argument("--for", dest="about", metavar="TASK", help="the task it is about"))  # fmt: skip
def _note(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.note, text=args.text, about=args.about)


@command("goal", "queue a goal behind the current one, or list all goals", AS_JSON,
         argument("text", metavar="GOAL", nargs="?", help="what to build next, in a sentence"),
         argument("--spec", metavar="PATH", help="the file that says it at length"))  # fmt: skip
def _goal(args: Namespace) -> None:
    if args.text is None:
        from liza.cli.views import status

        if args.spec is not None:
            raise UsageError("a spec belongs to a goal; say the goal as well")
        state = board_of(args).absorb()
        print(json.dumps(state.goal.to_json()) if args.json else "\n".join(status.goals(state)))
        return
    from liza.cli import actions

    spec = None
    if args.spec is not None:
        from liza.daemon.project import spec_path

        spec = spec_path(args.directory, args.spec)
    perform_action(args, actions.queue, text=args.text, spec=spec)


@command("answer", "answer a BLOCKED task or the planner, or raise the budget", AS_JSON,
         argument("task", metavar="TASK", help="the id of a task, `plan` or `budget`"),
         argument("text", metavar="TEXT", help="the answer; for money the amount in USD"))  # fmt: skip
def _answer(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.answer, task=args.task, text=args.text)


@command("edit", "edit the board in your editor; it is checked before it is saved")
def _edit(args: Namespace) -> None:
    from liza.cli.views.editing import edit_board, editor_words

    board = board_of(args)
    before = board.absorb()
    after = edit_board(board, editor_words())
    print("Nothing was changed." if after is before else f"Saved as revision {after.revision}.")


@command("log", "show every change of the board", AS_JSON,
         argument("-f", "--follow", action="store_true", help="go on as changes come"),
         argument("-n", "--last", type=int, metavar="N", help="only the last N"),
         argument("--task", metavar="TASK", help="only what touched this task"))  # fmt: skip
def _log(args: Namespace) -> None:
    from liza.cli.views.status import log_lines

    board = board_of(args)
    if args.last is not None and args.last < 0:
        raise UsageError(f"--last {args.last} is less than nothing; give how many changes to show")
    if args.task is not None:
        _require_task(board, args.task)
    for line in log_lines(board, last=args.last, task=args.task, follow=args.follow, as_json=args.json):
        print(line, flush=args.follow)


def _require_task(board: Board, name: str) -> None:
    """Refuse a task that the board never had; the log has those that were archived, too."""
    from liza.errors import NotThere

    state = board.absorb()
    if name not in state.tasks and name not in state.archived:
        raise NotThere("task", name, "`liza status` lists the tasks")


@command("board", "print the board as it is, or as it was", AS_JSON,
         argument("--at", metavar="MOMENT",
                  help="a revision (12), a time (2026-11-16T09:30:00Z) or an age (10m)"))  # fmt: skip
def _board_at(args: Namespace) -> None:
    from liza.cli.views import status
    from liza.cli.views.time_argument import parse_moment
    from liza.domain.record import utc_now

    board = board_of(args)
    when = board.absorb().revision if args.at is None else parse_moment(args.at, utc_now())
    if args.json:
        print(json.dumps(status.board_json(board.at(when)[0])))
    else:
        print(board.text_at(when).decode(), end="")


@command("board diff", "show what differs between two moments", AS_JSON,
         argument("one", metavar="MOMENT", help="a revision (12), a time or an age (10m)"),
         argument("other", metavar="MOMENT", nargs="?", help="the latest, if not given"))  # fmt: skip
def _board_diff(args: Namespace) -> None:
    from liza.cli.views import status
    from liza.cli.views.time_argument import parse_moment
    from liza.domain.record import utc_now

    board, now = board_of(args), utc_now()
    other = board.read().revision if args.other is None else parse_moment(args.other, now)
    found = status.board_differences(board.at(parse_moment(args.one, now))[0], board.at(other)[0])
    if args.json:
        print(json.dumps([difference._asdict() for difference in found]))
    else:
        print("\n".join(map(str, found)) or "Nothing differs.")


@command("board copy", "copy a board with all its history, between .liza and a server or two of them",
         argument("source", metavar="FROM", help="a .liza directory or postgresql://host/database#board"),
         argument("target", metavar="TO", help="as FROM; where there is no board yet"))  # fmt: skip
def _board_copy(args: Namespace) -> None:
    from liza.board.location import without_password
    from liza.board.protocol import copy_board

    source, target = (_location(args.directory, said) for said in (args.source, args.target))
    count = copy_board(source, target)
    changes = "1 change" if count == 1 else f"{count} changes"
    print(f"Copied {changes} from {without_password(source)} to {without_password(target)}.")


def _location(directory: Path, said: str) -> str:
    return said if "://" in said else str(directory / said)


@command("board grant", "let a role of the database work on the boards of a server, or only read them",
         argument("right", choices=("worker", "reader"), help="what it may do"),
         argument("role", metavar="ROLE", help="a role that the server knows"),
         argument("address", metavar="ADDRESS", nargs="?",
                  help="the server (that of this project's board, if not given)"))  # fmt: skip
def _board_grant(args: Namespace) -> None:
    from liza.board.protocol import grant_right

    server = grant_right(args.address or home_of(args), args.right, args.role)
    print(f"{args.role} is a {args.right} of {server}.")


@command("mirror", "keep .liza/state.yaml and the switches in step with a board on a server, both ways")
def _mirror(args: Namespace) -> None:
    from liza.board.mirror import mirror_home

    home, over = home_of(args), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    mirror_home(
        home,
        over.is_set,
        lambda where: print(f"Mirroring {where} in {home}; Ctrl-C ends it.", flush=True),
    )
