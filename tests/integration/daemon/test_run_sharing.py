"""Runs that other machines can read: copied when they end, and found by `liza logs`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from liza.daemon.run_sharing import RunSharer
from liza.domain.changes import Change
from tests.support.daemon_run import Daemon
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def on_host(state: State) -> State:
    agents = {name: one.replace(host="build2") for name, one in state.agents.items()}
    return state.replace(agents=agents)


def test_what_a_run_leaves_is_read_where_it_did_not_run(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "runs"
    daemon = Daemon(tmp_path, transcripts=str(shared))
    assert daemon.run() == 0
    assert names(shared) == names(daemon.home / "runs")
    (run,) = [name for name in names(shared) if name.endswith(".implement")]
    here = {subject: daemon.shell.ok("logs", subject) for subject in (run, "t1", "coder-1")}
    shutil.rmtree(daemon.home / "runs")  # as on another machine
    assert {subject: daemon.shell.ok("logs", subject) for subject in here} == here


def test_only_what_has_ended_is_copied_and_trouble_is_said_once(tmp_path: Path) -> None:
    told: list[str] = []
    team = ScriptedTeam(tmp_path, transcripts="../shared")
    runs, shared = team.home / "runs", tmp_path / "shared"
    for name in ("coder-1.20260101T000000.1-a.test", "coder-1.20260101T000001.2-b.implement"):
        (runs / name).mkdir(parents=True)
        (runs / name / "stdout").write_text(name)
    sharer = RunSharer(team.board, told.append)
    shared.write_text("in the way")
    sharer.share()
    sharer.share()
    assert [line.partition(":")[0] for line in told] == ["runs cannot be copied to ../shared"]
    shared.unlink()
    sharer.share()
    assert names(shared) == {"coder-1.20260101T000000.1-a.test"}  # the other goes on
    sharer.share(is_over=True)
    assert names(shared) == names(runs)


def test_where_nobody_has_it_the_host_is_named(tmp_path: Path) -> None:
    team = ScriptedTeam(tmp_path)
    team.task()
    team.turn("coder-1")
    shutil.rmtree(team.home / "runs")
    team.board.update(Change("me", "move", on_host))
    for subject in ("coder-1", "t1", "coder-1.20260101T000000.1-a.implement"):
        done = Shell(team.user.directory)("logs", subject)
        assert done.code == 1
        assert "coder-1 runs on the host build2: look there" in done.err
        assert "name a directory in `transcripts`" in done.err
