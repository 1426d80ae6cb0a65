"""The first part of every prompt: role, paths, specs and task; an agent is not started while one of them is
missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy.plan_checks import spec_file
from liza.domain.answers import Step

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import Role, State, Task

# Characters of a spec that a prompt carries where the agent cannot read the file.
LONGEST_SPEC: Final = 20_000


class RunPaths(NamedTuple):
    """The paths of a run."""

    root: Path  # of the user's project
    cwd: Path  # where the agent works
    seen: Path  # the path of that for the agent itself


class Bootstrap(NamedTuple):
    """Role, specs, board, root and task, as an agent is given them."""

    role: Role
    step: Step
    root: Path  # of the user's project
    cwd: Path  # where the agent works
    seen: Path  # the path of that for the agent itself
    goal: str
    task: Task | None = None
    spec: str | None = None  # the reference that counts for the task, or else for the goal
    hat: str | None = None  # the role of the workflow that is played in the phase of the task

    @classmethod
    def of(
        cls,
        role: Role,
        step: Step,
        state: State,
        task: Task | None,
        where: RunPaths,
        hat: str | None = None,
    ) -> Bootstrap:
        # A task whose spec is missing can only be replanned by who reads the goal's.
        own = task.spec_ref if task and step is not Step.REPLAN else None
        reference = own or state.goal.spec_ref
        return cls(role, step, *where, state.goal.description, task, reference, hat)

    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each thing that is missing."""
        task = None if self.step is Step.REPLAN else self.task  # what a task lacks is a reason to replan it
        found = {
            "the goal has no words": bool(self.goal.strip()),
            f"its working directory {self.cwd} does not exist": self.cwd.is_dir(),
            f"its spec {self.spec!r} is no file of the repository": self.spec is None
            or self._file() is not None,
            "the task has no description": task is None or bool(task.description.strip()),
            "the task has no done_when, so nobody could tell when it is done": task is None
            or bool(task.done_when),
        }
        return tuple(sentence for sentence, is_there in found.items() if not is_there)

    def text(self) -> str:
        """Return what stands in the prompt."""
        return "\n".join(
            [
                f"role: {self.role}, step: {self.step}",
                f"task: {self.task.id if self.task else 'none; the goal as a whole'}",
                *self._phase_lines(),
                f"working directory: {self.seen}",
                *self._location_lines(),
                f"specs: {self.spec or 'none but the goal'}",
                *self._spec_text_lines(),
            ]
        )

    def _phase_lines(self) -> list[str]:
        position = self.task.position if self.task else None
        return [f"phase: {position.phase}, hat: {self.hat}"] if position and self.hat else []

    def _location_lines(self) -> list[str]:
        if self.seen != self.cwd:
            note = "a worktree of your own, at the path of the project; the user's checkout is out of reach"
            return [f"project root: {self.seen} ({note})", "board: kept by Liza, out of reach"]
        return [
            f"project root: {self.root} (the user's own checkout; it is not yours)",
            f"board: {self.root}/.liza (kept by Liza; it is not yours to read or write)",
        ]

    def _file(self) -> Path | None:
        """Return the spec file: from the agent's checkout, or from the user's where it is not committed."""
        path = spec_file(self.spec or "")
        found = (root / path for root in (self.cwd, self.root))
        return next((file for file in found if file.is_file()), None)

    def _spec_text_lines(self) -> list[str]:
        file = self._file() if self.spec else None
        if file is None or file.is_relative_to(self.cwd):
            return []
        text = file.read_text(errors="replace")[:LONGEST_SPEC]
        return ["", f"The spec is not committed yet, so this is what {self.spec} says:", "", text]
