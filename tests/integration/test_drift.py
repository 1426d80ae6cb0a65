"""Without a cage: what an agent does outside of its worktree is seen, stops everybody, and is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from liza.anomalies import CheckoutDrift
from liza.model import Status
from tests.office import Office
from tests.repos import NOW

if TYPE_CHECKING:
    from pathlib import Path

DEEDS: Final = {
    "configure git": ("git config user.name mallory", "config was changed"),
    "plant a hook": (
        "mkdir ../../.git/hooks; echo x > ../../.git/hooks/pre-push",
        "pre-push was added",
    ),
    "plant attributes": ("echo '* filter=x' > ../../.git/info/attributes", "attributes was added"),
    "move the integration branch": (
        "git commit -q --allow-empty -m x; git update-ref refs/heads/liza/integration HEAD",
        "the branch liza/integration was changed",
    ),
    "move another task's branch": (
        "git commit -q --allow-empty -m x; git update-ref refs/heads/task/t2 HEAD",
        "the branch task/t2 was changed",
    ),
    "delete another task's branch": (
        "git update-ref -d refs/heads/task/t2",
        "the branch task/t2 was removed",
    ),
    "make a branch": ("git branch mine", "the branch mine was added"),
    "make a tag": ("git tag mine", "refs/tags/mine was added"),
    "write to another task's worktree": ("echo x > ../t2/a.txt", "a.txt in the worktree of t2 was touched"),
    "delete from another task's worktree": ("rm ../t2/src/b.py", "in the worktree of t2 was touched"),
    "delete what was saved": (
        "git update-ref -d refs/liza/salvage/t3/1",
        "refs/liza/salvage/t3/1 was removed",
    ),
    "commit in the checkout": (
        "git -C ../.. commit -q --allow-empty -m x",
        "the branch main was changed",
    ),
    "change the checkout": ("echo x > ../../a.txt", "a.txt in your checkout was changed"),
}


@pytest.mark.parametrize(("deed", "seen"), DEEDS.values(), ids=DEEDS)
def test_what_an_agent_moves_outside_is_seen(tmp_path: Path, deed: str, seen: str) -> None:
    """The task is blocked, everybody pauses, and the anomaly names what moved."""
    office = Office(tmp_path, {"implement t1": {"run": deed, "answer": {"status": "done", "summary": "x"}}})
    office.task("t1")
    office.task("t2", priority=-1)
    office.user.worktrees.prepare("t2", office.user.base, at=NOW)
    office.user.git("update-ref", "refs/liza/salvage/t3/1", office.user.base)

    office.turn("coder-1")

    assert office.status("t1") is Status.BLOCKED
    assert (office.home / "PAUSE").exists()
    (anomaly,) = office.state.anomalies.values()
    assert isinstance(anomaly.details, CheckoutDrift)
    assert any(seen in sentence for sentence in anomaly.details.moved), anomaly.details.moved


def test_what_others_of_ours_do_meanwhile_is_no_drift(tmp_path: Path) -> None:
    """A merge that the board announced, and a claim by another coder, may happen while an agent runs."""
    wait = {"note": str(tmp_path / "yard" / "begun"), "until": str(tmp_path / "go")}
    act = {**wait, "write": {"t2.txt": "x\n"}, "answer": {"status": "done", "summary": "x"}}
    office = Office(tmp_path, {"implement t2": act})
    office.task("t1")
    office.turn("coder-1")
    office.task("t2")
    with office.process("coder-2"):
        office.noted("begun")
        office.turn("reviewer-1")
        office.task("t3")
        office.turn("coder-1")
        (tmp_path / "go").touch()
        office.until(lambda state: state.tasks["t2"].status is Status.READY_FOR_REVIEW)

    assert office.status("t1") is Status.MERGED
    assert not office.state.anomalies
