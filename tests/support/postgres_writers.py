"""What processes do to a board on a server while it fails, and what must be true afterwards."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

from liza.board.protocol import open_board
from liza.domain.changes import Change, violations
from liza.errors import BoardUnreachable
from tests.support.boards import messages, noted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from liza.board.protocol import Board
    from liza.domain.model import State


def note_many(location: str, state_home: str, name: str, count: int, pipe: Connection) -> None:
    """Say that it has begun, note *count* messages and say each that was acknowledged; None at the end."""
    os.environ["XDG_STATE_HOME"] = state_home
    board = open_board(location)
    board.read()
    pipe.send("ready")
    for number in range(count):
        message = f"{name} {number}"
        try:
            board.update(noted(message))
        except BoardUnreachable:  # nobody knows whether it was done
            continue
        pipe.send(message)
    pipe.send(None)
    board.close()


def stop_inside(location: str, state_home: str, pipe: Connection) -> None:
    """Stop with the lock held, the first time that the change is made; then do it."""
    os.environ["XDG_STATE_HOME"] = state_home
    board = open_board(location)
    calls = []

    def make(state: State) -> State:
        calls.append(state.revision)
        if len(calls) == 1:
            pipe.send(os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
        return noted("from the stopped")(state)

    board.update(Change("human", "note", make))
    pipe.send(calls)
    board.close()


def hold_and_fork(location: str, state_home: str, pipe: Connection) -> None:
    """Hold a name, and have a child that outlives this process; say who it is."""
    os.environ["XDG_STATE_HOME"] = state_home
    board = open_board(location)
    board.wait(1, 0)
    with board.presence.hold("coder-1", at=board.now()):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        pipe.send(child)
        signal.pause()


def each_once(board: Board, acknowledged: Iterable[str]) -> int:
    """Assert that every acknowledged message is there once and no other twice; return how many there are."""
    state = board.read()
    found = Counter(messages(state))
    assert {message: found[message] for message in acknowledged} == dict.fromkeys(acknowledged, 1)
    assert max(found.values(), default=1) == 1
    assert [entry.revision for entry in board.entries()] == list(range(1, state.revision + 1))
    assert violations(state) == []
    assert board.at(state.revision)[0] == state
    return len(found)
