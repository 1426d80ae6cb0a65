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

from liza.board.protocol import open_board
from liza.daemon import coding, planning, reviewing
from liza.daemon.flows import adopt_workflow, workflow_of
from liza.daemon.policy.admission import settle_reservations_of
from liza.daemon.policy.preconditions import RunContext, first_unmet
from liza.daemon.policy.staffing import CUT_OFF_CODE, PARENT_VARIABLE, RESTART_CODE
from liza.daemon.project_sandbox import require_sandbox
from liza.daemon.stop_requests import StopRequests
from liza.daemon.turn import RUNS, AfterTurn, Worker
from liza.domain.changes import Change
from liza.domain.events import Release, Renew
from liza.domain.model import Role, WorkerRecord, WorkerStatus
from liza.domain.record import printable, with_record
from liza.domain.switches import Switch
from liza.errors import FULL, BoardUnreachable, DiskTrouble, NoCage, RemoteTrouble, UsageError
from liza.repo.command import mark_processes
from liza.repo.repository import Repository
from liza.system.disk_space import disk_shortage
from liza.system.host import host
from liza.system.masking import environment_mask
from liza.system.platform import STOPPED
from liza.system.proc_table import RUN_MARK, process_of, send_signal
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.domain.model import State

COMPLETE: Final = 0  # exit code of a worker that has nothing more to do, or was told to go
POLL_INTERVAL: Final = 0.8  # seconds an idle worker waits for the board before it looks at the switches again
DISK_FULL_PAUSE: Final = timedelta(seconds=3)  # how long a worker that met a full disk leaves it alone
# Seconds after which it looks for work though nothing changed: leases end by themselves.
LONGEST_IDLE: Final = 20.0

TURNS: Final[dict[Role, Callable[[Worker], AfterTurn]]] = {
    Role.PLANNER: planning.take_turn,
    Role.CODER: coding.take_turn,
    Role.REVIEWER: reviewing.take_turn,
}

log = logging.getLogger(__name__)


def main(home: Path, role: Role, name: str) -> int:
    """Be the worker *name* until the goal is reached or somebody says stop; return the exit code."""
    if role not in TURNS:
        raise UsageError(f"there are no workers of the role {role}; known: {', '.join(TURNS)}")
    _mask_logs()
    board = open_board(home)
    orders = StopRequests(board, board.now)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: orders.add_signal())
    host().die_with(int(os.environ.get(PARENT_VARIABLE) or os.getppid()))
    host().adopt_orphans()
    mark_processes(RUN_MARK, str((home / RUNS).resolve() / f"{name}.git"))
    place = Worker(home, board, Repository.around(home.parent), role, name, orders, clock=board.now)
    try:
        with board.presence.hold(name, at=place.clock()):
            try:
                return serve(place)
            finally:
                _wake_supervisor(orders)
    except BoardUnreachable as error:  # nobody's failure: its host starts it again once the board is back
        log.warning("%s: %s", name, error)
        return CUT_OFF_CODE
    finally:
        board.close()


def _wake_supervisor(orders: StopRequests) -> None:
    """Let a supervisor that somebody stopped hear of ABORT."""
    parent = process_of(os.getppid())
    if parent and parent.state == STOPPED and orders.switch() is Switch.ABORT:
        send_signal(parent, signal.SIGCONT)


def _mask_logs() -> None:
    """Keep secrets out of the worker's log, in which also the words of a crash end."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_mask_record)
    sys.excepthook = lambda kind, error, trace: print(  # noqa: T201 - as Python itself does
        environment_mask().text("".join(traceback.format_exception(kind, error, trace))),
        end="",
        file=sys.stderr,
    )


def _mask_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = environment_mask().text(record.getMessage()), None
    return True


def serve(place: Worker) -> int:
    """Take turns until there are none left; return the exit code."""
    _update_when_room(place, Change(place.name, "start", lambda state: with_worker_started(place, state)))
    log.info("%s works on %s", place.name, place.repository.root)
    code = _take_turns(place)
    with suppress(DiskTrouble):  # the supervisor writes it down, too
        place.board.update(Change(place.name, "stop", lambda state: with_worker_stopped(place, state)))
    return code


def _take_turns(place: Worker) -> int:
    while True:
        try:
            code = _take_turn(place)
        except (DiskTrouble, OSError) as error:
            _release_on_full_disk(place, error)
        except RemoteTrouble as error:
            _release_without_remote(place, error)
        else:
            if code is not None:
                return code


def _take_turn(place: Worker) -> int | None:
    """Take a turn, or wait for one; return the exit code once there are none left."""
    state = place.board.read()
    found = first_unmet(worker_run_context(place, state))
    if found and found[0].ends:
        return COMPLETE
    if found or place.is_parked():
        place.board.wait(state.revision, POLL_INTERVAL)
        return None
    if _why_unfit(place, state) is not None:
        time.sleep(POLL_INTERVAL)  # it may be half saved
        if (wrong := _why_unfit(place, state)) is not None:
            place.stop_requests.pause(wrong)
        return None
    after = TURNS[place.role](place)
    if after is AfterTurn.WAIT:
        _idle(place, state.revision)
    return RESTART_CODE if after is AfterTurn.RESTART else None


def _why_unfit(place: Worker, state: State) -> str | None:
    """Let the board follow the workflow as it is now; return why nothing can be run."""
    try:
        workflow_of(state.config, place.repository.root)
        require_sandbox(state.config.sandbox)
        if why := place.why_unvetted(state):
            return f"{why}, then `liza resume` follows it"
        adopt_workflow(place.board, place.repository.root, by=place.name)
    except (UsageError, NoCage) as error:
        return f"{error}; mend it, then `liza resume`"
    return None


def worker_run_context(place: Worker, state: State) -> RunContext:
    cramped = disk_shortage(place.repository.root, state.config.limits.free_disk_mb)
    return RunContext(state, place.stop_requests.thrown(), shortage=cramped)


def _release_on_full_disk(place: Worker, error: DiskTrouble | OSError) -> None:
    """Give back what was taken when the disk was full, which is nobody's failure, and leave it alone."""
    if error.errno not in FULL:
        raise error
    log.warning("%s: %s", place.name, error)
    place.parked = place.clock() + DISK_FULL_PAUSE
    _update_when_room(
        place, Change(place.name, "give back", lambda state: with_tasks_released(place, state, str(error)))
    )


def _release_without_remote(place: Worker, error: RemoteTrouble) -> None:
    """Give back what was taken while the remote failed, which is nobody's failure, and leave it alone."""
    log.warning("%s: %s", place.name, error)
    place.parked = place.clock() + timedelta(seconds=place.exchange.note_failure(error))
    why = printable(str(error))
    _update_when_room(
        place, Change(place.name, "give back", lambda state: with_tasks_released(place, state, why))
    )


def _update_when_room(place: Worker, change: Change) -> None:
    """Apply *change* as soon as the disk has room for it, unless the run is aborted."""
    while True:
        try:
            place.board.update(change)
        except DiskTrouble as error:
            if error.errno not in FULL or place.stop_requests.switch() is Switch.ABORT:
                raise
            time.sleep(POLL_INTERVAL)  # nobody tells when there is room again
        else:
            return


def _idle(place: Worker, revision: int) -> None:
    """Wait until the board is past *revision* or a switch is thrown; every so often, look for work anyway."""
    due = (place.due - place.clock()).total_seconds() if place.due else LONGEST_IDLE
    deadline = time.monotonic() + min(LONGEST_IDLE, due)
    while (left := deadline - time.monotonic()) > 0:
        if (
            place.board.wait(revision, min(POLL_INTERVAL, left)).revision > revision
            or place.stop_requests.switch() is not Switch.NORMAL
        ):
            return


def with_worker_started(place: Worker, state: State) -> State:
    """Return the board with the worker RUNNING, and with everything released that an earlier process of its
    name held.
    """
    now = place.clock()
    known = state.agents.get(place.name)
    agent = WorkerRecord(
        id=place.name,
        role=place.role,  # type: ignore[arg-type]  # main has checked it
        host=known.host if known else None,
        labels=known.labels if known else (),
        status=WorkerStatus.RUNNING,
        since=now,
        crashes=known.crashes if known else (),
        refusals=known.refusals if known else 0,
        refusal=known.refusal if known else None,
    )
    state = settle_reservations_of(state, {place.name})
    state = with_tasks_released(place, state, f"{place.name} was started anew")
    return state.replace(agents=with_record(state.agents, agent))


def with_tasks_released(place: Worker, state: State, why: str) -> State:
    """Return the board with every task released that this worker holds."""
    now = place.clock()
    for task in state.tasks.values():
        if task.lease and task.lease.holder == place.name:
            by = place.actor(task.lease.token)
            lease = place.lease(state, task.lease.token)
            state = apply(Renew(expires=lease.expires), to=task.id, by=by, at=now)(state)
            state = apply(Release(reason=why), to=task.id, by=by, at=now)(state)
    return state


def with_worker_stopped(place: Worker, state: State) -> State:
    known = state.agents.get(place.name)
    if known is None:
        return state
    gone = known.replace(status=WorkerStatus.STOPPED, since=place.clock(), stopped_reason=None)
    return state.replace(agents=with_record(state.agents, gone))
