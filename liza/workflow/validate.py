"""Whether a workflow document hangs together: what it names is there, and it leads somewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from liza.domain.dialect_answers import KNOWN_DIALECTS
from liza.domain.model import Role
from liza.domain.position import End
from liza.domain.problems import did_you_mean
from liza.domain.rules import ACTIONS, ALWAYS, GROUPS, RULES, Rule
from liza.domain.verdicts import Outcome
from liza.errors import Violation
from liza.workflow.document import AFTER_WORK, OWN_HATS, GateKind, WatchedRule, Workflow, edges_of

MAKERS: Final[tuple[Role, ...]] = (Role.PLANNER, Role.CODER)
JUDGES: Final[tuple[Role, ...]] = (Role.REVIEWER,)


def structure_violations(workflow: Workflow) -> list[Violation]:
    """Return what is wrong with *workflow*; where it leads is looked at once all names are right."""
    return [one for check in STRUCTURE for one in check(workflow)] or list(_unreachable(workflow))


def _start(workflow: Workflow) -> Iterator[Violation]:
    if workflow.start not in workflow.phases:
        yield Violation(
            "start", f"there is no phase {workflow.start!r}", did_you_mean(workflow.start, [*workflow.phases])
        )
    for name in sorted(workflow.phases.keys() & End.__members__.keys()):
        yield Violation(f"phases.{name}", f"{name} is an end, not a phase", "give the phase another name")


def _roles(workflow: Workflow) -> Iterator[Violation]:
    """Yield who is asked to work or to judge and is no hat, or is a hat of the wrong kind of worker."""
    known = [*OWN_HATS, *workflow.roles]
    asked = {f"phases.{name}.worker": (phase.worker, MAKERS) for name, phase in workflow.phases.items()}
    asked |= {
        f"phases.{name}.gates[{number}].role": (gate.role, JUDGES)
        for name, phase in workflow.phases.items()
        for number, gate in enumerate(phase.gates)
    }
    for path, (role, processes) in asked.items():
        if role is None:
            continue
        if role not in known:
            problem, mend = f"there is no role {role!r}", "add it under `roles:` with its process"
            yield Violation(path, problem, f"{mend}; {did_you_mean(role, known)}")
        elif workflow.hat(role).process not in processes:
            what = "does no work" if processes is MAKERS else "judges nothing"
            said = f"a {workflow.hat(role).process} {what}"
            yield Violation(path, said, f"give it a role whose process is {' or '.join(processes)}")
    for name, hat in workflow.roles.items():
        if hat.dialect not in KNOWN_DIALECTS:
            hint = did_you_mean(hat.dialect, list(KNOWN_DIALECTS))
            yield Violation(f"roles.{name}.dialect", f"there is no dialect {hat.dialect!r}", hint)
    used = {role for role, _ in asked.values()}
    for name in sorted(workflow.roles.keys() - used):
        yield Violation(f"roles.{name}", "nobody wears it", "name it in a phase, or remove it")


def _edges(workflow: Workflow) -> Iterator[Violation]:
    known = [*workflow.phases, *(end for end in End if end is not End.SUPERSEDED)]
    for name, phase in workflow.phases.items():
        at = f"phases.{name}"
        if phase.next is None and Outcome.PASS not in phase.edges:
            yield Violation(at, "it does not say where a pass leads", "add `next: PHASE`, or `next: DONE`")
        targets = {f"{at}.edges.{key}": edge.to for key, edge in phase.edges.items()}
        for path, to in {**targets, f"{at}.next": phase.next or End.DONE}.items():
            if to not in known:
                yield Violation(path, f"there is no phase {to!r}", did_you_mean(to, known))
        yield from _outcomes(f"{at}.edges", phase.edges, [])
        yield from _outcomes(f"{at}.effects", phase.effects, [AFTER_WORK])


def _outcomes(path: str, keys: Mapping[str, object], more: list[str]) -> Iterator[Violation]:
    known = [*(outcome for outcome in Outcome if outcome not in {Outcome.ASK, Outcome.NONE}), *more]
    for key in keys:
        word = key.partition("/")[0]
        if word not in known:
            yield Violation(f"{path}.{key}", f"{word!r} is no outcome of a phase", did_you_mean(word, known))


def _gates(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        ids = [gate.id for gate in phase.gates]
        for number, gate in enumerate(phase.gates):
            at = f"phases.{name}.gates[{number}]"
            if gate.id in ids[:number]:
                yield Violation(at, f"the gate {gate.id!r} is already in {name}", "give it another id")
            if gate.kind is GateKind.AGENT and gate.role is None:
                yield Violation(at, f"the gate {gate.id!r} says no role", "add `role:`, who judges")


def _rules(workflow: Workflow) -> Iterator[Violation]:
    always = [rule.name for rule in ALWAYS]
    known = [*(rule.name for rule in RULES if not rule.always), *GROUPS]
    for number, watch in enumerate(workflow.rules):
        at = f"rules[{number}]"
        if watch.name in always:
            yield Violation(at, f"{watch.name} watches over every workflow as it is", "leave it out")
        elif watch.name not in known:
            yield Violation(at, f"there is no rule {watch.name!r}", did_you_mean(watch.name, known))
        else:
            yield from _options(watch, at)
        if watch.phase is not None and watch.phase not in workflow.phases:
            hint = did_you_mean(watch.phase, [*workflow.phases])
            yield Violation(f"{at}.phase", f"there is no phase {watch.phase!r}", hint)
        for row in watch.rows() if watch.name in known else ():
            yield from _never_fires(workflow, row, at)


def _options(watch: WatchedRule, at: str) -> Iterator[Violation]:
    """Yield a violation for each option of *watch* that its row does not have."""
    rows = watch.unchanged_rows()
    can = frozenset.intersection(*(row.options for row in rows))
    for key in watch.options.keys() - can:
        problem = f"{key!r} does nothing for {watch.name}"
        yield Violation(f"{at}.{key}", problem, f"it can be told {' or '.join(sorted(can))}")
    allowed = frozenset.intersection(*(ACTIONS[row.subject] for row in rows))
    if watch.action is not None and watch.action not in allowed:
        problem = f"{watch.action.value!r} cannot be done to a {rows[0].subject}"
        yield Violation(f"{at}.action", problem, f"use one of {', '.join(sorted(allowed))}")


def _never_fires(workflow: Workflow, row: Rule, at: str) -> Iterator[Violation]:
    """Yield a violation for a rule that can never fire in this workflow."""
    phase = row.counts.phase
    if phase is not None and phase not in workflow.phases:
        mend = f"say which is meant: {{name: {row.name}, phase: …}}"
        yield Violation(at, f"{row.name} counts what {phase} decides, and there is no such phase", mend)


def _unreachable(workflow: Workflow) -> Iterator[Violation]:
    reached, left = set[str](), [workflow.start]
    while left:
        name = left.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in workflow.phases:
            left += [edge.to for _, _, edge in edges_of(workflow.phases[name])]
    for name in workflow.phases.keys() - reached:
        yield Violation(f"phases.{name}", "nothing leads to it", "add an edge to it, or remove it")
    if End.DONE not in reached:
        yield Violation("phases", "no way leads to DONE", "let the last phase say `next: DONE`")


Check = Callable[[Workflow], Iterator[Violation]]

STRUCTURE: Final[tuple[Check, ...]] = (_start, _roles, _edges, _gates, _rules)
