"""What waits for people, what does not, and what becomes of what they say: under the real daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from liza.model import Status
from tests.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path

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
        script: dict[str, Any] = {
            "replan": UNBLOCKS,
            "review t1": REJECTS,
            # Its question is answered by the planner three times, and by people after that.
            "implement t2": {
                "answer": {
                    "status": "blocked",
                    "summary": "-",
                    "blocked_reason": "no colour",
                    "blocked_questions": ["Which colour?"],
                }
            },
        }
        daemon = Daemon(tmp_path, script, workers={"coder": 2})
        daemon.task("t1")
        daemon.task("t2")
        daemon.task("t3", scope={"in": ["elsewhere.txt"]})  # what its coder writes, a gate rejects

        assert daemon.run() == 3

        t1, t2 = daemon.state.task("t1"), daemon.state.task("t2")
        assert (t1.status, t1.blocked_rule, t1.fresh_starts) == (Status.BLOCKED, "same_reason_twice", 1)
        assert daemon.events("t1").count("reject") == 4  # two rounds, and two fresh ones
        assert (t2.status, t2.unblocks, t2.planner_questions) == (Status.BLOCKED, 3, ())
        t3 = daemon.state.task("t3")
        assert (t3.status, t3.blocked_rule) == (Status.BLOCKED, "same_reason_twice")
        assert daemon.events("t3").count("revise") == 4
        assert daemon.runs("replan") == 1 + 3 + 1
        told = daemon.shell.ok("explain", "t1")
        assert "the planner has let it go on 1 time already" in told
        assert "who    you" in told

        # A person's answer is a fresh start, and the planner may help once more after it.
        daemon.shell.ok("answer", "t1", "It is called greet")
        assert (daemon.state.task("t1").unblocks, daemon.state.task("t1").fresh_starts) == (0, 0)


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
        begun, go = str(daemon.yard / "begun"), daemon.yard / "go"
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
            assert run.wait(60) == 0
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
