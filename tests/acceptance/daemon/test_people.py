"""What waits for people, what does not, and what becomes of what they say: under the real daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.model import GoalStatus, Status
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # real runs, one after the other, on a busy machine

REJECTS: Final = {
    "answer": {"verdict": "reject", "reason": "the name lies", "feedback": [{"message": "rename it"}]}
}
UNSURE: Final = {
    "answer": {
        "status": "blocked",
        "summary": "-",
        "blocked_reason": "the name is not said",
        "blocked_questions": ["How shall it be called?"],
        "anomalies": [{"type": "spec_ambiguity", "spec_ref": "goal", "question": "greet or hello"}],
        "discovered": [{"description": "the cellar door squeaks"}],
    }
}
UNBLOCKS: Final = {"answer": {"unblock": {"guidance": "try it once more"}}}


class TestUnblock:
    """A planner lets a task go on after a limit, with fresh rounds, once; then people are asked."""

    def test_a_limit_that_comes_back_is_for_people(self, tmp_path: Path) -> None:
        script: dict[str, Any] = {"replan": UNBLOCKS, "review t1": REJECTS}
        daemon = Daemon(tmp_path, script, workers={"coder": 2}, limits={"max_same_reason": 1})
        daemon.task("t1")
        daemon.task("t2", scope={"in": ["elsewhere.txt"]})  # what its coder writes, a gate rejects

        assert daemon.run() == 3

        t1, t2 = daemon.state.task("t1"), daemon.state.task("t2")
        assert (t1.status, t1.blocked_rule, t1.fresh_starts) == (Status.BLOCKED, "same_reason_twice", 1)
        assert (t2.status, t2.blocked_rule, t2.fresh_starts) == (Status.BLOCKED, "same_reason_twice", 1)
        assert daemon.events("t1").count("reject") == 2
        assert daemon.events("t2").count("revise") == 2
        assert daemon.runs("replan") == 2
        told = daemon.shell.ok("explain", "t1")
        assert "the planner has let it go on 1 time already" in told
        assert "who    you" in told

        # A person's answer is a fresh start, and the planner may help once more after it.
        daemon.shell.ok("answer", "t1", "It is called greet")
        assert (daemon.state.task("t1").unblocks, daemon.state.task("t1").fresh_starts) == (0, 0)


OURS: Final = """name: ours
says: an adviser and a reviewer speak, and a person decides
start: CODE
phases:
  CODE:
    worker: coder
    max_iterations: max_coder_iterations
    gates:
      - {id: checkpoint, kind: artifact, at: before, checkpoint: required}
      - {id: diff, kind: artifact, diff: required}
    next: REVIEW
  REVIEW:
    gates:
      - {id: advice, kind: agent, role: reviewer, mode: advisory}
      - {id: review, kind: agent, role: reviewer, taints_on_override: true}
      - {id: approval, kind: human, asks: risk}
    edges: {revise: CODE}
    next: INTEGRATE
  INTEGRATE:
    gates: [{id: merge, kind: effect, effect: merge}]
    edges: {revise: CODE}
    next: DONE
rules: [rejected_3x]
"""


def planned(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a task may have
    done = [f"{name}.txt is there"]
    return {
        "id": name,
        "description": f"do {name}",
        "done_when": done,
        "scope": {"in": [f"{name}.txt"]},
        **fields,
    }


class TestTalking:
    """What people say reaches whom it is for, and what was asked is closed once it is answered."""

    def test_questions_notes_and_answers(self, tmp_path: Path) -> None:
        daemon = Daemon(tmp_path)
        begun, go = str(daemon.outside / "begun"), daemon.outside / "go"
        done = {"status": "done", "summary": "Add it"}
        plan = {"tasks": [planned("t1"), planned("t2", depends_on=["t1"])]}
        script: dict[str, Any] = {
            "plan": [{"answer": {"questions": ["In which language?"]}}, {"answer": plan}],
            "implement t1": {"note": begun, "until": str(go), "write": {"t1.txt": "x"}, "answer": done},
            "implement t2": [UNSURE, {"write": {"t2.txt": "x"}, "answer": done}],
            "replan": {"answer": {"questions": ["What now with either?"]}},
        }
        daemon.script(script)

        assert daemon.run() == 3  # nobody but people can go on: the planner asks
        self.answer_the_plan(daemon)
        with daemon.running() as run:
            daemon.noted("begun")
            daemon.shell.ok("note", "Mind the accents", "--for", "t1")
            go.write_text("")
            daemon.until(lambda state: "t2" in state.tasks and state.tasks["t2"].asked is not None)
            self.both_questions_are_shown(daemon)
            # That answers the one open question, though the planner asks the same again.
            daemon.shell.ok("note", "Call it salut")
            assert run.wait(PATIENCE) == 0
        self.all_is_delivered(daemon)

    def answer_the_plan(self, daemon: Daemon) -> None:
        status = daemon.shell.ok("status")
        assert "asks    In which language?" in status
        assert 'then    liza answer plan "…"' in status
        assert "In which language?" in daemon.shell.ok("explain")
        assert "In which language?" in (daemon.home / "alerts.log").read_text()
        daemon.shell.ok("answer", "plan", "In French")
        assert daemon.state.anomalies["anomaly-1"].processed_by == "human"
        assert "the plan asks nothing" in daemon.shell("answer", "plan", "again").err

    def both_questions_are_shown(self, daemon: Daemon) -> None:
        status = daemon.shell.ok("status")
        assert "asks    How shall it be called?" in status
        assert "planner What now with either?" in status
        for words in (("explain", "t2"), ("explain",)):
            told = daemon.shell.ok(*words)
            assert "How shall it be called?" in told
            assert "What now with either?" in told

    def all_is_delivered(self, daemon: Daemon) -> None:
        note = next(one for one in daemon.state.human_notes.values() if one.about == "t1")
        assert note.processed_by == "reviewer-1"
        assert "Mind the accents" in daemon.prompts("review")[0]
        assert "Mind the accents" not in daemon.prompts("implement")[0]
        first = daemon.prompts("replan")[0]
        assert "greet or hello" in first
        assert "the cellar door squeaks (deferred, new, by coder-1)" in first
        assert "Call it salut" in daemon.prompts("implement")[-1]
        assert [one.id for one in daemon.state.anomalies.values() if one.processed is None] == []
        alerts = (daemon.home / "alerts.log").read_text()
        assert "How shall it be called?; What now with either?" in alerts


class TestApproval:
    """Whoever decides sees what was said before, and what was overruled stays visible to the end."""

    def test_verdicts_and_taints_reach_the_person_and_the_merge(self, tmp_path: Path) -> None:
        approves = {"answer": {"verdict": "approve", "reason": "it is there", "confidence": 9}}
        meddles = {"write": {"a.txt": "mine\n"}, **approves}
        script: dict[str, Any] = {
            "review t1": [REJECTS, approves],
            # Its first verdict does not count, and its second try begins with a fresh checkout.
            "review t2": [meddles, approves],
            "implement t3": UNSURE,
            "replan t3": {"answer": {"abandon": {"reason": "nobody needs it"}}},
        }
        daemon = Daemon(tmp_path, script, workflow="flows/ours.yaml")
        daemon.user.write("flows/ours.yaml", OURS)
        for name, needs in {"t1": [], "t2": [], "t3": [], "t4": ["t3"]}.items():
            daemon.task(name, depends_on=needs)

        assert daemon.run() == 3
        assert [daemon.status(f"t{number}") for number in (1, 2, 3, 4)] == [
            Status.AWAITING_APPROVAL,
            Status.AWAITING_APPROVAL,
            Status.ABANDONED,
            Status.BLOCKED,
        ]
        self.the_person_sees_it(daemon)
        daemon.shell.ok("task", "accept", "t1")
        daemon.shell.ok("task", "accept", "t2")
        daemon.shell.ok("answer", "t4", "Go on without it")
        assert daemon.state.task("t4").depends_on == ()
        with daemon.running("--until-idle"):
            daemon.until(lambda state: state.tasks["t4"].status is Status.AWAITING_APPROVAL)
            daemon.until(lambda state: state.tasks["t1"].status is Status.MERGED)
        told = daemon.user.git("log", "--merges", "--format=%B", daemon.ref)
        assert "Liza-Taints: overrode_reviewer (accepted by human)" in told
        assert "review: reviewer-1" in told

    def the_person_sees_it(self, daemon: Daemon) -> None:
        status = daemon.shell.ok("status")
        assert "asks    t1: This is risky; do you take it on?" in status
        assert "reviewer-1 said revise (advice): the name lies" in status
        assert "reviewer-1 said pass (review, 9 of 10 sure): it is there" in status
        assert "reviewer-1 said pass (review, 9 of 10 sure): it is there" in daemon.shell.ok("explain", "t1")
        assert [taint.mark for taint in daemon.state.task("t1").taints] == ["overrode_reviewer"]
        assert daemon.state.task("t2").taints == ()
        assert "Should it go on without t3" in daemon.shell.ok("explain", "t4")
        spent = daemon.state.accounts["t3"].spent.runs
        assert spent == daemon.runs("replan") - 1 + 2  # what was thought about it is what it cost


class TestCheckpoint:
    """A CHECKPOINT lets everybody end their turn, gives one summary, and nothing is given back too early."""

    def test_a_turn_ends_before_all_wait(self, tmp_path: Path) -> None:
        daemon = Daemon(tmp_path, limits={"kept_worktrees": 1})
        begun, go = str(daemon.outside / "begun"), daemon.outside / "go"
        done = {"status": "done", "summary": "Add it"}
        waits = {"note": begun, "until": str(go), "write": {"t1.txt": "x"}, "answer": done}
        daemon.script({"implement t1": waits, "plan": {"answer": {"nothing_to_add": "it is planned"}}})
        daemon.task("t1")
        daemon.task("t2", depends_on=["t1"])
        with daemon.running() as run:
            daemon.noted("begun")
            switch, summaries = daemon.home / "CHECKPOINT", daemon.home / "checkpoints"
            switch.touch()
            daemon.eventually(lambda: "coder-1 will end the turn that was begun" in daemon.told())
            assert not summaries.exists()
            go.write_text("")
            daemon.until(lambda state: state.tasks["t1"].status is Status.READY_FOR_REVIEW)
            daemon.eventually(lambda: "the summary of this halt" in daemon.told())
            # `touch` sets the time of a file after it made it: that is no second throw.
            later = switch.stat().st_mtime + 0.5
            os.utime(switch, (later, later))
            daemon.shell.ok("note", "Look again")
            daemon.until(lambda state: len(state.human_notes) == 1)
            assert daemon.state.task("t1").lease is None  # nobody took it for review
            assert len(list(summaries.iterdir())) == 1
            daemon.shell.ok("resume")
            assert run.wait(PATIENCE) == 0
        assert next(summaries.iterdir()).read_text().startswith("# Halt at CHECKPOINT,")
        area = daemon.user.directory / ".worktrees"
        assert sorted(path.name for path in area.iterdir() if not path.name.startswith(".")) == ["t2"]
        assert daemon.user.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/task") == "t1\nt2"


class TestGoals:
    """A board goes on with the next goal, which has a title, a spec, a plan and a report of its own."""

    def test_a_second_goal_begins_when_the_first_is_complete(self, tmp_path: Path) -> None:
        plans = [{"answer": {"tasks": [planned(name)]}} for name in ("t1", "t2", "t3")]
        daemon = Daemon(tmp_path, {"plan": plans})
        daemon.user.write("specs/second.md", "It is blue.\n")
        daemon.shell.ok("goal", "Paint it", "--spec", "specs/second.md")
        assert "is not a file" in daemon.shell("goal", "Paint it", "--spec", "specs/none.md").err

        assert daemon.run() == 0
        goal = daemon.state.goal
        assert (goal.number, goal.description, goal.status) == (2, "Paint it", GoalStatus.COMPLETE)
        assert [daemon.status(name) for name in ("t1", "t2")] == [Status.MERGED] * 2
        first, second = daemon.prompts("plan")
        assert "Paint it" not in first
        assert "Paint it" in second
        assert "It is blue." in second
        report = daemon.home / str(goal.past[0].report)
        assert "Goal 1: make files" in report.read_text()
        assert "goal 2 begins: Paint it" in daemon.told()

        # Also after all was complete.
        daemon.shell.ok("goal", "Sell it")
        assert daemon.run() == 0
        listed = daemon.shell.ok("goal").splitlines()
        assert [line.split()[:2] for line in listed] == [[number, "COMPLETE"] for number in "123"]
        assert "Paint it, spec specs/second.md, report report/" in listed[1]
        assert daemon.status("t3") is Status.MERGED
        # What was submitted with the work is not counted again when it is approved.
        assert daemon.state.sprint.metrics.gates["diff"] == {"pass": 1}
