"""The text of the board, because people read and edit it and Liza rewrites it thousands of times.

What it emits reads back the same in any YAML 1.1 loader, but for moments (2026-11-16T04:19:29Z): they stand
unquoted and are strings to us.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Final, TypeAlias

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

DEEPEST: Final = 50  # levels of nesting: far above any board, far below any stack
LONGEST_KEY: Final = 1000  # characters: beyond 1024 YAML finds a key only behind a question mark

# Controls, the line breaks of YAML 1.1 but \n, and what its readers refuse: never raw in a text.
FORBIDDEN_CHARACTERS = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
_RESERVED = r"(?!(?:[Yy](?i:es)?|[Nn](?i:o|ull)?|[Oo](?i:n|ff)|[Tt](?i:rue)|[Ff](?i:alse))\Z)"
_INSIDE = rf"[^\n:#\xa0{FORBIDDEN_CHARACTERS}]*+"  # a no-break space is quoted: unquoted, nobody would see it

# Starts like no number and no indicator of YAML, and has no ": ", no " #" and no end that would be lost.
_PLAIN = re.compile(rf"{_RESERVED}[^\W\d]{_INSIDE}(?:(?<! )[:#](?! ){_INSIDE})*(?<![ :])")
_PLAIN_KEY = re.compile(rf"{_RESERVED}[A-Za-z_][A-Za-z0-9_.-]*")
# 0b01 and 12e34 are numbers to some, whatever their length.
_COMMIT = re.compile(r"(?!0b[01]*\Z)(?=[0-9e]*+[a-df])[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?!24)[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
# Its first line shows something: blank lines at the start of a block are easily lost in an editor.
_LITERAL = re.compile(rf" *+[^ \n{FORBIDDEN_CHARACTERS}][^{FORBIDDEN_CHARACTERS}]*+")
_LINE_WITH_TEXT = re.compile(r"\n(?=[^\n])")
_ESCAPED = re.compile(rf'["\\\n{FORBIDDEN_CHARACTERS}]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
SURROGATE = re.compile(r"[\ud800-\udfff]")


def section_text(name: str, value: Json) -> str:
    """Return the text of the top-level key *name*."""
    return _mapping({name: value}, "", 1)


def item_text(record: dict[str, Json]) -> str:
    """Return the text of one entry of a section that is a list."""
    return _sequence([record], "", 2)


def field_text(key: str, value: Json) -> str:
    """Return the text of one field of such an entry, as it stands below the first."""
    return _mapping({key: value}, "  ", 3)


def nested_item_text(record: dict[str, Json]) -> str:
    """Return the text of one entry of a list that is itself a field of such an entry."""
    return _sequence([record], "  ", 3)


def _mapping(record: dict[str, Json], pad: str, depth: int) -> str:
    _check_depth(depth)
    return "".join(
        [
            f"{pad}{_key(key, pad)}: {_string(value, pad)}\n"
            if isinstance(value, str)
            else f"{pad}{_key(key, pad)}:{_below(value, pad, depth)}"
            for key, value in record.items()
        ]
    )


def _sequence(values: list[Json], pad: str, depth: int) -> str:
    _check_depth(depth)
    return "".join([f"{pad}- {_beside(value, pad, depth)}" for value in values])


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST} levels")


def _below(value: Json, pad: str, depth: int) -> str:
    if isinstance(value, dict) and value:
        return "\n" + _mapping(value, pad + "  ", depth + 1)
    if isinstance(value, list) and value:
        return "\n" + _sequence(value, pad, depth + 1)
    return f" {_atom(value)}\n"


def _beside(value: Json, pad: str, depth: int) -> str:
    if isinstance(value, str):
        return _string(value, pad) + "\n"
    inner = pad + "  "
    if isinstance(value, dict) and value:
        return _mapping(value, inner, depth + 1).removeprefix(inner)
    if isinstance(value, list) and value:
        return _sequence(value, inner, depth + 1).removeprefix(inner)
    return _atom(value) + "\n"


@lru_cache(maxsize=1024)
def _key(key: str, pad: str) -> str:
    shown = key if _PLAIN_KEY.fullmatch(key) else _quote(key)
    return shown if len(shown) <= LONGEST_KEY else f"? {shown}\n{pad}"


def _atom(value: Json) -> str:
    form = _FORMS.get(type(value))
    if form is None:
        raise TypeError(f"{value!r} has no form on the board")
    return form(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no form on the board")
    shown = repr(value)
    # 1e+16 is a string to YAML 1.1, where a float has a dot.
    return shown if "." in shown else shown.replace("e", ".0e")


_FORMS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: _float,
    list: lambda _: "[]",
    dict: lambda _: "{}",
}


def _string(text: str, pad: str) -> str:
    if _PLAIN.fullmatch(text) or (text[:1].isdigit() and (_COMMIT.fullmatch(text) or _is_moment(text))):
        return text
    if "\n" in text and _LITERAL.fullmatch(text):
        return _literal(text, pad)
    return _quote(text)


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # 30 February: a loader that makes datetimes would refuse the whole board
        return False
    return True


def _literal(text: str, pad: str) -> str:
    body = text.removesuffix("\n")
    chomping = "-" if body == text else "+" if body.endswith("\n") else ""
    indicator = "2" if text.startswith(" ") else ""
    start = f"\n{pad}  "
    return f"|{indicator}{chomping}{start}{_LINE_WITH_TEXT.sub(start, body)}"


def _quote(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    code = f"{ord(match[0]):04X}"
    if SURROGATE.match(match[0]):
        raise ValueError(f"the lone surrogate U+{code} has no form on the board")
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{code}"
