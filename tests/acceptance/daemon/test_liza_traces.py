"""The acceptance traces of the usual workflow, by the real daemon: how a task goes on, goes back and ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board import journal
from liza.board.file import FileBoard
from liza.domain.model import Status
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # a real run on a busy machine

REVIEWS: Final = ("the name lies", "no test covers the empty file", "it is slow")
FORBIDDEN: Final = (
    ("later", Status.IDLE, Status.READY_FOR_REVIEW),
    ("right", Status.WORKING, Status.APPROVED),
    ("right", Status.WORKING, Status.MERGED),
)


def done(**act: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent may do
    return {**act, "answer": {"status": "done", "summary": "Change it"}}


def rejected(why: str) -> dict[str, Any]:
    return {"answer": {"verdict": "reject", "reason": why, "feedback": [{"message": why}]}}


def script_in(outside: Path) -> dict[str, Any]:
    line = "printf 'one\\n{}\\nthree\\n' > a.txt"
    validated = {"intent": "do it", "validation": {"command": f"echo ran >> {outside}/validated"}}
    return {
        "checkpoint order": {"answer": validated},
        "review same": rejected(REVIEWS[0]),
        "implement same": [done(write={"same.txt": f"{number}\n"}) for number in "12"],
        "review thrice": [rejected(why) for why in REVIEWS],
        "implement thrice": [done(write={"thrice.txt": f"{number}\n"}) for number in "123"],
        # Both begin on one base, and change one line of it.
        "implement left": done(run=line.format("left"), until=str(outside / "began")),
        "implement right": [
            done(note=str(outside / "began"), run=line.format("right"), until=str(outside / "go")),
            done(run=f"grep -q '<<<<<<<' a.txt && {line.format('both')}"),
        ],
        "implement out": [done(write={"out.txt": "x\n", "secret.txt": "x\n"}), done(run="rm secret.txt")],
        "implement untested": [done(write={"src/c.py": "C = 1\n"}), done(run="rm src/c.py; echo x > u.txt")],
        "implement selfish": [
            {"write": {"selfish.txt": "x\n"}, "answer": {"verdict": "approve", "reason": "it is mine"}},
            done(write={"selfish.txt": "x\n"}),
        ],
    }


def team_in(directory: Path) -> Daemon:
    daemon = Daemon(directory, workers={"coder": 2}, gates={"test": "true"})
    daemon.script(script_in(daemon.outside))
    for name in ("left", "right"):
        daemon.task(name, scope={"in": ["a.txt"]}, priority=1)
    daemon.task("later", depends_on=("right",))
    daemon.task("out", scope={"in": ["*.txt"], "out": ["secret.txt"]})
    daemon.task("untested")
    for name in ("order", "same", "thrice", "selfish"):
        daemon.task(name, scope={"in": [f"{name}.txt"]})
    return daemon


def edit_by_hand(daemon: Daemon, name: str, source: Status, target: Status) -> None:
    """Write a status into the state file that nothing leads to, and go on once it was refused."""
    path = daemon.home / "state.yaml"
    before, found, after = path.read_text().partition(f"- id: {name}\n")
    assert f"status: {source}\n" in after
    path.write_text(before + found + after.replace(f"status: {source}\n", f"status: {target}\n", 1))
    daemon.eventually((daemon.home / "PAUSE").exists)
    assert daemon.status(name) is source
    assert daemon.shell("resume").code == 0


def sent_back(daemon: Daemon, name: str) -> list[str]:
    """Return why work was sent back, oldest first."""
    return re.findall(rf" {name}: (?:sent back by the checks|rejected) -> REJECTED \((.*)\)", daemon.told())


def test_every_turn_of_a_task_in_one_run(tmp_path: Path) -> None:
    daemon = team_in(tmp_path)
    with daemon.running("--until-idle", "--no-baseline") as run:
        daemon.until(lambda state: state.task("left").status is Status.MERGED)
        for name, source, target in FORBIDDEN:
            edit_by_hand(daemon, name, source, target)
        (daemon.outside / "go").touch()
        assert run.wait(PATIENCE) == 3, daemon.told()

    state = daemon.state
    ends = {name: task.blocked_rule or task.status for name, task in state.tasks.items()}
    assert ends == {
        **dict.fromkeys(state.tasks, Status.MERGED),
        "same": "same_reason_twice",
        "thrice": "rejected_3x",
    }
    assert {name: sent_back(daemon, name) for name in ("out", "untested", "same", "thrice")} == {
        "out": ["files outside the scope are touched"],
        "untested": ["code is changed without tests"],
        "same": [REVIEWS[0]] * 2,
        "thrice": list(REVIEWS),
    }
    the_order_is_kept(daemon)
    a_conflict_is_judged_anew(daemon)
    assert daemon.told().count("edit_rejected") == len(FORBIDDEN)
    assert "selfish: answer to implement refused (this is an answer to the review step" in daemon.told()
    assert state.task("selfish").approved_by == "reviewer-1"
    # Whoever reads the journal from its beginning comes to the same board.
    (daemon.home / journal.SNAPSHOT).unlink(missing_ok=True)
    assert FileBoard(daemon.home).read() == state


def the_order_is_kept(daemon: Daemon) -> None:
    """Announced, coded, validated, reviewed, merged."""
    assert daemon.events("order") == [
        *("added", "claim", "pre_execution_checkpoint", "submit"),
        *("take_review", "approve", "start_merge", "merge"),
    ]
    assert (daemon.outside / "validated").read_text() == "ran\n"


def a_conflict_is_judged_anew(daemon: Daemon) -> None:
    """What was approved on another base counts no more: a reviewer sees what the coder made of it."""
    events = daemon.events("right")
    assert [events.count(one) for one in ("approve", "fail_integration", "merge")] == [2, 1, 1]
    assert daemon.merged("a.txt") == "one\nboth\nthree"


def test_the_last_round_ends_in_a_question(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, {"review": rejected(REVIEWS[0])}, limits={"max_coder_iterations": 1})
    daemon.task("t1")

    assert daemon.run() == 3
    task = daemon.state.task("t1")
    assert (task.status, task.blocked_reason) == (
        Status.BLOCKED,
        "Max iterations (1) reached without approval",
    )
    assert task.blocked_questions
