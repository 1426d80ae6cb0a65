"""Loaded by every Python process of a measured run: notes what it starts, and what it used when it ends.

Python imports a module of this name by itself where it is on the path. Workers are forks that end by
`os._exit`, so that is where their notes are written.
"""

from __future__ import annotations

import atexit
import cProfile
import json
import os
import resource
import sys
import time
from pathlib import Path

PLACE = os.environ.get("LIZA_RECORDER", "")
PROFILES = os.environ.get("LIZA_RECORDER_PROFILES") == "1"
OPTION = "-c"  # of git's, each with a value


def note(fact: dict[str, object]) -> None:
    descriptor = os.open(Path(PLACE) / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, json.dumps(fact).encode() + b"\n")
    os.close(descriptor)


def kind_of(words: list[str]) -> str:
    """Return the name of a program; for git, also the command."""
    name = Path(words[0]).name
    rest = words[1:]
    while name == "git" and rest[:1] == [OPTION]:
        rest = rest[2:]
    return f"git {rest[0]}" if name == "git" and rest else name


def hear(event: str, args: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and isinstance(args[1], list | tuple):
        note({"started": kind_of([os.fsdecode(word) for word in args[1]])})


class Recorder:
    """What this process uses, and, where it is wanted, in which functions."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.profile = cProfile.Profile(time.process_time)
        if PROFILES:
            self.profile.enable()

    def begin_again(self) -> None:
        """Begin anew in a fork, which has what its parent had noted."""
        if PROFILES:
            self.profile.disable()
        self.begin()

    def end(self) -> None:
        self.profile.disable()
        if PROFILES:  # before the note, which says that it is there: whoever ends may be killed meanwhile
            self.profile.dump_stats(Path(PLACE) / f"{os.getpid()}.prof")
        own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        words = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
        note(
            {
                "ended": words,
                "cpu": own.ru_utime + own.ru_stime,
                "children": others.ru_utime + others.ru_stime,
                "pid": os.getpid(),
            }
        )


if PLACE:
    RECORDER = Recorder()
    EXIT = os._exit

    def end_and_exit(code: int) -> None:
        RECORDER.end()
        EXIT(code)

    sys.addaudithook(hear)
    os._exit = end_and_exit  # type: ignore[assignment]
    os.register_at_fork(after_in_child=RECORDER.begin_again)
    atexit.register(RECORDER.end)
