"""One task: made from what a person typed, and shown with everything that happened to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from liza.cli.views.status import whole_task
from liza.domain.model import Status, Task
from liza.domain.problems import violations_from
from liza.domain.record import utc_now
from liza.domain.yaml_emit import section_text
from liza.errors import NotThere, UsageError
from liza.workflow.transition import add_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.board.protocol import Board
    from liza.domain.changes import Change
    from liza.domain.model import Actor


def new_task(typed: Mapping[str, Any], by: Actor) -> Change:
    """Return the change that adds the task described by the words of `liza task add`."""
    now = utc_now()
    fields = {
        "id": typed["id"],
        "description": typed["description"],
        "status": Status.IDLE,
        "kind": typed["kind"],
        "priority": typed["priority"],
        "done_when": typed["done_when"],
        "scope": {"in": typed["include"], "out": typed["exclude"]},
        "spec_ref": typed["spec"],
        "depends_on": typed["depends_on"],
        "created": now,
        "created_by": by.id,
    }
    try:
        task = Task.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{wrong.path}: {wrong.problem}" for wrong in violations_from(error, Task, "", {})
        )
        raise UsageError(f"the task was not added: {problems}") from error
    return add_task(task, by=by, at=now)


def task_text(board: Board, name: str, *, as_json: bool) -> str:
    """Return a task, live or archived, with its whole history."""
    task = whole_task(board.entries(), name)
    if task is None:
        raise NotThere("task", name, "`liza status` lists the tasks")
    return json.dumps(task) + "\n" if as_json else section_text("task", task)
