"""The floor that no workflow document can lower.

Nobody judges their own work; no verdict is no pass; work that was forced through is marked; nothing is merged
or called done that nobody let pass; a person's silence approves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from liza.domain.position import End
from liza.domain.verdicts import Outcome
from liza.errors import Violation
from liza.workflow.document import (
    IF_TAINTED,
    PUBLISHING_EFFECTS,
    Effect,
    ErrorOutcome,
    Gate,
    GateKind,
    GateMode,
    OnExhausted,
    Phase,
    Predicate,
    Workflow,
    edges_of,
    gates_in_order,
)

SUCCESS: Final = frozenset({End.DONE, End.NOTHING_TO_DO})


def floor_violations(workflow: Workflow) -> list[Violation]:
    return [one for check in FLOOR for one in check(workflow)]


def _silence_is_no_pass(workflow: Workflow) -> Iterator[Violation]:
    for at, phase, gate in _all_gates(workflow):
        silent = gate.on_none
        if silent.outcome in {Outcome.ASK, Outcome.NONE} or (
            silent.outcome is Outcome.PASS and not silent.label
        ):
            mend = "use block, revise or stop"
            yield Violation(f"{at}.on_none", f"no verdict of {gate.id} would become {silent.outcome}", mend)
        elif silent.outcome is Outcome.PASS and not _only_sets_path(phase, gate):
            problem = f"no verdict of {gate.id} would become a pass"
            yield Violation(
                f"{at}.on_none", problem, "only a gate that sets the path, with a judge after it, may"
            )
        if silent.label and silent.outcome is not Outcome.PASS:
            yield Violation(f"{at}.on_none", f"{silent.outcome} takes no label", f"write {silent.outcome}")


def _only_sets_path(phase: Phase, gate: Gate) -> bool:
    """Return whether *gate* only sets the path, and a later gate decides on the fallback path."""
    later = phase.gates[phase.gates.index(gate) + 1 :]
    return (
        gate.sets_path and gate.on_none.label not in gate.skip_rest_on and any(one.decides for one in later)
    )


def _people_are_waited_for(workflow: Workflow) -> Iterator[Violation]:
    for at, _, gate in _all_gates(workflow):
        if gate.kind is not GateKind.HUMAN:
            continue
        if gate.options.get("on_timeout", "remind") != "remind":
            problem = f"the silence of a person at {gate.id} would become {gate.options['on_timeout']}"
            yield Violation(
                f"{at}.on_timeout", problem, "use `remind`: a person is asked again, and waited for"
            )
        if "on_none" in gate.model_fields_set or "on_error" in gate.model_fields_set:
            yield Violation(at, f"the person at {gate.id} is waited for", "remove on_none and on_error")


def _who_acts_decides(workflow: Workflow) -> Iterator[Violation]:
    """People and effects are no advice, and nothing that was not done is called done."""
    for at, phase, gate in _all_gates(workflow):
        if gate.kind in {GateKind.HUMAN, GateKind.EFFECT} and gate.mode is not GateMode.DECIDE:
            yield Violation(f"{at}.mode", f"a gate of kind {gate.kind} always decides", "remove `mode`")
        if gate.kind is not GateKind.EFFECT:
            continue
        if gate.on_error.then is ErrorOutcome.FORCE_PASS or phase.on_exhausted is OnExhausted.FORCE_PASS:
            yield Violation(at, f"{gate.id} would be called done by force", "use block, pause or stop")
        if gate.when or gate.unless or gate.skip_if:
            yield Violation(at, f"{gate.id} could be left out", "remove when, unless and skip_if")


def _effects_show_what_passed(workflow: Workflow) -> Iterator[Violation]:
    said = {f"phases.{name}.effects.{key}": effects
            for name, phase in workflow.phases.items()
            for key, effects in phase.effects.items()
            if key.partition("/")[0] != Outcome.PASS}  # fmt: skip
    for path, effects in {**said, "at_end": workflow.at_end}.items():
        for effect in sorted(PUBLISHING_EFFECTS.intersection(effects)):
            yield Violation(path, f"{effect} would happen to work that did not pass", "put it under `pass`")


class _ReachedPhase(NamedTuple):
    """A way to come to a phase: how far the work is let pass by then, and who made it."""

    phase: str
    level: int
    maker: str | None


# How far work is let pass. Nobody has, or somebody had before a phase that does not count, or somebody has.
NOBODY, BEFORE, SOMEBODY = range(3)


def _nothing_is_done_unseen(workflow: Workflow) -> Iterator[Violation]:
    """Walk every way through the document, as if each condition could go either way."""
    seen, left = set[_ReachedPhase](), [_ReachedPhase(workflow.start, NOBODY, None)]
    told = set[Violation]()
    while left:
        here = left.pop()
        if here in seen or here.phase not in workflow.phases:
            continue
        seen.add(here)
        walk = _PhaseVisit(workflow, here)
        left += walk.next()
        told.update(walk.wrong)
    yield from sorted(told, key=lambda one: (one.path, one.problem))


class _PhaseVisit:
    """One visit of a phase: how far the work can be let pass when it leaves by a pass."""

    def __init__(self, workflow: Workflow, here: _ReachedPhase) -> None:
        self._phase, self._name = workflow.phases[here.phase], here.phase
        self._maker = self._phase.worker or here.maker
        self.wrong: list[Violation] = []
        back = [edge.to for outcome, _, edge in edges_of(self._phase) if outcome is not Outcome.PASS]
        again = [workflow.phases[to] for to in (self._name, *back) if to in workflow.phases]
        unmarked = any(one.on_exhausted is OnExhausted.FORCE_PASS and not one.blocking for one in again)
        self._passing = self._levels(here.level, unmarked=unmarked)

    def next(self) -> Iterator[_ReachedPhase]:
        for outcome, label, edge in edges_of(self._phase):
            passes = outcome is Outcome.PASS
            for level in self._passing if passes else {NOBODY}:
                self._judge_effects(level, self._phase.effects_for(outcome, label) if passes else ())
                if edge.to in SUCCESS and level == NOBODY:
                    self._tell(f"work that nobody let pass would be {edge.to}")
                yield _ReachedPhase(edge.to, level, self._maker)

    def _levels(self, level: int, *, unmarked: bool) -> set[int]:
        before, later = gates_in_order(self._phase)
        levels = {level}
        for gate in before:
            levels = self._through(gate, levels)
        if self._phase.worker is not None:
            levels = {NOBODY if self._phase.blocking else min(one, BEFORE) for one in levels}
        leaving = {min(one, BEFORE) for one in levels} if unmarked else set()
        for gate in later:
            levels = self._through(gate, levels)
            leaving |= levels if gate.skip_rest_on else set()
        return levels | leaving

    def _through(self, gate: Gate, levels: set[int]) -> set[int]:
        if gate.kind is GateKind.EFFECT:
            for level in levels:
                self._judge_effects(level, (gate.options["effect"],))
        if not gate.decides:
            return levels
        if gate.kind is GateKind.AGENT and gate.role == self._maker:
            self._tell(f"{gate.role} would judge its own work at {gate.id}")
        # Left out in the last round, it leaves a mark; left out for another reason, it does not.
        sure = not gate.when and not gate.unless and set(gate.skip_if) <= {Predicate.FINAL_ITERATION}
        return {SOMEBODY} if sure else levels | {SOMEBODY}

    def _judge_effects(self, level: int, effects: tuple[str, ...]) -> None:
        # Nobody here knows what an effect of a package does with the work: it may show it to all the world.
        needed = [
            (effect, BEFORE if effect in IF_TAINTED else SOMEBODY)
            for effect in effects
            if effect in PUBLISHING_EFFECTS or effect not in list(Effect)
        ]
        for effect, least in needed:
            if level < least:
                self._tell(f"{effect} would happen to work that nobody let pass")

    def _tell(self, problem: str) -> None:
        mend = "after the work, let a gate of kind human, or of kind agent with another role, decide"
        self.wrong.append(Violation(f"phases.{self._name}", problem, mend))


def _all_gates(workflow: Workflow) -> Iterator[tuple[str, Phase, Gate]]:
    for name, phase in workflow.phases.items():
        for number, gate in enumerate(phase.gates):
            yield f"phases.{name}.gates[{number}]", phase, gate


FLOOR: Final[tuple[Callable[[Workflow], Iterator[Violation]], ...]] = (
    _silence_is_no_pass,
    _people_are_waited_for,
    _who_acts_decides,
    _effects_show_what_passed,
    _nothing_is_done_unseen,
)
