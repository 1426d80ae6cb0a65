"""What was: put right, given back, checked again, rehearsed."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from liza.cli.registry import AS_JSON, MANY, TASK, argument, command, home_of


@command("recover", "repair what a crash left behind; `liza run` does it at its start", AS_JSON,
         argument("--dry-run", action="store_true", help="only print what would be done"))  # fmt: skip
def _recover(args: Namespace) -> None:
    from liza.daemon.policy.recovery import action_json
    from liza.daemon.recover import recover

    actions = recover(home_of(args), dry_run=args.dry_run)
    if args.json:
        print(json.dumps([action_json(action) for action in actions]))
    else:
        print("\n".join(map(str, actions)) or "There is nothing to put right.")


@command("salvage list", "list work that was saved before its worktree was removed", AS_JSON)
def _salvage_list(args: Namespace) -> None:
    from liza.repo.repository import Repository
    from liza.repo.salvage import list_salvages

    _fetch_salvages(args)
    found = list_salvages(Repository.around(args.directory))
    if args.json:
        print(json.dumps([saved.to_json() for saved in found]))
    else:
        print(
            "\n".join(f"{saved.at:%Y-%m-%dT%H:%M:%SZ}  {saved}" for saved in found) or "Nothing was salvaged."
        )


@command("salvage restore", "make a branch from work that was saved", TASK,
         argument("number", metavar="N", type=int, help="which, as `liza salvage list` counts"))  # fmt: skip
def _salvage_restore(args: Namespace) -> None:
    from liza.repo.repository import Repository
    from liza.repo.salvage import restore_salvage

    _fetch_salvages(args)
    branch = restore_salvage(Repository.around(args.directory), args.task, args.number)
    print(f"Restored as the branch {branch}; `git log -p {branch}` shows it.")


def _fetch_salvages(args: Namespace) -> None:
    """Bring what was saved on other hosts here, where a remote is shared; without it, what is here counts."""
    from liza.daemon.project import settings_around
    from liza.errors import LizaError
    from liza.repo.repository import Repository

    try:
        config = settings_around(args.directory)
    except LizaError:  # what was saved can be had without a board
        return
    if config.remote is None:
        return
    from liza.daemon.travel import shared_remote

    if remote := shared_remote(Repository.around(args.directory), config):
        try:
            remote.fetch_salvages()
        except LizaError as error:
            print(f"liza: {error}; this is what was saved here", file=sys.stderr)


@command("verify", "recheck that every merge is Liza's and what was reviewed; 1 if one is not", AS_JSON,
         argument("span", metavar="RANGE", nargs="?",
                  help="SINCE..UNTIL, or a branch; all that the board merged, if not given"),
         argument("--key", metavar="FILE", type=Path,
                  help="the key of the board that merged, where this is another machine"))  # fmt: skip
def _verify(args: Namespace) -> int | None:
    from liza.daemon.project import integration_ref_from, known_merges
    from liza.repo.repository import Repository
    from liza.repo.verify import verify_span

    known, span = known_merges(args.directory, args.key), args.span or ""
    if not span and known.base:
        span = f"{known.base}.."
    if not span or span.endswith(".."):  # what is named needs no board
        span += integration_ref_from(args.directory)
    found = verify_span(Repository.around(args.directory), span, known)
    if args.json:
        print(json.dumps(found.to_json()))
    else:
        print("\n".join(map(str, found.findings)) or str(found))
    return None if found.is_proven and not found.findings else 1


@command("replay", "repeat a recorded run offline, also with other settings, and compare", AS_JSON,
         argument("recording", metavar="RECORDING", type=Path, help="such as .liza/runs, or a YAML file"),
         argument("--with", dest="changes", metavar="KEY=VALUE", help="such as workers.coder=4", **MANY),
         argument("--pace", type=float, default=0.0, metavar="P",
                  help="0 is at once (if not given), 1 as long as it took, 0.5 half as long"))  # fmt: skip
def _replay(args: Namespace) -> int | None:
    from liza.cli.replay import replay_run

    path, screen = args.directory / args.recording, sys.stderr if sys.stderr.isatty() else None
    done = replay_run(path, args.directory, args.changes, pace=args.pace, screen=screen)
    print(json.dumps(done.to_json()) if args.json else done)
    return done.code
