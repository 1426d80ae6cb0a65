"""Which workflow a run follows: read once, and checked to be one that workers can run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from liza.daemon.effects import PERFORMERS
from liza.daemon.fitting import require_fitting
from liza.daemon.policy.cycle_log import ROLES
from liza.daemon.prompting import hat_names
from liza.daemon.sources import SOURCES
from liza.domain.changes import Change
from liza.domain.config import Config
from liza.domain.position import FINAL
from liza.domain.problems import did_you_mean
from liza.errors import UsageError, Violation
from liza.gates import registry
from liza.workflow.document import MERGES, PLANNER_SPLITS, Effect, GateKind
from liza.workflow.load import (
    NOTHING_ADDED,
    SUFFIX,
    AddedNames,
    NamedSettings,
    is_file,
    load_workflow,
    workflow_on,
    workflow_text,
)
from liza.workflow.supported import LEAVE_OUT, unsupported_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import Adopted, State
    from liza.workflow.document import Gate, Workflow

_NOT_MACHINES: Final = frozenset({GateKind.AGENT, GateKind.EFFECT})


def workflow_of(config: Config, root: Path) -> Workflow:
    """Return the workflow that *config* names; raise a sentence where it is none that workers can run."""
    flow = _load_workflow(config, root)
    require_fitting(config, flow, root)
    return flow


def _load_workflow(config: Config, root: Path) -> Workflow:
    name = config.workflow
    if not is_file(name):
        return _load_runnable(name, NamedSettings.of(config), 0)
    path = root / name
    # A person may edit the file while a run goes on.
    stamp = path.stat().st_mtime_ns if path.exists() else 0
    return _load_runnable(str(path), NamedSettings.of(config), stamp)


@lru_cache(maxsize=4)
def _load_runnable(name: str, settings: NamedSettings, _stamp: int) -> Workflow:
    # Those that come with Liza name nothing that a package adds, so that nobody has to look for it.
    added = added_names() if name.endswith(SUFFIX) else NOTHING_ADDED
    flow = load_workflow(name, settings, _shape_violations, added)
    for place, phase in flow.phases.items():
        for gate in phase.gates:
            _require_valid_gate(f"the workflow {name!r}, phase {place}, gate {gate.id}", gate)
    return flow


def adopt_workflow(board: Board, root: Path, by: str) -> None:
    """Let the tasks of *board* follow the workflow that its settings name, as its file is now."""
    config, new = board.read().config, workflow_to_adopt(board.read().config, root)
    if new == board.read().workflow:
        return

    def make(state: State) -> State:
        if new == state.workflow or state.config.workflow != config.workflow:
            return state  # the settings name another by now, which the next turn looks at
        followed = state.replace(workflow=new)
        flow = workflow_on(followed)
        for task in state.tasks.values():
            if task.position and task.position.end not in FINAL and task.position.phase not in flow.phases:
                where = f"{task.id} is in the phase {task.position.phase}"
                raise UsageError(f"{where}, which the workflow {flow.name} does not have; put the phase back")
        return followed

    board.update(Change(by, "adopt the workflow", make))


def workflow_to_adopt(config: Config, root: Path) -> Adopted:
    """Return the workflow that *config* names, as a board keeps it."""
    # Those that come with Liza name nothing that a package adds.
    return workflow_text(config, root, added_names() if is_file(config.workflow) else NOTHING_ADDED)


def added_names() -> AddedNames:
    """Return the kinds of gate and the effects that installed packages add."""
    return AddedNames(registry.GATES.added(), registry.EFFECTS.added())


def _shape_violations(flow: Workflow) -> list[Violation]:
    """Return why workers cannot run *flow*: what of it they would not do."""
    return [
        *unsupported_parts(flow),
        *_effects_without_effect(flow),
        *_unknown_names(flow),
        *_page_violations(flow),
    ]


def _unknown_prompts(flow: Workflow) -> Iterator[Violation]:
    named = {f"roles.{name}.prompt": hat.prompt for name, hat in flow.roles.items()}
    for place, phase in flow.phases.items():
        for number, gate in enumerate(phase.gates):
            named[f"phases.{place}.gates[{number}].prompt"] = gate.options.get("prompt")
    for path, prompt in named.items():
        if prompt is not None and prompt not in (known := hat_names()):
            yield Violation(path, f"there is no prompt {prompt!r}", did_you_mean(prompt, known))


def _unknown_names(flow: Workflow) -> Iterator[Violation]:
    """Yield the prompts, sources and effects that nobody has."""
    yield from _unknown_prompts(flow)
    source = flow.tasks.source
    if source not in (sources := [PLANNER_SPLITS, *SOURCES.names()]):
        yield Violation("tasks", f"there is no source of tasks {source!r}", did_you_mean(source, sources))
    wanted = {"at_end": flow.at_end}
    for place, phase in flow.phases.items():
        wanted |= {f"phases.{place}.effects.{key}": effects for key, effects in phase.effects.items()}
        if phase.effects and phase.gates and phase.gates[-1].kind is GateKind.HUMAN:
            problem = "a person decides here, and nothing is done in their name"
            yield Violation(f"phases.{place}.effects", problem, "move them to the next phase")
    for path, effects in wanted.items():
        for effect in set(effects) - PERFORMERS.keys():
            known_effects = [str(one) for one in PERFORMERS]
            yield Violation(path, f"nobody performs {str(effect)!r}", did_you_mean(effect, known_effects))


def _page_violations(flow: Workflow) -> Iterator[Violation]:
    """Yield why *flow* cannot have a page: it tells of one task, and has names for these hats alone."""
    if flow.page is None:
        return
    if flow.tasks.source != "goal":
        yield Violation("page", "a page tells of one piece of work, and there may be many", "say tasks: goal")
    for name in sorted(flow.roles.keys() - ROLES):
        yield Violation(f"roles.{name}", "the page has no name for it", did_you_mean(name, sorted(ROLES)))


def _effects_without_effect(flow: Workflow) -> Iterator[Violation]:
    """Yield the effects that nobody would perform."""
    for place, phase in flow.phases.items():
        is_merged = False
        for number, gate in enumerate(phase.gates):
            name, at = gate.options.get("effect"), f"phases.{place}.gates[{number}].effect"
            if gate.kind is GateKind.EFFECT and is_merged:
                yield Violation(
                    at, "it comes after the merge, when the task is over", "put it before the merge"
                )
            elif gate.kind is GateKind.EFFECT and name in list(Effect) and name not in MERGES:
                yield Violation(at, f"the effect {name!r} does nothing", LEAVE_OUT)
            is_merged = is_merged or name in MERGES


def added_effect(gate: Gate) -> str | None:
    """Return the effect of *gate* if it is one that a package adds."""
    name = gate.options.get("effect") if gate.kind is GateKind.EFFECT else None
    return name if name is not None and name not in list(Effect) else None


def _require_valid_gate(where: str, gate: Gate) -> None:
    options = gate_options(gate.options)
    try:
        if (effect := added_effect(gate)) is not None:
            registry.validate_effect(effect, options)
        elif gate.kind not in _NOT_MACHINES:
            registry.validate_options(gate.kind, options)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def gate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return *options* without those that the engine itself reads."""
    return {key: value for key, value in options.items() if key not in {"tree", "on_timeout", "effect"}}
