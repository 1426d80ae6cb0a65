"""What an agent is told before it starts, and that none starts without all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.domain.model import Status
from tests.caged import require_cage
from tests.office import Office

if TYPE_CHECKING:
    from pathlib import Path


def prompts(office: Office) -> list[str]:
    return [path.read_text() for path in sorted((office.home / "runs").glob("*/prompt.md"))]


def test_every_prompt_says_who_what_and_where(tmp_path: Path) -> None:
    """Role, specs, board, project root, task: in every step of a whole run."""
    office = Office(tmp_path)
    office.turns("planner-1", "coder-1", "reviewer-1")

    steps = {"plan": "planner", "checkpoint": "coder", "implement": "coder", "review": "reviewer"}
    told = prompts(office)
    for step, role in steps.items():
        (one,) = [text for text in told if f"\nrole: {role}, step: {step}\n" in text]
        assert f"\ntask: {'none; the goal as a whole' if step == 'plan' else 't1'}\n" in one
        assert f"\nproject root: {office.home.parent} " in one
        assert f"\nboard: {office.home} " in one
        assert "\nspecs: none but the goal\n" in one


def test_in_a_sandbox_the_prompt_names_the_paths_that_are_there(tmp_path: Path) -> None:
    """The worktree is at the path of the project, and nothing is said of a place out of reach."""
    require_cage()
    office = Office(tmp_path, sandbox={"mode": "require"})
    office.task()

    office.turn("coder-1")

    for text in prompts(office):
        assert f"\nworking directory: {office.home.parent}\n" in text
        assert "/.worktrees/" not in text
        assert f"{office.home}" not in text


def test_a_task_whose_spec_is_not_there_is_blocked_before_an_agent_starts(tmp_path: Path) -> None:
    """Nobody guesses what a lost file said."""
    office = Office(tmp_path)
    office.task(spec_ref="specs/none.md#greeting")

    office.turn("coder-1")

    task = office.state.task("t1")
    assert task.status is Status.BLOCKED
    assert "its spec 'specs/none.md#greeting' is no file of the repository" in str(task.blocked_reason)
    assert prompts(office) == []


def test_a_task_without_criteria_is_blocked(tmp_path: Path) -> None:
    """Nobody could tell when it is done."""
    office = Office(tmp_path)
    office.task(done_when=())

    office.turn("coder-1")

    assert "no done_when" in str(office.state.task("t1").blocked_reason)


def test_a_spec_that_is_not_committed_is_told_in_the_prompt(tmp_path: Path) -> None:
    """The worktree does not have it, so the words themselves are passed on, fenced."""
    office = Office(tmp_path)
    (office.home.parent / "new.md").write_text("Greet in French.\n")
    office.task(spec_ref="new.md")

    office.turn("coder-1")

    assert all("Greet in French." in text for text in prompts(office))
    assert office.status() is Status.READY_FOR_REVIEW
