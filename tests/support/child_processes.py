"""What the child processes of the tests do; they are started by name, so they live in a module."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import yaml

import liza.board.polled_watch
import liza.board.watch  # noqa: F401 - a child that gave up its rights or its threads cannot import it any more
from liza.board import journal
from liza.board.file import FileBoard
from liza.board.journal import has_no_writer
from liza.daemon.jobs import take_job
from liza.daemon.turn import StopRequests, Worker
from liza.daemon.worker import with_worker_started
from liza.domain.changes import HUMAN, Change
from liza.domain.config import Switch
from liza.domain.lifecycle import Amend, Report
from liza.domain.model import Outcome, Role, Verdict
from liza.domain.record import utc_now
from liza.errors import DiskTrouble, LizaError
from liza.repo.repository import Repository
from liza.workflow.transition import apply
from tests.support.boards import noted
from tests.support.sample_tasks import BASE, new_task
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier, Event
    from pathlib import Path

    from liza.domain.model import State


LONGEST: Final = 60.0  # seconds after which a child stops by itself, whatever became of the test
NOBODY: Final = 65534  # the user and the group that own nothing


def claim_in_rounds(home: Path, name: str, rounds: int, start: Barrier, pipe: Connection) -> None:
    """Be a coder that claims what there is, whenever all are told to start; say what it got, if anything."""
    board = FileBoard(home)
    worker = Worker(home, board, Repository.around(home.parent), Role.CODER, name, StopRequests(board))
    board.update(Change(name, "start", lambda state: with_worker_started(worker, state)))
    for _ in range(rounds):
        start.wait(LONGEST)
        claimed = take_job(worker, BASE)
        if claimed:
            said = Verdict(gate="checkpoint", outcome=Outcome.PASS, at=utc_now())
            done = Report(nothing_to_do=f"{name} did it", verdicts=(said,))
            board.update(apply(done, to=claimed.task.id, by=worker.actor(claimed.token), at=utc_now()))
        pipe.send(claimed.task.id if claimed else None)
    board.close()


def throw_and_tell(home: Path, name: str, times: int, start: Barrier, pipe: Connection) -> None:
    """Throw PAUSE in every round, as all others do, and alert; say how often it was the first."""
    board, first = FileBoard(home), 0
    for number in range(times):
        start.wait(LONGEST)
        first += board.switches.throw(Switch.PAUSE, f"{name} wants it, {number}")
        board.alerts.append(f"{name} {number} {'x' * 9000}", at=utc_now())
        start.wait(LONGEST)
    pipe.send(first)


def write_note(home: Path, message: str) -> None:
    board = FileBoard(home)
    board.update(noted(message))
    board.close()


def update_slowly(home: Path, pipe: Connection) -> None:
    """Say "inside" from within a change, and come out of it when told."""

    def make(state: State) -> State:
        pipe.send("inside")
        pipe.recv()
        return noted("slow")(state)

    FileBoard(home).update(Change("human", "be slow", make))


def update_as_nobody(home: Path, message: str, pipe: Connection) -> None:
    """Become a user without rights, write a note, and say what came of it."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    board = FileBoard(home)
    try:
        pipe.send(str(board.update(noted(message)).revision))
    except LizaError as error:
        pipe.send(f"exit {error.exit_code}: {error}")


def read_as_nobody(home: Path, pipe: Connection) -> None:
    """Become a user without rights, and say what the board is to them."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    with closing(FileBoard(home)) as board:
        revision = board.absorb().revision
        pipe.send((revision, board.wait(revision, 0.01).revision, len(list(board.entries()))))


def open_for_ever(path: Path, pipe: Connection) -> None:
    """Say that it goes on, then open a file for writing and close it, again and again, until told to stop."""
    pipe.send("going on")
    while not pipe.poll():
        path.open("r+b").close()


def ask_for_writers(path: Path, times: int) -> None:
    for _ in range(times):
        has_no_writer(path)


def write_until_refused(home: Path, longest: int) -> None:
    """Write notes until no file may grow beyond *longest* bytes, and one more when it may again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    board = FileBoard(home)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, hard))
    done = 0
    try:
        for number in range(1000):
            board.update(noted(f"{number}"))
            done = number + 1
    except DiskTrouble:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert len(board.read().human_notes) == 3 + done
    board.update(noted("there is room again"))
    assert len(board.read().human_notes) == 4 + done


def count_times(home: Path, task: str, times: int, pipe: Connection) -> None:
    """Raise the priority of *task* so many times, and say which revisions that made."""
    board = FileBoard(home)
    pipe.send([board.update(raised(task)).revision for _ in range(times)])
    board.close()


def raised(task: str) -> Change:
    """Return the change that raises the priority of *task* by one, on whatever it is by then."""

    def make(state: State) -> State:
        event = Amend(fields={"priority": state.task(task).priority + 1})
        return apply(event, to=task, by=HUMAN, at=utc_now())(state)

    return Change("human", f"count {task}", make)


def read_plainly(path: Path, stop: Event, pipe: Connection) -> None:
    """Read the file as a program that knows nothing of Liza, and say what was seen of each revision."""
    seen: dict[int, set[bytes]] = {}
    while not stop.is_set():
        data = path.read_bytes()
        revision = yaml.load(data, yaml.CSafeLoader)["revision"]
        seen.setdefault(revision, set()).add(data)
    pipe.send(seen)


def fork_and_count(home: Path, task: str, times: int) -> None:
    """Share one board with forked children while threads of this process use it, and all count."""
    board = FileBoard(home)
    board.wait(board.read().revision, 0.01)  # so that there is a watch with its threads
    threads = [threading.Thread(target=_count, args=(board, task, times)) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = [_forked(board, task, times) for _ in range(4)]
    for thread in threads:
        thread.join()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(codes), codes
    last = threading.Thread(target=_count, args=(board, task, 1))
    before = board.read().revision
    last.start()
    assert board.wait(before, 60).revision > before
    last.join()
    board.close()


def _count(board: FileBoard, task: str, times: int) -> None:
    for _ in range(times):
        board.update(raised(task))


def _forked(board: FileBoard, task: str, times: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _count(board, task, times)
        board.wait(0, 1)
        board.close()
        code = 0
    finally:
        os._exit(code)


def wait_idly(home: Path, seconds: float, pipe: Connection) -> None:
    """Wait for a change that does not come, and say how much of the processor that took."""
    board = FileBoard(home)
    since = board.wait(0, 0).revision
    board.wait(since, 0.1)  # whatever is done once is done now
    start = time.process_time()
    board.wait(since, seconds)
    pipe.send(time.process_time() - start)
    board.close()


def wait_blindly(home: Path, pipe: Connection) -> None:
    """Wait where the kernel grants no watch, and say each new message."""
    board = FileBoard(home)
    state = board.read()
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    assert board._open_watch() is None
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    pipe.send("blind")
    while (since := pipe.recv()) is not None:
        state = board.wait(since, 60)
        pipe.send([note.message for note in state.human_notes.values()])
    board.close()


def remove_for_ever(path: Path, stop: Event) -> None:
    end = time.monotonic() + LONGEST
    while not stop.is_set() and time.monotonic() < end:
        path.unlink(missing_ok=True)


def count_and_tell(home: Path, task: str, pipe: Connection) -> None:
    """Raise the priority of *task* for ever, and say each count once it is done."""
    journal.SNAPSHOT_EVERY = 20_000  # type: ignore[misc]  # bytes: so that deaths hit snapshots as well
    board = FileBoard(home)
    while True:
        count = board.update(raised(task)).task(task).priority
        pipe.send_bytes(count.to_bytes(8, "big"))


class Interrupted(Exception):
    """What a signal handler raises, at any instruction."""


def count_interrupted(home: Path, task: str, times: int, pipe: Connection) -> None:
    """Count *task* up while a timer interrupts at random; say how many were done and how many were not."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    board, other = FileBoard(home), FileBoard(home)
    signal.signal(signal.SIGALRM, interrupt)
    done = broken = 0
    for _ in range(times):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-3))
            board.update(raised(task))
            signal.setitimer(signal.ITIMER_REAL, 0)
            done += 1
        except Interrupted:
            broken += 1
        if random.random() < 0.2:
            other.update(raised("t1"))
    assert board.read() == FileBoard(home).read()
    pipe.send((done, broken))


def make_board(home: Path, goal: str, pipe: Connection) -> None:
    """Make a board, and say its goal or why not."""
    state = story(new_task("t1"))
    try:
        board = FileBoard.create(home, state.replace(goal=state.goal.replace(description=goal)))
    except LizaError as error:
        pipe.send(str(error))
    else:
        pipe.send(board.read().goal.description)
