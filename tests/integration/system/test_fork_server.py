"""Children made by a process that has loaded everything: they are ours, as if we had started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from liza.system.process import process_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.linux("only there orphans can be adopted by whom they should")

# What asks is a process of its own: it adopts orphans, which a test runner should not.
ASKING = """
import json, os, signal, socket, sys, threading, time
from pathlib import Path
from liza.system.fork_server import ForkServer, NoForkServer
from liza.system.host import host

def entry(words):
    print(*words, os.environ["SAID"], os.getppid() == int(os.environ["ASKING"]), flush=True)
    if words[0] == "raise":
        raise ValueError("on purpose \\udcff")
    if words[0] == "wait":
        time.sleep(60)
    if words[0] == "look":
        print(os.getcwd(), *sorted(map(int, os.listdir("/dev/fd")))[:-1], repr(sys.stdin.read()), flush=True)
        print("no new line", end="", file=sys.stderr)
    sys.exit(int(words[1]))

host().adopt_orphans()
ours, theirs = os.pipe()
forks = ForkServer(entry)
def fork(*words):
    out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        return forks.fork(words, out, {"SAID": "hello", "ASKING": str(os.getpid())}, cwd=Path("/usr"))
    finally:
        os.close(out)
def code_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def has_no_children():
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED) is None
    except ChildProcessError:
        return True
"""


def ask(tmp_path: Path, code: str, **options: object) -> str:
    """Run *code* after what stands above it; return what it printed."""
    words = [sys.executable, "-c", ASKING + code, str(tmp_path / "out")]
    done = subprocess.run(words, stdout=-1, stderr=-1, text=True, check=False, timeout=60, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_child_has_its_words_its_output_and_its_exit_code(tmp_path: Path) -> None:
    said = ask(tmp_path, "print(code_of(fork('end', '7')), code_of(fork('end', '0')))")

    assert said.split() == ["7", "0"]
    assert (tmp_path / "out").read_text() == "end 7 hello True\nend 0 hello True\n"


def test_it_has_what_a_program_has_that_was_started(tmp_path: Path) -> None:
    """Its directory, three streams and nothing else that is open, nothing to read; all it said is written."""
    assert ask(tmp_path, "print(code_of(fork('look', '0')))", stdin=subprocess.PIPE).split() == ["0"]
    assert (tmp_path / "out").read_text() == "look 0 hello True\n/usr 0 1 2 ''\nno new line"


def test_it_has_them_too_where_the_asking_process_has_no_stdin(tmp_path: Path) -> None:
    code = "print(code_of(fork('look', '0')))"
    words = [
        "/bin/sh",
        "-c",
        'exec "$@" <&-',
        "sh",
        sys.executable,
        "-c",
        ASKING + code,
        str(tmp_path / "out"),
    ]
    assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout == "0\n"
    assert "/usr 0 1 2 ''" in (tmp_path / "out").read_text()


def test_one_that_fails_says_why_and_ends_with_1(tmp_path: Path) -> None:
    assert ask(tmp_path, "print(code_of(fork('raise')))").split() == ["1"]
    assert "ValueError: on purpose \\udcff" in (tmp_path / "out").read_text()


def test_lists_of_processes_show_what_it_does(tmp_path: Path) -> None:
    """It is found by the words that it was forked for, and has a process group of its own."""
    said = ask(
        tmp_path,
        "pid = fork('wait', 'coder-1')\n"
        "path = f'/proc/{pid}/cmdline'\n"
        "while b'coder-1' not in open(path, 'rb').read(): time.sleep(0.01)\n"
        "print(open(path).read().strip(chr(0)), os.getpgid(pid) == pid, sep='|')\n"
        "os.kill(pid, signal.SIGKILL)\n"
        "print(code_of(pid))",
    )
    assert said.split("\n")[:2] == ["liza worker wait coder-1|True", "-9"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_gone_or_does_not_answer_is_told_of(tmp_path: Path, number: signal.Signals) -> None:
    """It is given up for good, and nothing of it is left."""
    said = ask(
        tmp_path,
        f"forks._socket.settimeout(1.0)\nos.kill(forks._process.pid, {int(number)})\n"
        "for _ in range(2):\n"
        "    try:\n        fork('end', '0')\n    except NoForkServer:\n        print('gone')\n"
        "print(has_no_children())",
    )
    assert said.split() == ["gone", "gone", "True"]
    assert not (tmp_path / "out").read_text()


def test_a_child_that_nobody_knows_of_does_nothing(tmp_path: Path) -> None:
    """Its server answered too late: whoever asked has started somebody else by then."""
    said = ask(
        tmp_path,
        "out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "request = json.dumps([['end', '3'], {}, '/']).encode()\n"
        "reader, writer = os.pipe()\n"
        "socket.send_fds(forks._socket, [request], [out, reader])\n"
        "pid = int(forks._socket.recv(100))\n"
        "os.close(writer)\n"
        "print(code_of(pid))",
    )
    assert said.split() == ["0"]
    assert not (tmp_path / "out").read_text()


def test_a_pid_that_went_to_somebody_else_is_not_signalled(tmp_path: Path) -> None:
    """Whoever reaps all children reaps the server, too, and its number is free from then on."""
    said = ask(
        tmp_path,
        "pid = forks._process.pid\nos.kill(pid, signal.SIGKILL)\nos.waitpid(pid, 0)\n"
        "forks._process = forks._process._replace(pid=os.getpid())\nforks.close()\nprint('alive')",
    )
    assert said.split() == ["alive"]


def test_a_process_with_threads_is_not_copied(tmp_path: Path) -> None:
    said = ask(
        tmp_path,
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "try:\n    ForkServer(entry)\nexcept RuntimeError as error:\n    print(error)",
    )
    assert "threads" in said


def test_neither_it_nor_a_child_keeps_what_was_open(tmp_path: Path) -> None:
    """Whoever waits for the end of a pipe waits for those that were given it, and for nobody else."""
    said = ask(
        tmp_path,
        "pid = fork('wait')\nos.close(theirs)\nprint(os.read(ours, 1))\nos.kill(pid, signal.SIGKILL)",
    )
    assert said.split() == ["b''"]


def test_it_ends_with_whoever_asks(tmp_path: Path) -> None:
    code = ASKING + "print(forks._process.pid, flush=True)\ntime.sleep(60)"
    words = [sys.executable, "-c", code, str(tmp_path / "out")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        asking.kill()
    deadline = time.monotonic() + 30
    while process_of(pid):
        assert time.monotonic() < deadline
        # Another test may have made this process the one that adopts orphans, and so has to reap them.
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
