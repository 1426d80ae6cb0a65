"""What holds in every workflow, whatever anybody says."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.model import End
from liza.workflow import engine
from liza.workflow.document import Phase, packaged_names
from liza.workflow.engine import GateJob, ProceedJob, WaitJob, WorkJob
from tests.support.workflow_script import WorkflowScript

LONGEST: Final = 120  # answers; enough for every limit of the four to be reached
VERDICTS: Final = [
    "pass",
    "pass",
    "pass",
    "pass/SIMPLE",
    "pass/COMPLEX",
    "pass/more_loops",
    "revise",
    "block",
    "stop",
    "ask",
    "none",
]
WORKS: Final = ["work", "work", "work", "nothing", "revise", "block", "stop", "ask", "none", "crash"]
FACTS: Final = ["no_code", "upfront_plan", "risk_medium_or_high", "test_command", "empty_output"]


def answers(flow: WorkflowScript) -> list[str]:
    """Return what may be said to the job that is next."""
    match engine.next_job(flow.workflow, flow.position, flow.facts):
        case WorkJob():
            return WORKS
        case GateJob():
            return [*VERDICTS, "crash"]
        case ProceedJob():
            return ["go"]
        case WaitJob(on=on):
            return ["accept"] if on == ":taint" else VERDICTS
    return []


def told(flow: WorkflowScript, choices: list[int]) -> list[str]:
    """Drive *flow* by *choices* until it ends or they do; return what was said."""
    said = []
    for choice in choices:
        words = answers(flow)
        if not words:
            break
        said.append(words[choice % len(words)])
        flow.say(said[-1])
        check(flow)
    return said


def check(flow: WorkflowScript) -> None:
    """Assert what holds at every step."""
    position, workflow = flow.position, flow.workflow
    assert position.phase in workflow.phases
    for name, used in position.iterations.items():
        assert within(workflow.phases[name], used)
    assert set(position.accepted) <= set(position.taints)
    assert (engine.next_job(workflow, position, flow.facts) is None) == (position.end is not None)
    assert len({verdict.gate for verdict in position.verdicts}) == len(position.verdicts)


def within(phase: Phase, used: int) -> bool:
    return not phase.max_iterations or used <= max(phase.max_iterations.values())


# Mostly what brings the work on, which comes first, so that many scripts come far.
SCRIPTS: Final = st.dictionaries(st.integers(0, LONGEST), st.integers(1, 100), max_size=15).map(
    lambda odd: [odd.get(step, 0) for step in range(LONGEST)]
)
WORKFLOWS: Final = st.sampled_from(packaged_names())
SOME: Final = st.sets(st.sampled_from(FACTS))


@pytest.mark.parametrize("name", packaged_names())
def test_work_that_everybody_likes_is_done(name: str) -> None:
    """So that what is said below about work that is done is said about something."""
    flow = WorkflowScript(name)

    told(flow, [0] * LONGEST)

    assert flow.end == End.DONE
    assert flow.position.taints == ()


@given(name=WORKFLOWS, choices=SCRIPTS, facts=SOME)
def test_nothing_is_done_that_nobody_let_pass(name: str, choices: list[int], facts: set[str]) -> None:
    """Without a mark, what is done is the very tree that somebody let pass, but for what does not count."""
    flow = WorkflowScript(name, *sorted(facts))

    told(flow, choices)

    if flow.end in {End.DONE, End.NOTHING_TO_DO} and not flow.position.taints:
        made = flow.workflow.phases[flow.position.made_in or ""]
        approved = [verdict.tree for verdict in flow.position.approvals]
        assert flow.position.tree in approved or not made.blocking


@given(name=WORKFLOWS, choices=SCRIPTS, facts=SOME)
def test_nothing_marked_is_merged_before_a_person_accepts_it(
    name: str, choices: list[int], facts: set[str]
) -> None:
    flow = WorkflowScript(name, *sorted(facts))
    for choice in choices:
        words = answers(flow)
        if not words:
            break
        before = flow.position
        job = flow.next
        moved = flow.say(words[choice % len(words)])
        if job == "merge":
            assert not before.is_tainted
        if {"commit_or_merge", "archive", "finalize_pr"} & set(moved.effects):
            assert not moved.position.is_tainted


@given(name=WORKFLOWS, choices=SCRIPTS, facts=SOME)
def test_a_path_gives_its_own_number_of_rounds(name: str, choices: list[int], facts: set[str]) -> None:
    """A simple piece of work gets fewer; as long as nobody chose, the numbers of every other path count."""
    flow = WorkflowScript(name, *sorted(facts))

    told(flow, choices)

    for phase, used in flow.position.iterations.items():
        limits = flow.workflow.phases[phase].max_iterations
        # The phase in which the path is chosen began without one.
        path = "*" if phase == flow.workflow.start else flow.position.path or "*"
        assert not limits or used <= limits.get(path, limits.get("*", used))


@given(name=WORKFLOWS, choices=SCRIPTS, facts=SOME)
def test_the_same_answers_lead_to_the_same_place(name: str, choices: list[int], facts: set[str]) -> None:
    first = WorkflowScript(name, *sorted(facts))

    said = told(first, choices)

    assert WorkflowScript(name, *sorted(facts)).play(said).position == first.position


@given(name=WORKFLOWS, choices=SCRIPTS, cut=st.integers(0, LONGEST))
def test_a_position_survives_being_written_down(name: str, choices: list[int], cut: int) -> None:
    """Another process goes on where one ended."""
    flow = WorkflowScript(name, "test_command")
    told(flow, choices[:cut])

    flow.position = type(flow.position).model_validate(flow.position.to_json())

    told(flow, choices[cut:])
    again = WorkflowScript(name, "test_command")
    told(again, choices)
    assert flow.position == again.position
