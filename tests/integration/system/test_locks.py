"""Locks between processes: one holder, released with it, and the same lock as any program's FileLock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from filelock import FileLock, Timeout

from liza.board.journal import BoardLock, Disk
from liza.domain.changes import HUMAN, Change
from liza.domain.record import utc_now
from liza.errors import AlreadyRunning, LizaError
from liza.system import files
from tests.support.boards import PATIENCE, new_board, noted

if TYPE_CHECKING:
    from liza.domain.model import State

ROOT: Final = Path(__file__).parents[3]
HOLDER: Final = """
import sys
from pathlib import Path
from liza.domain.record import utc_now
from liza.system import files as locks
with locks.hold_for_life(Path(sys.argv[1]), at=utc_now()):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    process.send_signal(how)
    with process:
        process.wait(PATIENCE)


class TestForLife:
    def test_one_holder_which_the_file_names(self, tmp_path: Path) -> None:
        """Whoever comes second is told who is there, also within one process."""
        path = tmp_path / "supervisor.lock"
        with files.hold_for_life(path, at=utc_now()):
            holder = files.holder_of(path)

            assert holder is not None
            assert holder.pid == os.getpid()
            with pytest.raises(AlreadyRunning, match=f"process {os.getpid()} on "):
                files.hold_for_life(path, at=utc_now()).__enter__()
        assert not path.exists()

    def test_a_kill_releases_it(self, tmp_path: Path) -> None:
        """The kernel gives the lock back, so that no file has to be removed by hand after a crash."""
        workers = tmp_path / files.WORKERS_DIRECTORY
        workers.mkdir()
        process = start_holder(workers / "coder-1.lock")
        assert files.live_workers(tmp_path) == {"coder-1"}
        files.remove_stale(tmp_path)
        assert (workers / "coder-1.lock").exists()

        end(process, signal.SIGKILL)

        assert files.live_workers(tmp_path) == frozenset()
        files.remove_stale(tmp_path)
        assert not (workers / "coder-1.lock").exists()
        with files.hold_for_life(workers / "coder-1.lock", at=utc_now()):
            assert files.live_workers(tmp_path) == {"coder-1"}

    def test_it_is_a_file_lock_of_other_programs(self, tmp_path: Path) -> None:
        """Who holds our name by filelock keeps us out, and we them."""
        path = tmp_path / "supervisor.lock"
        with FileLock(path), pytest.raises(AlreadyRunning):
            files.hold_for_life(path, at=utc_now()).__enter__()
        with files.hold_for_life(path, at=utc_now()), pytest.raises(Timeout):
            FileLock(path, timeout=0).acquire()

    def test_looking_keeps_nobody_out(self, tmp_path: Path) -> None:
        """A shared look at the very moment of a start is no holder."""
        path = tmp_path / "supervisor.lock"
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                files.is_held(path)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            for _ in range(200):
                with files.hold_for_life(path, at=utc_now()):
                    pass
        finally:
            stop.set()
            looker.join()


class TestWaiting:
    def test_patience_ends(self, tmp_path: Path) -> None:
        """An installation waits for another one, and not for ever."""
        path = tmp_path / "tool.lock"
        with FileLock(path), pytest.raises(LizaError, match=r"still holds .*tool\.lock after 0 seconds"):
            files.hold_patiently(path, 0).__enter__()
        with files.hold_patiently(path, 0), pytest.raises(Timeout):
            FileLock(path, timeout=0).acquire()

    def test_a_removed_file_is_no_lock(self, tmp_path: Path) -> None:
        """Whoever waited for a file that is gone locks the one that others see."""
        path, held, done = tmp_path / "pool.lock", threading.Event(), threading.Event()

        def wait() -> None:
            with files.hold_lock(path):
                held.set()
                done.wait(PATIENCE)

        first = files.LockFile(path)
        first.lock()
        waiter = threading.Thread(target=wait)
        waiter.start()
        path.unlink()
        first.close()
        try:
            assert held.wait(PATIENCE)
            assert files.is_held(path)
        finally:
            done.set()
            waiter.join()


class TestBoard:
    def test_who_changes_the_board_holds_a_file_lock(self, tmp_path: Path) -> None:
        """Another program's FileLock on state.yaml.lock times out while a change is made."""
        board = new_board(tmp_path)
        tried = []

        def change(state: State) -> State:
            with pytest.raises(Timeout):
                FileLock(tmp_path / "state.yaml.lock", timeout=0).acquire()
            tried.append(state)
            return noted("changed")(state)

        board.update(Change(str(HUMAN), "a change", change))

        assert len(tried) == 1
        with FileLock(tmp_path / "state.yaml.lock", timeout=0):
            pass
        assert board.read().revision == tried[0].revision + 1

    def test_a_file_lock_keeps_the_board_waiting(self, tmp_path: Path) -> None:
        """What another program does under its FileLock, no change of the board comes between."""
        path = tmp_path / "state.yaml.lock"
        waits, taken, order = threading.Event(), threading.Event(), []

        def take() -> None:
            lock = BoardLock(path, Disk())
            with lock.held(waits.set):
                order.append("board")
                taken.set()
            lock.close()

        taker = threading.Thread(target=take)
        with FileLock(path):
            taker.start()
            assert waits.wait(PATIENCE)
            assert not taken.wait(0.1)  # time in which a lock that does not count would be taken
            order.append("other")
        taker.join(PATIENCE)

        assert order == ["other", "board"]
