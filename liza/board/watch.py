"""File watch on `.liza/`: wakes waiters when a file changes."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.polling import PollingObserver

from liza.domain.switches import SWITCH_FILES
from liza.system.host import host

if TYPE_CHECKING:
    from pathlib import Path

    from watchdog.events import FileSystemEvent

# Opening and closing without a write are left out: reading the board would wake whoever reads it.
_KINDS: Final = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent, FileDeletedEvent, FileClosedEvent]

POLL_INTERVAL: Final = 0.2  # seconds between two looks where the kernel does not tell

log = logging.getLogger(__name__)


class Watch(FileSystemEventHandler):
    """Counts changes of files directly in *directory*; any number of threads may wait."""

    def __init__(self, directory: Path, ignored: frozenset[str]) -> None:
        self.wakeups = 0
        self.alarms = 0  # how many of the rings were for a switch
        self._rung = threading.Condition()
        self._ignored = ignored
        self._observer = Observer() if host().SIGNALS_FILE_CHANGES else PollingObserver(timeout=POLL_INTERVAL)
        self._observer.schedule(self, str(directory), event_filter=_KINDS)
        self._observer.start()

    def on_any_event(self, event: FileSystemEvent) -> None:
        names = {str(path).rpartition("/")[2] for path in (event.src_path, event.dest_path) if path}
        if names - self._ignored:
            with self._rung:
                self.wakeups += 1
                self.alarms += not names.isdisjoint(SWITCH_FILES)
                self._rung.notify_all()

    def wait(self, heard: int, timeout: float) -> None:
        """Return once the bell rang more than *heard* times, or after *timeout* seconds."""
        with self._rung:
            self._rung.wait_for(lambda: self.wakeups > heard, timeout)

    def close(self) -> None:
        self._observer.stop()
        self._observer.join()


def open_watch(directory: Path, ignored: frozenset[str]) -> Watch | None:
    """Return a watch, or None where the kernel grants none; the caller then polls."""
    try:
        return Watch(directory, ignored)
    except OSError as error:
        log.warning("no file watch on %s (%s): looking every so often instead", directory, error)
        return None
