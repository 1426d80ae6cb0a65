"""The workflow that a board follows: its file, as long as every task has its place in it."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from liza.daemon.worker import _why_unfit
from liza.workflow.document import workflow_on
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

FLOW: Final = "flow.yaml"
TEXT: Final = files("liza.workflow").joinpath("liza.yaml").read_text(encoding="utf-8")


def team_with_a_task(directory: Path) -> ScriptedTeam:
    team = ScriptedTeam(directory, workflow=FLOW)
    (team.user.directory / FLOW).write_text(TEXT)
    team.task()
    return team


def test_a_file_that_was_edited_is_followed_before_the_next_turn(tmp_path: Path) -> None:
    team = team_with_a_task(tmp_path)
    (team.user.directory / FLOW).write_text(TEXT.replace("max_coder_iterations", "3"))

    assert _why_unfit(team.worker("coder-1"), team.state) is None
    assert workflow_on(team.state).phases["CODE"].most(None) == 3


def test_a_file_without_the_phase_of_a_task_is_not_followed(tmp_path: Path) -> None:
    """Everybody pauses with this sentence, and the board stays with what it has."""
    team = team_with_a_task(tmp_path)
    (team.user.directory / FLOW).write_text(TEXT.replace("CODE", "MAKE"))
    before = team.state

    why = _why_unfit(team.worker("coder-1"), team.state)

    assert why == (
        "t1 is in the phase CODE, which the workflow liza does not have; put the phase back; "
        "mend it, then `liza resume`"
    )
    assert team.state.workflow == before.workflow
    assert team.state.task("t1") == before.task("t1")
