"""The interpreter of workflow documents: what is next, and where a result leads.

It is pure: any process may ask it, and the same results give the same position. It knows no workflow by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from liza.domain.position import FINAL, TAINT, WORK, Position, Stage
from liza.domain.verdicts import Decision, Outcome, Verdict
from liza.errors import Refused
from liza.workflow.catalogue import ORDER, Action
from liza.workflow.document import AFTER_WORK, Edge, Gate, GateKind, GateMode, Predicate, Then, When, Workflow
from liza.workflow.position import (
    Accepted,
    Answered,
    Crashed,
    Job,
    Judge,
    Moved,
    Proceed,
    Proceeded,
    Result,
    Wait,
    Work,
    Worked,
    answers,
    named,
)
from liza.workflow.routes import ENDS, ended, entered, exhausted, forced, requested, routed, used_up
from liza.workflow.rules import Fired
from liza.workflow.settling import Facts, known, settled, todo


def begin(workflow: Workflow) -> Position:
    return entered(workflow, Position(phase=workflow.start), Edge(to=workflow.start), Outcome.PASS)


def resumed(workflow: Workflow, position: Position, phase: str | None = None) -> Position:
    """Return work that was blocked or paused back in a *phase*, with fresh rounds: a person said so."""
    if position.end is None or position.end in FINAL:
        raise Refused(
            f"the work is {position.end or 'under way'}: only blocked or paused work can be resumed"
        )
    back = position.but(end=None, iterations={})
    return entered(workflow, back, Edge(to=phase or position.phase), Outcome.PASS)


def redo(workflow: Workflow, position: Position, *, fresh: bool) -> Position:
    """Return *position* where the work is to be done again; *fresh*: with all of its rounds."""
    is_there = position.stage is Stage.WORK and position.phase in workflow.phases
    phase = position.phase if is_there else position.made_in or workflow.start
    back = position.but(end=None, iterations={} if fresh else position.iterations)
    return entered(workflow, back, Edge(to=phase), Outcome.PASS if fresh else Outcome.REVISE).but(
        back_from=None
    )


def fresh(workflow: Workflow, position: Position, tree: str | None) -> Position:
    """Return *position* as it is for *tree*: what was judged on another is to be judged again, all of it."""
    if position.end is not None or tree == position.tree:
        return position
    now = position.but(tree=tree, approvals=(), waiting=None, forced=False)
    unworked = workflow.phases[position.phase].worker is not None and not position.worked
    if unworked or position.waiting == WORK:
        return now.but(waiting=position.waiting)  # nothing is judged yet but what comes before the work
    if position.made_in is None:
        return now.but(verdicts=())
    return now.but(phase=position.made_in, worked=True, verdicts=())


def job(workflow: Workflow, position: Position, facts: Facts = frozenset()) -> Job | None:
    """Return what is to be done next; None at an end."""
    if position.end is not None:
        return None
    phase = workflow.phases[position.phase]
    if position.waiting is not None:
        return Wait(position.waiting, phase.gate(position.waiting))
    left = todo(phase, position, known(phase, position, facts))
    if not left:
        return Proceed(position.phase)
    gate = left[0]
    if gate is None:
        used = position.iterations[position.phase]
        return Work(position.phase, phase.worker or "", used, phase.conversation(position.path))
    if gate.kind is GateKind.EFFECT and position.is_tainted:
        return Wait(TAINT, gate)
    return Wait(gate.id, gate) if gate.kind is GateKind.HUMAN else Judge(gate)


def after(workflow: Workflow, position: Position, result: Result, facts: Facts = frozenset()) -> Moved:
    """Return where *result* leads; raise Refused where it answers another job than the one at *position*."""
    if not answers(job(workflow, position, facts), position, result):
        raise Refused(f"{position.phase}: {named(result)} is not what is next here; ask for the job again")
    moved = _taken(workflow, position, result, facts)
    gained = tuple(mark for mark in moved.position.taints if mark not in position.taints)
    return moved._replace(taints=gained)


def _taken(workflow: Workflow, position: Position, result: Result, facts: Facts) -> Moved:
    match result:
        case Verdict():
            return _judged(workflow, position, result, facts)
        case Worked():
            return _worked(workflow, position, result, facts)
        case Crashed():
            broken = _crashed if result.gate is None else _unjudged
            return broken(workflow, position, result, facts)
        case Answered():
            return _answered(workflow, position, result, facts)
        case Accepted() if position.waiting != TAINT:
            return Moved(position.but(accepted=position.taints))
        case Accepted() | Proceeded():
            clean = position.but(accepted=position.taints, waiting=None) if position.waiting else position
            return settled(workflow, clean, result.at, facts)


def _answered(workflow: Workflow, position: Position, result: Answered, facts: Facts) -> Moved:
    """Go on at what asked: the gate judges again, the worker works again unless its work is to be taken."""
    heard = position.but(waiting=None)
    if position.waiting != WORK:
        return Moved(heard)
    if result.again:
        return Moved(heard.but(worked=False, asked=False))
    return settled(workflow, heard, result.at, facts)


def report(
    workflow: Workflow,
    position: Position,
    at: datetime,
    *,
    work: Worked | None = None,
    verdicts: Iterable[Verdict] = (),
    facts: Facts = frozenset(),
) -> Moved:
    """Return where *work* and *verdicts* lead: each job is answered with what there is for it.

    It stops at the first job that none of them answers, and where a phase is decided against the work.
    """
    left = {verdict.gate: verdict for verdict in verdicts}
    moved = Moved(position)
    while moved.decision is None or moved.decision.outcome is Outcome.PASS:
        result = _answer(job(workflow, moved.position, facts), work, left, at)
        if result is None:
            return moved
        work = None if result is work else work
        moved = after(workflow, moved.position, result, facts)
    return moved


def _answer(job: Job | None, work: Worked | None, left: dict[str, Verdict], at: datetime) -> Result | None:
    match job:
        case Work():
            return work
        case Judge(gate):
            return left.pop(gate.id, None)
        case Wait(on, Gate() as gate) if on != TAINT:
            return left.pop(gate.id, None)
        case Proceed():
            return Proceeded(at)
    return None


def enforced(workflow: Workflow, moved: Moved, fired: Iterable[Fired]) -> Moved:
    """Return *moved* as the strongest of the rules that *fired* on it leaves it."""
    strongest = max(fired, key=lambda one: ORDER.index(one.action), default=None)
    if strongest is None or (moved.position.end in FINAL and moved.decided is None):
        return moved
    here = moved.decided or moved.position
    match strongest.action:
        case Action.PAUSE | Action.BLOCK | Action.STOP:
            return ended(workflow, here, ENDS[strongest.action], moved.decision)
        case Action.ASK:
            return _held(here, moved)
        case Action.FORCE_PASS if moved.decision and moved.decision.outcome is Outcome.REVISE:
            return forced(workflow, here, moved.decision)
    return moved


def _held(here: Position, moved: Moved) -> Moved:
    """Let a person say what the last result is worth, before it leads anywhere."""
    if moved.decision is None or not here.verdicts:
        return Moved(here.but(waiting=here.waiting or WORK)) if here.worked else moved
    return Moved(here.but(waiting=here.verdicts[-1].gate, verdicts=here.verdicts[:-1]))


def _judged(workflow: Workflow, position: Position, verdict: Verdict, facts: Facts) -> Moved:
    phase = workflow.phases[position.phase]
    gate = phase.named(verdict.gate)
    if _is_stale(gate, position, verdict):
        return Moved(position, stale=True)
    of_a_person = gate.kind is GateKind.HUMAN or position.waiting == gate.id
    if of_a_person and verdict.outcome in {Outcome.ASK, Outcome.NONE}:
        return Moved(position)  # silence, or a question back, is no answer: the person is still waited for
    if gate.mode is GateMode.DECIDE:
        verdict = _mapped(gate, verdict)
        if verdict.outcome is Outcome.ASK and (not phase.collect or gate.at is When.BEFORE):
            return Moved(position.but(waiting=gate.id, attempt=0))
    let_pass = gate.decides and verdict.outcome is Outcome.PASS
    kept = _kept(verdict)
    said = position.but(
        verdicts=(*position.verdicts, kept),
        approvals=(*position.approvals, kept) if let_pass else position.approvals,
        path=verdict.label if gate.sets_path and verdict.label else position.path,
        waiting=None,
        attempt=0,
    )
    return settled(workflow, said, verdict.at, facts)


def _kept(verdict: Verdict) -> Verdict:
    """Return what a position remembers of *verdict*: the task has what it saw, and whole."""
    return verdict.but(feedback=(), evidence=None)


def _is_stale(gate: Gate, position: Position, verdict: Verdict) -> bool:
    """Say whether *verdict* is about another tree; who lets work pass has to say which."""
    if gate.judges_another_tree or gate.at is When.BEFORE or position.tree is None:
        return False  # what comes before the work is about the tree that it begins with
    if verdict.tree is None and not gate.decides:
        return False
    return verdict.tree != position.tree


def _mapped(gate: Gate, verdict: Verdict) -> Verdict:
    """Give silence the meaning that the document gives it, before anything else sees it."""
    if verdict.outcome is not Outcome.NONE:
        return verdict
    reason = verdict.reason or f"{gate.id} gave no verdict"
    return verdict.but(outcome=gate.on_none.outcome, label=gate.on_none.label, reason=reason)


def _worked(workflow: Workflow, position: Position, result: Worked, facts: Facts) -> Moved:
    phase = workflow.phases[position.phase]
    done = position.but(
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
        moved = Moved(done.but(waiting=WORK))
    elif result.outcome in {Outcome.PASS, Outcome.ASK}:
        moved = settled(workflow, done, result.at, facts)
    else:
        # Work that ended without a word has failed.
        outcome = Outcome.REVISE if result.outcome is Outcome.NONE else result.outcome
        moved = routed(workflow, done, _decision(position, outcome, result.at, result.reason))
    return moved._replace(effects=(*requested(done, phase.effects.get(AFTER_WORK, ())), *moved.effects))


def _crashed(workflow: Workflow, position: Position, result: Crashed, _: Facts) -> Moved:
    again = position.but(attempt=position.attempt + 1, back_from=None)
    if not workflow.crash_consumes_iteration:
        return Moved(again)
    # A crash says nothing about the work: no edge is taken, and there is nothing to force through.
    most = used_up(workflow, again, Edge(to=position.phase))
    if most is not None:
        decision = _decision(position, Outcome.REVISE, result.at, result.reason)
        return exhausted(workflow, again, decision, Edge(to=position.phase), most)
    used = {**position.iterations, position.phase: position.iterations[position.phase] + 1}
    return Moved(again.but(iterations=used))


def _unjudged(workflow: Workflow, position: Position, result: Crashed, facts: Facts) -> Moved:
    """Try a gate that failed again, then do what the document says; that is never a clean pass."""
    gate = workflow.phases[position.phase].named(result.gate or "")
    if position.attempt < gate.on_error.retry:
        return Moved(position.but(attempt=position.attempt + 1))
    then = gate.on_error.then
    if gate.mode is not GateMode.RECORD and then is not Then.FORCE_PASS:
        return routed(workflow, position, _decision(position, Outcome(then), result.at, result.reason))
    outcome = Outcome.PASS if gate.mode is GateMode.DECIDE else Outcome.NONE
    verdict = Verdict(gate=gate.id, outcome=outcome, at=result.at, reason=result.reason)
    said = position.but(verdicts=(*position.verdicts, verdict), attempt=0)
    if gate.mode is not GateMode.RECORD:
        said = said.tainted(f"forced:{position.phase}/{gate.id}")
    return settled(workflow, said, result.at, facts)


def _decision(position: Position, outcome: Outcome, at: datetime, reason: str | None) -> Decision:
    return Decision(phase=position.phase, outcome=outcome, at=at, reason=reason)
