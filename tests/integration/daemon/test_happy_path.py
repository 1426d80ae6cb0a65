"""The way of one task from claim to merge, module by module, as CONTRIBUTING.md tells it."""

from __future__ import annotations

import re
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from liza.domain.model import Status
from liza.repo.fingerprint import CTIME_GRANULARITY
from tests.support.git_processes import count_git
from tests.support.scripted_team import ROOT, ScriptedTeam
from tests.unit.test_project import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

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
MOST_GIT: Final = 30  # git processes from claim to merge, with tests and their proof, without a sandbox
# The process of a worker is around its turns, and the sandbox is only where there is one.
AROUND: Final = {"liza.daemon.worker", "liza.repo.private_gitdir"}


def modules_entered(act: Callable[[], None]) -> list[str]:
    """Return our modules in which a function was called during *act*, in the order of the first calls."""
    for module in MODULES:
        if not module.endswith("__main__"):
            import_module(module)  # so that what a module does when it is loaded is no call
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("liza."):
            found.setdefault(name)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return list(found)


def told() -> set[str]:
    """Return the modules that the table of the way names."""
    way = TEXT[TEXT.index("\n| step | module |") : TEXT.index("\nThe supervisor (")]
    names = re.findall(r"`(?:liza/)?((?:\w+/)+\w+)\.py`", way)
    return {"liza." + re.sub("^policy/", "daemon/policy/", name).replace("/", ".") for name in names}


def test_a_task_goes_the_way_that_is_told(tmp_path: Path) -> None:
    """No module that the page names is passed by, and the way gets no longer unnoticed.

    Where code moved, mend the table in CONTRIBUTING.md; where the way got shorter, its number.
    """
    team = ScriptedTeam(tmp_path, SCRIPT, gates={"test": "python3 -m unittest -q"})
    team.task(scope={"in": ["f.py", "test_f.py"]})
    team.place("coder-1")
    team.place("reviewer-1")
    # About an index that was written just now git is asked each time: on a quick machine more often.
    written = (team.user.directory / ".git" / "index").stat().st_ctime
    while time.time() - written < CTIME_GRANULARITY:
        time.sleep(0.05)

    with count_git() as started:
        entered = modules_entered(lambda: team.turns("coder-1", "reviewer-1"))

    assert team.status() is Status.MERGED
    assert told() - AROUND - set(entered) == set()
    (most,) = re.findall(r"enters at most (\d+) modules", TEXT.replace("\n", " "))
    assert len(entered) <= int(most), entered
    # Each is a process that somebody pays for; where one more is needed, mend decision 5 as well.
    assert started.total() <= MOST_GIT, started
