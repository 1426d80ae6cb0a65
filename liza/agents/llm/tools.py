"""What the model may do: run a shell command, and, in steps that write, edit a file of the worktree."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza.domain.answers import Step
from liza.system import process
from liza.system.run_control import RunControl, RunEnding, RunLimits
from liza.system.sandbox.bubblewrap import HEADLESS, allowed_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WRITING_STEPS: Final = frozenset({Step.IMPLEMENT})
LONGEST_OUTPUT: Final = 16_000  # characters of what a command printed that the model is shown
COMMAND_SECONDS: Final = 120.0  # a command may take, unless the model asks for another time
MOST_SECONDS: Final = 900.0  # it may ask for
SHELL: Final = "shell"
EDIT: Final = "edit"


@dataclass
class Toolbox:
    """The tools of one run. In a step that only reads, commands run in a copy that nobody looks at."""

    step: Step
    cwd: Path
    folder: Path  # gets what commands print, until the model has been told
    mark: Path | None = None  # of the run
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    _copy: tempfile.TemporaryDirectory[str] | None = None
    _count: int = 0

    @property
    def writes(self) -> bool:
        return self.step in WRITING_STEPS

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as a model is told of them."""
        return [_tool_schema(name) for name in ([SHELL, EDIT] if self.writes else [SHELL])]

    def use(self, name: str, arguments: object) -> str:
        """Do what the model asks for; return what it is told, also where it asked for nonsense."""
        if not isinstance(arguments, dict):
            return "error: the arguments are no JSON object"
        if name == SHELL:
            return self._shell(arguments)
        if name == EDIT and self.writes:
            return _edit_file(self.cwd, arguments)
        return f"error: there is no tool {name!r}; use {' or '.join(_names(self.schemas()))}"

    def close(self) -> None:
        if self._copy:
            self._copy.cleanup()

    def _shell(self, arguments: Mapping[str, object]) -> str:
        command, seconds = arguments.get("command"), arguments.get("seconds", COMMAND_SECONDS)
        if not isinstance(command, str) or not command.strip():
            return "error: give the command as a string"
        if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
            return f"error: seconds is a number up to {MOST_SECONDS:g}"
        self._count += 1
        where = self._place()
        job = process.Job(
            argv=["/bin/sh", "-c", command],
            cwd=where,
            folder=self.folder / SHELL / f"{self._count}",
            mark=self.mark or self.folder,
            # Without the keys that this process has: the model's commands need none.
            environment=allowed_environment(self.environment) | HEADLESS,
            limits=RunLimits(total=float(seconds)),
        )
        return _result_text(process.run_job(job, RunControl()))

    def _place(self) -> Path:
        """Return where commands run: in the worktree, or for who only reads in a copy of it."""
        if self.writes:
            return self.cwd
        if self._copy is None:
            self._copy = tempfile.TemporaryDirectory(prefix="liza-read-", ignore_cleanup_errors=True)
            # Without .git, which would lead every git command back to the tree that must not change.
            shutil.copytree(
                self.cwd,
                self._copy.name,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns(".git"),
            )
        return Path(self._copy.name)


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _result_text(outcome: process.ProcessOutcome) -> str:
    ended = (
        f"exit code {outcome.code}"
        if outcome.ending is RunEnding.DONE
        else f"{outcome.ending}: {outcome.why}"
    )
    both = "\n".join(part.rstrip("\n") for part in (outcome.out, outcome.err) if part)
    return f"{ended}\n{cut_middle(both)}".rstrip("\n")


def cut_middle(text: str) -> str:
    """Return *text*, or its beginning and its end where it is longer than `LONGEST_OUTPUT`."""
    if len(text) <= LONGEST_OUTPUT:
        return text
    half = LONGEST_OUTPUT // 2
    return f"{text[:half]}\n[{len(text) - LONGEST_OUTPUT} characters cut here]\n{text[-half:]}"


def _edit_file(cwd: Path, arguments: Mapping[str, object]) -> str:
    name, old, new = (arguments.get(key) for key in ("path", "old", "new"))
    if not isinstance(name, str) or not isinstance(old, str) or not isinstance(new, str):
        return "error: give path, old and new as strings"
    path = cwd / name
    if not _is_inside(path, cwd):
        return f"error: {name} is not a file of the working directory"
    try:
        return _replace_text(path, name, old, new)
    except (OSError, UnicodeError) as error:
        return f"error: {name}: {error}"


def _replace_text(path: Path, name: str, old: str, new: str) -> str:
    if not old:
        if path.exists():
            return f"error: {name} is there already; give the old text that is to be replaced"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new, encoding="utf-8")
        return f"made {name}"
    text = path.read_text(encoding="utf-8")
    if (count := text.count(old)) != 1:
        return f"error: the old text is {count} times in {name}; give one that is there once"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return f"changed {name}"


def _is_inside(path: Path, cwd: Path) -> bool:
    real, root = path.resolve(), cwd.resolve()
    return real != root and real.is_relative_to(root) and ".git" not in real.relative_to(root).parts


_DESCRIPTIONS: Final = {
    SHELL: "Run a shell command in the working directory; you get its exit code and what it printed.",
    EDIT: "Replace a text that is in a file exactly once; with an empty old text, make the file.",
}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    SHELL: {
        "command": {"type": "string"},
        "seconds": {
            "type": "number",
            "description": f"how long it may take; {COMMAND_SECONDS:g} if not given",
        },
    },
    EDIT: {
        "path": {"type": "string", "description": "relative to the working directory"},
        "old": {"type": "string"},
        "new": {"type": "string"},
    },
}
_REQUIRED: Final = {SHELL: ["command"], EDIT: ["path", "old", "new"]}


def _tool_schema(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": _PARAMETERS[name], "required": _REQUIRED[name]}
    return {
        "type": "function",
        "function": {"name": name, "description": _DESCRIPTIONS[name], "parameters": parameters},
    }
