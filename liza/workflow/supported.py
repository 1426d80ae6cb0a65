"""The parts of a workflow document that would be read and do nothing; they are refused with their line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from liza.domain.answers import LOOPS, STEP
from liza.domain.model import End, Outcome, Role
from liza.domain.phase_handoff import HANDOFF_NAMES
from liza.domain.review_rounds import FIRST_REVIEW
from liza.errors import Violation
from liza.workflow.document import (
    AFTER_WORK,
    ANY_PATH,
    Effect,
    Gate,
    GateKind,
    GateMode,
    GateTiming,
    HatAccess,
    OnExhausted,
    Phase,
    Predicate,
    Workflow,
    edges_of,
)

LEAVE_OUT: Final = "no worker performs it; leave it out"
IDEAS: Final = "ideas"  # the one source of tasks that reads a file
_OWN_KINDS: Final = frozenset(GateKind)  # of what a package adds nobody here knows what it says
_SAYS_LABELS: Final = frozenset({GateKind.AGENT, GateKind.HUMAN})
_ROUTED_BY_LABEL: Final = _SAYS_LABELS | {GateKind.COMMAND, GateKind.PROOF, GateKind.SCORE}
_MAY_HAVE_NO_VERDICT: Final = frozenset({GateKind.AGENT, GateKind.COMMAND, GateKind.PROOF, GateKind.SCORE})
_OF_A_FORGE: Final = frozenset({Effect.ENSURE_DRAFT_PR, Effect.FINALIZE_PR, Effect.MARK_NOMERGE})
_WITHOUT_FORGE: Final = frozenset({"goal", "planner", IDEAS})
_ALWAYS_MADE: Final = frozenset({LOOPS, STEP, FIRST_REVIEW}) | HANDOFF_NAMES


class GatePlace(NamedTuple):
    """A gate, and what stands around it."""

    workflow: Workflow
    phase: Phase
    gate: Gate

    def is_told(self, *names: str) -> bool:
        return all(name in self.gate.options for name in names)

    @property
    def is_before(self) -> bool:
        return self.gate.at is GateTiming.BEFORE

    @property
    def gates_before(self) -> tuple[Gate, ...]:
        return self.phase.gates[: self.phase.gates.index(self.gate)]

    @property
    def gates_after(self) -> tuple[Gate, ...]:
        return self.phase.gates[self.phase.gates.index(self.gate) + 1 :]


class IdleGateKey(NamedTuple):
    """A row: a key of a gate, where it would do nothing, and why."""

    key: str
    is_idle: Callable[[GatePlace], bool]
    why: str


class IdlePhaseKey(NamedTuple):
    """A row: a key of a phase, where it would do nothing, and why."""

    key: str
    is_idle: Callable[[Workflow, Phase], bool]
    why: str


class IdleKey(NamedTuple):
    """A row: a key of the document, where it would do nothing, and why."""

    key: str
    is_idle: Callable[[Workflow], bool]
    why: str


def _gates(workflow: Workflow) -> Iterator[Gate]:
    return (gate for phase in workflow.phases.values() for gate in phase.gates)


def _has_paths(workflow: Workflow) -> bool:
    return any(gate.sets_path for gate in _gates(workflow))


def _asks_for_path(workflow: Workflow) -> bool:
    """Return whether anything is otherwise on one path than on another."""
    by_path = any({*phase.max_iterations, *phase.session} - {ANY_PATH} for phase in workflow.phases.values())
    asked = (Predicate.PATH_UNSET in (*gate.when, *gate.unless, *gate.skip_if) for gate in _gates(workflow))
    return by_path or any(asked) or any(gate.skip_rest_on for gate in _gates(workflow))


def _overrides_nobody(at: GatePlace) -> bool:
    return at.gate.taints_on_override and not any(one.mode is GateMode.ADVISORY for one in at.gates_before)


def _merges_nothing(at: GatePlace) -> bool:
    return at.is_told("tree") and not any(one.kind is GateKind.EFFECT for one in at.phase.gates)


def _skips_nothing(at: GatePlace) -> bool:
    later = any(one.at is GateTiming.AFTER for one in at.gates_after)
    return bool(at.gate.skip_rest_on) and (at.is_before or not later)


def _sees_nothing_before(at: GatePlace) -> bool:
    """Return whether the gate looks at work that is not there yet."""
    looks_at_work = at.gate.kind in {GateKind.SCOPE, GateKind.PROOF}
    return at.is_before and (
        looks_at_work or (at.gate.kind is GateKind.ARTIFACT and not at.is_told("checkpoint"))
    )


def _is_never_kept_for(at: GatePlace) -> bool:
    read = {str(one.options.get("results")) for one in at.gates_after if one.kind is GateKind.SCORE}
    return at.is_told("keep") and not read & set(at.gate.options["keep"])


def _scans_nothing(at: GatePlace) -> bool:
    told = at.gate.options
    is_off = told.get("secrets") is False and told.get("commands") is False and told.get("paths") == "ignore"
    return at.gate.kind is GateKind.SCAN and is_off and told.get("bypasses") is not True


def _nobody_announces(at: GatePlace) -> bool:
    """Return whether no gate of the workflow wants to see what is announced before the work."""
    return not any(phase.asks_checkpoint for phase in at.workflow.phases.values())


# The conditions that never change in some places: where each of them is always, or never, so.
_FIXED_CONDITIONS: Final[tuple[tuple[Predicate, Callable[[GatePlace], bool], str], ...]] = (
    (
        Predicate.ASKED,
        lambda at: at.phase.worker is None or at.is_before,
        "`asked` does nothing: nobody has worked by then, so that nobody asked",
    ),
    (
        Predicate.FINAL_ITERATION,
        lambda at: not at.phase.max_iterations,
        "`final_iteration` does nothing without max_iterations",
    ),
    (
        Predicate.PATH_UNSET,
        lambda at: not _has_paths(at.workflow),
        "`path_unset` does nothing: no gate has `sets_path`",
    ),
)
_CONDITION_KEYS: Final = ("when", "unless", "skip_if")


def _condition_row(
    key: str, predicate: Predicate, is_fixed: Callable[[GatePlace], bool], why: str
) -> IdleGateKey:
    return IdleGateKey(key, lambda at: predicate in getattr(at.gate, key) and is_fixed(at), why)


def _never_asked_row(key: str) -> IdleGateKey:
    why = "the gate does nothing: `when` asks for the same, so that it is never asked"
    return IdleGateKey(key, lambda at: bool(set(at.gate.when).intersection(getattr(at.gate, key))), why)


def _comparing_row(key: str) -> IdleGateKey:
    def is_idle(at: GatePlace) -> bool:
        return at.gate.kind is GateKind.SCORE and at.is_told(key) and not at.is_told("baseline")

    return IdleGateKey(key, is_idle, "it does nothing without baseline")


GATE_KEYS: Final = (
    IdleGateKey(
        "on_none",
        lambda at: (
            "on_none" in at.gate.model_fields_set
            and at.gate.kind in _OWN_KINDS
            and at.gate.kind not in _MAY_HAVE_NO_VERDICT
        ),
        "it does nothing: such a machine always has a verdict",
    ),
    IdleGateKey(
        "on_none",
        lambda at: "on_none" in at.gate.model_fields_set and at.gate.mode is not GateMode.DECIDE,
        "it does nothing: this gate decides nothing",
    ),
    IdleGateKey(
        "on_error",
        lambda at: "on_error" in at.gate.model_fields_set and at.gate.kind is not GateKind.AGENT,
        "it does nothing: only a gate of kind agent has somebody who cannot be asked",
    ),
    IdleGateKey(
        "on_error.then",
        lambda at: "then" in at.gate.on_error.model_fields_set and at.gate.mode is GateMode.RECORD,
        "it does nothing: what is only recorded stops nothing",
    ),
    IdleGateKey(
        "role",
        lambda at: at.gate.role is not None and at.gate.kind is not GateKind.AGENT,
        "it does nothing: only a gate of kind agent asks a role",
    ),
    IdleGateKey(
        "sets_path",
        lambda at: at.gate.sets_path and at.gate.kind in _OWN_KINDS - _SAYS_LABELS,
        "it does nothing: a machine names no path",
    ),
    IdleGateKey(
        "sets_path",
        lambda at: at.gate.sets_path and not _asks_for_path(at.workflow),
        "it does nothing: no max_iterations, session or gate is for one path alone",
    ),
    IdleGateKey("skip_rest_on", _skips_nothing, "it does nothing: no gate comes after it"),
    IdleGateKey(
        "skip_rest_on",
        lambda at: bool(at.gate.skip_rest_on) and at.gate.kind in _OWN_KINDS - _ROUTED_BY_LABEL,
        "it does nothing: such a machine says no label",
    ),
    IdleGateKey(
        "taints_on_override", _overrides_nobody, "it does nothing: no gate before it is `mode: advisory`"
    ),
    IdleGateKey(
        "at",
        lambda at: at.is_before and at.phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
    IdleGateKey("at", _sees_nothing_before, "it does nothing: before the work there is nothing to look at"),
    *(_condition_row(key, *row) for key in _CONDITION_KEYS for row in _FIXED_CONDITIONS),
    *map(_never_asked_row, ("unless", "skip_if")),
    IdleGateKey(
        "tree",
        lambda at: at.gate.kind in _OWN_KINDS and at.gate.options.get("tree", "merged") != "merged",
        "it does nothing: only `merged` is another tree than that of the work",
    ),
    IdleGateKey("tree", _merges_nothing, "it does nothing: nothing is merged in this phase"),
    IdleGateKey(
        "tolerance",
        lambda at: at.gate.kind is GateKind.SCOPE and at.is_told("tolerance") and not at.is_told("max_loc"),
        "it does nothing without max_loc",
    ),
    IdleGateKey(
        "limit",
        lambda at: (
            at.gate.kind is GateKind.SCOPE and at.is_told("limit") and not at.is_told("max_loc", "max_files")
        ),
        "it does nothing without both max_loc and max_files",
    ),
    IdleGateKey(
        "checkpoint",
        lambda at: at.is_told("checkpoint") and at.gate.kind is GateKind.ARTIFACT and not at.is_before,
        "it does nothing without `at: before`: after the work nobody announces it",
    ),
    IdleGateKey(
        "max_bytes",
        lambda at: at.gate.kind is GateKind.ARTIFACT and at.is_told("max_bytes") and not at.is_told("diff"),
        "it does nothing without diff",
    ),
    IdleGateKey(
        "schema",
        lambda at: at.gate.kind is GateKind.ARTIFACT and at.is_told("schema") and at.phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
    IdleGateKey(
        "schema",
        lambda at: at.gate.options.get("schema") == "handoff" and at.phase.hands_on is None,
        "it does nothing without hands_on in this phase",
    ),
    IdleGateKey(
        "docs",
        lambda at: at.gate.kind is GateKind.REFS and at.is_told("docs") and not at.is_told("max_docs"),
        "it does nothing without max_docs",
    ),
    IdleGateKey("paths", _scans_nothing, "the gate does nothing: all that it looks for is turned off"),
    IdleGateKey(
        "directory",
        lambda at: (
            at.is_told("directory") and (at.is_told("from") or at.gate.options.get("command") == "setup")
        ),
        "it does nothing: the setup, and what a checkpoint or a task names, run at the top",
    ),
    IdleGateKey("keep", _is_never_kept_for, "it does nothing: no gate of kind score reads such a file"),
    IdleGateKey(
        "announced",
        lambda at: at.is_told("announced") and _nobody_announces(at),
        "it does nothing: no gate asks for a checkpoint",
    ),
    IdleGateKey(
        "from",
        lambda at: at.gate.options.get("from") == "checkpoint.validation" and _nobody_announces(at),
        "it does nothing: no gate asks for a checkpoint",
    ),
    *map(_comparing_row, ("min_delta", "higher_is_better")),
)


def _keeps_no_session(workflow: Workflow, phase: Phase) -> bool:
    is_said = "session" in phase.model_fields_set
    return is_said and (phase.worker is None or workflow.hat(phase.worker).access is not HatAccess.WRITE)


def _counts_no_round(workflow: Workflow, phase: Phase) -> bool:
    """Return whether no work comes back to the phase: only what comes back uses up its rounds."""
    (name,) = (name for name, one in workflow.phases.items() if one is phase)
    comes_back = any(
        edge.to == name and outcome is not Outcome.PASS
        for one in workflow.phases.values()
        for outcome, _, edge in edges_of(one)
    )
    by_crash = workflow.crash_consumes_iteration and phase.worker is not None
    return bool(phase.max_iterations) and Outcome.REVISE in phase.edges and not comes_back and not by_crash


def _resets_nothing(workflow: Workflow, phase: Phase) -> bool:
    return any(
        edge.reset
        and (
            outcome is Outcome.PASS
            or edge.to in End.__members__
            or not workflow.phases[edge.to].max_iterations
        )
        for outcome, _, edge in edges_of(phase)
    )


def _says_no_label(phase: Phase) -> bool:
    return all(gate.kind in _OWN_KINDS - _ROUTED_BY_LABEL for gate in phase.gates)


def _path_row(key: str) -> IdlePhaseKey:
    def is_idle(workflow: Workflow, phase: Phase) -> bool:
        return bool(getattr(phase, key).keys() - {ANY_PATH}) and not _has_paths(workflow)

    return IdlePhaseKey(key, is_idle, "what it says of a path does nothing: no gate has `sets_path`")


def _label_row(key: str) -> IdlePhaseKey:
    def is_idle(_: Workflow, phase: Phase) -> bool:
        return any("/" in outcome for outcome in getattr(phase, key)) and _says_no_label(phase)

    return IdlePhaseKey(key, is_idle, "what is said of a label does nothing: no gate of this phase says one")


PHASE_KEYS: Final = (
    IdlePhaseKey("session", _keeps_no_session, "it does nothing: nobody who writes works in this phase"),
    *map(_path_row, ("session", "max_iterations")),
    IdlePhaseKey("max_iterations", _counts_no_round, "it does nothing: no work comes back to this phase"),
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
        "hands_on",
        lambda _, phase: phase.hands_on is not None and phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
    IdlePhaseKey(
        "next",
        lambda _, phase: phase.next is not None and Outcome.PASS in phase.edges,
        "it does nothing: `edges` says where a pass leads",
    ),
    IdlePhaseKey(
        "edges", _resets_nothing, "reset does nothing: where it leads, no rounds are used up by then"
    ),
    *map(_label_row, ("edges", "effects")),
    IdlePhaseKey(
        f"effects.{AFTER_WORK}",
        lambda _, phase: AFTER_WORK in phase.effects and phase.worker is None,
        "it does nothing: nobody works in this phase",
    ),
    IdlePhaseKey(
        "effects",
        lambda workflow, phase: (
            workflow.tasks.source in _WITHOUT_FORGE
            and any(_OF_A_FORGE.intersection(effects) for effects in phase.effects.values())
        ),
        "pull requests do nothing here: the tasks are no issues of a forge",
    ),
)


def _limits_no_worker(workflow: Workflow) -> bool:
    return not any(phase.worker and phase.max_iterations for phase in workflow.phases.values())


def _has_nothing_to_remember(workflow: Workflow) -> bool:
    """Return whether no agent judges, and only one phase has a worker."""
    judged = any(gate.kind is GateKind.AGENT for gate in _gates(workflow))
    return not judged and sum(phase.worker is not None for phase in workflow.phases.values()) < 2  # noqa: PLR2004 - one and a next


KEYS: Final = (
    IdleKey(
        "crash_consumes_iteration",
        lambda workflow: workflow.crash_consumes_iteration and _limits_no_worker(workflow),
        "it does nothing: no phase in which somebody works has max_iterations",
    ),
    IdleKey(
        "remembers",
        lambda workflow: workflow.remembers and _has_nothing_to_remember(workflow),
        "it does nothing: no agent judges, and no second phase has somebody who works",
    ),
    IdleKey(
        "tasks.file",
        lambda workflow: workflow.tasks.file is not None and workflow.tasks.source != IDEAS,
        "it does nothing: only the source `ideas` reads a file",
    ),
    IdleKey(
        "tasks.limit",
        lambda workflow: workflow.tasks.limit is not None and workflow.tasks.source in {"goal", "planner"},
        "it does nothing: this source has no number of tasks",
    ),
    IdleKey(
        "at_end",
        lambda workflow: len(set(workflow.at_end)) < len(workflow.at_end),
        "what is said twice does nothing the second time",
    ),
)


def unsupported_parts(workflow: Workflow) -> list[Violation]:
    """Return every part of *workflow* that would be accepted and do nothing."""
    return [
        *_idle_phase_keys(workflow),
        *_idle_gate_keys(workflow),
        *(Violation(row.key, row.why, LEAVE_OUT) for row in KEYS if row.is_idle(workflow)),
        *_idle_names(workflow),
    ]


def _idle_phase_keys(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        for row in PHASE_KEYS:
            if row.is_idle(workflow, phase):
                yield Violation(f"phases.{name}.{row.key}", row.why, LEAVE_OUT)


def _idle_gate_keys(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        for number, gate in enumerate(phase.gates):
            place = GatePlace(workflow, phase, gate)
            for row in GATE_KEYS:
                if row.is_idle(place):
                    yield Violation(f"phases.{name}.gates[{number}].{row.key}", row.why, LEAVE_OUT)


def _idle_names(workflow: Workflow) -> Iterator[Violation]:
    """Yield the hats, texts and rules by whose name nothing is done."""
    for name, hat in workflow.roles.items():
        if hat.process is Role.REVIEWER and hat.access is HatAccess.WRITE:
            yield Violation(f"roles.{name}.access", "it does nothing: who judges changes nothing", "say read")
    made = _ALWAYS_MADE | {phase.lower() for phase, one in workflow.phases.items() if one.worker}
    known = f"these are made: {', '.join(sorted(made))}"
    for name in sorted(workflow.artifacts.keys() - made):
        yield Violation(f"artifacts.{name}", "it does nothing: nobody makes it", known)
    for name, hat in workflow.roles.items():
        for one in sorted(set(hat.sees or ()) - made):
            yield Violation(f"roles.{name}.sees", f"nobody makes {one!r}", known)
    seen = set[tuple[str, str | None]]()
    for number, rule in enumerate(workflow.rules):
        if (rule.name, rule.phase) in seen:
            yield Violation(f"rules[{number}]", f"{rule.name} watches already", "leave it out")
        seen.add((rule.name, rule.phase))
