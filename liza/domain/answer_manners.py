"""How agents write what they were asked for, as tables: other words, other names of keys, texts for records.

A word stands here only if it has one meaning. Nothing approves by another word than `approve`, whatever its
case or its ending: a verdict is the one thing that nobody may guess at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.domain.answer_shape import Manners
from liza.domain.answers import (
    Abandoned,
    CheckpointAnswer,
    Found,
    Implement,
    Outcome,
    Planned,
    PriorFeedback,
    Progress,
    Readiness,
    Review,
    Ruling,
    Unblocked,
)
from liza.domain.model import Kind, Scope, Urgency, Validation
from liza.domain.verdicts import Feedback, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

    from pydantic import BaseModel


def _meaning(**words: str) -> dict[str, str]:
    """Return each of the *words* with what it means."""
    return {word: meaning for meaning, listed in words.items() for word in listed.split()}


WORDS: Final[Mapping[type[StrEnum], Mapping[str, str]]] = {
    Outcome: _meaning(
        done="complete completed finished implemented success succeeded",
        blocked="block stuck",
        nothing_to_do="nothing nothing_to_be_done no_op noop no_change no_changes no_changes_needed "
        "already_done",
    ),
    Readiness: _meaning(blocked="block stuck", ready="ok go proceed begin"),
    Ruling: _meaning(
        approve="approved approves",
        reject="rejected rejects rejection request_changes requested_changes changes_requested needs_work "
        "revise",
        block="blocked blocks",
    ),
    Progress: _meaning(
        addressed="fixed resolved done mended closed solved",
        partial="partially partly partially_addressed partially_fixed incomplete",
        open="unaddressed not_addressed unresolved not_resolved not_fixed still_open unfixed",
    ),
    Kind: _meaning(
        code="coding feature bug bugfix bug_fix fix refactor refactoring implementation",
        docs="doc documentation document",
        config="configuration conf settings",
    ),
    Severity: _meaning(
        blocker="block blocking blocks critical severe major high error must must_fix fatal",
        concern="concerns minor medium moderate low nit nitpick info note remark suggestion warning "
        "trivial style",
    ),
    Urgency: _meaning(
        immediate="urgent now high critical asap", deferred="later defer low medium minor normal"
    ),
}
KEYS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    Planned: _meaning(
        done_when="acceptance_criteria criteria acceptance",
        depends_on="dependencies depends deps",
        spec_ref="spec",
    ),
    Scope: _meaning(**{"in": "includes included", "out": "excludes excluded"}),
    Validation: _meaning(command="cmd run", expect="expected expected_output expects output"),
    CheckpointAnswer: _meaning(files_to_modify="files files_to_change", blocked_questions="questions"),
    Implement: _meaning(blocked_questions="questions", discovered="discoveries"),
    Feedback: _meaning(
        message="comment text issue problem description", file="path filename", line="line_number lines",
        suggestion="fix recommendation suggested_fix",
    ),
    Review: _meaning(reason="rationale reasoning", feedback="comments"),
    PriorFeedback: _meaning(message="point feedback item"),
    Found: _meaning(description="what message text"),
    Unblocked: _meaning(guidance="reason message"),
    Abandoned: _meaning(reason="why"),
}  # fmt: skip
# What may stand beside an approval without being asked for. All else could take it back.
HARMLESS: Final = frozenset(
    {
        *("checked", "checks", "comment", "date", "done_when", "files_changed", "files_reviewed"),
        *("iteration", "model", "note", "notes", "praise", "priority", "reviewer", "role", "score", "step"),
        *("strengths", "summary", "tests", "tests_run", "timestamp", "usage"),
    }
)

_ARROW: Final = re.compile(r"\s*(?:->|→|=>|⇒)\s*")
_TICKED: Final = re.compile(r"[^`]*`([^`]+)`[\s,;.:]*(.*)", re.DOTALL)
_SUCCEEDS: Final = re.compile(
    r"\s+(?:should\s+|must\s+|will\s+|all\s+)?(?:pass(?:es)?|succeeds?|is\s+green|exits\s+(?:with\s+)?0)\.?$",
    re.IGNORECASE,
)
_RUN: Final = re.compile(r"^(?:run|execute|running)\s+(?=\S)", re.IGNORECASE)
_EXPECTED: Final = re.compile(
    r"\s*[,;:]?\s*\b(?:expect(?:ed|s|ing)?(?:\s+output)?|prints?|outputs?|shows?)\b[:\s]+(.*)", re.IGNORECASE
)
_SIDE: Final = re.compile(r"\b(in|out)(?:\s+of\s+scope)?\s*:", re.IGNORECASE)
_PATH: Final = re.compile(r"[\w.@*-]+(?:/[\w.@*-]*)+|[\w*-]+\.\w{1,8}\b|\*\.\w+")
_PROGRESS: Final = re.compile(r"(.*\S)\s*(?::|->|→|-|\()\s*([\w -]+?)\)?\s*", re.DOTALL)
_WEIGHT: Final = re.compile(r"\s*\[?\(?([A-Za-z-]+)\)?\]?\s*:\s+(.*\S)\s*", re.DOTALL)
_PLACE: Final = re.compile(r"([\w./-]+\.\w+):(\d+)(?:[:,-]\d+)*:?\s+(.*\S)", re.DOTALL)


def validation_in(text: str) -> object:
    """Return the command, and what it prints, in a text such as "`pytest -q` -> 3 passed"."""
    command, expect = text.strip(), ""
    if ticked := _TICKED.fullmatch(command):
        command, rest = ticked[1], ticked[2]
        said = _EXPECTED.match(rest) or re.match(r"\s*(?:->|→|=>)\s*(.*)", rest)
        expect = said[1] if said else ""
    elif len(parts := _ARROW.split(command, maxsplit=1)) == 2:  # noqa: PLR2004 - what is before and behind it
        command, expect = parts
    elif said := _EXPECTED.search(command):
        command, expect = command[: said.start()], said[1]
    return {"command": _SUCCEEDS.sub("", _RUN.sub("", command)).strip(" `"), "expect": expect.strip()}


def scope_in(text: str) -> object:
    """Return the paths in a text such as "IN: src/a.py, OUT: docs"; words that are no paths bound nothing."""
    sides = _SIDE.split(text)
    if len(sides) == 1:
        return {"in": paths_in(text)}
    found: dict[str, list[str]] = {"in": paths_in(sides[0]), "out": []}
    for side, listed in zip(sides[1::2], sides[2::2], strict=True):
        found[side.casefold()] += paths_in(listed)
    return found


def paths_in(text: str) -> list[str]:
    text = text.strip(" \n`'\",;.") if " " not in text.strip() else text
    if text and not re.search(r"[\s,;]", text):
        return [text]
    return [path.rstrip(".") for path in _PATH.findall(text)]


def prior_in(text: str) -> object:
    """Return a point and what became of it; a text that does not say the latter is no answer to it."""
    match = _PROGRESS.fullmatch(text)
    word = re.sub(r"[\s-]+", "_", match[2].strip().casefold()) if match else ""
    if match and (word in set(Progress) or word in WORDS[Progress]):
        return {"message": match[1].strip(), "status": word}
    return None


def feedback_in(text: str) -> object:
    """Return a point with the weight and the place that stand before it."""
    found: dict[str, str] = {"message": text}
    weighed = _WEIGHT.fullmatch(text)
    word = weighed[1].casefold() if weighed else ""
    if weighed and (word in set(Severity) or word in WORDS[Severity]):
        found = {"message": weighed[2], "severity": word}
    if place := _PLACE.fullmatch(found["message"]):
        found |= {"file": place[1], "line": place[2], "message": place[3]}
    return found


def first_number(text: str) -> str:
    """Return the first line of `10-12`, `L10` or `lines 10 to 12`."""
    match = re.match(r"\s*(?:lines?|l)?\s*(\d+)", text, re.IGNORECASE)
    return match[1] if match else text


def of_ten(text: str) -> str:
    match = re.fullmatch(r"\s*(\d+)\s*/\s*10\s*", text)
    return match[1] if match else text


def id_in(text: str) -> str:
    """Return an id for a name with blanks in it; what would be a path stays one, and is refused."""
    return re.sub(r"[\s:,#()\[\]'\"`]+", "-", text.strip()).strip("-")


MANNERS: Final = Manners(
    words=WORDS,
    keys=KEYS,
    texts={
        Validation: validation_in,
        Scope: scope_in,
        Feedback: feedback_in,
        PriorFeedback: prior_in,
        Found: lambda text: {"description": text},
        Unblocked: lambda text: {"guidance": text},
        Abandoned: lambda text: {"reason": text},
    },
    lists={
        Validation: lambda parts: {"command": " && ".join(parts)},
        Scope: lambda parts: {"in": parts},
    },
    cleaned={
        (Validation, "command"): lambda text: text.strip(" `") if text.count("`") == 2 else text,  # noqa: PLR2004
        (Feedback, "line"): first_number,
        (Review, "confidence"): of_ten,
        (Planned, "id"): id_in,
        (Planned, "depends_on"): id_in,
    },
    ornaments=frozenset(
        {
            (Review, "confidence"),
            (Feedback, "line"),
            (Feedback, "severity"),
            (Found, "urgency"),
            (CheckpointAnswer, "status"),
        }
    ),
    names=frozenset({"depends_on", "files_to_modify", "include", "exclude"}),
)
