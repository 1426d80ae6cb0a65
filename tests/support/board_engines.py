"""The engines of the board, and what processes do to one of them in the contract suite."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.protocol import create_board_at, open_board
from liza.domain import lifecycle as e
from liza.domain.changes import Change
from liza.domain.config import Switch
from liza.domain.record import utc_now
from liza.errors import Refused
from liza.workflow.transition import apply
from tests.support.boards import noted
from tests.support.sample_tasks import BASE, lease_of, worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from liza.board.protocol import Board
    from liza.domain.model import State


# Where each engine makes a board that belongs to an empty directory, given the address of its server. Another
# engine is one more line.
ENGINES: Final[dict[str, Callable[[Path, str], str]]] = {
    "file": lambda place, _: str(place / ".liza"),
    "postgresql": lambda place, server: f"{server}#b{hashlib.sha256(bytes(place)).hexdigest()[:12]}",
}


class Store(NamedTuple):
    """A board of some engine, as a value that can be given to a process."""

    engine: str
    place: Path
    server: str = ""

    @property
    def location(self) -> str:
        # The home of a board that belongs to no checkout.
        os.environ["XDG_STATE_HOME"] = f"{self.place}.state"
        return ENGINES[self.engine](self.place, self.server)

    def create(self, state: State) -> Board:
        return create_board_at(self.location, state)

    def open(self) -> Board:
        return open_board(self.location)


def claim_what_is_left(store: Store, name: str, pipe: Connection) -> None:
    """Claim the first task that is free, finish it, and go on until none is left; say which they were."""
    board, coder = store.open(), worker(name)
    claimed: list[str] = []

    def make(state: State) -> State:
        free = (task.id for task in state.tasks.values() if task.status == "IDLE")
        if (task := next(free, None)) is None:
            return state
        now = utc_now()
        claimed.append(task)
        claim = e.Take(lease=lease_of(coder, at=now), base_commit=BASE)
        taken = apply(claim, to=task, by=coder, at=now)(state)
        submit = e.Report(nothing_to_do=f"{name} did it")
        return apply(submit, to=task, by=coder, at=now)(taken)

    change = Change(name, "claim", make)
    before = 0
    while (state := board.update(change)).revision and len(claimed) > before:
        before = len(claimed)
        assert state.task(claimed[-1]).assigned_to == name
    pipe.send(claimed)
    board.close()


def note_when_told(store: Store, pipe: Connection) -> None:
    """Say that it is ready, and then note every message it is sent."""
    board = store.open()
    board.read()
    pipe.send("ready")
    while (message := pipe.recv()) is not None:
        board.update(noted(message))
    board.close()


def die_inside(store: Store) -> None:
    """Leave a change by an exception that nobody expects."""
    board = store.open()

    def make(state: State) -> State:
        raise ZeroDivisionError(state.revision)

    try:
        board.update(Change("human", "die", make))
    except ZeroDivisionError:
        board.update(noted("went on"))


def submit_late(store: Store, task: str, token: str, pipe: Connection) -> None:
    """Submit *task* with a token that may have been taken over, and say what came of it."""
    late = worker("coder-1", token=token)
    try:
        store.open().update(apply(e.Report(commit="c" * 40), to=task, by=late, at=utc_now()))
    except Refused as refusal:
        pipe.send(str(refusal))
    else:
        pipe.send("taken")


def die_by_signal_inside(store: Store) -> None:
    """Be killed in the middle of a change, with the lock held."""

    def make(state: State) -> State:
        os.kill(os.getpid(), signal.SIGKILL)
        return noted("from the dead")(state)

    store.open().update(Change("human", "die", make))


def hold_until_told(store: Store, name: str, pipe: Connection) -> None:
    """Hold *name*, say so, and let go when told."""
    board = store.open()
    with board.presence.hold(name, at=utc_now()):
        pipe.send(os.getpid())
        pipe.recv()
    pipe.send("let go")
    board.close()


def throw_and_alert(store: Store, name: str, pipe: Connection) -> None:
    """Throw PAUSE and tell people, when told; say whether it was the first to throw it."""
    board = store.open()
    pipe.send("ready")
    pipe.recv()
    is_first = board.switches.throw(Switch.PAUSE, f"{name} wants it")
    for number in range(20):
        board.alerts.append(f"{name} {number} {'x' * 5000}", at=utc_now())
    pipe.send(is_first)
    board.close()


def take_when_told(store: Store, before: bytes, after: bytes, pipe: Connection) -> None:
    """Save the board's text with *after* in place of *before*, when told; say the revision it became."""
    board = store.open()
    data = board.text_at(board.read().revision).replace(before, after)
    pipe.send("ready")
    pipe.recv()
    pipe.send(board.take(data).revision)
    board.close()
