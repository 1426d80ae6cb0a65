"""From a goal to merged work, by real processes, with and without deaths on the way."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.daemon.policy import recovery
from liza.domain.changes import violations
from liza.domain.model import GoalStatus, State, Status
from liza.domain.record import utc_now
from liza.system.files import live_workers
from liza.system.process import leftover_processes, process_of
from tests.support import six_tasks_agent as six
from tests.support.liza_process import LizaProcess
from tests.support.random_kills import Storm
from tests.support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 240.0  # seconds for a whole run on a busy machine; a test may take 300
INTEGRATION: Final = "liza/integration"
TEAM: Final = "{planner: 1, coder: 3, reviewer: 2}"
OWN: Final = frozenset({".git", ".liza", ".worktrees"})
# Of git's directory, all that is the user's; objects and other refs are where Liza works.
USERS: Final = (
    "HEAD",
    "config",
    "index",
    "hooks",
    "info",
    "logs/HEAD",
    "refs/heads/main",
    "logs/refs/heads/main",
)


pytestmark = pytest.mark.timeout(2 * PATIENCE)


class Project:
    """Somebody's repository, with work of their own in it, a goal, and the runs on it."""

    def __init__(self, root: Path, workers: str, *agent: str, gate: str = six.GATE, more: str = "") -> None:
        self.root = root
        self.shell = Shell(root)
        self.outside = root.parent / "outside"
        self.outside.mkdir()
        self.git("init", "-q", "-b", "main")
        command = json.dumps(agent or six.words(self.outside))
        settings = f"agents: {{default: {{backend: command, command: {command}}}}}\nworkers: {workers}\n"
        settings += more
        settings += f"sandbox: {{write: [{json.dumps(str(self.outside))}]}}\n"
        for name, text in {
            "liza.yaml": f"{settings}gates: {{test: {gate}}}\n",
            **six.SEEDS,
        }.items():
            (root / name).write_text(text)
        (root / ".gitignore").write_text("*.log\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "begin")
        self._begin_work()
        self.shell.ok("init", "Write the parts")
        self.before = self.fingerprint()
        self.board = FileBoard(self.shell.home)
        self.log = root.parent / f"{root.name}.log"
        self.runs: list[LizaProcess] = []

    def _begin_work(self) -> None:
        """Leave the checkout as people do: something staged, changed, untracked, ignored, and a hook."""
        (self.root / "staged.txt").write_text("staged\n")
        self.git("add", "staged.txt")
        (self.root / "staged.txt").write_text("staged, then changed\n")
        (self.root / "untracked.txt").write_text("mine\n")
        (self.root / "mine.log").write_text("ignored\n")
        hook = self.root / ".git" / "hooks" / "pre-commit"
        hook.write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def fingerprint(self) -> dict[str, str]:
        """Return every file that is the user's, ignored ones and git's among them, by what it is."""
        mine = [path for path in self.root.iterdir() if path.name not in OWN]
        roots = [*mine, *(self.root / ".git" / name for name in USERS)]
        files = [path for root in roots for path in (root, *root.rglob("*")) if os.path.lexists(path)]
        return {str(path.relative_to(self.root)): _digest(path) for path in files}

    def start(self) -> LizaProcess:
        run = LizaProcess("run", "--until-idle", cwd=self.root, log=self.log)
        self.runs.append(run)
        return run

    def until(self, status: Status) -> None:
        deadline = time.monotonic() + PATIENCE
        state = self.board.read()
        while all(task.status is not status for task in state.tasks.values()):
            assert time.monotonic() < deadline, self.log.read_text()
            state = self.board.wait(state.revision, 1.0)

    def eventually(self, is_so: Callable[[], bool]) -> float:
        """Wait for processes, which tell nobody; return how long it took."""
        began = time.monotonic()
        while not is_so():
            assert time.monotonic() - began < PATIENCE, self.log.read_text()
            time.sleep(0.01)
        return time.monotonic() - began

    def ended(self, run: LizaProcess) -> int:
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


def _digest(path: Path) -> str:
    facts = path.lstat()
    content = path.read_bytes() if path.is_file() else b""
    return f"{facts.st_mode:o} {facts.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    found = begun(tmp_path, TEAM)
    yield found
    found.close()


def begun(place: Path, workers: str, *agent: str, gate: str = six.GATE, more: str = "") -> Project:
    root = place / "project"
    root.mkdir()
    return Project(root, workers, *agent, gate=gate, more=more)


def is_done(project: Project) -> State:
    """Assert that all was merged once, that nothing is left, and that what is the user's is as it was."""
    state = project.board.read()
    assert state.goal.status is GoalStatus.COMPLETE
    assert {task.id: task.status for task in state.tasks.values()} == dict.fromkeys(six.NEEDS, Status.MERGED)
    assert violations(state) == []
    merges = project.git("log", "--merges", "--format=%s", INTEGRATION).splitlines()
    assert sorted(merges) == sorted(f"Merge {name}: write part {name}" for name in six.NEEDS)
    for name, needs in six.NEEDS.items():
        assert project.git("show", f"{INTEGRATION}:parts/{name}").split() == [name, *needs]
    assert project.git("show", f"{INTEGRATION}:owners.txt") == "owners: left right\n"
    assert project.shell.ok("verify") == "VERIFIED: 6 merges\n"
    is_green(project)
    is_reachable(project)
    is_clean(project)
    return state


def is_green(project: Project) -> None:
    """Run the tests of every commit that the integration branch ever was at."""
    chain = project.git("rev-list", "--first-parent", INTEGRATION).split()
    assert len(chain) == len(six.NEEDS) + 1
    for commit in chain:
        out = project.outside / commit
        out.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=project.root, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x"], cwd=out, input=archive.stdout, check=True)
        assert subprocess.run(["sh", "check.sh"], cwd=out, check=False).returncode == 0, commit


def is_reachable(project: Project) -> None:
    """Every commit that an agent ever made is reached by some ref."""
    made = set((project.outside / "commits").read_text().split())
    assert len(made) >= len(six.NEEDS)
    assert made <= set(project.git("rev-list", "--glob=refs/*").split())


def is_clean(project: Project) -> None:
    assert project.fingerprint() == project.before
    assert leftover_processes(project.shell.home / "runs", lambda _: True) == []
    assert live_workers(project.shell.home) == frozenset()
    assert [path for path in project.shell.home.rglob("*.lock") if is_locked(path)] == []
    done = [task.id for task in recovery.finished_tasks(project.board.read())]
    kept = done[-project.board.read().config.limits.kept_worktrees :]
    area = [path.name for path in (project.root / ".worktrees").iterdir()]
    assert sorted(name for name in area if not name.startswith(".")) == sorted(kept)
    assert len(project.git("worktree", "list").splitlines()) == 1 + len(kept)
    branches = project.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/task").split()
    assert sorted(branches) == sorted(done)
    project.eventually(lambda: processes_in(project.root) == [])  # git of a killed worker ends by itself


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def processes_in(root: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.readlink().is_relative_to(root):
                found.append(int(path.parent.name))
    return found


class TestWhole:
    def test_a_goal_of_six_tasks_becomes_merged_work(self, project: Project) -> None:
        """Issue: exit 0, every task MERGED, green at every commit, nothing left, the checkout untouched.

        Two tasks conflict: one merges, the other becomes INTEGRATION_FAILED and is resolved.
        """
        assert project.ended(project.start()) == 0, project.log.read_text()
        state = is_done(project)
        failed = [task.id for task in state.tasks.values() if task.integration_failures]
        assert len(failed) == 1
        assert failed[0] in six.RIVALS
        assert "owners.txt" in (project.shell.home / "journal.jsonl").read_text()
        told = "".join(path.read_text() for path in (project.shell.home / "workers").glob("coder-*.log"))
        assert all(f"INFO {name}: claimed, iteration 1" in told for name in six.NEEDS)


ENDLESS: Final = """cat > /dev/null
case $LIZA_STEP in
plan) answer='{"questions": ["What is it for?"]}' ;;
checkpoint) answer='{"intent": "begin", "files_to_modify": ["half.txt"]}' ;;
implement) echo "$LIZA_TASK" > half.txt; echo $$ > "$0/$LIZA_TASK"; sleep 600 ;;
esac
printf '```liza\\n%s\\n```\\n' "$answer"
"""
AGENTS: Final = 8
SOON: Final = 1.0  # seconds


def sleeping(project: Project) -> list[int]:
    """Return the agents that sleep, by pids of the host: in a sandbox they count from one."""
    found = leftover_processes(project.shell.home / "runs", lambda _: True)
    return [one.pid for one in found if one.name == "sleep"]


def test_abort_during_a_pause_of_eight_agents_ends_all_and_saves_their_work(tmp_path: Path) -> None:
    """Issue: all ended within a second, all work saved."""
    team = f"{{planner: 1, coder: {AGENTS}, reviewer: 1}}"
    project = begun(tmp_path, team, "sh", "-c", ENDLESS, str(tmp_path / "outside"))
    names = [f"t{number}" for number in range(AGENTS)]
    try:
        for name in names:
            project.shell.ok("task", "add", "--id", name, "--description", "x", "--done-when", "y")
        run = project.start()
        notes = [project.outside / name for name in names]
        project.eventually(lambda: all(note.exists() and note.read_text() for note in notes))
        # One that has written its note may not have become `sleep` yet.
        project.eventually(lambda: len(sleeping(project)) == AGENTS)
        pids = sleeping(project)
        project.shell.ok("pause")
        project.eventually(
            lambda: all((it := process_of(pid)) is not None and it.state == "T" for pid in pids)
        )
        project.shell.ok("abort")
        took = project.eventually(lambda: not any(is_running(pid) for pid in pids))
        assert project.ended(run) == 4
        assert took < SOON * crowd()
        saved = json.loads(project.shell.ok("salvage", "list", "--json"))
        held = {one["task"]: project.git("show", f"{one['ref']}:half.txt") for one in saved}
        assert held == {name: f"{name}\n" for name in names}
        assert {task.status for task in project.board.read().tasks.values()} == {Status.IDLE}
        assert leftover_processes(project.shell.home / "runs", lambda _: True) == []
        assert project.fingerprint() == project.before
    finally:
        project.close()


ONE_ENDS: Final = """cat > /dev/null
case $LIZA_STEP in
checkpoint) answer='{"intent": "begin"}' ;;
implement)
    echo x > "$LIZA_TASK.txt"
    test $LIZA_TASK = t1 || sleep 600
    answer='{"status": "done", "summary": "Add it"}' ;;
review) answer='{"verdict": "approve", "reason": "it is there"}' ;;
esac
printf '```liza\\n%s\\n```\\n' "$answer"
"""


def test_a_merged_tasks_worktree_goes_while_others_work_and_its_branch_stays(tmp_path: Path) -> None:
    """Making a worktree costs seconds where reusing one costs a tenth: it goes back as soon as it can."""
    team, none_kept = "{planner: 1, coder: 1, reviewer: 1}", "limits: {kept_worktrees: 0}\n"
    project = begun(tmp_path, team, "sh", "-c", ONE_ENDS, gate="'true'", more=none_kept)
    one, area = ("--description", "x", "--done-when", "y"), project.root / ".worktrees"
    try:
        project.shell.ok("task", "add", "--id", "t1", *one)
        project.shell.ok("task", "add", "--id", "t2", "--depends-on", "t1", *one)
        run = project.start()
        project.until(Status.MERGED)
        project.eventually(lambda: not (area / "t1").exists() and (area / "t2").exists())
        assert "refs/heads/task/t1" in project.git("for-each-ref")  # until the task is archived
        assert utc_now() - project.board.read().task("t1").history[-1].at < recovery.CLEANUP_GRACE
        run.terminate()
        assert project.ended(run) == 4
    finally:
        project.close()


def crowd() -> float:
    """Return how many processes want each core: what takes a second alone takes as many then.

    Two at least: on a machine that was idle until now, other tests of ours run.
    """
    return max(2.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def is_running(pid: int) -> bool:
    process = process_of(pid)
    return process is not None and process.state not in "ZX"


def told(project: Project) -> str:
    """Return what the run said, and what the board remembers of the tasks that are not merged."""
    tasks = [task for task in project.board.read().tasks.values() if task.status is not Status.MERGED]
    entries = [
        f"{one.at:%H:%M:%S} {one.by} {task.id} {one.event} {one.facts}"
        for task in tasks
        for one in task.history
    ]
    return "\n".join((project.log.read_text(), *entries))


LEAST: Final = 10  # kills, or a long run with deaths shows nothing


@pytest.mark.parametrize(
    ("seed", "most", "pace"),
    [(7, 8, "0"), *(pytest.param(n, 60, "1", marks=pytest.mark.torture) for n in range(3))],
)
def test_deaths_change_nothing_but_the_time_it_takes(
    tmp_path: Path, seed: int, most: int, pace: str, count: Callable[[str, int], None]
) -> None:
    """Issue: SIGKILL to a random worker, agent or the supervisor every few hundred milliseconds.

    The first is for the supervisor while somebody works: it is only started again.
    """
    project = begun(tmp_path, TEAM, *six.words(tmp_path / "outside", pace))
    chance = random.Random(seed)
    storm = Storm(project.shell.home, chance)
    run = project.start()
    try:
        project.until(Status.WORKING)
        run.kill()
        assert run.wait() == -signal.SIGKILL
        run = project.start()
        while run.poll() != 0:
            with suppress(subprocess.TimeoutExpired):
                run.wait(chance.uniform(0.2, 0.6) if storm.kills.total() < most else PATIENCE)
            if run.returncode == -signal.SIGKILL:
                run = project.start()
            assert run.returncode in (None, 0), told(project)
            if run.returncode is None and storm.kills.total() < most:
                storm.strike(run.pid)
        is_done(project)
        for kind, number in storm.kills.items() if most > 8 else ():
            count(f"kills in the middle of a run: {kind}", number)
        assert storm.kills.total() >= min(LEAST, most // 2)
    finally:
        project.close()
