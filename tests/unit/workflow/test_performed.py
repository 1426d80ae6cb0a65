"""Every key of a workflow that workers would read and not perform is refused, with its line."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from liza.daemon.flows import workflow_of
from liza.domain.config import Config
from liza.errors import UsageError
from liza.workflow.load import load_workflow, packaged_names, parse_workflow
from liza.workflow.supported import GATE_KEYS, PHASE_KEYS, unsupported_parts

LIZA: Final = files("liza").joinpath("workflow/liza.yaml").read_text(encoding="utf-8")
REVIEW: Final = "{id: review, kind: agent, role: reviewer, on_none: block}"


@pytest.mark.parametrize("name", packaged_names())
def test_what_comes_with_liza_can_be_run(name: str) -> None:
    assert unsupported_parts(load_workflow(name)) == []
    assert workflow_of(Config(workflow=name), Path()).name == name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("access: read}", "access: read, prompt: poet.md}", "roles.reviewer.prompt: there is no prompt"),
        ("start: CODE", "start: CODE\ntasks: dreams", "tasks: there is no source of tasks 'dreams'"),
        (
            "next: DONE",
            "effects: {pass: [commit_or_merge]}\n    next: DONE",
            "nobody performs 'commit_or_merge'",
        ),
        (
            REVIEW,
            f"{REVIEW}\n      - {{id: ok, kind: human}}\n    effects: {{pass: [write_summary]}}",
            "phases.REVIEW.effects: a person decides here",
        ),
    ],
)
def test_what_nobody_has_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in LIZA
    (tmp_path / "ours.yaml").write_text(LIZA.replace(old, new, 1))
    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: ") as refused:
        workflow_of(Config(workflow="ours.yaml"), tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  coder: {process: coder", "  coder: {process: reviewer", "worker: a reviewer does no work"),
        ("  reviewer: {process: reviewer", "  reviewer: {process: coder", "role: a coder judges nothing"),
        ("  reviewer: {", "  critic: {process: reviewer}\n  reviewer: {", "roles.critic: nobody wears it"),
        ("worker: coder", "worker: maker", "worker: there is no role 'maker'"),
        ("access: read}", "access: read, dialect: latin}", "there is no dialect 'latin'"),
        ("access: read}", "access: some}", "roles.reviewer.access: "),
        ("checkpoint: required}", "checkpoint: required, on_none: revise}", "a machine always has a verdict"),
    ],
)
def test_what_nobody_performs_is_refused_with_its_line(old: str, new: str, said: str) -> None:
    assert old in LIZA
    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: ") as refused:
        parse_workflow(LIZA.replace(old, new, 1), "ours.yaml", check=unsupported_parts)
    assert said in str(refused.value)


# A key that is valid, in a place where it can do nothing.
IDLE: Final = [
    (REVIEW, f"{REVIEW[:-1]}, taints_on_override: true}}", "taints_on_override: it does nothing"),
    (REVIEW, f"{REVIEW[:-1]}, at: before}}", "at: it does nothing: nobody works"),
    ("{id: diff, kind: artifact", "{id: diff, role: reviewer, kind: artifact", "role: it does nothing"),
    ("{id: diff, kind: artifact", "{id: diff, sets_path: true, kind: artifact", "sets_path: it does nothing"),
    (
        "{id: lint, kind: command, command: lint}",
        "{id: lint, kind: command, command: lint, tree: merged}",
        "tree: ",
    ),
    (
        "kind: scope, max_loc: 10000",
        "kind: scope, max_loc: 10000, limit: all",
        "limit: it does nothing without",
    ),
    ("kind: scope, max_loc: 10000", "kind: scope, tolerance: 0.1", "tolerance: it does nothing without"),
    ("  REVIEW:\n", "  REVIEW:\n    session: resume\n", "session: it does nothing"),
    ("  REVIEW:\n", "  REVIEW:\n    on_exhausted: stop\n", "on_exhausted: it does nothing without"),
    ("  REVIEW:\n", "  REVIEW:\n    collect: true\n", "collect: it does nothing with fewer"),
    ("  REVIEW:\n", "  REVIEW:\n    effects: {after_work: [write_summary]}\n", "after_work: it does nothing"),
    ("worker: coder", "worker: coder\n    blocking: false", "blocking: it does nothing without"),
    ("worker: coder", "worker: coder\n    loop: true", "loop: it does nothing"),
    ("start: CODE", "start: CODE\ntasks: {source: goal, file: ideas.md}", "tasks.file: it does nothing"),
    ("start: CODE", "start: CODE\ntasks: {source: planner, limit: 3}", "tasks.limit: it does nothing"),
    ("process: reviewer, access: read", "process: reviewer, access: write", "access: it does nothing"),
    ("process: reviewer, access: read", "process: reviewer, prompt: judge.md, instructions: x", "keep one"),
]


@pytest.mark.parametrize(("old", "new", "said"), IDLE)
def test_a_valid_key_where_it_does_nothing_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in LIZA
    (tmp_path / "ours.yaml").write_text(LIZA.replace(old, new, 1))
    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: ") as refused:
        workflow_of(Config(workflow="ours.yaml"), tmp_path)
    assert said in str(refused.value)


def test_every_idle_key_is_tried() -> None:
    said = " ".join(words for _, _, words in IDLE) + " on_none: role: at: tree: "
    rows = [row.key.rpartition(".")[2] for row in (*GATE_KEYS, *PHASE_KEYS)]

    assert [key for key in rows if f"{key}: " not in said] == []


def _places(data: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where a document has a record of fixed keys, in which another one is a slip."""
    if isinstance(data, dict):
        if path[-1:] not in {("phases",), ("roles",), ("edges",), ("effects",), ("artifacts",), ("session",),
                             ("max_iterations",)}:  # fmt: skip
            yield path
        for key, value in data.items():
            yield from _places(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _places(value, (*path, number))


def _misspelt() -> Iterator[Any]:
    for name in packaged_names():
        text = files("liza").joinpath(f"workflow/{name}.yaml").read_text(encoding="utf-8")
        for place in _places(yaml.safe_load(text)):
            yield pytest.param(name, place, id=f"{name}-{'.'.join(map(str, place))}")


@pytest.mark.parametrize(("name", "place"), list(_misspelt()))
def test_a_misspelt_key_is_refused_wherever_it_stands(
    tmp_path: Path, name: str, place: tuple[str | int, ...]
) -> None:
    document = yaml.safe_load(files("liza").joinpath(f"workflow/{name}.yaml").read_text(encoding="utf-8"))
    spot = document
    for part in place:
        spot = spot[part]
    spot["whne"] = "x"
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: .*'?whne'?"):
        workflow_of(Config(workflow="ours.yaml"), tmp_path)
