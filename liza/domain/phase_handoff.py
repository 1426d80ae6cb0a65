"""What a phase hands to the next: a few typed facts instead of the whole conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import Field, ValidationError

from liza.domain.problems import violations_from
from liza.domain.record import NonEmptyStr, Record

if TYPE_CHECKING:
    from liza.domain.issues import Issue
    from liza.domain.model import Task


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


class HandoffKind(StrEnum):
    """What a phase hands on; the document says which."""

    PLAN = "plan"
    WORK = "work"
    DOCS = "docs"

    @property
    def artifact(self) -> str:
        """The name by which it is kept on a task."""
        return f"{self}_handoff"


HANDOFF_NAMES: Final = frozenset(kind.artifact for kind in HandoffKind)
HANDOFFS: Final[dict[HandoffKind, type[Record]]] = {
    HandoffKind.PLAN: PlanHandoff,
    HandoffKind.WORK: ImplementHandoff,
    HandoffKind.DOCS: DocsHandoff,
}


class HandoffReading(NamedTuple):
    """A hand-off that can be used, or none; *remarks* say what was left out."""

    value: Record | None
    remarks: tuple[str, ...] = ()


def parse_handoff(kind: HandoffKind, data: Mapping[str, Any]) -> HandoffReading:
    """Return what *data* hands on as *kind*; a part that is wrong is left out and told."""
    kept = dict(data)
    remarks: list[str] = []
    while True:
        try:
            return HandoffReading(HANDOFFS[kind].model_validate(kept), tuple(remarks))
        except ValidationError as error:
            wrong = str(error.errors()[0]["loc"][0])
            remarks.append(str(violations_from(error, HANDOFFS[kind], "handoff", {})[0]))
            if wrong not in kept:
                return HandoffReading(None, tuple(remarks))
            del kept[wrong]


def handoffs_of(task: Task) -> dict[HandoffKind, Record]:
    """Return what earlier phases handed on, the latest of each kind."""
    kept = {kind: task.artifacts.get(kind.artifact) for kind in HandoffKind}
    found = {kind: parse_handoff(kind, json.loads(one.text)).value for kind, one in kept.items() if one}
    return {kind: value for kind, value in found.items() if value is not None}


def issue_text(issue: Issue, branch: str | None = None) -> str:
    """Return what whoever plans is told of *issue*: all of it, and what work there is."""
    said = [f"{comment.author} says:\n{comment.body.strip()}" for comment in issue.comments]
    return "\n\n".join([_heading(issue.number, issue.title), issue.body, *said, *_begun(branch)])


def phase_input(task: Task) -> str:
    """Return what whoever works on *task* is told: all of it for a plan, then only what was handed on."""
    handed, issue = handoffs_of(task), task.issue
    plan, done = handed.get(HandoffKind.PLAN), handed.get(HandoffKind.WORK)
    made_in = task.artifacts[HandoffKind.PLAN.artifact].phase if plan else None
    is_planning = task.position is not None and task.position.phase == made_in
    if issue is None or not isinstance(plan, PlanHandoff) or is_planning:
        return task.description
    parts = [_heading(issue.number, issue.title), plan_handoff_text(plan)]
    if isinstance(done, ImplementHandoff) and done.files_changed:
        parts.append(_list_text("Files that were changed", done.files_changed))
    return "\n\n".join([*parts, *_begun(issue.branch if issue.begins else None)])


def _heading(number: int, title: str) -> str:
    return f"Issue #{number}: {title}"


def _begun(branch: str | None) -> list[str]:
    return (
        [f"There is work on the branch {branch}: go on with it, and make no other branch."] if branch else []
    )


def plan_handoff_text(plan: PlanHandoff) -> str:
    steps = [
        f"{step.order}. {step.description}{f' ({step.file})' if step.file else ''}"
        for step in sorted(plan.implementation_steps, key=lambda step: step.order)
    ]
    parts = [
        f"The plan: {plan.summary}",
        "\n".join(steps),
        f"The plan in full: {plan.plan_file}" if plan.plan_file else "",
        _list_text("Files to modify", plan.files_to_modify),
        _list_text("Files to create", plan.files_to_create),
        f"How it is tested: {plan.testing_approach}" if plan.testing_approach else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _list_text(heading: str, items: tuple[str, ...]) -> str:
    return f"{heading}:\n" + "\n".join(f"- {item}" for item in items) if items else ""
