"""What people ask of a run: why, how much, what tripped."""

from __future__ import annotations

import json
from argparse import Namespace

from liza.cli.registry import AS_JSON, TASK, TRIP, argument, board_of, command, perform_action, refuse_beside
from liza.errors import UsageError


@command("explain", "say why a task, a worker or the run does not continue, and what to do", AS_JSON,
         argument("subject", metavar="TASK|WORKER|run", nargs="?", default="run",
                  help="a task, a worker such as coder-1, or the run (this, if not given)"))  # fmt: skip
def _explain(args: Namespace) -> None:
    import sys

    from liza.cli.views.explain import explanation_of, observed_run_context
    from liza.cli.views.fitting import fold_text, terminal_width
    from liza.domain.record import utc_now

    board, now = board_of(args), utc_now()
    found = explanation_of(args.subject, observed_run_context(board, board.absorb()), now)
    print(
        json.dumps(found.to_json()) if args.json else fold_text(found.told(now), terminal_width(sys.stdout))
    )


@command("diff", "show what a task changed: for review, as merged, or on its branch so far", AS_JSON, TASK,
         argument("--stat", action="store_true", help="only which files, and how many lines"))  # fmt: skip
def _diff(args: Namespace) -> None:
    import os
    import sys

    from liza.cli.views.diffs import diff_lines, stat_lines, task_diff
    from liza.domain.printed_text import raw_stream, takes_colour

    if args.stat:
        refuse_beside("--stat", json=args.json)
    found = task_diff(board_of(args), args.task)
    if args.json:
        print(json.dumps(found.to_json()))
    elif args.stat:
        print("\n".join(stat_lines(found)))
    else:
        # Its lines are escaped; what is left to act on a terminal is the colours.
        lines = diff_lines(found, colour=takes_colour(sys.stdout, os.environ))
        raw_stream(sys.stdout).writelines(f"{line}\n" for line in lines)


@command("prompt", "print the prompt of a step, as an agent would get it now",
         argument("step", metavar="STEP", help="plan, replan, checkpoint, implement or review"),
         argument("task", metavar="TASK", nargs="?", help="if not the first, or an example"))  # fmt: skip
def _prompt(args: Namespace) -> None:
    from liza.daemon.prompting import preview_prompt
    from liza.domain.answers import Step
    from liza.domain.record import utc_now
    from liza.repo.repository import Repository

    if args.step not in set(Step):
        raise UsageError(f"there is no step {args.step!r}; use one of {', '.join(Step)}")
    board = board_of(args)
    repository = Repository.around(board.home.parent)
    print(preview_prompt(board.absorb(), repository, Step(args.step), args.task, now=utc_now()))


@command("breaker", "show the circuit breaker and its trips", AS_JSON)
def _breaker(args: Namespace) -> None:
    from liza.daemon.reports import trips

    state = board_of(args).absorb()
    print(json.dumps(trips.breaker_json(state)) if args.json else trips.trip_list(state).rstrip())


@command("breaker show", "show what a rule saw and what to do about it", AS_JSON, TRIP)
def _breaker_show(args: Namespace) -> None:
    from liza.daemon.reports import trips
    from liza.domain.rules import trip_of

    state = board_of(args).absorb()
    trip = trip_of(state, args.trip)
    print(json.dumps(trips.trip_json(trip)) if args.json else trips.trip_report(trip, state).rstrip())


@command("breaker resolve", "say that a trip is settled, and let the agents continue", TRIP,
         argument("--reason", required=True, metavar="R", help="what was done about it"))  # fmt: skip
def _breaker_resolve(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.resolve, trip=args.trip, reason=args.reason)


@command("report", "report what was merged, what was not and why, time, money and trouble",
         argument("--html", action="store_true", help="one page that opens anywhere without a network"),
         argument("--markdown", action="store_true", help="for a pull request (this, if nothing is said)"),
         argument("--since", metavar="MOMENT", help="only since then: an age (8h), a time"))  # fmt: skip
def _report(args: Namespace) -> None:
    from liza.cli.views.report import gather_report, report_html, report_markdown
    from liza.cli.views.time_argument import parse_time
    from liza.domain.record import utc_now

    if args.html and args.markdown:
        raise UsageError("--html and --markdown are two reports; ask for one at a time")
    board, now = board_of(args), utc_now()
    report = gather_report(board, now, parse_time(args.since, now) if args.since else None)
    print(report_html(report) if args.html else report_markdown(report), end="")


@command("metrics", "show the run in numbers: throughput, cycle times, approval rates", AS_JSON,
         argument("--all", action="store_true", dest="whole",
                  help="of all sprints, not only the current one"),
         argument("--prometheus", action="store_true",
                  help="the board and its sprint in the text format of Prometheus"))  # fmt: skip
def _metrics(args: Namespace) -> None:
    from liza.cli.views.cycles import cycle_metrics, cycle_rows
    from liza.cli.views.past import BoardPast
    from liza.daemon.reports import metrics
    from liza.domain.record import utc_now

    board, now = board_of(args), utc_now()
    if args.prometheus:
        from liza.daemon.reports.prometheus import prometheus_text

        if args.whole or args.json:
            raise UsageError("--prometheus has a form of its own; leave --all and --json out")
        print(prometheus_text(board, now), end="")
        return
    state = board.absorb()
    found = metrics.of_goal(board, now) if args.whole else metrics.of_sprint(state, now)
    cycles = cycle_metrics(state, BoardPast().extend(board.entries()).moves)
    if args.json:
        told = [one._asdict() for one in cycles]
        print(json.dumps({**metrics.figures_json(found), **({"cycles": told} if told else {})}))
        return
    rows = "".join(f"{name:<32}{value}\n" for name, value in cycle_rows(cycles))
    print(f"{rows}{metrics.figures_table(found)}".rstrip())


@command("cost", "show what all runs cost: by task, role, model and outcome", AS_JSON)
def _cost(args: Namespace) -> None:
    from liza.cli.views import costs
    from liza.cli.views.past import BoardPast
    from liza.cli.views.runs import RunFolder

    board = board_of(args)
    state = board.absorb()
    moves = BoardPast().extend(board.entries()).moves
    found = costs.run_costs(RunFolder(board.home).records(), state, moves)
    print(
        json.dumps(costs.costs_json(found, state)) if args.json else "\n".join(costs.cost_lines(found, state))
    )
