"""What a worker is told from outside while it works: switches in `.liza/`, and signals."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from liza.board.location import throw
from liza.board.quarantine import alert
from liza.domain.record import utc_now
from liza.domain.switches import FILES, Switch, thrown
from liza.system.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.system.run_control import Stop


class Orders:
    """The switch that counts for one worker. A signal is like ABORT, for this worker only."""

    def __init__(self, home: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self._home = home
        self._clock = clock
        self._signals = 0
        self._stop: Stop | None = None

    def switch(self) -> Switch:
        return thrown(self.thrown())

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown; what their files say matters to people only."""
        if self._signals:
            return {Switch.ABORT.name: ""}
        return {name: "" for name in FILES if (self._home / name).exists()}

    def signalled(self) -> None:
        """Note a signal: the first asks whatever runs to end, the second ends it; safe in a handler."""
        self._signals += 1
        if self._stop is not None:
            self._tell(self._stop)

    @contextmanager
    def reaching(self, stop: Stop) -> Iterator[None]:
        """Let signals reach *stop* at once, without waiting for anybody's next look."""
        self._stop = stop
        if self._signals:
            self._tell(stop)
        try:
            yield
        finally:
            self._stop = None

    def _tell(self, stop: Stop) -> None:
        if self._signals > 1:
            stop.now()
        else:
            stop.ask()

    def pause(self, why: str) -> None:
        """Throw the PAUSE switch for everybody, and tell people why; one that is there already stays."""
        if throw(self._home, Switch.PAUSE, mask().text(why)):
            alert(self._home, self._clock(), f"everybody pauses: {why}")


def pass_on(switch: Switch, stop: Stop) -> None:
    """Tell whatever listens to *stop* what *switch* means for it."""
    if switch is Switch.ABORT:
        stop.ask()
    elif switch is Switch.PAUSE and not stop.paused:
        stop.pause()
    elif switch in (Switch.NORMAL, Switch.CHECKPOINT) and stop.paused:
        stop.resume()  # at a CHECKPOINT whoever works comes to the end of its turn first
