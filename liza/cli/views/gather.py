"""The one reader behind all views: the board, its journal, runs on disk, and who is alive, as values.

It keeps what it read and only reads on, so that looking again after a change costs what changed.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.agents.protocol import STDOUT
from liza.board.protocol import SUPERVISOR_NAME
from liza.cli.views.board_view import BoardFacts, LiveRun, board_view, history_view
from liza.cli.views.past import BoardPast
from liza.cli.views.runs import RunFolder
from liza.cli.views.transcript import last_lines
from liza.errors import InvalidBoard, LizaError
from liza.system.disk_space import disk_shortage
from liza.system.process import process_uses

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from liza.board.protocol import Alert, Board
    from liza.cli.views.board_view import BoardView, HistoryView
    from liza.cli.views.runs import RunRecord
    from liza.domain.model import State
    from liza.system.process import ResourceUse

USE_INTERVAL: Final = 2.0  # seconds between two looks at all processes of the machine, which take a while
SHOWN_ALERTS: Final = 50
TAIL_LINES: Final = 8  # of what an agent printed, that a view of all workers has


class Gatherer:
    """Reads a board for views, again and again."""

    def __init__(self, board: Board, *, tail: int = TAIL_LINES) -> None:
        self._board = board
        self._tail = tail
        self._past = BoardPast()
        self._alerts: list[Alert] = []
        self._uses: dict[str, ResourceUse] = {}
        self._uses_due = 0.0
        self.runs = RunFolder(board.home)

    def facts(self, now: datetime, state: State | None = None) -> BoardFacts:
        """Return the board as it is; *state* is it, where the caller has just read it."""
        trouble = None
        if state is None:
            state, trouble = self._absorb()
        return BoardFacts(
            state=state,
            now=now,
            switches=self._board.switches.thrown(),
            is_running=self._board.presence.is_held(SUPERVISOR_NAME),
            live_workers=(alive := self._board.presence.live_workers()),
            shortage=disk_shortage(self._board.home.parent, state.config.limits.free_disk_mb),
            alerts=self._latest_alerts(),
            runs=self._live_runs(alive),
            trouble=trouble,
            hosts=self._board.presence.hosts(),
        )

    def facts_at(self, moment: int | datetime) -> BoardFacts:
        """Return the board as it was at a revision or a time."""
        state = self._board.at(moment)[0]
        now = self._time_of(state.revision)
        return BoardFacts(
            state=state, now=now, alerts=_alerts_until(self._latest_alerts(), now),
            runs={run.worker: LiveRun(run) for run in self.runs.records() if _was_going_on(run, now)},
            is_past=True,
        )  # fmt: skip

    def view(self, now: datetime) -> BoardView:
        """Return what is shown of the board now."""
        return board_view(self.facts(now))

    def view_at(self, moment: int | datetime) -> BoardView:
        """Return what was to be shown of the board at a revision or a time."""
        return board_view(self.facts_at(moment))

    def history(self, facts: BoardFacts) -> HistoryView:
        """Return what happened up to the moment of *facts*."""
        past = self.past()
        if facts.is_past:
            past = self.past_until(facts.state.revision)
            return history_view(facts, past, (run for run in self.runs.records() if run.began <= facts.now))
        return history_view(facts, past, self.runs.records())

    def past(self) -> BoardPast:
        """Return all that happened so far."""
        self._past = self._past.extend(self._board.entries(self._past.revision))
        return self._past

    def past_until(self, revision: int) -> BoardPast:
        """Return all that happened up to *revision*."""
        entries = self._board.entries()
        return BoardPast().extend(entry for entry in entries if entry.revision <= revision)

    def _absorb(self) -> tuple[State, str | None]:
        try:
            return self._board.absorb(), None
        except InvalidBoard as error:
            return self._board.read(), str(error)

    def _time_of(self, revision: int) -> datetime:
        entry = next(iter(self._board.entries(revision - 1)))
        return entry.at

    def _latest_alerts(self) -> tuple[Alert, ...]:
        end = self._alerts[-1].position if self._alerts else 0
        if end > self._board.alerts.end():
            self._alerts = []  # somebody emptied the log
            end = 0
        with suppress(LizaError):  # a log that cannot be read is no reason to show nothing
            self._alerts += self._board.alerts.after(end)
        del self._alerts[:-SHOWN_ALERTS]
        return tuple(self._alerts)

    def _live_runs(self, alive: Collection[str]) -> Mapping[str, LiveRun]:
        going = [run for run in self.runs.latest(alive) if run.ending is None]
        if going and time.monotonic() >= self._uses_due:
            self._uses = process_uses(self.runs.path, [run.run for run in going])
            self._uses_due = time.monotonic() + USE_INTERVAL
        return {run.worker: self._live_run(run) for run in going}

    def _live_run(self, run: RunRecord) -> LiveRun:
        lines = last_lines(self.runs.path / run.run / STDOUT, self._tail)
        return LiveRun(run, tuple(map(str, lines)), self._uses.get(run.run))


def _alerts_until(alerts: tuple[Alert, ...], now: datetime) -> tuple[Alert, ...]:
    last = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return tuple(alert for alert in alerts if alert.at <= last)


def _was_going_on(run: RunRecord, now: datetime) -> bool:
    return run.began <= now and run.ending is not None and run.began + timedelta(seconds=run.seconds) > now
