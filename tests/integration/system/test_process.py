"""A table of ill-behaved commands: each ends with the right verdict, and nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from liza.system.process import (
    GRACE,
    HEAD,
    ON_DISK,
    TAIL,
    Job,
    LivenessMonitor,
    ProcessOutcome,
    RunProcesses,
    Stopwatch,
    leftover_processes,
    mark_of,
    process_of,
    run_job,
    sweep,
)
from liza.system.run_control import RunControl, RunEnding, RunLimits

ROOT: Final = Path(__file__).resolve().parents[3]
LONG: Final = 60  # seconds that a hanging process would last if it were not ended
LONGER: Final = 3600  # seconds of a process that has to be there at the end, also where a disk stands still
PROMPT_NOBODY_READS: Final = b"x" * 5_000_000


class JobRunner:
    """One working directory, one folder of runs, and a pipe through which a command says that it is there."""

    def __init__(self, home: Path) -> None:
        self.cwd = home / "worktree"
        self.runs = home / "runs"
        self.cwd.mkdir()
        self.ready = home / "ready"
        os.mkfifo(self.ready)

    def job(self, *argv: str, feed: bytes = b"", **limits: float) -> Job:
        return Job(
            argv=argv,
            cwd=self.cwd,
            folder=self.runs / "run-1",
            environment={"PATH": os.environ["PATH"], "READY": str(self.ready)},
            feed=feed,
            limits=RunLimits(**{"total": 30.0, **limits}),
        )

    def run(
        self, script: str, stop: RunControl | None = None, feed: bytes = b"", **limits: float
    ) -> ProcessOutcome:
        return run_job(self.job("sh", "-c", script, feed=feed, **limits), stop or RunControl())

    def when_ready(self, act: Callable[[str], None]) -> threading.Thread:
        """Call *act* with what a command writes to $READY."""
        thread = threading.Thread(target=lambda: act(self.ready.read_text().strip()), daemon=True)
        thread.start()
        return thread

    def stopped(self, script: str) -> tuple[ProcessOutcome, float]:
        """Run *script*, ask it to stop when it is ready, and return how long it took from then."""
        stop = RunControl()
        asked = []

        def ask(_: str) -> None:
            asked.append(time.monotonic())
            stop.ask()

        self.when_ready(ask)
        outcome = self.run(script, stop)
        return outcome, time.monotonic() - asked[0]

    def leftovers(self) -> list[str]:
        return [str(process) for process in leftover_processes(self.runs, lambda _: True)]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[JobRunner]:
    found = JobRunner(tmp_path)
    yield found
    leftovers = sweep(found.runs)
    assert (leftovers.ended, leftovers.survivors) == ((), ())


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the grace last so long that nobody takes a busy machine for one that waits for it."""
    monkeypatch.setattr("liza.system.process.GRACE", float(LONGER))


class TestTalking:
    def test_the_prompt_comes_in_and_the_words_come_out(self, runner: JobRunner) -> None:
        """Standard input ends after the prompt: nobody will answer a question."""
        outcome = runner.run("cat; echo oops >&2; exit 3", feed=b"do it\n")

        assert outcome[:5] == (RunEnding.DONE, "", 3, "do it\n", "oops\n")
        assert (runner.runs / "run-1" / "stdout").read_text() == "do it\n"

    def test_a_prompt_of_five_megabytes_is_read_whole(self, runner: JobRunner) -> None:
        """More than a pipe holds."""
        assert runner.run("wc -c", feed=PROMPT_NOBODY_READS).out.strip() == "5000000"

    @pytest.mark.parametrize("script", ["echo done", "exec <&-; echo done"])
    def test_nobody_has_to_read_the_prompt(self, runner: JobRunner, script: str) -> None:
        """A full pipe blocks neither side."""
        assert runner.run(script, feed=PROMPT_NOBODY_READS)[:4] == (RunEnding.DONE, "", 0, "done\n")

    def test_it_is_alone_in_its_session_and_marked(self, runner: JobRunner) -> None:
        """Whatever is sent to its group reaches nobody else, and its children can be told from others."""
        outcome = runner.run('echo $$; cut -d " " -f 5,6 /proc/$$/stat; echo $LIZA_RUN')
        pid, ids, mark = outcome.out.split("\n")[:3]

        assert ids == f"{pid} {pid}"
        assert mark == str(runner.runs / "run-1")

    def test_no_descriptor_of_ours_is_inherited(self, runner: JobRunner, tmp_path: Path) -> None:
        """An orphan that held a lock would block the next instance for ever."""
        with (tmp_path / "lock").open("w") as lock:
            fcntl.fcntl(lock, fcntl.F_SETFD, 0)  # as a careless library leaves it
            assert sorted(runner.run("ls /proc/self/fd").out.split()) == [
                "0",
                "1",
                "2",
                "3",
            ]  # 3 is what ls reads

    @pytest.mark.parametrize(
        ("argv", "sentence"),
        [
            (["a\0b"], "'a\\x00b' cannot be started: embedded null byte"),
            (["true", "x" * 200_000], "Argument list too long"),
        ],
    )
    def test_what_cannot_be_started_says_why(self, runner: JobRunner, argv: list[str], sentence: str) -> None:
        """The daemon does not fall over what people configure."""
        outcome = run_job(runner.job(*argv), RunControl())

        assert outcome.ending is RunEnding.NOT_STARTED
        assert sentence in outcome.why

    def test_a_working_directory_that_somebody_deleted(self, runner: JobRunner) -> None:
        """It is named."""
        runner.cwd.rmdir()

        assert runner.run("true")[:2] == (
            RunEnding.NOT_STARTED,
            f"the working directory {runner.cwd} does not exist",
        )


def peak() -> int:
    """Return the most memory that this process used, in bytes, since it was last forgotten."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class TestOutput:
    def test_two_hundred_megabytes_fill_neither_memory_nor_disk(self, runner: JobRunner) -> None:
        """The beginning and the end are kept, and a line says what is missing."""
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before = peak()
        outcome = runner.run("echo first; head -c 200000000 /dev/zero; echo; echo last")

        assert outcome.ending is RunEnding.DONE
        assert outcome.out.startswith("first\n")
        assert outcome.out.endswith("\nlast\n")
        assert f"[liza: {200_000_012 - HEAD - TAIL:,} bytes cut here]" in outcome.out
        assert ON_DISK < (runner.runs / "run-1" / "stdout").stat().st_size < ON_DISK + TAIL + 100
        assert peak() - before < 64 << 20

    def test_bytes_that_are_no_text_are_replaced(self, runner: JobRunner) -> None:
        """The file keeps them."""
        assert runner.run(r"printf 'a\377b'").out == "a\N{REPLACEMENT CHARACTER}b"
        assert (runner.runs / "run-1" / "stdout").read_bytes() == b"a\xffb"

    def test_whoever_closes_its_output_and_hangs_runs_out_of_time(self, runner: JobRunner) -> None:
        """The end of the output is not the end of the process."""
        outcome = runner.run(f"echo hi; exec >&- 2>&-; sleep {LONG}", total=0.3)

        assert outcome[:2] == (RunEnding.TIMEOUT, "it was not done after 0.3 seconds, its limit in all")
        assert outcome.out == "hi\n"

    def test_a_background_child_that_holds_the_pipe_open_is_not_waited_for(self, runner: JobRunner) -> None:
        """The leader's end is the end; what it leaves behind is ended."""
        outcome = runner.run(f"sleep {LONG} & echo hi")

        assert outcome[:4] == (RunEnding.DONE, "", 0, "hi\n")
        assert outcome.seconds < LONG / 2
        assert runner.leftovers() == []


class TestEnding:
    def test_death_by_signal_is_told_by_its_number(self, runner: JobRunner) -> None:
        """As subprocess tells it."""
        assert runner.run("kill -SEGV $$").code == -signal.SIGSEGV

    def test_asked_to_stop_it_may_tidy_up(self, runner: JobRunner) -> None:
        """SIGTERM comes first, and what is said then is heard."""
        stop = RunControl()
        runner.when_ready(lambda _: stop.ask())
        outcome = runner.run(f'trap "echo bye; exit 7" TERM; sleep {LONG} & echo there > $READY; wait', stop)

        assert outcome[:4] == (RunEnding.STOPPED, "it was told to stop", 7, "bye\n")

    def test_who_ignores_the_request_is_killed(self, runner: JobRunner) -> None:
        """All of them, after the grace."""
        outcome, took = runner.stopped(f'trap "" TERM; echo there > $READY; sleep {LONG}; sleep {LONG}')

        assert (outcome.ending, outcome.code) == (RunEnding.STOPPED, -signal.SIGKILL)
        assert took >= GRACE
        assert runner.leftovers() == []

    @pytest.mark.usefixtures("long_grace")
    def test_told_twice_nobody_waits(self, runner: JobRunner) -> None:
        """The second word cuts the grace short."""
        stop = RunControl()
        runner.when_ready(lambda _: stop.now())
        outcome = runner.run(f'trap "" TERM; echo there > $READY; sleep {LONGER}', stop, total=LONGER)

        assert outcome.code == -signal.SIGKILL
        assert outcome.seconds < LONG

    @pytest.mark.usefixtures("long_grace")
    def test_a_stop_is_obeyed_at_once(self, runner: JobRunner) -> None:
        """An operator who aborts does not want to wait for the grace to pass; `make bench` has the figure."""
        assert runner.stopped(f"echo there > $READY; exec sleep {LONGER}")[1] < LONG

    def test_nothing_starts_after_a_stop(self, runner: JobRunner) -> None:
        """A worker that is told to stop while it prepares a run does not begin it."""
        stop = RunControl()
        stop.ask()

        assert runner.run("touch started", stop).ending is RunEnding.STOPPED
        assert list(runner.cwd.iterdir()) == []

    @pytest.mark.parametrize(
        "escape",
        [
            "setsid sleep {} &",
            "set -m; sleep {} &",
            "(setsid sh -c 'sleep {} & sleep {}' &)",
            "(trap '' TERM HUP; setsid sleep {} &)",
        ],
        ids=["session", "group", "double fork", "deaf"],
    )
    def test_escapees_are_found_by_their_mark(self, runner: JobRunner, escape: str) -> None:
        """Another session or group hides nobody."""
        outcome = runner.run(escape.replace("{}", str(LONG)) + "\necho hi")

        assert (outcome.ending, outcome.out, outcome.survivors) == (RunEnding.DONE, "hi\n", ())
        assert runner.leftovers() == []

    def test_what_is_not_of_the_run_lives_on(self, runner: JobRunner) -> None:
        """The same run id in another project is somebody else's, and so is a child of ours without a mark."""
        other = {"PATH": os.environ["PATH"], "LIZA_RUN": str(runner.runs.parent / "other" / "run-1")}
        with (
            subprocess.Popen(["sleep", str(LONGER)], env=other, start_new_session=True) as marked,
            subprocess.Popen(["sleep", str(LONGER)], start_new_session=True) as ours,
        ):
            # Where this process adopts orphans, a child in a session of its own that is no older than the run
            # is taken for one, and the kernel counts ages in ticks.
            time.sleep(2 / os.sysconf("SC_CLK_TCK"))
            runner.run("setsid sleep 5 & true")
            sweep(runner.runs)
            alive = [process.poll() for process in (marked, ours)]
            marked.kill()
            ours.kill()

        assert alive == [None, None]


class TestPause:
    def test_a_frozen_run_neither_works_nor_ages(self, runner: JobRunner) -> None:
        """PAUSE stops the whole group where it is; the stopwatch of the limits does not count the time."""
        stop = RunControl()
        frozen: list[str] = []
        rest = 0.6  # seconds

        def act(pid: str) -> None:
            stop.pause()
            os.waitid(os.P_PID, int(pid), os.WSTOPPED | os.WNOWAIT)
            frozen.append(process_of(int(pid)).state)  # type: ignore[union-attr]
            time.sleep(rest)
            stop.resume()
            runner.ready.write_text("go on\n")

        runner.when_ready(act)
        began = time.monotonic()
        outcome = runner.run("echo $$ > $READY; read line < $READY; echo $line", stop)

        assert frozen == ["T"]
        assert outcome[:4] == (RunEnding.DONE, "", 0, "go on\n")
        assert outcome.seconds <= time.monotonic() - began - rest

    def test_a_pause_that_is_taken_back_at_once_leaves_nothing_frozen(self, runner: JobRunner) -> None:
        """The switch may be taken back while the processes are being stopped, which takes a moment."""
        stop = RunControl()

        def goes_on(pid: int) -> bool:
            stop.pause()
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            stop.resume()
            deadline = time.monotonic() + LONG
            while process_of(pid).state == "T" and time.monotonic() < deadline:  # type: ignore[union-attr]
                time.sleep(0.001)
            return time.monotonic() < deadline

        def act(pid: str) -> None:
            if all(goes_on(int(pid)) for _ in range(10)):
                runner.ready.write_text("go on\n")
            else:
                stop.now()

        runner.when_ready(act)
        outcome = runner.run("echo $$ > $READY; read line < $READY; echo $line", stop, total=LONGER)
        assert outcome.out == "go on\n"

    def test_abort_reaches_a_frozen_run(self, runner: JobRunner) -> None:
        """ABORT during PAUSE: a stopped process gets no SIGTERM until it is continued."""
        stop = RunControl()

        def act(pid: str) -> None:
            stop.pause()
            os.waitid(os.P_PID, int(pid), os.WSTOPPED | os.WNOWAIT)
            stop.ask()

        runner.when_ready(act)
        outcome = runner.run(f'trap "echo bye; exit 7" TERM; sleep {LONG} & echo $$ > $READY; wait', stop)

        assert outcome[:4] == (RunEnding.STOPPED, "it was told to stop", 7, "bye\n")

    def test_a_paused_run_does_not_start(self, runner: JobRunner) -> None:
        """It waits for the pause to end, or for the stop."""
        stop = RunControl()
        stop.pause()
        threading.Timer(0.05, stop.ask).start()

        assert runner.run("touch started", stop).why == "it was stopped before it began"
        assert list(runner.cwd.iterdir()) == []


class TestLimits:
    def test_no_first_sign_of_life(self, runner: JobRunner) -> None:
        """A start that hangs is told from a silence later on."""
        outcome = runner.run(f"exec sleep {LONG}", start=0.4, silence=5)

        assert outcome.ending is RunEnding.SLOW_START
        assert outcome.why.endswith("no write in its working directory within 0.4 seconds of its start")

    def test_silence_after_the_first_words(self, runner: JobRunner) -> None:
        """Its limit counts from the last sign of life."""
        outcome = runner.run(f"echo hi; exec sleep {LONG}", start=5, silence=0.4)

        assert (outcome.ending, outcome.out) == (RunEnding.SILENT, "hi\n")

    @pytest.mark.parametrize(
        "work",
        [
            "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done",
            "timeout 1.8 sh -c 'while :; do :; done'; true",
            "for i in 1 2 3 4 5 6; do echo $i > file; sleep 0.3; done",
        ],
        ids=["output", "cpu", "writes"],
    )
    def test_a_healthy_agent_is_not_taken_for_dead(self, runner: JobRunner, work: str) -> None:
        """Words, CPU or writes: one of them is enough."""
        stop = RunControl()
        before = stop.seen
        outcome = runner.run(work, stop, start=1.2, silence=1.2)

        assert (outcome.ending, outcome.code) == (RunEnding.DONE, 0)
        assert stop.seen > before


class TestEvidence:
    def test_cpu_is_counted_while_it_is_used_and_not_while_it_is_not(self, runner: JobRunner) -> None:
        """Also that of a child that ended: it goes over to whoever reaps it."""
        script = "timeout 0.2 sh -c 'while :; do :; done'; echo spent > $READY; kill -STOP $$"
        environment = {**os.environ, "READY": str(runner.ready)}
        with subprocess.Popen(["sh", "-c", script], env=environment, start_new_session=True) as process:
            processes = RunProcesses.of(process.pid, runner.runs / "run-1")
            evidence = LivenessMonitor(Stopwatch(), runner.cwd, processes.cpu_seconds)
            runner.ready.read_text()
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            looks = [evidence.look(give_up=lambda: True) for _ in range(2)]
            process.kill()

        assert looks == [True, False]


WAIT_READY: Final = "open(os.environ['READY'], 'w').write(str(os.getpid())); __import__('signal').pause()"
WORKER: Final = """
import sys
from pathlib import Path
from liza.system.host import host
from liza.system.process import Job, run_job
from liza.system.run_control import RunControl

host().adopt_orphans()
home, script = Path(sys.argv[1]), sys.argv[2]
job = Job(["sh", "-c", script], home / "worktree", home / "runs" / "run-1", {"PATH": "/usr/bin:/bin"})
print(run_job(job, RunControl()))
Path("/proc/self/task/%d/children" % __import__("os").getpid()).read_text() and print("children left")
"""


def worker(runner: JobRunner, script: str) -> subprocess.Popen[str]:
    """Start a process that adopts orphans and runs *script* as its agent."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(runner.cwd.parent), script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def gone(pid: int) -> bool:
    """Wait until *pid* has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


class TestWorkers:
    @pytest.mark.linux("orphans come back to a process that adopts them")
    def test_a_worker_that_adopts_finds_even_who_washed_off_the_mark(self, runner: JobRunner) -> None:
        """A daemon with an empty environment and a session of its own comes back to the worker, and ends."""
        ready = str(runner.ready)
        escape = f"(setsid env -i /bin/sh -c 'echo $$ > {ready}; exec sleep {LONG}' &); cat {ready}"
        with worker(runner, escape) as process:
            said = process.communicate(timeout=30)[0]
        pid = int(said.partition("out='")[2].partition("\\n")[0])

        assert "<RunEnding.DONE: 'done'>" in said
        assert "children left" not in said
        assert gone(pid)

    @pytest.mark.linux("a process is killed with the one that started it")
    def test_an_agent_dies_with_its_worker_and_the_next_supervisor_sweeps(self, runner: JobRunner) -> None:
        """SIGKILL gives a worker no chance to clean up."""
        script = f"sleep {LONG} & echo $$ $! > {runner.ready}; wait"
        with worker(runner, script) as process:
            leader, child = map(int, runner.ready.read_text().split())
            while (mark := mark_of(child)) is None:
                time.sleep(0.01)  # while it becomes another program it has no environment to be read
            process.kill()
        died = gone(leader)
        result = sweep(runner.runs, lambda run_id: run_id == "run-1")

        assert died
        assert mark == str(runner.runs / "run-1")
        assert [name.partition(" ")[2] for name in result.ended] == [f"(pid {child})"]
        assert result.survivors == ()
        assert gone(child)

    def test_a_worker_dies_with_its_supervisor(self, runner: JobRunner) -> None:
        """Even by SIGKILL: a dead supervisor leaves nobody running for ever."""
        child = f"import os; from liza.system.host import host; host().die_with(os.getppid()); {WAIT_READY}"
        parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "READY": str(runner.ready)}
        with subprocess.Popen([sys.executable, "-c", parent], env=environment) as process:
            pid = int(runner.ready.read_text())
            process.kill()

        assert gone(pid)

    def test_who_starts_too_late_ends_at_once(self) -> None:
        """Its parent may have died before it could say that it wants to die with it."""
        code = "from liza.system.host import host; host().die_with(1 << 22); print('alive')"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)

        assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")

    def test_a_sweep_is_limited_to_the_runs_it_is_told(self, runner: JobRunner) -> None:
        """Another worker's agents are at work."""
        environment = {"PATH": os.environ["PATH"], "LIZA_RUN": str(runner.runs / "coder-2.7")}
        with subprocess.Popen(["sleep", str(LONG)], env=environment, start_new_session=True) as process:
            result = sweep(runner.runs, lambda run_id: run_id.startswith("coder-1."))
            alive = process.poll() is None
            process.kill()

        assert alive
        assert result == ((), ())
