"""The command line: what people type becomes one call.

Nothing heavy is imported until a command needs it, so that `liza --help` answers at once.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from liza import __version__
from liza.cli.commands import boards, environment, experiments, history, hosts, plans, queries, runs, tasks
from liza.cli.completion import first_words, shown_commands
from liza.cli.examples import EXAMPLES
from liza.cli.process import configure_logging, exit_code_of, prepare_process
from liza.cli.registry import COMMANDS, GROUPS
from liza.errors import EXIT_CODES, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# As help lists them, each with a command to try: what people need first stands first.
SECTIONS: Final[dict[str, tuple[str, str]]] = {
    boards.__name__: ("The board", "note"),
    runs.__name__: ("A run", "run"),
    hosts.__name__: ("Many machines", "host"),
    tasks.__name__: ("One task", "task reject"),
    plans.__name__: ("A plan that waits for approval", "plan reject"),
    queries.__name__: ("Why, how much, and the result", "explain"),
    history.__name__: ("The past", "replay"),
    experiments.__name__: ("Ideas against a baseline", "experiment"),
    environment.__name__: ("This machine", "doctor"),
}


_UNKNOWN_COMMAND: Final = re.compile(
    r"argument COMMAND: invalid choice: '(?P<word>[^']*)' \(choose from .*\)"
)


def _with_likely_command(message: str, program: str) -> str:
    """Return *message*, or for a command that *program* does not have, the one that was meant."""
    found = _UNKNOWN_COMMAND.fullmatch(message)
    if found is None:
        return message
    import difflib

    group = program.removeprefix("liza").strip()
    names = [name.split(" ") for name in shown_commands()]
    known = {name[-1] for name in names if name[:-1] == [group]} if group else {name[0] for name in names}
    near = difflib.get_close_matches(found["word"], sorted(known), n=1)
    meant = f" did you mean {near[0]!r}?" if near else ""
    return f"there is no command {found['word']!r};{meant} `{program} --help` lists all"


class _CommandParser(argparse.ArgumentParser):
    """A parser that names the command which a mistyped one was meant for."""

    def error(self, message: str) -> NoReturn:
        super().error(_with_likely_command(message, self.prog))


class _TopParser(_CommandParser):
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
        epilog="Exit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items()),
    )
    top.add_argument("--version", action="version", version=f"liza {__version__}")
    top.add_argument("-C", dest="directory", metavar="DIR", type=Path, default=None, help="work in DIR")
    below = top.add_subparsers(
        prog=top.prog,  # or it is put together by what prints help, which takes a while to load
        dest="command",
        metavar="COMMAND",
        required=True,
        parser_class=_CommandParser,
    )
    groups: dict[str, Any] = {}
    for name in sorted(names, key=lambda name: list(SECTIONS).index(COMMANDS[name].run.__module__)):
        summary, run, arguments = COMMANDS[name]
        group, _, word = name.rpartition(" ")
        if group and group not in groups:
            parent = below.choices.get(group) or below.add_parser(
                group, help=GROUPS[group], description=GROUPS[group]
            )
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
    said = sys.argv[1:] if words is None else words
    sys.exit(exit_code_of(lambda: _run_command(said)))


def _run_command(words: Sequence[str]) -> int | None:
    args = parser(_commands_for(words)).parse_args(words)
    configure_logging(args.command)
    said = args.directory
    args.directory = (said or Path()).absolute()
    if said and not said.is_dir():
        raise UsageError(f"-C {said}: there is no such directory; name one that exists")
    found: int | None = args.run(args)
    return found
