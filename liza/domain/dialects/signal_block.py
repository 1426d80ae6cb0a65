"""SIGNAL BLOCKs: read in the forms that are met in the wild, written in one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.domain.dialects.reading import (
    NOTHING,
    DialectReading,
    keyword,
    one_line,
    parts_below,
    refuse,
    refuse_word,
    says_something,
)
from liza.domain.fenced_blocks import is_quoted
from liza.domain.verdicts import Outcome

HIGHEST_CONFIDENCE: Final = 10
MOST_BLOCKS: Final = 20  # of one answer that are looked at, from its end; each is held against the prompt
SIGNAL_RESULTS: Final[dict[str, dict[str, Outcome]]] = {
    "human": {
        "INIT": Outcome.PASS,
        "APPROVED": Outcome.PASS,
        "REVISION_REQUESTED": Outcome.REVISE,
        "MERGE_APPROVED": Outcome.PASS,
        "DELETE_APPROVED": Outcome.PASS,
    },
    "planner": {
        "CLARIFICATION_NEEDED": Outcome.ASK,
        "PLAN_CREATED": Outcome.PASS,
        "PLAN_UPDATED": Outcome.PASS,
        "FINAL_PLAN_CREATED": Outcome.PASS,
    },
    "actor": {
        "SUCCESS": Outcome.PASS,
        "FAIL": Outcome.REVISE,
        "PR_MERGED": Outcome.PASS,
        "GOAL_CYCLE_COMPLETE": Outcome.PASS,
    },
    "judge": {"PASS": Outcome.PASS, "SUFFICIENT": Outcome.PASS, "INSUFFICIENT": Outcome.REVISE},
}
_ROUTING_KEYS: Final = ("agent", "result", "next")
_SUMMARY_KEYS: Final = ("step summary", "loop summary", "goal summary", "summary")
_HEADER: Final = re.compile(r"^[ \t]*(?:#{1,6}[ \t]*)?(?:\*\*)?SIGNAL BLOCK\b[^\n]*$", re.MULTILINE)
_BLOCK_END: Final = re.compile(
    r"^[ \t]*(?:-{3,}[ \t]*$|`{3,}|~{3,}|#{1,3}[ \t]+(?!Signature\b))", re.MULTILINE
)
_FIELD: Final = re.compile(
    r"^[ \t]*(?:[-*][ \t]+)?(?:\*\*)?([A-Za-z][A-Za-z /_-]{0,40}?)(?:\*\*)?:(?:\*\*)?[ \t]*(.*)$",
    re.MULTILINE,
)
_SIGNATURE: Final = re.compile(r"\b(\d+)[:.](\d+|FINAL)[:.](\d+)\b")
_OLD_SIGNATURE: Final = re.compile(r"\bAgent[ \t]*=[ \t]*(\w+)[ \t]*\|.*?\bStep[ \t]*=[ \t]*(\w+)")
_QUESTION: Final = re.compile(r"^[ \t]*(?:\d+[.)]|[-*])[ \t]+(\S.*\?)[ \t]*$", re.MULTILINE)
_AFTER_PASS: Final = {
    ("judge", "planner"): "progressing",
    ("judge", "human"): "sufficient",
    ("human", "planner"): "more_loops",
}


def read_signal_block(text: str, role: str, prompt: str) -> DialectReading:
    if role not in SIGNAL_RESULTS:
        return refuse(f"the {role} has no results in a SIGNAL BLOCK; let it answer in another dialect")
    latest = reversed(_signal_blocks(text)[-MOST_BLOCKS:])
    block = next((one for one in latest if not is_quoted(one, prompt)), None)
    if block is None:
        return refuse("there is no SIGNAL BLOCK of your own; end your answer with one")
    said, twice = _block_fields(block)
    if twice:
        return refuse(f"the SIGNAL BLOCK says {twice} twice, and not the same; say it once")
    speaker = keyword(said.get("agent", role)).casefold()
    old = _OLD_SIGNATURE.search(block)
    signed = old[1].casefold() if old else role
    if other := next((name for name in (speaker, signed) if name != role), None):
        return refuse(
            f"the SIGNAL BLOCK is in the name of {other!r}, and the {role} was asked; write your own"
        )
    return _judge_block(role, said, text)


def _judge_block(role: str, said: dict[str, str], text: str) -> DialectReading:
    words = SIGNAL_RESULTS[role]
    value = said.get("result", "")
    word = keyword(value)
    if not word:
        return refuse(f"the SIGNAL BLOCK has no Result; use one of {', '.join(words)}")
    if word not in words:
        return refuse_word(word, role, words)
    found = {words[one] for one in re.findall(r"\w+", value) if one in words}
    next_role = keyword(said.get("next", "")).casefold() or None
    if problem := _contradiction(word, found, said, next_role):
        return refuse(problem, word)
    confidence, oddities = _confidence(said.get("confidence"))
    signature = _SIGNATURE.search(said.get("signature", ""))
    fields = said | ({"signature": ":".join(signature.groups())} if signature else {})
    outcome = _outcome_of(role, words[word], said, next_role)
    summary = next((said[key] for key in _SUMMARY_KEYS if said.get(key)), None)
    questions = tuple(_QUESTION.findall(text)) or ((summary,) if summary else ())
    return DialectReading(
        outcome,
        word,
        reason=summary,
        label=_label(role, outcome, said, next_role),
        confidence=confidence,
        next_role=next_role,
        fields=MappingProxyType(fields),
        feedback=tuple(said[key] for key in ("issues found", "context") if says_something(said.get(key))),
        questions=questions if outcome is Outcome.ASK else (),
        oddities=oddities,
    )


def _signal_blocks(text: str) -> list[str]:
    """Return what stands below each header, up to a rule, a fence, a heading or the next header."""
    return [_BLOCK_END.split(below, maxsplit=1)[0] for _, below in parts_below(_HEADER, text)]


def _block_fields(block: str) -> tuple[dict[str, str], str | None]:
    """Return the fields of *block* by key, and the key that routes and has two values."""
    said: dict[str, str] = {}
    for key, value in _FIELD.findall(block):
        name, text = " ".join(key.casefold().split()), value.strip()
        if name in _ROUTING_KEYS and name in said and keyword(said[name]) != keyword(text):
            return said, key.strip()
        said.setdefault(name, text)
    return said, None


def _contradiction(
    word: str, found: set[Outcome], said: Mapping[str, str], next_role: str | None
) -> str | None:
    if len(found) > 1:
        return f"the Result {said['result']!r} says two things; say one"
    outcome = next(iter(found))
    if outcome is Outcome.PASS and says_something(said.get("blockers")):
        return f"the Result is {word}, and Blockers are named; say which of both holds"
    if outcome is Outcome.ASK and next_role not in {None, "human"}:
        return (
            f"the Result is {word}, and Next is {next_role!r}; only a person can answer, so say Next: Human"
        )
    return None


def _outcome_of(role: str, outcome: Outcome, said: Mapping[str, str], next_role: str | None) -> Outcome:
    gives_up = role == "actor" or says_something(said.get("blockers"))
    return Outcome.BLOCK if outcome is Outcome.REVISE and next_role == "human" and gives_up else outcome


def _label(role: str, outcome: Outcome, said: Mapping[str, str], next_role: str | None) -> str | None:
    """Return how far the goal is, from what was said of it or else from who is next."""
    if outcome is not Outcome.PASS:
        return None
    status = said.get("goal status") or said.get("superordinate status") or ""
    if role == "judge" and status:
        return "sufficient" if re.search(r"\bSUFFICIENT\b", status.upper()) else "progressing"
    return _AFTER_PASS.get((role, next_role or ""))


def _confidence(value: str | None) -> tuple[int | None, tuple[str, ...]]:
    """Return a confidence from 0 to 10, and what was odd about it; the low end of a range counts."""
    if value is None:
        return None, ()
    found = re.search(r"-?\d+", value)
    if found is None:
        return None, (f"the confidence {value!r} is no number from 0 to {HIGHEST_CONFIDENCE}",)
    number = int(found[0])
    kept = min(max(number, 0), HIGHEST_CONFIDENCE)
    return kept, () if kept == number else (f"the confidence {number} is not from 0 to {HIGHEST_CONFIDENCE}",)


def signature_problem(reading: DialectReading, expected: str) -> str | None:
    """Return the sentence for a signature that is not the one that the board assigns."""
    found = reading.fields.get("signature")
    return None if found in {None, "", expected} else f"the signature is {found}, and {expected} was due"


class SignalBlock(NamedTuple):
    """What a SIGNAL BLOCK says, for people."""

    agent: str
    result: str
    summary: str
    next_role: str
    signature: str
    confidence: int | None = None
    fields: Mapping[str, str] = NOTHING


# What is written matches this, for whoever watches the file from outside.
SIGNAL_PATTERN: Final = re.compile(
    r"^### SIGNAL BLOCK\n\n- Agent: (Human|Planner|Actor|Judge)\n- Result: ([A-Z_]+)\n- Loop Summary: (.+)\n"
    r"(?:- Confidence: (\d+)\n)?- Next: (Human|Planner|Actor|Judge)$",
    re.MULTILINE,
)


def render_signal_block(block: SignalBlock) -> str:
    lines = [
        f"- Agent: {block.agent.capitalize()}",
        f"- Result: {block.result}",
        f"- Loop Summary: {one_line(block.summary) or '(nothing was said)'}",
        *([f"- Confidence: {block.confidence}"] if block.confidence is not None else []),
        f"- Next: {block.next_role.capitalize()}",
        *(f"- {key}: {one_line(value)}" for key, value in block.fields.items()),
    ]
    return "\n".join(["### SIGNAL BLOCK", "", *lines, "", f"**Signature**: {block.signature}"])


# What the next agent needs, by who hands over to whom; each item is there under one of its keys.
HAND_OVER: Final[dict[tuple[str, str], tuple[tuple[str, ...], ...]]] = {
    ("planner", "actor"): (
        ("files in scope", "files"),
        ("what to change", "instructions"),
        ("what to avoid",),
        ("success criteria", "win-state"),
    ),
    ("actor", "judge"): (("files changed",), ("what changed",), ("why",), ("test summary", "testing notes")),
    ("judge", "planner"): (
        ("diagnosis", "discrepancy"),
        ("root cause", "main source"),
        ("recommended changes",),
    ),
    ("judge", "human"): (("goal status", "superordinate status"), ("step status",), ("next steps",)),
}


def missing_context(reading: DialectReading, role: str) -> tuple[str, ...]:
    """Return what *role* should have told the next agent and did not."""
    wanted = HAND_OVER.get((role, reading.next_role or ""), ())
    return tuple(
        keys[0] for keys in wanted if not any(says_something(reading.fields.get(key)) for key in keys)
    )
