"""What is MERGED is on disk: objects and refs are synced before the board names them, and a loss is found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from liza.daemon.policy import recovery
from liza.daemon.recover import Recovery
from liza.domain.changes import Change
from liza.domain.model import State, Status
from liza.domain.record import utc_now
from liza.repo import command
from liza.repo.command import close_readers
from liza.system.process import RUN_MARK
from tests.support.scripted_team import ROOT, ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

STRACE: Final = shutil.which("strace")
TURN: Final = """
import sys
from pathlib import Path
from liza.board.protocol import open_board
from liza.domain.model import Role
from liza.repo.repository import Repository
from liza.daemon.turn import StopRequests
from liza.daemon.turn import Worker
from liza.daemon.jobs import take_turn
home, name = Path(sys.argv[1]), sys.argv[2]
role = Role(name.partition("-")[0])
board = open_board(home)
take_turn(Worker(home, board, Repository.around(home.parent), role, name, StopRequests(board)))
"""


def traced(team: ScriptedTeam, name: str) -> list[str]:
    """Let a worker take a turn; return which files were synced and which lines the journal got, in order."""
    if STRACE is None:
        pytest.skip("strace is not installed, so the order of syncs is not looked at")
    team.worker(name)
    out = team.outside / "trace"
    calls = "trace=fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,write,pwrite64"
    words = [STRACE, "-f", "-y", "-s", "20000", "-e", calls, "-o", str(out), sys.executable, "-c", TURN]
    subprocess.run([*words, str(team.home), name], cwd=ROOT, check=True, capture_output=True)
    return out.read_text(errors="replace").splitlines()


def first(lines: list[str], *patterns: str) -> int:
    return next((at for at, line in enumerate(lines) if all(re.search(one, line) for one in patterns)), 10**9)


def test_objects_and_refs_are_synced_before_the_board_names_them(tmp_path: Path) -> None:
    """The agent commits by itself, with a git that syncs nothing."""
    act = {"write": {"t1.txt": "1\n"}, "commit": "mine", "answer": {"status": "done", "summary": "x"}}
    team = ScriptedTeam(tmp_path, {"implement": act})
    team.task("t1")
    lines = traced(team, "coder-1")
    commit = team.state.tasks["t1"].review_commit or ""
    named = first(lines, r"journal\.jsonl", f"review_commit.{{3,5}}{commit}|{commit}", "write")
    assert named < 10**9
    assert first(lines, r"\bfsync\(", f"objects/{commit[:2]}/{commit[2:]}") < named
    assert first(lines, r"\bfsync\(", "refs/heads/task/t1") < named

    lines = traced(team, "reviewer-1")
    merge = team.state.tasks["t1"].merge_commit or ""
    assert team.status("t1") is Status.MERGED
    started = first(lines, r"journal\.jsonl", merge, "write")
    landed = first(lines, r"journal\.jsonl", "MERGED", "write")
    made = first(lines, r"\bfsync\(", r"objects/.*tmp_obj")
    moved = first(lines, r"\bfsync\(", r"refs/heads/liza/integration\.lock")
    assert made < started < moved < landed < 10**9


def recover(team: ScriptedTeam) -> list[str]:
    """Put right what a machine that went down left."""
    scene = Recovery(team.board, team.user.repository)
    told = scene.repair_refs(team.state)
    facts = scene.crash_facts(team.worker("reviewer-1").clock())
    actions = recovery.plan(facts)
    scene.perform(actions, facts)
    return [*told, *map(str, actions)]


def test_a_submission_that_is_not_on_disk_is_done_again(tmp_path: Path) -> None:
    """An empty object and an empty ref, as a power cut leaves them; people are told, and nobody is blamed."""
    team = ScriptedTeam(tmp_path)
    team.task("t1")
    team.turn("coder-1")
    task = team.state.tasks["t1"]
    commit, common = str(task.review_commit), team.user.repository.common
    blob = team.user.git("rev-parse", f"{commit}:t1.txt")
    assert not any("again" in one for one in recover(team))
    empty(common / "objects" / blob[:2] / blob[2:])
    empty(common / "refs" / "heads" / "task" / "t1")

    told = recover(team)

    assert any("refs/heads/task/t1 named no commit" in one for one in told)
    assert any(f"t1: do it again, because its commit {commit[:12]} is gone or damaged" in one for one in told)
    assert (team.status("t1"), team.state.tasks["t1"].review_commit) == (Status.IDLE, None)
    assert "t1: do it again" in (team.home / "alerts.log").read_text()
    team.turns("coder-1", "reviewer-1")
    assert team.status("t1") is Status.MERGED
    assert team.merged("t1.txt") == "t1"


def test_an_integration_branch_without_a_hash_is_put_back_to_the_last_merge(tmp_path: Path) -> None:
    team = ScriptedTeam(tmp_path)
    team.task("t1")
    team.turns("coder-1", "reviewer-1")
    head = team.head()
    empty(team.user.repository.common / team.ref)

    told = recover(team)

    assert team.head() == head
    assert any("is put back to" in one for one in told)


def test_the_beginning_of_a_run_asks_git_once_for_all_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are merged, archived or wait for their review."""
    team = ScriptedTeam(tmp_path)
    for name in ("m1", "m2", "m3", "m4"):
        team.task(name)
    team.turns("coder-1", "reviewer-1")
    for name in ("s1", "s2"):
        team.task(name)
        team.turn("coder-1")
    team.board.update(Change("liza", "archive", lambda state: archived(state, ["m1", "m2"])))
    state = team.state
    assert sum(bool(task.merge_commit) for task in state.tasks.values()) == 2
    asked, tools = tmp_path / "asked", tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    scene = Recovery(team.board, team.user.repository)

    assert scene.repair_refs(state) == []
    facts = scene.crash_facts(team.worker("reviewer-1").clock())

    assert (facts.lost, len(facts.merged_branches)) == (frozenset(), 2)
    # The merged ones; the submissions, with their files; and the process that stays, for single commits.
    assert len(asked.read_text().splitlines()) == 4


def archived(state: State, names: list[str]) -> State:
    tasks = {name: task for name, task in state.tasks.items() if name not in names}
    accounts = {name: one for name, one in state.accounts.items() if name not in names}
    return state.replace(
        tasks=MappingProxyType(tasks),
        accounts=MappingProxyType(accounts),
        archived=MappingProxyType(dict.fromkeys(names, Status.MERGED)),
    )


def empty(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"")


def test_the_git_that_a_supervisor_asks_is_no_leftover_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It bears the mark of the run, and nobody is told that it was ended."""
    team = ScriptedTeam(tmp_path)
    monkeypatch.setitem(command._MARKER_VARIABLES, RUN_MARK, str(team.home / "runs" / "supervisor.git"))
    close_readers()
    team.user.repository.commit_at("HEAD")

    facts = Recovery(team.board, team.user.repository).crash_facts(utc_now())

    assert not facts.leftovers
    assert team.user.repository.commit_at("HEAD") == team.user.base
