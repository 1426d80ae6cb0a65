"""The file watch where the kernel tells nothing: watchdog looks at the files every so often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEventHandler,
)
from watchdog.observers.polling import PollingObserver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from watchdog.events import FileSystemEvent

# Opening and closing without a write are left out: reading the board would wake whoever reads it.
_KINDS: Final = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent, FileDeletedEvent, FileClosedEvent]

POLL_INTERVAL: Final = 0.2  # seconds between two looks


class _ChangeHandler(FileSystemEventHandler):
    def __init__(self, ring: Callable[[set[str]], None]) -> None:
        self._ring = ring

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._ring({str(path).rpartition("/")[2] for path in (event.src_path, event.dest_path) if path})


def poll_files(directory: Path, ring: Callable[[set[str]], None]) -> Callable[[], None]:
    """Call *ring* with the names of changed files, in a thread, until the returned function is called."""
    observer = PollingObserver(timeout=POLL_INTERVAL)
    observer.schedule(_ChangeHandler(ring), str(directory), event_filter=_KINDS)
    observer.start()

    def close() -> None:
        observer.stop()
        observer.join()

    return close
