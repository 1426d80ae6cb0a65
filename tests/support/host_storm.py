"""Workers who claim and release tasks of a board on a server over a line that fails at random."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.protocol import open_board
from liza.domain import lifecycle as e
from liza.domain.changes import Change
from liza.domain.model import Actor, Lease, Role, State, Status
from liza.errors import BoardUnreachable, Refused
from liza.workflow.transition import apply
from tests.support.faulty_line import FaultyLine
from tests.support.sample_tasks import BASE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from multiprocessing.connection import Connection

    from liza.board.protocol import Board

LEASE: Final = timedelta(seconds=3)
SHORT_LEASE: Final = timedelta(seconds=0.1)  # of who will come too late
LATE_SHARE: Final = 0.08  # of the claims, whose holder only writes once its lease is another's
LATE_WRITE: Final = "late write of a lost lease"
PATIENCE: Final = 60.0  # seconds until a lease that is over is somebody else's


class Post(NamedTuple):
    """Where one worker stands: its name, its directory, and how it reaches the server."""

    name: str
    directory: str
    server: str  # the socket of the server

    @property
    def location(self) -> str:
        return f"postgresql:///postgres?host={self.directory}&port=5432&user=worker#storm"


class Held(NamedTuple):
    """A task that a worker was told is its own, by the clock that all processes of a machine share."""

    task: str
    token: str
    since: float
    until: float  # when it began to give it back, or its lease was over


class Told(NamedTuple):
    """What a worker says of one round."""

    faults: tuple[str, ...] = ()
    claimed: str | None = None  # the token, once that was acknowledged
    held: Held | None = None
    released: str | None = None
    taken_late: str | None = None  # a write that should have been refused


def work_in_storm(post: Post, life: int, pipe: Connection) -> None:
    """Claim and give back whatever is free, and say after each round what came of it, until killed."""
    os.environ["XDG_STATE_HOME"] = f"{post.directory}/state"
    line = FaultyLine(Path(post.directory), Path(post.server))
    with closing(open_board(post.location)) as board, ExitStack() as stack:
        _insist(board.read)
        _insist(lambda: stack.enter_context(board.presence.hold(post.name, at=board.now())))
        for number in count(1):
            told = _round(board, post.name, f"{post.name}.{life}.{number}")
            pipe.send(told._replace(faults=(*told.faults, *line.met())))


def _insist(work: Callable[[], object]) -> None:
    """Do *work*, again where the first word to the server already met a fault."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            work()
        except BoardUnreachable:
            assert time.monotonic() < deadline
        else:
            return


def _round(board: Board, name: str, token: str) -> Told:
    by = Actor(role=Role.CODER, id=name, token=token, run=token)
    is_late = random.random() < LATE_SHARE
    try:
        state = board.update(Change(name, "claim", _claim(board, by, SHORT_LEASE if is_late else LEASE)))
    except BoardUnreachable:
        return Told()
    task = next((one for one in state.tasks.values() if one.lease and one.lease.token == token), None)
    if task is None or task.lease is None:  # it may have none now
        board.wait(state.revision, LEASE.total_seconds())
        return Told()
    since, left = time.monotonic(), (task.lease.expires - board.now()).total_seconds()
    if is_late:
        return _write_late(board, task.id, by)._replace(claimed=token)
    held = Held(task.id, token, since, min(time.monotonic(), since + left))
    return _give_back(board, task.id, by)._replace(claimed=token, held=held)


def _give_back(board: Board, task: str, by: Actor) -> Told:
    try:
        board.update(apply(e.Release(reason=str(by.token)), to=task, by=by, at=board.now()))
    except BoardUnreachable:
        return Told()
    except Refused:  # it was held up until its lease was over
        return Told((LATE_WRITE,))
    return Told(released=by.token)


def _write_late(board: Board, task: str, by: Actor) -> Told:
    """Write when the lease is another's already, which has to be refused."""
    if not _wait_until_lost(board, task, str(by.token)):
        return Told()
    told = _give_back(board, task, by)
    return told._replace(released=None, taken_late=told.released)


def _claim(board: Board, by: Actor, length: timedelta) -> Callable[[State], State]:
    def make(state: State) -> State:
        free = [task.id for task in state.tasks.values() if task.status is Status.IDLE]
        # What it held before it was killed has to be over first: a worker has one task at a time.
        is_busy = any(task.lease and task.lease.holder == by.id for task in state.tasks.values())
        if is_busy or not free:
            return state
        now: datetime = board.now()
        lease = Lease(holder=by.id, token=str(by.token), expires=now + length)
        take = e.Take(lease=lease, base_commit=BASE)
        return apply(take, to=random.choice(free), by=by, at=now)(state)

    return make


def _wait_until_lost(board: Board, task: str, token: str) -> bool:
    """Return whether the lease *token* was taken away, which others do once it is over."""
    deadline = time.monotonic() + PATIENCE
    revision = 0
    while time.monotonic() < deadline:
        with suppress(BoardUnreachable):
            state = board.wait(revision, 1.0)
            lease, revision = state.task(task).lease, state.revision
            if lease is None or lease.token != token:
                return True
    return False
