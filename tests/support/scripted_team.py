"""A repository, a board and a scripted team in one place, with workers that take one turn at a time."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza.board.file import FileBoard
from liza.daemon.jobs import take_turn
from liza.daemon.turn import AfterTurn, StopRequests, Worker
from liza.daemon.worker import with_worker_started
from liza.daemon.workflow_in_use import adopt_workflow
from liza.domain.changes import HUMAN, Change, add_note, violations
from liza.domain.config import Config
from liza.domain.model import Goal, Role, State, Status, Task
from liza.domain.record import utc_now
from liza.workflow.transition import add_task
from tests.support import scripted_agent
from tests.support.liza_process import ForkedProcess, be_worker
from tests.support.repos import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 120.0  # seconds that anything may take on a busy machine
ROOT: Final = Path(__file__).parents[2]

STEPS: Final = ("plan", "checkpoint", "implement", "review")


def dear(usd: float = 0.4, task: str = "t1") -> dict[str, Any]:
    """Return a script in which every run reports what it cost."""
    acts = {step: scripted_agent.by_default(step, task) for step in STEPS}
    return {step: {**act, "answer": {**act["answer"], "usage": {"usd": usd}}} for step, act in acts.items()}


class ScriptedTeam:
    """Everything that a run has, except for the supervisor."""

    def __init__(self, directory: Path, script: dict[str, Any] | None = None, **settings: Any) -> None:  # noqa: ANN401
        self.outside = directory / "outside"  # of the repository: scripts, and what agents note
        self.outside.mkdir()
        self.user = Home(directory / "project")
        self.home = self.user.directory / ".liza"
        self.script(script or {})
        command = [sys.executable, "-S", scripted_agent.__file__, str(self.outside / "script")]
        config = Config.model_validate(
            {
                "agents": {"default": {"command": command}},
                "workers": {"coder": 1},
                # Scripts and marks are outside of the repository; who tests the sandbox asks for it.
                "sandbox": {"mode": "off"},
                **settings,
            }
        )
        goal = Goal(description="make files", created=utc_now())
        self.board = FileBoard.create(self.home, State(revision=1, goal=goal, config=config))
        self.ref = self.user.repository.ensure_branch(config.integration_branch)
        self.workers: dict[str, Worker] = {}

    def script(self, script: dict[str, Any]) -> None:
        scripted_agent.save(script, self.outside / "script")

    def task(self, name: str = "t1", **fields: Any) -> None:  # noqa: ANN401 - whatever a task may be told
        now = utc_now()
        if not self.board.read().workflow.text:
            self.adopt()
        task = Task.model_validate(
            {
                "id": name,
                "description": f"do {name}",
                "status": Status.IDLE,
                "done_when": (f"{name}.txt is there",),
                "created": now,
                "created_by": "human",
                **fields,
            }
        )
        self.board.update(add_task(task, by=HUMAN, at=now))

    def adopt(self) -> None:
        """Let the board follow the workflow that its settings name, as a worker does before each turn."""
        adopt_workflow(self.board, self.user.directory, by="human")

    def note(self, text: str, about: str | None = None) -> None:
        self.board.update(add_note(text, about=about, by=HUMAN, at=utc_now()))

    def worker(self, name: str) -> Worker:
        """Return the worker *name*, such as coder-1, which is registered the first time."""
        if name not in self.workers:
            role = Role(name.partition("-")[0])
            worker = Worker(self.home, self.board, self.user.repository, role, name, StopRequests(self.board))
            self.board.update(Change(name, "start", lambda state: with_worker_started(worker, state)))
            self.workers[name] = worker
        return self.workers[name]

    def turn(self, name: str) -> AfterTurn:
        worker = self.worker(name)
        self.adopt()
        return take_turn(worker)

    def turns(self, *names: str) -> None:
        """Let workers take turns in this order, over and over, until none has anything to do."""
        for _ in range(30):
            if all(self.turn(name) is AfterTurn.WAIT for name in names):
                return
        raise AssertionError("they never come to an end")

    def status(self, name: str = "t1") -> Status | None:
        return self.state.status_of(name)

    @property
    def state(self) -> State:
        state = self.board.read()
        assert violations(state) == []
        return state

    def events(self, name: str = "t1") -> list[str]:
        """Return every event that ever happened to a task, renewals left out."""
        found: dict[tuple[Any, ...], str] = {}
        for entry in self.board.entries():
            tasks = entry.put.get("tasks", {})
            rows = tasks.get(name, {}) if isinstance(tasks, dict) else {}
            for item in rows.get("history", ()):
                found[(item["at"], item["event"], item["by"])] = item["event"]
        return list(found.values())

    def merged(self, path: str) -> str:
        """Return a file as the integration branch has it."""
        return self.user.git("show", f"{self.ref}:{path}")

    def head(self) -> str:
        return self.user.git("rev-parse", self.ref)

    @contextmanager
    def process(self, name: str, *, dies_at: str = "") -> Iterator[ForkedProcess]:
        """Run a worker as a process of its own, and see to it that none is left.

        It kills itself before it writes a file whose path has *dies_at*.
        """
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        worker = ForkedProcess(be_worker, self.home, name, environment, dies_at)
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait()

    def until(self, holds: Callable[[State], bool]) -> State:
        """Wait until the board says so."""
        deadline = time.monotonic() + PATIENCE
        state = self.board.read()
        while not holds(state):
            assert time.monotonic() < deadline, state.tasks
            state = self.board.wait(state.revision, 1.0)
        return state

    def noted(self, name: str = "note") -> list[str]:
        """Return what agents noted in a file there; wait until there is something."""
        path = self.outside / name
        deadline = time.monotonic() + PATIENCE
        while not path.exists() or not path.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return path.read_text().splitlines()
