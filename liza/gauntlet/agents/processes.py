"""Agents that misbehave as processes do: they hang, flood, fork and will not die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Final

from liza.gauntlet.agents.behaviour import (
    ALWAYS,
    Answer,
    Run,
    checkpoint_answer,
    commit_work,
    misbehaviour,
    say_line,
)

LONG: Final = 600  # seconds; far beyond every limit of a case, and an end even if nobody ends it
MANY: Final = 40  # processes of a bomb, which does not grow: the machine is somebody's


@misbehaviour("hangs_at_start", "checkpoint", is_quiet=True)
def hangs_at_start(_act: Run) -> None:
    time.sleep(LONG)


@misbehaviour("hangs_in_silence")
def hangs_in_silence(_act: Run) -> None:
    say_line("I am thinking about it")
    time.sleep(LONG)


@misbehaviour("hangs_noisily")
def hangs_noisily(_act: Run) -> None:
    for number in range(LONG * 10):
        say_line(f"still at it, step {number}")
        time.sleep(0.1)


@misbehaviour("ignores_sigterm")
def ignores_sigterm(_act: Run) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(LONG)


@misbehaviour("stops_itself")
def stops_itself(_act: Run) -> Answer:
    os.kill(os.getpid(), signal.SIGSTOP)
    return commit_work()


@misbehaviour("double_forks", until=99)
def double_forks(act: Run) -> Answer:
    """Leave somebody behind, in a session of its own and without any mark, who spoils the checkout later."""
    line = f"sleep 3; echo spoiled > '{act.root}/notes.txt'; sleep {LONG}"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.execve("/bin/sh", ["sh", "-c", line], {"PATH": os.environ["PATH"]})
        os._exit(0)
    return commit_work()


@misbehaviour("forks_a_bomb")
def forks_a_bomb(act: Run) -> Answer:
    for _ in range(MANY):
        subprocess.Popen(["/bin/sh", "-c", f": '{act.root}'; sleep {LONG}"], start_new_session=True)
    return commit_work()


@misbehaviour("exits_0_with_nothing")
def exits_0_with_nothing(_act: Run) -> None:
    return None


@misbehaviour("exits_1_for_ever", until=ALWAYS)
def exits_1_for_ever(_act: Run) -> None:
    sys.exit(1)


@misbehaviour("is_always_full", "checkpoint", until=ALWAYS)
def is_always_full(_act: Run) -> None:
    say_line("Prompt is too long: 209345 tokens > 200000 maximum")
    sys.exit(1)


@misbehaviour("dies_in_the_middle")
def dies_in_the_middle(_act: Run) -> None:
    """Leave half of the work, by SIGSEGV."""
    commit_work({"shop/discount.py": "def discounted("})
    os.kill(os.getpid(), signal.SIGSEGV)


@misbehaviour("floods_its_output")
def floods_its_output(_act: Run) -> Answer:
    for _ in range(160):
        sys.stdout.write("x" * (128 << 10) + "\n")
    return commit_work()


@misbehaviour("prints_binary")
def prints_binary(_act: Run) -> None:
    sys.stdout.buffer.write(os.urandom(64 << 10) + b"\n```liza\n\xff\xfe\x00status: done\n```\n")


@misbehaviour("keeps_files_open")
def keeps_files_open(act: Run) -> Answer:
    """Leave a child that holds the pipes of the agent open."""
    subprocess.Popen(["/bin/sh", "-c", f": '{act.root}'; exec sleep {LONG}"])
    return commit_work()


@misbehaviour("thinks_too_long_before", "checkpoint")
def thinks_too_long_before(_act: Run) -> Answer:
    """Use up all of its time, busily, before it has begun."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        pass
    return checkpoint_answer()
