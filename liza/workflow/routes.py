"""Where a decided phase leads: along an edge, to an end, or through by force, which leaves a mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from liza.domain.position import FINAL, TAINT, End, Position
from liza.domain.verdicts import Decision, Outcome
from liza.workflow.document import (
    CLEAN_ONLY,
    IF_TAINTED,
    Edge,
    Effect,
    GateKind,
    OnExhausted,
    Phase,
    Workflow,
)
from liza.workflow.position import Move

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
    """Return what becomes of work that would need one round more than the *most* where *edge* leads."""
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
        return end_work(workflow, position, End.BLOCKED, decision)
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
