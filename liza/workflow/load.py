"""A workflow from its file: one that comes with Liza by its name, or anybody's by its path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.answers import lines_by_path
from liza.domain.config import Config, Limits
from liza.domain.model import Adopted, State
from liza.domain.problems import did_you_mean, line_of, violations_from
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import UsageError, Violation
from liza.workflow.document import OPTIONS, Effect, Gate, GateKind, OnExhausted, Workflow
from liza.workflow.floor import floor_violations
from liza.workflow.validate import structure_violations

SUFFIX: Final = ".yaml"
GATE_KEYS: Final = frozenset(Gate.model_fields) - {"options"}
_PACKAGE: Final = files("liza.workflow")
Check = Callable[[Workflow], list[Violation]]


class AddedNames(NamedTuple):
    """What packages add to the words of a document."""

    gates: Collection[str] = ()
    effects: Collection[str] = ()


NOTHING_ADDED: Final = AddedNames()


class NamedSettings(NamedTuple):
    """What a document may take from the settings by name."""

    limits: Limits = Limits()
    review_rounds: int = 0  # of experiments
    proceed_unapproved: bool = False

    @classmethod
    def of(cls, config: Config) -> NamedSettings:
        ideas = config.experiment
        return cls(config.limits, ideas.review_rounds, ideas.proceed_unapproved)

    def values(self, key: str) -> dict[str, int | str]:
        """Return by name what may stand for the value of *key* of a phase."""
        if key == "on_exhausted":
            return {
                "experiment.proceed_unapproved": OnExhausted.FORCE_PASS
                if self.proceed_unapproved
                else OnExhausted.STOP
            }
        limits = {name: getattr(self.limits, name) for name in Limits.model_fields if name.startswith("max_")}
        return {**limits, "experiment.review_rounds": 1 + self.review_rounds}


NO_SETTINGS: Final = NamedSettings()


def packaged_names() -> list[str]:
    """Return the names of the workflows that come with Liza."""
    return sorted(
        found.name.removesuffix(SUFFIX) for found in _PACKAGE.iterdir() if found.name.endswith(SUFFIX)
    )


def load_workflow(
    name: str,
    settings: NamedSettings = NO_SETTINGS,
    check: Check | None = None,
    added: AddedNames = NOTHING_ADDED,
) -> Workflow:
    """Return the workflow *name*, or that in the file of this path; raise UsageError with what is wrong.

    *check* is what else a document has to be, for whoever asks for more than that it hangs together; *added*
    are the kinds of gate and effects that it may name beside those of Liza.
    """
    if not is_file(name):
        if name not in packaged_names():
            known = did_you_mean(name, packaged_names())
            hint = "a file of your own is named by its path, like flows/mine.yaml"
            raise UsageError(f"there is no workflow {name!r}; {known} ({hint})")
        return parse_workflow(
            _PACKAGE.joinpath(name + SUFFIX).read_text(encoding="utf-8"), name + SUFFIX, settings, check
        )
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(f"cannot read the workflow {name}: {why}; name a file that is there") from error
    return parse_workflow(text, name, settings, check, added)


def workflow_on(state: State) -> Workflow:
    """Return the workflow that the tasks of *state* follow; raise UsageError where none was read yet."""
    name = state.workflow.name or state.config.workflow
    if not state.workflow.text and is_file(name):
        raise UsageError(f"the workflow {name} was not read yet; `liza run` reads it")
    added = AddedNames(state.workflow.gates, state.workflow.effects)
    return _on_board(name, state.workflow.text, NamedSettings.of(state.config), added)


@lru_cache(maxsize=8)
def _on_board(name: str, text: str, settings: NamedSettings, added: AddedNames) -> Workflow:
    return parse_workflow(text, name, settings, added=added) if text else load_workflow(name, settings)


def is_file(name: str) -> bool:
    """Return whether *name* is the path of a workflow, and not one that comes with Liza."""
    return "/" in name or name.endswith(SUFFIX)


def workflow_text(config: Config, root: Path, added: AddedNames = NOTHING_ADDED) -> Adopted:
    """Return what a board has to know of the workflow that *config* names; nothing of one of Liza's own."""
    if not is_file(config.workflow):
        return Adopted()
    try:
        text = (root / config.workflow).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the workflow {config.workflow}; name a file that is there"
        raise UsageError(message) from error
    gates, effects = ([name for name in sorted(names) if name in text] for names in added)
    return Adopted(name=config.workflow, text=text, gates=tuple(gates), effects=tuple(effects))


def parse_workflow(
    text: str,
    where: str,
    settings: NamedSettings = NO_SETTINGS,
    check: Check | None = None,
    added: AddedNames = NOTHING_ADDED,
) -> Workflow:
    """Return what the document *text* says, checked; *where* is the file that an error names."""
    try:
        data, places = parse_yaml(text)
    except BadYaml as error:
        raise UsageError(f"{where} is no workflow: {error}; mend it") from error
    lines = lines_by_path(places)
    wrong = list(_expand(data, settings, added))
    if not wrong:
        try:
            workflow = Workflow.model_validate(data)
        except ValidationError as error:
            wrong = violations_from(error, Workflow, "", lines)
        else:
            wrong = (
                structure_violations(workflow)
                or floor_violations(workflow)
                or (check(workflow) if check else [])
            )
            if not wrong:
                return workflow
    told = (one._replace(line=one.line or line_of(one.path, lines)) for one in wrong)
    raise UsageError(f"{where} is no workflow: {'; '.join(map(str, told))}")


def _expand(data: dict[str, Any], settings: NamedSettings, added: AddedNames) -> Iterator[Violation]:
    """Write out in *data* what a document says in short, and yield what cannot be."""
    phases = data.get("phases")
    if not isinstance(phases, dict):
        return
    defined: dict[str, dict[str, Any]] = {}
    for name, phase in phases.items():
        if not isinstance(phase, dict):
            continue
        for key in ("max_iterations", "on_exhausted"):
            yield from _resolve_setting(phase, key, f"phases.{name}.{key}", settings)
        gates = phase.get("gates", [])
        if isinstance(gates, list):
            yield from _expand_gates(gates, f"phases.{name}.gates", defined, added)


def _resolve_setting(
    phase: dict[str, Any], key: str, path: str, settings: NamedSettings
) -> Iterator[Violation]:
    """Put what the settings say in place of its name."""
    said, known = phase.get(key), settings.values(key)
    if not isinstance(said, str) or said in list(OnExhausted):
        return
    if said in known:
        phase[key] = known[said]
    elif key == "max_iterations":
        problem = f"there is no limit {said!r}"
        yield Violation(path, problem, f"{did_you_mean(said, list(known))} Or write a number")


def _expand_gates(
    gates: list[Any], path: str, defined: dict[str, dict[str, Any]], added: AddedNames
) -> Iterator[Violation]:
    for number, gate in enumerate(gates):
        here = f"{path}[{number}]"
        if isinstance(gate, str):
            if gate in defined:
                gates[number] = defined[gate]
            else:
                hint = did_you_mean(gate, list(defined))
                yield Violation(here, f"no phase above defines a gate {gate!r}", hint)
        elif isinstance(gate, dict):
            yield from _collect_options(gate, here, added)
            defined.setdefault(str(gate.get("id")), gate)


def _collect_options(gate: dict[str, Any], path: str, added: AddedNames) -> Iterator[Violation]:
    """Gather under `options` what only gates of this kind can be told."""
    kind = gate.get("kind")
    kinds = [*GateKind, *added.gates]
    if kind not in kinds:
        if isinstance(kind, str):
            problem = f"{kind!r} is not one of the known kinds of gate"
            yield Violation(f"{path}.kind", problem, did_you_mean(kind, kinds))
        return  # else the record says so
    options = {key: gate.pop(key) for key in list(gate) if key not in GATE_KEYS}
    # What packages add checks its options itself.
    if kind in added.gates or (kind == GateKind.EFFECT and options.get("effect") in added.effects):
        gate["options"] = options
        return
    own = OPTIONS[GateKind(str(kind))]
    if kind == GateKind.EFFECT and options.get("effect") not in (effects := [*Effect, *added.effects]):
        said = str(options.get("effect"))
        yield Violation(f"{path}.effect", f"there is no effect {said!r}", did_you_mean(said, effects))
    known = sorted({*GATE_KEYS, *own})
    for key in options.keys() - own.keys():
        problem = f"{key!r} is not a key that belongs to a gate of kind {kind}"
        yield Violation(f"{path}.{key}", problem, did_you_mean(key, known))
    gate["options"] = options
