"""Every key of a workflow that workers would read and not perform is refused, with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from liza.daemon.workflow_in_use import workflow_of
from liza.domain.config import Config
from liza.errors import UsageError
from liza.workflow.document import (
    OPTIONS,
    ArtifactKind,
    Edge,
    Gate,
    Hat,
    NoVerdict,
    OnError,
    Phase,
    TaskSource,
    WatchedRule,
    Workflow,
    WorkflowPage,
    Workspace,
    load_workflow,
    packaged_names,
    parse_workflow,
)
from liza.workflow.supported import GATE_KEYS, KEYS, PHASE_KEYS, unsupported_parts

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
        (
            REVIEW,
            f"{REVIEW}\n      - {{id: ok, kind: human, remind_minutes: soon}}",
            "phases.REVIEW.gates[1].remind_minutes: it has to be a number (it is 'soon')",
        ),
        ("max_loc: 10000", "max_loc: many", "phases.CODE.gates[2].max_loc: it has to be a whole number"),
        ("{process: reviewer", "{process: critic", "use one of planner, coder, reviewer"),
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


# A key that is valid, in a place where it can do nothing: the document, what is put into it, what is said.
# A dot leads into it; None takes a key out. Gates of `liza`: CODE 0 checkpoint, 1 diff, 2 scope, 3 secrets,
# 5 refs, 8 lint; REVIEW 0 review; INTEGRATE 0 merge_test.
CODE, REVIEWED, MERGED = "phases.CODE", "phases.REVIEW", "phases.INTEGRATE"
IDLE: Final[list[tuple[str, Mapping[str, object], str]]] = [
    *(
        ("liza", {f"{CODE}.gates.{number}.on_none": "revise"}, "on_none: it does nothing")
        for number in range(6)
    ),
    (
        "liza",
        {f"{REVIEWED}.gates.0.mode": "advisory", f"{REVIEWED}.gates.1": {"id": "ok", "kind": "human"}},
        "on_none: it does nothing: this gate decides nothing",
    ),
    *(
        ("liza", {f"{CODE}.gates.{number}.on_error": {"retry": 2}}, "on_error: it does nothing")
        for number in range(13)
    ),
    ("liza", {f"{MERGED}.gates.1.on_error": {"retry": 2}}, "on_error: it does nothing"),
    (
        "phased",
        {
            "phases.PLAN.gates.2.mode": "record",
            "phases.PLAN.gates.3.taints_on_override": None,
            "phases.IMPLEMENT.gates.2": {"id": "judge2", "kind": "agent", "role": "judge"},
            "phases.DOCS.gates.1": "judge2",
        },
        "on_error.then: it does nothing",
    ),
    *(("liza", {f"{CODE}.gates.{number}.role": "reviewer"}, "role: it does nothing") for number in range(13)),
    *(
        ("liza", {f"{CODE}.gates.{number}.sets_path": True}, "sets_path: it does nothing")
        for number in range(13)
    ),
    (
        "liza",
        {f"{REVIEWED}.gates.1": {"id": "way", "kind": "agent", "role": "reviewer", "sets_path": True}},
        "sets_path: it does nothing: no max_iterations",
    ),
    ("liza", {f"{REVIEWED}.gates.0.skip_rest_on": "x"}, "skip_rest_on: it does nothing: no gate"),
    ("liza", {f"{CODE}.gates.0.skip_rest_on": "x"}, "skip_rest_on: it does nothing"),
    ("liza", {f"{CODE}.gates.1.skip_rest_on": "x"}, "skip_rest_on: it does nothing: such a machine"),
    ("liza", {f"{REVIEWED}.gates.0.taints_on_override": True}, "taints_on_override: it does nothing"),
    ("liza", {f"{REVIEWED}.gates.0.at": "before"}, "at: it does nothing: nobody works"),
    ("liza", {f"{MERGED}.gates.0.at": "before"}, "at: it does nothing: nobody works"),
    *(
        ("liza", {f"{CODE}.gates.{number}.at": "before"}, "at: it does nothing: before the work")
        for number in (1, 2, 7, 12)
    ),
    ("liza", {f"{REVIEWED}.gates.0.skip_if": "final_iteration"}, "skip_if: `final_iteration` does nothing"),
    *(
        ("liza", {f"{CODE}.gates.8.{key}": "path_unset"}, f"{key}: `path_unset` does nothing")
        for key in ("when", "unless", "skip_if")
    ),
    *(
        ("liza", {f"{MERGED}.gates.0.{key}": word}, f"{key}: `{word}` does nothing")
        for key in ("when", "unless", "skip_if")
        for word in ("asked", "final_iteration")
    ),
    ("liza", {f"{CODE}.gates.0.when": "asked"}, "when: `asked` does nothing"),
    *(
        (
            "liza",
            {f"{CODE}.gates.8.when": "no_code", f"{CODE}.gates.8.{key}": "no_code"},
            f"{key}: the gate does nothing",
        )
        for key in ("unless", "skip_if")
    ),
    ("liza", {f"{CODE}.gates.8.tree": "merged"}, "tree: it does nothing: nothing is merged"),
    ("liza", {f"{MERGED}.gates.0.tree": "moon"}, "tree: it does nothing: only `merged`"),
    ("liza", {f"{CODE}.gates.2.limit": "all"}, "limit: it does nothing without"),
    (
        "liza",
        {f"{CODE}.gates.2.limit": "all", f"{CODE}.gates.2.max_loc": None, f"{CODE}.gates.2.max_files": 2},
        "limit: it does nothing without",
    ),
    (
        "liza",
        {f"{CODE}.gates.2.max_loc": None, f"{CODE}.gates.2.tolerance": 0.1},
        "tolerance: it does nothing without",
    ),
    ("liza", {f"{CODE}.gates.0.at": "after"}, "checkpoint: it does nothing without"),
    ("liza", {f"{CODE}.gates.0.max_bytes": 9}, "max_bytes: it does nothing without diff"),
    ("liza", {f"{CODE}.gates.7.max_bytes": 9}, "max_bytes: it does nothing without diff"),
    *(
        (
            "liza",
            {f"{REVIEWED}.gates.1": {"id": "form", "kind": "artifact", "schema": form}},
            "schema: it does nothing",
        )
        for form in ("step_spec", "handoff")
    ),
    (
        "liza",
        {f"{CODE}.gates.13": {"id": "form", "kind": "artifact", "schema": "handoff"}},
        "schema: it does nothing",
    ),
    ("liza", {f"{CODE}.gates.5.docs": "docs"}, "docs: it does nothing without max_docs"),
    ("liza", {f"{CODE}.gates.3.secrets": False}, "paths: the gate does nothing"),
    ("liza", {f"{CODE}.gates.6.directory": "src"}, "directory: it does nothing"),
    ("liza", {f"{CODE}.gates.10.directory": "src"}, "directory: it does nothing"),
    ("liza", {f"{CODE}.gates.8.keep": ["out.csv"]}, "keep: it does nothing"),
    (
        "liza",
        {
            f"{CODE}.gates.8.keep": ["out.csv"],
            f"{CODE}.gates.13": {
                "id": "speed",
                "kind": "score",
                "run": "x",
                "results": "b.csv",
                "column": "n",
            },
        },
        "keep: it does nothing",
    ),
    ("cycle", {"phases.ACT.gates.1.announced": "required"}, "announced: it does nothing"),
    (
        "cycle",
        {"phases.ACT.gates.2": {"id": "v", "kind": "command", "from": "checkpoint.validation"}},
        "from: it does nothing",
    ),
    *(
        (
            "liza",
            {f"{CODE}.gates.13": {"id": "speed", "kind": "score", "run": "x", key: value}},
            f"{key}: it does nothing without baseline",
        )
        for key, value in (("min_delta", 0.1), ("higher_is_better", False))
    ),
    # Of a phase.
    *(("liza", {f"{place}.session": "resume"}, "session: it does nothing") for place in (REVIEWED, MERGED)),
    ("phased", {"phases.PLAN.session": "resume"}, "session: it does nothing"),
    ("liza", {f"{CODE}.session": {"SIMPLE": "resume"}}, "session: what it says of a path"),
    ("liza", {f"{CODE}.max_iterations": {"SIMPLE": 1}}, "max_iterations: what it says of a path"),
    *(
        ("liza", {f"{place}.max_iterations": 3}, "max_iterations: it does nothing: no work comes back")
        for place in (REVIEWED, MERGED)
    ),
    *(
        ("liza", {f"{place}.on_exhausted": "stop"}, "on_exhausted: it does nothing without")
        for place in (REVIEWED, MERGED)
    ),
    *(
        ("liza", {f"{place}.blocking": False}, "blocking: it does nothing without")
        for place in (CODE, REVIEWED, MERGED)
    ),
    ("liza", {f"{REVIEWED}.collect": True}, "collect: it does nothing with fewer"),
    ("experiment", {"phases.COORD.collect": True}, "collect: it does nothing with fewer"),
    *(("liza", {f"{place}.loop": True}, "loop: it does nothing") for place in (CODE, REVIEWED, MERGED)),
    *(("liza", {f"{place}.hands_on": "work"}, "hands_on: it does nothing") for place in (REVIEWED, MERGED)),
    ("liza", {f"{CODE}.edges": {"pass": "REVIEW"}}, "next: it does nothing"),
    (
        "liza",
        {
            f"{REVIEWED}.edges": {"revise": {"to": "CODE"}, "pass": {"to": "INTEGRATE", "reset": True}},
            f"{REVIEWED}.next": None,
        },
        "edges: reset does nothing",
    ),
    (
        "experiment",
        {"phases.TEST.edges": {"revise": {"to": "STOPPED", "reset": True}}},
        "edges: reset does nothing",
    ),
    ("cycle", {"phases.PLAN.edges": {"revise": {"to": "ALIGN", "reset": True}}}, "edges: reset does nothing"),
    ("experiment", {"phases.COORD.edges": {"pass/odd": "CODE"}}, "edges: what is said of a label"),
    (
        "experiment",
        {"phases.COORD.effects": {"pass/odd": ["write_summary"]}},
        "effects: what is said of a label",
    ),
    *(
        ("liza", {f"{place}.effects": {"after_work": ["write_summary"]}}, "after_work: it does nothing")
        for place in (REVIEWED, MERGED)
    ),
    *(
        ("phased", {"tasks": source}, "effects: pull requests do nothing")
        for source in ("goal", "planner", "ideas")
    ),
    # Of the document.
    (
        "cycle",
        {"crash_consumes_iteration": True, "phases.PLAN.max_iterations": None},
        "crash_consumes_iteration: it does nothing",
    ),
    (
        "liza",
        {"remembers": True, "roles.reviewer": None, f"{REVIEWED}.gates": [{"id": "ok", "kind": "human"}]},
        "remembers: it does nothing",
    ),
    *(
        ("liza", {"tasks": {"source": source, "file": "ideas.md"}}, "tasks.file: it does nothing")
        for source in ("goal", "planner", "issues")
    ),
    *(
        ("liza", {"tasks": {"source": source, "limit": 3}}, "tasks.limit: it does nothing")
        for source in ("goal", "planner")
    ),
    ("experiment", {"at_end": ["write_summary", "write_summary"]}, "at_end: what is said twice"),
    ("liza", {"artifacts": {"poem": {"retention": "phase"}}}, "artifacts.poem: it does nothing"),
    ("cycle", {"roles.judge.sees": ["poem"]}, "roles.judge.sees: nobody makes 'poem'"),
    ("liza", {"artifacts": {"review": {"retention": "phase"}}}, "artifacts.review: it does nothing"),
    ("liza", {"rules": ["rejected_3x", "rejected_3x"]}, "rules[1]: rejected_3x watches already"),
    *(
        ("liza", {"rules": [{"name": name, key: value}]}, f"{key!r} does nothing")
        for name, key, value in (
            ("rejected_3x", "minutes", 3),
            ("assumption_budget", "phase", "CODE"),
            ("session_duration", "count", 3),
        )
    ),
    ("liza", {"roles.reviewer.access": "write"}, "access: it does nothing"),
    ("liza", {"roles.reviewer.prompt": "judge.md", "roles.reviewer.instructions": "x"}, "keep one"),
]
# What does something wherever it may stand, and by what else it is checked there.
NEVER_IDLE: Final = {
    "name id kind to": "a name",
    "says question instructions": "words for people and agents",
    "start phases roles worker gates workspace": "what the document is made of",
    "process dialect prompt source base path naming retention": "known words, each with its own effect",
    "mode": "it says whether the gate decides; people and effects always do, which is the floor",
    "page": "it needs `tasks: goal` and known hats",
    "outcome label retry action": "checked by the floor and by the table of rules",
    "diff tests max_loc max_files command from run expect named secrets commands": "of the gate itself",
    "bypasses max_docs on_miss": "of the gate itself",
    "results column baseline at_least at_most effect asks remind_minutes on_timeout": "of the gate itself",
}


@cache
def _text(name: str) -> str:
    return files("liza").joinpath(f"workflow/{name}.yaml").read_text(encoding="utf-8")


def _put(document: Any, path: str, value: object) -> None:  # noqa: ANN401 - a piece of YAML
    *way, last = path.split(".")
    for part in way:
        document = document[int(part)] if isinstance(document, list) else document.setdefault(part, {})
    if isinstance(document, list):
        document[int(last) : int(last) + 1] = [value]
    elif value is None:
        document.pop(last)
    else:
        document[last] = value


def _refusal(name: str, changes: Mapping[str, object]) -> str:
    """Return what is said of the document *name* with *changes*; nothing where it is accepted."""
    document = yaml.load(_text(name), Loader=yaml.CSafeLoader)
    for path, value in changes.items():
        _put(document, path, value)
    try:
        parse_workflow(
            yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False),
            "ours.yaml",
            check=unsupported_parts,
        )
    except UsageError as refused:
        return str(refused)
    return ""


def test_a_valid_key_where_it_does_nothing_is_refused_with_its_line() -> None:
    told = [_refusal(name, changes) for name, changes, _ in IDLE]

    refused = re.compile(r"ours.yaml is no workflow: line \d+: ")
    accepted = [
        row
        for row, sentence in zip(IDLE, told, strict=True)
        if row[2] not in sentence or not refused.match(sentence)
    ]
    assert accepted == []
    reasons = [f"{row[0]}: {row[2]}" for row in (*GATE_KEYS, *PHASE_KEYS, *KEYS)]
    untried = [reason for reason in reasons if not any(reason in sentence for sentence in told)]
    assert untried == []


def test_every_key_of_every_record_is_tried_or_acts_everywhere() -> None:
    records = (Workflow, Phase, Gate, Hat, Edge, OnError, NoVerdict, ArtifactKind, WatchedRule, TaskSource,
               Workspace, WorkflowPage)  # fmt: skip
    keys = {key for record in records for key in record.model_fields} - {"options"}
    keys |= {key for options in OPTIONS.values() for key in options}
    acts = {key for several in NEVER_IDLE for key in several.split()}
    tried = {word for _, changes, said in IDLE for word in re.findall(r"\w+", f"{said} {changes}")}

    assert keys - acts - tried == set()
    assert acts - keys == set()


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
        text = _text(name)
        for place in _places(yaml.safe_load(text)):
            yield pytest.param(name, place, id=f"{name}-{'.'.join(map(str, place))}")


@pytest.mark.parametrize(("name", "place"), list(_misspelt()))
def test_a_misspelt_key_is_refused_wherever_it_stands(
    tmp_path: Path, name: str, place: tuple[str | int, ...]
) -> None:
    document = yaml.safe_load(_text(name))
    spot = document
    for part in place:
        spot = spot[part]
    spot["whne"] = "x"
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: .*'?whne'?"):
        workflow_of(Config(workflow="ours.yaml"), tmp_path)
