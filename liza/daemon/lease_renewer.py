"""Two threads beside a turn: one renews the lease while the run shows signs of life, ends runs above their
cap and passes on switches; the other ends the run where the lease could not be renewed in time.

The second never waits for the board. It goes by the steady clock of this machine, so that a worker that is
cut off has stopped before its lease ends for everybody else.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from liza.daemon.stop_requests import forward_switch
from liza.domain.events import Renew
from liza.errors import LizaError, Refused
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.daemon.stop_requests import StopRequests
    from liza.domain.model import Actor
    from liza.system.run_control import RunControl

COST_INTERVAL: Final = 0.5  # seconds between two looks at the money while an agent runs
SWITCH_INTERVAL: Final = 0.1  # seconds between two looks at the switches; all agents are to end within one
FENCE_SHARE: Final = 0.1  # of a lease, before its end, at which whoever could not renew it stops
LONGEST_FENCE: Final = 2.0  # seconds; ending an agent takes less
RENEWALS_PER_LEASE: Final = 3  # a lease is renewed after this part of it, so that two renewals may go wrong

log = logging.getLogger(__name__)


class HeldLease(NamedTuple):
    """A task that a worker holds, and the token that proves it."""

    task: str
    by: Actor
    seconds: float


class LeaseRenewer:
    """Renews the lease of one turn; a lost lease stops its run at once.

    *too_dear* gets the cost of the run so far and returns why it has to end, or None.
    """

    def __init__(
        self,
        board: Board,
        orders: StopRequests,
        stop: RunControl,
        held: HeldLease | None,
        clock: Callable[[], datetime],
        too_dear: Callable[[float], str | None] = lambda _: None,
    ) -> None:
        self.lost: str | None = None
        self._too_dear = too_dear
        self._count = time.monotonic() + COST_INTERVAL
        self._board = board
        self._orders = orders
        self._stop = stop
        self._held = held
        self._clock = clock
        self._patience: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._due = time.monotonic() + (held.seconds / RENEWALS_PER_LEASE if held else 0)
        self._ends = steady_seconds() + (held.seconds if held else 0)  # for everybody else
        self._fence = threading.Thread(target=self._stop_in_time, name="fence", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if self._held:
            self._fence.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._held:
            self._fence.join()

    @contextmanager
    def require_liveness(self, patience: float) -> Iterator[None]:
        """Renew only while a run shows signs of life at least every *patience* seconds."""
        self._stop.note_life()
        self._patience = patience
        try:
            yield
        finally:
            self._patience = None

    def _keep(self) -> None:
        while not self._over.wait(SWITCH_INTERVAL):
            forward_switch(self._orders.switch(), self._stop)
            if self._held and self.lost is None and time.monotonic() >= self._due and self._is_alive():
                self._renew(self._held)
            if self._patience is not None and self._stop.capped is None and time.monotonic() >= self._count:
                self._check_cost()

    def _check_cost(self) -> None:
        self._count = time.monotonic() + COST_INTERVAL
        try:
            why = self._too_dear(self._stop.usd)
        except LizaError as error:  # as with the lease; the run's own end tells what it cost
            log.warning("what the run costs could not be compared with its cap: %s", error)
            return
        if why:
            self._stop.cap(why)

    def _is_alive(self) -> bool:
        if self._patience is None or self._stop.paused:
            return True
        return time.monotonic() - self._stop.seen <= self._patience

    def _renew(self, held: HeldLease) -> None:
        self._due = time.monotonic() + held.seconds / RENEWALS_PER_LEASE
        began, now = steady_seconds(), self._clock()
        renewal = Renew(expires=now + timedelta(seconds=held.seconds))
        try:
            self._board.update(apply(renewal, to=held.task, by=held.by, at=now))
        except Refused as error:
            self.lost = str(error)
            self._stop.now()
        except LizaError as error:  # a full disk may be better in a while; if not, the lease ends by itself
            log.warning("%s: the lease could not be renewed: %s", held.task, error)
        else:
            self._ends = began + held.seconds

    def _stop_in_time(self) -> None:
        """End the run shortly before the lease ends that could not be renewed."""
        seconds = self._held.seconds if self._held else 0.0
        margin = min(LONGEST_FENCE, FENCE_SHARE * seconds)
        while (left := self._ends - margin - steady_seconds()) > 0:
            if self._over.wait(min(left, 1.0)):  # the machine may sleep meanwhile
                return
        if self.lost is None:
            self.lost = f"{self._held.task if self._held else ''}: its lease could not be renewed in time"
            log.warning("%s; the run is ended", self.lost)
            self._stop.now()


def steady_seconds() -> float:
    """Return seconds that only go forward, also while the machine sleeps where it can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
