"""Tables for lenient parsing of answers: synonyms of enum words, aliases of keys, texts for records.

A word stands here only if it has one meaning. Only `approve` approves, in any case or inflection: a verdict
is never guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.domain.answer_coercion import CoercionTables
from liza.domain.answers import (
    AbandonDecision,
    CheckpointAnswer,
    FeedbackStatus,
    FoundWork,
    Implement,
    PlannedTask,
    PriorFeedback,
    Readiness,
    Review,
    Ruling,
    UnblockDecision,
    WorkStatus,
)
from liza.domain.model import TaskKind, TaskScope, Urgency, Validation
from liza.domain.verdicts import Feedback, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

    from pydantic import BaseModel


def _synonyms(**words: str) -> dict[str, str]:
    """Return a mapping from each listed word to its meaning."""
    return {word: meaning for meaning, listed in words.items() for word in listed.split()}


ENUM_SYNONYMS: Final[Mapping[type[StrEnum], Mapping[str, str]]] = {
    WorkStatus: _synonyms(
        done="complete completed finished implemented success succeeded",
        blocked="block stuck",
        nothing_to_do="nothing nothing_to_be_done no_op noop no_change no_changes no_changes_needed "
        "already_done",
    ),
    Readiness: _synonyms(blocked="block stuck", ready="ok go proceed begin"),
    Ruling: _synonyms(
        approve="approved approves",
        reject="rejected rejects rejection request_changes requested_changes changes_requested needs_work "
        "revise",
        block="blocked blocks",
    ),
    FeedbackStatus: _synonyms(
        addressed="fixed resolved done mended closed solved",
        partial="partially partly partially_addressed partially_fixed incomplete",
        open="unaddressed not_addressed unresolved not_resolved not_fixed still_open unfixed",
    ),
    TaskKind: _synonyms(
        code="coding feature bug bugfix bug_fix fix refactor refactoring implementation",
        docs="doc documentation document",
        config="configuration conf settings",
    ),
    Severity: _synonyms(
        blocker="block blocking blocks critical severe major high error must must_fix fatal",
        concern="concerns minor medium moderate low nit nitpick info note remark suggestion warning "
        "trivial style",
    ),
    Urgency: _synonyms(
        immediate="urgent now high critical asap", deferred="later defer low medium minor normal"
    ),
}
KEY_ALIASES: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    PlannedTask: _synonyms(
        done_when="acceptance_criteria criteria acceptance",
        depends_on="dependencies depends deps",
        needs="labels requires",
        spec_ref="spec",
    ),
    TaskScope: _synonyms(**{"in": "includes included", "out": "excludes excluded"}),
    Validation: _synonyms(command="cmd run", expect="expected expected_output expects output"),
    CheckpointAnswer: _synonyms(files_to_modify="files files_to_change", blocked_questions="questions"),
    Implement: _synonyms(blocked_questions="questions", discovered="discoveries"),
    Feedback: _synonyms(
        message="comment text issue problem description", file="path filename", line="line_number lines",
        suggestion="fix recommendation suggested_fix",
    ),
    Review: _synonyms(reason="rationale reasoning", feedback="comments"),
    PriorFeedback: _synonyms(message="point feedback item"),
    FoundWork: _synonyms(description="what message text"),
    UnblockDecision: _synonyms(guidance="reason message"),
    AbandonDecision: _synonyms(reason="why"),
}  # fmt: skip
# What may stand beside an approval without being asked for. All else could take it back.
HARMLESS_KEYS: Final = frozenset(
    {
        *("checked", "checks", "comment", "date", "done_when", "files_changed", "files_reviewed"),
        *("iteration", "model", "note", "notes", "praise", "priority", "reviewer", "role", "score", "step"),
        *("strengths", "summary", "tests", "tests_run", "timestamp", "usage"),
    }
)

_ARROW: Final = re.compile(r"\s*(?:->|→|=>|⇒)\s*")
_IN_BACKTICKS: Final = re.compile(r"[^`]*`([^`]+)`[\s,;.:]*(.*)", re.DOTALL)
_SUCCEEDS: Final = re.compile(
    r"\s+(?:should\s+|must\s+|will\s+|all\s+)?(?:pass(?:es)?|succeeds?|is\s+green|exits\s+(?:with\s+)?0)\.?$",
    re.IGNORECASE,
)
_RUN: Final = re.compile(r"^(?:run|execute|running)\s+(?=\S)", re.IGNORECASE)
_EXPECTED: Final = re.compile(
    r"\s*[,;:]?\s*\b(?:expect(?:ed|s|ing)?(?:\s+output)?|prints?|outputs?|shows?)\b[:\s]+(.*)", re.IGNORECASE
)
_SCOPE_SIDE: Final = re.compile(r"\b(in|out)(?:\s+of\s+scope)?\s*:", re.IGNORECASE)
_PATH: Final = re.compile(r"[\w.@*-]+(?:/[\w.@*-]*)+|[\w*-]+\.\w{1,8}\b|\*\.\w+")
_PROGRESS: Final = re.compile(r"(.*\S)\s*(?::|->|→|-|\()\s*([\w -]+?)\)?\s*", re.DOTALL)
_SEVERITY_PREFIX: Final = re.compile(r"\s*\[?\(?([A-Za-z-]+)\)?\]?\s*:\s+(.*\S)\s*", re.DOTALL)
_LOCATION_PREFIX: Final = re.compile(r"([\w./-]+\.\w+):(\d+)(?:[:,-]\d+)*:?\s+(.*\S)", re.DOTALL)


def validation_in(text: str) -> object:
    """Return the command, and what it prints, in a text such as "`pytest -q` -> 3 passed"."""
    command, expect = text.strip(), ""
    if ticked := _IN_BACKTICKS.fullmatch(command):
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
    sides = _SCOPE_SIDE.split(text)
    if len(sides) == 1:
        return {"in": paths_named_in(text)}
    found: dict[str, list[str]] = {"in": paths_named_in(sides[0]), "out": []}
    for side, listed in zip(sides[1::2], sides[2::2], strict=True):
        found[side.casefold()] += paths_named_in(listed)
    return found


def paths_named_in(text: str) -> list[str]:
    text = text.strip(" \n`'\",;.") if " " not in text.strip() else text
    if text and not re.search(r"[\s,;]", text):
        return [text]
    return [path.rstrip(".") for path in _PATH.findall(text)]


def prior_feedback_in(text: str) -> object:
    """Return an earlier point and its status; None where the text gives no status."""
    match = _PROGRESS.fullmatch(text)
    word = re.sub(r"[\s-]+", "_", match[2].strip().casefold()) if match else ""
    if match and (word in set(FeedbackStatus) or word in ENUM_SYNONYMS[FeedbackStatus]):
        return {"message": match[1].strip(), "status": word}
    return None


def feedback_in(text: str) -> object:
    """Return a feedback record, with the severity and the file and line that the text begins with."""
    found: dict[str, str] = {"message": text}
    weighed = _SEVERITY_PREFIX.fullmatch(text)
    word = weighed[1].casefold() if weighed else ""
    if weighed and (word in set(Severity) or word in ENUM_SYNONYMS[Severity]):
        found = {"message": weighed[2], "severity": word}
    if place := _LOCATION_PREFIX.fullmatch(found["message"]):
        found |= {"file": place[1], "line": place[2], "message": place[3]}
    return found


def first_number(text: str) -> str:
    """Return the first line of `10-12`, `L10` or `lines 10 to 12`."""
    match = re.match(r"\s*(?:lines?|l)?\s*(\d+)", text, re.IGNORECASE)
    return match[1] if match else text


def score_of_ten(text: str) -> str:
    match = re.fullmatch(r"\s*(\d+)\s*/\s*10\s*", text)
    return match[1] if match else text


def id_in(text: str) -> str:
    """Return an id for a name with blanks in it; what would be a path stays one, and is refused."""
    return re.sub(r"[\s:,#()\[\]'\"`]+", "-", text.strip()).strip("-")


COERCION_TABLES: Final = CoercionTables(
    words=ENUM_SYNONYMS,
    keys=KEY_ALIASES,
    texts={
        Validation: validation_in,
        TaskScope: scope_in,
        Feedback: feedback_in,
        PriorFeedback: prior_feedback_in,
        FoundWork: lambda text: {"description": text},
        UnblockDecision: lambda text: {"guidance": text},
        AbandonDecision: lambda text: {"reason": text},
    },
    lists={
        Validation: lambda parts: {"command": " && ".join(parts)},
        TaskScope: lambda parts: {"in": parts},
    },
    cleaned={
        (Validation, "command"): lambda text: text.strip(" `") if text.count("`") == 2 else text,  # noqa: PLR2004
        (Feedback, "line"): first_number,
        (Review, "confidence"): score_of_ten,
        (PlannedTask, "id"): id_in,
        (PlannedTask, "depends_on"): id_in,
    },
    ornaments=frozenset(
        {
            (Review, "confidence"),
            (Feedback, "line"),
            (Feedback, "severity"),
            (FoundWork, "urgency"),
            (CheckpointAnswer, "status"),
        }
    ),
    names=frozenset({"depends_on", "files_to_modify", "include", "exclude"}),
)
