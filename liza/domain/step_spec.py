"""The step of one loop as a planner writes it: small, with a risk, and with what to avoid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from pydantic import Field, ValidationError

from liza.domain.config import Count
from liza.domain.record import Commit, NonEmptyStr, Record
from liza.domain.size_limit import ChangeSize, SizeLimit, oversize
from liza.domain.verdicts import Risk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.model import Artifact

STEP: Final = "step"  # the name of the artifact
LOOPS: Final = "loops"  # and of the one with the plan of all loops up front
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


class IssuedStep(StepSpec):
    """A step as it was given out, with the commit that it begins at."""

    base: Commit


def issued_step(artifacts: Mapping[str, Artifact]) -> IssuedStep | None:
    """Return the step that a task is at; None where nobody plans in steps."""
    if STEP not in artifacts:
        return None
    try:
        return IssuedStep.model_validate_json(artifacts[STEP].text)
    except ValidationError:  # another workflow calls something else so
        return None


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
