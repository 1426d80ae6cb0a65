"""What people and agents get wrong: one sentence each, nothing lost, and the worker takes its next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.turn import AfterTurn
from liza.domain.model import Status
from tests.office import Office

if TYPE_CHECKING:
    from pathlib import Path

DONE: Final = {"status": "done", "summary": "Change it"}


class TestTheRepository:
    def test_a_detached_head_is_nobodys_business(self, tmp_path: Path) -> None:
        """Work begins at the integration branch, and the user's HEAD stays where it is."""
        office = Office(tmp_path)
        office.user.git("checkout", "--quiet", "--detach")
        before = office.user.git("rev-parse", "HEAD")
        office.task()

        office.turns("coder-1", "reviewer-1")

        assert office.status() is Status.MERGED
        assert (office.user.directory / ".git" / "HEAD").read_text().strip() == before

    def test_a_commit_that_people_put_on_the_branch_meanwhile_is_merged_with(self, tmp_path: Path) -> None:
        office = Office(tmp_path)
        office.task()
        office.turn("coder-1")
        theirs = people_commit(office, "-p", office.head())
        office.user.git("update-ref", office.ref, theirs)

        office.turns("reviewer-1")

        assert office.status() is Status.MERGED
        assert office.user.git("rev-parse", f"{office.ref}^1") == theirs
        assert office.merged("t1.txt") == "t1"

    def test_a_branch_that_was_replaced_by_another_history_pauses_everybody(self, tmp_path: Path) -> None:
        """It has diverged: nothing is guessed, the sentence is in PAUSE, and nothing of it is changed."""
        office = Office(tmp_path)
        office.task()
        office.turn("coder-1")
        work, before = office.user.git("rev-parse", "refs/heads/task/t1"), office.head()
        strange = people_commit(office)
        office.user.git("update-ref", office.ref, strange)

        office.turn("reviewer-1")

        assert office.status() is Status.APPROVED
        assert "unrelated histories" in (office.home / "PAUSE").read_text()
        assert office.head() == strange
        assert office.user.reachable(work)
        (office.home / "PAUSE").unlink()
        office.user.git("update-ref", office.ref, before)
        office.turns("reviewer-1")
        assert office.status() is Status.MERGED


def people_commit(office: Office, *words: str) -> str:
    return office.user.git("commit-tree", *words, "-m", "by hand", "HEAD^{tree}")


class TestTheCommand:
    def test_one_that_is_not_executable_blocks_the_task_and_says_how_to_mend_it(self, tmp_path: Path) -> None:
        agent = tmp_path / "agent.sh"
        agent.write_text("#!/bin/sh\n")
        office = Office(tmp_path, agents={"default": {"command": [str(agent)]}})
        office.task()

        office.turn("coder-1")

        task = office.state.task("t1")
        assert task.status is Status.BLOCKED
        assert task.blocked_reason == f"'{agent}' is not executable; `chmod +x` makes a script so"
        assert office.turn("coder-1") is AfterTurn.WAIT

    @pytest.mark.parametrize(
        "script", ["yes | head -c 200000000", "head -c 2000000 /dev/urandom"], ids=["200 MB", "binary"]
    )
    def test_one_that_floods_gives_no_answer_and_costs_its_coder_the_task(
        self, tmp_path: Path, script: str
    ) -> None:
        command = ["sh", "-c", f"cat > /dev/null; {script}"]
        office = Office(tmp_path, agents={"default": {"command": command}}, workers={"coder": 2})
        office.task()

        office.turn("coder-1")

        task = office.state.task("t1")
        assert (task.status, task.failed_by) == (Status.IDLE, ("coder-1",))
        assert "the output was too long to keep" in task.history[-1].facts["reason"]
        assert (
            sum(path.stat().st_size for path in office.home.rglob("*") if path.is_file()) < 100_000_000
        )  # of 400 million bytes in two runs


class TestAnswers:
    @pytest.mark.parametrize(
        ("act", "said"),
        [
            ({}, "printed nothing"),
            ({"print": "It looks good to me!"}, "no answer to the review step"),
            ({"print": "```liza\nverdict: [\n```\n"}, "review"),
            ({"answer": DONE}, "answer to the implement step"),
        ],
        ids=["nothing", "prose", "garbage", "another role's"],
    )
    def test_a_review_without_a_verdict_never_passes(
        self, tmp_path: Path, act: dict[str, Any], said: str
    ) -> None:
        """Design 6: no verdict never becomes a pass; it is asked for once more, and the reason kept."""
        office = Office(tmp_path, {"review": act})
        office.task()
        office.turn("coder-1")
        before = office.head()

        office.turn("reviewer-1")

        assert office.status() is not Status.MERGED
        assert office.head() == before
        assert len(list((office.home / "runs").glob("*.review"))) == 2
        assert said in str(office.state.task("t1").history[-1].facts)

    @pytest.mark.parametrize(
        ("act", "said"),
        [({}, "printed nothing"), ({"print": "\x00\x01"}, "plan"), ({"answer": DONE}, "implement step")],
        ids=["nothing", "garbage", "another role's"],
    )
    def test_a_planner_without_a_plan_asks_people(
        self, tmp_path: Path, act: dict[str, Any], said: str
    ) -> None:
        office = Office(tmp_path, {"plan": act})

        office.turns("planner-1")

        assert office.state.tasks == {}
        assert said in office.state.goal.questions[0]
