"""One task: added, shown, moved, decided on."""

from __future__ import annotations

from argparse import Namespace

from liza.cli.registry import AS_JSON, MANY, TASK, argument, board_of, command, perform_action, refuse_beside


@command("task add", "add a task that coders may claim", AS_JSON,
         argument("--id", required=True, metavar="ID", help="its name, such as parse-names"),
         argument("--description", required=True, metavar="D", help="what to do, in a sentence"),
         argument("--done-when", required=True, metavar="C", help="what must be true at the end", **MANY),
         argument("--spec", metavar="PATH", help="where it is specified"),
         argument("--in", dest="include", metavar="P", help="paths it may touch", **MANY),
         argument("--out", dest="exclude", metavar="P", help="paths it must not touch", **MANY),
         argument("--depends-on", metavar="ID", help="tasks that must succeed first", **MANY),
         argument("--needs", metavar="LABEL", help="what a host must have to take it, such as gpu", **MANY),
         argument("--kind", choices=["code", "docs", "config"], default="code",
                  help="what agents are told it is; whether it needs tests, its diff decides"),
         argument("--priority", type=int, default=0, metavar="N", help="higher goes first"))  # fmt: skip
def _task_add(args: Namespace) -> None:
    from liza.cli import actions
    from liza.daemon.project import spec_path

    if args.spec is not None:
        args.spec = spec_path(args.directory, args.spec)
    perform_action(args, actions.add, typed=vars(args))


@command("task show", "show a task: what, who, rounds, what went wrong, diff and history", AS_JSON, TASK,
         argument("--yaml", action="store_true", help="all of it, as it stands on the board"))  # fmt: skip
def _task_show(args: Namespace) -> None:
    from liza.cli.views.tasks import task_lines, task_text

    if args.yaml:
        refuse_beside("--yaml", json=args.json)
    board = board_of(args)
    board.absorb()
    if args.json or args.yaml:
        print(task_text(board, args.task, as_json=args.json), end="")
    else:
        print("\n".join(task_lines(board, args.task)))


@command("task release", "take a task away from whoever holds it", AS_JSON, TASK,
         argument("--reason", default="released by hand", metavar="R", help="why, for others"))  # fmt: skip
def _task_release(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.release, task=args.task, reason=args.reason)


@command("task retry", "give a task that is stuck another chance, with fresh counters", AS_JSON, TASK,
         argument("--guidance", metavar="G", help="what the next coder should know"))  # fmt: skip
def _task_retry(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.retry, task=args.task, guidance=args.guidance)


@command("task ready", "release a DRAFT to the coders", AS_JSON, TASK)
def _task_ready(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.ready, task=args.task)


@command("task accept", "say yes to what a task asks: its approval, its forced pass", AS_JSON, TASK,
         argument("--reason", default="accepted by hand", metavar="R", help="why, for its history"),
         argument("--squash", action="store_true",
                  help="merge all of it as one commit, where the workflow offers that"))  # fmt: skip
def _task_accept(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.accept, task=args.task, reason=args.reason, squash=args.squash)


@command("task waive", "lift a limit for a task, such as how many lines and files may change", AS_JSON, TASK,
         argument("limit", metavar="LIMIT", help="scope_limit"),
         argument("--reason", required=True, metavar="R", help="why it may be lifted"))  # fmt: skip
def _task_waive(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.waive, task=args.task, limit=args.limit, reason=args.reason)


@command("task reject", "say no to what a task asks; it goes back to its coder", AS_JSON, TASK,
         argument("--reason", required=True, metavar="R", help="what is wrong with it"),
         argument("--comment", dest="comments", metavar="FILE:LINE:TEXT",
                  help="what is wrong with a line", **MANY))  # fmt: skip
def _task_reject(args: Namespace) -> None:
    from liza.cli import actions

    comments = tuple(map(actions.parse_comment, args.comments))
    perform_action(args, actions.reject, task=args.task, reason=args.reason, comments=comments)


@command("task abandon", "give a task up for good; what was committed for it is kept", AS_JSON, TASK,
         argument("--reason", required=True, metavar="R", help="why it is given up"))  # fmt: skip
def _task_abandon(args: Namespace) -> None:
    from liza.cli import actions

    perform_action(args, actions.abandon, task=args.task, reason=args.reason)


@command("open", "open your shell or editor in the worktree of a task", TASK,
         argument("--editor", action="store_true", help="open it in VISUAL or EDITOR"))  # fmt: skip
def _open(args: Namespace) -> int:
    from liza.cli.views.editing import editor_words, open_worktree, shell_words

    words = [*editor_words(), "."] if args.editor else shell_words()
    return open_worktree(board_of(args), args.task, words, lambda line: print(line, flush=True))
