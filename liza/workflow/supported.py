"""The parts of a workflow document that would be read and do nothing; they are refused with their line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.errors import Violation
from liza.workflow.document import Gate, GateKind, NoVerdict, Workflow

LEAVE_OUT: Final = "no worker performs it; leave it out"


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
