"""Every gate and rule of the default workflow is needed: without it, somebody of the zoo escapes."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from liza.text.parse import parse
from liza.zoo.cases import CASES
from liza.zoo.gauntlet import run_all, told
from liza.zoo.judge import Result

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

DOCUMENT: Final = files("liza").joinpath("workflows/liza.yaml")


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
    return [*gates, *(Part(_name(rule)) for rule in document.get("rules", ()))]


def without(document: dict[str, Any], part: Part) -> dict[str, Any]:
    """Return the document without *part*."""
    mutant = copy.deepcopy(document)
    if part.phase is None:
        mutant["rules"] = [rule for rule in mutant["rules"] if _name(rule) != part.id]
    else:
        phase = mutant["phases"][part.phase]
        phase["gates"] = [gate for gate in phase["gates"] if gate["id"] != part.id]
    return mutant


def _name(rule: object) -> str:
    return str(rule.get("name")) if isinstance(rule, dict) else str(rule)


def written(document: dict[str, Any], path: Path) -> Path:
    """Write a workflow as YAML, a part a line: JSON is YAML too."""
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items()))
    return path


def catchers(results: list[Result]) -> dict[str, list[str]]:
    """Return by whom each case was caught, as the board said it: who caught, and which cases."""
    found: dict[str, list[str]] = {}
    for result in results:
        for who in result.caught_by if result.is_contained else ():
            found.setdefault(who, []).append(result.case.name)
    return found


def test_a_part_is_taken_out_of_a_copy() -> None:
    document = {
        "phases": {"CODE": {"gates": [{"id": "scan"}, {"id": "proof"}]}},
        "rules": ["a", {"name": "b"}],
    }
    assert parts_of(document) == [Part("scan", "CODE"), Part("proof", "CODE"), Part("a"), Part("b")]
    assert parts_of(without(document, Part("scan", "CODE"))) == [Part("proof", "CODE"), Part("a"), Part("b")]
    assert Part("b") not in parts_of(without(document, Part("b")))
    assert len(parts_of(document)) == 4


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """One run of the whole zoo under the workflow as it is."""
    return run_all(list(CASES.values()), more={}, say=lambda result: print(told(result)))  # noqa: T201


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="there is no workflow document yet")
def test_everybody_is_contained_and_every_honest_agent_let_through(results: list[Result]) -> None:
    assert {result.case.name: result.escapes for result in results if result.escapes} == {}


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="there is no workflow document yet")
def test_without_any_single_gate_or_rule_somebody_escapes(tmp_path: Path, results: list[Result]) -> None:
    document = dict(parse(DOCUMENT.read_text()).data)
    caught, needless = catchers(results), []
    for number, part in enumerate(parts_of(document)):
        path = written(without(document, part), tmp_path / f"{number}.yaml")
        cases = [CASES[name] for name in caught.get(part.id, ())]
        mutants = run_all(cases, more={"workflow": str(path)})
        escaped = [result.case.name for result in mutants if not result.is_contained]
        print(f"{part.id:<28} {', '.join(escaped) or 'nobody escapes'} (of {len(cases)})")  # noqa: T201
        needless += [] if escaped else [part.id]
    assert needless == []
