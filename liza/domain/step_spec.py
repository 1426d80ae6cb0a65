"""The step of one loop as a planner writes it: small, with a risk, and with what to avoid."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from pydantic import Field

from liza.domain.config import Count
from liza.domain.record import NonEmptyStr, Record
from liza.domain.size_limit import ChangeSize, SizeLimit, oversize
from liza.domain.verdicts import Risk

MOST_LINES: Final = 50  # of instructions
STEP_LIMIT: Final = SizeLimit(max_loc=150, max_files=2)


class RiskRow(NamedTuple):
    operations: tuple[str, ...]
    needs_person: bool
    meaning: str


RISKS: Final[dict[Risk, RiskRow]] = {
    Risk.LOW: RiskRow(
        ("refactor", "documentation", "tests", "comments"),
        needs_person=False,
        meaning="the judge may pass it alone",
    ),
    Risk.MEDIUM: RiskRow(
        ("api_changes", "schema_migrations", "dependencies", "configuration"),
        needs_person=True,
        meaning="a person agrees before it is done",
    ),
    Risk.HIGH: RiskRow(
        ("authentication", "authorization", "data_deletion", "secrets_management", "deployment"),
        needs_person=True,
        meaning="a person agrees before it is done, and everybody is told",
    ),
}


class StepSpec(Record):
    objective: NonEmptyStr
    instructions: NonEmptyStr
    files: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    loc_estimate: Count
    risk: Risk
    success_criteria: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    avoid: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    operations: tuple[NonEmptyStr, ...] = ()  # words of `RISKS`, where they fit


def step_risk(step: StepSpec) -> Risk:
    """Return the risk of a step: what the planner says, or more where what it names is riskier."""
    named = [level for level, row in RISKS.items() if set(row.operations) & set(step.operations)]
    return max([step.risk, *named], key=list(RISKS).index)


def step_problems(
    step: StepSpec, limit: SizeLimit = STEP_LIMIT, *, is_waived: bool = False
) -> tuple[str, ...]:
    """Return why a step cannot be given to anybody; nothing where it can."""
    size = oversize(ChangeSize(step.loc_estimate, len(step.files)), limit, is_waived=is_waived)
    lines = len(step.instructions.splitlines())
    long = [f"the instructions have {lines} lines, and {MOST_LINES} may be"] if lines > MOST_LINES else []
    return tuple(f"{problem}; split the step over several loops" for problem in [*size, *long])
