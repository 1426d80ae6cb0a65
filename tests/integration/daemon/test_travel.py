"""Code between hosts: what one submits another reviews and a third merges, through one bare repository."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from liza.daemon.policy.recovery import mark_stopped, reclaim_tasks
from liza.daemon.push_hook import board_address, check_push, install_hook
from liza.daemon.recover import Recovery
from liza.daemon.travel import GOES_ON, begin_integration
from liza.domain.config import Config
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.domain.shared_refs import token_digest
from liza.errors import RemoteTrouble, UsageError
from liza.repo.salvage import list_salvages, restore_salvage
from liza.repo.shared_remote import SharedRemote
from tests.support import scripted_agent
from tests.support.hosts import TeamOfHosts, bare_repository
from tests.support.repos import Home

if TYPE_CHECKING:
    from pathlib import Path

    from liza.repo.command import GitResult

INTEGRATION = "refs/heads/liza/integration"


def test_three_hosts_bring_one_task_to_its_merge(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    begins = team.refs()[INTEGRATION]

    team.turn_on("b", "coder-1")
    (ref,) = [ref for ref in team.refs() if ref.startswith("refs/heads/liza/t1/")]
    task = team.state.task("t1")
    assert team.refs()[ref] == task.review_commit
    assert team.user.repository.commit_at(str(task.review_commit)) is None

    team.turn_on("c", "reviewer-1")
    task = team.state.task("t1")
    assert task.status is Status.MERGED
    assert team.refs()[INTEGRATION] == task.merge_commit
    assert team.remote.git("show", f"{INTEGRATION}:t1.txt") == "t1"
    # The clone that merged follows, the others do with their next look.
    assert team.host("c").git("rev-parse", INTEGRATION) == task.merge_commit
    assert team.user.git("rev-parse", INTEGRATION) == begins

    team.task("t2")
    team.turn_on("a", "coder-2")
    assert team.state.task("t2").base_commit == task.merge_commit
    assert team.user.git("rev-parse", INTEGRATION) == task.merge_commit


def test_a_token_is_not_shown_by_its_ref(tmp_path: Path) -> None:
    assert token_digest("secret") != "secret"
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    team.turn_on("b", "coder-1")
    tokens = {
        entry.put["tasks"]["t1"]["lease"]["token"]
        for entry in team.board.entries()
        if isinstance(tasks := entry.put.get("tasks"), dict)
        if tasks.get("t1", {}).get("lease")
    }
    (ref,) = [ref for ref in team.refs() if ref.startswith("refs/heads/liza/t1/")]
    assert [ref.rpartition("/")[2]] == list(map(token_digest, tokens))


def test_work_of_another_host_is_laid_over_the_new_base(tmp_path: Path) -> None:
    """Approved work that fails together with what was merged meanwhile is not begun anew elsewhere."""
    gate = "test ! -e t1.txt || test ! -e t2.txt || test -e fixed"
    team = TeamOfHosts(tmp_path, gates={"test": gate})
    team.task("t1")
    team.task("t2")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "coder-2")
    for _ in range(3):
        team.turn_on("a", "reviewer-1")
    (failed,) = [task.id for task in team.state.tasks.values() if task.status is Status.INTEGRATION_FAILED]
    mend = {"write": {"fixed": "yes\n"}, "answer": {"status": "done", "summary": "Mend it"}}
    team.script({f"implement {failed}": mend})

    team.board.update(mark_stopped({"coder-1", "coder-2"}, at=utc_now()))
    team.turn_on("d", "coder-3")
    team.turn_on("a", "reviewer-1")

    assert team.state.task(failed).status is Status.MERGED
    assert team.remote.git("show", f"{INTEGRATION}:{failed}.txt") == failed


def test_a_merge_whose_record_was_lost_is_found_in_the_history(tmp_path: Path) -> None:
    """Killed between push and commit: whoever takes over records it, and nothing is merged twice."""
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    team.turn_on("b", "coder-1")
    reviewer = team.worker_on("c", "reviewer-1")
    remote = reviewer.remote(team.state)
    assert remote

    class Killed(BaseException):
        pass

    def push_and_die(*words: str) -> GitResult:
        answer = ask(remote, *words)
        if words[0] == "push":
            raise Killed
        return answer

    ask = type(remote)._ask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(remote), "_ask", lambda _, *words: push_and_die(*words))
        with pytest.raises(Killed):
            team.turn_on("c", "reviewer-1")
    task = team.state.task("t1")
    assert task.status is Status.APPROVED
    assert task.merging
    assert team.refs()[INTEGRATION] == task.merging.commit

    # The lease of the dead has ended, and a reviewer of another host takes the task up.
    Recovery(team.board, team.user.repository).board.update(reclaim_tasks({"reviewer-2"}, at=utc_now()))
    team.turn_on("a", "reviewer-2")
    assert team.state.task("t1").status is Status.MERGED
    assert team.state.task("t1").merge_commit == task.merging.commit
    assert len(team.remote.git("log", "--merges", "--format=%H", INTEGRATION).splitlines()) == 1


def test_recovery_finishes_a_merge_that_is_on_the_remote(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "reviewer-1")
    merged = team.state.task("t1").merge_commit
    # Nothing of it is in the clone of the supervisor, and nothing of it is lost.
    facts = Recovery(team.board, team.user.repository).crash_facts(utc_now())
    assert facts.lost == frozenset()
    assert team.user.repository.commit_at(str(merged)) == merged


def test_what_was_saved_on_one_host_can_be_restored_on_another(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    team.script({"implement": {"write": {"half.txt": "half\n"}, "exit": 1}})
    team.turn_on("b", "coder-1")
    (saved,) = list_salvages(team.host("b").repository)
    assert f"refs/liza/salvage/t1/{saved.commit}" in team.refs()
    remote = team.worker_on("a", "coder-2").remote(team.state)
    assert remote
    remote.fetch_salvages()
    remote.fetch_salvages()
    assert [(one.task, one.commit) for one in list_salvages(team.user.repository)] == [("t1", saved.commit)]
    restore_salvage(team.user.repository, "t1", 1)
    assert team.user.git("show", "salvage/t1-1:half.txt") == "half"


def test_a_remote_that_is_away_costs_nothing_but_time(tmp_path: Path) -> None:
    """A coder that is through waits with its work; others take nothing up; people are told once."""
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    mark = tmp_path / "mark"
    act = scripted_agent.by_default("implement", "t1")
    team.script(
        {"implement": {**act, "run": f"mv {team.remote.directory} {tmp_path / 'away.git'}; touch {mark}"}}
    )
    team.worker_on("b", "coder-1")
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(team.turn_on, "b", "coder-1")
        team.until(lambda _: bool(team.board.alerts.after(0)))
        assert mark.exists()
        assert not working.done()
        assert team.state.task("t1").status is Status.WORKING
        team.task("t2")
        with pytest.raises(RemoteTrouble, match=r"team\.git cannot be reached"):
            team.turn_on("c", "coder-2")
        (tmp_path / "away.git").rename(team.remote.directory)
        working.result(60)
    assert team.state.task("t1").status is Status.READY_FOR_REVIEW
    (told,) = team.board.alerts.after(0)
    assert told.says.startswith(f"the remote {team.remote.directory} cannot be reached (")
    assert told.says.endswith(GOES_ON)
    team.turn_on("a", "reviewer-1")
    assert team.state.task("t1").status is Status.MERGED


@pytest.mark.hosts
def test_a_worker_waits_for_a_remote_that_is_away(tmp_path: Path) -> None:
    """It neither ends nor takes anything up, and nothing is held against the task."""
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    away = team.remote.directory.rename(tmp_path / "away.git")
    with team.process("coder-1") as process:
        team.until(lambda _: bool(team.board.alerts.after(0)))
        assert (team.state.task("t1").status, team.state.task("t1").history_earlier) == (Status.IDLE, 0)
        away.rename(team.remote.directory)
        team.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)
        assert process.poll() is None
    assert len(team.board.alerts.after(0)) == 1
    assert team.events() == ["added", "claim", "pre_execution_checkpoint", "submit"]


def test_a_remote_of_another_project_is_refused(tmp_path: Path) -> None:
    for name in ("main", "liza/integration"):
        ours = Home(tmp_path / f"ours-{name.replace('/', '-')}")
        stranger = bare_repository(tmp_path / f"{name.replace('/', '-')}.git")
        other = Home(tmp_path / f"other-{name.replace('/', '-')}")
        other.git("checkout", "-q", "--orphan", "elsewhere")
        other.commit({"x": "another thing"})
        other.git("push", "-q", str(stranger.directory), f"elsewhere:refs/heads/{name}")
        config = Config(remote=str(stranger.directory))
        for _ in range(2):
            with pytest.raises(RemoteTrouble, match="has another history than this repository"):
                begin_integration(ours.repository, config)
        assert "liza" not in stranger.git("for-each-ref", "--format=%(refname)").replace(name, "")


def test_a_remote_that_lost_merges_is_not_followed(tmp_path: Path) -> None:
    """A restored backup, or a history that was written anew: nobody builds on it."""
    team = TeamOfHosts(tmp_path)
    before = team.refs()[INTEGRATION]
    team.task("t1")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "reviewer-1")
    merged = str(team.state.task("t1").merge_commit)
    team.remote.git("update-ref", INTEGRATION, before)
    team.task("t2")
    with pytest.raises(
        RemoteTrouble, match=f"has lost what was merged: put liza/integration back at {merged}"
    ):
        team.turn_on("c", "coder-2")
    assert team.state.task("t2").status is Status.IDLE
    team.remote.git("update-ref", INTEGRATION, merged)
    team.turn_on("c", "coder-2")
    assert team.state.task("t2").status is Status.READY_FOR_REVIEW


def test_what_a_remote_says_comes_to_one_sentence(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    hook = team.remote.directory / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'the quota of this repository is used up' >&2\nexit 1\n")
    hook.chmod(0o755)
    remote = team.worker_on("b", "coder-1").remote(team.state)
    assert remote
    with pytest.raises(RemoteTrouble) as refused:
        remote.publish_work("t1", "token", team.user.base)
    assert str(refused.value) == (
        f"the remote {team.remote.directory} refuses it (the quota of this repository is used up)"
    )
    named = team.state.config.replace(remote="no-such-place")
    with pytest.raises(RemoteTrouble, match=r"the remote no-such-place cannot be reached \(.*\)$"):
        begin_integration(team.user.repository, named)


def test_a_remote_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and says nothing, as a machine that hangs."""
    monkeypatch.setattr("liza.repo.shared_remote.LIMIT", 1.0)
    home = Home(tmp_path / "project")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = Config(remote=f"git://127.0.0.1:{silent.getsockname()[1]}/team.git")
        with pytest.raises(RemoteTrouble, match=r"did not answer within 1 seconds$"):
            begin_integration(home.repository, config)


@pytest.mark.hosts
def test_what_is_merged_leaves_the_remote(tmp_path: Path) -> None:
    """What is only there, or not merged, stays."""
    team = TeamOfHosts(tmp_path)
    team.task("t1")
    team.task("t2")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "coder-2")
    team.turn_on("c", "reviewer-1")
    other = team.host("b").commit({"x": "an attempt that was given up"})
    team.host("b").git("push", "-q", str(team.remote.directory), f"{other}:refs/heads/liza/t1/old")
    Recovery(team.board, team.user.repository).retire_work(team.state)
    work = {ref: commit for ref, commit in team.refs().items() if ref.startswith("refs/heads/liza/t")}
    assert sorted(work.values()) == sorted([other, str(team.state.task("t2").review_commit)])


def test_a_remote_by_its_name_in_git(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.user.git("remote", "add", "team", str(team.remote.directory))
    remote = SharedRemote(team.user.repository, "team", "liza/integration")
    assert (remote.place, remote.fetch()) == ("team", team.refs()[INTEGRATION])
    # Nobody's own refs move by it.
    assert "refs/remotes" not in team.user.git("for-each-ref", "--format=%(refname)")


def test_a_task_may_be_called_as_the_branch_is(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    team.task("integration")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "reviewer-1")
    assert team.state.task("integration").status is Status.MERGED


def test_a_password_has_no_place_in_the_address() -> None:
    with pytest.raises(ValidationError, match="it holds a password"):
        Config(remote="https://ada:secret@example.org/team.git")


@pytest.mark.hosts
def test_the_hook_lets_in_who_holds_the_task_alone(tmp_path: Path) -> None:
    """Whoever was away for longer than its lease cannot push, and nobody can while the board is away."""
    team = TeamOfHosts(tmp_path)
    path = install_hook(team.remote.directory, board_address(team.home))
    assert install_hook(team.remote.directory, board_address(team.home)) == path
    team.task("t1")
    team.turn_on("b", "coder-1")
    team.turn_on("c", "reviewer-1")
    assert team.state.task("t1").status is Status.MERGED

    before = team.refs()
    remote = team.worker_on("b", "coder-1").remote(team.state)
    assert remote
    with pytest.raises(RemoteTrouble, match=r"refuses it \(refs/heads/liza/t1/\w+: t1: nobody holds it now"):
        remote.publish_work("t1", "an old token", team.user.base)
    late = team.host("b").commit({"late.txt": "late"})
    with pytest.raises(RemoteTrouble, match="no task of the board is being merged"):
        remote.land_merge(late, onto=before[INTEGRATION])
    team.host("b").git("push", "-q", str(team.remote.directory), "HEAD:refs/heads/of-a-person")
    assert team.refs() == {**before, "refs/heads/of-a-person": late}

    team.home.rename(tmp_path / "away")
    with pytest.raises(RemoteTrouble, match="refuses it"):
        remote.publish_work("t1", "token", team.user.base)
    assert team.refs() == {**before, "refs/heads/of-a-person": late}


def test_a_hook_without_a_board_lets_nothing_in_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no board at .*/nowhere; mend the hook"):
        check_push(str(tmp_path / "nowhere"), [])
    assert not (tmp_path / "nowhere").exists()


def test_a_hook_is_not_put_anywhere(tmp_path: Path) -> None:
    bare, home = bare_repository(tmp_path / "team.git"), Home(tmp_path / "project")
    for place, board, why in (
        (tmp_path / "nowhere", "x", "is no directory"),
        (home.directory, "x", "is no bare repository; name one, as `git init --bare DIRECTORY` makes it"),
        (bare.directory, "postgresql://ada:secret@db/team", "holds a password"),
    ):
        with pytest.raises(UsageError, match=why):
            install_hook(place, board)
    own = bare.directory / "hooks" / "pre-receive"
    own.parent.mkdir(exist_ok=True)
    own.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="there is another hook"):
        install_hook(bare.directory, "x")
    assert own.read_text() == "#!/bin/sh\n"
