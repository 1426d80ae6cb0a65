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
from liza.daemon.jobs import TURNS, take_turn
from liza.daemon.policy.pick import RunContext, first_unmet, settle_reservations_of
from liza.daemon.policy.staffing import CUT_OFF_CODE, PARENT_VARIABLE, RESTART_CODE
from liza.daemon.project_sandbox import require_sandbox
from liza.daemon.turn import RUNS, AfterTurn, StopRequests, Worker
from liza.daemon.workflow_in_use import adopt_workflow, workflow_of
from liza.domain.changes import Change
from liza.domain.config import Switch
from liza.domain.lifecycle import Release, Renew
from liza.domain.model import Role, WorkerRecord, WorkerStatus
from liza.domain.record import printable, with_record
from liza.errors import FULL, BoardUnreachable, DiskTrouble, RemoteTrouble, SandboxUnavailable, UsageError
from liza.repo.command import mark_processes
from liza.repo.repository import Repository
from liza.system.disk_space import disk_shortage
from liza.system.files import environment_mask
from liza.system.host import host
from liza.system.platform import STOPPED
from liza.system.process import RUN_MARK, process_of, send_signal
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State

COMPLETE: Final = 0  # exit code of a worker that has nothing more to do, or was told to go
POLL_INTERVAL: Final = 0.8  # seconds an idle worker waits for the board before it looks at the switches again
DISK_FULL_PAUSE: Final = timedelta(seconds=3)  # how long a worker that met a full disk leaves it alone
# Seconds after which it looks for work though nothing changed: leases end by themselves.
LONGEST_IDLE: Final = 20.0
# Seconds in which many changes wake a planner once: nobody hands over to it, and most changes are not for it.
PLANNER_DEBOUNCE: Final = 0.1

log = logging.getLogger(__name__)


def main(home: Path, role: Role, name: str) -> int:
    """Run the worker *name* until the goal is complete or the run is stopped; return the exit code."""
    if role not in TURNS:
        raise UsageError(f"there are no workers of the role {role}; known: {', '.join(TURNS)}")
    _mask_logs()
    board = open_board(home)
    stop_requests = StopRequests(board, board.now)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_requests.add_signal())
    host().die_with(int(os.environ.get(PARENT_VARIABLE) or os.getppid()))
    host().adopt_orphans()
    mark_processes(RUN_MARK, str((home / RUNS).resolve() / f"{name}.git"))
    worker = Worker(home, board, Repository.around(home.parent), role, name, stop_requests, clock=board.now)
    try:
        with board.presence.hold(name, at=worker.clock()):
            try:
                return work_until_stopped(worker)
            finally:
                _wake_supervisor(stop_requests)
    except BoardUnreachable as error:  # nobody's failure: its host starts it again once the board is back
        log.warning("%s: %s", name, error)
        return CUT_OFF_CODE
    finally:
        board.close()


def _wake_supervisor(stop_requests: StopRequests) -> None:
    """Wake a supervisor that was stopped (SIGSTOP), so that it sees ABORT."""
    parent = process_of(os.getppid())
    if parent and parent.state == STOPPED and stop_requests.switch() is Switch.ABORT:
        send_signal(parent, signal.SIGCONT)


def _mask_logs() -> None:
    """Mask secrets in the worker's log, tracebacks included."""
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


def work_until_stopped(worker: Worker) -> int:
    """Take turns until the worker has to end; return the exit code."""
    _update_when_room(worker, Change(worker.name, "start", lambda state: with_worker_started(worker, state)))
    log.info("%s works on %s", worker.name, worker.repository.root)
    code = _take_turns(worker)
    with suppress(DiskTrouble):  # the supervisor writes it down, too
        worker.board.update(Change(worker.name, "stop", lambda state: with_worker_stopped(worker, state)))
    return code


def _take_turns(worker: Worker) -> int:
    while True:
        try:
            code = _take_turn(worker)
        except (DiskTrouble, OSError) as error:
            _release_on_full_disk(worker, error)
        except RemoteTrouble as error:
            _release_without_remote(worker, error)
        else:
            if code is not None:
                return code


def _take_turn(worker: Worker) -> int | None:
    """Take one turn, or wait where none is possible; return the exit code where the worker has to end."""
    state = worker.board.read()
    found = first_unmet(worker_run_context(worker, state))
    if found and found[0].ends:
        return COMPLETE
    if found or worker.is_parked():
        worker.board.wait(state.revision, POLL_INTERVAL)
        return None
    if _why_unfit(worker, state) is not None:
        time.sleep(POLL_INTERVAL)  # it may be half saved
        if (wrong := _why_unfit(worker, state)) is not None:
            worker.stop_requests.pause(wrong)
        return None
    after = take_turn(worker)
    if after is AfterTurn.WAIT:
        _idle(worker, state.revision)
    return RESTART_CODE if after is AfterTurn.RESTART else None


def _why_unfit(worker: Worker, state: State) -> str | None:
    """Adopt the workflow file as it is now; return why no job can run, or None."""
    try:
        workflow_of(state.config, worker.repository.root)
        require_sandbox(state.config.sandbox)
        if why := worker.why_unvetted(state):
            return f"{why}, then `liza resume` follows it"
        adopt_workflow(worker.board, worker.repository.root, by=worker.name)
    except (UsageError, SandboxUnavailable) as error:
        return f"{error}; mend it, then `liza resume`"
    return None


def worker_run_context(worker: Worker, state: State) -> RunContext:
    shortage = disk_shortage(worker.repository.root, state.config.limits.free_disk_mb)
    return RunContext(state, worker.stop_requests.thrown(), shortage=shortage)


def _release_on_full_disk(worker: Worker, error: DiskTrouble | OSError) -> None:
    """Release the task after the disk was full, which counts as no failure, and wait."""
    if error.errno not in FULL:
        raise error
    log.warning("%s: %s", worker.name, error)
    worker.parked = worker.clock() + DISK_FULL_PAUSE
    _update_when_room(
        worker, Change(worker.name, "give back", lambda state: with_tasks_released(worker, state, str(error)))
    )


def _release_without_remote(worker: Worker, error: RemoteTrouble) -> None:
    """Release the task after the remote failed, which counts as no failure, and wait."""
    log.warning("%s: %s", worker.name, error)
    worker.parked = worker.clock() + timedelta(seconds=worker.exchange.note_failure(error))
    why = printable(str(error))
    _update_when_room(
        worker, Change(worker.name, "give back", lambda state: with_tasks_released(worker, state, why))
    )


def _update_when_room(worker: Worker, change: Change) -> None:
    """Apply *change* as soon as the disk has room for it, unless the run is aborted."""
    while True:
        try:
            worker.board.update(change)
        except DiskTrouble as error:
            if error.errno not in FULL or worker.stop_requests.switch() is Switch.ABORT:
                raise
            time.sleep(POLL_INTERVAL)  # nobody tells when there is room again
        else:
            return


def _idle(worker: Worker, revision: int) -> None:
    """Wait until the board is past *revision* or a switch is thrown; every so often, look for work anyway."""
    due = (worker.due - worker.clock()).total_seconds() if worker.due else LONGEST_IDLE
    deadline = time.monotonic() + min(LONGEST_IDLE, due)
    while (left := deadline - time.monotonic()) > 0:
        if (
            worker.board.wait(revision, min(POLL_INTERVAL, left)).revision > revision
            or worker.stop_requests.switch() is not Switch.NORMAL
        ):
            break
    if worker.role is Role.PLANNER:
        time.sleep(PLANNER_DEBOUNCE)


def with_worker_started(worker: Worker, state: State) -> State:
    """Return the board with the worker RUNNING, and with everything released that an earlier process of its
    name held.
    """
    now = worker.clock()
    known = state.agents.get(worker.name)
    agent = WorkerRecord(
        id=worker.name,
        role=worker.role,  # type: ignore[arg-type]  # main has checked it
        host=known.host if known else None,
        labels=known.labels if known else (),
        status=WorkerStatus.RUNNING,
        since=now,
        crashes=known.crashes if known else (),
        refusals=known.refusals if known else 0,
        refusal=known.refusal if known else None,
    )
    state = settle_reservations_of(state, {worker.name})
    state = with_tasks_released(worker, state, f"{worker.name} was started anew")
    return state.replace(agents=with_record(state.agents, agent))


def with_tasks_released(worker: Worker, state: State, why: str) -> State:
    """Return the board with every task released that this worker holds."""
    now = worker.clock()
    for task in state.tasks.values():
        if task.lease and task.lease.holder == worker.name:
            by = worker.actor(task.lease.token)
            lease = worker.lease(state, task.lease.token)
            state = apply(Renew(expires=lease.expires), to=task.id, by=by, at=now)(state)
            state = apply(Release(reason=why), to=task.id, by=by, at=now)(state)
    return state


def with_worker_stopped(worker: Worker, state: State) -> State:
    known = state.agents.get(worker.name)
    if known is None:
        return state
    stopped = known.replace(status=WorkerStatus.STOPPED, since=worker.clock(), stopped_reason=None)
    return state.replace(agents=with_record(state.agents, stopped))
