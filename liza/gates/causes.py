"""Why a command fails that no coder can mend, as far as its words tell, and what a person should try.

One table: a pattern in what the command printed, and who explains it. Who explains looks at the machine, so
that it names what is there and not only what might be.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from liza.agents.environment import allowed
from liza.gates.failures import UNSTARTED
from liza.gates.running import CUT_SHORT, Ran

_MODULE: Final = re.compile(r"No module named '?(?P<name>[\w.]+)'?")
_MISSING: Final = re.compile(
    r"(?:^|: )(?P<name>[^\s:'\"]+): (?:command |Permission )?(?:not found|No such file or directory|denied)",
    re.MULTILINE,
)
_UNFOUND: Final = re.compile(r"Cannot find (?:module|package) '(?P<name>[^']+)'")
UNKNOWN: Final = "try it in a fresh clone: what it needs beside what is committed belongs into `gates.setup`"


class Setting(NamedTuple):
    """Where the command ran: the user's checkout, and whether a sandbox was around it."""

    root: Path
    is_caged: bool


def likely_cause(setting: Setting, line: str, ran: Ran) -> str:
    """Return what most likely keeps *line* from running, and what to do about it."""
    for explain in _EXPLAINERS:
        if sentence := explain(setting, line, ran):
            return sentence
    return UNKNOWN


def _absent_program(setting: Setting, line: str, ran: Ran) -> str | None:
    """Explain a program or a file that is not where the command looks for it."""
    if ran.code not in UNSTARTED and "o such file or directory" not in ran.said:
        return None
    names = [*_words(line), *(match["name"] for match in _MISSING.finditer(ran.said))]
    for name in dict.fromkeys(names):
        path = Path(name).expanduser()
        there = path if path.is_absolute() else setting.root / path
        if ("/" in name or not path.is_absolute()) and there.exists():
            return _hidden(setting, name, there)
    program = next(iter(_words(line)), line)
    if "/" not in program and shutil.which(program) is None:
        return f"{program} is not on the PATH; install it, or name it by its whole path"
    return None


def _hidden(setting: Setting, name: str, there: Path) -> str:
    if setting.is_caged:
        show = _shown(setting, there)
        return f"{there} is there, and the sandbox does not show it; put {show} into `sandbox.show`"
    if there.is_relative_to(setting.root):
        return (
            f"{name} is in your checkout, but not in git, and so not in the tree under test; make it in "
            "`gates.setup`, copy it by `worktree.copy`, or name it by its whole path"
        )
    return f"{there} is there; look at its rights, and at the program that its first line names"


def _shown(setting: Setting, there: Path) -> str:
    """Return what to show so that *there* works: a whole environment, not the one program in it."""
    if not there.is_relative_to(setting.root):
        return str(there.parent.parent if there.parent.name == "bin" else there)
    return there.relative_to(setting.root).parts[0]


def _absent_module(setting: Setting, line: str, ran: Ran) -> str | None:
    """Explain a Python module that the interpreter of the command does not have."""
    found = _MODULE.search(ran.said)
    if found is None:
        return None
    module = found["name"].partition(".")[0]
    if own := _own_python(line):
        return (
            f"`{own}` is the Python of Liza's own environment ({sys.prefix}), which has no {module}; leave "
            "that environment (`deactivate`), or name the project's Python by its path"
        )
    for place in (setting.root / "src", setting.root):
        if (place / module).is_dir() or (place / f"{module}.py").is_file():
            where = "src" if place.name == "src" else "."
            return (
                f"{module} is a package of the project, which Python does not find in the tree under test; "
                f"put `PYTHONPATH={where}` before the command, or `pip install -e .` into `gates.setup`"
            )
    return f"its Python has no {module}; install it there, or in `gates.setup`"


def _own_python(line: str) -> str | None:
    """Return the word of *line* that is the Python of Liza's own environment."""
    if sys.prefix == sys.base_prefix:
        return None
    path = allowed(os.environ).get("PATH", os.defpath)
    for word in _words(line):
        program = shutil.which(word, path=path) if "/" not in word else word
        if program and re.match(r"python[\d.]*$", Path(program).name):
            return word if Path(program).parent == Path(sys.prefix) / "bin" else None
    return None


def _unfound(setting: Setting, _: str, ran: Ran) -> str | None:
    """Explain a package of Node's that is installed in the checkout only."""
    found = _UNFOUND.search(ran.said)
    if found is None or not (setting.root / "node_modules").is_dir():
        return None
    return f"{found['name']} is not found; make `node_modules` in `gates.setup` (`npm ci`)"


def _words(line: str) -> list[str]:
    """Return the words of *line* that may be programs or files, without variables that are set before."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    return [word for word in words if not word.startswith("-") and "=" not in word and word != "env"]


def _endless(_setting: Setting, _line: str, ran: Ran) -> str | None:
    """Explain a command that was not through in time."""
    if ran.ending not in CUT_SHORT:
        return None
    return (
        "it needs more time than `limits.agent_minutes` gives it, or it waits for what is not there, such as "
        "input, a service or the network"
    )


_EXPLAINERS: Final[tuple[Callable[[Setting, str, Ran], str | None], ...]] = (
    _endless,
    _absent_module,
    _absent_program,
    _unfound,
)
