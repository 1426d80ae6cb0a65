"""A proxy before a server: it can swallow the reply to a commit, make every reply late, and cut the line."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Final, Self

COMMIT: Final = b"liza.commit("


class PostgresProxy:
    def __init__(self, port: int, *, delay: float = 0) -> None:
        self._target = ("127.0.0.1", port)
        self._delay = delay
        self._swallow = threading.Event()
        self._passes = threading.Event()
        self._passes.set()
        self.swallowed = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow_next_reply(self) -> None:
        """Let the next commit through, and cut the line instead of passing on what the server says to it."""
        self._swallow.set()

    def cut(self) -> None:
        """Pass nothing on, in either direction, and say nothing: as where a cable is pulled."""
        self._passes.clear()

    def mend(self) -> None:
        """Pass on what waited, and what comes."""
        self._passes.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._passes.wait()
                server = socket.create_connection(self._target)
                is_cut = threading.Event()
                for source, target, is_up in ((client, server, True), (server, client, False)):
                    pump = threading.Thread(target=self._pump, args=(source, target, is_cut, is_up))
                    pump.daemon = True
                    pump.start()

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        is_cut: threading.Event,
        is_up: bool,
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                if is_up and COMMIT in data and self._swallow.is_set():
                    self._swallow.clear()
                    is_cut.set()
                if not is_up and is_cut.is_set():
                    self.swallowed += 1
                    break
                if not is_up and self._delay:
                    time.sleep(self._delay)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # to close it alone does not wake who reads it
            one.close()
