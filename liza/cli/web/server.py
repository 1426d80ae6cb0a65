"""`liza web`: the socket, the address that is printed, and the server that stays until Ctrl-C."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

import uvicorn

from liza.cli.web.app import build_app
from liza.cli.web.live import LiveFeed
from liza.cli.web.security import PageAccess, check_exposure
from liza.domain.config import LAST_PORT
from liza.errors import LizaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.protocol import Board

GRACE: Final = 1  # seconds that open pages get when the server ends; they connect again by themselves


class PageOptions(NamedTuple):
    """How the page was asked for."""

    host: str
    port: int
    tls: tuple[Path, Path] | None = None
    read_only: bool = False
    unprotected: bool = False


def serve(board: Board, options: PageOptions, say: Callable[[str], None]) -> None:
    """Serve *board* until somebody ends it; *say* gets the address once it can be opened."""
    check_exposure(options.host, has_tls=options.tls is not None, is_unprotected=options.unprotected)
    _check_certificate(options.tls)
    board.read()  # where there is none, that is said before a port is taken
    listening = _listen(options.host, options.port)
    scheme = "https" if options.tls else "http"
    access = PageAccess(options.host, listening.getsockname()[1], scheme, options.read_only)
    feed = LiveFeed(board)
    certificate, key = options.tls or (None, None)
    server = _Server(
        uvicorn.Config(
            build_app(board, access, feed),
            log_level="warning",
            access_log=False,  # the first address has the token
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GRACE,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        ),
        feed,
        lambda: say(f"{access.address}\nCtrl-C ends the page; the run goes on."),
    )
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, feed: LiveFeed, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._feed = feed
        self._ready = ready

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.end()  # else the server would wait for pages that wait for it
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= LAST_PORT:  # the resolver would take the rest of a division
        raise UsageError(f"there is no port {port}; give one up to {LAST_PORT}, or 0 for any that is free")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sentence = f"port {port} of {host} is taken; give another with --port, or 0 for any that is free"
            raise LizaError(sentence) from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error}; give --host and --port") from error
    return listening


def _check_certificate(tls: tuple[Path, Path] | None) -> None:
    if tls is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*tls)
    except (OSError, ssl.SSLError) as error:
        names = " and ".join(str(path) for path in tls)
        raise UsageError(f"{names} are no certificate and its key: {error}; give --tls CERT KEY") from error
