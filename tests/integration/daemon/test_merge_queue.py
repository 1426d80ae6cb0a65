"""Several reviewers, one branch: merges are tested and landed one after the other, in order."""

from __future__ import annotations

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from liza.daemon.policy import pick
from liza.daemon.turn import AfterTurn
from liza.domain.model import Status
from liza.domain.record import utc_now
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

TASKS: Final = 6
REVIEWERS: Final = tuple(f"reviewer-{number}" for number in range(1, 5))


def submitted(team: ScriptedTeam, count: int) -> None:
    for number in range(1, count + 1):
        team.task(f"t{number}")
        team.turn("coder-1")


def all_reviewed(team: ScriptedTeam) -> None:
    """Let all reviewers work at once until every task is merged."""
    for name in REVIEWERS:
        team.worker(name)

    def work(name: str) -> None:
        while any(task.status is not Status.MERGED for task in team.board.read().tasks.values()):
            if team.turn(name) is AfterTurn.WAIT:
                team.board.wait(team.board.read().revision, 0.1)

    with ThreadPoolExecutor(len(REVIEWERS)) as pool:
        list(pool.map(work, REVIEWERS))


def test_every_merge_is_tried_once_and_lands_in_the_order_of_approval(tmp_path: Path) -> None:
    """Four reviewers tested 291 merges for 100 that landed: whoever comes second tests for nothing."""
    team = ScriptedTeam(tmp_path, gates={"test": "sleep 0.2"}, workers={"coder": 1, "reviewer": 4})
    submitted(team, TASKS)

    all_reviewed(team)

    tries = Counter(event for number in range(1, TASKS + 1) for event in team.events(f"t{number}"))
    assert (tries["start_merge"], tries["merge"]) == (TASKS, TASKS)
    tasks = list(team.state.tasks.values())
    by_approval = sorted(tasks, key=pick.approved_at)
    assert by_approval == sorted(tasks, key=lambda task: str(task.history[-1].at))
    log = team.user.git("log", "--first-parent", "--reverse", "--format=%s", team.ref).splitlines()
    assert [line.split()[1].strip(":") for line in log if line.startswith("Merge ")] == [
        task.id for task in by_approval
    ]


def test_who_dies_at_the_head_of_the_queue_holds_up_nobody(tmp_path: Path) -> None:
    """The place is a lease: given back when its holder is started anew, or when it runs out."""
    hold, mark = tmp_path / "outside" / "hold", tmp_path / "outside" / "mark"
    gate = f"test ! -e {hold} || {{ touch {mark}; sleep 60; }}"
    team = ScriptedTeam(tmp_path, gates={"test": gate}, workers={"coder": 1, "reviewer": 2})
    submitted(team, 3)  # the first merge is the tree that was tested, so that it takes no time
    hold.touch()
    with team.process("reviewer-1") as process:
        team.until(lambda _: mark.exists())
        merging = pick.task_in_merge(team.state, utc_now())
        assert merging
        assert merging.lease
        assert team.turn("reviewer-2") is AfterTurn.WORK  # it reviews the other one, and does not merge it
        assert [team.status(name) for name in ("t2", "t3")] == [Status.APPROVED, Status.APPROVED]
        assert team.turn("reviewer-2") is AfterTurn.WAIT
        process.send_signal(signal.SIGKILL)
        process.wait()
    hold.unlink()

    team.worker("reviewer-1")  # as the supervisor starts it again
    team.turns("reviewer-2")

    assert {task.status for task in team.state.tasks.values()} == {Status.MERGED}


@pytest.mark.parametrize("others", [0, 1])
def test_a_merge_is_tested_unless_its_tree_was(tmp_path: Path, others: int) -> None:
    """The work as it was judged is what is merged where nothing else was; then its tests say enough."""
    runs = tmp_path / "outside" / "runs"
    team = ScriptedTeam(tmp_path, gates={"test": f"ls >> {runs}; echo >> {runs}"}, workers={"coder": 1})
    submitted(team, 1 + others)
    runs.unlink()

    team.turns("reviewer-1")

    assert {task.status for task in team.state.tasks.values()} == {Status.MERGED}
    # Of two merges only the second is of a tree that nobody has seen: with the files of both.
    assert (runs.read_text() if runs.exists() else "").count("t1.txt\nt2.txt") == others


def test_coders_do_not_run_ahead_of_reviewers_without_end(tmp_path: Path) -> None:
    """Worktrees that wait grow old: nothing new is begun while too many do, and `explain` says so."""
    team = ScriptedTeam(tmp_path, limits={"max_unmerged": 2})
    submitted(team, 2)
    team.task("t3")

    assert team.turn("coder-1") is AfterTurn.WAIT

    assert pick.unmerged_count(team.state) == 2
    team.turn("reviewer-1")
    assert team.turn("coder-1") is AfterTurn.WORK
    assert team.status("t3") is Status.READY_FOR_REVIEW
