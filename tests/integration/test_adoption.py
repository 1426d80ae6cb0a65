"""The workflow that a board follows: its file, as long as every task has its place in it."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from liza.daemon.worker import _why_unfit
from liza.workflow.load import workflow_on
from tests.office import Office

if TYPE_CHECKING:
    from pathlib import Path

FLOW: Final = "flow.yaml"
TEXT: Final = files("liza.workflow").joinpath("liza.yaml").read_text(encoding="utf-8")


def office_with_a_task(directory: Path) -> Office:
    office = Office(directory, workflow=FLOW)
    (office.user.directory / FLOW).write_text(TEXT)
    office.task()
    return office


def test_a_file_that_was_edited_is_followed_before_the_next_turn(tmp_path: Path) -> None:
    office = office_with_a_task(tmp_path)
    (office.user.directory / FLOW).write_text(TEXT.replace("max_coder_iterations", "3"))

    assert _why_unfit(office.place("coder-1"), office.state) is None
    assert workflow_on(office.state).phases["CODE"].most(None) == 3


def test_a_file_without_the_phase_of_a_task_is_not_followed(tmp_path: Path) -> None:
    """Everybody pauses with this sentence, and the board stays with what it has."""
    office = office_with_a_task(tmp_path)
    (office.user.directory / FLOW).write_text(TEXT.replace("CODE", "MAKE"))
    before = office.state

    why = _why_unfit(office.place("coder-1"), office.state)

    assert why == (
        "t1 is in the phase CODE, which the workflow liza does not have; put the phase back; "
        "mend it, then `liza resume`"
    )
    assert office.state.workflow == before.workflow
    assert office.state.task("t1") == before.task("t1")
