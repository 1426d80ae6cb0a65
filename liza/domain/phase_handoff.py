"""What a phase hands to the next: a few typed facts instead of the whole conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, ValidationError

from liza.domain.issues import Issue
from liza.domain.problems import violations_from
from liza.domain.record import NonEmptyStr, Record


class PlannedStep(Record):
    order: Annotated[int, Field(ge=1)]
    description: NonEmptyStr
    file: str | None = None
    notes: str | None = None


class PlanHandoff(Record):
    """What a plan says to whoever implements it."""

    summary: NonEmptyStr
    plan_file: str | None = None
    files_to_modify: tuple[NonEmptyStr, ...] = ()
    files_to_create: tuple[NonEmptyStr, ...] = ()
    implementation_steps: tuple[PlannedStep, ...] = ()
    testing_approach: str = ""


class HandedCommit(Record):
    hash: NonEmptyStr
    message: str = ""


class ImplementHandoff(Record):
    """What was implemented, as whoever did it says; git knows better."""

    branch_name: str | None = None
    commits: tuple[HandedCommit, ...] = ()
    files_changed: tuple[NonEmptyStr, ...] = ()
    tests_passed: bool | None = None
    test_output: str = ""
    draft_pr_number: Annotated[int, Field(ge=1)] | None = None
    draft_pr_url: str | None = None


class DocsHandoff(Record):
    docs_updated: tuple[NonEmptyStr, ...] = ()
    readme_changed: bool = False


HANDOFFS: Final[dict[str, type[Record]]] = {
    "PLAN": PlanHandoff,
    "IMPLEMENT": ImplementHandoff,
    "DOCS": DocsHandoff,
}
NO_PLAN: Final = (
    "there is no plan to hand on: say it in AGENTIUM_HANDOFF, with a summary, before the phase can end"
)


class HandoffReading(NamedTuple):
    """A hand-off that can be used, or none; *remarks* say what was left out."""

    value: Record | None
    remarks: tuple[str, ...] = ()


def parse_handoff(phase: str, data: Mapping[str, Any]) -> HandoffReading:
    """Return what *data* hands on from *phase*; a part that is wrong is left out and told."""
    kind = HANDOFFS.get(phase)
    if kind is None:
        return HandoffReading(None, (f"the phase {phase} hands nothing on",))
    kept = dict(data)
    remarks: list[str] = []
    while True:
        try:
            return HandoffReading(kind.model_validate(kept), tuple(remarks))
        except ValidationError as error:
            wrong = str(error.errors()[0]["loc"][0])
            remarks.append(str(violations_from(error, kind, "handoff", {})[0]))
            if wrong not in kept:
                return HandoffReading(None, tuple(remarks))
            del kept[wrong]


def missing_plan(handoffs: Mapping[str, Record]) -> str | None:
    """Return why PLAN cannot be left yet; None where there is a plan to hand on."""
    return None if isinstance(handoffs.get("PLAN"), PlanHandoff) else NO_PLAN


def phase_input(phase: str, issue: Issue, handoffs: Mapping[str, Record], branch: str | None = None) -> str:
    """Return what a worker of *phase* is told: the whole issue for a plan, then only what was handed on."""
    head = f"Issue #{issue.number}: {issue.title}"
    work = (
        [f"There is work on the branch {branch}: go on with it, and make no other branch."] if branch else []
    )
    plan, done = handoffs.get("PLAN"), handoffs.get("IMPLEMENT")
    if phase == "PLAN" or not isinstance(plan, PlanHandoff):
        said = [f"{comment.author} says:\n{comment.body.strip()}" for comment in issue.comments]
        return "\n\n".join([head, issue.body, *said, *work])
    parts = [head, _plan_text(plan)]
    if phase == "DOCS" and isinstance(done, ImplementHandoff) and done.files_changed:
        parts.append(_listed("Files that were changed", done.files_changed))
    return "\n\n".join([*parts, *work])


def _plan_text(plan: PlanHandoff) -> str:
    steps = [
        f"{step.order}. {step.description}{f' ({step.file})' if step.file else ''}"
        for step in sorted(plan.implementation_steps, key=lambda step: step.order)
    ]
    parts = [
        f"The plan: {plan.summary}",
        "\n".join(steps),
        f"The plan in full: {plan.plan_file}" if plan.plan_file else "",
        _listed("Files to modify", plan.files_to_modify),
        _listed("Files to create", plan.files_to_create),
        f"How it is tested: {plan.testing_approach}" if plan.testing_approach else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _listed(heading: str, items: tuple[str, ...]) -> str:
    return f"{heading}:\n" + "\n".join(f"- {item}" for item in items) if items else ""
