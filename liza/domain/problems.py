"""What pydantic has to say, as sentences that name the key, the line and the nearest right word."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from liza.errors import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


def violations_from(
    error: ValidationError, kind: type[BaseModel], at: str, lines: Mapping[str, int]
) -> list[Violation]:
    """Return one violation for each thing wrong with a record of *kind* that stands at path *at*."""
    return [_violation(details, kind, at, lines) for details in error.errors(include_url=False)]


def line_of(path: str, lines: Mapping[str, int]) -> int | None:
    """Return the line of *path*, or of the nearest thing around it that is in the file."""
    while path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        if cut <= 0:
            return None
        path = path[:cut]
    return lines[path]


def _violation(details: ErrorDetails, kind: type[BaseModel], at: str, lines: Mapping[str, int]) -> Violation:
    places = [place for place in details["loc"] if not _is_union_tag(place, details)]
    path = at
    for place in places:
        path += f"[{place}]" if isinstance(place, int) else f".{place}" if path else str(place)
    problem, mend = _sentence(details, kind)
    return Violation(path, problem, mend, line_of(path, lines))


def _is_union_tag(place: int | str, details: ErrorDetails) -> bool:
    """A union names its member among the places; the file does not."""
    return isinstance(place, str) and details["loc"][:1] == ("details",) and place in details["loc"][1:2]


def _sentence(details: ErrorDetails, kind: type[BaseModel]) -> tuple[str, str]:
    given = _abbreviate(details["input"])
    match details["type"]:
        case "missing":
            return "it is missing", "add it"
        case "extra_forbidden":
            key = str(details["loc"][-1])
            return f"{key!r} is not a key that belongs here", did_you_mean(
                key, _keys(kind, details["loc"][:-1])
            )
        case "enum" | "literal_error":
            expected = _MEMBER.sub(r"\1", str(details["ctx"]["expected"]))
            known = expected.replace(" or ", ", ").replace("'", "").split(", ")
            return f"{given} is not one of the known words", did_you_mean(str(details["input"]), known)
        case "value_error":
            return str(details["ctx"]["error"]), "mend the value"
        case "timezone_aware":
            return f"{given} has no time zone", "write it in UTC with a Z at the end"
        case _:
            said = _expected_shape(details) or f"{details['msg'][:1].lower()}{details['msg'][1:]}"
            return f"{said} (it is {given})", "mend the value"


LONGEST_VALUE: Final = 60  # characters of a wrong value in a sentence
_MEMBER: Final = re.compile(r"<\w+\.\w+: ('[^']*')>")  # as pydantic names some members of an enum

# What pydantic calls by the names of Python's types.
_SHAPES: Final = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "it has to be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "it has to be keys with values"),
    **dict.fromkeys(("model_attributes_type", "dataclass_type"), "it has to be keys with values"),
    **dict.fromkeys(("string_type", "string_sub_type"), "it has to be a text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it has to be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "it has to be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it has to be true or false"),
}


_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _expected_shape(details: ErrorDetails) -> str | None:
    context = details.get("ctx", {})
    if details["type"] == "too_short":
        return f"it needs {context['min_length']} or more entries, and has {context['actual_length']}"
    if details["type"] == "too_long":
        return f"it may have up to {context['max_length']} entries, and has {context['actual_length']}"
    if details["type"] in _BOUNDS:
        words, name = _BOUNDS[details["type"]]
        return f"it has to be {words} {context[name]}"
    return _SHAPES.get(details["type"])


def _abbreviate(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= LONGEST_VALUE else shown[: LONGEST_VALUE - 1] + "…"


def did_you_mean(word: str, known: list[str]) -> str:
    by_case = {name.casefold(): str(name) for name in known}  # str: a word of an enum shows as the word
    # A word that is much longer holds the letters of any short one, and is hardly meant by it.
    alike = [name for name in by_case if len(name) <= 2 * len(word) or name.startswith(word.casefold())]
    near = difflib.get_close_matches(word.casefold(), alike, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_case[near[0]]!r}?"
    return f"use one of {', '.join(known)}" if known else "remove it"


def _keys(kind: type[BaseModel], places: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known at *places* below a record of *kind*."""
    here: list[type[BaseModel]] = [kind]
    for place in places:
        inner = [_fields(record)[place] for record in here if place in _fields(record)]
        if inner:
            here = list(_records_in(tuple(inner)))
        elif tagged := [record for record in here if place in _tags(record)]:
            here = tagged  # a union names its member among the places
    return list(dict.fromkeys(str(key) for record in here for key in _fields(record)))


def _fields(kind: type[BaseModel]) -> dict[int | str, Any]:
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def _tags(kind: type[BaseModel]) -> list[object]:
    """Return the words by which a union may tell *kind* from its other members."""
    kinds = (annotation for annotation in _fields(kind).values() if get_origin(annotation) is Literal)
    return [word for annotation in kinds for word in get_args(annotation)]


def _records_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - annotations have no type
    """Yield the record types inside *annotation* (Optional, tuple, Mapping, Annotated, a union…)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in annotation if isinstance(annotation, tuple) else get_args(annotation):
        yield from _records_in(inner)
