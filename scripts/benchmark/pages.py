"""What it takes to look on in a browser: the page of `liza web` before tasks that change all the time."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from liza.board.file import FileBoard
from liza.domain.record import utc_now
from liza.system.process import process_of, resource_use
from liza.workflow.transition import apply
from scripts.benchmark.plan import DaemonPlan
from scripts.benchmark.screens import (
    INTERVAL,
    MOST_DELAY,
    PATIENCE,
    SETTLE,
    TASKS,
    Looking,
    change_tasks,
    cpu_of,
    delays_of,
    looking_cells,
)
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table
from tests.support.sample_tasks import board, claim, new_task, worker
from tests.support.web_server import page_of

PATHS: Final = ("/", "/board", "/timeline", "/money")
PAINTS: Final = 3  # tries
MOST_PAINT: Final = 1.0  # seconds from the command to the painted page
IMPORTS: Final = "import uvicorn, starlette.applications, starlette.responses, pydantic, psutil"


class _Page:
    """An open page: told of a change, it asks for itself again, as the one in a browser does."""

    def __init__(self, host: str, port: int, token: str, path: str) -> None:
        self._address, self._path = (host, port), path
        with closing(self._connection()) as connection:
            connection.request("GET", f"{path}?token={token}")
            answer = connection.getresponse()
            answer.read()
        self._headers = {"cookie": str(answer.getheader("set-cookie")).partition(";")[0]}
        self.drawn: dict[int, float] = {}

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._address, timeout=PATIENCE)

    def load(self, **headers: str) -> None:
        with closing(self._connection()) as connection:
            connection.request("GET", self._path, headers={**self._headers, **headers})
            connection.getresponse().read()

    def follow(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        connection = self._connection()
        connection.request("GET", "/events", headers=self._headers)
        events = connection.getresponse()
        while line := events.readline():
            if line.startswith(b"data:"):
                self.load(**{"hx-request": "true"})
                self.drawn[int(line.split()[1])] = time.monotonic()


def _import_seconds() -> float:
    """Return how long a Python takes that only loads the libraries of the page."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.monotonic() - began


def _new_board(place: Path) -> FileBoard:
    """Return a board as in a run: many tasks, and somebody at work on one of them."""
    ours = FileBoard.create(place / ".liza", board(*(new_task(f"t{n:04}") for n in range(TASKS))))
    taken, by = claim(worker("coder-1"), at=utc_now())
    ours.update(apply(taken, to=f"t{TASKS - 1:04}", by=by, at=utc_now()))
    return ours


def paint_seconds(place: Path) -> float | None:
    """Return how long it takes from the command to the page on the screen; None without a browser.

    The browser is there before, as that of a person is. It is installed by `make test-web`.
    """
    if find_spec("selenium") is None:
        return None
    from tests.web.browser import window  # noqa: PLC0415 - where it is installed only

    painted = """return new Promise(tell => new PerformanceObserver(found => tell(
        performance.timeOrigin + found.getEntriesByName('first-contentful-paint')[0].startTime
    )).observe({type: 'paint', buffered: true}))"""
    with TemporaryDirectory(prefix="paint-", dir=place) as name, window("", 1400, 900) as browser:
        _new_board(Path(name))
        began = time.time()
        with page_of(Path(name)) as (_, host, port, token):
            browser.open(f"http://{host}:{port}/?token={token}")
            return float(browser.driver.execute_script(painted)) / MS - began


def run_page(plan: DaemonPlan, place: Path, path: str) -> tuple[float, Looking]:
    """Return how long a cold start took until the page was there, and what looking on took."""
    progress(f"the page {path} before {TASKS} tasks for {plan.rest:g} s")
    with TemporaryDirectory(prefix="page-", dir=place) as name:
        ours = _new_board(Path(name))
        began = time.monotonic()
        with page_of(Path(name)) as (server, host, port, token):
            page = _Page(host, port, token, path)
            page.load()
            cold = time.monotonic() - began
            page.follow()
            time.sleep(SETTLE)
            began, before = time.monotonic(), cpu_of(server.pid)
            made = change_tasks(ours, plan.rest)
            share = (cpu_of(server.pid) - before) / (time.monotonic() - began)
            time.sleep(2 * MOST_DELAY)
            process = process_of(server.pid)
            megabytes = resource_use([process]).memory / (1 << 20) if process else 0.0
            return cold, Looking(share, megabytes, delays_of(made, page.drawn))


def tables(plan: DaemonPlan, place: Path) -> Iterator[Table]:
    table = Table(
        f"Looking on in a browser: {TASKS} tasks, a change every {INTERVAL:g} s",
        ("page", "cold start ms", "times the imports", "cores", "MB", "p50 ms", "p99 ms", "verdict"),
    )
    for path in PATHS:
        cold, one = run_page(plan, place, path)
        imports = min(_import_seconds() for _ in range(3))
        table.add(path, cold * MS, round(cold / imports, 2), *looking_cells(one))
    table.notes.append("a cold start is from the command to the whole page, without what the browser draws")
    table.notes.append(f"the imports are those of `python -c '{IMPORTS}'`, measured beside it")
    yield table
    yield _paint_table(place)


def _paint_table(place: Path) -> Table:
    table = Table(
        f"First paint in Chromium, from the command on: {TASKS} tasks",
        ("try", "ms", "times the imports", "verdict"),
    )
    for number in range(1, PAINTS + 1):
        progress(f"the first paint of the page, {number} of {PAINTS}")
        seconds = paint_seconds(place)
        if seconds is None:
            table.notes.append("there is no browser; `make test-web` installs what this needs")
            return table
        ratio = round(seconds / min(_import_seconds() for _ in range(3)), 2)
        table.add(number, seconds * MS, ratio, "met" if seconds < MOST_PAINT else "NOT MET")
    table.notes.append(f"the aim is {MOST_PAINT:g} s on an idle machine; the browser is open before")
    return table
