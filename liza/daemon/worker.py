"""A resident worker: one process that finds its own work on the board, turn after turn."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.board.file import FileBoard
from liza.daemon import coding, planning, reviewing
from liza.daemon.flows import adopt_workflow, workflow_of
from liza.daemon.policy.admission import mourned
from liza.daemon.policy.preconditions import Setting, hindered
from liza.daemon.policy.staffing import AGAIN, PARENT
from liza.daemon.project_sandbox import required
from liza.daemon.stop_requests import Orders
from liza.daemon.turn import RUNS, Next, Place
from liza.domain.changes import Change
from liza.domain.events import Release, Renew
from liza.domain.model import Agent, AgentStatus, Role
from liza.domain.record import with_record
from liza.domain.switches import Switch
from liza.errors import FULL, DiskTrouble, NoCage, UsageError
from liza.repo.command import mark_processes
from liza.repo.repository import Repository
from liza.system import locks
from liza.system.disk_space import shortage
from liza.system.linux import adopt_orphans, die_with
from liza.system.masking import mask
from liza.system.proc_table import MARK, STOPPED, seen, send
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.domain.model import State

COMPLETE: Final = 0  # exit code of a worker that has nothing more to do, or was told to go
LOOK: Final = 0.8  # seconds an idle worker waits for the board before it looks at the switches again
FULL_PAUSE: Final = timedelta(seconds=3)  # how long a worker that met a full disk leaves it alone
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
    _mask_words()
    orders = Orders(home)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: orders.signalled())
    die_with(int(os.environ.get(PARENT) or os.getppid()))
    adopt_orphans()
    (home / locks.WORKERS).mkdir(exist_ok=True)
    mark_processes(MARK, str((home / RUNS).resolve() / f"{name}.git"))
    board = FileBoard(home)
    place = Place(home, board, Repository.around(home.parent), role, name, orders)
    with locks.held(home / locks.WORKERS / f"{name}.lock", at=place.clock()):
        try:
            return serve(place)
        finally:
            board.close()
            _wake_supervisor(orders)


def _wake_supervisor(orders: Orders) -> None:
    """Let a supervisor that somebody stopped hear of ABORT."""
    parent = seen(os.getppid())
    if parent and parent.state == STOPPED and orders.switch() is Switch.ABORT:
        send(parent, signal.SIGCONT)


def _mask_words() -> None:
    """Keep secrets out of the worker's log, in which also the words of a crash end."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_masked)
    sys.excepthook = lambda kind, error, trace: print(  # noqa: T201 - as Python itself does
        mask().text("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr
    )


def _masked(record: logging.LogRecord) -> bool:
    record.msg, record.args = mask().text(record.getMessage()), None
    return True


def serve(place: Place) -> int:
    """Take turns until there are none left; return the exit code."""
    _insisted(place, Change(place.name, "start", lambda state: arrived(place, state)))
    log.info("%s works on %s", place.name, place.repository.root)
    code = _turns(place)
    with suppress(DiskTrouble):  # the supervisor writes it down, too
        place.board.update(Change(place.name, "stop", lambda state: left(place, state)))
    return code


def _turns(place: Place) -> int:
    while True:
        try:
            code = _round(place)
        except (DiskTrouble, OSError) as error:
            _weathered(place, error)
        else:
            if code is not None:
                return code


def _round(place: Place) -> int | None:
    """Take a turn, or wait for one; return the exit code once there are none left."""
    state = place.board.read()
    found = hindered(setting_of(place, state))
    if found and found[0].ends:
        return COMPLETE
    if found or place.is_parked():
        place.board.wait(state.revision, LOOK)
        return None
    if _unfit(place, state) is not None:
        time.sleep(LOOK)  # it may be half saved
        if (wrong := _unfit(place, state)) is not None:
            place.orders.pause(wrong)
        return None
    after = TURNS[place.role](place)
    if after is Next.WAIT:
        _idle(place, state.revision)
    return AGAIN if after is Next.RESTART else None


def _unfit(place: Place, state: State) -> str | None:
    """Let the board follow the workflow as it is now; return why nothing can be run."""
    try:
        workflow_of(state.config, place.repository.root)
        required(state.config.sandbox)
        if why := place.unvetted(state):
            return f"{why}, then `liza resume` follows it"
        adopt_workflow(place.board, place.repository.root, by=place.name)
    except (UsageError, NoCage) as error:
        return f"{error}; mend it, then `liza resume`"
    return None


def setting_of(place: Place, state: State) -> Setting:
    cramped = shortage(place.repository.root, state.config.limits.free_disk_mb)
    return Setting(state, place.orders.thrown(), shortage=cramped)


def _weathered(place: Place, error: DiskTrouble | OSError) -> None:
    """Give back what was taken when the disk was full, which is nobody's failure, and leave it alone."""
    if error.errno not in FULL:
        raise error
    log.warning("%s: %s", place.name, error)
    place.parked = place.clock() + FULL_PAUSE
    _insisted(place, Change(place.name, "give back", lambda state: returned(place, state, str(error))))


def _insisted(place: Place, change: Change) -> None:
    """Let *change* happen as soon as the disk has room for it, unless somebody says stop before."""
    while True:
        try:
            place.board.update(change)
        except DiskTrouble as error:
            if error.errno not in FULL or place.orders.switch() is Switch.ABORT:
                raise
            time.sleep(LOOK)  # nobody tells when there is room again
        else:
            return


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
        refusals=known.refusals if known else 0,
        refusal=known.refusal if known else None,
    )
    state = mourned(state, {place.name})
    state = returned(place, state, f"{place.name} was started anew")
    return state.but(agents=with_record(state.agents, agent))


def returned(place: Place, state: State, why: str) -> State:
    """Return the board without anything that is held under the worker's name."""
    now = place.clock()
    for task in state.tasks.values():
        if task.lease and task.lease.holder == place.name:
            by = place.actor(task.lease.token)
            lease = place.lease(state, task.lease.token)
            state = apply(Renew(expires=lease.expires), to=task.id, by=by, at=now)(state)
            state = apply(Release(reason=why), to=task.id, by=by, at=now)(state)
    return state


def left(place: Place, state: State) -> State:
    known = state.agents.get(place.name)
    if known is None:
        return state
    gone = known.but(status=AgentStatus.STOPPED, since=place.clock(), stopped_reason=None)
    return state.but(agents=with_record(state.agents, gone))
