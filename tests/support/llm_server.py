"""A model on loopback that says what a script tells it to, faults included; it speaks OpenAI's chat protocol.

The script is a list of acts, one for each request that comes, the last one again and again: `text` and
`calls` (name and arguments of tools), `json` (as text), `finish`, `usage`; or `status` with `headers` and
`message`, `raw` (bytes that are no answer), `cut` (hang up in the middle).
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Act = dict[str, Any]


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: list[Act]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def next_act(self, request: dict[str, Any], key: str | None) -> Act:
        self.requests.append(request)
        self.keys.append(key)
        return self.script[min(len(self.requests), len(self.script)) - 1]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        act = self.server.next_act(body, self.headers.get("authorization"))
        if act.get("cut"):
            self._begin(200, {"content-length": "1000"})
            self.wfile.write(b'{"id": "x", "choices": [')
            self.close_connection = True
        elif "raw" in act:
            self._send(200, act["raw"].encode(), {})
        elif "status" in act:
            error = {"error": {"message": act.get("message", "no"), "type": act.get("type", "error")}}
            self._send(act["status"], json.dumps(error).encode(), act.get("headers", {}))
        else:
            self._send(200, json.dumps(_completion(act, body["model"])).encode(), {})

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self._begin(status, {"content-length": str(len(data)), **headers})
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _completion(act: Act, model: str) -> dict[str, Any]:
    calls = [
        {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(
            (name, given if isinstance(given, str) else json.dumps(given))
            for name, given in act.get("calls", ())
        )
    ]
    text = json.dumps(act["json"]) if "json" in act else act.get("text")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    finish = act.get("finish") or ("tool_calls" if calls else "stop")
    tokens_in, tokens_out = act.get("usage", (1000, 50))
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


@contextmanager
def endpoint(*script: Act) -> Iterator[Endpoint]:
    server = Endpoint(list(script))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
