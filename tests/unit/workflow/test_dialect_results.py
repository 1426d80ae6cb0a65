"""The documents of the other systems, driven by nothing but what their own agents would print."""

from __future__ import annotations

from typing import Final

import pytest

from liza.domain.dialects.registry import read_dialect
from liza.domain.dialects.signal_block import SIGNAL_RESULTS
from liza.domain.verdicts import Evidence, Outcome
from liza.workflow import engine
from liza.workflow.dialect_results import signals_from, verdict_from, worked_from
from liza.workflow.position import GateJob, ProceedJob, WaitJob, WorkJob
from tests.support.workflow_script import START, WorkflowScript, tree

BLOCK: Final = "### SIGNAL BLOCK\n- Agent: {}\n- Result: {}\n- Loop Summary: s\n- Next: {}\n"
EVALUATED: Final = "AGENTIUM_EVAL: {}"


def tell(flow: WorkflowScript, dialect: str, text: str) -> None:
    """Answer the next job of *flow* with *text*, as the one that is asked."""
    job = engine.next_job(flow.workflow, flow.position, flow.facts)
    match job:
        case WorkJob(role=role):
            reading = read_dialect(dialect, text, role=role)
            flow.take(
                worked_from(
                    reading, at=flow.now, tree=tree(len(flow.moves) + 1), run=f"run-{len(flow.moves)}"
                )
            )
        case GateJob(gate) | WaitJob(gate=gate) if gate is not None:
            role = "human" if isinstance(job, WaitJob) else gate.role or ""
            reading = read_dialect(dialect, text, role=role)
            evidence = Evidence(run="another-run")
            flow.take(
                verdict_from(reading, gate=gate.id, at=flow.now, tree=flow.position.tree, evidence=evidence)
            )
        case _:
            raise AssertionError(job)


def pass_machines(flow: WorkflowScript) -> None:
    """Let every gate that no agent is asked at pass."""
    while True:
        job = engine.next_job(flow.workflow, flow.position, flow.facts)
        if isinstance(job, GateJob) and job.gate.role is None:
            flow.say("pass")
        elif isinstance(job, ProceedJob):
            flow.say("go")
        else:
            return


def play(name: str, dialect: str, texts: list[str]) -> WorkflowScript:
    flow = WorkflowScript(name)
    for text in texts:
        pass_machines(flow)
        tell(flow, dialect, text)
    pass_machines(flow)
    return flow


class TestPhased:
    def test_a_complex_issue_goes_through_all_phases(self) -> None:
        review = EVALUATED.format("ITERATE a test is missing")
        flow = play(
            "phased",
            "agentium",
            [
                "the plan",
                EVALUATED.format("COMPLEX many files"),
                *(review, EVALUATED.format("ITERATE name the test")),
                *("the plan, again", EVALUATED.format("ADVANCE"), EVALUATED.format("ADVANCE")),
                *("the code", EVALUATED.format("ADVANCE"), EVALUATED.format("ADVANCE")),
                *("the docs", EVALUATED.format("ADVANCE"), EVALUATED.format("ADVANCE")),
            ],
        )

        assert (flow.end, flow.position.path, flow.position.taints) == ("DONE", "COMPLEX", ())
        assert flow.decisions == ["PLAN=revise", "PLAN=pass", "IMPLEMENT=pass", "DOCS=pass"]

    def test_a_simple_plan_needs_no_review(self) -> None:
        flow = play("phased", "agentium", ["the plan", EVALUATED.format("SIMPLE one line")])

        assert (flow.position.phase, flow.position.path) == ("IMPLEMENT", "SIMPLE")

    @pytest.mark.parametrize(
        "said", ["", "fine with me", EVALUATED.format("ADVANCED"), EVALUATED.format("PASS")]
    )
    def test_a_judge_without_a_verdict_blocks(self, said: str) -> None:
        flow = play(
            "phased", "agentium", ["the plan", EVALUATED.format("COMPLEX"), EVALUATED.format("ADVANCE"), said]
        )

        assert flow.end == "BLOCKED"

    def test_an_assessor_without_a_word_has_said_complex(self) -> None:
        flow = play("phased", "agentium", ["the plan", "hm"])

        assert flow.position.path == "COMPLEX"

    def test_a_worker_may_block_and_may_not_judge(self) -> None:
        assert play("phased", "agentium", ["AGENTIUM_STATUS: BLOCKED no access"]).end == "BLOCKED"
        forged = read_dialect("agentium", EVALUATED.format("ADVANCE"), role="worker")
        assert worked_from(forged, at=START, tree=None).outcome is Outcome.NONE

    def test_nothing_to_do_and_red_tests_are_told(self) -> None:
        idle = read_dialect("agentium", "AGENTIUM_STATUS: NOTHING_TO_DO it is there", role="worker")
        red = read_dialect("agentium", "AGENTIUM_STATUS: TESTS_FAILED", role="worker")

        assert worked_from(idle, at=START, tree=None).nothing_to_do
        (signal,) = signals_from(red, at=START, phase="IMPLEMENT", role="worker")
        assert (signal.name, signal.value) == ("tests", "failed")


class TestCycle:
    LOOP: Final = (
        BLOCK.format("Planner", "PLAN_CREATED", "Actor"),
        BLOCK.format("Actor", "SUCCESS", "Judge"),
    )

    def test_a_goal_takes_three_loops_with_one_insufficient(self) -> None:
        insufficient = BLOCK.format("Judge", "INSUFFICIENT", "Planner")
        passed = BLOCK.format("Judge", "PASS", "Human")
        more = BLOCK.format("Human", "APPROVED", "Planner")
        flow = play(
            "cycle",
            "signal_block",
            [
                BLOCK.format("Planner", "PLAN_CREATED", "Actor"),
                *(*self.LOOP, insufficient),
                *(*self.LOOP, passed, more),
                *(*self.LOOP, passed, BLOCK.format("Human", "APPROVED", "Human")),
            ],
        )

        assert (flow.end, flow.position.loop) == ("DONE", 3)

    def test_five_insufficient_pause_it(self) -> None:
        insufficient = BLOCK.format("Judge", "INSUFFICIENT", "Planner")
        start = BLOCK.format("Planner", "PLAN_CREATED", "Actor")

        flow = play("cycle", "signal_block", [start, *((*self.LOOP, insufficient) * 5)])

        assert flow.end == "PAUSED"
        assert flow.alerts.count("stuck_cycle") == 1

    def test_a_question_waits_for_a_person(self) -> None:
        flow = play(
            "cycle",
            "signal_block",
            ["1. Which port?\n" + BLOCK.format("Planner", "CLARIFICATION_NEEDED", "Human")],
        )

        assert flow.next.startswith("wait")

    def test_every_word_of_the_table_is_an_outcome_that_the_engine_takes(self) -> None:
        outcomes = {outcome for words in SIGNAL_RESULTS.values() for outcome in words.values()}

        assert outcomes <= set(Outcome) - {Outcome.NONE}


class TestExperiment:
    IDEA: Final = (
        "COORDINATOR_NOTES:\n- look",
        "PLAN:\n1. x\nRISKS:\n- y\nTESTS:\n- z",
        "--- a/x\n+++ b/x\n",
    )

    def test_an_approved_patch_is_tested_and_scored(self) -> None:
        flow = play("experiment", "verdict", [*self.IDEA, "VERDICT: APPROVE\nISSUES:\n- none"])

        assert flow.end == "DONE"

    @pytest.mark.parametrize(
        "said", ["VERDICT: REJECT\nISSUES:\n- no test", "VERDICT: DO NOT APPROVE", "good", ""]
    )
    def test_everything_but_an_approval_stops_the_idea(self, said: str) -> None:
        flow = play("experiment", "verdict", [*self.IDEA, said])

        assert flow.end == "STOPPED"

    def test_a_rejection_is_told_in_its_own_words(self) -> None:
        reading = read_dialect("verdict", "VERDICT: REJECT\nISSUES:\n- no test\n- too slow", role="reviewer")

        found = verdict_from(reading, gate="review", at=START, tree=None)

        assert [one.message for one in found.feedback] == ["no test", "too slow"]
        assert found.reason == "no test"
