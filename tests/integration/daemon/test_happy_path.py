"""The way of one task from claim to merge, module by module, as CONTRIBUTING.md tells it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.daemon.ask_agent import ask
from liza.daemon.jobs import take_turn
from liza.daemon.turn import AfterTurn
from liza.domain.model import Status
from liza.repo import repository, snapshot
from tests.support import scripted_agent
from tests.support.git_processes import count_git
from tests.support.scripted_team import ROOT, ScriptedTeam
from tests.unit.test_project import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    import pytest

    from liza.daemon.turn import Worker

TEXT: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SCRIPT: Final[dict[str, Any]] = {
    "checkpoint": {"answer": {"intent": "f() and its test", "files_to_modify": ["f.py", "test_f.py"]}},
    "implement": {
        "write": {
            "f.py": "def f():\n    return 1\n",
            "test_f.py": "import unittest\nfrom f import f\n\n\nclass F(unittest.TestCase):\n"
            "    def test_f(self):\n        self.assertEqual(f(), 1)\n",
        },
        "answer": {"status": "done", "summary": "Add f() and its test"},
    },
}
STARTS: Final = subprocess.Popen.__init__.__code__
MOST_FRAMES: Final = 5  # of ours below `ask`, up to the one that starts the process of the agent
MOST_GIT: Final = 25  # git processes from claim to merge, with tests and their proof, without a sandbox
# The process of a worker is around its turns, and the sandbox is only where there is one.
AROUND: Final = {"liza.daemon.worker", "liza.repo.private_gitdir"}


class Way(NamedTuple):
    """Our modules in which a function was called, by the first calls, and our frames below each `ask`."""

    modules: list[str]
    agents: list[list[str]]


def walk(act: Callable[[], None]) -> Way:
    """Return what was entered during *act*."""
    for module in MODULES:
        if not module.endswith("__main__"):
            import_module(module)  # so that what a module does when it is loaded is no call
    found: dict[str, None] = {}
    agents: list[list[str]] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("liza."):
            found.setdefault(name)
        if event == "call" and frame.f_code is STARTS and scripted_agent.__file__ in frame.f_locals["args"]:
            agents.append(below_ask(frame))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return Way(list(found), agents)


def take_turns(*workers: Worker) -> None:
    """Let *workers* take turns until none has anything to do."""
    while not all(take_turn(worker) is AfterTurn.WAIT for worker in workers):
        pass


def below_ask(frame: FrameType | None) -> list[str]:
    """Return our frames from *frame* up to the `ask` that it is for; none where nobody asked."""
    ours: list[str] = []
    while frame is not None and frame.f_code is not ask.__code__:
        name = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
        ours += [name] if name.startswith("liza.") else []
        frame = frame.f_back
    return ours if frame is not None else []


def told() -> set[str]:
    """Return the modules that the table of the way names."""
    way = TEXT[TEXT.index("\n| step | module |") : TEXT.index("\nThe supervisor (")]
    names = re.findall(r"`(?:liza/)?((?:\w+/)+\w+)\.py`", way)
    return {"liza." + re.sub("^policy/", "daemon/policy/", name).replace("/", ".") for name in names}


def test_a_task_goes_the_way_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module that the page names is passed by, and the way gets no longer unnoticed.

    Where code moved, mend the table in CONTRIBUTING.md; where the way got shorter, its number.
    """
    team = ScriptedTeam(tmp_path, SCRIPT, gates={"test": "python3 -m unittest -q"})
    team.task(scope={"in": ["f.py", "test_f.py"]})
    team.worker("coder-1")
    team.worker("reviewer-1")
    # About an index that was written just now git is asked each time: on a quick machine more often.
    monkeypatch.setattr(snapshot, "CTIME_GRANULARITY", 0.0)
    # Settings are read anew every so often: on a slow machine more often.
    monkeypatch.setattr(repository, "SETTINGS_TTL", math.inf)

    team.adopt()  # what the process of a worker does before its turns

    with count_git() as started:
        entered, agents = walk(lambda: take_turns(*team.workers.values()))

    assert team.status() is Status.MERGED
    assert told() - AROUND - set(entered) == set()
    (most,) = re.findall(r"enters at most (\d+) modules", TEXT.replace("\n", " "))
    assert len(entered) <= int(most), entered
    assert len(agents) == len(("checkpoint", "implement", "review")), agents
    assert all(0 < len(below) <= MOST_FRAMES for below in agents), agents
    # Each is a process that somebody pays for; where one more is needed, mend decision 5 as well.
    assert started.total() <= MOST_GIT, started
