"""`liza explain`: a true sentence for tasks in every status, for workers and the run; commands that work."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board.file import FileBoard
from liza.daemon.policy import pick
from liza.daemon.policy.pick import Candidate, all_hold
from liza.domain import lifecycle as e
from liza.domain.config import Config
from liza.domain.model import Provider, ProviderState, Status
from liza.domain.record import records_by_id, utc_now
from liza.system import files
from tests.support import sample_tasks as s
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import Task

# What each status waits for where a supervisor runs and no switch is thrown; the words are those people read.
EXPECTED: Final[dict[Status, tuple[str, str]]] = {
    Status.DRAFT: ("a plan that waits for your yes", "you"),  # the planner made it
    Status.IDLE: ("will take it next", "coder-1"),
    Status.WORKING: ("is taken back next", "the supervisor"),  # the stories' lease is long over
    Status.READY_FOR_REVIEW: ("is taken back next", "the supervisor"),
    Status.REJECTED: ("coder-1 will take it next", "coder-1"),
    Status.APPROVED: ("is taken back next", "the supervisor"),
    Status.AWAITING_APPROVAL: ("it asks you: Ship it?", "you"),
    Status.BLOCKED: ("the planner looks at it next", "the planner"),
    Status.INTEGRATION_FAILED: ("coder-1 will take it next", "coder-1"),
    Status.MERGED: ("proven to be on the integration branch", "nobody"),
    Status.COMPLETE: ("finished and approved", "nobody"),
    Status.NOTHING_TO_DO: ("no change is needed", "nobody"),
    Status.SUPERSEDED: ("replaced by other tasks", "nobody"),
    Status.ABANDONED: ("given up", "nobody"),
}


def shell_of(directory: Path, *tasks: Task, **sections: Any) -> Shell:  # noqa: ANN401
    FileBoard.create(directory / ".liza", s.board(*tasks, **sections)).close()
    return Shell(directory)


def explained(shell: Shell, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.ok("explain", subject, "--json"))
    return found


class TestTasks:
    @pytest.mark.parametrize("status", list(Status))
    def test_every_status_has_its_sentence_and_a_command_that_works(
        self, status: Status, tmp_path: Path
    ) -> None:
        shell = shell_of(tmp_path, s.task_in(status), s.new_task("t2", status=Status.DRAFT))
        with files.hold_for_life(shell.home / files.SUPERVISOR_LOCK, at=utc_now()):
            found = explained(shell, "t1")
            says, who = EXPECTED[status]
            assert found["status"] == status
            assert says in found["what"]
            assert who in found["who"]
            program, *words = shlex.split(found["command"])
            assert program == "liza"
            assert shell(*words).code == 0, found

    def test_a_task_that_waits_names_what_it_waits_for(self, tmp_path: Path) -> None:
        shell = shell_of(
            tmp_path, s.task_in(Status.WORKING), s.new_task("t10"), s.new_task("t2", depends_on=("t1", "t10"))
        )
        found = explained(shell, "t2")
        assert found["what"] == "it waits for t1 (WORKING), t10 (IDLE)"
        assert found["command"] == "liza explain t1"

    def test_a_forced_pass_asks_for_consent_and_goes_on_after_it(self, tmp_path: Path) -> None:
        forced = s.walked(s.new_task(), s.claim(), s.submit(), s.FORCE_PASS)
        shell = shell_of(tmp_path, forced)
        assert "by force" in explained(shell, "t1")["what"]
        shell.ok(*shlex.split(explained(shell, "t1")["command"])[1:])
        with files.hold_for_life(shell.home / files.SUPERVISOR_LOCK, at=utc_now()):
            assert explained(shell, "t1")["what"] == "reviewer-1 will merge it next"
        assert shell("task", "accept", "t1").err == (
            "liza: t1: it asks for no consent, because it is APPROVED; `liza explain t1`\n"
        )

    def test_what_awaits_approval_can_be_refused(self, tmp_path: Path) -> None:
        shell = shell_of(tmp_path, s.task_in(Status.AWAITING_APPROVAL))
        shell.ok("task", "reject", "t1", "--reason", "it is blue")
        assert explained(shell, "t1")["status"] == Status.REJECTED

    def test_a_switch_and_a_missing_supervisor_are_told(self, tmp_path: Path) -> None:
        shell = shell_of(tmp_path, s.new_task())
        assert explained(shell, "t1")["command"] == "liza run"
        shell.ok("pause", "lunch")
        found = explained(shell, "t1")
        assert found["what"].startswith("PAUSE is thrown (lunch)")
        assert found["command"] == "liza resume"


class TestTheSameObjectsDecide:
    """What workers take and what `explain` says come from one tuple of conditions."""

    @pytest.mark.parametrize("status", list(Status))
    def test_a_task_is_picked_exactly_where_nothing_hinders(self, status: Status) -> None:
        state, late = s.board(s.task_in(status)), s.NOW + 10 * s.HOUR
        picked = pick.pick_work(state, "coder-1") or pick.pick_review(state, "reviewer-1", late)
        looks = [Candidate(state, state.task("t1"), name, late) for name in ("coder-1", "reviewer-1")]
        free = all_hold(pick.CONDITIONS, looks[0]) or any(
            all_hold(conditions, looks[1]) for conditions in (pick.TO_REVIEW, pick.TO_MERGE)
        )
        assert (picked is not None) == free


class TestOthers:
    def test_a_worker_says_what_it_does(self, tmp_path: Path) -> None:
        shell = shell_of(tmp_path, s.task_in(Status.WORKING), s.new_task("t2"))
        assert explained(shell, "coder-1")["what"] == "it works on t1"
        with files.hold_for_life(shell.home / files.SUPERVISOR_LOCK, at=utc_now()):
            assert explained(shell, "coder-2")["what"] == "it takes t2 next"
            assert "nothing on the board is new" in explained(shell, "planner-1")["what"]

    def test_the_run_says_what_only_people_can_do(self, tmp_path: Path) -> None:
        asked = s.walked(s.new_task(), s.block(), (e.Defer(questions=("Which colour?",)), s.PLANNER))
        shell = shell_of(tmp_path, asked)
        found = explained(shell, "run")  # the question stands, whether or not somebody supervises
        assert found["command"] == 'liza answer t1 "…"; liza run'
        assert "Which colour?" in found["what"]
        with files.hold_for_life(shell.home / files.SUPERVISOR_LOCK, at=utc_now()):
            found = explained(shell, "run")
        assert found["status"] == "waiting for you"
        assert "Which colour?" in found["what"]
        assert found["command"] == 'liza answer t1 "…"'

    def test_money_and_providers_are_asked_as_workers_ask_them(self, tmp_path: Path) -> None:
        """Also where no run goes on: what admits a run says why it would not begin."""
        config = Config.model_validate(
            {"agents": {"default": {"command": ["true"]}}, "budget": {"run_usd": 0.1}}
        )
        shell = shell_of(tmp_path, s.new_task(), config=config)
        for subject in ("t1", "coder-1"):
            found = explained(shell, subject)
            assert "the budget is reached" in found["what"]
            assert found["command"].startswith("liza answer budget ")

    def test_a_provider_that_is_closed_is_told(self, tmp_path: Path) -> None:
        config = Config.model_validate({"agents": {"default": {"command": ["true"]}}})
        refused = Provider(id="command", state=ProviderState.REFUSED, since=s.NOW, why="no such key")
        shell = shell_of(tmp_path, s.new_task(), config=config, providers=records_by_id([refused]))
        for subject in ("t1", "coder-1", "run"):
            found = explained(shell, subject)
            assert "no such key" in found["what"], subject
            assert "liza resume" in found["command"]

    def test_an_unknown_name_is_one_sentence(self, tmp_path: Path) -> None:
        done = shell_of(tmp_path, s.new_task())("explain", "t7")
        assert done.code == 1
        assert done.err.count("\n") == 1
        assert "t7" in done.err
