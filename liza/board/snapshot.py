"""A copy of the state at some place in the journal, so that opening a board need not replay all of it.

It is written now and then, never synced and never trusted: a copy that does not fit is passed over.
"""

from __future__ import annotations

import gc
import hashlib
import json
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.journal import JournalPosition
from liza.domain.model import State

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def is_due(journal: int, last: int, size: int) -> bool:
    """Return whether the journal grew enough since the *last* snapshot, whose length was *size*."""
    return journal - last > max(EVERY, size // 2)


def save(path: Path, snapshot: Snapshot, draft: str = DRAFT) -> int:
    """Write the snapshot, first under the name *draft*, and return its length."""
    head = json.dumps([*snapshot.mark, snapshot.at.isoformat()]).encode()
    body = snapshot.state.model_dump_json(exclude_defaults=True).encode()
    digest = hashlib.blake2b(head + body, digest_size=8).hexdigest().encode()
    fresh = path.with_name(draft)
    data = b"\n".join([digest, head, body])
    fresh.write_bytes(data)
    fresh.replace(path)
    return len(data)


def load(path: Path) -> Snapshot | None:
    """Return the snapshot, or None where there is none that is whole and of today's shape."""
    try:
        digest, head, body = path.read_bytes().split(b"\n", 2)
        if hashlib.blake2b(head + body, digest_size=8).hexdigest().encode() != digest:
            return None
        offset, total, at = json.loads(head)
        with _garbage_kept():
            state = State.model_validate_json(body)
        return Snapshot(JournalPosition(offset, total), datetime.fromisoformat(at), state)
    except (OSError, ValueError):
        return None


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
