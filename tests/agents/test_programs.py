"""Real coding programs from a plan to merged work: sandboxed, without a network, led by a scripted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.protocol import load_recording
from liza.domain.model import Status
from tests.agents.real import KEY, SECRET, Project
from tests.agents.script import FILES, PRIED, TASK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agents.real import Run

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

PROGRAMS: Final = (
    "claude",
    "codex",
    "opencode",
    "aider",
    "mini",
    "gemini",
    "qwen",
    "goose",
    "litellm",
    "acp",
    "copilot",
)
WITHOUT_SHELL: Final = {"aider"}


def is_merged(project: Project, run: Run) -> None:
    """Assert that the task went all the way, and that nothing else changed."""
    task = run.state.task(TASK)
    assert task.status is Status.MERGED, run.shown()
    assert project.merged() == FILES, run.shown()
    assert task.iteration == 1, run.shown()
    assert run.state.anomalies == {}, run.shown()
    assert project.fingerprint() == project.before
    assert {call.step for call in run.calls} >= {"plan", "checkpoint", "implement", "review"}


def nothing_leaked(project: Project, run: Run) -> None:
    """Assert that neither a model nor a file of Liza's got what is the user's."""
    given = [result for call in run.calls for result in call.results]
    assert not [one for one in given if SECRET in one]
    assert not [one for one in given if "human_notes:" in one]  # of state.yaml
    written = [path for path in (project.root / ".liza").rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_real_program_takes_a_task_from_plan_to_merged(
    program: str, tmp_path: Path, tell: Callable[[str, Project, Run], None]
) -> None:
    """It edits the worktree by its own tools, in the sandbox; what it used is what it reports."""
    project = Project(tmp_path, program)
    run = project.run()

    is_merged(project, run)
    nothing_leaked(project, run)
    if program not in WITHOUT_SHELL:
        assert any(PRIED in result for call in run.calls for result in call.results), run.shown()
    if program == "litellm":  # whose commands need no key; those of other programs have what these have
        assert not [one for call in run.calls for one in call.results if KEY in one]
    used = [one.usage for one in load_recording(project.root / ".liza" / "runs").runs]
    assert all(usage.tokens_in for usage in used)
    tell(program, project, run)


@pytest.mark.parametrize("program", ["claude", "litellm"])
def test_a_program_that_reaches_only_its_model_gets_there(program: str, tmp_path: Path) -> None:
    """Under `model-only` its own address is enough: the model is where its variables say."""
    project = Project(tmp_path, program, sandbox={"mode": "require", "network": "model-only"})

    is_merged(project, project.run())
