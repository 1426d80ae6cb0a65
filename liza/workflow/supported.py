"""The parts of a workflow document that workers support; all others are refused with their line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.domain.position import End
from liza.domain.verdicts import Outcome
from liza.errors import Violation
from liza.workflow.document import (
    ANY_PATH,
    Gate,
    GateKind,
    NoVerdict,
    OnExhausted,
    Phase,
    Predicate,
    Workflow,
)

LEAVE_OUT: Final = "no worker performs it yet; leave it out"

WORKFLOW_KEYS: Final = ("crash_consumes_iteration", "workspace", "for_each", "at_end")
PHASE_KEYS: Final = ("effects", "loop", "session")
GATE_KEYS: Final = ("on_error", "sets_path")
GIVING_UP: Final = frozenset({End.STOPPED, End.BLOCKED, End.PAUSED})  # where work that is sent back may end
SILENCE: Final = frozenset({Outcome.BLOCK, Outcome.REVISE})  # what the silence of a reviewer may come to
HUMAN_OPTIONS: Final = ("remind_minutes", "on_timeout")
# What nobody tells the engine about the work of a coder.
UNKNOWN_FACTS: Final = frozenset(
    {
        *(Predicate.ASKED, Predicate.UPFRONT_PLAN, Predicate.PATH_UNSET),
        *(Predicate.RISK_MEDIUM_OR_HIGH, Predicate.EMPTY_OUTPUT, Predicate.SIMPLE_OUTPUT),
    }
)


def unsupported_parts(workflow: Workflow) -> list[Violation]:
    """Return every part of *workflow* that would be accepted and do nothing."""
    found = [*_ineffective_keys(workflow, "", WORKFLOW_KEYS)]
    for name, phase in workflow.phases.items():
        found += _phase_violations(workflow, phase, f"phases.{name}")
    return found


def _ineffective_keys(
    record: Workflow | Phase | Gate, path: str, keys: tuple[str, ...]
) -> Iterator[Violation]:
    """Yield the *keys* of *record* that say something else than what is so anyway."""
    usual = type(record).model_fields
    for key in keys:
        if getattr(record, key) != usual[key].get_default(call_default_factory=True):
            yield Violation(f"{path}.{key}".lstrip("."), f"{key!r} does nothing", LEAVE_OUT)


def _phase_violations(workflow: Workflow, phase: Phase, path: str) -> Iterator[Violation]:
    yield from _ineffective_keys(phase, path, PHASE_KEYS)
    if phase.max_iterations.keys() - {ANY_PATH}:
        yield Violation(f"{path}.max_iterations", "a limit by path does nothing", "write one number")
    if phase.on_exhausted is OnExhausted.FORCE_PASS:
        problem = "no worker goes on with work that is forced through"
        yield Violation(f"{path}.on_exhausted", problem, "write block, pause or stop")
    for outcome, edge in phase.edges.items():
        usual = {"revise": workflow.start, "pass": phase.next or "", "block": "BLOCKED"}.get(outcome)
        is_end = outcome == Outcome.REVISE and edge.to in GIVING_UP
        if (edge.to != usual and not is_end) or edge.reset:
            where = f"{outcome} leads to {usual}" if usual else f"no worker takes an edge for {outcome}"
            yield Violation(f"{path}.edges.{outcome}", f"it does nothing: {where}", LEAVE_OUT)
    for number, gate in enumerate(phase.gates):
        yield from _gate_violations(gate, f"{path}.gates[{number}]")


def _gate_violations(gate: Gate, path: str) -> Iterator[Violation]:
    yield from _ineffective_keys(gate, path, GATE_KEYS)
    if gate.on_none != NoVerdict() and (
        gate.kind is not GateKind.AGENT or gate.on_none.outcome not in SILENCE
    ):
        yield Violation(f"{path}.on_none", f"{gate.on_none.outcome.value!r} does nothing here", LEAVE_OUT)
    for key in ("when", "unless", "skip_if"):
        for fact in sorted(UNKNOWN_FACTS.intersection(getattr(gate, key))):
            yield Violation(f"{path}.{key}", f"nobody knows whether {fact.value!r} is so", LEAVE_OUT)
    for key in HUMAN_OPTIONS if gate.kind is GateKind.HUMAN else ():
        if key in gate.options:
            yield Violation(f"{path}.{key}", f"{key!r} does nothing", LEAVE_OUT)
