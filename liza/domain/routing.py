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
ROLES: Final = ("PLANNER", "CODER", "REVIEWER")
ALIASES: Final = {"REVIEWER": "REVIEW", "ASSESSOR": "COMPLEXITY", "COMPLEXITY_ASSESSOR": "COMPLEXITY"}
_JUDGING_HATS: Final = ("JUDGE", "ASSESSOR", "COMPLEXITY_ASSESSOR", "VERIFY", "SYNTHESIS")
HATS: Final = (*_JUDGING_HATS, "COORDINATOR", "WORKER", "ACTOR")  # worn by one of the roles
STEPS: Final = ("PLAN", "REPLAN", "CHECKPOINT", "IMPLEMENT", "REVIEW")
PHASES: Final = ("PLAN", "IMPLEMENT", "REVIEW", "DOCS", "CODE", "COMPLETE", "BLOCKED", "NOTHING_TO_DO")
_ACTING: Final = (*ROLES, *HATS, *ALIASES.values())
_KNOWN: Final = tuple(dict.fromkeys((*_ACTING, *STEPS, *PHASES)))
_COMPOSED: Final = tuple(f"{phase}_{word}" for phase in PHASES for word in _ACTING)


# What the workers of this version ask for; the other words are for workflows that cannot be run yet.
USABLE_KEYS: Final = tuple(dict.fromkeys((*ROLES, *STEPS)))


def check_overrides(overrides: dict[str, T]) -> dict[str, T]:
    """Return *overrides*, unless a key is not used or there twice; ValueError names the nearest that is."""
    seen: dict[str, str] = {}
    for key in overrides:
        word = key.upper()
        if not _is_known(word):
            raise ValueError(f"{key!r} is no role or step{_suggestion(word)}")
        if word not in USABLE_KEYS:
            raise ValueError(f"{key!r} is used by nobody yet; use one of {', '.join(USABLE_KEYS).lower()}")
        if word in seen:
            raise ValueError(f"{key!r} and {seen[word]!r} are the same key; keep one")
        seen[word] = key
    return overrides


def _is_known(word: str) -> bool:
    if word in _KNOWN or word in _COMPOSED:
        return True
    return any(word.startswith(f"{known}_") and word != f"{known}_" for known in _COMPOSED)


def _suggestion(word: str) -> str:
    near = get_close_matches(word, USABLE_KEYS, n=1)
    return f"; did you mean {near[0].lower()!r}?" if near else f"; known: {', '.join(USABLE_KEYS).lower()}"


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
    works = acting not in {"REVIEWER", *_JUDGING_HATS}
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
