"""The place of one machine among those that share a board: what it offers, and whether it leads.

Who leads holds the supervisor's name on the board. That is free when its session ends, and the next that asks
takes it; nothing else decides who does.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from liza.board.protocol import SUPERVISOR_NAME
from liza.domain.record import utc_now
from liza.errors import AlreadyRunning, LizaError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liza.board.protocol import Board
    from liza.daemon.policy.staffing import HostOffer

# Seconds without a sign of life by which a host counts for nothing, whatever its connections say.
LONGEST_SILENCE: Final = 10.0
INTERVAL: Final = 2.0  # seconds between two signs of life, and between two tries to lead

log = logging.getLogger(__name__)


class Membership:
    """Says every now and then what this machine offers, and asks whether it may lead.

    A machine without a name is the only one, and leads from the beginning to the end.
    """

    def __init__(
        self,
        board: Board,
        offer: HostOffer,
        wake: Callable[[], None],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.offer = offer
        self.leads = offer.name is None
        self.facts: dict[str, Any] = {"labels": list(offer.labels), **(facts or {})}
        self._board = board
        self._wake = wake
        self._over = threading.Event()
        self._lost = threading.Event()
        self._lead = ExitStack()
        self._may_depose = True
        self._thread = threading.Thread(target=self._keep, name="membership", daemon=True)

    def start(self) -> None:
        if self.offer.name is None:
            return
        try:
            self._step()  # before any work: whoever is alone leads from its first turn on
        except LizaError as error:
            log.debug("not heard by the others: %s", error)
        self._thread.start()

    def close(self) -> None:
        """Let another lead, and say that this machine is not missed."""
        if self.offer.name is None:
            return
        self._over.set()
        self._thread.join()
        self._give_up()
        self.facts["left"] = True
        try:
            self._advertise(self.offer.name)
        except LizaError as error:  # then it is silent, as one that died
            log.debug("not heard by the others: %s", error)

    def _keep(self) -> None:
        while not self._over.wait(INTERVAL):
            try:
                self._step()
            except LizaError as error:  # a board that cannot be reached is for the main thread to tell
                log.debug("not heard by the others: %s", error)

    def _step(self) -> None:
        if self._lost.is_set():
            self._give_up()
        self._advertise(str(self.offer.name))
        if not self.leads:
            self._try_to_lead()

    def _try_to_lead(self) -> None:
        hold = self._board.presence.hold(SUPERVISOR_NAME, at=utc_now(), on_lost=self._lost.set)
        try:
            self._lead.enter_context(hold)
        except Refused:  # this one has not the right to
            return
        except AlreadyRunning:
            if self._may_depose:
                self._depose()
            return
        self.leads = True
        self._wake()

    def _depose(self) -> None:
        try:
            self._board.presence.depose(LONGEST_SILENCE)
        except LizaError as error:  # only the owner of the board may
            log.debug("whoever leads is left to it: %s", error)
            self._may_depose = False

    def _give_up(self) -> None:
        self.leads = False
        self._lead.close()
        self._lost.clear()
        self._wake()

    def _advertise(self, name: str) -> None:
        skew = utc_now() - self._board.now()
        self.facts |= {"skew": round(skew.total_seconds(), 3), "leads": self.leads}
        began = time.monotonic()
        self._board.presence.advertise(name, self.facts)
        self.facts["latency"] = round(time.monotonic() - began, 4)
