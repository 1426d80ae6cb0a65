"""The interpreter of workflow documents: the job that is next, its result, and where that leads.

It is pure: any process may ask it, and the same results give the same position. It knows no workflow by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from liza.domain.model import FINAL, TAINT, Decision, End, Feedback, Outcome, Position, Stage, Verdict
from liza.errors import Refused
from liza.workflow.document import (
    AFTER_WORK,
    CLEAN_ONLY,
    DERIVED,
    IF_TAINTED,
    Edge,
    Effect,
    ErrorOutcome,
    Gate,
    GateKind,
    GateMode,
    GateTiming,
    OnExhausted,
    Phase,
    Predicate,
    SessionMode,
    Workflow,
    gates_in_order,
)

# The words between the engine and who drives it: the job that is next, its result, the move.


class WorkJob(NamedTuple):
    phase: str
    role: str
    iteration: int
    session: SessionMode


class GateJob(NamedTuple):
    gate: Gate


class WaitJob(NamedTuple):
    """A person is next: *on* is the id of the gate, or `TAINT`."""

    on: str
    gate: Gate | None


class ProceedJob(NamedTuple):
    """Nothing is left to do in the phase: answer with `Proceeded`."""

    phase: str


WorkflowJob: TypeAlias = WorkJob | GateJob | WaitJob | ProceedJob


class Worked(NamedTuple):
    at: datetime
    outcome: Outcome = Outcome.PASS
    reason: str | None = None
    tree: str | None = None
    run: str | None = None
    nothing_to_do: bool = False


class Crashed(NamedTuple):
    """The worker, or what should have judged at *gate*, did not come to an end of its own."""

    at: datetime
    reason: str
    gate: str | None = None


class Proceeded(NamedTuple):
    at: datetime


JobResult: TypeAlias = Verdict | Worked | Crashed | Proceeded


class Move(NamedTuple):
    position: Position
    decision: Decision | None = None
    effects: tuple[Effect, ...] = ()
    stale: bool = False  # the verdict was about another tree, and did not count
    exhausted: str | None = None  # why no further round was given
    decided: Position | None = None  # where it was when the phase was decided


class GatesResult(NamedTuple):
    """The verdicts of the machine gates, and the position that they lead to."""

    moved: Move
    verdicts: tuple[Verdict, ...]
    facts: frozenset[Predicate] = frozenset()  # what conditions of gates ask, as it is for this work
    artifacts: Mapping[str, str] = {}  # what the task keeps of a review

    @property
    def outcome(self) -> Outcome:
        """The outcome so far: PASS while no phase was decided."""
        if self.moved.position.waiting is not None:
            return Outcome.ASK
        return self.moved.decision.outcome if self.moved.decision else Outcome.PASS

    @property
    def phase(self) -> str | None:
        return self.moved.decision.phase if self.moved.decision else None

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self.facts))

    @property
    def tree(self) -> str | None:
        return self.moved.position.tree

    @property
    def taints(self) -> tuple[str, ...]:
        """What a pass here is marked with, as that an adviser was overruled."""
        return self.moved.position.taints

    @property
    def reason(self) -> str:
        said, decision = self._last_refusal(), self.moved.decision
        if said is None and decision is not None and decision.reason:
            return decision.reason  # of a gate that said no before, when the work was handed in
        said = said or next(reversed(self.verdicts), None)
        return (said.reason if said else None) or "a gate did not let it pass"

    @property
    def feedback(self) -> tuple[Feedback, ...]:
        said = self._last_refusal()
        return (said.feedback if said else ()) or (Feedback(message=self.reason),)

    @property
    def against(self) -> str:
        """Which gate said no."""
        said = self._last_refusal()
        return said.gate if said else "nobody"

    def _last_refusal(self) -> Verdict | None:
        return next((one for one in reversed(self.verdicts) if one.outcome is not Outcome.PASS), None)


def is_result_of(job: WorkflowJob | None, position: Position, result: JobResult) -> bool:
    """Return whether *result* answers *job*; a run that made the work may not judge it."""
    match job, result:
        case ((GateJob(gate) | WaitJob(_, Gate() as gate)), Verdict()):
            made_it = result.evidence is not None and result.evidence.run in position.runs
            return (
                result.gate == gate.id and not made_it and not (isinstance(job, WaitJob) and job.on == TAINT)
            )
        case (WorkJob(), Worked() | Crashed(gate=None)) | (ProceedJob(), Proceeded()):
            return True
        case GateJob(gate), Crashed():
            return result.gate == gate.id
    return False


def result_name(result: JobResult) -> str:
    return f"a verdict of {result.gate}" if isinstance(result, Verdict) else type(result).__name__.lower()


Facts: TypeAlias = frozenset[Predicate]

# A phase comes to the worst that its gates say: an agent lowers what a machine says, and never raises it.
RANK: Final = (Outcome.PASS, Outcome.ASK, Outcome.REVISE, Outcome.STOP, Outcome.BLOCK)
OBJECTIONS: Final = frozenset({Outcome.REVISE, Outcome.STOP, Outcome.BLOCK})


def with_derived_facts(phase: Phase, position: Position, facts: Facts) -> Facts:
    """Return *facts* with those that the engine derives itself."""
    most = phase.most(position.path)
    derived = {
        Predicate.ASKED: position.asked,
        Predicate.PATH_UNSET: position.path is None,
        Predicate.FINAL_ITERATION: most is not None and position.iterations[position.phase] >= most,
    }
    return (facts - DERIVED) | {name for name, holds in derived.items() if holds}


def remaining_steps(phase: Phase, position: Position, facts: Facts) -> Iterator[Gate | None]:
    """Yield what is left to do in this visit, in order; None stands for the work."""
    said = {verdict.gate: verdict for verdict in position.verdicts}
    before, later = gates_in_order(phase)
    if not position.worked:
        yield from (gate for gate in before if gate.id not in said and gate.applies(facts))
        if phase.worker:
            yield None
    for gate in later:
        if gate.id in said and said[gate.id].label in gate.skip_rest_on:
            break
        # Where there is nothing to merge there is nothing for a machine to check: somebody confirms it.
        if gate.id not in said and gate.applies(facts) and not (position.nothing and gate.is_mechanical):
            yield gate


def decide_phase(workflow: Workflow, position: Position, at: datetime, facts: Facts) -> Move:
    """Decide the phase if no gate or work is left."""
    phase = workflow.phases[position.phase]
    now = with_derived_facts(phase, position, facts)
    deciding = [one for one in position.verdicts if phase.named(one.gate).mode is GateMode.DECIDE]
    worst = max(deciding, key=lambda one: RANK.index(one.outcome), default=None)
    outcome = Outcome.PASS if worst is None or position.forced else worst.outcome
    if (
        not position.forced
        and not _is_decided_early(phase, deciding)
        and any(True for _ in remaining_steps(phase, position, now))
    ):
        return Move(position)
    if outcome is Outcome.ASK and worst is not None:
        rest = tuple(one for one in position.verdicts if one is not worst)
        return Move(position.replace(waiting=worst.gate, verdicts=rest))
    label = next((one.label for one in reversed(deciding) if one.outcome is outcome and one.label), None)
    reason = worst.reason if worst is not None and outcome is not Outcome.PASS else None
    skipped = tuple(gate for gate in phase.gates if _is_skipped(gate, position, now))
    marks = _taint_marks(phase, position, skipped, now) if outcome is Outcome.PASS else ()
    decision = Decision(phase=position.phase, outcome=outcome, at=at, reason=reason)
    return follow_edge(workflow, position.with_taints(*marks), decision, label)


def _is_decided_early(phase: Phase, deciding: list[Verdict]) -> bool:
    """Return whether no further gate is asked. What is judged before the work is never merely collected."""
    bad = [one for one in deciding if one.outcome is not Outcome.PASS]
    return any(not phase.collect or phase.named(one.gate).at is GateTiming.BEFORE for one in bad)


def _is_skipped(gate: Gate, position: Position, facts: Facts) -> bool:
    said = any(verdict.gate == gate.id for verdict in position.verdicts)
    return not said and gate.is_wanted(facts) and not facts.isdisjoint(gate.skip_if)


def _taint_marks(
    phase: Phase, position: Position, skipped: tuple[Gate, ...], facts: Facts
) -> tuple[str, ...]:
    """Return the marks of a pass: a deciding gate was skipped in the last round, or advice was overruled."""
    unheard = [
        f"skipped:{position.phase}/{gate.id}"
        for gate in skipped
        if gate.decides and Predicate.FINAL_ITERATION in facts.intersection(gate.skip_if)
    ]
    said = [(phase.named(one.gate), one.outcome) for one in position.verdicts]
    overrode = [
        f"overrode_{gate.role or gate.id}"
        for gate, outcome in said
        if gate.mode is GateMode.ADVISORY and outcome in OBJECTIONS
    ]
    tells = any(gate.taints_on_override and outcome is Outcome.PASS for gate, outcome in said)
    return (*unheard, *(overrode if tells else ()))


# What work comes to that said nothing, or asked where no gate of its phase lets a person answer.
WITHOUT_A_GATE: Final[Mapping[Outcome, Outcome]] = {Outcome.NONE: Outcome.REVISE, Outcome.ASK: Outcome.BLOCK}
DEFAULT_ENDS: Final[Mapping[Outcome, End]] = {Outcome.BLOCK: End.BLOCKED, Outcome.STOP: End.STOPPED}
END_BY_ACTION: Final[Mapping[str, End]] = {"block": End.BLOCKED, "pause": End.PAUSED, "stop": End.STOPPED}


def enter_phase(workflow: Workflow, position: Position, edge: Edge, outcome: Outcome) -> Position:
    """Return *position* at the start of a phase; only a pass, or an edge that says so, gives fresh rounds."""
    used = 0 if outcome is Outcome.PASS or edge.reset else position.iterations.get(edge.to, 0)
    return position.replace(
        phase=edge.to,
        stage=workflow.phases[edge.to].stage,
        back_from=None if outcome is Outcome.PASS else position.stage,
        worked=False,
        asked=False,
        forced=False,
        verdicts=(),
        waiting=None,
        attempt=0,
        loop=position.loop + workflow.phases[edge.to].loop,
        iterations={**position.iterations, edge.to: used + 1},
    )


def end_work(workflow: Workflow, position: Position, end: End, decision: Decision | None) -> Move:
    effects = resolve_effects(position, workflow.at_end) if end in FINAL else ()
    return Move(position.replace(end=end, waiting=None), decision, effects=effects, decided=position)


def resolve_effects(position: Position, effects: Sequence[Effect]) -> tuple[Effect, ...]:
    return tuple(IF_TAINTED.get(one, one) for one in effects) if position.is_tainted else tuple(effects)


def follow_edge(workflow: Workflow, position: Position, decision: Decision, label: str | None = None) -> Move:
    """Return where *decision* about the phase leads."""
    phase = workflow.phases[position.phase]
    wanted = phase.effects_for(decision.outcome, label)
    if position.is_tainted and not CLEAN_ONLY.isdisjoint(wanted):
        return Move(position.replace(waiting=TAINT), decision if position.forced else None)
    edge = _edge_for(phase, position, decision.outcome, label)
    if decision.outcome is not Outcome.PASS and (most := exhausted_limit(workflow, position, edge)):
        return after_exhaustion(workflow, position, decision, edge, most)
    if edge.to in End.__members__:
        moved = end_work(workflow, position, End(edge.to), decision)
    else:
        moved = Move(enter_phase(workflow, position, edge, decision.outcome), decision, decided=position)
    return moved._replace(effects=(*resolve_effects(position, wanted), *moved.effects))


def after_exhaustion(
    workflow: Workflow, position: Position, decision: Decision, edge: Edge, most: int
) -> Move:
    """Return the move of work whose next phase, where *edge* leads, has had its *most* rounds already."""
    phase = workflow.phases[edge.to]
    if phase.on_exhausted is OnExhausted.FORCE_PASS:
        moved = force_pass(workflow, position, decision, mark=phase.blocking)
    else:
        moved = end_work(workflow, position, END_BY_ACTION[phase.on_exhausted], decision)
    return moved._replace(exhausted=f"Max iterations ({most}) reached without approval")


def force_pass(workflow: Workflow, position: Position, decision: Decision, *, mark: bool = True) -> Move:
    """Let the phase pass against *decision*, where there is something to let pass."""
    passed = {verdict.gate for verdict in position.verdicts if verdict.outcome is Outcome.PASS}
    gates = workflow.phases[position.phase].gates
    undone = any(gate.kind is GateKind.EFFECT and gate.id not in passed for gate in gates)
    # What was not done, merged or made cannot be waved through: it would be called done.
    if undone or position.nothing or not _has_work(workflow, position):
        edge = workflow.phases[position.phase].edge(Outcome.BLOCK, None)
        end = End(edge.to) if edge and edge.to in End.__members__ else End.BLOCKED
        return end_work(workflow, position, end, decision)
    marked = position.with_taints(f"forced:{position.phase}") if mark else position
    moved = follow_edge(
        workflow, marked.replace(forced=True), decision.replace(outcome=Outcome.PASS, reason=None)
    )
    return moved._replace(decision=decision, decided=position)


def _has_work(workflow: Workflow, position: Position) -> bool:
    return position.worked or workflow.phases[position.phase].worker is None


def _edge_for(phase: Phase, position: Position, outcome: Outcome, label: str | None) -> Edge:
    edge = phase.edge(outcome, label) or Edge(to=DEFAULT_ENDS.get(outcome, position.phase))
    if not position.nothing or outcome is not Outcome.PASS:
        return edge
    if position.approvals:
        return Edge(to=End.NOTHING_TO_DO)
    return Edge(to=End.BLOCKED) if edge.to == End.DONE else edge


def exhausted_limit(workflow: Workflow, position: Position, edge: Edge) -> int | None:
    """Return how many rounds the phase that *edge* leads to had, if it has none left."""
    if edge.reset or edge.to not in workflow.phases:
        return None
    most = workflow.phases[edge.to].most(position.path)
    return most if most is not None and position.iterations.get(edge.to, 0) >= most else None


def begin(workflow: Workflow) -> Position:
    return enter_phase(workflow, Position(phase=workflow.start), Edge(to=workflow.start), Outcome.PASS)


def redo(workflow: Workflow, position: Position, *, fresh: bool) -> Position:
    """Return *position* where the work is to be done again; *fresh*: with all of its rounds."""
    is_there = position.stage is Stage.WORK and position.phase in workflow.phases
    phase = position.phase if is_there else position.made_in or workflow.start
    back = position.replace(end=None, iterations={} if fresh else position.iterations)
    return enter_phase(workflow, back, Edge(to=phase), Outcome.PASS if fresh else Outcome.REVISE).replace(
        back_from=None
    )


def next_job(workflow: Workflow, position: Position, facts: Facts = frozenset()) -> WorkflowJob | None:
    """Return what is to be done next; None at an end."""
    if position.end is not None:
        return None
    phase = workflow.phases[position.phase]
    if position.waiting is not None:
        return WaitJob(position.waiting, phase.gate(position.waiting))
    steps = remaining_steps(phase, position, with_derived_facts(phase, position, facts))
    first = [*islice(steps, 1)]
    if not first:
        return ProceedJob(position.phase)
    (gate,) = first
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
    match result:
        case Verdict():
            return _after_verdict(workflow, position, result, facts)
        case Worked():
            return _after_work(workflow, position, result, facts)
        case Crashed():
            broken = _after_crash if result.gate is None else _after_gate_crash
            return broken(workflow, position, result, facts)
        case Proceeded():
            return decide_phase(workflow, position, result.at, facts)


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
        before, moved = moved, after(workflow, moved.position, result, facts)
        moved = moved._replace(effects=(*before.effects, *moved.effects))
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
    if result.outcome is Outcome.PASS or (result.outcome is Outcome.ASK and is_answered_by_a_gate):
        moved = decide_phase(workflow, done, result.at, facts)
    else:
        # Work that ended without a word has failed, and there is nothing to force through.
        outcome = WITHOUT_A_GATE.get(result.outcome, result.outcome)
        there = done.replace(worked=False) if result.outcome is Outcome.NONE else done
        moved = follow_edge(workflow, there, _decision(position, outcome, result.at, result.reason))
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
