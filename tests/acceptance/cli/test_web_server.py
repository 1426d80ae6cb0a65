"""`liza web` as a process: the address that it prints, a change that arrives, and how it ends."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from tests.support.boards import PATIENCE, new_board, noted
from tests.support.shell import Shell
from tests.support.web_server import page_of

if TYPE_CHECKING:
    from pathlib import Path

    from liza.board.file import FileBoard


@pytest.fixture
def board(tmp_path: Path) -> FileBoard:
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    return new_board(tmp_path / ".liza")


def test_a_change_is_told_without_being_asked_for(board: FileBoard) -> None:
    with page_of(board.home.parent) as (server, host, port, token), ExitStack() as closing_at_end:
        connection = closing_at_end.enter_context(
            closing(http.client.HTTPConnection(host, port, timeout=PATIENCE))
        )
        connection.request("GET", f"/?token={token}")
        came = connection.getresponse()
        came.read()
        cookie = str(came.getheader("set-cookie")).partition(";")[0]
        assert came.getheader("server") is None
        connection.request("GET", "/events", headers={"cookie": cookie})
        events = closing_at_end.enter_context(connection.getresponse())
        assert events.readline() == b"event: change\n"
        first = events.readline()
        board.update(noted("look here"))
        assert [events.readline() for _ in range(2)] == [b"\n", b"event: change\n"]
        assert events.readline() > first
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0


def test_with_a_certificate_it_is_served_by_https_alone(board: FileBoard, tmp_path: Path) -> None:
    paths = (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    subject = ["-subj", "/CN=localhost", "-days", "1", "-nodes", "-newkey", "rsa:2048"]
    made = ["openssl", "req", "-x509", *subject, "-out", paths[0], "-keyout", paths[1]]
    subprocess.run(made, check=True, capture_output=True)
    trusted = ssl.create_default_context(cafile=paths[0])
    trusted.check_hostname = False
    with page_of(board.home.parent, "--tls", *paths) as (_, host, port, token):
        with closing(
            http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=trusted)
        ) as connection:
            connection.request("GET", f"/?token={token}")
            came = connection.getresponse()
            came.read()
        assert (came.status, str(came.getheader("set-cookie")).endswith("; Secure")) == (303, True)
        with closing(http.client.HTTPConnection(host, port, timeout=PATIENCE)) as plain:
            plain.request("GET", "/")
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                plain.getresponse()


def test_what_cannot_be_served_is_one_sentence(board: FileBoard) -> None:
    liza = Shell(board.home.parent)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = liza("web", "--port", str(port))
    assert (taken.code, taken.err) == (
        1,
        f"liza: port {port} of 127.0.0.1 is taken; give another with --port, or 0 for any that is free\n",
    )
    for words, part in (
        (("--host", "192.0.2.1"), "can be reached from other machines"),
        (("--host", "0.0.0.0"), "give the name or address by which it is reached"),  # noqa: S104
        (("--port", "70000"), "there is no port 70000"),
        (("--tls", "a.pem", "b.pem"), "are no certificate and its key"),
    ):
        done = liza("web", *words)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert part in done.err
