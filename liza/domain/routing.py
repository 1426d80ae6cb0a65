"""Agent settings by override key: each field comes from the first key of a chain that sets it.

Keys are a role, a hat, a step, a phase, `<PHASE>_<ROLE>` or `<PHASE>_<ROLE>_<NAME>`, in any case.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from liza.domain.record import Record

T = TypeVar("T")

DEFAULT: Final = "default"
BACKEND_FIELDS: Final = frozenset({"command", "arguments", "model", "passing", "own_home"})  # to one backend
ALIASES: Final = {"REVIEWER": "REVIEW", "ASSESSOR": "COMPLEXITY", "COMPLEXITY_ASSESSOR": "COMPLEXITY"}
JUDGING_ROLE: Final = "reviewer"  # that of whoever judges, under any hat
_JUDGING_HATS: Final = frozenset({"JUDGE", "ASSESSOR", "COMPLEXITY_ASSESSOR"})


def check_overrides(overrides: dict[str, T]) -> dict[str, T]:
    """Return *overrides*, unless a key is there twice; whether it is used, the workflow says."""
    seen: dict[str, str] = {}
    for key in overrides:
        word = key.upper()
        if word in seen:
            raise ValueError(f"{key!r} and {seen[word]!r} are the same key; keep one")
        seen[word] = key
    return overrides


def suggest_key(key: str, usable: Iterable[str]) -> str:
    """Return which of the keys that are *usable* to write instead of *key*."""
    known = [one.lower() for one in usable]
    near = get_close_matches(key.lower(), known, n=1)
    all_of_them = ", ".join(known)
    return f"did you mean {near[0]!r}? Known: {all_of_them}" if near else f"use one of {all_of_them}"


class RouteKey(NamedTuple):
    """Who is asked: a role in a step, perhaps in a phase, under a hat, as one of several by name."""

    role: str
    step: str
    phase: str | None = None
    hat: str | None = None
    name: str | None = None


def override_keys(who: RouteKey) -> list[str]:
    """Return the keys that count for *who*, most particular first, without the default.

    Under a hat neither the step nor the role counts: a judge is asked in a review, and is no reviewer. A
    phase by itself stands for whoever works in it, not for whoever judges.
    """
    acting = (who.hat or who.role).upper()
    words = [acting, *([ALIASES[acting]] if acting in ALIASES else [])]
    phase = (who.phase or "").upper()
    names = [f"{phase}_{word}_{who.name.upper()}" for word in words] if phase and who.name else []
    phased = [f"{phase}_{word}" for word in words] if phase else []
    works = who.role != JUDGING_ROLE and acting not in _JUDGING_HATS
    step = [] if who.hat else [who.step.upper()]
    return list(dict.fromkeys([*names, *phased, *step, *words, *([phase] if phase and works else [])]))


class Route(NamedTuple):
    """The fields of a choice, and for each the key that it comes from."""

    fields: dict[str, Any]
    origin: dict[str, str]


def resolve_route(overrides: Mapping[str, Record], default: Record, keys: Iterable[str]) -> Route:
    """Take each field from the first of *keys* that sets it, else from *default*.

    What is meant for one backend is not inherited by another: below the key that names the backend, a key
    with another one gives nothing of it.
    """
    there = {key.upper(): (key, choice) for key, choice in overrides.items()}
    fields: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for key, choice in [*(there[key] for key in keys if key in there), (DEFAULT, default)]:
        found = choice.to_json()
        own = found.get("backend") or ("command" if "command" in found else None)
        strange = "backend" in fields and own not in {None, fields["backend"]}
        for name, value in found.items():
            if name not in fields and not (strange and name in BACKEND_FIELDS):
                fields[name], origin[name] = value, key
    return Route(fields, origin)
