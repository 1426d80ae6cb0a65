"""Tasks of a snapshot that are parsed only when a field is needed that the index lacks.

For views alone: they ask for attributes. Who writes a record, or compares its fields, reads the whole board.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import PrivateAttr

from liza.domain.model import HistoryEntry, State, Status, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.board.journal import SnapshotParts, TaskRow

HISTORY: Final = "history"
_STATUS: Final = {str(status): status for status in Status}
_NONE: Final[set[str]] = set()
_set: Final = object.__setattr__  # the records are frozen


class _Slice(NamedTuple):
    """A slice of a long sequence, copied only when it is used."""

    whole: bytes
    begin: int
    end: int

    def bytes(self) -> bytes:
        return self.whole[self.begin : self.end]


class GlancedTask(Task):
    """A task of which only the fields are there that were asked for."""

    _row: _Slice = PrivateAttr()
    _past: _Slice = PrivateAttr()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the field holds
        fields = self.__dict__
        if name == HISTORY:
            fields[name] = tuple(map(HistoryEntry.model_validate, json.loads(self._past.bytes())))
        elif name in Task.model_fields:
            known = Task.model_validate_json(self._row.bytes()).__dict__
            fields.update({key: value for key, value in known.items() if key not in {*fields, HISTORY}})
        else:
            return super().__getattr__(name)  # type: ignore[misc] # pydantic hides it from mypy
        return fields[name]

    def whole(self) -> Task:
        """Return the task with all of its fields."""
        known = Task.model_validate_json(self._row.bytes())
        return known.replace(history=self.history)


def glanced_state(parts: SnapshotParts) -> State:
    """Return the board of a snapshot, with tasks that are read when they are asked for."""
    found: dict[str, Task] = {}
    data, tasks_at, past_at = parts.data, parts.tasks_at, parts.past_at
    begin, past_begin = tasks_at, past_at
    for row in parts.rows:
        end, past_end = tasks_at + row.end, past_at + row.past_end
        content, past = _Slice(data, begin + 1, end), _Slice(data, past_begin + 1, past_end)
        found[row.id] = _glanced_task(row, content, past)
        begin, past_begin = end, past_end
    return parts.rest.replace(tasks=MappingProxyType(found))


def _glanced_task(row: TaskRow, content: _Slice, past: _Slice) -> GlancedTask:
    fields: dict[str, Any] = {
        "id": row.id,
        "status": _STATUS[row.status],
        "description": row.description,
        "depends_on": tuple(row.depends_on),
    }
    if not row.is_leased:
        fields["lease"] = None
    task = GlancedTask.__new__(GlancedTask)
    # As `model_construct` does, which would put defaults for all other fields.
    _set(task, "__dict__", fields)
    _set(task, "__pydantic_fields_set__", _NONE)
    _set(task, "__pydantic_extra__", None)
    _set(task, "__pydantic_private__", {"_row": content, "_past": past})
    return task


def with_whole(tasks: Mapping[str, Task], names: set[str]) -> Mapping[str, Task]:
    """Return *tasks* with those of *names* parsed whole, so that they can be changed."""
    whole = {
        name: task.whole() for name, task in tasks.items() if name in names and isinstance(task, GlancedTask)
    }
    return MappingProxyType({**tasks, **whole}) if whole else tasks
