"""What a gate says about a tree, and what a phase of the workflow came to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from liza.domain.record import Commit, Id, NonEmptyStr, Record, Time

JUDGE: Final = "judge"  # to the rules, whoever gives a verdict
LONGEST_TAIL: Final = 4000  # characters of a command's output that the board keeps; the run's folder has all


class Severity(StrEnum):
    BLOCKER = "blocker"
    CONCERN = "concern"


class Feedback(Record):
    message: NonEmptyStr
    file: str | None = None
    line: Annotated[int, Field(ge=1)] | None = None
    severity: Severity = Severity.BLOCKER
    suggestion: str | None = None


class Outcome(StrEnum):
    """What a gate, or a phase, comes to; `MEANING` says what each means."""

    PASS = "pass"  # noqa: S105 - no password
    ASK = "ask"
    REVISE = "revise"
    STOP = "stop"
    BLOCK = "block"
    NONE = "none"


MEANING: Final[dict[Outcome, str]] = {
    Outcome.PASS: "nothing is in the way",
    Outcome.ASK: "a person has to answer first; no round is used up",
    Outcome.REVISE: "it goes back to whoever made it, with what is wrong",
    Outcome.STOP: "the work is given up",
    Outcome.BLOCK: "somebody has to think before anybody goes on",
    Outcome.NONE: "there was no verdict; the workflow says what that means, and never that it passed",
}


class Evidence(Record):
    """What a gate saw, so that nobody has to take its word."""

    command: NonEmptyStr | None = None
    code: int | None = None
    tail: str = ""
    run: Id | None = None  # the folder under runs/ that has the whole output
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def last_lines(self, most: int) -> tuple[str, ...]:
        """Return the last lines of what was printed, at most *most*."""
        return tuple(line for line in self.tail.splitlines() if line.strip())[-most:]


class Verdict(Record):
    """What *gate* says about *tree*; about another tree it says nothing."""

    gate: Id
    outcome: Outcome
    at: Time
    tree: Commit | None = None
    reason: NonEmptyStr | None = None
    feedback: tuple[Feedback, ...] = ()
    label: NonEmptyStr | None = None
    confidence: Annotated[int, Field(ge=0, le=10)] | None = None  # how sure a reviewer's agent says it is
    evidence: Evidence | None = None

    @property
    def judging_worker(self) -> str | None:
        """The worker whose agent gave this verdict; None for a machine."""
        seen = self.evidence
        return seen.run.partition(".")[0] if seen and seen.run and seen.command is None else None

    def signals(self) -> tuple[Signal, ...]:
        """Return what rules count of it; nothing of a machine's."""
        if self.judging_worker is None:
            return ()
        said = Signal(name=SignalName.VERDICT, value=self.outcome.value, at=self.at, role=JUDGE)
        sure = said.replace(name=SignalName.CONFIDENCE, value=self.confidence)
        return (said,) if self.confidence is None else (said, sure)


class Decision(Record):
    """What a phase came to; rules count these, never a single gate's verdict."""

    phase: NonEmptyStr
    outcome: Outcome
    at: Time
    reason: NonEmptyStr | None = None
    output: NonEmptyStr | None = None  # a digest of what a command printed, numbers and places left out
    is_merge: bool = False  # about the tree that would be merged: no rejection of the work by itself


class Risk(StrEnum):
    """How risky an agent says that its work is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SignalName(StrEnum):
    TESTS = "tests"  # passed or failed, as the maker of the work says
    VERDICT = "verdict"  # the outcome
    SILENCE = "silence"  # no verdict, where one was asked for
    CONFIDENCE = "confidence"  # of ten
    RISK = "risk"  # low, medium or high, of the step that is next


class Signal(Record):
    """What an agent said, or left unsaid, beside its work and its verdicts; rules count it."""

    name: SignalName
    at: Time
    value: NonEmptyStr | int | None = None
    phase: NonEmptyStr | None = None
    role: NonEmptyStr | None = None
