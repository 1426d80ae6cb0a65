"""What an engine of the board promises; nothing above it knows files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from liza.domain.changes import Change
    from liza.domain.model import State


class JournalEntry(NamedTuple):
    """One change as the journal keeps it: who did what when, and the fields that it set."""

    revision: int
    at: datetime
    by: str
    what: str
    put: dict[str, Any]  # section: its new value, or for sections with ids the changed fields by id
    gone: dict[str, list[str]]  # section: the ids that left it


class Board(Protocol):
    """The one way processes talk to each other."""

    def read(self) -> State:
        """Return the latest state; takes no lock and never sees half a change."""

    def update(self, change: Change) -> State:
        """Let *change* happen to the state as it is under the lock; durable when this returns.

        A change that returns the state it was given changes nothing. One that breaks a rule raises, and
        nothing was written.
        """

    def wait(self, since: int, timeout: float) -> State:
        """Return the state once its revision is past *since*, or after *timeout* seconds as it is then.

        It may return sooner where somebody threw a switch, so whoever needs a change looks at the revision.
        """

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield every change past revision *after*, oldest first."""

    def close(self) -> None:
        """Let go of descriptors and threads; a closed board is not used again."""
