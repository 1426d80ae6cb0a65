"""What there is to work with, and how it holds: agents, the machine, the gauntlet."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from liza.cli.registry import AS_JSON, NO_BASELINE, argument, board_of, command, home_of, refuse_beside
from liza.errors import UsageError

if TYPE_CHECKING:
    from liza.domain.config import Agents


@command(
    "agents", "list the coding programs that were found, and say which one would do what and why", AS_JSON
)
def _agents(args: Namespace) -> None:
    from liza.cli.views.agents import agent_survey, survey_text
    from liza.daemon.project import settings_around
    from liza.daemon.workflow_in_use import workflow_of

    settings = settings_around(args.directory)
    survey = agent_survey(settings.agents, flow=workflow_of(settings, args.directory))
    print(json.dumps(survey) if args.json else survey_text(survey))


@command("agents test", "give each agent a tiny real task, which costs a little; 1 if one fails", AS_JSON,
         argument("name", metavar="NAME", nargs="?", help="only this one"))  # fmt: skip
def _agents_test(args: Namespace) -> int | None:
    from liza.agents.smoke_test import HEADING, run_smoke_test, smoke_candidates

    choices = smoke_candidates(_agents_of(args), args.name)
    if not args.json:
        print(HEADING if choices else "There is no agent to try; `liza agents` says what was looked for.")
    done = []
    for name, choice in choices.items():
        done.append(run_smoke_test(name, choice, args.directory))
        print(json.dumps(done[-1]._asdict()) if args.json else done[-1], flush=True)
    return None if done and all(one.ok for one in done) else 1


def _agents_of(args: Namespace) -> Agents:
    """Return the settings of the board, or without one, of the team's file."""
    from liza.daemon.project import settings_around

    return settings_around(args.directory).agents


@command(
    "doctor",
    "look at this machine and project, and say what to do; 1 if a run would fail",
    AS_JSON,
    NO_BASELINE,
)
def _doctor(args: Namespace) -> int | None:
    from liza.cli.doctor import examine
    from liza.cli.views.health import HealthMark

    found = examine(args.directory, baseline=args.baseline)
    if args.json:
        print(json.dumps({"findings": [finding._asdict() for finding in found]}))
    else:
        print("\n".join(map(str, found)))
    return 1 if any(finding.mark is HealthMark.FAIL for finding in found) else None


@command("hook install", "let the board say who may push to the bare repository that hosts share",
         argument("bare", metavar="BARE", type=Path, help="the bare repository, on this machine"),
         argument("--board", metavar="ADDRESS",
                  help="the board (that of this project, if not given)"))  # fmt: skip
def _hook_install(args: Namespace) -> None:
    from liza.daemon.push_hook import board_address, install_hook

    board = args.board or board_address(home_of(args))
    print(f"Wrote {install_hook(args.directory / args.bare, board)}, which asks {board} about each push.")


@command("hook pre-receive", "be that hook: read a push from stdin, and refuse what the board does not allow",
         argument("board", metavar="ADDRESS", help="the board to ask"))  # fmt: skip
def _hook_pre_receive(args: Namespace) -> None:
    from liza.daemon.push_hook import check_push

    check_push(args.board if "://" in args.board else str(args.directory / args.board), sys.stdin)


@command("completion", "print the completion script for a shell",
         argument("shell", choices=("bash", "zsh", "fish"), help="which shell"))  # fmt: skip
def _completion(args: Namespace) -> None:
    from liza.cli.completion import SHELLS

    print(SHELLS[args.shell](), end="")


@command("mcp", "serve the board to an assistant over stdio (MCP): its commands as tools",
         argument("--read-only", action="store_true", help="only the tools that change nothing"))  # fmt: skip
def _mcp(args: Namespace) -> None:
    try:
        from liza.cli.mcp_server import serve_stdio
    except ModuleNotFoundError as error:
        sentence = f"this needs {error.name}; install it with `pip install 'liza[mcp]'`"
        raise UsageError(sentence) from error

    board = board_of(args)
    board.read()  # where there is none, that is said before an assistant waits for an answer
    serve_stdio(board, read_only=args.read_only)


@command("gauntlet", "run misbehaving agents on throw-away repositories; 1 if one escapes", AS_JSON,
         argument("names", metavar="NAME", nargs="*", help="which; all, if none is given"),
         argument("--workflow", metavar="NAME", default="liza",
                  help="those that make sense under another workflow that comes with Liza"),
         argument("--list", action="store_true", help="only say what each does and what must come of it"),
         argument("--jobs", type=int, metavar="N", help="how many at a time (two for each core)"),
         argument("--keep", type=Path, metavar="DIR", help="keep the repositories there, to look at"),
         argument("--no-sandbox", action="store_true",
                  help="let agents run with all your rights; what only a sandbox contains is left out"),
         argument("--config", type=Path, metavar="FILE",
                  help="settings for all of them, of the shape of liza.yaml"))  # fmt: skip
def _gauntlet(args: Namespace) -> int | None:
    from liza.gauntlet import runner
    from liza.gauntlet.evidence import is_sandboxed

    more = runner.read_settings(args.config and args.directory / args.config)
    if args.no_sandbox:
        more |= runner.WITHOUT_SANDBOX
    sandboxed = is_sandboxed(more)
    selection = runner.select(args.names, is_sandboxed=sandboxed, workflow=args.workflow)
    if args.list:
        refuse_beside("--list", jobs=args.jobs is not None, keep=args.keep)
        print(runner.case_list(selection, as_json=args.json))
        return None
    keep = args.keep and args.directory / args.keep
    say = None if args.json else lambda result: print(runner.result_row(result), flush=True)
    print("" if args.json else f"{runner.HEADER}\n", end="", flush=True)
    results = runner.run_all(selection.cases, more=more, jobs=args.jobs, keep=keep, say=say)
    print(runner.summary(results, selection, as_json=args.json))
    return 0 if all(result.is_contained for result in results) else 1
