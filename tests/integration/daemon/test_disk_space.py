"""A disk without room: nothing new starts, nobody counts it as a failure, and it goes on by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.changes import HUMAN, Change
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.errors import FULL, DiskTrouble
from liza.system.disk_space import disk_shortage
from tests.support.repos import Home
from tests.support.scripted_team import PATIENCE, ROOT, ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.domain.model import State

EVER: Final = 10**9  # megabytes that no disk has
SIZE: Final = "24m"


def test_the_sentence_names_the_limit_and_what_to_do(tmp_path: Path) -> None:
    said = disk_shortage(tmp_path, EVER)
    assert said is not None
    assert str(tmp_path) in said
    assert f"limits.free_disk_mb asks for {EVER}; make room" in said
    assert disk_shortage(tmp_path, 0) is None


def test_a_worker_claims_nothing_below_the_floor_and_goes_on_above_it(tmp_path: Path) -> None:
    """Pains A 18: a free-space floor blocks admission by name."""
    here = ScriptedTeam(tmp_path, limits={"free_disk_mb": EVER})
    here.task()
    with here.process("coder-1"):
        here.until(lambda state: "coder-1" in state.agents)
        lowered = utc_now()
        here.board.update(Change(HUMAN.id, "lower the floor", without_floor))
        state = here.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)
    claims = [entry.at for entry in state.task("t1").history if entry.event == "claim"]
    assert len(claims) == 1
    assert claims[0] >= lowered


def without_floor(state: State) -> State:
    return state.replace(config=state.config.replace(limits=state.config.limits.replace(free_disk_mb=0)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with hardly any room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "liza-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_git_without_room_is_disk_trouble_and_not_the_tasks_failure(small_disk: Path) -> None:
    home = Home(small_disk / "project")
    (small_disk / "large").write_bytes(os.urandom(1 << 20))
    fill(small_disk / "rest")
    with pytest.raises(DiskTrouble) as error:
        home.repository.git("hash-object", "-w", str(small_disk / "large"))
    assert error.value.errno in FULL


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError as error:
            assert error.errno in FULL  # noqa: PT017 - it is how writing ends


def test_a_worker_outlives_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    """It waits, gives the task back when there is room, and does it then; none of it is a crash."""
    rest = small_disk / "rest"
    full = {"run": f"cat /dev/zero > {rest} || true", "answer": {"status": "done", "summary": "Fill"}}
    done = {"write": {"t1.txt": "t1\n"}, "answer": {"status": "done", "summary": "Add t1"}}
    here, log = (
        ScriptedTeam(small_disk, {"implement t1": [full, done]}, limits={"free_disk_mb": 0}),
        tmp_path / "log",
    )
    here.task()
    with worker(here, log) as process:
        await_text(log, "No space left on device")
        assert process.poll() is None, log.read_text()
        rest.unlink()
        state = here.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)
        assert process.poll() is None
    assert state.agents["coder-1"].crashes == ()
    assert "fail" not in {entry.event for entry in state.task("t1").history}


@contextmanager
def worker(here: ScriptedTeam, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A coder whose words go to a file."""
    words = [sys.executable, "-m", "liza", "-C", str(here.user.directory), "worker", "coder", "coder-1"]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)
