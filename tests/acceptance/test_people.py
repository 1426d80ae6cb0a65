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
