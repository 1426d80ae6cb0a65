"""What an answer in any dialect comes to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.domain.memory import MemoryType
from liza.domain.verdicts import Outcome, Risk

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_EMPTY_WORDS: Final = frozenset(
    {"", "-", "none", "n/a", "na", "no", "nothing", "null", "no blockers", "none."}
)


class DialectReading(NamedTuple):
    """What an agent said; where *outcome* is none, *problem* is the sentence that it is asked again with."""

    outcome: Outcome
    word: str | None = None  # the result as it was written
    problem: str | None = None
    reason: str | None = None
    label: str | None = None
    confidence: int | None = None
    next_role: str | None = None
    fields: Mapping[str, str] = NOTHING
    feedback: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    memory: tuple[tuple[MemoryType, str], ...] = ()
    handoff: Mapping[str, object] | None = None
    oddities: tuple[str, ...] = ()  # what was wrong, and kept nothing from counting

    @property
    def risk(self) -> Risk | None:
        """The risk that was named; of several the highest."""
        said = " ".join(self.fields.get(key, "") for key in ("risk", "risk level")).casefold()
        return next((level for level in reversed(Risk) if re.search(rf"\b{level}\b", said)), None)


def refuse(problem: str, word: str | None = None) -> DialectReading:
    return DialectReading(Outcome.NONE, word, problem)


def refuse_word(word: str, role: str, known: Iterable[str]) -> DialectReading:
    return refuse(f"{word!r} is no result of the {role}; use one of {', '.join(known)}", word)


def keyword(value: str) -> str:
    found = re.match(r"\W*(\w+)", value)
    return found[1] if found else ""


def says_something(value: str | None) -> bool:
    return value is not None and value.strip(" .*_[]").casefold() not in _EMPTY_WORDS


def one_line(text: str) -> str:
    return " ".join(text.split())


def parts_below(heading: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    """Return each *heading* that is found in *text*, with what stands between it and the next."""
    found = list(heading.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)] * bool(found)
    return [(one, text[one.end() : end]) for one, end in zip(found, ends, strict=True)]
