"""Telling people by a real command and a real server on loopback: once, signed, and holding up nobody."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board.alerts import append_alert
from liza.board.protocol import open_board
from liza.daemon.notify import MOST_REMEMBERED, MOST_WAITING, SIGNATURE, Alarm, Notifier, SentAlarms
from liza.domain.config import Notify
from tests.support.sample_tasks import NOW
from tests.support.supervisor_process import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 30.0
QUICK: Final = (0.01, 0.02, 0.04)  # seconds between two tries, so that a test need not wait for them
SECRET: Final = "open sesame"  # noqa: S105 - of a server that lives as long as a test
VARIABLE: Final = "MY_SECRET"


class Server:
    """A webhook that answers by *codes*, the last for ever; None hangs first, 0 hangs and never does."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.got.append((dict(self.headers), body))
                code = server.codes.pop(0) if len(server.codes) > 1 else server.codes[0]
                if not code:
                    server.over.wait(PATIENCE)
                if code == 0:
                    self.close_connection = True
                    return
                code = code or 200
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the library calls it
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/hook/t0ken"

    @property
    def messages(self) -> list[str]:
        return [json.loads(body)["alert"] for _, body in self.got]


@contextmanager
def serving(*codes: int | None) -> Iterator[Server]:
    server = Server(*codes)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join(PATIENCE)


@contextmanager
def notifier(home: Path, notify: Notify, patience: float = PATIENCE) -> Iterator[Notifier]:
    found = Notifier(open_board(home), retries=QUICK, patience=patience)
    found.start()
    found.nudge(notify)
    try:
        yield found
    finally:
        found.close(PATIENCE)


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def told(home: Path) -> list[str]:
    return [line.partition(" ")[2] for line in (home / "alerts.log").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class TestWebhook:
    def test_a_message_is_signed_with_the_secret_of_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, SECRET)
        append_alert(tmp_path, NOW, "t1 is BLOCKED: Größe?")
        with serving(204) as server, notifier(tmp_path, Notify(webhook=server.url, secret_env=VARIABLE)):
            eventually(lambda: server.got)
        ((headers, body),) = server.got
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert headers[SIGNATURE] == f"sha256={digest}"
        assert json.loads(body) == {
            "at": "2026-01-01T12:00:00Z",
            "alert": "t1 is BLOCKED: Größe?",
            "project": tmp_path.parent.name,
        }

    def test_one_that_fails_twice_gets_it_at_the_third_try(self, tmp_path: Path) -> None:
        append_alert(tmp_path, NOW, "hello")
        with serving(500, 503, 200) as server, notifier(tmp_path, Notify(webhook=server.url)):
            eventually(lambda: len(server.got) == 3)
        assert server.messages == ["hello"] * 3
        assert SIGNATURE not in server.got[0][0]
        assert told(tmp_path) == ["hello"]

    def test_one_that_is_down_is_given_up_after_four_tries_with_a_line(self, tmp_path: Path) -> None:
        """The line names the host alone, since the rest is often a secret; it is not sent on."""
        append_alert(tmp_path, NOW, "hello")
        with serving(500) as server, notifier(tmp_path, Notify(webhook=server.url)) as found:
            eventually(lambda: len(told(tmp_path)) == 2)
            found.nudge(Notify(webhook=server.url))
        assert server.messages == ["hello"] * 4
        assert told(tmp_path) == ["hello", "not told: 127.0.0.1 answered 500: hello"]

    def test_nobody_listening_is_a_line_too(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/"
            append_alert(tmp_path, NOW, "hello")
            with notifier(tmp_path, Notify(webhook=url)):
                eventually(lambda: len(told(tmp_path)) == 2)
        assert told(tmp_path)[1].startswith("not told: 127.0.0.1 could not be reached")

    def test_a_slow_one_holds_up_nobody(self, tmp_path: Path) -> None:
        with serving(None) as server, notifier(tmp_path, Notify(webhook=server.url)) as found:
            append_alert(tmp_path, NOW, "hello")
            began = time.monotonic()
            found.nudge(Notify(webhook=server.url))
            eventually(lambda: server.got)
            for number in range(10):
                append_alert(tmp_path, NOW, f"more {number}")
                found.nudge(Notify(webhook=server.url))
            assert time.monotonic() - began < PATIENCE / 2
            server.over.set()
        assert server.messages == ["hello", *(f"more {number}" for number in range(10))]

    def test_what_a_slow_one_did_not_get_before_the_end_is_for_the_next_run(self, tmp_path: Path) -> None:
        append_alert(tmp_path, NOW, "hello")
        with serving(0) as server:
            hurried = Notifier(open_board(tmp_path), retries=QUICK)
            hurried.start()
            hurried.nudge(Notify(webhook=server.url))
            eventually(lambda: server.got)
            began = time.monotonic()
            hurried.close(0.2)
            assert time.monotonic() - began < PATIENCE / 2
        with serving(200) as server, notifier(tmp_path, Notify(webhook=server.url)):
            eventually(lambda: server.got)
        assert server.messages[0] == "hello"

    def test_a_redirect_is_not_followed(self, tmp_path: Path) -> None:
        append_alert(tmp_path, NOW, "hello")
        with serving(302) as server, notifier(tmp_path, Notify(webhook=server.url)):
            eventually(lambda: len(told(tmp_path)) == 2)
        assert told(tmp_path)[1] == "not told: 127.0.0.1 answered 302: hello"


class TestOnce:
    def test_a_restart_neither_repeats_nor_forgets(self, tmp_path: Path) -> None:
        with serving(200) as server:
            notify = Notify(webhook=server.url)
            append_alert(tmp_path, NOW, "one")
            with notifier(tmp_path, notify):
                eventually(lambda: server.got)
            append_alert(tmp_path, NOW, "two")
            with notifier(tmp_path, notify):
                eventually(lambda: len(server.got) == 2)
            with notifier(tmp_path, notify):
                pass
        assert server.messages == ["one", "two"]

    def test_a_log_that_somebody_emptied_starts_anew(self, tmp_path: Path) -> None:
        with serving(200) as server:
            notify = Notify(webhook=server.url)
            append_alert(tmp_path, NOW, "a long line that was there before")
            with notifier(tmp_path, notify):
                eventually(lambda: server.got)
            (tmp_path / "alerts.log").write_text("")
            append_alert(tmp_path, NOW, "new")
            with notifier(tmp_path, notify):
                eventually(lambda: len(server.got) == 2)
        assert server.messages[1] == "new"

    def test_of_a_long_backlog_the_latest_are_sent(self, tmp_path: Path) -> None:
        for number in range(MOST_WAITING + 5):
            append_alert(tmp_path, NOW, f"alert {number}")
        with serving(200) as server, notifier(tmp_path, Notify(webhook=server.url)):
            eventually(lambda: len(server.got) == MOST_WAITING)
        assert server.messages[0] == "alert 5"
        assert told(tmp_path)[-1] == "not told: 5 alerts that are too many to send; see alerts.log"

    def test_an_alarm_is_news_once_however_many_ask(self, tmp_path: Path) -> None:
        alarm = Alarm("trip trip-1", "it fired")
        assert SentAlarms(tmp_path).is_news(alarm)
        SentAlarms(tmp_path).remember(alarm)
        assert not SentAlarms(tmp_path).is_news(alarm)
        assert SentAlarms(tmp_path).is_news(Alarm("trip trip-2", "it fired"))

    def test_what_is_remembered_is_bounded_and_a_wreck_is_no_trouble(self, tmp_path: Path) -> None:
        path = tmp_path / "told" / "alarms.json"
        path.parent.mkdir()
        path.write_text(json.dumps([str(number) for number in range(MOST_REMEMBERED)]))
        SentAlarms(tmp_path).remember(Alarm("new", "x"))
        assert len(json.loads(path.read_text())) == MOST_REMEMBERED
        path.write_text('{"half')
        assert SentAlarms(tmp_path).is_news(Alarm("new", "x"))


class TestCommand:
    def test_it_gets_the_sentence_last_and_json_on_stdin(self, tmp_path: Path) -> None:
        code = "import sys; open(sys.argv[1], 'w').write('|'.join([*sys.argv[2:], sys.stdin.read()]))"
        command = (sys.executable, "-S", "-c", code, str(tmp_path / "got"), "liza")
        append_alert(tmp_path, NOW, 'it\'s "quoted"; $(touch x)')
        with notifier(tmp_path, Notify(command=command)):
            eventually(lambda: (tmp_path / "got").exists() and (tmp_path / "got").read_text())
        first, sentence, body = (tmp_path / "got").read_text().split("|")
        assert (first, sentence) == ("liza", 'it\'s "quoted"; $(touch x)')
        assert json.loads(body)["alert"] == sentence

    def test_one_that_hangs_is_ended_with_its_children(self, tmp_path: Path) -> None:
        script = f"sleep 600 & echo $! > {tmp_path}/child; sleep 600"
        append_alert(tmp_path, NOW, "hello")
        with notifier(tmp_path, Notify(command=("sh", "-c", script)), patience=0.5):
            eventually(lambda: len(told(tmp_path)) == 2)
        assert told(tmp_path)[1] == "not told: sh took longer than 0.5 seconds and was ended: hello"
        eventually(lambda: not is_alive(int((tmp_path / "child").read_text())))

    @pytest.mark.parametrize(
        ("command", "why"),
        [(("sh", "-c", "exit 3"), "sh ended with exit code 3"), (("no-such-program",), "exit code 127")],
    )
    def test_one_that_fails_is_a_line(self, tmp_path: Path, command: tuple[str, ...], why: str) -> None:
        append_alert(tmp_path, NOW, "hello")
        with notifier(tmp_path, Notify(command=command)):
            eventually(lambda: len(told(tmp_path)) == 2)
        assert why in told(tmp_path)[1]

    def test_its_exit_code_is_known_also_where_somebody_else_reaps_it(self, tmp_path: Path) -> None:
        """The supervisor reaps every child of the process, and may be first."""
        over = threading.Event()

        def reap() -> None:
            while not over.wait(0.001):
                try:
                    os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    continue

        thread = threading.Thread(target=reap)
        thread.start()
        try:
            append_alert(tmp_path, NOW, "hello")
            with notifier(tmp_path, Notify(command=("sh", "-c", "exit 3"))):
                eventually(lambda: len(told(tmp_path)) == 2)
        finally:
            over.set()
            thread.join(PATIENCE)
        assert told(tmp_path)[1] == "not told: sh ended with exit code 3: hello"
