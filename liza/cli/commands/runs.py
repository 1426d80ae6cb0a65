"""A run: started, stopped, looked on, steered by switches."""

from __future__ import annotations

import gc
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from liza.cli.registry import (
    AS_JSON,
    LABELS,
    NO_BASELINE,
    argument,
    board_of,
    command,
    home_of,
    perform_action,
    refuse_beside,
)
from liza.errors import UsageError

if TYPE_CHECKING:
    from liza.board.protocol import Board


@command("run", "work on the goal until it is complete, or you stop it",
         argument("--detach", action="store_true", help="go on in the background; `liza stop` ends it"),
         argument("--until-idle", action="store_true",
                  help="end with 3 when only people can make progress"),
         NO_BASELINE,
         LABELS,
         argument("--plan-bound", action="store_true",
                  help="only print the most that it can cost, and start nothing"),
         argument("--accept-settings", action="store_true",
                  help="say yes to what agents changed in liza.yaml and in the workflow"))  # fmt: skip
def _run(args: Namespace) -> int | None:
    if args.plan_bound:
        refuse_beside(
            "--plan-bound",
            detach=args.detach,
            until_idle=args.until_idle,
            no_baseline=not args.baseline,
            label=args.label,
            accept_settings=args.accept_settings,
        )
        _print_worst_case(args)
        return None
    from liza.cli.views.screen import DetachedView
    from liza.daemon.background import LOG, detach
    from liza.daemon.joining import parse_labels
    from liza.daemon.policy.staffing import HostOffer
    from liza.daemon.supervisor import Until, supervise

    offer = HostOffer(labels=parse_labels(args.label))
    settle_process()
    home, view = home_of(args), DetachedView(sys.stdout)
    until = Until.IDLE if args.until_idle else Until.COMPLETE
    if args.accept_settings:
        _accept_settings(home)
    _announce(home)
    start = partial(
        supervise,
        home,
        until=until,
        offer=offer,
        be_worker=forked_worker(home),
        baseline=args.baseline,
        report=write_reports,
    )
    if not args.detach:
        return start(view)
    pid = detach(lambda ready: start(DetachedView(sys.stdout), ready=ready), home)
    print(f"Running as process {pid}; `liza watch` shows it, `liza stop` ends it, {home / LOG} is its log.")
    return None


def write_reports(board: Board) -> None:
    """Leave the report of what came of it beside the board, for people and for a pull request."""
    from liza.cli.views.report import gather_report, report_html, report_markdown
    from liza.daemon.breaker import write_report
    from liza.domain.record import utc_now

    report = gather_report(board, utc_now())
    write_report(board.home / "report.html", report_html(report))
    write_report(board.home / "report.md", report_markdown(report))


def forked_worker(home: Path) -> Callable[[Sequence[str]], None]:
    """Return what a process that the fork server made does: the same as `liza worker` in one of its own."""
    from liza.cli.process import configure_logging, exit_code_of, prepare_process
    from liza.daemon.worker import main as work
    from liza.domain.model import Role

    def be_worker(words: Sequence[str]) -> None:
        role, name = words
        prepare_process()
        configure_logging("worker")
        sys.exit(exit_code_of(lambda: work(home, Role(role), name)))

    return be_worker


def settle_process() -> None:
    """Prepare a process that stays: build all checks, and keep what is loaded out of garbage collections."""
    from liza.domain.record import build_validators

    build_validators()
    gc.freeze()


def _accept_settings(home: Path) -> None:
    from liza.board.protocol import open_board
    from liza.daemon.project import TEAM_FILE
    from liza.daemon.team_file import apply_team_file
    from liza.daemon.workflow_in_use import vet, workflow_of
    from liza.repo.repository import Repository

    board = open_board(home)
    board.absorb()
    for one in apply_team_file(board, home.parent, accept=True, fit=workflow_of).done:
        print(f"applied from {TEAM_FILE}: {one}", flush=True)
    vet(home, Repository.around(home.parent), board.read())


def _announce(home: Path) -> None:
    from liza.board.protocol import open_board
    from liza.cli.views.agents import announcements
    from liza.daemon.workflow_in_use import workflow_of

    config = open_board(home).read().config
    for line in announcements(config.agents, workflow_of(config, home.parent)):
        print(line, flush=True)


def _print_worst_case(args: Namespace) -> None:
    from liza.cli.views.worst_case import worst_case_lines

    print("\n".join(worst_case_lines(board_of(args).absorb())))


@command("demo", "show a whole run in under a minute, with recorded agents, no key and no network",
         argument("where", metavar="DIR", nargs="?",
                  help="an empty directory (a temporary one, if not given)"),
         argument("--workflow", metavar="W",
                  help="the workflow to show (the default one, if not given)"),
         argument("--hosts", type=int, metavar="N",
                  help="show N machines on a board on PostgreSQL, one of which is killed"))  # fmt: skip
def _demo(args: Namespace) -> int | None:
    import tempfile

    from liza.cli.demo import demo_summary, prepare_repository, run_demo
    from liza.domain.config import Config

    if args.hosts is not None:
        return _demo_hosts(args)
    where = args.directory / args.where if args.where else Path(tempfile.mkdtemp(prefix="liza-demo-"))
    workflow = args.workflow or Config().workflow
    board = prepare_repository(where, workflow)
    print(f"A repository with a goal is in {where}. Its agents play a recording; all else is real.")
    # On a terminal the live view shows the pause by itself.
    code = run_demo(board, workflow, lambda line: None if sys.stdout.isatty() else _print_whole(line))
    print(demo_summary(board, workflow))
    return code


def _demo_hosts(args: Namespace) -> int:
    import tempfile

    from liza.cli.demo import check_hosts_demo, run_hosts_demo

    check_hosts_demo(args.hosts, args.workflow)
    where = args.directory / args.where if args.where else Path(tempfile.mkdtemp(prefix="liza-demo-"))
    return run_hosts_demo(where, args.hosts, _print_whole)


def _print_whole(line: str) -> None:
    """Print *line* and its end in one write, since the run prints to the same stream meanwhile."""
    print(f"{line}\n", end="", flush=True)


@command("stop", "end the run in this repository; work in progress is saved")
def _stop(args: Namespace) -> None:
    from liza.daemon.background import stop_supervisor

    print(f"Stopped {stop_supervisor(home_of(args))}.")


@command(
    "watch", "show a run live in the terminal, and act on it; `q` leaves, and the run continues", AS_JSON
)
def _watch(args: Namespace) -> None:
    from liza.cli.views.screen import is_interactive, json_lines, view_on, watch

    board = board_of(args)
    if not args.json and is_interactive(os.environ):
        from liza.cli.terminal.app import watch_terminal

        board.read()  # a board that cannot be read is told before the screen is taken
        watch_terminal(board)
        return
    # A script's `&` leaves Ctrl-C ignored, but here it is the way out, and leaving harms nobody.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        if args.json:
            for line in json_lines(board):
                print(line, flush=True)
        else:
            watch(board, view_on(sys.stdout), board.switches.thrown)


@command("web", "show the board in a browser, and steer it from there; Ctrl-C ends only the page",
         argument("--port", type=int, default=7171, metavar="N", help="where (7171); 0 takes a free one"),
         argument("--host", default="127.0.0.1", metavar="H", help="what to listen on (127.0.0.1)"),
         argument("--tls", nargs=2, type=Path, metavar="PEM", help="serve it by HTTPS: certificate, key"),
         argument("--read-only", action="store_true", help="show everything, change nothing"),
         argument("--without-tls-anybody-on-the-network-can-read-and-act", dest="unprotected",
                  action="store_true", help="listen beyond this machine in the clear"))  # fmt: skip
def _web(args: Namespace) -> None:
    try:
        from liza.cli.web.server import PageOptions, serve
    except ModuleNotFoundError as error:
        sentence = f"the page needs {error.name}; install it with `pip install 'liza[web]'`"
        raise UsageError(sentence) from error

    tls = (args.directory / args.tls[0], args.directory / args.tls[1]) if args.tls else None
    options = PageOptions(args.host, args.port, tls, args.read_only, args.unprotected)
    with suppress(KeyboardInterrupt):
        serve(board_of(args), options, lambda line: print(line, flush=True))


@command("logs", "show what an agent says and does: its text, commands, calls and files", AS_JSON,
         argument("subject", metavar="WORKER|TASK|RUN",
                  help="a task or a worker, for its latest run; or the name of a run"),
         argument("-f", "--follow", action="store_true", help="keep printing, also the next run"),
         argument("-n", "--last", type=int, metavar="N", help="only the last N lines (100)"),
         argument("--raw", action="store_true", help="as it is on disk; all of it without -n"),
         argument("--before", type=int, metavar="BYTES",
                  help="what comes before that offset, as `liza logs` prints it"))  # fmt: skip
def _logs(args: Namespace) -> None:
    import time

    from liza.cli.views.logs import LogReader, LogRequest

    if args.last is not None and args.last < 0:
        raise UsageError(f"--last {args.last} is less than nothing; give how many lines to show")
    if args.before is not None and (args.before < 0 or args.follow or args.raw):
        raise UsageError("--before wants an offset in bytes as `liza logs` prints it, without -f and --raw")
    if args.raw:
        refuse_beside("--raw", json=args.json)
    request = LogRequest(args.subject, args.last, follow=args.follow, raw=args.raw, before=args.before)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        for line in LogReader(board_of(args), request, time.sleep).lines():
            end = "" if line.line.is_part and not args.json else "\n"
            print(line.to_json() if args.json else line, flush=args.follow, end=end)


@command("worker", "be one worker; the supervisor starts these",
         argument("role", metavar="ROLE", choices=["planner", "coder", "reviewer"],
                  help="planner, coder or reviewer"),
         argument("name", metavar="NAME", help="such as coder-1"))  # fmt: skip
def _worker(args: Namespace) -> int | None:
    from liza.daemon.worker import main as work
    from liza.domain.model import Role

    settle_process()
    return work(home_of(args), Role(args.role), args.name)


@command("pause", "freeze the agents and start nothing new until `liza resume`",
         argument("reason", metavar="REASON", nargs="?", default="", help="why, for others"))  # fmt: skip
def _pause(args: Namespace) -> None:
    _throw(args, "PAUSE")


@command("checkpoint", "halt everybody at the next safe point, and write a summary",
         argument("reason", metavar="REASON", nargs="?", default="", help="why, for others"))  # fmt: skip
def _checkpoint(args: Namespace) -> None:
    _throw(args, "CHECKPOINT")


@command("abort", "end every agent, save its work, and stop",
         argument("reason", metavar="REASON", nargs="?", default="", help="why, for others"))  # fmt: skip
def _abort(args: Namespace) -> None:
    from liza.cli import actions
    from liza.domain.changes import HUMAN

    print(actions.abort(board_of(args), by=HUMAN, reason=args.reason))


@command("resume", "take back PAUSE, CHECKPOINT and ABORT, and retry providers that refused")
def _resume(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.resume)


def _throw(args: Namespace, name: str) -> None:
    from liza.cli import actions
    from liza.domain.changes import HUMAN
    from liza.domain.config import Switch

    print(actions.throw(board_of(args), Switch[name], by=HUMAN, reason=args.reason))
