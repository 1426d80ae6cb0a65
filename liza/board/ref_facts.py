"""The facts that the rules of pushes ask of a board, of a state, or followed line by line without the model.

A hook is a process for each push, and to load the model takes longer than all that it has to find out.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from liza.domain.shared_refs import INTEGRATION_BRANCH, LeaseFacts, MergeFacts, RefFacts, TaskFacts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.domain.model import State, Task

_FIELDS: Final = ("status", "lease", "merging")  # of a task
_DIGITS: Final = 16  # of the sum by which lines are chained
_TAIL: Final = len(',"sum":""}') + _DIGITS


class FactsFollower:
    """The facts at a place in the journal: all that lines before it said of refs."""

    def __init__(self) -> None:
        self.offset = 0
        self.sum = ""
        self._integration = INTEGRATION_BRANCH
        self._base: str | None = None
        self._tasks: dict[str, dict[str, Any]] = {}  # of each, the fields above as the journal has them
        self._archived: dict[str, str] = {}

    def follow(self, texts: Iterable[str]) -> bool:
        """Read the lines *texts* and return whether each follows on the one before."""
        for text in texts:
            data = text.encode()
            total = hashlib.sha256(self.sum.encode() + data[:-_TAIL]).hexdigest()[:_DIGITS]
            if data[-_TAIL:] != b',"sum":"%s"}' % total.encode():
                return False
            self._apply(json.loads(data))
            self.offset, self.sum = self.offset + len(data) + 1, total
        return True

    def _apply(self, line: dict[str, Any]) -> None:
        put, gone = line["put"], line.get("gone", {})
        if "config" in put:
            self._integration = put["config"].get("integration_branch", INTEGRATION_BRANCH)
        if "integration" in put:
            self._base = put["integration"].get("base")
        self._archived |= put.get("archived", {})
        tasks = put.get("tasks", {})
        # The first line has whole records, each later one the fields that changed.
        for name, fields in tasks.items() if isinstance(tasks, dict) else ((one["id"], one) for one in tasks):
            known = self._tasks.setdefault(name, {})
            known |= {key: fields[key] for key in _FIELDS if key in fields}
        for name in gone.get("tasks", ()):
            self._tasks.pop(name, None)

    def facts(self) -> RefFacts:
        tasks = {name: _facts_in(fields) for name, fields in self._tasks.items()}
        return RefFacts(self._integration, self._base, tasks, self._archived)

    def to_json(self) -> list[Any]:
        return [self.offset, self.sum, self._integration, self._base, self._tasks, self._archived]

    @classmethod
    def from_json(cls, plain: list[Any]) -> FactsFollower:
        """Return the one of whom *plain* was made."""
        made = cls()
        made.offset, made.sum, made._integration, made._base, made._tasks, made._archived = plain
        return made


def facts_of(state: State) -> RefFacts:
    """Return what the rules ask of *state*."""
    tasks = {name: _facts_of_task(task) for name, task in state.tasks.items()}
    return RefFacts(state.config.integration_branch, state.integration.base, tasks, state.archived)


def _facts_of_task(task: Task) -> TaskFacts:
    lease, merging = task.lease, task.merging
    return TaskFacts(
        task.status,
        LeaseFacts(lease.holder, lease.token, lease.expires) if lease else None,
        MergeFacts(merging.onto, merging.commit) if merging else None,
    )


def _facts_in(fields: dict[str, Any]) -> TaskFacts:
    lease, merging = fields.get("lease"), fields.get("merging")
    return TaskFacts(
        fields["status"],
        LeaseFacts(lease["holder"], lease["token"], datetime.fromisoformat(lease["expires"]))
        if lease
        else None,
        MergeFacts(merging["onto"], merging["commit"]) if merging else None,
    )
