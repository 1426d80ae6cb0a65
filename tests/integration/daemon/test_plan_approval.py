"""A plan that somebody has to say yes to before anybody works on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.cli import actions
from liza.cli.views.explain import explanation_of, observed_run_context
from liza.cli.views.questions import QuestionKind, open_questions
from liza.daemon.policy.progress import only_people
from liza.daemon.project import create_board
from liza.domain.changes import ASSISTANT, HUMAN
from liza.domain.model import GoalStatus, Status
from liza.domain.record import utc_now
from liza.errors import Refused, UsageError
from tests.support.repos import Home
from tests.support.scripted_agent import plan, planned
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = ("planner-1", "coder-1", "reviewer-1")
HUMAN_SAYS: Final = {"plan": {"approval": "human"}}
REVIEWER_SAYS: Final = {"plan": {"approval": "reviewer"}}


def plan_of(*names: str) -> dict[str, Any]:
    return plan(*map(planned, names))


def rejected(reason: str = "too coarse") -> dict[str, Any]:
    return {"answer": {"verdict": "reject", "reason": reason, "feedback": [{"message": "split t1"}]}}


def statuses(team: ScriptedTeam) -> dict[str, str]:
    return {name: str(task.status) for name, task in team.state.tasks.items()}


def prompts(team: ScriptedTeam, step: str) -> list[str]:
    folders = sorted((team.home / "runs").glob(f"*.{step}"), key=lambda path: path.stat().st_mtime)
    return [(folder / "prompt.md").read_text() for folder in folders]


class TestPeople:
    """`plan: {approval: human}`."""

    def test_tasks_stay_drafts_until_a_person_says_yes(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, {"plan": plan_of("t1", "t2")}, **HUMAN_SAYS)
        team.turns(*ALL)
        shell = Shell(team.user.directory)

        assert statuses(team) == {"t1": "DRAFT", "t2": "DRAFT"}
        (question,) = open_questions(team.state)
        assert (question.kind, question.command) == (QuestionKind.PROPOSAL, "liza plan accept")
        assert [wait.then for wait in only_people(team.state, utc_now())] == ["liza plan accept"]
        assert "Next: `liza plan accept; liza run`" in shell.ok("status")
        told = explanation_of("t1", observed_run_context(team.board, team.state), utc_now())
        assert told.told(utc_now()).count("liza plan accept") == 1
        assert "done when: t2.txt is there" in shell.ok("plan", "show")

        assert "Nobody works now; `liza run` goes on." in shell.ok("plan", "accept")
        team.turns(*ALL)

        assert statuses(team) == {"t1": "MERGED", "t2": "MERGED"}
        assert team.state.goal.status is GoalStatus.COMPLETE

    def test_a_plan_that_is_sent_back_is_made_anew_with_the_comment(self, tmp_path: Path) -> None:
        script = {"plan": [plan_of("t1"), plan_of("t2", "t3")]}
        team = ScriptedTeam(tmp_path, script, **HUMAN_SAYS)
        team.turns(*ALL)
        shell = Shell(team.user.directory)

        shell.ok("plan", "reject", "two tasks, please")
        assert not open_questions(team.state)
        assert "was sent back (two tasks, please)" in shell.ok("plan", "show")
        assert "was sent back" in shell.ok("explain", "t1")
        team.turns(*ALL)

        assert statuses(team) == {"t1": "SUPERSEDED", "t2": "DRAFT", "t3": "DRAFT"}
        first, second = prompts(team, "plan")
        assert ("two tasks, please" in first, "two tasks, please" in second) == (False, True)
        assert "t1 (code): do t1" in second
        shown = json.loads(shell.ok("plan", "show", "--json"))
        assert ([task["id"] for task in shown["tasks"]], shown["waits_for_you"]) == (["t2", "t3"], True)

        actions.accept(team.board, by=HUMAN, at=utc_now(), task="plan", reason="good")
        team.turns(*ALL)
        assert team.state.goal.status is GoalStatus.COMPLETE

    def test_a_plan_that_is_made_anew_may_keep_its_ids(self, tmp_path: Path) -> None:
        """To its planner it is the same plan: its tasks get a number, and depend on each other as said."""
        second = plan(planned("t1"), planned("t2", depends_on=["t1"]))
        team = ScriptedTeam(tmp_path, {"plan": [plan_of("t1"), second, second]}, **HUMAN_SAYS)
        team.turns(*ALL)
        shell = Shell(team.user.directory)

        for _ in range(2):
            shell.ok("plan", "reject", "smaller")
            team.turns(*ALL)

        old = dict.fromkeys(("t1", "t1-2", "t2"), "SUPERSEDED")
        assert statuses(team) == {**old, "t1-3": "DRAFT", "t2-2": "DRAFT"}
        assert team.state.task("t2-2").depends_on == ("t1-3",)
        assert len(prompts(team, "plan")) == 3

    def test_what_a_planner_asks_about_a_plan_that_is_accepted_after_all_is_asked_no_longer(
        self, tmp_path: Path
    ) -> None:
        team = ScriptedTeam(
            tmp_path, {"plan": [plan_of("t1"), {"answer": {"questions": ["Why?"]}}]}, **HUMAN_SAYS
        )
        team.turns(*ALL)
        shell = Shell(team.user.directory)
        shell.ok("plan", "reject", "smaller")
        team.turns(*ALL)
        assert team.state.goal.questions == ("Why?",)

        shell.ok("plan", "accept")
        team.turns(*ALL)

        goal = team.state.goal
        assert (list(goal.questions), goal.status) == ([], GoalStatus.COMPLETE)

    def test_a_planner_may_ask_and_may_not_leave_it_at_nothing(self, tmp_path: Path) -> None:
        answers = [
            plan_of("t1"),
            {"answer": {"nothing_to_add": "it is fine"}},
            {"answer": {"questions": ["Why?"]}},
            plan_of("t2"),
        ]
        team = ScriptedTeam(tmp_path, {"plan": answers}, **HUMAN_SAYS)
        team.turns(*ALL)
        actions.reject(team.board, by=HUMAN, at=utc_now(), task="plan", reason="no")
        team.turns(*ALL)

        assert (statuses(team), team.state.goal.questions) == ({"t1": "DRAFT"}, ("Why?",))
        assert "give all of its tasks anew" in prompts(team, "plan")[2]
        actions.answer(team.board, by=HUMAN, at=utc_now(), task="plan", text="because")
        team.turns(*ALL)
        assert statuses(team) == {"t1": "SUPERSEDED", "t2": "DRAFT"}

    def test_people_may_edit_the_board_instead(self, tmp_path: Path) -> None:
        script = {"plan": [plan_of("t1", "t2"), plan_of("t3")]}
        team = ScriptedTeam(tmp_path, script, **HUMAN_SAYS)
        team.turns(*ALL)
        page = team.home / "state.yaml"

        text = page.read_text().replace("description: do t1", "description: do the first")
        page.write_text(text.replace("status: DRAFT", "status: IDLE", 1))
        team.board.absorb()
        assert statuses(team) == {"t1": "IDLE", "t2": "DRAFT"}
        assert team.state.task("t1").description == "do the first"

        page.write_text(page.read_text().replace("goal:\n", "goal:\n  sent_back: not so\n", 1))
        team.board.absorb()
        team.turns(*ALL)
        assert statuses(team) == {"t1": "MERGED", "t2": "SUPERSEDED", "t3": "DRAFT"}

    def test_what_is_planned_again_waits_as_well(self, tmp_path: Path) -> None:
        block = {"answer": {"status": "blocked", "blocked_reason": "no", "blocked_questions": ["How?"]}}
        again = {"answer": {**plan_of("t2")["answer"], "rescope_reason": "smaller"}}
        script = {"plan": plan_of("t1"), "implement t1": block, "replan": again}
        team = ScriptedTeam(tmp_path, script, **HUMAN_SAYS)
        team.turns(*ALL)
        actions.accept(team.board, by=HUMAN, at=utc_now(), task="plan", reason="good")
        team.turns(*ALL)

        assert statuses(team) == {"t1": "SUPERSEDED", "t2": "DRAFT"}

    def test_a_draft_of_a_person_is_none_of_the_plan(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, **HUMAN_SAYS)
        team.task("mine", status=Status.DRAFT)

        with pytest.raises(Refused, match="there is no plan that waits for approval"):
            actions.accept(team.board, by=HUMAN, at=utc_now(), task="plan", reason="good")
        assert [one.command for one in open_questions(team.state)] == ["liza task ready mine"]

    def test_what_makes_no_sense_is_one_sentence(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, {"plan": plan_of("t1")}, **HUMAN_SAYS, assistant={"approvals": False})
        shell = Shell(team.user.directory)
        for words in (("plan", "accept"), ("plan", "reject", "no"), ("plan", "show")):
            done = shell(*words)
            assert (done.code, done.err.count("\n")) == (1, 1)
            assert "there is no plan that waits for approval" in done.err
        team.turns(*ALL)

        assert "the reason is empty" in shell("plan", "reject", " ").err
        with pytest.raises(Refused, match="an assistant may not decide this"):
            actions.accept(team.board, by=ASSISTANT, at=utc_now(), task="plan", reason="good")

    @pytest.mark.parametrize(("workflow", "source"), [("phased", "issues"), ("cycle", "goal")])
    def test_a_workflow_without_a_planner_refuses_it_with_its_line(
        self, tmp_path: Path, workflow: str, source: str
    ) -> None:
        home = Home(tmp_path / "home")
        (home.directory / "liza.yaml").write_text("limits: {agent_minutes: 5}\nplan:\n  approval: human\n")

        with pytest.raises(UsageError) as refused:
            create_board(home.directory, "goal", spec=None, workflow=workflow)

        assert "line 3" in str(refused.value)
        assert f"no planner makes tasks in the workflow {workflow}" in str(refused.value)
        assert source in str(refused.value)
        assert not (home.directory / ".liza").exists()


class TestReviewers:
    """`plan: {approval: reviewer}`."""

    def test_a_reviewer_sends_it_back_once_and_then_lets_it_pass(self, tmp_path: Path) -> None:
        yes = {"answer": {"verdict": "approve", "reason": "good"}}
        script = {"plan": [plan_of("t1"), plan_of("t2")], "review": [rejected(), yes]}
        team = ScriptedTeam(tmp_path, script, **REVIEWER_SAYS)
        team.turn("planner-1")

        assert not only_people(team.state, utc_now())
        assert not open_questions(team.state)
        team.turns(*ALL)

        assert statuses(team) == {"t1": "SUPERSEDED", "t2": "MERGED"}
        assert "too coarse\n- split t1" in prompts(team, "plan")[1]
        assert "t1 (code): do t1" in prompts(team, "review")[0]
        assert (team.state.goal.sent_back, team.state.goal.plan_returns) == (None, 0)
        assert team.events("t2")[:2] == ["added", "ready"]

    @pytest.mark.parametrize(
        ("said", "plans"),
        [
            (rejected(), 3),
            ({"answer": {"verdict": "block", "reason": "the goal contradicts itself"}}, 1),
            ({"print": "hm"}, 1),
        ],
    )
    def test_what_no_reviewer_settles_is_for_people(
        self, tmp_path: Path, said: dict[str, Any], plans: int
    ) -> None:
        script = {"plan": [plan_of(f"t{number}") for number in range(1, 9)], "review": said}
        team = ScriptedTeam(tmp_path, script, **REVIEWER_SAYS)
        team.turns(*ALL)

        assert len(prompts(team, "plan")) == plans
        (wait,) = only_people(team.state, utc_now())
        assert wait.then == "liza plan accept"
        assert statuses(team)[f"t{plans}"] == "DRAFT"

        actions.accept(team.board, by=HUMAN, at=utc_now(), task="plan", reason="good")
        assert (statuses(team)[f"t{plans}"], team.state.goal.plan_returns) == ("IDLE", 0)
