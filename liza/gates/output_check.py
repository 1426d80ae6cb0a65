"""What a command is said to print, compared with what it printed; and checks inside `done_when` lines."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from liza.domain.model import Task
from liza.domain.visible_text import strip_colour

# What speaks of success without quoting anything that is printed.
_EXIT: Final = re.compile(
    r"(?:all )?(?:the )?(?:new |old |unit |existing )*tests? (?:should |must )?"
    r"(?:pass(?:es)?|succeeds?|(?:is|are) green)\.?"
    r"|(?=.*(?:exit|code|status|succeed))(?:(?:it|the command) )?(?:should |must )?"
    r"(?:succeeds?|(?:(?:ends?|exits?|returns?)(?: with)?(?: an?)? ?)?"
    r"(?:exit )?(?:code|status)?(?: of)? ?(?:0|zero))\.?",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|sec|seconds?)\b")
_QUOTES: Final = "`'\"“”"


class DoneWhenCheck(NamedTuple):
    """A command that a `done_when` line carries, with what it has to print and its exit code."""

    line: str
    command: str
    expect: str = ""
    code: int = 0


_CHECK: Final = re.compile(
    r"""^\s*(?:running\s+|run\s+|the\s+command\s+)?`(?P<command>[^`]+)`\s*
    (?:(?P<verb>prints?|outputs?|shows?|says?|displays?)\s+(?P<expect>\S.*?)
      |(?:exits?|ends?|returns?)\s+(?:with\s+)?(?:exit\s+)?(?:code\s+|status\s+)?(?P<code>\d{1,3})
      |passes|succeeds|is\s+green|works|runs(?:\s+without\s+errors?)?)?
    \s*[.;]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
# `add(2, 3)` is a call in some language, `README.md` a file: neither is a command.
_COMMAND: Final = re.compile(r"(?:\w+=\S* )*[\w./+-]+(?:\s|$)")
_CALLISH: Final = re.compile(r"^[\w.]+\(.*\)$")


def check_in(line: str) -> DoneWhenCheck | None:
    """Return the check that *line* carries, or None where only a reader can judge it."""
    match = _CHECK.match(line)
    if match is None:
        return None
    command = match["command"].strip()
    if not _COMMAND.match(command) or _CALLISH.match(command) or _is_file_name(command, match):
        return None
    return DoneWhenCheck(line, command, unquote(match["expect"] or ""), int(match["code"] or 0))


def _is_file_name(command: str, match: re.Match[str]) -> bool:
    alone = " " not in command and not command.startswith("./")
    return alone and bool(re.search(r"\.(?!sh$)\w{1,5}$", command)) and not match["expect"]


def checks_of(task: Task) -> list[DoneWhenCheck]:
    """Return the checks of all `done_when` lines."""
    return [check for line in task.done_when if (check := check_in(line))]


def unquote(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1]
    return text


def missing_output(expect: str, said: str) -> list[str]:
    """Return the lines of *expect* that *said* does not have.

    Case, space, colours and how long something took are no difference; an expectation that only speaks of
    the exit code is met by it.
    """
    wanted = [unquote(line) for line in expect.splitlines() if line.strip()]
    heard = _normalized(said)
    return [line for line in wanted if not _EXIT.fullmatch(line.strip()) and _normalized(line) not in heard]


def _normalized(text: str) -> str:
    text = _DURATION.sub("#s", strip_colour(text))
    return " ".join(text.split()).casefold()
