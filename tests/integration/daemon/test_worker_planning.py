"""Planners at work: when they think, what comes of it, and that they never think twice about the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from liza.daemon.turn import AfterTurn
from liza.domain.changes import SUPERVISOR
from liza.domain.lifecycle import Block
from liza.domain.model import GoalStatus, Status
from liza.domain.record import utc_now
from liza.workflow.transition import apply
from tests.support.scripted_agent import plan, planned
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


def runs(team: ScriptedTeam, step: str) -> int:
    return len(list((team.home / "runs").glob(f"*.{step}")))


def blocked(team: ScriptedTeam, name: str = "t1") -> None:
    event = Block(reason="the colour is not known", questions=("Which colour?",))
    team.board.update(apply(event, to=name, by=SUPERVISOR, at=utc_now()))


class TestPlanning:
    def test_a_goal_becomes_tasks_and_then_complete(self, tmp_path: Path) -> None:
        """From nothing but a goal to a merged branch."""
        team = ScriptedTeam(tmp_path, {"plan": plan(planned("t1"), planned("t2", depends_on=["t1"]))})

        team.turns("planner-1", "coder-1", "reviewer-1")

        assert [team.status(name) for name in ("t1", "t2")] == [Status.MERGED, Status.MERGED]
        assert team.state.goal.status is GoalStatus.COMPLETE
        assert runs(team, "plan") == 1

    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            (plan(planned("t1", depends_on=["t2"]), planned("t2", depends_on=["t1"])), "waits for"),
            (plan(planned("t1"), planned("t1")), "twice"),
            (plan(planned("../t1")), "not an id"),
            (plan(planned("budget")), "take 'budget' for something else"),
            (plan({"id": "t1", "description": "do it", "done_when": []}), "done_when"),
            (plan(planned("t1", depends_on=["t9"])), "neither in the plan nor on the board"),
            (plan(planned("t1", description="Add tests for the parser")), "only adds tests"),
            (plan(), "exactly one"),
            (plan(planned("t1", done_when=["it works very well"])), "no test can show"),
            (plan(planned("t1", spec_ref="specs/none.md#part")), "names no file"),
            (plan(planned("t1", spec_ref="../outside.md")), "names no file"),
            (plan(planned("t1", scope={"in": ["../../home"]})), "leads out of the repository"),
            (plan(planned("t1", scope={"in": ["a"], "out": ["a"]})), "both in and out"),
            (plan(*(planned(f"t{number}") for number in range(500))), "500 tasks is more than 50"),
            (plan(planned("t1", scope={})), "no path that may be touched"),
        ],
    )
    def test_a_bad_plan_goes_back_once_with_the_reasons(
        self, tmp_path: Path, bad: dict[str, Any], why: str
    ) -> None:
        """The second plan counts; the agent has seen what was wrong with the first."""
        team = ScriptedTeam(tmp_path, {"plan": [bad, plan(planned("good"))]})

        team.turns("planner-1")

        assert list(team.state.tasks) == ["good"]
        assert any(why in path.read_text() for path in (team.home / "runs").glob("*.plan/prompt.md"))

    def test_a_plan_without_scope_is_doubted_once_and_then_taken(self, tmp_path: Path) -> None:
        """What an agent announces in its checkpoint bounds such a task."""
        team = ScriptedTeam(tmp_path, {"plan": plan(planned("t1", scope={}))})

        team.turns("planner-1")

        assert list(team.state.tasks) == ["t1"]
        assert runs(team, "plan") == 2

    def test_a_spec_that_is_not_committed_yet_exists(self, tmp_path: Path) -> None:
        """People write the spec and start; it need not be on the integration branch."""
        team = ScriptedTeam(tmp_path, {"plan": plan(planned("t1", spec_ref="new.md#part one"))})
        (team.home.parent / "new.md").write_text("# part one\n")

        team.turns("planner-1")

        assert team.state.task("t1").spec_ref == "new.md#part one"
        assert runs(team, "plan") == 1

    def test_two_bad_plans_ask_people_and_wait_for_a_note(self, tmp_path: Path) -> None:
        """Nothing loops: the question is on the board, and only a note starts the planner again."""
        team = ScriptedTeam(tmp_path, {"plan": [plan(), plan(), plan(planned("t1"))]})

        team.turns("planner-1")
        assert runs(team, "plan") == 2
        assert "no usable answer" in team.state.goal.questions[0]
        assert team.state.anomalies["anomaly-1"].type == "retry_loop"

        team.note("just do t1")
        team.turns("planner-1")
        assert list(team.state.tasks) == ["t1"]
        assert team.state.goal.questions == ()
        assert team.state.human_notes["note-1"].processed_by == "planner-1"

    def test_questions_instead_of_a_plan_are_told_and_answered(self, tmp_path: Path) -> None:
        """A goal that is not clear waits for a person, without another run."""
        team = ScriptedTeam(
            tmp_path, {"plan": [{"answer": {"questions": ["In which language?"]}}, plan(planned("t1"))]}
        )

        team.turns("planner-1")
        team.turns("planner-1")
        assert (runs(team, "plan"), team.state.goal.questions) == (1, ("In which language?",))
        team.note("in French")
        team.turns("planner-1")

        assert list(team.state.tasks) == ["t1"]


class TestMoreWork:
    @pytest.mark.parametrize(
        ("answers", "asks"),
        [
            ([{"answer": {"questions": ["Which blue?"]}}], "Which blue?"),
            ([plan(planned("t1")), plan(planned("t1"))], "no usable answer (the id t1 is taken"),
        ],
    )
    def test_a_note_that_cannot_be_planned_is_asked_about(
        self, tmp_path: Path, answers: list[dict[str, Any]], asks: str
    ) -> None:
        """What people want beside the plan is not dropped: the goal waits until they answered."""
        team = ScriptedTeam(tmp_path, {"plan": [*answers, plan(planned("t2"))]})
        team.task()
        team.turns("coder-1", "reviewer-1")
        team.note("and make it blue")

        team.turns("planner-1")

        (question,) = team.state.goal.questions
        assert asks in question
        assert team.state.goal.completed is None
        Shell(team.user.directory).ok("answer", "plan", "navy")
        team.turns("planner-1", "coder-1", "reviewer-1")
        assert team.status("t2") is Status.MERGED
        assert team.state.goal.status is GoalStatus.COMPLETE

    def test_a_note_that_asks_for_nothing_adds_nothing(self, tmp_path: Path) -> None:
        """As the first answer it would be no plan."""
        nothing = {"answer": {"nothing_to_add": "it is a compliment"}}
        team = ScriptedTeam(tmp_path, {"plan": [nothing, plan(planned("t1")), nothing]})
        team.turns("planner-1")
        assert (runs(team, "plan"), list(team.state.tasks)) == (2, ["t1"])
        team.note("well done")

        team.turns("planner-1", "coder-1", "reviewer-1")

        assert (runs(team, "plan"), list(team.state.tasks)) == (3, ["t1"])
        assert team.state.goal.status is GoalStatus.COMPLETE


class TestReplanning:
    @pytest.mark.parametrize(
        ("answer", "status", "tasks"),
        [
            ({"unblock": {"guidance": "blue"}}, Status.IDLE, ["t1"]),
            ({"abandon": {"reason": "not needed"}}, Status.ABANDONED, ["t1"]),
            ({"rescope_reason": "too big", "tasks": [planned("t2")]}, Status.SUPERSEDED, ["t1", "t2"]),
            ({"questions": ["Which blue?"]}, Status.BLOCKED, ["t1"]),
        ],
    )
    def test_a_blocked_task_is_decided_once(
        self, tmp_path: Path, answer: dict[str, Any], status: Status, tasks: list[str]
    ) -> None:
        """Whatever the planner decides, it does not think about it again on an unchanged board."""
        team = ScriptedTeam(tmp_path, {"replan": {"answer": answer}})
        team.task()
        blocked(team)

        team.turns("planner-1")

        assert (team.status(), list(team.state.tasks)) == (status, tasks)
        assert runs(team, "replan") == 1

    def test_a_note_lets_the_planner_think_again(self, tmp_path: Path) -> None:
        """A BLOCKED task that waits for people goes on when they say something about it."""
        team = ScriptedTeam(
            tmp_path,
            {
                "replan": [
                    {"answer": {"questions": ["Which blue?"]}},
                    {"answer": {"unblock": {"guidance": "navy"}}},
                ]
            },
        )
        team.task()
        blocked(team)
        team.turns("planner-1")
        team.note("navy", about="t1")

        team.turns("planner-1")

        assert (team.status(), team.state.task("t1").guidance) == (Status.IDLE, "navy")
        assert team.state.human_notes["note-1"].processed

    def test_urgent_work_becomes_a_task_once(self, tmp_path: Path) -> None:
        """What coders find as urgent is planned, and marked."""
        found = [{"description": "the door is open", "urgency": "immediate"}]
        done = {"status": "done", "summary": "Add t1", "discovered": found}
        team = ScriptedTeam(
            tmp_path,
            {"implement t1": {"write": {"t1.txt": "1"}, "answer": done}, "plan": plan(planned("door"))},
        )
        team.task()
        team.turn("coder-1")

        team.turns("planner-1")

        assert team.state.discovered["discovery-1"].became_task == "door"
        assert runs(team, "plan") == 1


def test_two_planners_never_plan_the_same(tmp_path: Path) -> None:
    """A plan has no task to hold a lease on, so planners take turns."""
    team = ScriptedTeam(tmp_path)
    started, go = str(team.outside / "note"), team.outside / "go"
    team.script({"plan": {"note": started, "until": str(go), **plan(planned("t1"))}})

    with team.process("planner-1"):
        team.noted()
        assert team.turn("planner-2") is AfterTurn.WAIT
        go.touch()
        team.until(lambda state: "t1" in state.tasks)

    assert team.turn("planner-2") is AfterTurn.WAIT
    assert runs(team, "plan") == 1
