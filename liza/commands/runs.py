"""A run: started, stopped, looked on, steered by switches."""

from __future__ import annotations

import gc
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from liza.commands.table import NO_BASELINE, argument, board_of, command, home_of

if TYPE_CHECKING:
    from liza.board.file import FileBoard


@command("run", "work on the goal until it is complete, or you stop it",
         argument("--detach", action="store_true", help="go on in the background; `liza stop` ends it"),
         argument("--until-idle", action="store_true",
                  help="end with 3 when only people can make progress"),
         NO_BASELINE,
         argument("--plan-bound", action="store_true",
                  help="only print the most that it can cost, and start nothing"),
         argument("--accept-settings", action="store_true",
                  help="say yes to what agents changed in liza.yaml and in the workflow"))  # fmt: skip
def _run(args: Namespace) -> int | None:
    if args.plan_bound:
        _plan_bound(args)
        return None
    from liza.report.screen import Steady
    from liza.supervision.background import LOG, detach
    from liza.supervision.supervisor import supervise

    _settle()
    home, view, idle = home_of(args), Steady(sys.stdout), args.until_idle
    if args.accept_settings:
        _accept_settings(home)
    _announce(home)
    if not args.detach:
        return supervise(home, view, until_idle=idle, baseline=args.baseline)
    pid = detach(
        lambda ready: supervise(
            home, Steady(sys.stdout), until_idle=idle, ready=ready, baseline=args.baseline
        ),
        home,
    )
    print(f"Running as process {pid}; `liza watch` shows it, `liza stop` ends it, {home / LOG} is its log.")
    return None


def _settle() -> None:
    """Prepare a process that stays: build all checks, and keep what is loaded out of garbage collections."""
    from liza.record import build_checks

    build_checks()
    gc.freeze()


def _accept_settings(home: Path) -> None:
    from liza.board.file import FileBoard
    from liza.project import TEAM_FILE
    from liza.repo.repository import Repository
    from liza.settings import apply_team_file
    from liza.work.flows import workflow_of
    from liza.work.vetting import vet

    board = FileBoard(home)
    board.absorb()
    for one in apply_team_file(board, home.parent, accept=True, fit=workflow_of).done:
        print(f"applied from {TEAM_FILE}: {one}", flush=True)
    vet(home, Repository.around(home.parent), board.read())


def _announce(home: Path) -> None:
    from liza.board.file import FileBoard
    from liza.report.agents import announced

    for line in announced(FileBoard(home).read().config.agents):
        print(line, flush=True)


def _plan_bound(args: Namespace) -> None:
    from liza.report.bound import bound

    print("\n".join(bound(board_of(args).absorb())))


@command("demo", "show the main job in under a minute, with recorded agents, no key and no network",
         argument("where", metavar="DIR", nargs="?",
                  help="an empty directory (a temporary one, if not given)"))  # fmt: skip
def _demo(args: Namespace) -> int | None:
    import tempfile

    from liza.demo import played, prepared, told

    where = args.directory / args.where if args.where else Path(tempfile.mkdtemp(prefix="liza-demo-"))
    board = prepared(where)
    print(f"A repository with a goal is in {where}. Its agents play a recording; all else is real.")
    # On a terminal the live view shows the pause by itself.
    code = played(board, lambda line: None if sys.stdout.isatty() else print(line, flush=True))
    print(told(board))
    return code


@command("stop", "end the run that is going on here; work is saved")
def _stop(args: Namespace) -> None:
    from liza.supervision.background import stop

    print(f"Stopped {stop(home_of(args))}.")


@command("watch", "look on as a run goes; Ctrl-C leaves it, and the run goes on")
def _watch(args: Namespace) -> None:
    from liza.project import switches_of
    from liza.report.screen import view_on, watch

    board = board_of(args)
    # A script's `&` leaves Ctrl-C ignored, but here it is the way out, and leaving harms nobody.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        watch(board, view_on(sys.stdout), lambda: switches_of(board.home))


@command("worker", "be one worker; the supervisor starts these",
         argument("role", metavar="ROLE", choices=["planner", "coder", "reviewer"]),
         argument("name", metavar="NAME", help="such as coder-1"))  # fmt: skip
def _worker(args: Namespace) -> int | None:
    from liza.model import Role
    from liza.work.worker import main as work

    _settle()
    return work(home_of(args), Role(args.role), args.name)


@command("pause", "let nothing new start until `liza resume`",
         argument("reason", metavar="REASON", nargs="?", default=""))  # fmt: skip
def _pause(args: Namespace) -> None:
    _throw(args, "PAUSE")


@command("checkpoint", "halt at the next safe point and write a summary",
         argument("reason", metavar="REASON", nargs="?", default=""))  # fmt: skip
def _checkpoint(args: Namespace) -> None:
    _throw(args, "CHECKPOINT")


@command("abort", "end every agent, save its work, and stop",
         argument("reason", metavar="REASON", nargs="?", default=""))  # fmt: skip
def _abort(args: Namespace) -> None:
    from liza.supervision.background import see_to_end

    _throw(args, "ABORT")
    if told := see_to_end(home_of(args)):
        print(f"{told}.")


@command("resume", "take back PAUSE, CHECKPOINT and ABORT, and try providers again that refused")
def _resume(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.supervision.guard import resumed

    taken = resumed(board_of(args), home_of(args), utc_now())
    print(f"Took back {', '.join(taken)}." if taken else "No switch was thrown.")
    _retry_providers(board_of(args))


def _retry_providers(board: FileBoard) -> None:
    from liza.changes import HUMAN
    from liza.limits import closed, retried
    from liza.record import utc_now

    if shut := closed(board.read()):
        board.update(retried(HUMAN, utc_now()))
        print(f"{', '.join(provider.id for provider in shut)} is tried again now.")


def _throw(args: Namespace, name: str) -> None:
    from liza.home import switches_of, throw, throw_anew
    from liza.switches import BREAKER, Switch

    home = home_of(args)
    if not throw(home, Switch[name], args.reason):
        said = switches_of(home).get(name, "")
        # The breaker takes back what it threw, so what a person wants has to be in the file itself.
        if not args.reason and said and not said.startswith(BREAKER):
            print(f"{name} was thrown already ({home / name}): {said}; `liza resume` takes it back.")
            return
        throw_anew(home, Switch[name], args.reason)
    print(f"{name} is thrown ({home / name}); `liza resume` takes it back.")
