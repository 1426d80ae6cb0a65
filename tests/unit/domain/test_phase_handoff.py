"""Hand-offs between phases: what can be used is, what is wrong is told, and a plan is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.issues import Issue, IssueComment
from liza.domain.model import Artifact, Position, Task, TaskIssue
from liza.domain.phase_handoff import (
    HANDOFFS,
    HandoffKind,
    ImplementHandoff,
    PlanHandoff,
    PlannedStep,
    issue_text,
    parse_handoff,
    phase_input,
)
from liza.domain.record import Record
from tests.support.sample_tasks import NOW, new_task

ISSUE = Issue(
    number=7,
    title="Fix the crash",
    body="It crashes on empty input.",
    comments=(IssueComment(author="ada", body="with a test\n"),),
)
PLAN = PlanHandoff(
    summary="guard the parser",
    plan_file=".liza/plan.md",
    files_to_modify=("parser.py",),
    implementation_steps=(
        PlannedStep(order=2, description="test it"),
        PlannedStep(order=1, description="guard", file="a.py"),
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_what_is_wrong_is_left_out_and_told() -> None:
    found = parse_handoff(HandoffKind.PLAN, {"summary": "s", "files_to_modify": "a.py", "mood": "good"})

    assert found.value == PlanHandoff(summary="s")
    assert any("files_to_modify: it has to be a list" in remark for remark in found.remarks)
    assert any("'mood' is not a key that belongs here" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (HandoffKind.PLAN, {}, None),
        (HandoffKind.PLAN, {"summary": " "}, None),
        (HandoffKind.WORK, {"tests_passed": True, "commits": [{"hash": "abc"}]}, True),
        (HandoffKind.DOCS, {}, True),
    ],
)
def test_only_a_plan_without_a_summary_hands_nothing_on(
    kind: HandoffKind, data: dict[str, Any], value: bool | None
) -> None:
    found = parse_handoff(kind, data)

    assert (found.value is not None) == bool(value)
    assert bool(found.remarks) != bool(value)


@given(
    st.sampled_from(sorted(HANDOFFS)),
    st.dictionaries(
        st.sampled_from(sorted({name for kind in HANDOFFS.values() for name in kind.model_fields})),
        json_values,
    ),
)
def test_whatever_an_agent_hands_on_it_is_used_or_told(kind: HandoffKind, data: dict[str, Any]) -> None:
    found = parse_handoff(kind, data)

    assert found.value is not None or found.remarks
    assert found.value is None or isinstance(found.value, HANDOFFS[kind])


def handed(**kinds: Record) -> Task:
    """Return the task of an issue with what earlier phases handed on, in the phase DO."""
    kept = {
        HandoffKind[kind].artifact: Artifact(
            text=json.dumps(value.to_json()), phase=kind, at=NOW, by="coder-1"
        )
        for kind, value in kinds.items()
    }
    issue = TaskIssue(number=7, title="Fix the crash", branch="bug/issue-7-x", begins="a" * 40)
    text = issue_text(ISSUE, "bug/issue-7-x")
    return new_task(description=text, issue=issue, artifacts=kept, position=Position(phase="DO"))


def test_whoever_plans_is_told_all_of_the_issue() -> None:
    assert (
        issue_text(ISSUE) == "Issue #7: Fix the crash\n\nIt crashes on empty input.\n\nada says:\nwith a test"
    )
    assert phase_input(handed()) == issue_text(ISSUE, "bug/issue-7-x")


def test_each_phase_is_told_what_it_needs() -> None:
    """Whoever implements sees the plan and not the issue's text; whoever documents sees what was changed."""
    done = ImplementHandoff(files_changed=("parser.py", "test_parser.py"))

    implement, docs = phase_input(handed(PLAN=PLAN)), phase_input(handed(PLAN=PLAN, WORK=done))

    assert "It crashes" not in implement
    assert "1. guard (a.py)\n2. test it" in implement
    assert implement.endswith(
        "There is work on the branch bug/issue-7-x: go on with it, and make no other branch."
    )
    assert "Files that were changed:\n- parser.py\n- test_parser.py" in docs


def test_whoever_plans_again_is_told_all_of_it_again() -> None:
    task = handed(PLAN=PLAN)

    assert phase_input(task.replace(position=Position(phase="PLAN"))) == task.description
    assert phase_input(task.replace(issue=None)) == task.description
