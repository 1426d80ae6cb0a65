"""Requests from outside to a worker at work: switches in `.liza/`, and signals."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from liza.domain.record import utc_now
from liza.domain.switches import Switch, strongest_switch
from liza.system.masking import environment_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.system.run_control import RunControl


class StopRequests:
    """The switch that applies to one worker. A signal acts like ABORT for this worker only."""

    def __init__(self, board: Board, clock: Callable[[], datetime] = utc_now) -> None:
        self._board = board
        self._clock = clock
        self._signals = 0
        self._stop: RunControl | None = None

    def switch(self) -> Switch:
        return strongest_switch(self.thrown())

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown, for this worker."""
        if self._signals:
            return {Switch.ABORT.name: ""}
        return self._board.switches.thrown()

    def add_signal(self) -> None:
        """Note a signal: the first asks whatever runs to end, the second ends it; safe in a handler."""
        self._signals += 1
        if self._stop is not None:
            self._tell(self._stop)

    @contextmanager
    def forward_signals_to(self, stop: RunControl) -> Iterator[None]:
        """Pass signals to *stop* at once, without waiting for the next poll."""
        self._stop = stop
        if self._signals:
            self._tell(stop)
        try:
            yield
        finally:
            self._stop = None

    def _tell(self, stop: RunControl) -> None:
        if self._signals > 1:
            stop.now()
        else:
            stop.ask()

    def pause(self, why: str) -> None:
        """Throw the PAUSE switch for everybody, and tell people why; one that is there already stays."""
        if self._board.switches.throw(Switch.PAUSE, environment_mask().text(why)):
            self._board.alerts.append(f"everybody pauses: {why}", at=self._clock())


def forward_switch(switch: Switch, stop: RunControl) -> None:
    """Tell whatever listens to *stop* what *switch* means for it."""
    if switch is Switch.ABORT:
        stop.ask()
    elif switch is Switch.PAUSE and not stop.paused:
        stop.pause()
    elif switch in (Switch.NORMAL, Switch.CHECKPOINT) and stop.paused:
        stop.resume()  # at a CHECKPOINT whoever works comes to the end of its turn first
