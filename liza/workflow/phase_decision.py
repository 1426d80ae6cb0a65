"""What is left to do in a phase, and its decision once nothing is."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias

from liza.domain.position import Position
from liza.domain.verdicts import Decision, Outcome, Verdict
from liza.workflow.document import (
    DERIVED,
    Gate,
    GateMode,
    GateTiming,
    Phase,
    Predicate,
    Workflow,
    gates_in_order,
)
from liza.workflow.position import Move
from liza.workflow.routes import follow_edge

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


def remaining_steps(phase: Phase, position: Position, facts: Facts) -> list[Gate | None]:
    """Return what is left to do in this visit, in order; None stands for the work."""
    left: list[Gate | None] = []
    said = {verdict.gate: verdict for verdict in position.verdicts}
    before, later = gates_in_order(phase)
    if not position.worked:
        left += [gate for gate in before if gate.id not in said and gate.applies(facts)]
        left += [None] if phase.worker else []
    for gate in later:
        if gate.id in said and said[gate.id].label in gate.skip_rest_on:
            break
        # Where there is nothing to merge there is nothing for a machine to check: somebody confirms it.
        if gate.id not in said and gate.applies(facts) and not (position.nothing and gate.is_mechanical):
            left.append(gate)
    return left


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
        and remaining_steps(phase, position, now)
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
    moved = follow_edge(workflow, position.with_taints(*marks), decision, label)
    return moved._replace(skipped=tuple(gate.id for gate in skipped))


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
    """Return what a pass is tainted with: nobody decided at the end, or advice was thrown to the wind."""
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
