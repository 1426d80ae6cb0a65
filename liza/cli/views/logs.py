"""What agents say and do, read along: the transcript of a run, or of the latest of a worker or task."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import REPLY, STDERR, STDOUT
from liza.board.protocol import SUPERVISOR_NAME
from liza.cli.views.runs import RunFolder, worker_of
from liza.cli.views.transcript import (
    CHUNK,
    MOST,
    LineKind,
    TranscriptLine,
    TranscriptReader,
    TranscriptWindow,
    bytes_from,
    end_bytes,
    last_window,
)
from liza.daemon.policy.staffing import team_of
from liza.domain.record import utc_now
from liza.domain.report_words import duration_text
from liza.errors import NotThere
from liza.system.process import process_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State

SHOWN_LINES: Final = 100  # of a transcript, where nobody says how many
STDERR_LINES: Final = 20  # of what it said beside that, where it matters
FOLLOW_INTERVAL: Final = 0.3  # seconds between two looks at a transcript that grows


class LogLine(NamedTuple):
    """A line of what `liza logs` prints, and the run it is of."""

    run: str
    line: TranscriptLine

    def __str__(self) -> str:
        return str(self.line)

    def to_json(self) -> str:
        return json.dumps({"run": self.run, "kind": str(self.line.kind), "text": self.line.text})


class LogRequest(NamedTuple):
    """Whose transcript is wanted: a run, a worker or a task, and how much of it."""

    subject: str
    last: int | None = None  # lines; None stands for as many as people read, or raw for all
    follow: bool = False
    raw: bool = False
    before: int | None = None  # the offset in the transcript before which the lines are wanted


class LogPage(NamedTuple):
    """Some lines of a run; *earlier* is the offset before which there are more, 0 where there are none."""

    lines: tuple[TranscriptLine, ...]
    earlier: int


class LogReader:
    """Finds runs and reads them; *wait* lets some time pass between two looks at what grows."""

    def __init__(self, board: Board, request: LogRequest, wait: Callable[[float], None]) -> None:
        self._board = board
        self._request = request
        self._wait = wait
        state = board.read()
        self._runs = RunFolder(board.home, state.config.transcripts)
        self._check_subject(state)

    def page(self) -> LogPage:
        """Return a window of the latest run, with its heading, for who shows one at a time."""
        run = self._latest()
        if run is None:
            raise self._no_run()
        window = self._window(run)
        heading = TranscriptLine(LineKind.NOTE, self._heading(run))
        ending = self._ending(self._runs.folder(run)) if self._request.before is None else ()
        return LogPage((heading, *window.lines, *ending), window.start)

    def _no_run(self) -> NotThere:
        if elsewhere := self._host_of(self._board.read()):
            return NotThere("run of", self._request.subject, elsewhere)
        why = "nothing of it is in .liza/runs: it has not run yet, or its folder was removed"
        return NotThere("run of", self._request.subject, why)

    def lines(self) -> Iterator[LogLine]:
        """Yield what there is, then, where it is followed, what comes, from one run to the next."""
        run = self._latest()
        if run is None and not self._request.follow:
            raise self._no_run()
        done: set[str] = set()
        while True:
            if run is not None:
                yield from self._run_lines(run)
                done.add(run)
            if not self._request.follow or self._request.subject == run:
                return
            while (run := self._latest()) is None or run in done:
                if self._is_over():
                    return
                self._wait(FOLLOW_INTERVAL)

    def _check_subject(self, state: State) -> None:
        workers, names = {*team_of(state), *state.agents}, self._runs.names()
        known = {*workers, *map(worker_of, names), *names, *state.tasks, *state.archived}
        if self._request.subject not in known and (elsewhere := self._host_of(state)):
            raise NotThere("run", self._request.subject, elsewhere)
        if self._request.subject not in known:
            hint = f"tasks are listed by `liza status`; workers are {', '.join(sorted(workers))}; "
            raise NotThere("task, worker or run", self._request.subject, f"{hint}runs are in .liza/runs")

    def _host_of(self, state: State) -> str | None:
        """Return on which other machine the worker of the subject is, and how to read what it did."""
        task = state.tasks.get(self._request.subject)
        worker = (task.authors[-1:] or ("",))[0] if task else worker_of(self._request.subject)
        host = state.agents[worker].host if worker in state.agents else None
        if host is None:
            return None
        shared = (
            "its runs come to `transcripts` when they end"
            if state.config.transcripts
            else ("name a directory in `transcripts` in liza.yaml to read them everywhere")
        )
        return f"{worker} runs on the host {host}: look there (`liza logs` in its clone); {shared}"

    def _latest(self) -> str | None:
        subject, names = self._request.subject, self._runs.names()
        if subject in names:
            return subject
        if subject in self._board.read().tasks or subject not in set(map(worker_of, names)):
            about = [record.run for record in self._runs.records() if record.task == subject]
            return about[-1] if about else None
        return [name for name in names if worker_of(name) == subject][-1]

    def _is_over(self) -> bool:
        """Return whether nothing more will come: nobody runs who could begin something."""
        return not self._board.presence.is_held(SUPERVISOR_NAME)

    def _run_lines(self, run: str) -> Iterator[LogLine]:
        folder = self._runs.folder(run)
        if not self._request.raw:
            yield LogLine(run, TranscriptLine(LineKind.NOTE, self._heading(run)))
        for line in self._raw(folder) if self._request.raw else self._readable(folder):
            yield LogLine(run, line)
        if not self._request.raw and self._request.before is None:
            yield from (LogLine(run, line) for line in self._ending(folder))

    def _heading(self, run: str) -> str:
        record = self._runs.record(run)
        if record is None:
            return f"{run} (a command of a gate)"
        about = f" of {record.task}" if record.task else ""
        told = f"{run}: {record.worker}, {record.step}{about}, since {record.began:%H:%M:%SZ}"
        if record.ending is not None:
            return told
        use = process_uses(self._runs.path, [run]).get(run)
        age = duration_text(utc_now() - record.began)
        return f"{told}, {age} so far, {use or 'no process of it is alive'}"

    def _readable(self, folder: Path) -> Iterator[TranscriptLine]:
        window = self._window(folder.name)
        if window.start and window.lines:
            earlier = f"{window.start:,} bytes before this: `liza logs {folder.name} --before {window.start}`"
            yield TranscriptLine(LineKind.NOTE, earlier)
        yield from window.lines
        offset, reader = window.end, TranscriptReader()
        for data in self._following(folder, offset):
            yield from reader.feed(data)
        # What was there without a line break at its end was shown already, unless it went on since.
        yield from reader.rest() if self._request.follow else ()

    def _window(self, run: str) -> TranscriptWindow:
        """Return the lines of *run* that were asked for; none where it has printed nothing, or is gone."""
        count = SHOWN_LINES if self._request.last is None else self._request.last
        try:
            return last_window(self._runs.folder(run) / STDOUT, count, before=self._request.before)
        except OSError:
            return TranscriptWindow((), 0, 0)

    def _raw(self, folder: Path) -> Iterator[TranscriptLine]:
        try:
            offset = 0 if self._request.last is None else _offset_of(folder / STDOUT, self._request.last)
        except OSError:
            offset = 0
        held, decode = b"", getincrementaldecoder("utf-8")(errors="replace").decode
        for data in self._following(folder, offset, is_all=True):
            *lines, held = (held + data).split(b"\n")
            yield from (TranscriptLine(LineKind.TEXT, decode(line, final=True)) for line in lines)
            if len(held) > CHUNK:  # a line may be as long as the file
                yield TranscriptLine(LineKind.TEXT, decode(held), is_part=True)
                held = b""
        if held:
            yield TranscriptLine(LineKind.TEXT, decode(held, final=True))
        if not (folder / STDOUT).exists() and (folder / REPLY).exists():  # it was no process
            said = _reply_of(folder).splitlines()
            shown = said if self._request.last is None else said[max(0, len(said) - self._request.last) :]
            yield from (TranscriptLine(LineKind.TEXT, line) for line in shown)

    def _following(self, folder: Path, offset: int, *, is_all: bool = False) -> Iterator[bytes]:
        """Yield what is behind *offset*: all that there is, and what comes until the run is over."""
        if not (is_all or self._request.follow):
            return
        while True:
            # Looked at before reading: what was printed up to the end of the run is read then.
            is_over = not self._request.follow or self._has_ended(folder)
            try:
                while data := bytes_from(folder / STDOUT, offset):
                    offset += len(data)
                    yield data
            except FileNotFoundError:  # it has printed nothing yet, or is gone
                is_over = is_over or not folder.is_dir()
            if is_over:
                return
            self._wait(FOLLOW_INTERVAL)

    def _has_ended(self, folder: Path) -> bool:
        if (folder / REPLY).exists() or not folder.is_dir():
            return True
        return worker_of(folder.name) not in self._board.presence.live_workers() or self._is_past(folder.name)

    def _is_past(self, run: str) -> bool:
        """Return whether its worker has begun another run: a gate's run has no reply that says so."""
        return [name for name in self._runs.names() if worker_of(name) == worker_of(run)][-1:] != [run]

    def _ending(self, folder: Path) -> Iterator[TranscriptLine]:
        if not folder.is_dir():
            yield TranscriptLine(
                LineKind.ERROR, f"{folder.name} is gone from .liza/runs; nothing more of it comes"
            )
            return
        record = self._runs.record(folder.name)
        if record is None:  # a command: much of what one says is there
            yield from _stderr_lines(folder, LineKind.OUTPUT)
        if record is None or record.ending is None:
            return
        if not (folder / STDOUT).exists():  # an agent that is no process, as a recording
            yield from _reply_lines(folder)
        if record.why:
            yield from _stderr_lines(folder, LineKind.ERROR)
            yield TranscriptLine(LineKind.ERROR, record.why)
        yield TranscriptLine(LineKind.NOTE, f"{record.ending} after {record.seconds:.0f} s")


def _reply_lines(folder: Path) -> Iterator[TranscriptLine]:
    reader = TranscriptReader()
    yield from reader.feed(_reply_of(folder).encode(errors="replace"))
    yield from reader.rest()


def _reply_of(folder: Path) -> str:
    return str(json.loads((folder / REPLY).read_bytes())["text"])


def _stderr_lines(folder: Path, kind: LineKind) -> Iterator[TranscriptLine]:
    try:
        lines = last_window(folder / STDERR, STDERR_LINES).lines
    except OSError:
        return
    yield from (line._replace(kind=kind) for line in lines)


def _offset_of(path: Path, count: int) -> int:
    """Return where the last *count* lines of *path* begin, as far as its end is looked at."""
    data, start = end_bytes(path, MOST)
    place = len(data.removesuffix(b"\n"))
    for _ in range(count):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return start
    return start + place + 1 if count else start + len(data)
