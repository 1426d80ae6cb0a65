"""Every key of a workflow that workers would read and not perform is refused, with its line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from liza.daemon.flows import workflow_of
from liza.domain.config import Config
from liza.errors import UsageError
from liza.workflow.load import load_workflow, packaged_names, parse_workflow
from liza.workflow.supported import unsupported_parts

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
