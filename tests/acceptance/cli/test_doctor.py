"""`liza doctor` on real machines and projects, and what is said where there is no bubblewrap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.changes import Change
from liza.domain.record import utc_now
from liza.system import files
from tests.support.hosts import TeamOfHosts, bare_repository
from tests.support.repos import NOW, Home
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State

PATIENCE: Final = 120.0
FREE: Final = "agents run without a sandbox, with all the rights that you have: there is no bwrap"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A project with an agent that answers nothing."""
    home = Home(tmp_path / "project")
    home.write("liza.yaml", "agents: {default: {command: ['true']}}\n")
    home.commit()
    shell = Shell(home.directory)
    shell.ok("init", "Build a greeter")
    return shell


def findings(shell: Shell) -> dict[str, dict[str, Any]]:
    found = json.loads(shell("doctor", "--json").out)["findings"]
    return {finding["what"]: finding for finding in found}


class TestBaseline:
    def test_gates_that_cannot_judge_are_told_before_anybody_is_paid(self, tmp_path: Path) -> None:
        """By init, doctor and run, each with what helps; a run does not start, unless a person says so."""
        home = Home(tmp_path / "project")
        gates = "gates: {test: 'echo the moon is full; no-such-runner'}\nsandbox: {mode: 'off'}\n"
        home.write("liza.yaml", f"agents: {{default: {{command: ['true']}}}}\n{gates}")
        home.commit()
        shell = Shell(home.directory)

        made = shell.ok("init", "Build a greeter")
        assert "no-such-runner: not found" in made
        assert "Next: mend what the gates said" in made
        looked = shell("doctor", "--no-baseline")
        assert (looked.code, "test is red on the base" in looked.out) == (1, True)

        for words in (("run", "--until-idle"), ("run", "--detach")):
            refused = shell(*words)
            assert refused.code == 6, refused
            assert "| the moon is full" in refused.err
            assert "likely: " in refused.err
            assert ".liza/runs/" in refused.err
        assert not list(shell.home.glob("runs/*plan"))

        started = shell("run", "--until-idle", "--no-baseline")
        assert started.code == 3
        assert list(shell.home.glob("runs/*plan"))


class TestDoctor:
    def test_a_project_is_looked_at_in_a_line_a_fact(self, shell: Shell) -> None:
        """Each line has a mark; what is not well says what to do; nothing fails, so the exit code is 0."""
        done = shell("doctor")

        assert done.code == 0, done
        assert {line.split()[0] for line in done.out.splitlines()} <= {"ok", "warn"}
        assert {"python", "git", "bubblewrap", "disk", "clock", "board"} <= findings(shell).keys()

    def test_the_machine_is_judged_without_a_project(self, tmp_path: Path) -> None:
        """Also outside of any repository."""
        done = Shell(tmp_path)("doctor")

        assert done.code == 0, done
        assert "supervisor" not in done.out

    def test_keys_are_told_by_name_only(self, shell: Shell) -> None:
        """A doctor's word can be pasted anywhere."""
        done = shell("doctor", OPENAI_API_KEY="sk-abcdefghijklmnopqrstuvwxyz")

        assert "OPENAI_API_KEY" in done.out
        assert "sk-abc" not in done.out

    @pytest.mark.parametrize("agent", ["{command: [not-there]}", "{backend: codex}"])
    def test_an_agent_that_is_not_there_is_told(self, tmp_path: Path, agent: str) -> None:
        """Before a planner tries it: the settings may have been written on another machine."""
        home = Home(tmp_path / "project")
        home.write("liza.yaml", f"agents: {{default: {agent}}}\n")
        home.commit()
        shell = Shell(home.directory)
        shell.ok("init", "Build a greeter")
        done = shell("doctor", PATH=os.defpath)

        assert done.code == 1
        assert "fail  settings" in done.out
        assert "on the PATH" in done.out

    def test_a_broken_board_is_a_failure(self, shell: Shell) -> None:
        """What would stop a run makes the exit code 1."""
        shell.edit("version: 2", "version: x")

        done = shell("doctor")

        assert done.code == 1
        assert "fail  board" in done.out

    def test_who_holds_the_lock_is_found(self, shell: Shell) -> None:
        """The process is the one that the kernel knows, whatever the file says."""
        lock = shell.home / files.SUPERVISOR_LOCK
        with files.hold_for_life(lock, at=utc_now()):
            assert f"process {os.getpid()}" in findings(shell)["supervisor"]["sentence"]
            lock.write_text("1 elsewhere 2026-01-01T00:00:00Z\n")
            found = findings(shell)["supervisor"]

        assert found["mark"] == "fail"
        assert f"process {os.getpid()} has it" in found["sentence"]

    def test_a_stale_worktree_is_found(self, shell: Shell) -> None:
        """A worktree of a task that nobody knows is named."""
        home = Home(shell.directory)
        home.worktrees.prepare("gone", home.base, at=NOW)

        assert "gone" in findings(shell)["worktrees"]["sentence"]

    def test_a_worktree_that_is_kept_to_be_looked_at_is_not_stale(self, tmp_path: Path) -> None:
        """`limits.kept_worktrees` of those that finished last; `liza recover` would keep them as well."""
        team = ScriptedTeam(tmp_path, limits={"kept_worktrees": 1})
        for task in ("t1", "t2"):
            team.task(task)
            team.turns("coder-1", "reviewer-1")

        said = findings(Shell(team.user.directory))["worktrees"]["sentence"]

        assert "t1" in said
        assert "t2" not in said

    def test_it_leaves_nothing_behind(self, shell: Shell) -> None:
        """Looking changes nothing."""
        before = sorted(shell.directory.rglob("*"))
        shell("doctor")

        assert sorted(shell.directory.rglob("*")) == before


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with every program but bubblewrap."""
    programs = tmp_path_factory.mktemp("bin")
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for name in os.listdir(directory) if os.path.isdir(directory) else ():  # noqa: PTH112, PTH208 - names are enough
            link = programs / name
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.join(directory, name))  # noqa: PTH118 - as above
    (programs / "bwrap").unlink(missing_ok=True)
    return {**os.environ, "PATH": str(programs), "PYTHONPATH": str(ROOT)}


def liza(shell: Shell, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "liza", *words],
        cwd=shell.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class TestWithoutBubblewrap:
    def test_auto_works_and_says_so_loudly(self, shell: Shell, bare: dict[str, str]) -> None:
        """At the start of a run, in the alerts, on the board once, and by the doctor."""
        shell.ok("abort")
        liza(shell, bare, "run")
        done = liza(shell, bare, "run")

        assert done.returncode == 4, done
        assert FREE in done.stdout
        assert FREE in (shell.home / "alerts.log").read_text()
        assert [each["type"] for each in shell.board()["anomalies"]] == ["no_sandbox"]
        assert "no_sandbox" in shell.ok("status")
        assert "warn  bubblewrap" in liza(shell, bare, "doctor").stdout

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("mode: auto", "mode: require"),
            ("network: full", "network: none"),
            pytest.param("network: full", "network: model-only", marks=pytest.mark.torture),
        ],
    )
    def test_what_only_a_cage_can_keep_is_refused(
        self, shell: Shell, bare: dict[str, str], old: str, new: str
    ) -> None:
        """One sentence and exit code 1, before anything is started."""
        shell.edit(old, new)

        done = liza(shell, bare, "run")

        assert done.returncode == 1, done
        assert done.stderr.count("\n") == 1
        assert "agents cannot run in a sandbox here: there is no bwrap" in done.stderr
        assert liza(shell, bare, "doctor").returncode == 1


def test_with_bubblewrap_nobody_is_warned(shell: Shell) -> None:
    """The warning is for those whom it concerns."""
    skip_without_sandbox()
    shell.ok("abort")

    assert "sandbox" not in shell("run").out
    assert shell.board()["config"]["sandbox"]["mode"] == "require", "from now on, whatever a trial says"
    assert "anomalies" not in shell.board() or shell.board()["anomalies"] == []


def test_the_remote_is_asked_for_all_that_hosts_want_of_it(tmp_path: Path) -> None:
    team = TeamOfHosts(tmp_path)
    shell, before = Shell(team.user.directory), team.refs()
    found = findings(shell)["remote"]
    assert found["mark"] == "ok"
    assert "has this history and lets you push" in found["sentence"]
    assert team.refs() == before

    other = Home(tmp_path / "other")
    other.git("checkout", "-q", "--orphan", "elsewhere")
    other.commit({"x": "another thing"})
    stranger = bare_repository(tmp_path / "stranger.git")
    other.git("push", "-q", str(stranger.directory), "HEAD:refs/heads/main")
    team.user.git("remote", "add", "mute", str(team.remote.directory))
    team.user.git("config", "remote.mute.receivepack", "false")
    for remote, said in (
        (str(stranger.directory), "has another history than this repository"),
        (str(tmp_path / "nowhere.git"), "cannot be reached"),
        ("mute", "cannot be reached"),
    ):
        team.board.update(Change("me", "remote", partial(with_remote, remote=remote)))
        found = findings(shell)["remote"]
        assert (found["mark"], found["do"]) == ("fail", "mend it there, or `remote` in liza.yaml")
        assert said in found["sentence"]


def with_remote(state: State, remote: str) -> State:
    return state.replace(config=state.config.replace(remote=remote))
