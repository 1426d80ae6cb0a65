"""The engines of the board, and what processes do to one of them in the contract suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.file import FileBoard
from liza.domain import events as e
from liza.domain.changes import Change
from liza.domain.record import utc_now
from liza.errors import Refused
from liza.workflow.transition import apply
from tests.boards import noted
from tests.stories import BASE, lease_of, worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from liza.board.protocol import Board
    from liza.domain.model import State


class Engine(NamedTuple):
    make: Callable[[Path, State], Board]  # a new store below an empty directory
    open: Callable[[Path], Board]  # another board on that store, in this process or another


def _make_file(place: Path, state: State) -> Board:
    return FileBoard.create(place / ".liza", state)


def _open_file(place: Path) -> Board:
    return FileBoard(place / ".liza")


ENGINES: Final[dict[str, Engine]] = {"file": Engine(_make_file, _open_file)}


class Store(NamedTuple):
    """A board of some engine, as a value that can be given to a process."""

    engine: str
    place: Path

    def open(self) -> Board:
        return ENGINES[self.engine].open(self.place)


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
        claim = e.Claim(lease=lease_of(coder, at=now), base_commit=BASE)
        taken = apply(claim, to=task, by=coder, at=now)(state)
        submit = e.FindNothing(summary=f"{name} did it")
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
        store.open().update(apply(e.Submit(commit="c" * 40), to=task, by=late, at=utc_now()))
    except Refused as refusal:
        pipe.send(str(refusal))
    else:
        pipe.send("taken")
