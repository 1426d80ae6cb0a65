"""The plan as a whole, where somebody has to say yes to it before it is worked on."""

from __future__ import annotations

import json
from argparse import Namespace

from liza.cli.registry import AS_JSON, argument, board_of, command, perform_action


@command("plan show", "show the plan that waits for approval", AS_JSON)
def _plan_show(args: Namespace) -> None:
    from liza.cli.views.questions import plan_json, plan_lines

    state = board_of(args).absorb()
    print(json.dumps(plan_json(state)) if args.json else "\n".join(plan_lines(state)))


@command("plan accept", "say yes to the plan; its tasks are released to the coders", AS_JSON)
def _plan_accept(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.accept, task="plan", reason="accepted by hand")


@command("plan reject", "send the plan back; the planner makes another with your comment", AS_JSON,
         argument("comment", metavar="COMMENT", help="what is wrong with it"))  # fmt: skip
def _plan_reject(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.reject, task="plan", reason=args.comment)
