"""The human gate: the question to a person, and the meaning of the answer. Silence is no answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from liza.domain.record import NonEmptyStr, Record
from liza.domain.verdicts import Outcome
from liza.gates.context import GateContext
from liza.gates.finding import Finding, blocker
from liza.workflow.document import QUESTIONS

_DECISIVE: Final = frozenset({Outcome.PASS, Outcome.REVISE, Outcome.STOP, Outcome.BLOCK})


class HumanOptions(Record):
    asks: Literal["approve", "answer", "risk"] = "approve"
    question: NonEmptyStr | None = None
    remind_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60


def question_for(options: HumanOptions, case: GateContext) -> str:
    """Return what a person is asked about the task."""
    subject = case.task.description.splitlines()[0]
    return f"{case.task.id} ({subject}): {options.question or QUESTIONS[options.asks]}"


def judge(options: HumanOptions, case: GateContext) -> Finding:
    """Return what a person said about this very tree; until then, that they are asked."""
    word = case.said.word
    if word is None or word.outcome not in _DECISIVE:
        return Finding(Outcome.ASK, question_for(options, case), label=_overdue_label(options, case))
    if word.tree is not None and word.tree != case.tree:
        reason = f"{question_for(options, case)} The answer of {word.by} was about another tree."
        return Finding(Outcome.ASK, reason)
    said = f"{word.by} said: {word.text}" if word.text.strip() else f"{word.by} said {word.outcome}"
    feedback = (blocker(word.text),) if word.outcome is not Outcome.PASS and word.text.strip() else ()
    return Finding(word.outcome, said, feedback)


def _overdue_label(options: HumanOptions, case: GateContext) -> str | None:
    """Say that it is time to remind; that is all that a timeout ever does."""
    if case.said.asked is None:
        return None
    late = case.clock() - case.said.asked >= timedelta(minutes=options.remind_minutes)
    return "overdue" if late else None
