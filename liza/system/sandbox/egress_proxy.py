"""The egress proxy of a sandbox without network: a Unix socket to an allowlist of hosts.

It speaks CONNECT, and absolute URLs for plain HTTP; `liza.system.sandbox.egress_client` is the end inside the
sandbox.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from liza.system.sandbox.egress_client import relay

# Where the well-known providers serve models from.
MODEL_HOSTS: Final = (
    *("api.anthropic.com", "api.openai.com", "chatgpt.com", "auth.openai.com", "openrouter.ai"),
    *("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
    *("api.mistral.ai", "api.groq.com", "api.deepseek.com", "api.x.ai", "api.together.xyz"),
    *("*.openai.azure.com", "bedrock-runtime.*.amazonaws.com", "dashscope.aliyuncs.com"),
)
CONNECT_TIMEOUT: Final = 30.0  # seconds to reach a host
LONGEST_HEAD: Final = 16384  # bytes of a line, and of all headers


class Target(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def is_allowed(target: Target, hosts: Sequence[str]) -> bool:
    """Return whether *target* is on the list."""
    known = (parse_host(entry) for entry in hosts)
    return any(name.port == target.port and _matches(target.host, name.host) for name in known if name)


def parse_host(entry: str) -> Target | None:
    """Return the host and port of an *entry* of the list, 443 if it has none; None where it is no host."""
    name, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        name, port = entry, "443"
    name = name.removeprefix("[").removesuffix("]")
    return Target(name, int(port)) if name and port.isascii() and port.isdecimal() else None


def _matches(host: str, pattern: str) -> bool:
    """Return whether *pattern* stands for *host*; an asterisk is part of one label, and never a dot.

    Else `bedrock-runtime.*.amazonaws.com` would stand for a bucket that anybody can have.
    """
    labels, patterns = (name.lower().split(".") for name in (host, pattern))
    return len(labels) == len(patterns) and all(map(fnmatchcase, labels, patterns))


def target_of(line: str) -> Target | None:
    """Return where the request *line* wants to go; None where it cannot be told."""
    method, _, rest = line.partition(" ")
    place = rest.partition(" ")[0]
    try:
        parts = urlsplit(f"//{place}" if method == "CONNECT" else place)
        port = parts.port or (80 if parts.scheme == "http" else None)
        host = parts.hostname or ""
        host.encode("idna")  # as whoever looks the name up will
    except ValueError:
        return None
    return Target(host, port) if host and port else None


class _ProxyHandler(StreamRequestHandler):
    server: _EgressProxy
    rbufsize = 0  # what follows the head is carried on, so none of it may be taken here

    def handle(self) -> None:
        with suppress(OSError):  # one of the two ends left
            self._pass(self._head())

    def _head(self) -> list[bytes]:
        lines: list[bytes] = []
        while sum(map(len, lines)) < LONGEST_HEAD and (line := self.rfile.readline(LONGEST_HEAD)).strip():
            lines.append(line)
        return lines

    def _pass(self, head: list[bytes]) -> None:
        line = head[0].decode("latin-1").strip() if head else ""
        target = target_of(line)
        if target is None:
            self._refuse("400 Bad Request", "this is no request to a proxy")
        elif not is_allowed(target, self.server.hosts):
            self.server.refused.append(str(target))
            self._refuse("403 Forbidden", f"{target} is not among sandbox.hosts of this run")
        else:
            self._connect(target, line, head)

    def _connect(self, target: Target, line: str, head: list[bytes]) -> None:
        try:
            far = socket.create_connection(target, CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:  # a name that nobody can look up
            self._refuse("502 Bad Gateway", f"{target} cannot be reached: {error}")
            return
        with closing(far):
            far.settimeout(None)
            if line.startswith("CONNECT "):
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far.sendall(_origin_form(line) + b"".join(head[1:]) + b"\r\n")
            relay(self.connection, far)

    def _refuse(self, status: str, why: str) -> None:
        body = f"liza: {why}\n"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.wfile.write((head + body).encode())


def _origin_form(line: str) -> bytes:
    """Return a request line in origin form, as the host expects it."""
    method, _, rest = line.partition(" ")
    place, _, version = rest.partition(" ")
    parts = urlsplit(place)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{method} {path} {version or 'HTTP/1.0'}\r\n".encode("latin-1")


class _EgressProxy(ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: Path, hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)
        self.refused: list[str] = []
        super().__init__(str(path), _ProxyHandler)


@contextmanager
def run_egress_proxy(path: Path, hosts: Sequence[str]) -> Iterator[list[str]]:
    """Run an egress proxy on the socket *path* that allows *hosts*; yield the list of refused targets."""
    path.unlink(missing_ok=True)
    with _EgressProxy(path, hosts) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), name="egress-proxy", daemon=True).start()
        try:
            yield server.refused
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)
