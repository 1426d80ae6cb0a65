"""Answers in the dialect that a role speaks: whatever it is, the same few results come out of a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from liza.domain.answer_parsing import ParsedAnswer, UnreadableAnswer, parse_answer
from liza.domain.answers import Implement, Review, Ruling, Step, TestsEnd, WorkStatus
from liza.domain.dialects.reading import DialectReading
from liza.domain.dialects.registry import DIALECTS, read_dialect
from liza.domain.memory import Remembered
from liza.domain.step_spec import StepSpec
from liza.domain.verdicts import Feedback, Outcome, Risk

OWN_BLOCK: Final = "```liza"
OWN_DIALECT: Final = "yaml"  # a tagged block of YAML at the end of the reply
KNOWN_DIALECTS: Final = (OWN_DIALECT, *DIALECTS)
MOST_QUESTIONS: Final = 3
NOTHING_TO_DO: Final = "NOTHING_TO_DO"  # the label of a worker that found nothing to do
_TESTS: Final = {"TESTS_PASSED": TestsEnd.PASSED, "TESTS_FAILED": TestsEnd.FAILED}
# The fields of a step, by the keys that a block may have for each.
_STEP_FIELDS: Final = {
    "objective": ("objective", "loop summary", "step summary", "summary"),
    "instructions": ("what to change", "instructions", "context"),
    "files": ("files in scope", "files"),
    "loc_estimate": ("estimated loc", "loc estimate"),
    "risk": ("risk", "risk level"),
    "success_criteria": ("success criteria", "win-state"),
    "avoid": ("what to avoid", "avoid"),
}
_LISTS: Final = frozenset({"files", "success_criteria", "avoid"})
_RULINGS: Final = {Outcome.PASS: Ruling.APPROVE, Outcome.REVISE: Ruling.REJECT}


def read_answer(
    dialect: str, text: str, step: Step, *, role: str, prompt: str
) -> ParsedAnswer | UnreadableAnswer:
    """Return what *role* answers to *step* in *text*, or why that cannot be read."""
    if dialect == OWN_DIALECT or step not in {Step.IMPLEMENT, Step.REVIEW}:
        return parse_answer(text, step, prompt=prompt)
    reading = read_dialect(dialect, text, role=role, prompt=prompt)
    if reading.outcome is Outcome.NONE:
        # Who is asked for the answer alone is asked for our own block, whatever they speak, and nothing else.
        own = parse_answer(text, step, prompt=prompt) if text.strip().startswith(OWN_BLOCK) else None
        if isinstance(own, ParsedAnswer):
            return own
        return UnreadableAnswer(reading.problem or "there is no result in the answer")
    value = _review(reading) if step is Step.REVIEW else _work(reading, text)
    return ParsedAnswer(value, reading.oddities)


def _review(reading: DialectReading) -> Review:
    reason = reading.reason or reading.word or str(reading.outcome)
    said = (*reading.feedback, *reading.questions) or (reason,)
    return Review(
        verdict=_RULINGS.get(reading.outcome, Ruling.BLOCK),
        reason=reason,
        feedback=() if reading.outcome is Outcome.PASS else tuple(Feedback(message=one) for one in said),
        label=reading.label,
        confidence=reading.confidence,
    )


def _work(reading: DialectReading, text: str) -> Implement:
    reason = reading.reason or reading.word or str(reading.outcome)
    if reading.outcome is Outcome.PASS:
        risk = Risk(reading.risk) if reading.risk else None
        told = reading.fields.get("plan") or text.strip() or reason
        kept = tuple(Remembered(type=kind, text=said) for kind, said in reading.memory)
        return Implement(
            status=WorkStatus.NOTHING_TO_DO if reading.label == NOTHING_TO_DO else WorkStatus.DONE,
            summary=told,
            risk=risk,
            confidence=reading.confidence,
            step=_step(reading),
            handoff=dict(reading.handoff) if isinstance(reading.handoff, Mapping) else None,
            tests_ended=_tests(reading),
            remember=kept,
        )
    asked = reading.questions[:MOST_QUESTIONS] or (f"How should this be settled: {reason}",)
    return Implement(status=WorkStatus.BLOCKED, blocked_reason=reason, blocked_questions=asked)


def _step(reading: DialectReading) -> StepSpec | None:
    """Return the step that a block describes; None where it does not say all of it."""
    said = {
        name: next((reading.fields[key] for key in keys if reading.fields.get(key)), "")
        for name, keys in _STEP_FIELDS.items()
    }
    number = re.search(r"\d+", said["loc_estimate"])
    values = {name: _items(text) if name in _LISTS else text for name, text in said.items()}
    try:
        return StepSpec.model_validate(
            {**values, "loc_estimate": number and int(number[0]), "risk": reading.risk}
        )
    except ValidationError:
        return None


def _items(text: str) -> list[str]:
    return [item for part in re.split(r"[,;]", text) if (item := part.strip(" `"))]


def _tests(reading: DialectReading) -> TestsEnd | None:
    return _TESTS.get(reading.word or "")
