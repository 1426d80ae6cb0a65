"""The command line: one small function a command, and the one place where a failure becomes a sentence.

Nothing heavy is imported until a command needs it, so that `liza --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza import __version__
from liza.errors import EXIT_CODES, DiskTrouble, InvalidBoard, LizaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from liza.board.file import FileBoard
    from liza.changes import Change
    from liza.config import Agents
    from liza.model import State

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
    "task": "add a task, look at one, or move one",
    "board": "the board at another moment",
    "salvage": "work that was saved before its worktree went",
    "breaker": "what the circuit breaker saw, and its resolution",
}
AS_JSON: Final = Argument(("--json",), {"action": "store_true", "help": "print JSON"})


def argument(*names: str, **options: Any) -> Argument:  # noqa: ANN401 - argparse's own options
    return Argument(names, options)


def command(name: str, summary: str, *arguments: Argument) -> Callable[[Run], None]:
    """Put a function into the table of commands; *name* may be of two words."""

    def register(run: Run) -> None:
        COMMANDS[name] = Command(summary, run, arguments)

    return register


MANY: Final[dict[str, Any]] = {"nargs": "+", "action": "extend", "default": []}
TRIP: Final = argument("trip", metavar="TRIP", help="the id of a trip")
TASK: Final = argument("task", metavar="TASK", help="the id of a task")


@command(
    "init",
    "make a board in this repository",
    argument("goal", metavar="GOAL", help="what to build, in a sentence"),
    argument("--spec", metavar="PATH", help="the file that says it at length"),
    argument("--workflow", metavar="W", help="which workflow runs it (liza)"),
)
def _init(args: Namespace) -> None:
    from liza.project import begun

    board, choices = begun(args.directory, args.goal, spec=args.spec, workflow=args.workflow)
    print(f"Made a board in {board.home}, which git ignores in this clone.")
    for what, value, why in choices:
        print(f"  {what:<9} {value}{f'  ({why})' if why else ''}")
    print("Next: `liza run`; or first `liza task add`, `liza edit`.")


@command("status", "show the board", AS_JSON)
def _status(args: Namespace) -> int | None:
    from liza.board.glance import latest
    from liza.home import switches_of
    from liza.repo.space import shortage
    from liza.report import show

    home, trouble = _home(args), None
    state = latest(home)
    if state is None:
        state, trouble = _absorbed(_board(args))
    lack = shortage(home.parent, state.config.limits.free_disk_mb)
    shown = show.as_json(state) if args.json else show.status(state, switches_of(home), shortage=lack)
    print(json.dumps(shown) if args.json else str(shown).rstrip("\n"))
    return _told(trouble) if trouble else None


@command("validate", "check the board, or a file, and report everything that is wrong", AS_JSON,
         argument("path", metavar="PATH", nargs="?", help="a state.yaml or a .liza directory"))  # fmt: skip
def _validate(args: Namespace) -> int | None:
    from liza.board.verdict import of_path

    path = args.directory / args.path if args.path else _home(args)
    if not path.exists() and not path.is_symlink():
        raise UsageError(f"{path} does not exist; name a state.yaml or a .liza directory")
    try:
        state = of_path(path)
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
    from liza.changes import HUMAN, add_note
    from liza.record import utc_now

    change = add_note(_said(args.text, "note"), about=args.about, by=HUMAN, at=utc_now())
    _update(args, change, f"Noted{f' for {args.about}' if args.about else ''}.")


@command("answer", "answer what a BLOCKED task asks, and let it go on; or say what all may cost", AS_JSON,
         argument("task", metavar="TASK", help="the id of a task, or `budget`"),
         argument("text", metavar="TEXT", help="the answer; for money the amount in USD"))  # fmt: skip
def _answer(args: Namespace) -> None:
    from liza.changes import HUMAN
    from liza.money import BUDGET, reply
    from liza.record import utc_now

    change = reply(args.task, _said(args.text, "answer"), by=HUMAN, at=utc_now())
    done = (
        "the budget is raised"
        if args.task == BUDGET
        else f"{args.task} is IDLE again, with your answer as guidance"
    )
    _update(args, change, f"Answered; {done}.")


@command("edit", "edit the board in your editor; it is checked before it is saved")
def _edit(args: Namespace) -> None:
    from liza.report.editing import edited

    board = _board(args)
    before = board.absorb()
    after = edited(board, _editor())
    print("Nothing was changed." if after is before else f"Saved as revision {after.revision}.")


@command("task add", "add a task that coders may claim", AS_JSON,
         argument("--id", required=True, metavar="ID"),
         argument("--description", required=True, metavar="D"),
         argument("--done-when", required=True, metavar="C", help="what must be true at the end", **MANY),
         argument("--spec", metavar="PATH", help="where it is specified"),
         argument("--in", dest="include", metavar="P", help="paths it may touch", **MANY),
         argument("--out", dest="exclude", metavar="P", help="paths it must not touch", **MANY),
         argument("--depends-on", metavar="ID", help="tasks that must succeed first", **MANY),
         argument("--kind", choices=["code", "docs", "config"], default="code"),
         argument("--priority", type=int, default=0, metavar="N", help="higher goes first"))  # fmt: skip
def _task_add(args: Namespace) -> None:
    from liza.report.tasks import new_task

    _update(args, new_task(vars(args)), f"Added {args.id}.")


@command("task show", "show a task with all of its history", AS_JSON, TASK)
def _task_show(args: Namespace) -> None:
    from liza.report.tasks import shown

    board = _board(args)
    board.absorb()
    print(shown(board, args.task, as_json=args.json), end="")


@command("task release", "take a task away from whoever holds it", AS_JSON, TASK,
         argument("--reason", default="released by hand", metavar="R"))  # fmt: skip
def _task_release(args: Namespace) -> None:
    from liza.changes import HUMAN, apply
    from liza.events import Release
    from liza.record import utc_now

    change = apply(Release(reason=_said(args.reason, "reason")), to=args.task, by=HUMAN, at=utc_now())
    _update(args, change, f"Released {args.task}.")


@command("task retry", "give a task that is stuck another chance, with fresh counters", AS_JSON, TASK,
         argument("--guidance", metavar="G", help="what the next coder should know"))  # fmt: skip
def _task_retry(args: Namespace) -> None:
    from liza.changes import HUMAN, apply
    from liza.events import Retry
    from liza.record import utc_now

    guidance = _said(args.guidance, "guidance") if args.guidance is not None else None
    change = apply(Retry(guidance=guidance), to=args.task, by=HUMAN, at=utc_now())
    _update(args, change, f"{args.task} is IDLE again.")


@command("task ready", "release a DRAFT to the coders", AS_JSON, TASK)
def _task_ready(args: Namespace) -> None:
    from liza.changes import HUMAN, apply
    from liza.events import Ready
    from liza.record import utc_now

    _update(
        args, apply(Ready(), to=args.task, by=HUMAN, at=utc_now()), f"Released {args.task} to the coders."
    )


@command("task accept", "say yes to what a task asks: its approval, its forced pass", AS_JSON, TASK,
         argument("--reason", default="accepted by hand", metavar="R"))  # fmt: skip
def _task_accept(args: Namespace) -> None:
    from liza.changes import HUMAN, accepted
    from liza.record import utc_now

    change = accepted(args.task, _said(args.reason, "reason"), by=HUMAN, at=utc_now())
    _update(args, change, f"Accepted {args.task}.")


@command("task reject", "say no to what a task asks; it goes back to its coder", AS_JSON, TASK,
         argument("--reason", required=True, metavar="R", help="what is wrong with it"))  # fmt: skip
def _task_reject(args: Namespace) -> None:
    from liza.changes import HUMAN, refused
    from liza.record import utc_now

    change = refused(args.task, _said(args.reason, "reason"), by=HUMAN, at=utc_now())
    _update(args, change, f"Rejected {args.task}.")


@command("explain", "say why a task, a worker or the run does not go on, and what to do", AS_JSON,
         argument("subject", metavar="TASK|WORKER|run", nargs="?", default="run"))  # fmt: skip
def _explain(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.report.explain import explained, setting_of

    board, now = _board(args), utc_now()
    found = explained(args.subject, setting_of(board.home, board.absorb()), now)
    print(json.dumps(found.plain()) if args.json else found.told(now))


@command("log", "show every change of the board", AS_JSON,
         argument("-f", "--follow", action="store_true", help="go on as changes come"),
         argument("-n", "--last", type=int, metavar="N", help="only the last N"),
         argument("--task", metavar="TASK", help="only what touched this task"))  # fmt: skip
def _log(args: Namespace) -> None:
    from liza.report.following import changes

    board = _board(args)
    if args.last is not None and args.last < 0:
        raise UsageError(f"--last {args.last} is less than nothing; give how many changes to show")
    for line in changes(board, last=args.last, task=args.task, follow=args.follow, as_json=args.json):
        print(line, flush=args.follow)


@command("board", "print the board as it is, or as it was", AS_JSON,
         argument("--at", metavar="MOMENT",
                  help="a revision (12), a time (2026-11-16T09:30:00Z) or an age (10m)"))  # fmt: skip
def _board_at(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.report import show
    from liza.report.moment import moment

    board = _board(args)
    when = board.absorb().revision if args.at is None else moment(args.at, utc_now())
    if args.json:
        print(json.dumps(show.as_json(board.at(when)[0])))
    else:
        print(board.text_at(when).decode(), end="")


@command("board diff", "show what differs between two moments", AS_JSON,
         argument("one", metavar="MOMENT"),
         argument("other", metavar="MOMENT", nargs="?", help="the latest, if not given"))  # fmt: skip
def _board_diff(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.report import show
    from liza.report.moment import moment

    board, now = _board(args), utc_now()
    other = board.read().revision if args.other is None else moment(args.other, now)
    found = show.differences(board.at(moment(args.one, now))[0], board.at(other)[0])
    if args.json:
        print(json.dumps([difference._asdict() for difference in found]))
    else:
        print("\n".join(map(str, found)) or "Nothing differs.")


@command("breaker", "show the circuit breaker and its trips", AS_JSON)
def _breaker(args: Namespace) -> None:
    from liza.report import trips

    state = _board(args).absorb()
    print(json.dumps(trips.as_json(state)) if args.json else trips.listed(state).rstrip())


@command("breaker show", "show what a rule saw and what to do about it", AS_JSON, TRIP)
def _breaker_show(args: Namespace) -> None:
    from liza.breaker import trip_of
    from liza.report import trips

    state = _board(args).absorb()
    trip = trip_of(state, args.trip)
    print(json.dumps(trips.trip_json(trip)) if args.json else trips.report(trip, state).rstrip())


@command("breaker resolve", "say that what a rule saw is settled, and let the agents go on", TRIP,
         argument("--reason", required=True, metavar="R", help="what was done about it"))  # fmt: skip
def _breaker_resolve(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.supervision.guard import resolution

    board = _board(args)
    with _patience(board):
        board.absorb()
        print(resolution(board, board.home, args.trip, _said(args.reason, "reason"), utc_now()))


@command("metrics", "show what the run comes to in numbers", AS_JSON,
         argument("--all", action="store_true", dest="whole",
                  help="of all sprints, not only the current one"))  # fmt: skip
def _metrics(args: Namespace) -> None:
    from liza.record import utc_now
    from liza.report import measures

    board, now = _board(args), utc_now()
    state = board.absorb()
    found = measures.of_goal(board, now) if args.whole else measures.of_sprint(state, now)
    print(json.dumps(measures.as_json(found)) if args.json else measures.table(found).rstrip())


@command("run", "work on the goal until it is complete, or you stop it",
         argument("--detach", action="store_true", help="go on in the background; `liza stop` ends it"),
         argument("--until-idle", action="store_true",
                  help="end with 3 when only people can make progress"),
         argument("--plan-bound", action="store_true",
                  help="only print the most that it can cost, and start nothing"))  # fmt: skip
def _run(args: Namespace) -> int | None:
    if args.plan_bound:
        _plan_bound(args)
        return None
    from liza.report.screen import Steady
    from liza.supervision.background import LOG, detach
    from liza.supervision.supervisor import supervise

    home, view, idle = _home(args), Steady(sys.stdout), args.until_idle
    _announce(home)
    if not args.detach:
        return supervise(home, view, until_idle=idle)
    pid = detach(lambda ready: supervise(home, Steady(sys.stdout), until_idle=idle, ready=ready), home)
    print(f"Running as process {pid}; `liza watch` shows it, `liza stop` ends it, {home / LOG} is its log.")
    return None


@command("cost", "show what all runs cost: by task, role, model and outcome", AS_JSON)
def _cost(args: Namespace) -> None:
    from liza.report import costs
    from liza.supervision.rescue import RUNS

    board = _board(args)
    state = board.absorb()
    found = costs.runs_in(board.home / RUNS, state, board.entries())
    print(json.dumps(costs.as_json(found, state)) if args.json else "\n".join(costs.lines(found, state)))


def _announce(home: Path) -> None:
    from liza.board.file import FileBoard
    from liza.report.agents import announced

    for line in announced(FileBoard(home).read().config.agents):
        print(line, flush=True)


@command("agents", "show the coding programs that were found, and who would work on what and why", AS_JSON)
def _agents(args: Namespace) -> None:
    from liza.report.agents import surveyed, told

    survey = surveyed(_agents_of(args))
    print(json.dumps(survey) if args.json else told(survey))


@command("agents test", "give each agent a tiny real task, which costs a little; 1 if one fails", AS_JSON,
         argument("name", metavar="NAME", nargs="?", help="only this one"))  # fmt: skip
def _agents_test(args: Namespace) -> int | None:
    from liza.audition import HEADING, invited, tried

    choices = invited(_agents_of(args), args.name)
    if not args.json:
        print(HEADING if choices else "There is no agent to try; `liza agents` says what was looked for.")
    done = []
    for name, choice in choices.items():
        done.append(tried(name, choice, args.directory))
        print(json.dumps(done[-1]._asdict()) if args.json else done[-1], flush=True)
    return None if done and all(one.ok for one in done) else 1


def _agents_of(args: Namespace) -> Agents:
    """Return the settings of the board, or without one, of the team's file."""
    from liza.project import settings_around

    return settings_around(args.directory).agents


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

    print(f"Stopped {stop(_home(args))}.")


@command("watch", "look on as a run goes; Ctrl-C leaves it, and the run goes on")
def _watch(args: Namespace) -> None:
    from liza.project import switches_of
    from liza.report.screen import view_on, watch

    board = _board(args)
    with suppress(KeyboardInterrupt):
        watch(board, view_on(sys.stdout), lambda: switches_of(board.home))


@command("recover", "put right what a crash left; `liza run` does it at its start", AS_JSON,
         argument("--dry-run", action="store_true", help="only print what would be done"))  # fmt: skip
def _recover(args: Namespace) -> None:
    from liza.roles.recovery import plain
    from liza.supervision.rescue import recovered

    actions = recovered(_home(args), dry_run=args.dry_run)
    if args.json:
        print(json.dumps([plain(action) for action in actions]))
    else:
        print("\n".join(map(str, actions)) or "There is nothing to put right.")


@command("doctor", "look at this machine and project, and say what to do; 1 if a run would fail", AS_JSON)
def _doctor(args: Namespace) -> int | None:
    from liza.doctor import examined
    from liza.report.health import Mark

    found = examined(args.directory)
    if args.json:
        print(json.dumps({"findings": [finding._asdict() for finding in found]}))
    else:
        print("\n".join(map(str, found)))
    return 1 if any(finding.mark is Mark.FAIL for finding in found) else None


@command("salvage list", "show all that was saved before it would have been lost", AS_JSON)
def _salvage_list(args: Namespace) -> None:
    from liza.repo.repository import Repository
    from liza.repo.salvage import listed

    found = listed(Repository.around(args.directory))
    if args.json:
        print(json.dumps([saved.plain() for saved in found]))
    else:
        print(
            "\n".join(f"{saved.at:%Y-%m-%dT%H:%M:%SZ}  {saved}" for saved in found) or "Nothing was salvaged."
        )


@command("salvage restore", "make a branch of something that was saved", TASK,
         argument("number", metavar="N", type=int, help="which, as `liza salvage list` counts"))  # fmt: skip
def _salvage_restore(args: Namespace) -> None:
    from liza.repo.repository import Repository
    from liza.repo.salvage import restore

    branch = restore(Repository.around(args.directory), args.task, args.number)
    print(f"Restored as the branch {branch}; `git log -p {branch}` shows it.")


@command("verify", "recheck with git alone that every merge is what was reviewed; 1 if one is not", AS_JSON,
         argument("span", metavar="RANGE", nargs="?",
                  help="SINCE..UNTIL, or a branch; the integration branch, if not given"))  # fmt: skip
def _verify(args: Namespace) -> int | None:
    from liza.project import integration_from
    from liza.repo.repository import Repository
    from liza.repo.verify import checked

    span = args.span or ""
    if not span or span.endswith(".."):  # what is named needs no board
        span += integration_from(args.directory)
    merges, findings = checked(Repository.around(args.directory), span)
    if args.json:
        print(json.dumps({"merges": merges, "findings": [finding._asdict() for finding in findings]}))
    else:
        print("\n".join(map(str, findings)) or f"VERIFIED: {merges} merges")
    return 1 if findings else None


@command("replay", "rehearse a recorded run offline, perhaps under other settings, and compare", AS_JSON,
         argument("recording", metavar="RECORDING", type=Path, help="such as .liza/runs, or a YAML file"),
         argument("--with", dest="changes", metavar="KEY=VALUE", help="such as workers.coder=4", **MANY),
         argument("--pace", type=float, default=0.0, metavar="P",
                  help="0 (at once, if not given), 1 (as long as it took), or between"))  # fmt: skip
def _replay(args: Namespace) -> int | None:
    from liza.rehearsal import rehearse

    path, screen = args.directory / args.recording, sys.stderr if sys.stderr.isatty() else None
    done = rehearse(path, args.directory, args.changes, pace=args.pace, screen=screen)
    print(json.dumps(done.plain()) if args.json else done)
    return done.code


@command("gauntlet", "let misbehaving agents loose on throw-away repositories; 1 if one escapes", AS_JSON,
         argument("names", metavar="NAME", nargs="*", help="which; all, if none is given"),
         argument("--list", action="store_true", help="only say what each does and what must come of it"),
         argument("--jobs", type=int, metavar="N", help="how many at a time (two for each core)"),
         argument("--keep", type=Path, metavar="DIR", help="keep the repositories there, to look at"),
         argument("--config", type=Path, metavar="FILE",
                  help="settings for all of them, of the shape of liza.yaml"))  # fmt: skip
def _gauntlet(args: Namespace) -> int | None:
    from liza.zoo import gauntlet

    cases, keep = gauntlet.chosen(args.names), args.keep and args.directory / args.keep
    more = gauntlet.settings_in(args.config and args.directory / args.config)
    if args.list:
        print(gauntlet.listed(cases, as_json=args.json))
        return None
    say = None if args.json else lambda result: print(gauntlet.told(result), flush=True)
    print("" if args.json else f"{gauntlet.HEADER}\n", end="", flush=True)
    results = gauntlet.run_all(cases, more=more, jobs=args.jobs, keep=keep, say=say)
    print(gauntlet.summed_up(results, as_json=args.json))
    return 0 if all(result.is_contained for result in results) else 1


@command("worker", "be one worker; the supervisor starts these",
         argument("role", metavar="ROLE", choices=["planner", "coder", "reviewer"]),
         argument("name", metavar="NAME", help="such as coder-1"))  # fmt: skip
def _worker(args: Namespace) -> int | None:
    from liza.model import Role
    from liza.work.worker import main as work

    return work(_home(args), Role(args.role), args.name)


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
    _throw(args, "ABORT")


@command("resume", "take back PAUSE, CHECKPOINT and ABORT, and try providers again that refused")
def _resume(args: Namespace) -> None:
    from liza.supervision.guard import resumed

    taken = resumed(_board(args), _home(args))
    print(f"Took back {', '.join(taken)}." if taken else "No switch was thrown.")
    _retry_providers(_board(args))


def _plan_bound(args: Namespace) -> None:
    from liza.report.bound import bound

    print("\n".join(bound(_board(args).absorb())))


def _retry_providers(board: FileBoard) -> None:
    from liza.changes import HUMAN
    from liza.limits import closed, retried
    from liza.record import utc_now

    if shut := closed(board.read()):
        board.update(retried(HUMAN, utc_now()))
        print(f"{', '.join(provider.id for provider in shut)} is tried again now.")


def _throw(args: Namespace, name: str) -> None:
    path = _home(args) / name
    try:
        path.write_text(f"{args.reason}\n" if args.reason else "")
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
    print(f"{name} is thrown ({path}); `liza resume` takes it back.")


def _absorbed(board: FileBoard) -> tuple[State, InvalidBoard | None]:
    """Return the board with what a person saved, or as it was with why that was not taken."""
    try:
        return board.absorb(), None
    except InvalidBoard as error:
        return board.read(), error


def _home(args: Namespace) -> Path:
    from liza.home import home_from

    return home_from(args.directory)


def _board(args: Namespace) -> FileBoard:
    from liza.board.file import FileBoard

    return FileBoard(_home(args))


def _update(args: Namespace, change: Change, done: str) -> None:
    """Let *change* happen, after whatever a person saved, and say that it is done."""
    board = _board(args)
    with _patience(board):
        board.absorb()
        state = board.update(change)
    print(json.dumps({"revision": state.revision}) if args.json else f"{done} Revision {state.revision}.")


@contextmanager
def _patience(board: FileBoard) -> Iterator[None]:
    """Tell a person who waits for the lock whom they wait for."""
    told = threading.Timer(PATIENCE, lambda: print(f"liza: waiting for {board.holder()}", file=sys.stderr))
    told.daemon = True
    told.start()
    try:
        yield
    finally:
        told.cancel()


def _said(text: str, what: str) -> str:
    if not text.strip():
        raise UsageError(f"the {what} is empty; say something")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {what} is not UTF-8 text; write it in another way") from None
    return text


def _editor() -> list[str]:
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not words:
        raise UsageError("no editor is set; put one into VISUAL or EDITOR, or edit .liza/state.yaml itself")
    return words


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
    for name in names:
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


def _meant(words: Sequence[str]) -> Collection[str]:
    """Return the one command that *words* begin with where that is plain: to describe all takes a while."""
    first = words[0] if words else ""
    is_plain = first in COMMANDS and not any(name.startswith(f"{first} ") for name in COMMANDS)
    return (first,) if is_plain else COMMANDS


def _told(error: LizaError) -> int:
    print(f"liza: {error}", file=sys.stderr)
    return error.exit_code


def _configure_logging(command: str) -> None:
    """Let a worker write down all that its operator wants to see, and every other command only trouble."""
    if command == "worker":
        logging.Formatter.converter = time.gmtime
        line = "%(asctime)sZ %(levelname)s %(message)s"
        logging.basicConfig(level=logging.INFO, format=line, datefmt="%Y-%m-%dT%H:%M:%S")
    else:
        logging.basicConfig(level=logging.WARNING, format="liza: %(message)s")


def main(words: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    # We use no plugins of pydantic, and looking for them takes as long as reading a board.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    words = sys.argv[1:] if words is None else words
    args = parser(_meant(words)).parse_args(words)
    _configure_logging(args.command)
    args.directory = (args.directory or Path()).absolute()
    try:
        code = args.run(args)
    except LizaError as error:
        code = _told(error)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code or 0)
