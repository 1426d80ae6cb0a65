"""The four workflows, told as stories: what is asked, what is answered, where it ends."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from liza.domain.config import Limits
from liza.domain.model import End, Evidence, Outcome
from liza.errors import Refused
from liza.workflow import engine
from liza.workflow.document import Edge, OnExhausted, Workflow, load_workflow
from liza.workflow.engine import JobResult, Worked
from tests.support.workflow_script import WorkflowScript, tree

CODED: Final = f"pass work {'pass ' * 12}"  # the checkpoint, the work, and all that machines check
PLANNED: Final = "work pass pass/COMPLEX pass pass "  # hand-off, assessor, reviewer, judge
JUDGED: Final = "work pass pass "  # work, reviewer, judge
REJECTED: Final = "work revise revise "
ALIGNED: Final = "work "
STEP: Final = "work pass pass pass work pass "  # plan with two gates; then the scan, the work, its size
GREEN: Final = "pass pass pass pass "  # suite, lint, security, size


class Trace(NamedTuple):
    name: str
    workflow: str | Workflow
    script: str
    end: str | None = None
    decisions: str | None = None
    taints: str = ""
    next: str | None = None
    alerts: str = ""
    effects: str = ""
    facts: tuple[str, ...] = ()


def changed(name: str, phase: str, **changes: object) -> Workflow:
    """Return the workflow *name* with *changes* to one of its phases."""
    workflow = load_workflow(name)
    phases = {**workflow.phases, phase: workflow.phases[phase].replace(**changes)}
    return workflow.replace(phases=phases)


def with_gate(name: str, phase: str, gate: str, **changes: object) -> Workflow:
    """Return the workflow *name* with *changes* to one gate of one of its phases."""
    gates = load_workflow(name).phases[phase].gates
    return changed(
        name, phase, gates=tuple(one.replace(**changes) if one.id == gate else one for one in gates)
    )


PROGRESSING: Final = changed(
    "cycle", "JUDGE", edges={"revise": Edge(to="PLAN"), "pass/progressing": Edge(to="PLAN")}
)
REPAIRS: Final = changed("experiment", "CODE", max_iterations={"*": 3})
PROCEEDS: Final = changed("experiment", "CODE", on_exhausted=OnExhausted.FORCE_PASS)

LIZA: Final = [
    Trace(
        "checkpoint, code, validation, review, merge",
        "liza",
        CODED + "pass pass pass",
        "DONE",
        "CODE=pass REVIEW=pass INTEGRATE=pass",
    ),
    Trace(
        "no code needs no tests and no proof",
        "liza",
        "pass work " + "pass " * 10,
        next="review",
        facts=("no_code",),
    ),
    Trace(
        "the same reason twice",
        "liza",
        (CODED + "revise:the_name_lies ") * 2,
        "BLOCKED",
        "CODE=pass REVIEW=revise CODE=pass REVIEW=revise",
        alerts="warn_rejections",
    ),
    Trace(
        "two reasons are not one",
        "liza",
        f"{CODED} revise:no_test {CODED} revise:bad_name",
        next="checkpoint",
        alerts="warn_rejections",
    ),
    Trace(
        "three rejections",
        "liza",
        f"{CODED} revise:no_test {CODED} revise:bad_name {CODED} revise:slow_loop",
        "BLOCKED",
        alerts="warn_rejections",
    ),
    Trace("gates reject three times", "liza", "pass work revise " * 3, "BLOCKED", alerts="warn_rejections"),
    Trace(
        "a gate and a reviewer reject",
        "liza",
        f"pass work revise {CODED} revise",
        next="checkpoint",
        alerts="warn_rejections",
    ),
    Trace(
        "a conflict goes back to the coder",
        "liza",
        CODED + "pass pass revise/INTEGRATION_FAILED",
        None,
        "CODE=pass REVIEW=pass INTEGRATE=revise",
        next="checkpoint",
    ),
    Trace("red on the merged tree goes back", "liza", CODED + "pass revise:red", next="checkpoint"),
    Trace("a file out of scope", "liza", "pass work pass revise:out", None, "CODE=revise", next="checkpoint"),
    Trace(
        "code without tests",
        "liza",
        "pass work " + "pass " * 6 + "revise",
        None,
        "CODE=revise",
        next="checkpoint",
    ),
    Trace("no checkpoint, no work", "liza", "revise:nothing_written", None, "CODE=revise", next="checkpoint"),
    Trace("a reviewer without a verdict", "liza", CODED + "none", "BLOCKED", "CODE=pass REVIEW=block"),
    Trace("a reviewer that blocks", "liza", CODED + "block:unclear", "BLOCKED"),
    Trace("a coder that blocks", "liza", "pass block:unclear", "BLOCKED", "CODE=block"),
    Trace(
        "a coder that crashes starts over, in the same round", "liza", "pass crash crash", next="CODE:coder"
    ),
    Trace("no progress in five attempts", "liza", "pass crash crash crash crash crash", "BLOCKED"),
    Trace("a reviewer that crashes is tried again", "liza", CODED + "crash", next="review"),
    Trace("a reviewer that crashes twice approves nothing", "liza", CODED + "crash crash", "BLOCKED"),
    Trace("nothing to do, and the reviewer confirms it", "liza", "pass nothing pass", "NOTHING_TO_DO"),
    Trace(
        "nothing to do, and the reviewer knows better",
        "liza",
        "pass nothing revise:there_is",
        next="checkpoint",
    ),
]

PHASED: Final = [
    Trace(
        "simple: reviewer and judge are left out of the plan",
        "phased",
        "work pass pass/SIMPLE " + JUDGED * 2,
        "DONE",
        "PLAN=pass IMPLEMENT=pass DOCS=pass",
        effects="ensure_draft_pr finalize_pr",
    ),
    Trace(
        "complex, with a second round",
        "phased",
        f"work pass pass/COMPLEX revise revise work pass pass pass {REJECTED} {JUDGED} {JUDGED}",
        "DONE",
        "PLAN=revise PLAN=pass IMPLEMENT=revise IMPLEMENT=pass DOCS=pass",
        effects="ensure_draft_pr ensure_draft_pr finalize_pr",
    ),
    Trace(
        "complex, and forced through",
        "phased",
        PLANNED + REJECTED * 5 + JUDGED,
        "DONE",
        taints="forced:IMPLEMENT",
        effects="ensure_draft_pr " * 5 + "mark_nomerge",
    ),
    Trace(
        "simple, and forced through",
        "phased",
        "work pass pass/SIMPLE " + REJECTED * 2 + JUDGED,
        "DONE",
        "PLAN=pass IMPLEMENT=revise IMPLEMENT=revise DOCS=pass",
        taints="forced:IMPLEMENT",
        effects="ensure_draft_pr ensure_draft_pr mark_nomerge",
    ),
    Trace(
        "a judge that lets the last round pass forces nothing",
        "phased",
        PLANNED + REJECTED * 4 + JUDGED * 2,
        "DONE",
        effects="ensure_draft_pr " * 5 + "finalize_pr",
    ),
    Trace("a silent judge", "phased", "work pass pass/COMPLEX pass none", "BLOCKED", "PLAN=block"),
    Trace(
        "a judge that blocks",
        "phased",
        PLANNED + "work pass block",
        "BLOCKED",
        "PLAN=pass IMPLEMENT=block",
        effects="ensure_draft_pr",
    ),
    Trace(
        "documentation that is never good enough",
        "phased",
        PLANNED + JUDGED + REJECTED * 3,
        "DONE",
        effects="ensure_draft_pr finalize_pr",
    ),
    Trace("a silent assessor has said complex", "phased", "work pass none", next="review"),
    Trace("an assessor that cannot be run", "phased", "work pass crash crash", "BLOCKED"),
    Trace(
        "a judge that overrides the reviewer",
        "phased",
        PLANNED + "work revise pass " + JUDGED,
        "DONE",
        taints="overrode_reviewer",
        effects="ensure_draft_pr mark_nomerge",
    ),
    Trace(
        "a reviewer that cannot be run",
        "phased",
        "work pass pass/COMPLEX crash crash pass",
        next="IMPLEMENT:worker",
        taints="forced:PLAN/review",
    ),
    Trace(
        "a plan that hands nothing on", "phased", "work revise", next="PLAN:thinker", decisions="PLAN=revise"
    ),
    Trace("a crash is a round", "phased", "crash crash", next="PLAN:thinker"),
    Trace("crashes alone advance nothing", "phased", "crash crash crash", "BLOCKED", "PLAN=revise"),
]

CYCLE: Final = [
    Trace(
        "a person has to approve",
        "cycle",
        ALIGNED + STEP + GREEN + "pass",
        next="wait human_ok",
        decisions="ALIGN=pass PLAN=pass ACT=pass JUDGE=pass",
    ),
    Trace("and does", "cycle", ALIGNED + STEP + GREEN + "pass pass pass pass", "DONE", effects="archive"),
    Trace(
        "and wants more",
        "cycle",
        ALIGNED + STEP + GREEN + "pass pass/more_loops",
        next="PLAN:planner",
    ),
    Trace("and wants it otherwise", "cycle", ALIGNED + STEP + GREEN + "pass revise", next="PLAN:planner"),
    Trace("and says nothing", "cycle", ALIGNED + STEP + GREEN + "pass none", next="wait human_ok"),
    Trace(
        "five loops: blocked, and the alert was told once",
        "cycle",
        ALIGNED + (STEP + GREEN + "revise ") * 5,
        "BLOCKED",
        alerts="stuck_cycle",
    ),
    Trace(
        "four loops",
        "cycle",
        ALIGNED + (STEP + GREEN + "revise ") * 4,
        next="PLAN:planner",
        alerts="stuck_cycle",
    ),
    Trace(
        "a pass, and the person who sends it back, begin the count anew",
        "cycle",
        ALIGNED
        + (STEP + GREEN + "revise ") * 4
        + STEP
        + GREEN
        + "pass revise "
        + (STEP + GREEN + "revise ") * 4,
        next="PLAN:planner",
        alerts="stuck_cycle stuck_cycle",
    ),
    Trace("an actor that fails", "cycle", ALIGNED + "work pass pass pass revise:stuck", next="PLAN:planner"),
    Trace(
        "an actor that fails five times",
        "cycle",
        ALIGNED + "work pass pass pass revise:stuck " * 5,
        "BLOCKED",
    ),
    Trace(
        "a step that is too large", "cycle", ALIGNED + "work pass pass pass work revise", next="PLAN:planner"
    ),
    Trace("the planner asks", "cycle", "ask", next="wait answers"),
    Trace("and is answered", "cycle", "ask pass", next="PLAN:planner", decisions="ALIGN=pass"),
    Trace("the planner asks within a loop", "cycle", ALIGNED + "ask", "BLOCKED"),
    Trace("and is answered there", "cycle", ALIGNED + "ask answer", next="PLAN:planner"),
    Trace("a risk", "cycle", ALIGNED + "work pass pass", next="wait risk", facts=("risk_medium_or_high",)),
    Trace("a forbidden command asks", "cycle", ALIGNED + "work pass pass ask", next="wait forbidden"),
    Trace("and a person lets it pass", "cycle", ALIGNED + "work pass pass ask pass", next="ACT:actor"),
    Trace("or has it looked at again", "cycle", ALIGNED + "work pass pass ask answer", next="forbidden"),
    Trace(
        "a red suite under a lenient judge",
        "cycle",
        ALIGNED + (STEP + "revise:red pass pass pass pass ") * 5,
        "BLOCKED",
        alerts="stuck_cycle",
    ),
    Trace(
        "the judge sees all that machines found",
        "cycle",
        ALIGNED + STEP + "revise revise",
        next="security",
    ),
    Trace(
        "progress without a person",
        PROGRESSING,
        ALIGNED + STEP + GREEN + "pass/progressing",
        next="PLAN:planner",
    ),
    Trace(
        "sufficient needs one", PROGRESSING, ALIGNED + STEP + GREEN + "pass/sufficient", next="wait human_ok"
    ),
]

LAST: Final = "write_summary cleanup_worktree"
EXPERIMENT: Final = [
    Trace("an idea becomes a score", "experiment", "work work work pass pass go pass", "DONE", effects=LAST),
    Trace("a patch that does not apply", "experiment", "work work work revise", "STOPPED", effects=LAST),
    Trace("a patch that is rejected", "experiment", "work work work pass revise", "STOPPED", effects=LAST),
    Trace("a reviewer without a verdict", "experiment", "work work work pass none", "STOPPED", effects=LAST),
    Trace(
        "red tests",
        "experiment",
        "work work work pass pass revise",
        "STOPPED",
        effects=LAST,
        facts=("test_command",),
    ),
    Trace(
        "a sweep that fails is scored all the same",
        "experiment",
        "work work work pass pass pass revise",
        "DONE",
        effects=LAST,
        facts=("test_command",),
    ),
    Trace(
        "a bad score decides nothing",
        "experiment",
        "work work work pass pass go revise",
        "DONE",
        effects=LAST,
    ),
    Trace(
        "a sweep that cannot be run",
        "experiment",
        "work work work pass pass go crash crash",
        "DONE",
        effects=LAST,
    ),
    Trace(
        "a reviewer that blocks an idea stops it",
        "experiment",
        "work work work pass block",
        "STOPPED",
        effects=LAST,
    ),
    Trace("rounds of repair", REPAIRS, "work work work pass revise work revise work pass pass", next="go"),
    Trace("and no more", REPAIRS, "work work work revise work revise work revise", "STOPPED", effects=LAST),
    Trace(
        "rejected, and run all the same",
        PROCEEDS,
        "work work work pass revise go pass",
        "DONE",
        taints="forced:CODE",
        effects=LAST,
    ),
]

TRACES: Final = [*LIZA, *PHASED, *CYCLE, *EXPERIMENT]


def named(trace: Trace) -> str:
    workflow = trace.workflow if isinstance(trace.workflow, str) else trace.workflow.name
    return f"{workflow}: {trace.name}"


@pytest.mark.parametrize("trace", TRACES, ids=named)
def test_a_story_ends_as_it_is_told(trace: Trace) -> None:
    flow = WorkflowScript(trace.workflow, *trace.facts).play(trace.script)

    assert flow.end == trace.end
    assert flow.next == (trace.next or "-")
    assert list(flow.position.taints) == trace.taints.split()
    assert flow.alerts == trace.alerts.split()
    assert flow.effects == trace.effects.split()
    if trace.decisions is not None:
        assert flow.decisions == trace.decisions.split()


@pytest.mark.parametrize("trace", TRACES, ids=named)
def test_the_same_results_lead_to_the_same_place(trace: Trace) -> None:
    first = WorkflowScript(trace.workflow, *trace.facts).play(trace.script)
    again = WorkflowScript(trace.workflow, *trace.facts).play(trace.script)

    assert again.position == first.position
    assert again.moves == first.moves


class TestLiza:
    def test_the_order_of_the_gates(self) -> None:
        flow = WorkflowScript("liza").play(CODED + "pass pass pass")

        assert " ".join(flow.jobs) == (
            "checkpoint CODE:coder diff scope secrets commands refs setup tests_present lint test validation "
            "done_when proof review merge_test merge"
        )

    def test_the_limit_of_iterations_is_that_of_the_configuration(self) -> None:
        assert load_workflow("liza").phases["CODE"].most(None) == 10

    def test_ten_iterations_block_where_rejections_alone_do_not(self) -> None:
        patient = Limits(max_rejections=99)

        assert WorkflowScript("liza", limits=patient).play("pass work revise " * 9).position.end is None
        assert (
            WorkflowScript("liza", limits=patient).play("pass work revise " * 10).position.end is End.BLOCKED
        )

    def test_the_run_that_made_the_work_does_not_judge_it(self) -> None:
        flow = WorkflowScript("liza").play(CODED)
        own = flow.verdict(Outcome.PASS).replace(evidence=Evidence(run="run-1"))

        with pytest.raises(Refused, match="REVIEW: a verdict of review is not what is next here"):
            flow.take(own)

    def test_a_verdict_about_an_old_tree_does_not_count(self) -> None:
        flow = WorkflowScript("liza").play(CODED)

        moved = flow.take(flow.verdict(Outcome.PASS, of=tree(99)))

        assert moved.stale
        assert flow.next == "review"

    def test_a_reviewer_has_to_say_which_tree_it_let_pass(self) -> None:
        flow = WorkflowScript("liza").play(CODED)

        moved = flow.take(flow.verdict(Outcome.PASS).replace(tree=None))

        assert (moved.stale, flow.next) == (True, "review")


class TestCycle:
    def test_loops_and_steps_are_counted(self) -> None:
        """Signatures are goal, loop, step; a new loop begins with its plan."""
        flow, seen = WorkflowScript("cycle"), list[tuple[int, str]]()
        for word in (ALIGNED + (STEP + GREEN + "revise ") * 2).split():
            here = (flow.position.loop, flow.position.phase)
            if here not in seen:
                seen.append(here)
            flow.say(word)

        assert seen == [
            (0, "ALIGN"),
            (1, "PLAN"),
            (1, "ACT"),
            (1, "JUDGE"),
            (2, "PLAN"),
            (2, "ACT"),
            (2, "JUDGE"),
        ]

    def test_a_person_brings_back_what_was_paused(self) -> None:
        flow = WorkflowScript("cycle").play(ALIGNED + (STEP + GREEN + "revise ") * 5)

        flow.say("answer")

        assert flow.next == "PLAN:planner"
        assert flow.position.iterations == {"PLAN": 1}

    @pytest.mark.parametrize("role", ["planner", "judge"])
    def test_somebody_unsure_asks_a_person(self, role: str) -> None:
        flow = WorkflowScript("cycle").play(ALIGNED + STEP + GREEN)
        flow.signal(role, confidence=4)

        flow.say("pass")

        assert flow.end == "BLOCKED"

    def test_a_worker_unsure_is_answered_and_works_again(self) -> None:
        flow = WorkflowScript("cycle").play(ALIGNED)
        flow.signal("planner", confidence=4)
        flow.say("work")

        assert flow.end == "BLOCKED"
        assert flow.play("answer").next == "PLAN:planner"

    def test_an_actor_unsure_asks_nobody(self) -> None:
        flow = WorkflowScript("cycle").play(ALIGNED + "work pass pass pass")
        flow.signal("actor", confidence=1)
        flow.say("work")

        assert flow.next == "limit"

    def test_a_high_risk_that_nobody_approved_is_told_once(self) -> None:
        flow = WorkflowScript("cycle", "risk_medium_or_high").play(ALIGNED)
        flow.signal("planner", risk="high")

        flow.play("work pass pass")
        assert (flow.alerts, flow.next) == (["high_risk_unapproved"], "wait risk")

        flow.play("revise work")
        assert flow.alerts == ["high_risk_unapproved"]


class TestPhased:
    def test_new_work_is_not_let_pass_by_who_let_the_old_pass(self) -> None:
        flow = WorkflowScript("phased").play(PLANNED)
        before = flow.position.approvals

        moved = flow.say("work")

        assert [verdict.gate for verdict in before] == ["judge"]
        assert moved.position.approvals == ()

    def test_a_session_goes_on_only_on_the_simple_path(self) -> None:
        for label, session in (("SIMPLE", "resume"), ("COMPLEX", "fresh")):
            flow = WorkflowScript("phased").play(
                f"work pass pass/{label}" + (" pass pass" if label == "COMPLEX" else "")
            )
            job = engine.next_job(flow.workflow, flow.position)
            assert getattr(job, "session", None) == session


class TestMerging:
    def forced(self) -> WorkflowScript:
        """Return work whose review could not be had, in a workflow that goes on all the same."""
        error = load_workflow("phased").phases["PLAN"].named("review").on_error
        return WorkflowScript(with_gate("liza", "REVIEW", "review", on_error=error)).play(
            CODED + "crash crash"
        )

    def test_forced_work_is_not_merged_until_a_person_accepts_it(self) -> None:
        flow = self.forced()
        assert flow.position.taints == ("forced:REVIEW/review",)

        flow.say("pass")
        assert flow.next == "wait :taint"
        with pytest.raises(Refused):
            flow.say("pass")

        flow.play("accept pass")
        assert flow.end == "DONE"

    def test_a_new_taint_has_to_be_accepted_again(self) -> None:
        flow = self.forced().play(f"accept pass revise {CODED} crash crash pass")

        assert flow.next == "wait :taint"

    def test_an_effect_of_a_phase_waits_as_well(self) -> None:
        """Where a phase merges, what was forced through waits for the person."""
        workflow = changed(
            "cycle", "JUDGE", max_iterations={"*": 1}, on_exhausted=OnExhausted.FORCE_PASS, edges={}
        )
        flow = WorkflowScript(workflow).play(ALIGNED + STEP + GREEN + "revise pass pass")

        assert flow.position.taints == ("forced:JUDGE",)
        assert flow.next == "wait :taint"
        assert flow.effects == []
        flow.play("accept pass")
        assert (flow.end, flow.effects) == ("DONE", ["archive"])


class TestAnswers:
    @pytest.mark.parametrize("script", ["pass", "pass work", CODED, CODED + "pass pass pass"])
    def test_a_result_that_answers_another_job_is_refused(self, script: str) -> None:
        flow = WorkflowScript("liza").play(script)
        before = flow.position
        wrong: list[JobResult] = [flow.result("go")]
        if flow.next in {"diff", "review"}:
            wrong.append(flow.verdict(Outcome.PASS).replace(gate="validation"))
        for result in wrong:
            with pytest.raises(Refused):
                flow.take(result)
        assert flow.position == before

    @pytest.mark.parametrize("script", [CODED + "pass pass pass", "pass nothing pass"])
    def test_an_end_is_final(self, script: str) -> None:
        flow = WorkflowScript("liza").play(script)

        with pytest.raises(Refused):
            flow.take(Worked(flow.now))
