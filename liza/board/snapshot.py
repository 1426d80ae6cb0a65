"""A copy of the state at some place in the journal, so that opening a board need not replay all of it.

It is written now and then, never synced and never trusted: a copy that does not fit is passed over. Tasks
stand in it one by one behind a short index of them, and their histories behind that: who only looks reads the
index, and of the tasks those that it asks for.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import TypeAdapter

from liza.board.journal import JournalPosition
from liza.domain.model import HistoryEntry, State, Task
from liza.domain.record import records_by_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NAME: Final = "snapshot.json"
DRAFT: Final = f"{NAME}.new"
EVERY: Final = (
    256 * 1024
)  # bytes of journal between two snapshots of a small board: some tens of milliseconds


class Snapshot(NamedTuple):
    mark: JournalPosition
    at: datetime  # of the last change in it
    state: State


class TaskRow(NamedTuple):
    """A task as the index tells of it, and where the rest of it and its history end."""

    id: str
    status: str
    description: str
    depends_on: list[str]
    is_leased: bool
    end: int
    past_end: int


class Parts(NamedTuple):
    """A snapshot as it is read, before any task of it is."""

    mark: JournalPosition
    at: datetime
    rest: State  # without its tasks
    rows: list[TaskRow]
    tasks: bytes  # a JSON array, without histories
    past: bytes  # a JSON array of histories


def is_due(journal: int, last: int, size: int) -> bool:
    """Return whether the journal grew enough since the *last* snapshot, whose length was *size*."""
    return journal - last > max(EVERY, size // 2)


def save(path: Path, snapshot: Snapshot, draft: str = DRAFT) -> int:
    """Write the snapshot, first under the name *draft*, and return its length."""
    tasks = snapshot.state.tasks.values()
    rows = [task.model_dump_json(exclude_defaults=True, exclude={"history"}).encode() for task in tasks]
    past = [_history_json(task) for task in tasks]
    head = json.dumps([*snapshot.mark, snapshot.at.isoformat()]).encode()
    rest = snapshot.state.replace(tasks=MappingProxyType({})).model_dump_json(exclude_defaults=True).encode()
    index = json.dumps(list(_index(tasks, rows, past))).encode()
    lists = [b"[%s]" % b",".join(items) for items in (rows, past)]
    body = b"\n".join([head, rest, index, *lists])
    data = b"\n".join([_digest(body), body])
    fresh = path.with_name(draft)
    fresh.write_bytes(data)
    fresh.replace(path)
    return len(data)


def saved_place(path: Path) -> tuple[int, int] | None:
    """Return the place of the snapshot at *path* in the journal, and its length; None without one."""
    try:
        with path.open("rb") as file:
            file.readline()
            return int(json.loads(file.readline())[0]), os.fstat(file.fileno()).st_size
    except (OSError, ValueError, TypeError, LookupError):
        return None


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at *path* from one that was written later in its place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _history_json(task: Task) -> bytes:
    if not task.history:
        return b"[]"
    field = task.model_dump_json(exclude_defaults=True, include={"history"})
    return field.partition(":")[2].removesuffix("}").encode()


def _index(tasks: Iterable[Task], rows: list[bytes], past: list[bytes]) -> Iterator[TaskRow]:
    end = past_end = 0
    for task, row, history in zip(tasks, rows, past, strict=True):
        end, past_end = end + 1 + len(row), past_end + 1 + len(history)  # each behind a bracket or a comma
        known = (task.id, task.status, task.description, list(task.depends_on), task.lease is not None)
        yield TaskRow(*known, end, past_end)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).hexdigest().encode()


def load(path: Path) -> Snapshot | None:
    """Return the snapshot, or None where there is none that is whole and of today's shape."""
    parts = load_parts(path)
    if parts is None:
        return None
    try:
        with _garbage_kept():
            tasks, histories = (
                _tasks_type().validate_json(parts.tasks),
                _past_type().validate_json(parts.past),
            )
            whole = (task.replace(history=past) for task, past in zip(tasks, histories, strict=True))
            return Snapshot(parts.mark, parts.at, parts.rest.replace(tasks=records_by_id(whole)))
    except ValueError:
        return None


def load_parts(path: Path) -> Parts | None:
    """Return the snapshot with its tasks as they stand there, for who needs few of them; None as above."""
    try:
        digest, body = path.read_bytes().split(b"\n", 1)
        if _digest(body) != digest:
            return None
        head, rest, index, tasks, past = body.split(b"\n", 4)
        offset, total, at = json.loads(head)
        with _garbage_kept():
            rows = [TaskRow(*row) for row in json.loads(index)]
            state = State.model_validate_json(rest)
        return Parts(JournalPosition(offset, total), datetime.fromisoformat(at), state, rows, tasks, past)
    except (OSError, ValueError, TypeError):
        return None


@cache
def _tasks_type() -> TypeAdapter[list[Task]]:
    return TypeAdapter(list[Task])


@cache
def _past_type() -> TypeAdapter[list[tuple[HistoryEntry, ...]]]:
    return TypeAdapter(list[tuple[HistoryEntry, ...]])


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Keep the collector off: it would go through the records again and again while their number grows."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
