"""What providers refuse, as real programs tell it: Liza waits, parks or stops, and no task fails for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.protocol import load_recording
from liza.domain.model import ProviderState, Status
from liza.system.run_control import RunEnding
from tests.agents.endpoint import Fault
from tests.agents.real import Project
from tests.agents.script import TASK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agents.real import Run

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

ONLY_PEOPLE: Final = 3  # the exit code of a run in which only people can make progress
MINUTE: Final = Fault(
    status=429,
    kind="rate_limit_error",
    message="Rate limit reached. Please try again in {seconds}s.",
    seconds=5,
    is_final=True,
)
WINDOW: Final = Fault(
    status=429,
    kind="rate_limit_error",
    message="Claude AI usage limit reached|{epoch}",
    seconds=8,
    is_final=True,
)
KEY: Final = Fault(status=401, kind="authentication_error", message="invalid x-api-key")


def endings(project: Project) -> set[RunEnding]:
    return {one.ending for one in load_recording(project.root / ".liza" / "runs").runs}


def went_on(project: Project, run: Run, ending: RunEnding, word: str) -> None:
    """Assert that work waited and went on: one alert, no failure, no iteration lost."""
    task = run.state.task(TASK)
    assert task.status is Status.MERGED, run.shown()
    assert (task.iteration, task.failed_by) == (1, ())
    assert endings(project) == {RunEnding.DONE, ending}
    assert run.state.providers["claude"].state is ProviderState.OPEN
    (told,) = [line for line in project.alerts() if "claude is" in line]
    assert f"claude is {word} until" in told
    assert "work goes on by itself after that" in told
    assert next(call.status for call in run.calls if call.step == "implement") == 429


def test_a_rate_limit_of_five_seconds_is_waited_out(tmp_path: Path) -> None:
    """The program gives up, Liza does not: it comes back when the provider said."""
    project = Project(tmp_path, "claude")

    went_on(project, project.run(MINUTE), RunEnding.RATE_LIMITED, "limited")


def test_an_exhausted_window_parks_until_it_ends(tmp_path: Path) -> None:
    """The words of the program name the moment, and nobody asks before it."""
    project = Project(tmp_path, "claude")

    went_on(project, project.run(WINDOW), RunEnding.QUOTA, "exhausted")


def test_a_program_that_waits_by_itself_is_let(tmp_path: Path) -> None:
    """Most programs heed a provider's `retry-after`; then there is nothing to tell anybody."""
    project = Project(tmp_path, "codex")
    run = project.run(MINUTE)

    assert run.state.task(TASK).status is Status.MERGED, run.shown()
    assert endings(project) == {RunEnding.DONE}
    assert {call.status for call in run.calls} == {200, 429}
    assert not [line for line in project.alerts() if "codex is" in line]


@pytest.mark.parametrize("program", ["claude", "codex", "mini"])
def test_a_bad_key_stops_until_a_person_mends_it(program: str, tmp_path: Path) -> None:
    """The run ends, says which provider refuses and what to do, and the task is as it was."""
    project = Project(tmp_path, program)
    run = project.run(KEY)

    task, provider = run.state.task(TASK), run.state.providers[program]
    assert run.code == ONLY_PEOPLE, run.shown()
    assert (task.status, task.failed_by) == (Status.IDLE, ())
    assert provider.state is ProviderState.REFUSED
    assert endings(project) == {RunEnding.DONE, RunEnding.AUTH}
    assert f"{program} refuses: {provider.why}" in run.said
    (told,) = [line for line in project.alerts() if "mend that, then `liza resume`" in line]
    assert f"{program} refuses" in told
    assert project.fingerprint() == project.before
