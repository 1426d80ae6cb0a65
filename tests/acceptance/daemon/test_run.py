"""`liza run`, `stop`, `watch` and `recover` as a stranger uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

import liza.daemon.background
import liza.daemon.supervisor  # noqa: F401 - imported here, so that no child of the shell has to
from liza.board.file import FileBoard
from liza.domain.changes import HUMAN
from liza.domain.lifecycle import Abandon, Block, Defer, Take
from liza.domain.model import Actor, Lease, Role
from liza.domain.record import utc_now
from liza.system import files
from liza.workflow.transition import apply
from tests.support.sample_tasks import BASE
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE: Final = 120.0  # seconds that anything may take on a busy machine
# With Ctrl-C ignored, as nohup, some CI and the `&` of a script start programs.
IN_THE_BACKGROUND: Final = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
TASK: Final = ("task", "add", "--id", "t1", "--description", "Say hello", "--done-when", "it prints hello")


@pytest.fixture
def empty(tmp_path: Path) -> Shell:
    """A project without a plan that its planner can make: it only asks, so that nobody has work."""
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(
        ["git", *identity, "commit", "-q", "--allow-empty", "-m", "begin"], cwd=tmp_path, check=True
    )
    shell = Shell(tmp_path)
    shell.ok("init", "Build a greeter")
    return shell


@pytest.fixture
def asking(empty: Shell) -> Shell:
    """A project in which only a person can make progress."""
    empty.ok(*TASK)
    planner = Actor(role=Role.PLANNER, id="planner-1")
    board = FileBoard(empty.home)
    question = ("Which colour?",)
    board.update(apply(Block(reason="unclear", questions=question), to="t1", by=HUMAN, at=utc_now()))
    board.update(apply(Defer(questions=question), to="t1", by=planner, at=utc_now()))
    board.close()
    return empty


@contextmanager
def running(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """A foreground run, ended at last whatever happens."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*IN_THE_BACKGROUND, sys.executable, "-m", "liza", "run"],
        cwd=shell.directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for_supervisor(shell)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def wait_for_supervisor(shell: Shell) -> files.Holder:
    path = shell.home / files.SUPERVISOR_LOCK
    eventually(lambda: files.holder_of(path) is not None)
    who = files.holder_of(path)
    assert who is not None
    return who


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for another process, which tells nobody when it is so far."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestRun:
    def test_until_idle_ends_with_3_and_names_the_command_that_helps(self, asking: Shell) -> None:
        done = asking("run", "--until-idle")
        assert done.code == 3, done
        assert 't1 is BLOCKED: Which colour? (`liza answer t1 "…"`)' in done.out
        assert "Which colour?" in (asking.home / "alerts.log").read_text()
        assert "outlived" not in done.out  # the git of this very run is nobody's leftover

    def test_with_abort_thrown_it_ends_with_4(self, asking: Shell) -> None:
        asking.ok("abort")
        done = asking("run")
        assert done.code == 4
        assert "`liza resume` takes it back" in done.out

    def test_with_abort_thrown_no_gate_is_tried_and_it_is_told(self, asking: Shell) -> None:
        """A baseline that was cut short ended without a word."""
        (asking.directory / "liza.yaml").write_text("gates: {test: sleep 60}\n")
        asking.ok("abort")

        done = asking("run")

        assert done.code == 4
        assert "`liza resume` takes it back" in done.out
        assert "trying" not in done.out

    def test_ctrl_c_ends_it_with_4_and_leaves_no_process(self, asking: Shell) -> None:
        with running(asking) as run:
            run.send_signal(signal.SIGINT)
            assert run.wait(PATIENCE) == 4
        assert files.live_workers(asking.home) == frozenset()

    def test_a_second_one_is_told_who_is_first(self, asking: Shell) -> None:
        """Pains A 7: the lock file names its holder."""
        with running(asking) as run:
            done = asking("run")
            assert done.code == 1
            assert done.err.startswith("liza: supervisor is already running: process ")
            assert f"process {run.pid} on {os.uname().nodename} since " in done.err

    def test_a_repository_without_a_commit_is_one_sentence(self, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
        shell = Shell(tmp_path)
        shell.ok("init", "x")
        done = shell("run")
        assert (done.code, len(done.err.splitlines())) == (1, 1)
        assert "has no commit yet" in done.err

    def test_a_damaged_board_is_5(self, asking: Shell) -> None:
        journal = asking.home / "journal.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b"greeter", b"grater"))
        assert asking("run").code == 5

    def test_it_says_what_it_applied_of_a_changed_team_file(self, asking: Shell) -> None:
        (asking.directory / "liza.yaml").write_text("workers: {coder: 1}\n")
        assert "applied from liza.yaml: workers.coder 2 -> 1" in asking("run", "--until-idle").out

    def test_a_disk_without_room_is_told_once_and_shown_by_status(self, empty: Shell) -> None:
        """Pains A 18: it blocks admission by name; nobody plans, and `--until-idle` does not wait for it."""
        (empty.directory / "liza.yaml").write_text("limits: {free_disk_mb: 1000000000}\n")
        done = empty("run", "--until-idle")
        assert done.code == 3, done
        alerts = (empty.home / "alerts.log").read_text()
        assert alerts.count("limits.free_disk_mb asks for 1000000000; make room") == 1
        assert "Disk      nothing new starts: " in empty.ok("status")

    @pytest.mark.parametrize("words", [("run",), ("run", "--detach")])
    def test_a_key_of_the_team_file_that_nobody_knows_is_2_and_the_nearest(
        self, asking: Shell, words: tuple[str, ...]
    ) -> None:
        (asking.directory / "liza.yaml").write_text("workers: {coders: 1}\n")
        done = asking(*words)
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert "did you mean 'coder'?" in done.err

    def test_without_a_board_it_names_init(self, tmp_path: Path) -> None:
        done = Shell(tmp_path)("run")
        assert (done.code, "liza init" in done.err) == (2, True)


class TestBackground:
    def test_detach_returns_when_it_runs_and_stop_when_it_does_not(self, asking: Shell) -> None:
        out = asking.ok("run", "--detach")
        who = wait_for_supervisor(asking)
        assert f"Running as process {who.pid};" in out
        assert os.getsid(who.pid) != os.getsid(0)
        log = asking.home / "supervisor.log"
        eventually(lambda: "Which colour?" in log.read_text())
        assert f"Stopped process {who.pid} on " in asking.ok("stop")
        assert not (asking.home / files.SUPERVISOR_LOCK).exists()
        assert "Ended as asked" in log.read_text()

    def test_detach_says_why_it_could_not(self, asking: Shell) -> None:
        asking.ok("run", "--detach")
        try:
            done = asking("run", "--detach")
            assert (done.code, "already running" in done.err) == (1, True)
        finally:
            asking.ok("stop")

    def test_stop_without_a_run_is_1_and_a_sentence(self, asking: Shell) -> None:
        done = asking("stop")
        assert (done.code, done.err) == (
            1,
            "liza: no supervisor is running here; `liza run` starts one\n",
        )


class TestWatch:
    def test_it_needs_no_supervisor_and_ends_with_the_goal(self, empty: Shell) -> None:
        empty.ok(*TASK)
        board = FileBoard(empty.home)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            [*IN_THE_BACKGROUND, sys.executable, "-m", "liza", "watch"],
            cwd=empty.directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as watch:
            assert watch.stdout is not None
            assert "0 of 1 tasks done" in watch.stdout.readline()
            empty.ok("pause", "lunch")
            assert "PAUSE is thrown: lunch" in watch.stdout.readline()
            board.update(apply(Abandon(reason="no longer wanted"), to="t1", by=HUMAN, at=utc_now()))
            assert "t1: abandoned -> ABANDONED (no longer wanted)" in watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            assert watch.wait(PATIENCE) == 0
        board.close()


class TestRecover:
    @pytest.fixture
    def crashed(self, empty: Shell) -> Shell:
        empty.ok(*TASK)
        lease_id = 1
        coder = Actor(role=Role.CODER, id="coder-1", token=str(lease_id))
        lease = Lease(holder="coder-1", token=str(lease_id), expires=utc_now() + timedelta(hours=1))
        board = FileBoard(empty.home)
        board.update(apply(Take(lease=lease, base_commit=BASE), to="t1", by=coder, at=utc_now()))
        board.close()
        return empty

    def test_a_dry_run_says_what_would_be_done_and_does_nothing(self, crashed: Shell) -> None:
        before = crashed.state.read_bytes()
        assert crashed.ok("recover", "--dry-run") == (
            "t1: take it from coder-1, because coder-1 does not run\n"
        )
        assert crashed.state.read_bytes() == before

    def test_it_is_done_once(self, crashed: Shell) -> None:
        actions = json.loads(crashed.ok("recover", "--json"))
        assert [action["action"] for action in actions] == ["ReclaimTask"]
        assert crashed.board()["tasks"][0]["status"] == "IDLE"
        assert crashed.ok("recover") == "There is nothing to put right.\n"

    def test_a_running_supervisor_has_no_second_rescuer(self, asking: Shell) -> None:
        with running(asking):
            assert asking("recover").code == 1
            assert asking.ok("recover", "--dry-run") == "There is nothing to put right.\n"


class TestWorker:
    @pytest.mark.parametrize("words", [("cook", "cook-1"), ("coder",), ()])
    def test_wrong_words_are_exit_2(self, empty: Shell, words: tuple[str, ...]) -> None:
        assert empty("worker", *words).code == 2
