"""A board in the middle of an afternoon, with everything on it that the page shows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.board.file import FileBoard
from liza.domain import lifecycle as e
from liza.domain.anomalies import ExternalBlocker
from liza.domain.changes import HUMAN, SUPERVISOR, Change, with_anomaly
from liza.domain.model import (
    Checkpoint,
    Evidence,
    Feedback,
    Goal,
    Lease,
    Outcome,
    Role,
    Status,
    Task,
    Validation,
    Verdict,
    WorkerRecord,
    WorkerStatus,
)
from liza.domain.record import records_by_id, utc_now
from liza.workflow.transition import apply, new_task_at_start
from tests.support.repos import Home
from tests.support.sample_tasks import CODER, OTHER_CODER, PLAIN, PLANNER, REVIEWER, board

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import Actor, State

HOSTILE: Final = "<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \u202egpj.exe"
CODE: Final = '"""Greetings."""\n\n\ndef greet(name):\n    return f"Hello, {name}!"\n'


class WebStory:
    """A repository and a board; *board* is where it stands after some hours."""

    def __init__(self, directory: Path) -> None:
        self.user = Home(directory)
        self.now = utc_now() - timedelta(hours=3)
        self.board = FileBoard.create(directory / ".liza", self._first())
        self._merge("greet")
        self._tell()

    def _first(self) -> State:
        names = {
            "greet": ("Greet people by their name", ()),
            "parse": ("Read names from the command line", ("greet",)),
            "colours": ("Colour the greeting", ("greet",)),
            "usage": ("Say how it is used", ("parse",)),
            "config": ("Read defaults from a file", ("parse", "colours")),
            "hostile": (HOSTILE, ()),
        }
        tasks = [
            new_task_at_start(PLAIN, self._described(name, text, needs), by=PLANNER, at=self.now)
            for name, (text, needs) in names.items()
        ]
        goal = Goal(description="A greeter that people like", created=self.now)
        workers = [
            WorkerRecord(id="planner-1", role=Role.PLANNER, since=self.now, status=WorkerStatus.RUNNING),
            WorkerRecord(id="coder-1", role=Role.CODER, since=self.now, status=WorkerStatus.RUNNING),
            WorkerRecord(id="coder-2", role=Role.CODER, since=self.now, status=WorkerStatus.RUNNING),
            WorkerRecord(id="reviewer-1", role=Role.REVIEWER, since=self.now, status=WorkerStatus.RUNNING),
        ]
        return board(*tasks, goal=goal, agents=records_by_id(workers))

    def _described(self, name: str, text: str, needs: tuple[str, ...]) -> Task:
        return Task(
            id=name,
            description=text,
            status=Status.IDLE,
            depends_on=needs,
            done_when=(f"{name} works",),
            created=self.now,
            created_by=PLANNER.id,
        )

    def _pass_time(self, minutes: int) -> datetime:
        self.now += timedelta(minutes=minutes)
        return self.now

    def do(self, task: str, event: e.Event, by: Actor, minutes: int = 4) -> None:
        self.board.update(apply(event, to=task, by=by, at=self._pass_time(minutes)))

    def _claim(self, task: str, by: Actor, base: str) -> None:
        lease = Lease(holder=by.id, token=by.token or "", expires=self.now + timedelta(hours=12))
        self.do(task, e.Take(lease=lease, base_commit=base), by)

    def _take_review(self, task: str) -> None:
        lease = Lease(holder=REVIEWER.id, token=REVIEWER.token or "", expires=self.now + timedelta(hours=12))
        self.do(task, e.Take(lease=lease), REVIEWER)

    def _merge(self, task: str) -> None:
        base = self.user.base
        self._claim(task, CODER, base)
        said = Checkpoint(
            intent="write greet() and its test",
            assumptions=("names are text",),
            validation=Validation(command="python3 -m unittest"),
            files_to_modify=("greet.py",),
        )
        self.do(task, e.Write(checkpoint=said), CODER)
        work = self.user.commit({"greet.py": CODE})
        self.do(task, e.Report(commit=work), CODER, 12)
        self._take_review(task)
        self.do(
            task,
            e.Report(
                outcome=Outcome.REVISE, reason="there is no test", feedback=(Feedback(message="add a test"),)
            ),
            REVIEWER,
        )
        self._claim(task, CODER, base)
        work = self.user.commit({"test_greet.py": "import greet\n"})
        self.do(task, e.Report(commit=work), CODER, 9)
        self._take_review(task)
        self.do(task, e.Report(commit=work), REVIEWER)
        self.do(task, e.Intend(onto=base, commit=work), REVIEWER, 1)
        self.do(task, e.Land(commit=work), REVIEWER, 1)

    def _tell(self) -> None:
        base = self.user.base
        self._claim("parse", CODER, base)
        work = self.user.commit({"cli.py": "import sys\nprint(sys.argv[1])\n"})
        seen = Evidence(command="python3 -m unittest", code=0, tail="Ran 4 tests in 0.1s\nOK", seconds=0.1)
        good = Verdict(gate="test", outcome=Outcome.PASS, at=self.now, evidence=seen)
        self.do("parse", e.Report(commit=work), CODER, 20)
        self.do(
            "parse",
            e.Report(
                outcome=Outcome.ASK, reason="It changes how people start it. Ship it?", verdicts=(good,)
            ),
            SUPERVISOR,
        )
        self._claim("colours", OTHER_CODER, base)
        self.do(
            "colours",
            e.Block(reason="the goal is not clear", questions=("Which colour, blue or green?",)),
            HUMAN,
        )
        self._claim("hostile", OTHER_CODER, base)
        details = ExternalBlocker(service="registry", symptom="it does not answer")
        self.board.update(
            Change("coder-2", "log an anomaly",
                   lambda state: with_anomaly(state, details, about="hostile", by="coder-2", at=self.now))
        )  # fmt: skip
        self._run("coder-1.20260131T120000.1", "greet", "implement", 0.31, 175)
        self._run("coder-1.20260131T130000.1", "parse", "implement", 0.42, 20)
        self._run("reviewer-1.20260131T123000.1", "greet", "review", 0.12, 155)

    def _run(self, name: str, task: str, step: str, usd: float, minutes: int) -> None:
        folder = self.board.home / "runs" / name
        folder.mkdir(parents=True)
        role = "reviewer" if step == "review" else "coder"
        (folder / "brief.json").write_text(json.dumps({"role": role, "step": step, "task": task}))
        (folder / "stdout").write_text(f"I look at the code.\n{HOSTILE}\nDone.\n")
        began = utc_now() - timedelta(minutes=minutes)
        usage = {"model": "sample", "usd": usd, "tokens_in": 900, "tokens_out": 90, "provenance": "reported"}
        reply = {"ending": "done", "text": "done", "began": began.isoformat(), "seconds": 90, "usage": usage}
        (folder / "reply.json").write_text(json.dumps(reply))
