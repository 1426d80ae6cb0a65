"""The kernel tells which files of a directory changed."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from liza.board.watch import MISSED, Watch, open_watch, wait_for
from liza.system.host import host
from liza.system.run_control import wait_readable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.linux("elsewhere files are looked at every so often")

PATIENCE = 10.0
LONGEST = 120.0  # seconds until others of this user give one of the kernel's few watches back


@pytest.fixture(autouse=True)
def _granted(tmp_path: Path) -> None:
    """Wait until the kernel grants a watch: a user has 128 of them, and other tests run meanwhile."""
    until = time.monotonic() + LONGEST
    while True:
        try:
            return os.close(host().open_file_watch(tmp_path))
        except OSError as error:
            if error.errno != errno.EMFILE or time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_it_names_what_changed_and_not_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("as before")
    watch = host().open_file_watch(tmp_path)
    try:
        (tmp_path / "read").read_text()
        assert host().changed_files(watch) == set()
        (tmp_path / "made").write_text("new")
        (tmp_path / "made").rename(tmp_path / "moved")
        (tmp_path / "moved").unlink()
        assert wait_readable(watch, PATIENCE)
        assert host().changed_files(watch) == {"made", "moved"}
    finally:
        os.close(watch)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert open_watch(tmp_path / "gone", frozenset()) is None
    assert str(tmp_path / "gone") in caplog.text


def test_names_that_were_dropped_count_as_a_switch(tmp_path: Path) -> None:
    """The directory goes with its watch: nobody can tell any more what happened in it."""
    home = tmp_path / "home"
    home.mkdir()
    watch = Watch(home, frozenset({"ignored"}))
    (home / "ignored").write_text("")
    home.joinpath("ignored").unlink()
    assert (watch.wakeups, watch.alarms) == (0, 0)
    home.rmdir()
    watch.wait(0, PATIENCE)
    assert (watch.wakeups, watch.alarms) == (1, 1)
    watch.close()
    assert MISSED == ""


def test_closing_it_leaves_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/dev/fd")  # noqa: PTH208 - names are enough
    Watch(tmp_path, frozenset()).close()
    assert os.listdir("/dev/fd") == before  # noqa: PTH208 - names are enough


def test_one_that_nobody_holds_is_given_back(tmp_path: Path) -> None:
    """A user has few of them, and who forgets to close a board takes none away from others."""
    gc.collect()
    before = os.listdir("/dev/fd")  # noqa: PTH208 - names are enough
    watch = Watch(tmp_path, frozenset())
    assert os.listdir("/dev/fd") != before  # noqa: PTH208 - names are enough
    del watch
    gc.collect()
    assert os.listdir("/dev/fd") == before  # noqa: PTH208 - names are enough


def test_a_fork_leaves_the_watch_to_its_parent(tmp_path: Path) -> None:
    watch = Watch(tmp_path, frozenset())
    child = os.fork()
    if child == 0:
        watch.close()
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "made").write_text("new")
    watch.wait(0, PATIENCE)
    assert watch.wakeups
    watch.close()


@pytest.mark.parametrize("moment", ["_release_save", "_acquire_restore"])
def test_ctrl_c_in_the_middle_of_waiting_is_nothing_else(moment: str) -> None:
    """A handler may raise between two steps of Python's own waiting, when the lock is let go."""
    condition = threading.Condition()
    step = getattr(condition, moment)

    def interrupted(*saved: object) -> None:
        if moment == "_release_save":
            step(*saved)
        raise KeyboardInterrupt

    setattr(condition, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_for(condition, lambda: False, 0.01)
