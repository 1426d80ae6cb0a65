"""The parts of a workflow document that would be read and do nothing; they are refused with their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from liza.domain.model import Role
from liza.errors import Violation
from liza.workflow.document import (
    AFTER_WORK,
    Gate,
    GateKind,
    GateMode,
    GateTiming,
    HatAccess,
    NoVerdict,
    OnExhausted,
    Phase,
    Workflow,
)

LEAVE_OUT: Final = "no worker performs it; leave it out"
IDEAS: Final = "ideas"  # the one source of tasks that reads a file
_SAYS_LABELS: Final = frozenset({GateKind.AGENT, GateKind.HUMAN})


class IdleGateKey(NamedTuple):
    """A row: a key of a gate, where it would do nothing, and why."""

    key: str
    is_idle: Callable[[Phase, Gate], bool]
    why: str


class IdlePhaseKey(NamedTuple):
    """A row: a key of a phase, where it would do nothing, and why."""

    key: str
    is_idle: Callable[[Workflow, Phase], bool]
    why: str


def _is_told(gate: Gate, *names: str) -> bool:
    return all(name in gate.options for name in names)


def _overrides_nobody(phase: Phase, gate: Gate) -> bool:
    before = phase.gates[: phase.gates.index(gate)]
    return gate.taints_on_override and not any(one.mode is GateMode.ADVISORY for one in before)


def _merges_nothing(phase: Phase, gate: Gate) -> bool:
    is_merging = any(one.kind is GateKind.EFFECT for one in phase.gates)
    return gate.options.get("tree") == "merged" and not is_merging


def _keeps_no_session(workflow: Workflow, phase: Phase) -> bool:
    is_said = "session" in phase.model_fields_set
    return is_said and (phase.worker is None or workflow.hat(phase.worker).access is not HatAccess.WRITE)


GATE_KEYS: Final = (
    IdleGateKey(
        "on_none",
        lambda _, gate: gate.on_none != NoVerdict() and gate.kind is not GateKind.AGENT,
        "it does nothing: a machine always has a verdict",
    ),
    IdleGateKey(
        "role",
        lambda _, gate: gate.role is not None and gate.kind is not GateKind.AGENT,
        "it does nothing: only a gate of kind agent asks a role",
    ),
    IdleGateKey(
        "sets_path",
        lambda _, gate: gate.sets_path and gate.kind in list(GateKind) and gate.kind not in _SAYS_LABELS,
        "it does nothing: a machine names no path",
    ),
    IdleGateKey(
        "taints_on_override", _overrides_nobody, "it does nothing: no gate before it is `mode: advisory`"
    ),
    IdleGateKey(
        "at",
        lambda phase, gate: gate.at is GateTiming.BEFORE and phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
    IdleGateKey("tree", _merges_nothing, "it does nothing: nothing is merged in this phase"),
    IdleGateKey(
        "tolerance",
        lambda _, gate: _is_told(gate, "tolerance") and not _is_told(gate, "max_loc"),
        "it does nothing without max_loc",
    ),
    IdleGateKey(
        "limit",
        lambda _, gate: (
            gate.kind is GateKind.SCOPE
            and _is_told(gate, "limit")
            and not _is_told(gate, "max_loc", "max_files")
        ),
        "it does nothing without both max_loc and max_files",
    ),
)
PHASE_KEYS: Final = (
    IdlePhaseKey("session", _keeps_no_session, "it does nothing: nobody who writes works in this phase"),
    IdlePhaseKey(
        "on_exhausted",
        lambda _, phase: "on_exhausted" in phase.model_fields_set and not phase.max_iterations,
        "it does nothing without max_iterations",
    ),
    IdlePhaseKey(
        "blocking",
        lambda _, phase: not phase.blocking and phase.on_exhausted is not OnExhausted.FORCE_PASS,
        "it does nothing without `on_exhausted: force_pass`",
    ),
    IdlePhaseKey(
        "collect",
        lambda _, phase: phase.collect and sum(gate.at is GateTiming.AFTER for gate in phase.gates) < 2,  # noqa: PLR2004 - the first decides
        "it does nothing with fewer than two gates after the work",
    ),
    IdlePhaseKey(
        "loop",
        lambda workflow, phase: phase.loop and workflow.page is None,
        "it does nothing: loops are counted for a page, and there is none",
    ),
    IdlePhaseKey(
        f"effects.{AFTER_WORK}",
        lambda _, phase: AFTER_WORK in phase.effects and phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
)


def unsupported_parts(workflow: Workflow) -> list[Violation]:
    """Return every part of *workflow* that would be accepted and do nothing."""
    return [*_idle_phase_keys(workflow), *_idle_gate_keys(workflow), *_idle_keys(workflow)]


def _idle_phase_keys(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        for row in PHASE_KEYS:
            if row.is_idle(workflow, phase):
                yield Violation(f"phases.{name}.{row.key}", row.why, LEAVE_OUT)


def _idle_gate_keys(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        for number, gate in enumerate(phase.gates):
            for row in GATE_KEYS:
                if row.is_idle(phase, gate):
                    yield Violation(f"phases.{name}.gates[{number}].{row.key}", row.why, LEAVE_OUT)


def _idle_keys(workflow: Workflow) -> Iterator[Violation]:
    tasks = workflow.tasks
    if tasks.file is not None and tasks.source != IDEAS:
        yield Violation("tasks.file", f"it does nothing: {tasks.source} reads no file", LEAVE_OUT)
    if tasks.limit is not None and tasks.source in {"goal", "planner"}:
        yield Violation("tasks.limit", f"it does nothing: {tasks.source} has no number of tasks", LEAVE_OUT)
    for name, hat in workflow.roles.items():
        if hat.process is Role.REVIEWER and hat.access is HatAccess.WRITE:
            yield Violation(f"roles.{name}.access", "it does nothing: who judges changes nothing", "say read")
