"""Cases for gates: a real repository with a base and a head, and commands that really run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from liza.domain.config import Config, Gates
from liza.domain.model import Checkpoint, Severity, Status, Task, TaskScope, Validation, Verdict
from liza.gates.context import CommandResult, GateContext, Statements, run_shell
from liza.gates.registry import run_gate
from liza.system.run_control import RunControl, RunLimits
from tests.support.repos import NOW, Home

# Plugins that happen to be installed take a third of the time of a run as short as these.
PYTEST: Final = f"env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
NOTHING: Final[Mapping[str, str]] = {}


class GateCase:
    """Where somebody works: commits are made by hand, commands are counted."""

    def __init__(self, place: Path) -> None:
        self.home = Home(place / "home")
        self.runs = place / "runs"
        self.ran: list[tuple[str, str]] = []
        self.longest = 60.0  # seconds that a command may take
        self.base = self.home.base

    def begin(self, files: Mapping[str, str]) -> None:
        """Make *files* the base."""
        self.base = self.home.commit(files)

    def commit(self, files: Mapping[str, str | None] = NOTHING) -> str:
        """Write *files* and commit everything; None takes one away."""
        for path, text in files.items():
            if text is None:
                (self.home.directory / path).unlink()
        return self.home.commit({path: text for path, text in files.items() if text is not None})

    def run(self, line: str, cwd: Path, name: str) -> CommandResult:
        self.ran.append((name, line))
        folder = self.runs / f"{name}.{len(self.ran)}"
        return run_shell(line, cwd, folder, RunLimits(total=self.longest), RunControl())

    @contextmanager
    def case(
        self,
        *,
        said: Statements | None = None,
        gates: Mapping[str, str] = NOTHING,
        config: Mapping[str, Any] = NOTHING,
        **task: object,
    ) -> Iterator[GateContext]:
        """Give the case of what was committed since the base."""
        case = GateContext(
            task=a_task(**task),
            repository=self.home.repository,
            base=self.base,
            head=self.home.git("rev-parse", "HEAD"),
            config=Config(gates=Gates(**gates), **config),
            run=self.run,
            clock=lambda: NOW,
            said=said or Statements(),
        )
        with case:
            yield case

    def judged(self, kind: str, options: Mapping[str, Any] | None = None, /, **facts: Any) -> Verdict:  # noqa: ANN401
        with self.case(**facts) as case:
            return run_gate(kind, kind, options or {}, case)


def a_task(**facts: Any) -> Task:  # noqa: ANN401 - fields of a task
    return Task.model_validate(
        {
            "id": "t1",
            "description": "Add two numbers",
            "status": Status.WORKING,
            "created": NOW,
            "created_by": "human",
            **facts,
        }
    )


def checkpoint(*files: str, command: str | None = None, expect: str = "") -> Checkpoint:
    validation = Validation(command=command, expect=expect) if command else None
    return Checkpoint(intent="add two numbers", validation=validation, files_to_modify=files)


def scope(*include: str, out: tuple[str, ...] = ()) -> TaskScope:
    return TaskScope(include=include, exclude=out)


def blamed(verdict: Verdict) -> list[str]:
    """Return the files that stand in the way."""
    return sorted(
        {str(one.file) for one in verdict.feedback if one.severity is Severity.BLOCKER and one.file}
    )


def told(verdict: Verdict) -> str:
    return "\n".join([str(verdict.reason), *(one.message for one in verdict.feedback)])
