"""Briefs, replies, stopping and the signs of life: the small parts that every backend shares."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from liza.agents.protocol import Brief, Reply
from liza.domain.answers import Step
from liza.domain.model import Role
from liza.domain.record import utc_now
from liza.system import linux
from liza.system.host import host
from liza.system.platform import Process
from liza.system.process import Stopwatch, has_writes_since, mark_of, process_of, process_table, send_signal
from liza.system.run_control import MEANING, RunControl, RunEnding, StopLevel, sleep_unless_stopped


class TestRecords:
    def test_a_brief_keeps_its_environment_to_itself(self, tmp_path: Path) -> None:
        """It is neither printed nor written."""
        brief = Brief(
            run="coder-1.1",
            role=Role.CODER,
            step=Step.IMPLEMENT,
            prompt="go",
            cwd=tmp_path,
            folder=tmp_path,
            environment={"KEY": "hidden"},
        )

        assert "hidden" not in repr(brief) + brief.model_dump_json()

    def test_a_brief_names_absolute_places(self, tmp_path: Path) -> None:
        """An agent must not depend on where Liza was started."""
        with pytest.raises(ValidationError, match="'here' is relative"):
            Brief(run="r", role=Role.CODER, step=Step.PLAN, prompt="", cwd=Path("here"), folder=tmp_path)

    def test_a_reply_survives_being_written(self) -> None:
        """A recording is read back."""
        reply = Reply(ending=RunEnding.DONE, text="hi", began=utc_now(), transcript=Path("/x"))

        assert Reply.model_validate_json(reply.model_dump_json()) == reply

    def test_every_ending_has_a_meaning(self) -> None:
        """The table is whole."""
        assert set(MEANING) == set(RunEnding)


class TestStop:
    def test_the_second_word_is_stronger_and_none_is_taken_back(self) -> None:
        """Asking after ending at once changes nothing."""
        stop = RunControl()
        stop.now()
        stop.ask()

        assert stop.level is StopLevel.NOW

    def test_a_signal_handler_may_stop_the_run_that_it_interrupts(self) -> None:
        """It takes no lock that the interrupted code could hold."""
        stop = RunControl()
        before = signal.signal(signal.SIGUSR1, lambda *_: stop.ask())
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert sleep_unless_stopped(stop, 30) is False
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_a_rest_counts_no_pause(self) -> None:
        """A recording that is paused goes on where it was."""
        stop = RunControl()
        stop.pause()
        began = time.monotonic()
        threading.Timer(0.2, stop.resume).start()

        assert sleep_unless_stopped(stop, 0.1) is True
        assert time.monotonic() - began >= 0.3

    def test_a_rest_of_no_time_still_obeys(self) -> None:
        """A recording that is played at once can be stopped."""
        stop = RunControl()
        assert sleep_unless_stopped(stop, 0) is True
        stop.ask()
        assert sleep_unless_stopped(stop, 0) is False

    def test_its_descriptor_is_closed_with_it(self) -> None:
        """A worker makes thousands."""
        stop = RunControl()
        number = stop.fileno()
        del stop

        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


class TestSigns:
    def test_a_stopwatch_does_not_count_what_is_frozen(self) -> None:
        """Nor what is frozen twice."""
        watch = Stopwatch()
        watch.freeze()
        before = watch.elapsed()
        watch.freeze()
        assert watch.elapsed() == before
        watch.thaw()
        watch.thaw()
        assert watch.elapsed() >= before

    def test_a_write_anywhere_in_the_tree_is_a_sign(self, tmp_path: Path) -> None:
        """But not in git's own folder, and not before the moment in question."""
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / ".git").mkdir()
        past = time.time() - 100
        for path in [tmp_path / "a" / "b", tmp_path / "a", tmp_path / ".git"]:
            os.utime(path, (past, past))
        since = past + 50

        assert not has_writes_since(tmp_path, since, lambda: False)
        (tmp_path / ".git" / "index").touch()
        os.utime(tmp_path / ".git", (past, past))
        assert not has_writes_since(tmp_path, since, lambda: False)
        (tmp_path / "a" / "b" / "file").touch()
        assert has_writes_since(tmp_path, since, lambda: False)
        assert not has_writes_since(tmp_path, since, lambda: True)

    def test_a_tree_that_is_not_there_gives_no_sign(self, tmp_path: Path) -> None:
        """An agent may delete its own worktree."""
        assert not has_writes_since(tmp_path / "gone", 0, lambda: False)


class TestProcesses:
    def test_the_table_has_us_in_it(self) -> None:
        """Read from /proc, whatever the name of the program."""
        me = process_table()[os.getpid()]

        assert me == process_of(os.getpid())._replace(cpu=me.cpu, state=me.state)  # type: ignore[union-attr]
        assert (me.parent, me.session) == (os.getppid(), os.getsid(0))

    def test_a_pid_that_is_somebody_elses_by_now_gets_no_signal(self) -> None:
        """A process is its pid and its start time."""
        me = process_table()[os.getpid()]

        assert send_signal(me, signal.SIGCONT) is True
        assert send_signal(me._replace(started=me.started - 1), signal.SIGKILL) is False

    def test_who_is_gone_is_nobody(self) -> None:
        """Processes end while they are being looked at."""
        nobody = Process(2**22 + 1, 0, "x", "R", 1, 1, 1, 0)

        assert process_of(nobody.pid) is None
        assert mark_of(nobody.pid) is None
        assert send_signal(nobody, signal.SIGKILL) is False

    def test_the_leash_is_found_once(self) -> None:
        """It costs a process to try."""
        assert host().parent_death_prefix() is host().parent_death_prefix()

    @pytest.mark.parametrize("program", [None, "#!/bin/sh\nexit 1\n"])
    def test_without_a_program_that_can_hold_it_there_is_no_leash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None
    ) -> None:
        """Not every system has setpriv, and not every setpriv can do this."""
        if program:
            (tmp_path / "setpriv").write_text(program)
            (tmp_path / "setpriv").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

        assert linux.parent_death_prefix.__wrapped__() == ()
