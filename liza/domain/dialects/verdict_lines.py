"""Answers with a line `VERDICT:` and sections such as `PLAN:`, and patches as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from liza.domain.dialects.reading import (
    DialectReading,
    keyword,
    one_line,
    parts_below,
    refuse,
    refuse_word,
    says_something,
)
from liza.domain.verdicts import Outcome

PATCH_DIALECT: Final = "verdict"  # in which a coder answers with a patch
VERDICT_RESULTS: Final = {"APPROVE": Outcome.PASS, "REJECT": Outcome.REVISE}
SECTIONS: Final = {"coordinator": ("COORDINATOR_NOTES",), "planner": ("PLAN", "RISKS", "TESTS")}
_VERDICT: Final = re.compile(r"^[ \t*#`]*VERDICT[*`]*:[*` \t]*([^\n]*)$", re.MULTILINE | re.IGNORECASE)
_SECTION: Final = re.compile(
    r"^[ \t*#]*(COORDINATOR_NOTES|PLAN|RISKS|TESTS|ISSUES|NOTES)[*]*:[*]*[ \t]*", re.MULTILINE
)
_BULLET: Final = re.compile(r"^[ \t]*(?:[-*]|\d+[.)])[ \t]+", re.MULTILINE)
_FENCED_DIFF: Final = re.compile(
    r"^```(?:diff|patch)?[ \t]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_DIFF_START: Final = re.compile(r"^(?:diff --git |--- \S)", re.MULTILINE)


def read_verdict_lines(text: str, role: str, _prompt: str) -> DialectReading:
    fields = MappingProxyType({key.casefold(): value for key, value in sections_in(text).items()})
    if role == "coder":
        return DialectReading(Outcome.PASS, fields=MappingProxyType({"patch": patch_in(text)}))
    if role in SECTIONS:
        missing = [name for name in SECTIONS[role] if not fields.get(name.casefold())]
        if missing:
            return refuse(f"there is no section {missing[0]}: in what the {role} said; add it")
        return DialectReading(Outcome.PASS, fields=fields)
    return _read_approval(text, role, fields)


def _read_approval(text: str, role: str, fields: Mapping[str, str]) -> DialectReading:
    lines = _VERDICT.findall(text)
    if not lines:
        return refuse(f"there is no line VERDICT: {'|'.join(VERDICT_RESULTS)}; begin your answer with one")
    value = lines[-1].strip()
    words = [word for word in re.findall(r"\w+", value.upper()) if word in VERDICT_RESULTS]
    word = keyword(value).upper()
    if word not in VERDICT_RESULTS:
        return refuse_word(value, role, VERDICT_RESULTS)
    if len(set(words)) > 1:
        return refuse(f"the VERDICT {value!r} says two things; say one", word)
    issues = bullets_in(fields.get("issues", ""))
    if VERDICT_RESULTS[word] is Outcome.PASS and issues:
        return refuse(
            "the VERDICT is APPROVE, and ISSUES that block are named; say which of both holds", word
        )
    notes = fields.get("notes") or None
    reason = issues[0] if issues else notes
    return DialectReading(VERDICT_RESULTS[word], word, reason=reason, fields=fields, feedback=issues)


def sections_in(text: str) -> dict[str, str]:
    """Return the text below each heading such as `PLAN:`; of a heading that comes twice, the last."""
    return {heading[1]: below.strip() for heading, below in parts_below(_SECTION, text)}


def bullets_in(text: str) -> tuple[str, ...]:
    """Return the items of a list, or the whole as one item; what says that there is nothing is none."""
    items = [one_line(item) for item in _BULLET.split(text)]
    return tuple(item for item in items if says_something(item))


def patch_in(text: str) -> str:
    """Return the unified diff in *text*, also from inside fences; empty where there is none."""
    fenced = [body for body in _FENCED_DIFF.findall(text) if _DIFF_START.search(body)]
    body = "".join(fenced) or text
    start = _DIFF_START.search(body)
    return body[start.start() :].rstrip("\n") + "\n" if start else ""
