"""A model on loopback that speaks all four protocols: the script answers, faults refuse."""

from __future__ import annotations

import gzip
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza.domain.record import Record
from tests.agents.script import placed, spoken
from tests.agents.wires import TOKENS_IN, WIRES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.agents.script import Said
    from tests.agents.wires import Asked, Wire

PORT: Final = 8765  # the namespace is private, so that every run can have the same
ADDRESS: Final = f"http://127.0.0.1:{PORT}"
OK: Final = 200


class Fault(Record):
    """What is refused: the requests of *step*, for *seconds* from the first one, or for good."""

    status: int
    kind: str
    message: str
    step: str = "implement"
    seconds: float | None = None
    is_final: bool = False  # it says that another try by the program itself is of no use


class Seen(Record):
    """One call as the endpoint saw it."""

    wire: str
    step: str | None
    phase: str | None = None  # of a workflow, and who is played in it
    hat: str | None = None
    model: str
    tools: tuple[str, ...]
    streamed: bool
    status: int
    played: str = ""  # the tool that was called, or nothing where it was a text
    results: tuple[str, ...] = ()  # what tools gave back so far since the prompt


class Endpoint(ThreadingHTTPServer):
    """Serves on loopback and notes every call in *log*, a line each."""

    daemon_threads = True

    def __init__(self, log: Path, faults: Sequence[Fault] = ()) -> None:
        super().__init__(("127.0.0.1", PORT), _Handler)
        self._log = log
        self._faults = faults
        self._begun: dict[Fault, float] = {}
        self._lock = threading.Lock()

    def fault(self, step: str | None) -> tuple[Fault, float | None] | None:
        """Return what stands in the way of *step* now, and for how many seconds yet."""
        found = next((fault for fault in self._faults if fault.step == step), None)
        if found is None or found.seconds is None:
            return (found, None) if found else None
        with self._lock:
            begun = self._begun.setdefault(found, time.monotonic())
        left = begun + found.seconds - time.monotonic()
        return (found, left) if left > 0 else None

    def note(self, seen: Seen) -> None:
        with self._lock, self._log.open("a") as file:
            file.write(f"{seen.model_dump_json()}\n")


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body, path = json.loads(self._body() or b"{}"), self.path.partition("?")[0]
        if "ount" in path.rpartition("/")[2]:  # count_tokens, countTokens
            self._send({"input_tokens": TOKENS_IN, "totalTokens": TOKENS_IN})
            return
        found = next(((name, wire) for name, wire in WIRES.items() if name.lower() in path.lower()), None)
        if found is None:
            self._send({"error": {"message": "there is no such path"}}, 404)
            return
        self._answer(*found, found[1].read(body, path))

    def _answer(self, name: str, wire: Wire, asked: Asked) -> None:
        place, results = placed(asked.parts)
        step = place.step if place else None
        fault = self.server.fault(step)
        said = spoken(asked.parts, asked.tools)
        seen = Seen(
            wire=name.strip("/"),
            step=step,
            phase=place.phase if place else None,
            hat=place.hat if place else None,
            model=asked.model,
            tools=tuple(tool.name for tool in asked.tools),
            streamed=asked.streams,
            status=fault[0].status if fault else OK,
            played=said.call.tool.name if said.call else "",
            results=tuple(results),
        )
        self.server.note(seen)
        if fault:
            self._refuse(wire, *fault)
        else:
            self._say(wire, said, asked)

    def _refuse(self, wire: Wire, fault: Fault, left: float | None) -> None:
        headers = {"x-should-retry": "false"} if fault.is_final else {}
        words = fault.message
        if left is not None:
            headers["retry-after"] = str(math.ceil(left))
            words = words.format(seconds=math.ceil(left), epoch=math.ceil(time.time() + left))
        self._send(wire.refusal(fault.status, fault.kind, words), fault.status, headers)

    def _say(self, wire: Wire, said: Said, asked: Asked) -> None:
        if not asked.streams:
            self._send(wire.whole(said, asked.model))
            return
        self.send_response(OK)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in wire.stream(said, asked.model):
            line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            self.wfile.write((f"event: {name}\n{line}" if name else line).encode())
            self.wfile.flush()
        self.close_connection = True

    def _body(self) -> bytes:
        length = self.headers.get("content-length")
        data = self.rfile.read(int(length)) if length is not None else b"".join(iter(self._chunk, b""))
        return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

    def _chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline().strip() or b"0", 16))
        self.rfile.readline()
        return data

    def _send(self, value: dict[str, Any], status: int = OK, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        sent = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        for name, text in sent.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
