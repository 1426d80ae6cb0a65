"""The parts of a workflow document that workers support; all others are refused with their line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.errors import Violation
from liza.workflow.document import Gate, GateKind, NoVerdict, Predicate, Workflow

LEAVE_OUT: Final = "no worker performs it yet; leave it out"

HUMAN_OPTIONS: Final = ("remind_minutes", "on_timeout")
# What nobody tells the engine about work.
UNKNOWN_FACTS: Final = frozenset({Predicate.UPFRONT_PLAN})


def unsupported_parts(workflow: Workflow) -> list[Violation]:
    """Return every part of *workflow* that would be accepted and do nothing."""
    found = list[Violation]()
    for name, phase in workflow.phases.items():
        for number, gate in enumerate(phase.gates):
            found += _gate_violations(gate, f"phases.{name}.gates[{number}]")
    return found


def _gate_violations(gate: Gate, path: str) -> Iterator[Violation]:
    if gate.on_none != NoVerdict() and gate.kind is not GateKind.AGENT:
        yield Violation(f"{path}.on_none", "it does nothing: a machine always has a verdict", LEAVE_OUT)
    for key in ("when", "unless", "skip_if"):
        for fact in sorted(UNKNOWN_FACTS.intersection(getattr(gate, key))):
            yield Violation(f"{path}.{key}", f"nobody knows whether {fact.value!r} is so", LEAVE_OUT)
    for key in HUMAN_OPTIONS if gate.kind is GateKind.HUMAN else ():
        if key in gate.options:
            yield Violation(f"{path}.{key}", f"{key!r} does nothing", LEAVE_OUT)
