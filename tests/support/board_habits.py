"""The habits of `tests.support.fake_worker` that need a board."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.board.file import FileBoard
from liza.daemon.turn import StopRequests
from liza.domain.lifecycle import Report, Take
from liza.domain.model import Actor, GoalStatus, Lease, Outcome, Role, Status, Verdict
from liza.domain.record import utc_now
from liza.system.process import RUN_MARK
from liza.workflow.transition import apply
from tests.support.fake_worker import starts
from tests.support.sample_tasks import BASE

if TYPE_CHECKING:
    from liza.domain.lifecycle import Event
    from tests.support.fake_worker import Worker

LONG: Final = timedelta(hours=1)


class GateCase:
    """A worker at its board."""

    def __init__(self, worker: Worker) -> None:
        self.board = FileBoard(worker.home)
        self.me = Actor(
            role=Role(worker.role), id=worker.name, token=f"{worker.name} {os.getpid()} {len(worker.name)}"
        )

    def lease(self, length: timedelta = LONG) -> Lease:
        return Lease(holder=self.me.id, token=str(self.me.token), expires=utc_now() + length)

    def do(self, event: Event, task: str) -> None:
        self.board.update(apply(event, to=task, by=self.me, at=utc_now()))


def hold(worker: Worker) -> int:
    """Claim t1 with an agent that outlives its worker, and wait."""
    desk = GateCase(worker)
    if desk.board.read().task("t1").status is Status.IDLE:
        desk.do(Take(lease=desk.lease(), base_commit=BASE), "t1")
        environment = {"PATH": os.environ["PATH"], RUN_MARK: str(worker.home / "runs" / f"{worker.name}-1")}
        agent = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
        worker.say(f"agent {agent.pid}")
    return worker.wait()


def pause(worker: Worker) -> int:
    """Pause everybody for something that only people can mend, and wait."""
    StopRequests(FileBoard(worker.home)).pause("nobody has the label")
    return worker.wait()


def dawdle(worker: Worker) -> int:
    """Claim t1 and let the lease run out."""
    desk = GateCase(worker)
    if desk.board.read().task("t1").status is Status.IDLE and len(starts(worker.home, worker.name)) == 1:
        desk.do(Take(lease=desk.lease(timedelta(seconds=0.5)), base_commit=BASE), "t1")
    return worker.wait()


def look(worker: Worker) -> int:
    """Read the board when started, as every worker does."""
    FileBoard(worker.home).read()
    return worker.wait()


def work(worker: Worker) -> int:
    """Find that there is nothing to do in any task, or confirm it."""
    desk = GateCase(worker)
    while (state := desk.board.read()).goal.status is GoalStatus.IN_PROGRESS and not worker.over.wait(0):
        for name, task in state.tasks.items():
            if desk.me.role is Role.CODER and task.status is Status.IDLE:
                desk.do(Take(lease=desk.lease(), base_commit=BASE), name)
                said = Verdict(gate="checkpoint", outcome=Outcome.PASS, at=utc_now())
                desk.do(Report(nothing_to_do="it is there", verdicts=(said,)), name)
            if desk.me.role is Role.REVIEWER and task.status is Status.READY_FOR_REVIEW:
                desk.do(Take(lease=desk.lease()), name)
                desk.do(Report(reason="so it is"), name)
        desk.board.wait(state.revision, 0.2)
    return 0
