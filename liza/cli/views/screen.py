"""Showing a run: redrawn in place on a terminal, a line an event elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from liza.cli.views.fitting import fit_line, fit_text, terminal_width
from liza.cli.views.progress import news_between, progress_lines, progress_sentence
from liza.domain.config import resume_command, switch_cause
from liza.domain.printed_text import escape_unsafe, raw_stream
from liza.domain.record import utc_now
from liza.domain.report_words import run_outcome, tally_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.daemon.view import View
    from liza.domain.model import State

_UP: Final = "\x1b[{}F"  # to the start of the line that many lines above
_CLEAR: Final = "\x1b[J"  # from here to the end
REFRESH_INTERVAL: Final = 1.0  # seconds between two looks of somebody who watches


class LineView:
    """A line for each thing that happens: for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = utc_now) -> None:
        self._stream = stream
        self._clock = clock
        self._shown: State | None = None
        self._switches: Mapping[str, str] = {}

    def say(self, sentence: str) -> None:
        self._write(f"{self._clock():%H:%M:%S}  {sentence}")

    def show(self, state: State, switches: Mapping[str, str]) -> None:
        if self._shown is not None and state is not self._shown:
            for item in news_between(self._shown, state):
                self._write(str(item))
            # When the last task is done the end of the run tells it.
            tally = tally_of(state)
            if tally_of(self._shown).ended < tally.ended < tally.total:
                self.say(progress_sentence(state, self._clock(), switches))
        self._shown = state
        for name, said in switches.items():
            # Also where only the words changed: whoever writes the file by hand creates it first.
            if self._switches.get(name) != said:
                cause = f": {switch_cause(said)}" if said else ""
                self.say(f"{name} is thrown{cause}; `{resume_command(said)}` goes on")
        for name in self._switches.keys() - switches.keys():
            self.say(f"{name} was taken back")
        self._switches = dict(switches)

    def _write(self, line: str) -> None:
        self._stream.write(f"{fit_text(line, terminal_width(self._stream))}\n")
        self._stream.flush()


class LiveView:
    """The whole board, redrawn in place; what was said stays above it."""

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = utc_now) -> None:
        self._stream = raw_stream(stream)
        self._clock = clock
        self._drawn: list[str] = []

    def say(self, sentence: str) -> None:
        self._draw([], above=f"{self._clock():%H:%M:%S}  {sentence}\n")

    def show(self, state: State, switches: Mapping[str, str]) -> None:
        size = shutil.get_terminal_size()
        # One row is left for the cursor, or the terminal scrolls and the next drawing is off by a line.
        lines = progress_lines(state, self._clock(), switches)[: size.lines - 1]
        view = [fit_line(line, size.columns - 1) for line in lines]
        if view != self._drawn:
            self._draw(view)

    def _draw(self, view: list[str], above: str = "") -> None:
        up = _UP.format(len(self._drawn)) if self._drawn else ""
        self._stream.write(up + _CLEAR + escape_unsafe(above + "".join(f"{line}\n" for line in view)))
        self._stream.flush()
        self._drawn = view


class DetachedView:
    """A view that survives the loss of its terminal or pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._view = view_on(stream)

    def say(self, sentence: str) -> None:
        with self._ignore_closed_stream():
            self._view.say(sentence)

    def show(self, state: State, switches: Mapping[str, str]) -> None:
        with self._ignore_closed_stream():
            self._view.show(state, switches)

    @contextmanager
    def _ignore_closed_stream(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # the terminal or the pipe is gone
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)


def view_on(stream: TextIO) -> View:
    """Return how to show a run on *stream*: drawn where that can be, else a line an event."""
    return LiveView(stream) if stream.isatty() and os.environ.get("TERM") != "dumb" else LineView(stream)


def is_interactive(environment: Mapping[str, str]) -> bool:
    """Return whether a person sits before a terminal that can be drawn on and typed into."""
    # The last is where the screen is drawn, so that what goes to the first stays clean.
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    has_terminal = all(stream is not None and stream.isatty() for stream in streams)
    return has_terminal and environment.get("TERM", "dumb") not in {"", "dumb"}


def json_lines(board: Board) -> Iterator[str]:
    """Yield the whole view of *board* as a line of JSON, again after each change, until its goal is over."""
    from liza.cli.views.board_view import board_view  # noqa: PLC0415 - for who wants it only
    from liza.cli.views.gather import Gatherer  # noqa: PLC0415 - as above

    reader = Gatherer(board)
    while True:
        facts = reader.facts(utc_now())
        yield json.dumps(board_view(facts).to_json())
        if facts.state.goal.is_over:
            return
        while board.wait(facts.state.revision, REFRESH_INTERVAL).revision == facts.state.revision:
            pass


def watch(board: Board, view: View, switches: Callable[[], Mapping[str, str]]) -> None:
    """Show *board* until its goal is no longer in progress; no supervisor needs to run."""
    state = board.read()
    if isinstance(view, LineView) and not state.goal.is_over:  # the others draw all of it at once
        view.say(progress_sentence(state, utc_now(), switches()))
    while True:
        view.show(state, switches())
        if state.goal.is_over:
            view.say(run_outcome(state))
            return
        state = board.wait(state.revision, REFRESH_INTERVAL)
