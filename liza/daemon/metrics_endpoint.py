"""Where Prometheus finds the metrics of a board that this machine works on."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.board.protocol import open_board
from liza.daemon.reports.prometheus import prometheus_text
from liza.domain.config import LAST_PORT
from liza.errors import LizaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
