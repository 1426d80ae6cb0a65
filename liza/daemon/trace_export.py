"""Sends spans to a collector of OpenTelemetry, beside the work and never in its way.

It is on where the environment names a collector, as OpenTelemetry has it. Each machine sends the runs that it
recorded, and the one that leads sends tasks and gates.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import REPLY, ended_run
from liza.board.protocol import open_board
from liza.daemon.notify import FOLDER
from liza.daemon.recover import RUNS
from liza.daemon.reports.traces import JournalTracer, Span, board_id, run_span
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from liza.board.protocol import Board, JournalEntry

TRACED: Final = f"{FOLDER}/traces"  # what was sent, a line each; who lacks it sends the same spans again
INTERVAL: Final = 2.0  # seconds between two looks for what has ended
LONGEST_DELAY: Final = 60.0  # seconds between two tries while the collector is away
DRAIN: Final = 3.0  # seconds that the end of a run waits for what is not sent yet
MOST_SPANS: Final = 500  # in a message
_OTLP: Final = "OTEL_EXPORTER_OTLP_"


def collector_in(environment: Mapping[str, str]) -> str | None:
    """Return the address of the collector that *environment* names; None where traces are not wanted."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or environment.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    return environment.get(f"{_OTLP}TRACES_ENDPOINT") or environment.get(f"{_OTLP}ENDPOINT") or None


def why_not(environment: Mapping[str, str]) -> str | None:
    """Return why nothing can be sent to the collector that *environment* names."""
    asked = environment.get(f"{_OTLP}TRACES_PROTOCOL") or environment.get(f"{_OTLP}PROTOCOL")
    collector = collector_in(environment) or ""
    if asked not in {None, "http/protobuf"}:
        return f"{_OTLP}PROTOCOL is {asked!r}; Liza speaks http/protobuf, for which collectors listen at 4318"
    if not collector.startswith(("http://", "https://")):
        return f"{_OTLP}ENDPOINT is {collector!r}; give an address such as http://localhost:4318"
    return None


def send_traces(
    home: Path, leads: Callable[[], bool], say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """Send traces while the block lasts, if the environment names a collector."""
    if collector_in(os.environ) is None:
        return nullcontext()
    why = why_not(os.environ)
    try:
        if not why:
            return _send_traces(home, leads, say, OtlpCollector())
    except ImportError:
        why = "they need OpenTelemetry; install Liza with it (`pip install 'liza[otel]'`)"
    say(f"traces are not sent: {why}")
    return nullcontext()


@contextmanager
def _send_traces(
    home: Path, leads: Callable[[], bool], say: Callable[[str], None], collector: OtlpCollector
) -> Iterator[None]:
    board = open_board(home)
    sender = TraceSender(board, leads, say, collector)
    sender.start()
    try:
        yield
    finally:
        sender.close()
        board.close()


class OtlpCollector:
    """The collector of the environment, by the exporter of OpenTelemetry."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - only where it is on
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # we say it ourselves, and once
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "liza"}
        self._resource = Resource.create(named)
        self._exporter = OTLPSpanExporter()

    def send(self, spans: Sequence[Span]) -> bool:
        """Return whether the collector has taken all of *spans*."""
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - as above

        try:
            done = self._exporter.export([self._readable(span) for span in spans])
        except Exception:  # noqa: BLE001 - a library's own; whatever it raises, the work goes on
            return False
        return done is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it has none

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - as above
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags  # noqa: PLC0415 - as above

        def context(number: int) -> SpanContext:
            return SpanContext(
                span.trace, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
            )

        return ReadableSpan(
            span.name,
            context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            status=Status(StatusCode.ERROR, span.failure) if span.failure else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.began.timestamp()),
            end_time=_nanoseconds(span.ended.timestamp()),
        )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e6) * 1000


class _Found(NamedTuple):
    """Spans that are not sent yet, and what is noted once they are."""

    spans: list[Span]
    notes: list[str]


class TraceSender:
    """A thread that looks for what has ended, and sends it; what is not taken is sent later."""

    def __init__(
        self, board: Board, leads: Callable[[], bool], say: Callable[[str], None], collector: OtlpCollector
    ) -> None:
        self._board = board
        self._leads = leads
        self._say = say
        self._collector = collector
        self._runs = board.home / RUNS
        self._id = ""
        self._tracer: JournalTracer | None = None
        self._revision = 0
        self._sent: set[str] = set()  # runs
        self._waiting: _Found | None = None
        self._is_away = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, patience: float = DRAIN) -> None:
        """End, after what is there was sent or *patience* seconds have passed."""
        self._closing.set()
        self._thread.join(patience)
        self._collector.close()  # which ends a try that still goes on
        self._thread.join(1.0)

    def _work(self) -> None:
        delay = INTERVAL
        while not self._closing.wait(delay):
            delay = INTERVAL if self.send_on() else min(2 * delay, LONGEST_DELAY)
        self.send_on()

    def send_on(self) -> bool:
        """Send every span that was not sent; return False where the collector did not accept one."""
        with suppress(LizaError, OSError):  # the board, or the disk, is away: the run itself says so
            while found := self._waiting or self._look():
                if not self._deliver(found):
                    self._waiting = found
                    return False
                self._waiting = None
        return True

    def _deliver(self, found: _Found) -> bool:
        """Send *found*, and note that it was."""
        for start in range(0, len(found.spans), MOST_SPANS):
            if not self._collector.send(found.spans[start : start + MOST_SPANS]):
                if not self._is_away:
                    self._say(f"no traces reach {collector_in(os.environ)}; tried again until it takes them")
                self._is_away = True
                return False
        self._is_away = False
        path = self._board.home / TRACED
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{self._id} {note}\n" for note in found.notes)
        return True

    def _look(self) -> _Found | None:
        """Return spans of runs and tasks that ended; None where there is nothing new."""
        if not self._id:
            self._id = board_id(self._board.read())
            self._remember()
        spans, notes = [], []
        if self._leads():
            spans += self._journal_spans()
            notes.append(str(self._revision))
        for name in self._new_runs():
            self._sent.add(name)
            if run := ended_run(self._runs / name):
                spans.append(run_span(self._id, *run))
                notes.append(name)
        return _Found(spans, notes) if spans else None

    def _new_runs(self) -> list[str]:
        try:
            names = [entry.name for entry in os.scandir(self._runs) if entry.name not in self._sent]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if (self._runs / name / REPLY).exists())

    def _journal_spans(self) -> list[Span]:
        """Return the spans of the changes that are not read yet."""
        state = self._board.read()
        if state.revision <= self._revision:
            return []
        # Where reading fails in between, whoever reads the same again has to begin anew.
        tracer, self._tracer = self._tracer or JournalTracer(self._id), None
        latest = self._revision

        def read() -> Iterator[JournalEntry]:
            nonlocal latest
            for entry in self._board.entries(self._revision):
                latest = entry.revision
                yield entry

        spans = list(tracer.spans(read(), state.tasks))
        self._tracer, self._revision = tracer, latest
        return spans

    def _remember(self) -> None:
        """Begin where the last run of this machine left off."""
        with suppress(FileNotFoundError):
            for line in (self._board.home / TRACED).read_text(encoding="utf-8").splitlines():
                board, _, what = line.partition(" ")
                if board == self._id and what.isdecimal():
                    self._revision = int(what)
                elif board == self._id:
                    self._sent.add(what)
