"""What a collector of OpenTelemetry gets of a run: a trace a task, a span a run and a gate."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from liza.agents.protocol import ended_run
from liza.daemon import trace_export
from liza.daemon.reports.traces import JournalTracer, board_id, run_span
from liza.daemon.trace_export import OtlpCollector, TraceSender, collector_in, why_not
from liza.domain.changes import HUMAN
from liza.domain.lifecycle import Abandon
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.workflow.transition import apply
from tests.support.daemon_run import Daemon
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

USED: Final = {"tokens_in": 1200, "tokens_out": 34, "usd": 0.25, "model": "small-1"}
SCRIPT: Final[dict[str, Any]] = {
    "implement": [
        {"write": {"t1.txt": text}, "answer": {"status": "done", "summary": "Add t1", "usage": USED}}
        for text in ("t1\n", "t1, and more\n")
    ],
    "review": [
        {"answer": {"verdict": "reject", "reason": "unclear", "feedback": [{"message": "say more"}]}},
        {"answer": {"verdict": "approve", "reason": "fine"}},
    ],
}


class Receiver:
    """A collector: it takes OTLP over HTTP, or refuses it for as long as it is told to."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.refuses = False
        self.url = ""

    def named(self, start: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(start)]

    def take(self, body: bytes) -> None:
        for found in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                one.value.string_value for one in found.resource.attributes if one.key == "service.name"
            }
            self.spans += [span for scope in found.scope_spans for span in scope.spans]


@contextmanager
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    found = Receiver()

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            if not found.refuses:
                found.take(body)
            self.send_response(400 if found.refuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base has it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Take)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def facts(span: Span) -> dict[str, Any]:
    """Return the attributes of *span*, each as its one value."""
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


def trace_sender(team: ScriptedTeam, told: list[str], *, leads: bool = True) -> TraceSender:
    return TraceSender(team.board, lambda: leads, told.append, OtlpCollector())


def worked(directory: Path) -> ScriptedTeam:
    """Return a team that merged a task, sent back once."""
    team = ScriptedTeam(directory, SCRIPT)
    team.task()
    team.turns("coder-1", "reviewer-1")
    assert team.status() is Status.MERGED
    return team


def test_a_run_is_a_trace_a_task_with_a_span_for_each_run_and_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(tmp_path, SCRIPT)
    with receiver(monkeypatch) as collector:
        assert daemon.run() == 0
    [root] = collector.named("task t1")
    assert facts(root)["liza.status"] == "MERGED"
    assert not root.parent_span_id
    assert not root.status.message
    mine = [span for span in collector.spans if span.trace_id == root.trace_id]
    assert {span.parent_span_id for span in mine} == {b"", root.span_id}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert all(
        root.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano for one in mine
    )
    names = [span.name for span in mine]
    for step in ("checkpoint", "implement", "review"):
        assert names.count(f"invoke_agent {step}") == daemon.runs(step) > 1
    assert names.count("gate review") == 2
    assert {"gate diff", "gate scope", "gate merge"} <= set(names)
    used = facts(next(span for span in mine if span.name == "invoke_agent implement"))
    assert used["gen_ai.operation.name"] == "invoke_agent"
    assert used["gen_ai.agent.name"] == "coder"
    assert used["gen_ai.response.model"] == "small-1"
    assert (used["gen_ai.usage.input_tokens"], used["gen_ai.usage.output_tokens"]) == (1200, 34)
    assert used["liza.cost_usd"] == 0.25
    no = [span for span in mine if span.name == "gate review" and span.status.code == 2]
    assert [(facts(one)["error.type"], one.status.message) for one in no] == [("revise", "unclear")]
    [plan] = collector.named("invoke_agent plan")
    assert plan.trace_id != root.trace_id
    assert collector.services == {"liza"}


def test_who_takes_over_tells_the_same_spans_and_a_restart_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, told = worked(tmp_path), list[str]()
    with receiver(monkeypatch) as collector:
        assert trace_sender(team, told).send_on()
        first = {(span.trace_id, span.span_id, span.name) for span in collector.spans}
        assert trace_sender(team, told).send_on()
        assert len(collector.spans) == len(first)
        (team.home / trace_export.TRACED).unlink()  # as on another machine
        collector.spans.clear()
        assert trace_sender(team, told).send_on()
    assert {(span.trace_id, span.span_id, span.name) for span in collector.spans} == first
    assert told == []


def test_only_who_leads_tells_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team = worked(tmp_path)
    with receiver(monkeypatch) as collector:
        assert trace_sender(team, [], leads=False).send_on()
    assert {span.name.partition(" ")[0] for span in collector.spans} == {"invoke_agent"}


def test_a_collector_that_is_away_costs_one_line_and_no_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, told = worked(tmp_path), list[str]()
    with receiver(monkeypatch) as collector:
        collector.refuses = True
        sender = trace_sender(team, told)
        assert not sender.send_on()
        assert not sender.send_on()
        assert told == [f"no traces reach {collector.url}; tried again until it takes them"]
        collector.refuses = False
        assert sender.send_on()
        assert collector.named("task t1")
        assert collector.named("invoke_agent implement")


def test_what_failed_says_why(tmp_path: Path) -> None:
    team = ScriptedTeam(tmp_path, {"checkpoint": {"print": "no", "exit": 3}})
    team.task()
    team.turn("coder-1")
    team.board.update(apply(Abandon(reason="not needed"), to="t1", by=HUMAN, at=utc_now()))
    board = board_id(team.state)
    ended = [run for path in (team.home / "runs").iterdir() if (run := ended_run(path))]
    spans = [run_span(board, *run) for run in ended]
    assert {span.attributes["error.type"] for span in spans} == {"crashed"}
    assert all(span.failure for span in spans)
    [root] = JournalTracer(board).spans(team.board.entries(), team.state.tasks)
    assert (root.name, root.failure) == ("task t1", "not needed")
    assert {span.parent for span in spans} == {root.id}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ENDPOINT": "http://x:4318", "PROTOCOL": "grpc"}, "speaks http/protobuf"),
        ({"ENDPOINT": "localhost:4317"}, "give an address such as http://localhost:4318"),
        ({"TRACES_ENDPOINT": "http://x:4318/v1/traces"}, None),
    ],
)
def test_a_setting_that_cannot_work_is_one_sentence(variables: dict[str, str], said: str | None) -> None:
    found = why_not({f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()})
    assert found is None if said is None else said in (found or "")


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_usual_variables_turn_it_off(off: dict[str, str]) -> None:
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}
    assert collector_in(there) == "http://x:4318"
    assert collector_in({**there, **off}) is None
    assert collector_in({}) is None


def test_nothing_of_it_is_imported_where_it_is_off_or_not_installed(tmp_path: Path) -> None:
    code = """
import sys, pathlib
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from liza.daemon.trace_export import send_traces
import liza.daemon.worker, liza.daemon.supervisor
with send_traces(pathlib.Path(sys.argv[1]), lambda: True, print):
    print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    for address, said in (("", "[]"), ("http://x:4318", "traces are not sent: they need OpenTelemetry")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": address},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said in done.stdout
