"""The board and the figures of its sprint as Prometheus reads them, and where it finds them."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.board.protocol import open_board
from liza.domain.changes import figures
from liza.domain.config import LAST_PORT, SWITCH_FILES
from liza.domain.model import BreakerStatus, GoalStatus, Status
from liza.errors import LizaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board, HostSign
    from liza.domain.changes import Figures
    from liza.domain.model import State


class MetricFacts(NamedTuple):
    """What a scrape sees."""

    state: State
    figures: Figures
    switches: dict[str, str]
    workers: frozenset[str]
    hosts: tuple[HostSign, ...] = ()


Samples = dict[str, float]  # by the value of the one label; "" where there is none


class Metric(NamedTuple):
    says: str
    values: Callable[[MetricFacts], Samples]
    label: str = ""


# Counts of a sprint begin anew with the next one, so that all of these are gauges.
METRICS: Final[dict[str, Metric]] = {
    "liza_revision": Metric("number of the last change of the board", lambda f: {"": f.state.revision}),
    "liza_goal_complete": Metric(
        "1 when the goal is reached", lambda f: {"": f.state.goal.status is GoalStatus.COMPLETE}
    ),
    "liza_goals_queued": Metric("goals that wait behind this one", lambda f: {"": len(f.state.goal.queued)}),
    "liza_tasks": Metric("tasks on the board", lambda f: _by_status(f.state), "status"),
    "liza_workers_alive": Metric("workers whose process is alive", lambda f: _by_role(f.workers), "role"),
    "liza_host_slots": Metric(
        "workers that a host offers",
        lambda f: _of_hosts(f, lambda facts: sum(facts["slots"].values())),
        "host",
    ),
    "liza_host_silent_seconds": Metric(
        "time since a host's last sign of life", lambda f: {one.name: one.silent for one in f.hosts}, "host"
    ),
    "liza_host_latency_seconds": Metric(
        "time to the board and back", lambda f: _of_hosts(f, lambda facts: facts["latency"]), "host"
    ),
    "liza_host_clock_skew_seconds": Metric(
        "how far a host's clock is ahead of the board's",
        lambda f: _of_hosts(f, lambda facts: facts["skew"]),
        "host",
    ),
    "liza_switch_thrown": Metric(
        "1 while the switch stops everybody",
        lambda f: {one: one in f.switches for one in SWITCH_FILES},
        "switch",
    ),
    "liza_breaker_tripped": Metric(
        "1 while the circuit breaker waits for a person",
        lambda f: {"": f.state.circuit_breaker.status is not BreakerStatus.OK},
    ),
    "liza_spent_usd": Metric("what all runs cost", lambda f: {"": float(f.state.spend.total.usd)}),
    "liza_budget_usd": Metric("what all runs may cost", lambda f: _budget(f.state)),
    "liza_sprint": Metric("number of the sprint", lambda f: {"": f.figures.sprint}),
    "liza_sprint_attempts": Metric("attempts of the sprint", lambda f: {"": f.figures.attempts}),
    "liza_sprint_attempts_in_vain": Metric(
        "attempts of the sprint that came to nothing", lambda f: {"": f.figures.attempts_in_vain}
    ),
    "liza_sprint_attempts_since_progress": Metric(
        "attempts since the last progress", lambda f: {"": f.figures.attempts_since_progress}
    ),
    "liza_sprint_submissions": Metric("work handed in", lambda f: {"": f.figures.submissions}),
    "liza_sprint_outcomes": Metric(
        "tasks that ended in the sprint", lambda f: _counts(f.figures.outcomes), "status"
    ),
    "liza_sprint_rejections": Metric(
        "work sent back, by what it was about", lambda f: _counts(f.figures.rejections), "reason"
    ),
    "liza_sprint_crashes": Metric("workers that crashed", lambda f: _counts(f.figures.crashes), "worker"),
    "liza_sprint_anomalies": Metric(
        "what should not have happened", lambda f: _counts(f.figures.anomalies), "type"
    ),
    "liza_sprint_blocked_seconds": Metric(
        "time that tasks waited for people", lambda f: {"": f.figures.blocked_seconds}
    ),
    "liza_cycle_seconds": Metric("time from claim to merge", lambda f: _quantiles(f.figures), "quantile"),
}


def prometheus_text(board: Board, now: datetime) -> str:
    """Return every metric in the text format of Prometheus."""
    state = board.read()
    there = board.presence
    facts = MetricFacts(
        state, figures(state, now), board.switches.thrown(), there.live_workers(), there.hosts()
    )
    return "".join(_metric_text(name, metric, facts) for name, metric in METRICS.items())


def _metric_text(name: str, metric: Metric, facts: MetricFacts) -> str:
    samples = metric.values(facts)
    if not samples:
        return ""
    lines = [f"# HELP {name} {metric.says}", f"# TYPE {name} gauge"]
    for value, number in samples.items():
        label = f'{{{metric.label}="{_escape(value)}"}}' if metric.label else ""
        lines.append(f"{name}{label} {float(number):.15g}")  # a count is exact, however large
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _by_status(state: State) -> Samples:
    counts: Samples = dict.fromkeys(map(str, Status), 0)
    for task in state.tasks.values():
        counts[task.status] += 1
    return counts


def _by_role(names: Iterable[str]) -> Samples:
    counts: Samples = dict.fromkeys(("planner", "coder", "reviewer"), 0)
    for name in names:
        role = name.partition("-")[0]
        counts[role] = counts.get(role, 0) + 1
    return counts


def _of_hosts(facts: MetricFacts, value: Callable[[dict[str, Any]], float]) -> Samples:
    """Return what each host last said of itself; one that has not said it yet is left out."""
    found: Samples = {}
    for one in facts.hosts:
        with suppress(KeyError):
            found[one.name] = value(one.facts)
    return found


def _budget(state: State) -> Samples:
    return {"": float(state.config.budget.run_usd)}


def _counts(found: dict[str, int]) -> Samples:
    return {str(name): float(number) for name, number in found.items()}


def _quantiles(found: Figures) -> Samples:
    known = {"0.5": found.cycle_seconds_p50, "0.9": found.cycle_seconds_p90}
    return {share: float(seconds) for share, seconds in known.items() if seconds is not None}


# Where Prometheus finds the metrics of a board that this machine works on.

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE: Final = 10.0  # seconds that a client may take to ask
_ENDPOINT: Final = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):)?(?P<port>\d{1,5})")


class Endpoint(NamedTuple):
    host: str
    port: int  # 0: a free one


def parse_endpoint(text: str) -> Endpoint:
    """Return what `[HOST:]PORT` names; this machine alone where there is no host."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or int(found["port"]) > LAST_PORT:
        raise UsageError(f"--metrics {text} is no place to listen; give a port, or HOST:PORT")
    return Endpoint((found["host"] or "127.0.0.1").strip("[]"), int(found["port"]))


@contextmanager
def serve_metrics(home: Path, where: Endpoint) -> Iterator[str]:
    """Answer `GET /metrics` in a thread of its own for as long as the block lasts; yield the address."""
    board = open_board(home)

    class Scrape(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                body = prometheus_text(board, board.now()).encode()
            except LizaError as error:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base has it
            """Say nothing: it comes every few seconds."""

    try:
        server = ThreadingHTTPServer((where.host, where.port), Scrape)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {where.host}:{where.port} for --metrics: {error.strerror or error}; "
            "give another place"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{where.host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        board.close()
