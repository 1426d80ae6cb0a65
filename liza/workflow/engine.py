"""The interpreter of workflow documents: what is next, and where a result leads.

It is pure: any process may ask it, and the same results give the same position. It knows no workflow by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from liza.domain.position import FINAL, TAINT, WORK, Position, Stage
from liza.domain.rules import ACTION_ORDER, FiredRule, RuleAction
from liza.domain.verdicts import Decision, Outcome, Verdict
from liza.errors import Refused
from liza.workflow.document import (
    AFTER_WORK,
    Edge,
    ErrorOutcome,
    Gate,
    GateKind,
    GateMode,
    GateTiming,
    Predicate,
    Workflow,
)
from liza.workflow.phase_decision import Facts, decide_phase, remaining_steps, with_derived_facts
from liza.workflow.position import (
    Accepted,
    Answered,
    Crashed,
    GateJob,
    JobResult,
    Move,
    Proceeded,
    ProceedJob,
    WaitJob,
    Worked,
    WorkflowJob,
    WorkJob,
    is_result_of,
    result_name,
)
from liza.workflow.routes import (
    END_BY_ACTION,
    after_exhaustion,
    end_work,
    enter_phase,
    exhausted_limit,
    follow_edge,
    force_pass,
    resolve_effects,
)


def begin(workflow: Workflow) -> Position:
    return enter_phase(workflow, Position(phase=workflow.start), Edge(to=workflow.start), Outcome.PASS)


def resume(workflow: Workflow, position: Position, phase: str | None = None) -> Position:
    """Return work that was blocked or paused back in a *phase*, with fresh rounds: a person said so."""
    if position.end is None or position.end in FINAL:
        raise Refused(
            f"the work is {position.end or 'under way'}: only blocked or paused work can be resumed"
        )
    back = position.replace(end=None, iterations={})
    return enter_phase(workflow, back, Edge(to=phase or position.phase), Outcome.PASS)


def redo(workflow: Workflow, position: Position, *, fresh: bool) -> Position:
    """Return *position* where the work is to be done again; *fresh*: with all of its rounds."""
    is_there = position.stage is Stage.WORK and position.phase in workflow.phases
    phase = position.phase if is_there else position.made_in or workflow.start
    back = position.replace(end=None, iterations={} if fresh else position.iterations)
    return enter_phase(workflow, back, Edge(to=phase), Outcome.PASS if fresh else Outcome.REVISE).replace(
        back_from=None
    )


def with_tree(workflow: Workflow, position: Position, tree: str | None) -> Position:
    """Return *position* for *tree*; verdicts about another tree are dropped."""
    if position.end is not None or tree == position.tree:
        return position
    now = position.replace(tree=tree, approvals=(), waiting=None, forced=False)
    unworked = workflow.phases[position.phase].worker is not None and not position.worked
    if unworked or position.waiting == WORK:
        return now.replace(waiting=position.waiting)  # nothing is judged yet but what comes before the work
    if position.made_in is None:
        return now.replace(verdicts=())
    return now.replace(phase=position.made_in, worked=True, verdicts=())


def next_job(workflow: Workflow, position: Position, facts: Facts = frozenset()) -> WorkflowJob | None:
    """Return what is to be done next; None at an end."""
    if position.end is not None:
        return None
    phase = workflow.phases[position.phase]
    if position.waiting is not None:
        return WaitJob(position.waiting, phase.gate(position.waiting))
    left = remaining_steps(phase, position, with_derived_facts(phase, position, facts))
    if not left:
        return ProceedJob(position.phase)
    gate = left[0]
    if gate is None:
        used = position.iterations[position.phase]
        return WorkJob(position.phase, phase.worker or "", used, phase.session_mode(position.path))
    if gate.kind is GateKind.EFFECT and position.is_tainted:
        return WaitJob(TAINT, gate)
    return WaitJob(gate.id, gate) if gate.kind is GateKind.HUMAN else GateJob(gate)


def after(workflow: Workflow, position: Position, result: JobResult, facts: Facts = frozenset()) -> Move:
    """Return where *result* leads; raise Refused where it answers another job than the one at *position*."""
    if not is_result_of(next_job(workflow, position, facts), position, result):
        raise Refused(
            f"{position.phase}: {result_name(result)} is not what is next here; ask for the job again"
        )
    moved = _apply_result(workflow, position, result, facts)
    gained = tuple(mark for mark in moved.position.taints if mark not in position.taints)
    return moved._replace(taints=gained)


def _apply_result(workflow: Workflow, position: Position, result: JobResult, facts: Facts) -> Move:
    match result:
        case Verdict():
            return _after_verdict(workflow, position, result, facts)
        case Worked():
            return _after_work(workflow, position, result, facts)
        case Crashed():
            broken = _after_crash if result.gate is None else _after_gate_crash
            return broken(workflow, position, result, facts)
        case Answered():
            return _after_answer(workflow, position, result, facts)
        case Accepted() if position.waiting != TAINT:
            return Move(position.replace(accepted=position.taints))
        case Accepted() | Proceeded():
            clean = position.replace(accepted=position.taints, waiting=None) if position.waiting else position
            return decide_phase(workflow, clean, result.at, facts)


def _after_answer(workflow: Workflow, position: Position, result: Answered, facts: Facts) -> Move:
    """Continue after an answer: the gate judges again; the worker works again unless its work is taken."""
    heard = position.replace(waiting=None)
    if position.waiting != WORK:
        return Move(heard)
    if result.again:
        return Move(heard.replace(worked=False, asked=False))
    return decide_phase(workflow, heard, result.at, facts)


def report(
    workflow: Workflow,
    position: Position,
    at: datetime,
    *,
    work: Worked | None = None,
    verdicts: Iterable[Verdict] = (),
    facts: Facts = frozenset(),
) -> Move:
    """Return where *work* and *verdicts* lead: each job is answered with what there is for it.

    It stops at the first job that none of them answers, and where a phase is decided against the work.
    """
    left = {verdict.gate: verdict for verdict in verdicts}
    moved = Move(position)
    while moved.decision is None or moved.decision.outcome is Outcome.PASS:
        result = _answer(next_job(workflow, moved.position, facts), work, left, at)
        if result is None:
            return moved
        work = None if result is work else work
        moved = after(workflow, moved.position, result, facts)
    return moved


def _answer(
    job: WorkflowJob | None, work: Worked | None, left: dict[str, Verdict], at: datetime
) -> JobResult | None:
    match job:
        case WorkJob():
            return work
        case GateJob(gate):
            return left.pop(gate.id, None)
        case WaitJob(on, Gate() as gate) if on != TAINT:
            return left.pop(gate.id, None)
        case ProceedJob():
            return Proceeded(at)
    return None


def enforce_rules(workflow: Workflow, moved: Move, fired: Iterable[FiredRule]) -> Move:
    """Return *moved* after the strongest of the *fired* rules."""
    strongest = max(fired, key=lambda one: ACTION_ORDER.index(one.action), default=None)
    if strongest is None or (moved.position.end in FINAL and moved.decided is None):
        return moved
    here = moved.decided or moved.position
    match strongest.action:
        case RuleAction.PAUSE | RuleAction.BLOCK | RuleAction.STOP:
            return end_work(workflow, here, END_BY_ACTION[strongest.action], moved.decision)
        case RuleAction.ASK:
            return _wait_for_person(here, moved)
        case RuleAction.FORCE_PASS if moved.decision and moved.decision.outcome is Outcome.REVISE:
            return force_pass(workflow, here, moved.decision)
    return moved


def _wait_for_person(here: Position, moved: Move) -> Move:
    """Let a person say what the last result is worth, before it leads anywhere."""
    if moved.decision is None or not here.verdicts:
        return Move(here.replace(waiting=here.waiting or WORK)) if here.worked else moved
    return Move(here.replace(waiting=here.verdicts[-1].gate, verdicts=here.verdicts[:-1]))


def _after_verdict(workflow: Workflow, position: Position, verdict: Verdict, facts: Facts) -> Move:
    phase = workflow.phases[position.phase]
    gate = phase.named(verdict.gate)
    if _is_stale(gate, position, verdict):
        return Move(position, stale=True)
    of_a_person = gate.kind is GateKind.HUMAN or position.waiting == gate.id
    if of_a_person and verdict.outcome in {Outcome.ASK, Outcome.NONE}:
        return Move(position)  # silence, or a question back, is no answer: the person is still waited for
    if gate.mode is GateMode.DECIDE:
        verdict = _with_silence_mapped(gate, verdict)
        if verdict.outcome is Outcome.ASK and (not phase.collect or gate.at is GateTiming.BEFORE):
            return Move(position.replace(waiting=gate.id, attempt=0))
    let_pass = gate.decides and verdict.outcome is Outcome.PASS
    kept = _kept(verdict)
    said = position.replace(
        verdicts=(*position.verdicts, kept),
        approvals=(*position.approvals, kept) if let_pass else position.approvals,
        path=verdict.label if gate.sets_path and verdict.label else position.path,
        waiting=None,
        attempt=0,
    )
    return decide_phase(workflow, said, verdict.at, facts)


def _kept(verdict: Verdict) -> Verdict:
    """Return what a position remembers of *verdict*: the task has what it saw, and whole."""
    return verdict.replace(feedback=(), evidence=None)


def _is_stale(gate: Gate, position: Position, verdict: Verdict) -> bool:
    """Return whether *verdict* is about another tree; who lets work pass has to say which."""
    if gate.judges_another_tree or gate.at is GateTiming.BEFORE or position.tree is None:
        return False  # what comes before the work is about the tree that it begins with
    if verdict.tree is None and not gate.decides:
        return False
    return verdict.tree != position.tree


def _with_silence_mapped(gate: Gate, verdict: Verdict) -> Verdict:
    """Replace a missing verdict by the document's `on_none`."""
    if verdict.outcome is not Outcome.NONE:
        return verdict
    reason = verdict.reason or f"{gate.id} gave no verdict"
    return verdict.replace(outcome=gate.on_none.outcome, label=gate.on_none.label, reason=reason)


def _after_work(workflow: Workflow, position: Position, result: Worked, facts: Facts) -> Move:
    phase = workflow.phases[position.phase]
    done = position.replace(
        worked=True,
        asked=result.outcome is Outcome.ASK,
        nothing=result.nothing_to_do,
        approvals=(),
        attempt=0,
        tree=result.tree,
        made_in=position.phase,
        runs=(*position.runs, result.run) if result.run else position.runs,
    )
    is_answered_by_a_gate = any(Predicate.ASKED in gate.when for gate in phase.gates)
    if result.outcome is Outcome.ASK and not is_answered_by_a_gate:
        moved = Move(done.replace(waiting=WORK))
    elif result.outcome in {Outcome.PASS, Outcome.ASK}:
        moved = decide_phase(workflow, done, result.at, facts)
    else:
        # Work that ended without a word has failed.
        outcome = Outcome.REVISE if result.outcome is Outcome.NONE else result.outcome
        moved = follow_edge(workflow, done, _decision(position, outcome, result.at, result.reason))
    return moved._replace(effects=(*resolve_effects(done, phase.effects.get(AFTER_WORK, ())), *moved.effects))


def _after_crash(workflow: Workflow, position: Position, result: Crashed, _: Facts) -> Move:
    again = position.replace(attempt=position.attempt + 1, back_from=None)
    if not workflow.crash_consumes_iteration:
        return Move(again)
    # A crash says nothing about the work: no edge is taken, and there is nothing to force through.
    most = exhausted_limit(workflow, again, Edge(to=position.phase))
    if most is not None:
        decision = _decision(position, Outcome.REVISE, result.at, result.reason)
        return after_exhaustion(workflow, again, decision, Edge(to=position.phase), most)
    used = {**position.iterations, position.phase: position.iterations[position.phase] + 1}
    return Move(again.replace(iterations=used))


def _after_gate_crash(workflow: Workflow, position: Position, result: Crashed, facts: Facts) -> Move:
    """Try a gate that failed again, then do what the document says; that is never a clean pass."""
    gate = workflow.phases[position.phase].named(result.gate or "")
    if position.attempt < gate.on_error.retry:
        return Move(position.replace(attempt=position.attempt + 1))
    then = gate.on_error.then
    if gate.mode is not GateMode.RECORD and then is not ErrorOutcome.FORCE_PASS:
        return follow_edge(workflow, position, _decision(position, Outcome(then), result.at, result.reason))
    outcome = Outcome.PASS if gate.mode is GateMode.DECIDE else Outcome.NONE
    verdict = Verdict(gate=gate.id, outcome=outcome, at=result.at, reason=result.reason)
    said = position.replace(verdicts=(*position.verdicts, verdict), attempt=0)
    if gate.mode is not GateMode.RECORD:
        said = said.with_taints(f"forced:{position.phase}/{gate.id}")
    return decide_phase(workflow, said, result.at, facts)


def _decision(position: Position, outcome: Outcome, at: datetime, reason: str | None) -> Decision:
    return Decision(phase=position.phase, outcome=outcome, at=at, reason=reason)
