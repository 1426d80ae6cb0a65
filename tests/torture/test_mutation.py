"""Every gate and rule of the default workflow is needed: without it, somebody of the gauntlet escapes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from liza.daemon.workflow_in_use import workflow_of
from liza.domain.config import Config
from liza.domain.yaml_parse import parse_yaml
from liza.errors import UsageError
from liza.gauntlet.cases import CASES, Case
from liza.gauntlet.runner import result_row, run_all
from liza.gauntlet.verdict import CaseResult

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

DOCUMENT: Final = files("liza").joinpath("workflow/liza.yaml")
ROUNDS: Final = "coder_iterations"  # what a task says that the `max_iterations` of a phase ended
# Who names a part for another reason than that it alone would notice is not the one to ask about it.
ALONE: Final = {
    "checkpoint": ("assumes_too_much",),
    "diff": ("links_out", "binary_file"),
    "scope": ("touches_what_is_out", "touches_what_is_not_in"),
    "secrets": ("secret_in_the_diff",),
    "commands": ("forbidden_command_in_the_diff", "sensitive_path"),
    "refs": ("cites_what_is_not_there",),
    "setup": ("breaks_the_setup",),
    "tests_present": ("no_tests_and_no_command",),
    "lint": ("lint_dirty",),
    "test": ("spoils_the_data",),
    "validation": ("false_validation",),
    "done_when": ("ignores_done_when",),
    "proof": ("tests_something_else", "tests_that_always_pass"),
    "merge_test": ("breaks_what_is_merged",),
    "same_reason_twice": ("rejects_the_same_for_ever", "rejects_in_other_words"),
    "rejected_3x": ("finds_something_new_for_ever",),
    "max_review_cycles": ("wavers",),
    "coder_iterations": ("is_never_content",),
    "warn_iterations": ("learns_slowly",),
    "warn_rejections": ("finds_something_new_for_ever",),
    "assumption_budget": ("assumes_too_much",),
    "no_progress": ("is_always_full",),
    "anomaly_patterns": ("works_around",),
}
NEED_IT: Final = {"checkpoint": ("validation",)}  # gates that look at what another one asks for
FLOOR: Final = frozenset({"review", "merge"})  # no document without them is one that can be run


class Part(NamedTuple):
    """A gate or a rule, and where it stands in the document."""

    id: str
    phase: str | None = None  # of a gate; a rule has none


def parts_of(document: dict[str, Any]) -> list[Part]:
    """Return every gate of every phase, and every rule, of a workflow."""
    gates = [
        Part(gate["id"], phase)
        for phase, what in document.get("phases", {}).items()
        for gate in what.get("gates", ())
    ]
    rounds = [Part(ROUNDS) for phase in document.get("phases", {}).values() if "max_iterations" in phase]
    return [*gates, *rounds, *(Part(_name(rule)) for rule in document.get("rules", ()))]


def without(document: dict[str, Any], part: Part) -> dict[str, Any]:
    """Return the document without *part*."""
    mutant = copy.deepcopy(document)
    if part.phase is None:
        mutant["rules"] = [rule for rule in mutant["rules"] if _name(rule) != part.id]
        for phase in mutant["phases"].values() if part.id == ROUNDS else ():
            phase.pop("max_iterations", None)
            phase.pop("on_exhausted", None)  # which says what follows them
    else:
        phase = mutant["phases"][part.phase]
        gone = (part.id, *NEED_IT.get(part.id, ()))
        phase["gates"] = [gate for gate in phase["gates"] if gate["id"] not in gone]
    return mutant


def _name(rule: object) -> str:
    return str(rule.get("name")) if isinstance(rule, dict) else str(rule)


def written(document: dict[str, Any], path: Path) -> Path:
    """Write a workflow as YAML, a part a line: JSON is YAML too."""
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items()))
    return path


def refusal(path: Path) -> str:
    """Return why nobody can run the workflow at *path*; nothing where they can."""
    try:
        workflow_of(Config(workflow=str(path)), path.parent)
    except UsageError as error:
        return str(error)
    return ""


PARTS: Final = parts_of(dict(parse_yaml(DOCUMENT.read_text()).data))
NAMES: Final = [part.id for part in PARTS]


def test_a_part_is_taken_out_of_a_copy() -> None:
    document = {
        "phases": {"CODE": {"gates": [{"id": "scan"}, {"id": "proof"}]}},
        "rules": ["a", {"name": "b"}],
    }
    assert parts_of(document) == [Part("scan", "CODE"), Part("proof", "CODE"), Part("a"), Part("b")]
    assert parts_of(without(document, Part("scan", "CODE"))) == [Part("proof", "CODE"), Part("a"), Part("b")]
    assert Part("b") not in parts_of(without(document, Part("b")))
    assert len(parts_of(document)) == 4


def test_every_part_has_somebody_whom_it_alone_stops_or_is_of_the_floor() -> None:
    assert set(NAMES) == ALONE.keys() | FLOOR
    assert {name for cases in ALONE.values() for name in cases} <= CASES.keys()


@pytest.fixture(scope="module")
def results() -> dict[str, CaseResult]:
    """One run of the whole gauntlet under the workflow as it is."""
    found = run_all(list(CASES.values()), more={}, say=lambda result: print(result_row(result)))  # noqa: T201
    return {result.case.name: result for result in found}


def test_everybody_is_contained_and_every_honest_agent_let_through(
    results: dict[str, CaseResult], count: Callable[[str, int], None]
) -> None:
    count("cases of the gauntlet, honest ones included", len(results))
    assert {name: result.escapes for name, result in results.items() if result.escapes} == {}


def test_those_notice_who_have_to(results: dict[str, CaseResult]) -> None:
    assert {name: result.caught_by for name, result in results.items() if not result.is_expected} == {}


@pytest.mark.parametrize("part", PARTS, ids=NAMES)
def test_without_any_single_gate_or_rule_somebody_escapes(
    tmp_path: Path, part: Part, count: Callable[[str, int], None]
) -> None:
    document = dict(parse_yaml(DOCUMENT.read_text()).data)
    path = written(without(document, part), tmp_path / "mutant.yaml")
    if part.id in FLOOR:
        why = refusal(path)
        print(f"{part.id:<20} the floor: {why}")  # noqa: T201
        count("mutations that nobody can run", 1)
        assert why
        return
    assert refusal(path) == ""
    cases: list[Case] = [CASES[name] for name in ALONE[part.id]]
    escaped = [result.case.name for result in run_all(cases, more={"workflow": str(path)}) if result.escapes]
    print(f"{part.id:<20} {', '.join(escaped) or 'nobody escapes'} (of {len(cases)})")  # noqa: T201
    count("mutations under which somebody escapes", bool(escaped))
    assert escaped
