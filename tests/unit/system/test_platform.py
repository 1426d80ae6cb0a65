"""Both implementations of what Liza asks of an operating system, asked the same questions."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.system import linux, portable
from liza.system.host import FORCE_PORTABLE
from liza.system.platform import STOPPED
from liza.system.process import resource_use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.system.platform import Platform

ROOT: Final = Path(__file__).parents[3]
PATIENCE: Final = 30.0
IMPLEMENTATIONS: Final[dict[str, Platform]] = {"linux": linux, "portable": portable}


@pytest.fixture(params=IMPLEMENTATIONS)
def platform(request: pytest.FixtureRequest) -> Platform:
    return IMPLEMENTATIONS[request.param]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True, env={"MARK": "a b"}) as process:
        yield process
        process.kill()


def is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


class TestProcesses:
    def test_a_process_is_known_with_its_family(
        self, platform: Platform, child: subprocess.Popen[bytes]
    ) -> None:
        found = platform.process_table()[child.pid]

        assert (found.parent, found.group, found.session) == (os.getpid(), child.pid, child.pid)
        assert found._replace(cpu=0, state="") == platform.process_of(child.pid)._replace(cpu=0, state="")  # type: ignore[union-attr]
        assert platform.process_of(1 << 22) is None

    def test_who_starts_later_is_later(self, platform: Platform, child: subprocess.Popen[bytes]) -> None:
        """By that a process which inherited a number is told from the one before."""
        me, other = platform.process_of(os.getpid()), platform.process_of(child.pid)

        assert me is not None
        assert other is not None
        assert me.started < other.started

    def test_the_environment_at_its_start(self, platform: Platform, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE  # between fork and exec it has ours
        while platform.variable_of(child.pid, "MARK") is None:
            assert time.monotonic() < deadline
        assert platform.variable_of(child.pid, "MARK") == "a b"
        assert platform.variable_of(child.pid, "MAR") is None

    def test_a_signal_reaches_the_one_that_was_meant(
        self, platform: Platform, child: subprocess.Popen[bytes]
    ) -> None:
        """Another start time is another process, whatever its number."""
        found = platform.process_of(child.pid)
        assert found is not None

        assert not platform.send_signal(found._replace(started=found.started - 1), signal.SIGKILL)
        assert platform.send_signal(found, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        stopped = platform.process_of(child.pid)
        assert stopped is not None
        assert stopped.state == STOPPED

    def test_an_end_can_be_waited_for(self, platform: Platform, child: subprocess.Popen[bytes]) -> None:
        """It is told while the process is still a zombie, so that nobody else can have its number."""
        end = platform.open_exit(child.pid)
        try:
            assert not is_readable(end, 0)
            child.kill()
            assert is_readable(end, PATIENCE)
        finally:
            os.close(end)
        child.wait()
        with pytest.raises(ProcessLookupError):
            platform.open_exit(child.pid)

    def test_a_lock_names_its_holder(self, platform: Platform, tmp_path: Path) -> None:
        path = tmp_path / "x.lock"
        code = (
            "import sys; from pathlib import Path; from liza.system import files as locks; "
            "from liza.domain.record import utc_now\n"
            "with locks.hold_for_life(Path(sys.argv[1]), at=utc_now()): print(flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout
            holder.stdout.readline()
            with path.open():  # who only has it open is not the holder
                assert platform.is_locked_by(holder.pid, path)
                assert not platform.is_locked_by(os.getpid(), path)
            assert str(path) in platform.open_files_of(holder.pid)
            holder.kill()

    def test_a_child_dies_with_its_parent(self, platform: Platform) -> None:
        """Also where the parent is killed, and cannot tell anybody."""
        name = next(name for name, one in IMPLEMENTATIONS.items() if one is platform)
        inner = (
            f"import os, signal; from liza.system import {name} as it; it.die_with(os.getppid()); "
            "print(os.getpid(), flush=True); signal.pause()"
        )
        outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
        with subprocess.Popen(
            [sys.executable, "-c", outer],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        ) as parent:
            assert parent.stdout
            end = linux.open_exit(int(parent.stdout.readline()))
            parent.kill()
            try:
                assert is_readable(end, PATIENCE)
            finally:
                os.close(end)


class TestFilesAndWaking:
    def test_a_wakeup_wakes_once_and_never_blocks(self, platform: Platform) -> None:
        reader, writer = platform.open_wakeup()
        try:
            assert not is_readable(reader, 0)
            for _ in range(3):
                os.write(writer, (1).to_bytes(8, sys.byteorder))
            assert is_readable(reader, 0)
            os.read(reader, 4096)
            with pytest.raises(BlockingIOError):
                os.read(reader, 4096)
        finally:
            for descriptor in {reader, writer}:
                os.close(descriptor)

    def test_a_rename_that_cannot_be_done_in_one_step_does_nothing(
        self, platform: Platform, tmp_path: Path
    ) -> None:
        """Whoever is told so takes another way; a half way would lose what was there."""
        one, other = tmp_path / "one", tmp_path / "other"
        one.write_text("1")
        other.write_text("2")

        did = platform.exchange_names(one, other)

        assert [one.read_text(), other.read_text()] == (["2", "1"] if did else ["1", "2"])
        if platform.rename_to_free(one, tmp_path / "third"):
            with pytest.raises(FileExistsError):
                platform.rename_to_free(other, tmp_path / "third")

    def test_an_open_file_is_nobodys_spare(self, platform: Platform, tmp_path: Path) -> None:
        """In doubt somebody has it."""
        path = tmp_path / "file"
        path.touch()
        with path.open() as ours, path.open():
            assert not platform.is_opened_by_us_alone(ours.fileno())

    def test_a_start_of_the_machine_has_one_name(self, platform: Platform) -> None:
        assert platform.boot_id() == platform.boot_id()
        assert len(platform.boot_id().split()) == 1


def test_what_processes_use_is_counted(child: subprocess.Popen[bytes]) -> None:
    """For views: how many there are, their CPU and their memory."""
    me = linux.process_of(os.getpid())
    other = linux.process_of(child.pid)
    assert me is not None
    assert other is not None

    used = resource_use([me, other])

    assert used.processes == 2
    assert used.cpu_seconds >= me.cpu > 0
    assert used.memory > 1 << 20
    assert "2 processes" in str(used)


def test_the_switch_of_the_tests_forces_the_portable_one() -> None:
    """`make test-portable` sets it; nobody else should."""
    code = "from liza.system.host import host; print(host().__name__)"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), FORCE_PORTABLE: value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("1", "")
    ]
    assert names == ["liza.system.portable", "liza.system.linux"]
