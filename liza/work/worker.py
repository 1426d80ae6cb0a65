"""A resident worker: one process that finds its own work on the board, turn after turn."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Final

from liza import life
from liza.agents.kernel import adopt_orphans, die_with
from liza.board.file import FileBoard
from liza.changes import Change, apply
from liza.errors import UsageError
from liza.events import Release, Renew
from liza.model import Agent, AgentStatus, GoalStatus, Role
from liza.record import with_record
from liza.repo.repository import Repository
from liza.roles.admission import mourned
from liza.roles.staff import AGAIN, PARENT
from liza.switches import Switch
from liza.work import coding, planning, reviewing
from liza.work.orders import Orders
from liza.work.turn import Next, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.model import State

COMPLETE: Final = 0  # exit code of a worker that has nothing more to do, or was told to go
LOOK: Final = 0.8  # seconds an idle worker waits for the board before it looks at the switches again
NET: Final = 20.0  # seconds after which it looks for work though nothing changed: leases end by themselves

TURNS: Final[dict[Role, Callable[[Place], Next]]] = {
    Role.PLANNER: planning.turn,
    Role.CODER: coding.turn,
    Role.REVIEWER: reviewing.turn,
}

log = logging.getLogger(__name__)


def main(home: Path, role: Role, name: str) -> int:
    """Be the worker *name* until the goal is reached or somebody says stop; return the exit code."""
    if role not in TURNS:
        raise UsageError(f"there are no workers of the role {role}; known: {', '.join(TURNS)}")
    orders = Orders(home)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: orders.signalled())
    die_with(int(os.environ.get(PARENT) or os.getppid()))
    adopt_orphans()
    (home / life.WORKERS).mkdir(exist_ok=True)
    board = FileBoard(home)
    place = Place(home, board, Repository.around(home.parent), role, name, orders)
    with life.held(home / life.WORKERS / f"{name}.lock", at=place.clock()):
        try:
            return serve(place)
        finally:
            board.close()


def serve(place: Place) -> int:
    """Take turns until there are none left; return the exit code."""
    place.board.update(Change(place.name, "start", lambda state: arrived(place, state)))
    log.info("%s works on %s", place.name, place.repository.root)
    code = _turns(place)
    place.board.update(Change(place.name, "stop", lambda state: left(place, state)))
    return code


def _turns(place: Place) -> int:
    while True:
        state = place.board.read()
        switch = place.orders.switch()
        if switch is Switch.ABORT or state.goal.status is not GoalStatus.IN_PROGRESS:
            return COMPLETE
        if switch is not Switch.NORMAL:
            place.board.wait(state.revision, LOOK)
            continue
        after = TURNS[place.role](place)
        if after is Next.RESTART:
            return AGAIN
        if after is Next.WAIT:
            _idle(place, state.revision)


def _idle(place: Place, revision: int) -> None:
    """Wait until the board is past *revision* or a switch is thrown; every so often, look for work anyway."""
    due = (place.due - place.clock()).total_seconds() if place.due else NET
    deadline = time.monotonic() + min(NET, due)
    while (left := deadline - time.monotonic()) > 0:
        if (
            place.board.wait(revision, min(LOOK, left)).revision > revision
            or place.orders.switch() is not Switch.NORMAL
        ):
            return


def arrived(place: Place, state: State) -> State:
    """Return the board with the worker on it, and without what an earlier process of its name still held.

    Whoever holds the lock of the name knows that nobody else is at work under it.
    """
    now = place.clock()
    known = state.agents.get(place.name)
    agent = Agent(
        id=place.name,
        role=place.role,  # type: ignore[arg-type]  # main has checked it
        status=AgentStatus.RUNNING,
        since=now,
        crashes=known.crashes if known else (),
    )
    state = mourned(state, {place.name})
    for task in state.tasks.values():
        if task.lease and task.lease.holder == place.name:
            by = place.actor(task.lease.token)
            lease = place.lease(state, task.lease.token)
            state = apply(Renew(expires=lease.expires), to=task.id, by=by, at=now)(state)
            gone = Release(reason=f"{place.name} was started anew")
            state = apply(gone, to=task.id, by=by, at=now)(state)
    return state.but(agents=with_record(state.agents, agent))


def left(place: Place, state: State) -> State:
    known = state.agents.get(place.name)
    if known is None:
        return state
    gone = known.but(status=AgentStatus.STOPPED, since=place.clock(), stopped_reason=None)
    return state.but(agents=with_record(state.agents, gone))
