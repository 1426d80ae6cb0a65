"""Completion for shells, made from the table of commands: nothing of Liza runs while somebody types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.cli.registry import COMMANDS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN: Final = frozenset({"worker"})  # the supervisor starts these


def shown_commands() -> dict[str, str]:
    """Return the commands that people type, each with its summary."""
    return {name: row.summary for name, row in COMMANDS.items() if name not in HIDDEN}


def first_words() -> dict[str, str]:
    """Return what can stand behind `liza`."""
    return {
        name.split(" ")[0]: GROUPS.get(name.split(" ")[0]) or text for name, text in shown_commands().items()
    }


def second_words(first: str) -> dict[str, str]:
    """Return what can stand behind `liza` *first*, where that is a group of commands."""
    behind = {name.removeprefix(f"{first} "): text for name, text in shown_commands().items()}
    return {word: text for word, text in behind.items() if f"{first} {word}" in COMMANDS}


def options_of(name: str) -> list[str]:
    """Return the options of a command, and the words that an argument of it can only be."""
    flags = [flag for one in COMMANDS[name].arguments for flag in one.names if flag.startswith("-")]
    choices = [
        str(word)
        for one in COMMANDS[name].arguments
        if not one.names[0].startswith("-")
        for word in one.options.get("choices", ())
    ]
    return [*flags, "--help", *choices]


def _options(first: str) -> list[str]:
    return options_of(first) if first in COMMANDS else ["--help"]


def _cases(opening: str, closing: str) -> list[str]:
    """Return a case for each command of two words, then one for each first word."""
    twos = {f'"{name}"': options_of(name) for name in shown_commands() if " " in name}
    ones = {f'"{first} "*': [*second_words(first), *_options(first)] for first in first_words()}
    return [
        f"    {typed}) offers={opening}{' '.join(found)}{closing} ;;"
        for typed, found in {**twos, **ones}.items()
    ]


def bash_script() -> str:
    """Return the completion for bash."""
    lines = [
        "_liza() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" offers',
        '  case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in',
        *_cases('"', '"'),
        "  esac",
        f'  if [ "$COMP_CWORD" -eq 1 ]; then offers="{" ".join(first_words())} --help --version -C"; fi',
        '  COMPREPLY=($(compgen -W "$offers" -- "$current"))',
        "}",
        "complete -o default -F _liza liza",
    ]
    return "\n".join(lines) + "\n"


def zsh_script() -> str:
    """Return the completion for zsh."""
    described = [f"    {_quoted(f'{word}:{text}')}" for word, text in first_words().items()]
    lines = [
        "#compdef liza",
        "_liza() {",
        '  local typed="${words[2]} ${words[3]}"',
        "  local -a commands offers",
        "  commands=(",
        *described,
        "  )",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        '  case "$typed" in',
        *_cases("(", ")"),
        "  esac",
        '  compadd -- "${offers[@]}" || _files',
        "}",
        'if [ "$funcstack[1]" = "_liza" ]; then _liza "$@"; else compdef _liza liza; fi',
    ]
    return "\n".join(lines) + "\n"


def fish_script() -> str:
    """Return the completion for fish."""
    lines = ["complete -c liza -n __fish_use_subcommand -s C -r -d 'work in another directory'"]
    for word, text in first_words().items():
        lines.append(f"complete -c liza -n __fish_use_subcommand -f -a {word} -d {_quoted(text)}")
        known = " ".join(second_words(word))
        for second, about in second_words(word).items():
            seen = f"'__fish_seen_subcommand_from {word}; and not __fish_seen_subcommand_from {known}'"
            lines.append(f"complete -c liza -n {seen} -f -a {second} -d {_quoted(about)}")
    for name in shown_commands():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split(" "))
        for option in options_of(name):
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            flag = flag if option.startswith("-") else f"-f -a {option}"
            lines.append(f"complete -c liza -n '{seen}' {flag}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"  # noqa: RUF001 - a sign that ends no quote in any shell


SHELLS: Final[dict[str, Callable[[], str]]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
