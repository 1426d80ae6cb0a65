"""Finished tasks leave the board once there are many, and stay readable in `.liza/archive/`."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from liza.domain.lifecycle import TERMINAL
from liza.domain.yaml_emit import section_text
from liza.system.files import overwrite

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from liza.domain.model import State, Task

DIRECTORY: Final = "archive"
SLACK: Final = 20  # tasks beyond the limit before any is moved, so that not every merge moves one

log = logging.getLogger(__name__)


def retire_finished(state: State) -> State:
    """Return *state* without its oldest finished tasks, or the same one while there are few."""
    limit = state.config.limits.finished_on_board
    if len(state.tasks) <= limit + SLACK:
        return state
    finished = [task for task in state.tasks.values() if task.status in TERMINAL]
    if len(finished) <= limit + SLACK:
        return state
    finished.sort(key=lambda task: task.history[-1].at)
    gone = {task.id: task.status for task in finished[: len(finished) - limit]}
    return state.replace(
        tasks=MappingProxyType({name: task for name, task in state.tasks.items() if name not in gone}),
        handoff=MappingProxyType({name: note for name, note in state.handoff.items() if name not in gone}),
        # What it cost stays in the total; `liza cost` tells it from the recorded runs.
        accounts=MappingProxyType({name: one for name, one in state.accounts.items() if name not in gone}),
        archived=MappingProxyType({**state.archived, **gone}),
    )


def write_archive(home: Path, tasks: Iterable[Task]) -> None:
    """Write each task as a file; the journal can tell them again, so trouble here is only reported."""
    try:
        (home / DIRECTORY).mkdir(exist_ok=True)
        for task in tasks:
            overwrite(home / DIRECTORY / f"{task.id}.yaml", section_text("task", task.to_json()))
    except OSError as error:
        log.warning("archive/ is not complete: %s", error)
