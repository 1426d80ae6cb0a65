"""The workflow that a run follows: workers can run it, it fits the settings, and a person has seen it.

A file of one's own decides what is run and who may merge: what a task brought is not followed unseen.
"""

from __future__ import annotations

import re
from functools import lru_cache
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from liza.board.location import TEAM_FILE
from liza.daemon.effects import PERFORMERS
from liza.daemon.policy.cycle_log import ROLES
from liza.daemon.prompting import hat_names
from liza.daemon.sources import SOURCES
from liza.domain.changes import Change
from liza.domain.config import Config, PlanApproval, override_keys, suggest_key
from liza.domain.model import FINAL
from liza.domain.problems import did_you_mean, line_of, violations_from
from liza.errors import UsageError, Violation
from liza.gates import registry
from liza.repo.repository import BRANCHES
from liza.repo.verify import blobs_by_agents
from liza.repo.worktree import write_text_whole
from liza.workflow.document import (
    MERGES,
    NOTHING_ADDED,
    PLANNER_SPLITS,
    SUFFIX,
    AddedNames,
    Effect,
    GateKind,
    NamedSettings,
    is_file,
    load_workflow,
    routes_in,
    workflow_on,
    workflow_text,
)
from liza.workflow.supported import LEAVE_OUT, unsupported_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import Adopted, State
    from liza.domain.record import Record
    from liza.repo.repository import Repository
    from liza.workflow.document import Gate, Workflow

VETTED: Final = "vetted"  # below .liza: the version of the workflow's file that a person said yes to
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
    return load_workflow(name, settings, _shape_violations, added)


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
        *_wrong_options(flow),
    ]


def _unknown_prompts(flow: Workflow) -> Iterator[Violation]:
    named = {f"roles.{name}.prompt": hat.prompt for name, hat in flow.roles.items()}
    for phase_name, phase in flow.phases.items():
        for number, gate in enumerate(phase.gates):
            named[f"phases.{phase_name}.gates[{number}].prompt"] = gate.options.get("prompt")
    for path, prompt in named.items():
        if prompt is not None and prompt not in (known := hat_names()):
            yield Violation(path, f"there is no prompt {prompt!r}", did_you_mean(prompt, known))


def _unknown_names(flow: Workflow) -> Iterator[Violation]:
    """Yield the prompts, sources and effects that do not exist."""
    yield from _unknown_prompts(flow)
    source = flow.tasks.source
    if source not in (sources := [PLANNER_SPLITS, *SOURCES.names()]):
        yield Violation("tasks", f"there is no source of tasks {source!r}", did_you_mean(source, sources))
    wanted = {"at_end": flow.at_end}
    for phase_name, phase in flow.phases.items():
        wanted |= {f"phases.{phase_name}.effects.{key}": effects for key, effects in phase.effects.items()}
        if phase.effects and phase.gates and phase.gates[-1].kind is GateKind.HUMAN:
            problem = "a person decides here, and nothing is done in their name"
            yield Violation(f"phases.{phase_name}.effects", problem, "move them to the next phase")
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
    """Yield the effects that would never be performed."""
    for phase_name, phase in flow.phases.items():
        is_merged = False
        for number, gate in enumerate(phase.gates):
            name, at = gate.options.get("effect"), f"phases.{phase_name}.gates[{number}].effect"
            if gate.kind is GateKind.EFFECT and is_merged:
                yield Violation(
                    at, "it comes after the merge, when the task is over", "put it before the merge"
                )
            elif gate.kind is GateKind.EFFECT and name in list(Effect) and name not in MERGES:
                yield Violation(at, f"the effect {name!r} does nothing", LEAVE_OUT)
            is_merged = is_merged or name in MERGES


def _wrong_options(flow: Workflow) -> Iterator[Violation]:
    """Yield what is wrong with the options of gates."""
    for name, phase in flow.phases.items():
        for number, gate in enumerate(phase.gates):
            record = _options_record(gate)
            if record is None:
                continue
            try:
                record.model_validate(dict(gate.own_options))
            except ValidationError as error:
                yield from violations_from(error, record, f"phases.{name}.gates[{number}]", {})


def _options_record(gate: Gate) -> type[Record] | None:
    if (effect := gate.added_effect) is not None:
        return registry.EFFECTS[effect].options
    return None if gate.kind in _NOT_MACHINES else registry.GATES[gate.kind].options


def require_fitting(config: Config, flow: Workflow, root: Path) -> None:
    """Refuse overrides for agents that are never asked, and plan approval without a planner."""
    if config.plan.approval is not PlanApproval.NONE and (source := flow.tasks.source) != PLANNER_SPLITS:
        problem = f"no planner makes tasks in the workflow {config.workflow}, they come from {source!r}"
        raise _refused_setting(root, "plan.approval", problem, "leave it out")
    if config.agents.overrides:
        _require_used_keys(config, flow, root)


def _require_used_keys(config: Config, flow: Workflow, root: Path) -> None:
    usable = tuple(dict.fromkeys(key for route in routes_in(flow) for key in override_keys(route)))
    for key in config.agents.overrides:
        if key.upper() not in usable:
            problem = f"nobody is asked by this key in the workflow {config.workflow}"
            raise _refused_setting(root, f"agents.overrides.{key}", problem, suggest_key(key, usable))


def _refused_setting(root: Path, path: str, problem: str, mend: str) -> UsageError:
    """Return what is wrong with a setting, with its line where the team's file has it."""
    lines = _setting_lines(root)
    found = Violation(path, problem, mend, line_of(path, lines))
    return UsageError(f"{TEAM_FILE}: {found}" if path in lines else str(found))


def locate_setting(root: Path, sentence: str) -> str:
    """Return *sentence*, which begins with a setting and may quote a field of it, with its line."""
    lines = _setting_lines(root)
    path = re.match(r"[\w.-]*", sentence)[0]  # type: ignore[index]
    fields = [f"{path}.{field}" for field in re.findall(r"`(\w+)`", sentence)]
    line = next((lines[key] for key in (*fields, path) if key in lines), None)
    return sentence if line is None else f"{TEAM_FILE}: line {line}: {sentence}"


def _setting_lines(root: Path) -> dict[str, int]:
    from liza.domain.yaml_parse import BadYaml, parse_yaml  # noqa: PLC0415 - only for what is refused

    try:
        lines = parse_yaml((root / TEAM_FILE).read_text()).lines
    except (OSError, BadYaml, UnicodeDecodeError):
        return {}  # it is on the board, and need not be in the file
    return {".".join(map(str, place)): line for place, line in lines.items()}


def workflow_file(state: State, root: Path) -> Path | None:
    """Return the file of the workflow; None where it is one that comes with Liza."""
    name = state.config.workflow
    path = root / name
    return path if ("/" in name or name.endswith(SUFFIX)) and path.is_file() else None


def why_unvetted(home: Path, repository: Repository, state: State) -> str | None:
    """Return why the workflow file is not followed: a task changed it, and no person has accepted that."""
    path, base = workflow_file(state, repository.root), state.integration.base
    if path is None or base is None:
        return None
    blob, name = _blob(repository, path), normpath(state.config.workflow)
    if _vetted_blob(home) == blob:
        return None
    yours = [one.commit for one in state.integration.yours]
    ref = BRANCHES + state.config.integration_branch
    if blob not in blobs_by_agents(repository, name, base=base, ref=ref, yours=yours):
        return None
    return f"the workflow {name} is as an agent made it; look at it (`git log -p -- {name}`)"


def vet(home: Path, repository: Repository, state: State) -> None:
    """Note that a person has seen the file of the workflow as it is now."""
    if path := workflow_file(state, repository.root):
        write_text_whole(home / VETTED, f"{_blob(repository, path)}\n")


def _blob(repository: Repository, path: Path) -> str:
    return repository.git("hash-object", "--stdin", stdin=path.read_bytes())


def _vetted_blob(home: Path) -> str:
    path = home / VETTED
    return path.read_text().strip() if path.is_file() else ""
