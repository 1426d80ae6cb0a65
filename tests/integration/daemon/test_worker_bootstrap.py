"""What an agent is told before it starts, and that none starts without all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.domain.model import Status
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path


def prompts(team: ScriptedTeam) -> list[str]:
    return [path.read_text() for path in sorted((team.home / "runs").glob("*/prompt.md"))]


def test_every_prompt_says_who_what_and_where(tmp_path: Path) -> None:
    """Role, specs, board, project root, task: in every step of a whole run."""
    team = ScriptedTeam(tmp_path)
    team.turns("planner-1", "coder-1", "reviewer-1")

    steps = {"plan": "planner", "checkpoint": "coder", "implement": "coder", "review": "reviewer"}
    told = prompts(team)
    for step, role in steps.items():
        (one,) = [text for text in told if f"\nrole: {role}, step: {step}\n" in text]
        assert f"\ntask: {'none; the goal as a whole' if step == 'plan' else 't1'}\n" in one
        assert f"\nproject root: {team.home.parent} " in one
        assert f"\nboard: {team.home} " in one
        assert "\nspecs: none but the goal\n" in one


def test_who_wears_a_hat_is_told_which_and_in_which_phase(tmp_path: Path) -> None:
    """The same hat works in several phases, and each of them wants something else."""
    team = ScriptedTeam(tmp_path, workflow="cycle")
    for _ in range(3):  # the first puts the goal on the board
        team.turn("planner-1")

    for phase, text in zip(("ALIGN", "PLAN"), prompts(team), strict=True):
        assert f"\nrole: planner, step: implement\ntask: goal-1\nphase: {phase}, hat: planner\n" in text


def test_in_a_sandbox_the_prompt_names_the_paths_that_are_there(tmp_path: Path) -> None:
    """The worktree is at the path of the project, and nothing is said of a place out of reach."""
    skip_without_sandbox()
    team = ScriptedTeam(tmp_path, sandbox={"mode": "require"})
    team.task()

    team.turn("coder-1")

    for text in prompts(team):
        assert f"\nworking directory: {team.home.parent}\n" in text
        assert "/.worktrees/" not in text
        assert f"{team.home}" not in text


def test_a_task_whose_spec_is_not_there_is_blocked_before_an_agent_starts(tmp_path: Path) -> None:
    """Nobody guesses what a lost file said."""
    team = ScriptedTeam(tmp_path)
    team.task(spec_ref="specs/none.md#greeting")

    team.turn("coder-1")

    task = team.state.task("t1")
    assert task.status is Status.BLOCKED
    assert "its spec 'specs/none.md#greeting' is no file of the repository" in str(task.blocked_reason)
    assert prompts(team) == []


def test_a_task_without_criteria_is_blocked(tmp_path: Path) -> None:
    """Nobody could tell when it is done."""
    team = ScriptedTeam(tmp_path)
    team.task(done_when=())

    team.turn("coder-1")

    assert "no done_when" in str(team.state.task("t1").blocked_reason)


def test_a_spec_that_is_not_committed_is_told_in_the_prompt(tmp_path: Path) -> None:
    """The worktree does not have it, so the words themselves are passed on, fenced."""
    team = ScriptedTeam(tmp_path)
    (team.home.parent / "new.md").write_text("Greet in French.\n")
    team.task(spec_ref="new.md")

    team.turn("coder-1")

    assert all("Greet in French." in text for text in prompts(team))
    assert team.status() is Status.READY_FOR_REVIEW
