"""What pydantic has to say, as sentences that name the key, the line and the nearest right word."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from liza.errors import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Lines = "Mapping[str, int]"


def explained(
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
    places = [place for place in details["loc"] if not _is_a_tag(place, details)]
    path = at
    for place in places:
        path += f"[{place}]" if isinstance(place, int) else f".{place}" if path else str(place)
    problem, mend = _sentence(details, kind)
    return Violation(path, problem, mend, line_of(path, lines))


def _is_a_tag(place: int | str, details: ErrorDetails) -> bool:
    """A union names its member among the places; the file does not."""
    return isinstance(place, str) and details["loc"][:1] == ("details",) and place in details["loc"][1:2]


def _sentence(details: ErrorDetails, kind: type[BaseModel]) -> tuple[str, str]:
    given = _short(details["input"])
    match details["type"]:
        case "missing":
            return "it is missing", "add it"
        case "extra_forbidden":
            key = str(details["loc"][-1])
            return f"{key!r} is not a key that belongs here", nearest(key, _keys(kind, details["loc"][:-1]))
        case "enum" | "literal_error":
            known = str(details["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
            return f"{given} is not one of the known words", nearest(str(details["input"]), known)
        case "value_error":
            return str(details["ctx"]["error"]), "mend the value"
        case "timezone_aware":
            return f"{given} has no time zone", "write it in UTC with a Z at the end"
        case _:
            return f"{details['msg'][:1].lower()}{details['msg'][1:]} (it is {given})", "mend the value"


def _short(value: object, most: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def nearest(word: str, known: list[str]) -> str:
    by_case = {name.casefold(): str(name) for name in known}  # str: a word of an enum shows as the word
    near = difflib.get_close_matches(word.casefold(), by_case, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_case[near[0]]!r}?"
    return f"use one of {', '.join(known)}" if known else "remove it"


def _keys(kind: type[BaseModel], places: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known at *places* below a record of *kind*."""
    here: type[BaseModel] | None = kind
    for place in places:
        if here is None:
            return []
        fields = {field.alias or name: field.annotation for name, field in here.model_fields.items()}
        if place in fields:
            here = _record_in(fields[str(place)], None)
        elif isinstance(place, str):
            here = _record_in(here, place) or here
    return [field.alias or name for name, field in here.model_fields.items()] if here else []


def _record_in(annotation: Any, tag: str | None) -> type[BaseModel] | None:  # noqa: ANN401 - annotations have no type
    """Return the first record type inside *annotation* (Optional, tuple, Mapping, Annotated…)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and get_origin(annotation) is None:
        return annotation if tag is None else None
    for inner in get_args(annotation):
        if (found := _record_in(inner, tag)) is not None:
            return found
    return None
