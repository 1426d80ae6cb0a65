"""A real coding program through each workflow that comes with Liza, to its end, led by a scripted model."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.cycle_archive import PAGE
from liza.domain.model import Status
from tests.agents.real import INTEGRATION, Project
from tests.agents.script import FILES, README, TASK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agents.real import Run

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

PROGRAM: Final = "claude"  # the quickest of them
ONLY_PEOPLE: Final = 3  # the exit code of a run in which only people can make progress
SWEEP: Final = "#!/bin/sh\ntest -f hello.py && echo 2 || echo 1\n"


def parts(run: Run) -> list[tuple[str | None, str | None]]:
    """Return which hat was asked in which phase, each once, in the order in which they began."""
    return list(dict.fromkeys((call.phase, call.hat) for call in run.calls if call.step != "plan"))


def test_the_default_workflow(tmp_path: Path, tell: Callable[[str, Project, Run], None]) -> None:
    project = Project(tmp_path, PROGRAM)
    run = project.run()

    assert run.state.task(TASK).status is Status.MERGED, run.shown()
    assert parts(run) == [("CODE", "coder"), ("REVIEW", "reviewer")]
    assert project.merged() == FILES
    tell(f"{PROGRAM}, liza", project, run)


def test_plan_implement_and_document(tmp_path: Path, tell: Callable[[str, Project, Run], None]) -> None:
    """A simple goal: no review of its plan, and the conversation of the plan goes on."""
    project = Project(tmp_path, PROGRAM, workflow="phased")
    run = project.run()

    task = run.state.task("goal-1")
    assert task.status is Status.COMPLETE, run.shown()
    assert (task.position and task.position.path, task.taints) == ("SIMPLE", ()), run.shown()
    assert parts(run) == [
        ("PLAN", "thinker"),
        ("PLAN", "complexity_assessor"),
        *((phase, hat) for phase in ("IMPLEMENT", "DOCS") for hat in ("worker", "reviewer", "judge")),
    ]
    assert project.at("task/goal-1") == FILES | {"README.md": README}
    assert project.fingerprint() == project.before
    tell(f"{PROGRAM}, phased", project, run)


def test_small_steps_that_a_person_approves(
    tmp_path: Path, tell: Callable[[str, Project, Run], None]
) -> None:
    project = Project(tmp_path, PROGRAM, workflow="cycle")
    first = project.run()
    assert first.code == ONLY_PEOPLE, first.shown()
    assert first.state.task("goal-1").status is Status.AWAITING_APPROVAL, first.shown()
    assert parts(first) == [("ALIGN", "planner"), ("PLAN", "planner"), ("ACT", "actor"), ("JUDGE", "judge")]
    assert project.merged() == {}

    project.liza("task", "accept", "goal-1", "--reason", "good")
    run = project.run()

    assert run.state.task("goal-1").status is Status.MERGED, run.shown()
    assert project.merged() == FILES
    assert (project.root / PAGE).exists()
    shutil.rmtree(project.root / "docs")  # the page and its archive, which people read and answer in
    assert project.fingerprint() == project.before
    tell(f"{PROGRAM}, cycle", project, run)


def test_ideas_become_patches_with_scores(tmp_path: Path, tell: Callable[[str, Project, Run], None]) -> None:
    ideas = {"ideas.md": "Greet by name\n", "sweep.sh": SWEEP}
    project = Project(tmp_path, PROGRAM, workflow="experiment", files=ideas)
    run = project.run()

    task = run.state.task("idea-1-1")
    assert task.status is Status.COMPLETE, run.shown()
    assert parts(run) == [
        *(("COORD", "coordinator"), ("PLAN", "planner"), ("CODE", "coder"), ("CODE", "reviewer")),
    ]
    (summary,) = (project.root / ".liza/experiments").glob("*/summary.json")
    assert json.loads(summary.read_text())["idea"] == "Greet by name"
    assert project.merged() == {}
    assert project.git("rev-parse", INTEGRATION) == project.git("rev-parse", "main")
    assert not list((project.root / ".worktrees").glob("idea-*"))
    assert project.fingerprint() == project.before
    tell(f"{PROGRAM}, experiment", project, run)
