"""Without a sandbox: what agents and tests do outside of a worktree is seen; people may work in theirs."""

from __future__ import annotations

import subprocess
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.breaker import take_back_switches
from liza.daemon.jobs import take_job
from liza.daemon.project import known_merges
from liza.domain.anomalies import CheckoutDrift
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.repo.verify import ViolationKind, verify_span
from tests.support.few import few
from tests.support.repos import NOW
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.file import FileBoard
    from liza.daemon.turn import Worker
    from liza.domain.model import State
    from liza.repo.verify import VerifyReport

DONE: Final = {"status": "done", "summary": "x"}
REJECT: Final = {"answer": {"verdict": "reject", "reason": "no", "feedback": [{"message": "no"}]}}
UNSEEN: Final = "git commit -q --allow-empty -m unseen; git update-ref refs/heads/liza/integration HEAD"

# What only a misbehaving agent has a reason for.
MISDEEDS: Final = {
    "configure git": ("git config user.name mallory", "config was changed"),
    "plant a hook": (
        "mkdir ../../.git/hooks; echo x > ../../.git/hooks/pre-push",
        "pre-push was added",
    ),
    "plant attributes": ("echo '* filter=x' > ../../.git/info/attributes", "attributes was added"),
    "hide a filter behind a branch": (
        'printf \'[branch "x"][filter "y"]\\n\\tclean = evil\\n\' >> ../../.git/config',
        "config was changed",
    ),
    "move the integration branch": (UNSEEN, "the branch liza/integration was changed"),
    "set the integration branch back": (
        "git update-ref refs/heads/liza/integration $(git commit-tree -m x HEAD^{tree})",
        "the branch liza/integration was changed",
    ),
    "delete the integration branch": (
        "git update-ref -d refs/heads/liza/integration",
        "the branch liza/integration was removed",
    ),
    "move another task's branch": (
        "git commit -q --allow-empty -m x; git update-ref refs/heads/task/t2 HEAD",
        "the branch task/t2 was changed",
    ),
    "delete another task's branch": (
        "git update-ref -d refs/heads/task/t2",
        "the branch task/t2 was removed",
    ),
    "replace an object": (
        "git replace HEAD $(git commit-tree -m x HEAD^{tree})",
        "refs/replace/",
    ),
    "put a repository into another task's worktree": (
        "rm ../t2/.git; git init -q ../t2",
        ".git in the worktree of t2 was touched",
    ),
    "delete what was saved": (
        "git update-ref -d refs/liza/salvage/t3/1",
        "refs/liza/salvage/t3/1 was removed",
    ),
    "take the memory away": ("rm ../../.liza/sight.json", "sight.json was removed"),
}
# What people do in their own repository, whoever did it now.
EVERYDAY: Final = {
    "make a branch": ("git branch mine", "the branch mine was added"),
    "make a tag": ("git tag mine", "refs/tags/mine was added"),
    "commit in the checkout": ("git -C ../.. commit -q --allow-empty -m x", "the branch main was changed"),
    "change the checkout": ("echo x > ../../a.txt", "a.txt in your checkout was changed"),
    "stage": ("cd ../..; echo x > new; git add new", "the index of your checkout was changed"),
    "switch": ("git -C ../.. switch -q -c other", "your checkout went from main to other"),
    "track": ("git config branch.main.remote origin", "config (its branches) was changed"),
}


@pytest.mark.parametrize(
    ("deed", "seen"),
    few(
        MISDEEDS,
        *("configure git", "plant a hook", "move the integration branch", "delete another task's branch"),
        *("put a repository into another task's worktree", "take the memory away"),
    ),
)
def test_what_only_an_agent_does_stops_everybody(tmp_path: Path, deed: str, seen: str) -> None:
    """The task is blocked, everybody pauses, the anomaly names what moved, and people are told."""
    team = ScriptedTeam(tmp_path, {"implement t1": {"run": deed, "answer": DONE}})
    team.task("t1")
    team.task("t2", priority=-1)
    team.user.worktrees.prepare("t2", team.user.base, at=NOW)
    team.user.git("update-ref", "refs/liza/salvage/t3/1", team.user.base)

    team.turn("coder-1")

    assert team.status("t1") is Status.BLOCKED
    assert "`liza resume`" in (team.home / "PAUSE").read_text()
    (anomaly,) = team.state.anomalies.values()
    assert isinstance(anomaly.details, CheckoutDrift)
    assert any(seen in sentence for sentence in anomaly.details.moved), anomaly.details.moved
    assert seen in alerts(team)


@pytest.mark.parametrize(
    ("deed", "seen"), few(EVERYDAY, "make a branch", "change the checkout", "switch", "track")
)
def test_what_a_person_may_have_done_is_told_and_stops_nobody(tmp_path: Path, deed: str, seen: str) -> None:
    """Told once, however many look."""
    act = {"run": deed, "write": {"t1.txt": "1\n"}, "answer": DONE}
    team = ScriptedTeam(tmp_path, {"implement t1": act}, gates={"test": "true"})
    team.user.git("config", "branch.main.merge", "refs/heads/main")
    team.task("t1")

    team.turns("coder-1", "reviewer-1")

    assert team.status("t1") is Status.MERGED
    assert not team.state.anomalies
    assert not (team.home / "PAUSE").exists()
    assert alerts(team).count(seen) == 1


def alerts(team: ScriptedTeam) -> str:
    path = team.home / "alerts.log"
    return path.read_text() if path.exists() else ""


def test_what_others_of_ours_do_meanwhile_is_no_drift(tmp_path: Path) -> None:
    """A merge that the board announced, and a claim by another coder, may happen while an agent runs."""
    wait = {"note": str(tmp_path / "outside" / "begun"), "until": str(tmp_path / "go")}
    act = {**wait, "write": {"t2.txt": "x\n"}, "answer": DONE}
    team = ScriptedTeam(tmp_path, {"implement t2": act})
    team.task("t1")
    team.turn("coder-1")
    team.task("t2")
    with team.process("coder-2"):
        team.noted("begun")
        team.turn("reviewer-1")
        team.task("t3")
        team.turn("coder-1")
        (tmp_path / "go").touch()
        team.until(lambda state: state.tasks["t2"].status is Status.READY_FOR_REVIEW)

    assert team.status("t1") is Status.MERGED
    assert not team.state.anomalies
    assert alerts(team) == ""


class Busy:
    """A board on which something happens right after somebody read it."""

    def __init__(self, board: FileBoard, happens: Callable[[], object]) -> None:
        self.board = board
        self.happens = happens

    def read(self) -> State:
        state = self.board.read()
        self.happens()
        return state

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the board's
        return getattr(self.board, name)


def take(coder: Worker, base: str) -> None:
    """Claim a task, and make its worktree ready."""
    claimed = take_job(coder, base)
    assert claimed
    coder.worktrees.renew(claimed.task.id, base, at=NOW)


def test_a_task_that_is_taken_while_somebody_looks_is_not_trespassed_upon(tmp_path: Path) -> None:
    """Faults, 1: the board was read, then a task was claimed, then its worktree was scanned."""
    team = ScriptedTeam(tmp_path, {"review": REJECT})
    team.task("t2")
    team.turn("coder-2")
    team.turn("reviewer-1")  # a worktree is at rest
    look = team.worker("coder-1").tamper_monitor
    look.begin()
    reads, base = count(), team.head()
    look.board = Busy(team.board, lambda: take(team.worker("coder-2"), base) if next(reads) == 1 else None)

    seen = look.end()

    assert team.status("t2") is Status.WORKING
    assert (seen.stops, seen.told) == ((), ())


def test_a_clock_that_steps_back_accuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults, 3: whatever was checked out before the step lies in the future after it."""
    team = ScriptedTeam(tmp_path)
    for name in ("t1", "t2", "t3"):
        team.task(name)
    team.turn("coder-1")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)

    team.turns("coder-1", "reviewer-1")

    assert not team.state.anomalies
    assert {team.status(name) for name in ("t1", "t2", "t3")} == {Status.MERGED}


def test_who_was_in_a_worktree_at_rest_is_told_when_it_is_taken_again(tmp_path: Path) -> None:
    """It is compared once, as a whole; it may have been a person, so nobody stops."""
    approve = {"answer": {"verdict": "approve", "reason": "yes"}}
    team = ScriptedTeam(tmp_path, {"review": [REJECT, approve]})
    team.task("t1")
    team.turns("coder-1", "reviewer-1")
    assert alerts(team) == ""

    team.task("t2")
    team.turn("coder-1")
    team.script({"review": REJECT})
    team.turn("reviewer-1")
    (team.user.directory / ".worktrees" / "t2" / "src" / "b.py").write_text("B = 2\n")
    team.turn("coder-1")

    assert "t2: its worktree was touched in src while nobody worked on it" in alerts(team)
    assert not team.state.anomalies


def test_a_worktree_that_was_given_to_another_task_was_touched_by_nobody(tmp_path: Path) -> None:
    """A worker that was killed before its agent ran leaves a worktree which another task once rested in."""
    team = ScriptedTeam(tmp_path)
    team.task("t1")
    team.turns("coder-1", "reviewer-1")
    trees, rested = team.user.worktrees, team.user.worktrees.of("t1")
    trees.release("t1", at=utc_now())
    team.task("t2")
    given = trees.prepare("t2", team.head(), at=utc_now())
    assert rested is not None
    assert given.admin == rested.admin

    team.turns("coder-1", "reviewer-1")

    assert team.status("t2") is Status.MERGED
    assert alerts(team) == ""


class TestPeople:
    """A person may work in their own repository."""

    def test_an_agent_in_a_sandbox_is_not_blamed_for_them(self, tmp_path: Path) -> None:
        """Demands, D3: no agent there can reach what a person edits, commits or configures."""
        skip_without_sandbox()
        team = ScriptedTeam(tmp_path, sandbox={"mode": "require"})
        outside = team.outside
        team.script({"implement": {"until": str(outside / "go"), "write": {"t1.txt": "1"}, "answer": DONE}})
        team.task("t1")
        with team.process("coder-1"):
            team.until(lambda state: state.tasks["t1"].checkpoint is not None)
            team.user.commit({"specs.md": "what was meant\n"})
            team.user.write("a.txt", "edited\n")
            team.user.git("config", "user.name", "Grace")
            stray = put(team, "by hand")
            (outside / "go").touch()
            team.until(lambda state: state.tasks["t1"].status is Status.READY_FOR_REVIEW)
        team.turns("reviewer-1")

        assert team.status("t1") is Status.MERGED, team.state.tasks["t1"].blocked_reason
        assert not team.state.anomalies
        assert [one.commit for one in team.state.integration.yours] == [stray]
        assert (checked_all(team).findings, checked_all(team).yours) == ([], 1)

    def test_a_commit_on_the_integration_branch_while_nobody_runs_is_theirs(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path)
        team.task("t1")
        team.turns("coder-1", "reviewer-1")
        stray = put(team, "by hand")
        team.task("t2")

        team.turns("coder-1", "reviewer-1")

        assert team.status("t2") is Status.MERGED
        assert [one.commit for one in team.state.integration.yours] == [stray]
        assert f"taken as yours, on the integration branch: {stray[:12]} by hand" in alerts(team)
        found = checked_all(team)
        assert (found.merges, found.yours, found.findings) == (2, 1, [])
        assert str(found) == "VERIFIED: 2 merges, and 1 commits of people"

    def test_resuming_takes_what_moved_as_it_is_and_lets_the_task_go_on(self, tmp_path: Path) -> None:
        """P10: the `liza resume` that the message names works, and nothing else is needed."""
        script = {"implement t1": [{"run": UNSEEN, "answer": DONE}, {"write": {"t1": "1"}, "answer": DONE}]}
        team = ScriptedTeam(tmp_path, script)
        team.task("t1")
        team.turn("coder-1")
        assert team.status("t1") is Status.BLOCKED
        assert [one.problem for one in checked_all(team).findings] == [ViolationKind.NOT_A_MERGE]

        assert take_back_switches(team.board, utc_now()) == ["PAUSE"]

        assert team.status("t1") is Status.IDLE
        assert checked_all(team).yours == 1
        team.turns("coder-1", "reviewer-1")
        assert team.status("t1") is Status.MERGED
        assert checked_all(team).findings == []

    def test_nobody_builds_on_what_a_stranger_put_on_the_branch(self, tmp_path: Path) -> None:
        """Neither a merge nor new work, until people say whose it is."""
        team = ScriptedTeam(tmp_path, {"implement t2": {"run": UNSEEN, "answer": DONE}})
        team.task("t1")
        team.turn("coder-1")
        team.task("t2")
        team.turn("coder-1")
        (team.home / "PAUSE").unlink()

        team.turn("reviewer-1")
        team.task("t3")
        team.turn("coder-1")

        assert (team.status("t1"), team.status("t3")) == (Status.APPROVED, Status.IDLE)
        assert "it has what no merge of the board made" in (team.home / "PAUSE").read_text()


def put(team: ScriptedTeam, message: str, *more: str) -> str:
    """Let a person commit on the integration branch."""
    parents = [word for parent in (team.ref, *more) for word in ("-p", parent)]
    commit = team.user.git("commit-tree", "-m", message, *parents, f"{team.ref}^{{tree}}")
    team.user.git("update-ref", team.ref, commit)
    return commit


def checked_all(team: ScriptedTeam) -> VerifyReport:
    known = known_merges(team.user.directory)
    return verify_span(team.user.repository, f"{known.base}..{team.ref}", known)


class TestGates:
    """What a test runs is what agents wrote; it is looked after as they are."""

    def team(self, tmp_path: Path, deed: str) -> ScriptedTeam:
        write = {"evil.txt": deed, "t1.txt": "1\n"}
        team = ScriptedTeam(
            tmp_path,
            {"implement t1": {"write": write, "answer": DONE}},
            gates={"test": "test ! -e evil.txt || sh evil.txt"},
        )
        team.task("t1")
        return team

    def test_a_commit_to_the_users_branch_is_told(self, tmp_path: Path) -> None:
        root = tmp_path / "project"
        team = self.team(tmp_path, f"git -C {root} commit -q --allow-empty -m planted\n")

        team.turn("coder-1")

        assert "the branch main was changed" in alerts(team)

    def test_a_commit_below_a_merge_stops_everybody(self, tmp_path: Path) -> None:
        """It waits until the merge is tested, and moves the branch that the merge would go to."""
        root, ref = tmp_path / "project", "refs/heads/liza/integration"
        planted = f"git -C {root} update-ref {ref} $(git -C {root} commit-tree -p {ref} -m p {ref}^{{tree}})"
        team = self.team(tmp_path, f"git log -1 --format=%s | grep -q '^Merge' || exit 0\n{planted}\n")
        team.task("t0", priority=9)
        team.turn("coder-1")
        team.turn("coder-1")

        team.turns("reviewer-1")  # t0 is merged first, so that the merge of t1 is another tree than its work

        assert team.status("t1") is Status.BLOCKED
        assert "reviewer-1's tests moved what is yours" in str(team.state.task("t1").blocked_reason)
        assert (team.home / "PAUSE").exists()
        assert checked_all(team).findings != []


class TestSignatures:
    def test_trailers_alone_prove_nothing(self, tmp_path: Path) -> None:
        """A merge that looks right in every way, made by somebody who had neither the key nor the board."""
        team = ScriptedTeam(tmp_path)
        team.task("t1")
        team.turns("coder-1", "reviewer-1")
        root = team.user.directory
        real = team.user.git("log", "-1", "--format=%B", team.ref)
        assert (team.home / "key").stat().st_mode & 0o777 == 0o600
        side = team.user.git("commit-tree", "-p", team.ref, "-m", "evil", f"{team.ref}^{{tree}}")
        forged = real.replace("Liza-Task: t1", "Liza-Task: t9").replace(
            team.state.tasks["t1"].review_commit or "", side
        )
        commit = team.user.git(
            "commit-tree", "-p", team.ref, "-p", side, "-m", forged, f"{team.ref}^{{tree}}"
        )
        team.user.git("update-ref", team.ref, commit)

        assert [one.problem for one in checked_all(team).findings] == [ViolationKind.NOT_OF_THE_BOARD]

        clone = tmp_path / "clone"
        subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
        span = "origin/main..origin/liza/integration"
        elsewhere = team.user.repository.around(clone)
        assert str(verify_span(elsewhere, span)).startswith("NOT PROVEN: 2 merges")
        with_key = known_merges(clone, team.home / "key")
        assert [one.problem for one in verify_span(elsewhere, span, with_key).findings] == [
            ViolationKind.FORGED
        ]
        assert verify_span(elsewhere, "origin/main..origin/liza/integration~1", with_key).findings == []
