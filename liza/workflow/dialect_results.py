"""What the engine and the rules make of an answer in a dialect: work, a verdict, signals."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from liza.domain.dialects.reading import DialectReading
from liza.domain.verdicts import Evidence, Feedback, Outcome, Signal, SignalName, Verdict
from liza.workflow.position import Worked

NOTHING_TO_DO: Final = "NOTHING_TO_DO"  # the label of a worker that found nothing to do
_TESTS: Final = {"TESTS_PASSED": "passed", "TESTS_FAILED": "failed"}


def worked_from(reading: DialectReading, *, at: datetime, tree: str | None, run: str | None = None) -> Worked:
    """Return what the work of a run came to; *tree* is what git says that it made."""
    return Worked(
        at,
        reading.outcome,
        reading.problem or reading.reason,
        tree,
        run,
        nothing_to_do=reading.outcome is Outcome.PASS and reading.label == NOTHING_TO_DO,
    )


def verdict_from(
    reading: DialectReading, *, gate: str, at: datetime, tree: str | None, evidence: Evidence | None = None
) -> Verdict:
    """Return what an agent said of *tree*; a reading without an outcome is no verdict, with its sentence."""
    messages = reading.feedback or ((reading.reason,) if reading.reason else ())
    is_against = reading.outcome in {Outcome.REVISE, Outcome.BLOCK}
    return Verdict(
        gate=gate,
        outcome=reading.outcome,
        at=at,
        tree=tree,
        reason=reading.problem or reading.reason or reading.word,
        feedback=tuple(Feedback(message=message) for message in messages) if is_against else (),
        label=reading.label,
        confidence=reading.confidence,
        evidence=evidence,
    )


def signals_from(reading: DialectReading, *, at: datetime, phase: str, role: str) -> tuple[Signal, ...]:
    """Return what rules count of a worker's answer: how its tests ended, how sure it is."""
    tests = _TESTS.get(reading.word or "")
    said = {SignalName.TESTS: tests, SignalName.CONFIDENCE: reading.confidence}
    return tuple(
        Signal(name=name, value=value, at=at, phase=phase, role=role)
        for name, value in said.items()
        if value is not None
    )
