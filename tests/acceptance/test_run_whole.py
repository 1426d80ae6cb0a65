"""From a goal to merged work, by real processes, with and without deaths on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from liza import life
from liza.agents.sweep import left_behind, mark_of, table
from liza.board.file import FileBoard
from liza.invariants import violations
from liza.model import GoalStatus, State, Status
from liza.repo.repository import Repository
from tests.shell import ROOT, Shell
from tests.team import NAMES

PATIENCE: Final = 90.0  # seconds for a whole run on a busy machine
INTEGRATION: Final = "liza/integration"


class Project:
    """Somebody's repository with a goal, and the runs on it."""

    def __init__(self, root: Path, workers: str) -> None:
        self.root = root
        self.shell = Shell(root)
        self.git("init", "-q", "-b", "main")
        command = f"[{sys.executable}, {ROOT / 'tests' / 'team.py'}]"
        (root / "liza.yaml").write_text(
            f"agents: {{default: {{backend: command, command: {command}}}}}\nworkers: {workers}\n"
        )
        self.git("add", ".")
        self.git("commit", "-q", "-m", "begin")
        self.shell.ok("init", "Write three files")
        self.before = self.fingerprint()
        self.board = FileBoard(self.shell.home)
        self.log = root.parent / f"{root.name}.log"
        self.runs: list[subprocess.Popen[bytes]] = []

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def fingerprint(self) -> tuple[str, ...]:
        return (self.git("rev-parse", "HEAD"), self.git("status", "--porcelain"), self.git("ls-files", "-s"))

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "liza", "run", "--until-idle"]
        with self.log.open("ab") as log:
            run = subprocess.Popen(words, cwd=self.root, env=environment, stdout=log, stderr=log)
        self.runs.append(run)
        return run

    def until(self, status: Status) -> None:
        deadline = time.monotonic() + PATIENCE
        state = self.board.read()
        while all(task.status is not status for task in state.tasks.values()):
            assert time.monotonic() < deadline, self.log.read_text()
            state = self.board.wait(state.revision, 1.0)

    def ended(self, run: subprocess.Popen[bytes]) -> int:
        try:
            return run.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(self.log.read_text())

    def close(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                run.terminate()
                run.wait(PATIENCE)
        self.board.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    return Project(root, "{planner: 1, coder: 2, reviewer: 1}")


def is_done(project: Project) -> State:
    """Assert that all was merged once, that nothing is left, and that the user's checkout is as it was."""
    state = project.board.read()
    assert state.goal.status is GoalStatus.COMPLETE
    assert {task.id: task.status for task in state.tasks.values()} == dict.fromkeys(NAMES, Status.MERGED)
    assert violations(state) == []
    merges = project.git("log", "--merges", "--format=%s", INTEGRATION).splitlines()
    assert sorted(merges) == sorted(f"Merge {name}: write {name}.txt" for name in NAMES)
    for name in NAMES:
        assert project.git("show", f"{INTEGRATION}:{name}.txt") == f"{name}\n"
    assert project.fingerprint() == project.before
    assert left_behind(project.shell.home / "runs", lambda _: True) == []
    assert life.living(project.shell.home) == frozenset()
    assert len(project.git("worktree", "list").splitlines()) == 1
    assert Repository.around(project.root).commit_at(INTEGRATION) is not None
    return state


class TestWhole:
    def test_a_goal_becomes_merged_work(self, project: Project) -> None:
        """Issue: exit 0, every task MERGED, nothing left, the user's checkout untouched."""
        try:
            assert project.ended(project.start()) == 0, project.log.read_text()
            is_done(project)
        finally:
            project.close()

    def test_a_supervisor_that_is_killed_is_only_started_again(self, project: Project) -> None:
        try:
            first = project.start()
            project.until(Status.WORKING)
            first.kill()
            first.wait()
            assert project.ended(project.start()) == 0, project.log.read_text()
            is_done(project)
        finally:
            project.close()


def _victims(project: Project, run: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes of a run that may die: the supervisor, its workers, their agents."""
    everyone = table()
    workers = [pid for pid, it in everyone.items() if it.parent == run.pid and it.name != "git"]
    area = str(project.shell.home / "runs")
    agents = [pid for pid in everyone if (mark_of(pid) or "").startswith(area)]
    # One that has no worker yet is left alone, or it never gets anywhere.
    return [run.pid, *workers, *agents] if workers else []


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seed", "seconds"), [(7, 6.0), *(pytest.param(n, 45.0, marks=pytest.mark.torture) for n in range(3))]
)
def test_deaths_change_nothing_but_the_time_it_takes(tmp_path: Path, seed: int, seconds: float) -> None:
    """Issue: SIGKILL to a random worker, agent or the supervisor every few hundred milliseconds."""
    root = tmp_path / "project"
    root.mkdir()
    project = Project(root, "{planner: 1, coder: 3, reviewer: 2}")
    chance, kills = random.Random(seed), 0
    run, until = project.start(), time.monotonic() + seconds
    try:
        while run.poll() != 0:
            with suppress(subprocess.TimeoutExpired):
                run.wait(chance.uniform(0.5, 1.5) if time.monotonic() < until else PATIENCE)
            if run.returncode == -signal.SIGKILL:
                run = project.start()
            assert run.returncode in (None, 0), project.log.read_text()
            if run.returncode is None and time.monotonic() < until and (found := _victims(project, run)):
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
                kills += 1
        is_done(project)
        print(f"{kills} kills in {seconds:.0f} seconds, nothing lost")  # noqa: T201 - for `make torture`
        assert kills > 0
    finally:
        project.close()
