"""Projects to run the daemon on: a repository, a board, and an agent that takes as long as it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from liza.board.file import FileBoard
from liza.daemon.project import HOME, IGNORED
from liza.domain.changes import HUMAN
from liza.domain.config import Config, Workers
from liza.domain.model import CostStats, Goal, Spend, State, Status, Task
from liza.domain.record import utc_now
from liza.repo.command import exclude
from liza.workflow.transition import add_task
from scripts.benchmark.bare import children_cpu
from scripts.benchmark.race import quantile

GRACE: Final = 20.0  # seconds that a run gets to end after SIGTERM, when it is in the way
TAIL: Final = 5  # lines of a run's log that tell why it failed
# A shell starts in a few milliseconds, where an interpreter would take longer than some of the steps.
AGENT: Final = """#!/bin/sh
cat >/dev/null
case $LIZA_STEP in
plan) answer='{"questions": ["What is it for?"]}' ;;
checkpoint) answer='{"intent": "add a file", "files_to_modify": ["'$LIZA_TASK'.txt"]}' ;;
implement) answer='{"status": "done", "summary": "Add a file"}'; echo "$LIZA_TASK" >"$LIZA_TASK.txt" ;;
review) answer='{"verdict": "approve", "reason": "it is there"}' ;;
esac
sleep "$1"
printf '```liza\\n%s\\n```\\n' "$answer"
"""


def git(at: Path, *words: str, stdin: bytes = b"") -> str:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    done = subprocess.run(["git", *who, *words], cwd=at, check=True, capture_output=True, input=stdin)
    return done.stdout.decode().strip()


class Project:
    """Somebody's repository with a goal, and the runs on it."""

    def __init__(self, place: Path, workers: Workers, step: float) -> None:
        self.root = place / "project"
        self.root.mkdir()
        self.agent = agent_in(place)
        self._log = place / "log"
        git(self.root, "init", "-q", "-b", "main")
        git(self.root, "commit", "-q", "--allow-empty", "-m", "begin")
        settings = {
            "agents": {"default": {"command": [str(self.agent), f"{step:g}"]}},
            "limits": {"max_coder_iterations": 1_000},  # a task that is stopped over and over is no failure
        }
        config = Config.model_validate({**settings, "workers": workers})
        self.home = self.root / HOME
        goal = Goal(description="Add files", created=utc_now())
        # That the agent never says what it costs is known from before: the first run of one of which
        # nothing is known has nothing beside it.
        silent = CostStats(kind="review command", runs=0, usd=0, silent=1)
        state = State(revision=1, goal=goal, config=config, spend=Spend(kinds=(silent,)))
        FileBoard.create(self.home, state).close()
        exclude(self.root, IGNORED)

    def add(self, *tasks: Task) -> None:
        with closing(FileBoard(self.home)) as board:
            for task in tasks:
                board.update(add_task(task, by=HUMAN, at=utc_now()))

    def state(self) -> State:
        with closing(FileBoard(self.home)) as board:
            return board.read()

    def histories(self) -> dict[str, list[tuple[float, str]]]:
        """Return when what happened to each task, from the journal: the board keeps only the last of it."""
        found: dict[str, set[tuple[float, str]]] = {}
        with closing(FileBoard(self.home)) as board:
            for entry in board.entries():
                for name, fields in entry.put.get("tasks", {}).items():
                    for item in fields.get("history", ()):
                        at = datetime.fromisoformat(str(item["at"])).timestamp()
                        found.setdefault(name, set()).add((at, item["event"]))
        return {name: sorted(events) for name, events in found.items()}

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the daemon, and see to it that it is gone on leaving."""
        words = [sys.executable, "-m", "liza", "run"]
        with self._log.open("ab") as log:
            run = subprocess.Popen(words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield run
        finally:
            _ended(run)

    def last_words(self) -> str:
        return " / ".join(self._log.read_text(errors="replace").splitlines()[-TAIL:])


def _ended(run: subprocess.Popen[bytes]) -> None:
    """End a run that is still there; its workers end by themselves when it is gone."""
    if run.poll() is None:
        run.terminate()
        try:
            run.wait(GRACE)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def agent_in(place: Path) -> Path:
    agent = place / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    return agent


def start_cost(place: Path, times: int) -> float:
    """Return the median of the seconds that the agent takes for a step in which it does not wait."""
    agent, took = agent_in(place), []
    environment = {**os.environ, "LIZA_STEP": "review", "LIZA_TASK": "t"}
    for _ in range(times):
        begun = time.monotonic()
        subprocess.run([agent, "0"], env=environment, input=b"", check=True, capture_output=True)
        took.append(time.monotonic() - begun)
    return quantile(sorted(took), 0.5)


def agent_cpu(place: Path, times: int) -> float:
    """Return the CPU seconds that the agent itself takes for a step in which it does not wait."""
    before = children_cpu()
    start_cost(place, times)
    return (children_cpu() - before) / times


def task(name: str, *, after: str | None = None, priority: int = 1) -> Task:
    return Task(
        id=name,
        description=f"Add {name}.txt",
        status=Status.IDLE,
        priority=priority,
        done_when=(f"{name}.txt is there",),
        depends_on=(after,) if after else (),
        created=utc_now(),
        created_by=HUMAN.id,
    )
