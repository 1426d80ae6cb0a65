"""The command line: what people type becomes one call.

Nothing heavy is imported until a command needs it, so that `liza --help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza import __version__
from liza.cli.commands import boards, environment, experiments, history, hosts, plans, queries, runs, tasks
from liza.cli.completion import first_words, shown_commands
from liza.cli.examples import EXAMPLES
from liza.cli.process import configure_logging, exit_code_of, prepare_process
from liza.cli.registry import COMMANDS, GROUPS
from liza.errors import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# As help lists them, each with a command to try: what people need first stands first.
SECTIONS: Final[dict[str, tuple[str, str]]] = {
    boards.__name__: ("The board", "note"),
    runs.__name__: ("A run", "run"),
    hosts.__name__: ("Many machines", "host"),
    tasks.__name__: ("One task", "task reject"),
    plans.__name__: ("A plan that waits for approval", "plan reject"),
    queries.__name__: ("Why, how much, what came of it", "explain"),
    history.__name__: ("What was", "replay"),
    experiments.__name__: ("Ideas against a baseline", "experiment"),
    environment.__name__: ("What there is to work with", "doctor"),
}


class _TopParser(argparse.ArgumentParser):
    """The parser of `liza` itself, whose help has the commands in groups."""

    def format_help(self) -> str:
        rows = {name: COMMANDS[name].run.__module__ for name in shown_commands()}
        parts = [self.format_usage(), f"{self.description}\n"]
        for room, (title, example) in SECTIONS.items():
            words = dict.fromkeys(name.split(" ")[0] for name, home in rows.items() if home == room)
            lines = [f"  {word:<12} {first_words()[word]}" for word in words]
            parts.append("\n".join([f"{title}:", *lines, f"  for example  {EXAMPLES[example]}\n"]))
        parts += [
            "Options: -h, --help; --version; -C DIR to work in DIR. `liza COMMAND --help` has an example.\n"
        ]
        return "\n".join([*parts, f"{self.epilog}\n"])


def parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of the commands in *names*, which are all in the table."""
    top = _TopParser(
        prog="liza",
        description="A supervisor for coding agents that you can leave alone overnight.",
        epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
    )
    top.add_argument("--version", action="version", version=f"liza {__version__}")
    top.add_argument("-C", dest="directory", metavar="DIR", type=Path, default=None, help="work in DIR")
    below = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    groups: dict[str, Any] = {}
    for name in sorted(names, key=lambda name: list(SECTIONS).index(COMMANDS[name].run.__module__)):
        summary, run, arguments = COMMANDS[name]
        group, _, word = name.rpartition(" ")
        if group and group not in groups:
            parent = below.choices.get(group) or below.add_parser(group, help=GROUPS[group])
            groups[group] = parent.add_subparsers(
                dest="word", metavar="COMMAND", required=group not in COMMANDS
            )
        one = (groups[group] if group else below).add_parser(
            word, help=summary, description=summary, epilog=f"Example: {EXAMPLES.get(name, f'liza {name}')}"
        )
        one.set_defaults(run=run)
        for flags, options in arguments:
            one.add_argument(*flags, **options)
    return top


def _commands_for(words: Sequence[str]) -> Collection[str]:
    """Return the one command that *words* begin with where that is plain: to describe all takes a while."""
    first = words[0] if words else ""
    is_plain = first in COMMANDS and not any(name.startswith(f"{first} ") for name in COMMANDS)
    return (first,) if is_plain else COMMANDS


def main(words: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    prepare_process()
    words = sys.argv[1:] if words is None else words
    args = parser(_commands_for(words)).parse_args(words)
    configure_logging(args.command)
    args.directory = (args.directory or Path()).absolute()
    sys.exit(exit_code_of(lambda: args.run(args)))
