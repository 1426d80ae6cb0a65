"""One task: added, shown, moved, decided on."""

from __future__ import annotations

from argparse import Namespace

from liza.cli.registry import AS_JSON, MANY, TASK, argument, board_of, command, require_text, update


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
    from liza.cli.views.tasks import new_task
    from liza.daemon.project import spec_path

    if args.spec is not None:
        args.spec = spec_path(args.directory, args.spec)
    update(args, new_task(vars(args)), f"Added {args.id}.")


@command("task show", "show a task with all of its history", AS_JSON, TASK)
def _task_show(args: Namespace) -> None:
    from liza.cli.views.tasks import task_text

    board = board_of(args)
    board.absorb()
    print(task_text(board, args.task, as_json=args.json), end="")


@command("task release", "take a task away from whoever holds it", AS_JSON, TASK,
         argument("--reason", default="released by hand", metavar="R"))  # fmt: skip
def _task_release(args: Namespace) -> None:
    from liza.domain.changes import HUMAN
    from liza.domain.events import Release
    from liza.domain.record import utc_now
    from liza.workflow.transition import apply

    change = apply(Release(reason=require_text(args.reason, "reason")), to=args.task, by=HUMAN, at=utc_now())
    update(args, change, f"Released {args.task}.")


@command("task retry", "give a task that is stuck another chance, with fresh counters", AS_JSON, TASK,
         argument("--guidance", metavar="G", help="what the next coder should know"))  # fmt: skip
def _task_retry(args: Namespace) -> None:
    from liza.domain.changes import HUMAN
    from liza.domain.events import Answer
    from liza.domain.record import utc_now
    from liza.workflow.transition import apply

    guidance = require_text(args.guidance, "guidance") if args.guidance is not None else None
    change = apply(Answer(guidance=guidance), to=args.task, by=HUMAN, at=utc_now())
    update(args, change, f"{args.task} is IDLE again.")


@command("task ready", "release a DRAFT to the coders", AS_JSON, TASK)
def _task_ready(args: Namespace) -> None:
    from liza.domain.changes import HUMAN
    from liza.domain.events import Ready
    from liza.domain.record import utc_now
    from liza.workflow.transition import apply

    update(args, apply(Ready(), to=args.task, by=HUMAN, at=utc_now()), f"Released {args.task} to the coders.")


@command("task accept", "say yes to what a task asks: its approval, its forced pass", AS_JSON, TASK,
         argument("--reason", default="accepted by hand", metavar="R"))  # fmt: skip
def _task_accept(args: Namespace) -> None:
    from liza.domain.changes import HUMAN
    from liza.domain.record import utc_now
    from liza.workflow.transition import accept_task

    change = accept_task(args.task, require_text(args.reason, "reason"), by=HUMAN, at=utc_now())
    update(args, change, f"Accepted {args.task}.")


@command("task reject", "say no to what a task asks; it goes back to its coder", AS_JSON, TASK,
         argument("--reason", required=True, metavar="R", help="what is wrong with it"))  # fmt: skip
def _task_reject(args: Namespace) -> None:
    from liza.domain.changes import HUMAN
    from liza.domain.record import utc_now
    from liza.workflow.transition import reject_task

    change = reject_task(args.task, require_text(args.reason, "reason"), by=HUMAN, at=utc_now())
    update(args, change, f"Rejected {args.task}.")
