"""Every key of a workflow that workers would read and not perform is refused, with its line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from liza.daemon.flows import workflow_of
from liza.domain.config import Config
from liza.errors import UsageError
from liza.workflow.load import load_workflow, parse_workflow
from liza.workflow.supported import unsupported_parts

LIZA: Final = files("liza").joinpath("workflow/liza.yaml").read_text(encoding="utf-8")
REVIEW: Final = "{id: review, kind: agent, role: reviewer, on_none: block}"


def test_what_comes_with_liza_is_performed() -> None:
    assert unsupported_parts(load_workflow("liza")) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("start: CODE", "start: CODE\ncrash_consumes_iteration: true", "crash_consumes_iteration: "),
        ("start: CODE", "start: CODE\nat_end: [archive]", "at_end: "),
        ("start: CODE", "start: CODE\nworkspace: {base: head}", "workspace: "),
        ("start: CODE", "start: CODE\nfor_each: {source: ideas_file}", "for_each: "),
        ("on_exhausted: block", "on_exhausted: force_pass", "phases.CODE.on_exhausted: "),
        ("on_exhausted: block", "loop: true", "phases.CODE.loop: "),
        ("on_exhausted: block", "session: resume", "phases.CODE.session: "),
        ("on_exhausted: block", "effects: {revise: [write_summary]}", "phases.CODE.effects: "),
        (
            "max_iterations: max_coder_iterations",
            "max_iterations: {simple: 2, '*': 4}",
            "phases.CODE.max_iterations: a limit by path",
        ),
        ("    edges: {revise: CODE}\n    # For", "    edges: {revise: REVIEW}\n    # For", "edges.revise: "),
        (REVIEW, "{id: review, kind: agent, role: reviewer, on_none: stop}", "gates[0].on_none: "),
        (REVIEW, f"{REVIEW}\n      - {{id: ok, kind: human, when: risk_medium_or_high}}", "gates[1].when: "),
        (
            REVIEW,
            f"{REVIEW}\n      - {{id: ok, kind: human, remind_minutes: 5}}",
            "gates[1].remind_minutes: ",
        ),
    ],
)
def test_what_nobody_performs_is_refused_with_its_line(old: str, new: str, said: str) -> None:
    assert old in LIZA
    with pytest.raises(UsageError, match=r"ours.yaml is no workflow: line \d+: ") as refused:
        parse_workflow(LIZA.replace(old, new, 1), "ours.yaml", check=unsupported_parts)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["cycle", "phased", "experiment"])
def test_a_workflow_of_another_shape_says_that_it_cannot_be_run_yet(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be run yet"):
        workflow_of(Config(workflow=name), Path())
