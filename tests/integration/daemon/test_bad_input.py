"""What people and agents get wrong: one sentence each, nothing lost, and the worker takes its next turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.turn import AfterTurn
from liza.domain.model import Status
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

DONE: Final = {"status": "done", "summary": "Change it"}


class TestTheRepository:
    def test_a_detached_head_is_nobodys_business(self, tmp_path: Path) -> None:
        """Work begins at the integration branch, and the user's HEAD stays where it is."""
        team = ScriptedTeam(tmp_path)
        team.user.git("checkout", "--quiet", "--detach")
        before = team.user.git("rev-parse", "HEAD")
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert (team.user.directory / ".git" / "HEAD").read_text().strip() == before

    def test_a_commit_that_people_put_on_the_branch_meanwhile_is_merged_with(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        theirs = people_commit(team, "-p", team.head())
        team.user.git("update-ref", team.ref, theirs)

        team.turns("reviewer-1")

        assert team.status() is Status.MERGED
        assert team.user.git("rev-parse", f"{team.ref}^1") == theirs
        assert team.merged("t1.txt") == "t1"

    def test_a_branch_that_was_replaced_by_another_history_pauses_everybody(self, tmp_path: Path) -> None:
        """It has diverged: nothing is guessed, the sentence is in PAUSE, and nothing of it is changed."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        work, before = team.user.git("rev-parse", "refs/heads/task/t1"), team.head()
        strange = people_commit(team)
        team.user.git("update-ref", team.ref, strange)

        team.turn("reviewer-1")

        assert team.status() is Status.APPROVED
        assert "unrelated histories" in (team.home / "PAUSE").read_text()
        assert team.head() == strange
        assert team.user.reachable(work)
        (team.home / "PAUSE").unlink()
        team.user.git("update-ref", team.ref, before)
        team.turns("reviewer-1")
        assert team.status() is Status.MERGED


def people_commit(team: ScriptedTeam, *words: str) -> str:
    return team.user.git("commit-tree", *words, "-m", "by hand", "HEAD^{tree}")


class TestTheCommand:
    def test_one_that_is_not_executable_blocks_the_task_and_says_how_to_mend_it(self, tmp_path: Path) -> None:
        agent = tmp_path / "agent.sh"
        agent.write_text("#!/bin/sh\n")
        team = ScriptedTeam(tmp_path, agents={"default": {"command": [str(agent)]}})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert task.status is Status.BLOCKED
        assert task.blocked_reason == f"'{agent}' is not executable; `chmod +x` makes a script so"
        assert team.turn("coder-1") is AfterTurn.WAIT

    @pytest.mark.parametrize(
        "script",
        [
            pytest.param("yes | head -c 200000000", id="200 MB", marks=pytest.mark.torture),
            pytest.param("head -c 2000000 /dev/urandom", id="binary"),
        ],
    )
    def test_one_that_floods_gives_no_answer_and_costs_its_coder_the_task(
        self, tmp_path: Path, script: str
    ) -> None:
        command = ["sh", "-c", f"cat > /dev/null; {script}"]
        team = ScriptedTeam(tmp_path, agents={"default": {"command": command}}, workers={"coder": 2})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.failed_by) == (Status.IDLE, ("coder-1",))
        assert "the output was too long to keep" in task.history[-1].facts["reason"]
        assert (
            sum(path.stat().st_size for path in team.home.rglob("*") if path.is_file()) < 100_000_000
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
        team = ScriptedTeam(tmp_path, {"review": act})
        team.task()
        team.turn("coder-1")
        before = team.head()

        team.turn("reviewer-1")

        assert team.status() is not Status.MERGED
        assert team.head() == before
        assert len(list((team.home / "runs").glob("*.review"))) == 2
        assert said in str(team.state.task("t1").history[-1].facts)

    @pytest.mark.parametrize(
        ("act", "said"),
        [({}, "printed nothing"), ({"print": "\x00\x01"}, "plan"), ({"answer": DONE}, "implement step")],
        ids=["nothing", "garbage", "another role's"],
    )
    def test_a_planner_without_a_plan_asks_people(
        self, tmp_path: Path, act: dict[str, Any], said: str
    ) -> None:
        team = ScriptedTeam(tmp_path, {"plan": act})

        team.turns("planner-1")

        assert team.state.tasks == {}
        assert said in team.state.goal.questions[0]
