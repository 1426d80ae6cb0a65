"""What each address shows: rows of a table, each a function of the view model."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views import charts
from liza.cli.views.cycles import cycle_rows
from liza.cli.views.gather import Gatherer
from liza.cli.views.headline import RunStanding
from liza.cli.views.html import Element, el, scrollable
from liza.cli.views.words import seconds_text, usd
from liza.cli.web import past_page, task_page
from liza.cli.web.parts import (
    ago,
    button,
    card,
    empty,
    field,
    form,
    pill,
    question_panel,
    section,
    switch_forms,
    task_link,
    worker_panel,
)
from liza.daemon.reports.metrics import figure_rows
from liza.domain.model import Status
from liza.domain.record import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from liza.board.protocol import Board
    from liza.cli.views.board_view import BoardView, HistoryView, TaskView
    from liza.cli.web.live import LiveFeed
    from liza.cli.web.security import PageAccess

FRESH: Final = 0.3  # seconds for which several pages share one look at the board
ON_CHANGE: Final = "board-changed from:body"
ON_OUTPUT: Final = f"{ON_CHANGE}, every 3s"  # what agents print changes no board
SHOWN_CARDS: Final = 60  # of a column; a board may have thousands of tasks

COLUMNS: Final[dict[str, frozenset[Status]]] = {
    "Needs you": frozenset({Status.BLOCKED, Status.AWAITING_APPROVAL, Status.DRAFT}),
    "Waiting": frozenset({Status.IDLE}),
    "Coding": frozenset({Status.WORKING, Status.REJECTED, Status.INTEGRATION_FAILED}),
    "Review": frozenset({Status.READY_FOR_REVIEW}),
    "Merging": frozenset({Status.APPROVED}),
    "Done": frozenset({Status.MERGED, Status.COMPLETE, Status.NOTHING_TO_DO}),
    "Given up": frozenset({Status.SUPERSEDED, Status.ABANDONED}),
}

SCRIPTS: Final = ("htmx.min", "uplot.min", "page", "comments")
SELDOM: Final = frozenset({"Given up"})


class Site:
    """The page of one board: how it is read, and what it has to say once."""

    def __init__(self, board: Board, access: PageAccess, feed: LiveFeed) -> None:
        self.board = board
        self.access = access
        self._feed = feed
        self.gatherer = Gatherer(board)
        self._lock = threading.Lock()
        self._seen: tuple[str, float, BoardView] | None = None
        self._said: deque[str] = deque(maxlen=3)

    def render(self, path: str, address: str, asked: Mapping[str, str], *, is_part: bool) -> str:
        """Return the page at *path*, or only what changes on it."""
        with self._lock:  # one reader for all, which remembers what it read
            content = PAGES[path].show(self, asked)
            return str(content) if is_part else str(frame(self, path, address, content))

    def view(self) -> BoardView:
        """Return the board as it is now."""
        stamp, now = self._feed.stamp, time.monotonic()
        # Who was told of a change must not be shown what another page saw before it.
        if self._seen is None or self._seen[0] != stamp or now - self._seen[1] > FRESH:
            self._seen = stamp, now, self.gatherer.view(utc_now())
        return self._seen[2]

    def history(self) -> HistoryView:
        return self.gatherer.history(self.gatherer.facts(utc_now()))

    def flash(self, sentence: str) -> None:
        """Say *sentence* on the next page."""
        self._said.append(sentence)

    def toasts(self) -> list[Element]:
        said = [self.toast(sentence) for sentence in self._said]
        self._said.clear()
        return said

    def toast(self, sentence: str, *, is_error: bool = False) -> Element:
        css, role = ("toast bad", "alert") if is_error else ("toast", "status")
        return el("p", sentence, class_=css, role=role)


class Page(NamedTuple):
    """One address: its name in the menu, if it is there, and what it shows."""

    title: str
    show: Callable[[Site, Mapping[str, str]], Element]
    icon: str = ""
    triggers: str = ON_CHANGE  # what lets it look again


def frame(site: Site, path: str, address: str, content: Element) -> Element:
    """Return a whole page around *content*."""
    page = PAGES.get(path)
    triggers = page.triggers if page else ""
    live = {"hx_get": address, "hx_trigger": triggers, "hx_swap": "innerMorph"} if triggers else {}
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="htmx-config", content=json.dumps({"morphIgnore": ["data-htmx-powered", "open"]})),
        el("title", f"{page.title if page else 'Not found'} · Liza"),
        el("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        el("link", rel="stylesheet", href="/static/uplot.min.css"),
        el("link", rel="stylesheet", href="/static/page.css"),
        [el("script", src=f"/static/{name}.js", defer=True) for name in SCRIPTS],
    )
    body = el(
        "body",
        el("a", "Skip to the content", href="#main", class_="skip"),
        _menu(path),
        el("div", site.toasts(), id="toasts", aria_live="polite"),
        el("main", content, id="main", tabindex=0, **live),
    )
    return Element(f"<!doctype html>{el('html', head, body, lang='en')}")


def _menu(current: str) -> Element:
    items = [
        el(
            "li",
            el(
                "a",
                el("span", page.icon, class_="icon", aria_hidden="true"),
                el("span", page.title),
                href=path,
                aria_current="page" if path == current else None,
            ),
        )
        for path, page in PAGES.items()
        if page.icon
    ]
    brand = el(
        "a",
        el("img", src="/static/icon.svg", alt="", width=26, height=26),
        el("span", "Liza"),
        href="/",
        class_="brand",
    )
    state = el("span", "live", id="live", class_="live", role="status")
    return el("header", brand, el("nav", el("ul", items), aria_label="Pages"), state)


def error_page(site: Site, sentence: str, *, is_part: bool) -> Element:
    back = el("p", el("a", "Back to the overview", href="/"))
    shown = el("div", el("h1", "That did not work"), el("p", sentence, class_="trouble"), back)
    return shown if is_part else frame(site, "", "/", shown)


def _headline(view: BoardView) -> Element:
    headline = view.headline
    then = el("p", "Next: ", el("code", headline.command)) if headline.command else None
    thrown = [
        el("p", el("strong", name), f": {said or 'thrown'}")
        for name, said in view.switches.items()
        if name not in headline.says
    ]
    return el(
        "section",
        el("h1", headline.says),
        thrown,
        then,
        el("p", view.trouble, class_="trouble") if view.trouble else None,
        el("p", el("strong", "Goal "), view.goal.description, class_="goal"),
        _progress(view),
        class_=f"hero h-{headline.standing}",
    )


def _progress(view: BoardView) -> Element:
    total, x, parts = max(1, view.tally.total), 0.0, []
    for status, count in sorted(view.tally.by_status.items(), key=lambda item: _place_of(item[0])):
        width = 100 * count / total
        told = el("title", f"{count} {status}")
        parts.append(
            el("rect", told, x=round(x, 3), y=0, width=round(width, 3), height=10, class_=f"s-{status}")
        )
        x += width
    bar = el("svg", parts, viewBox="0 0 100 10", preserveAspectRatio="none", class_="progress", role="img",
             aria_label=str(view.tally))  # fmt: skip
    legend = el(
        "p",
        (el("span", pill(status), f" {count} ") for status, count in view.tally.by_status.items()),
        class_="legend",
    )
    return el("div", bar, legend)


def _place_of(status: str) -> int:
    """Return where *status* is on the way: what is done stands first."""
    done = [Status.MERGED, Status.COMPLETE, Status.NOTHING_TO_DO, Status.APPROVED, Status.READY_FOR_REVIEW]
    return done.index(Status(status)) if status in done else len(done) + list(Status).index(Status(status))


def _tiles(view: BoardView) -> Element:
    money = view.money
    alive = sum(worker.is_alive is True for worker in view.workers)
    tiles = (
        ("Done", f"{view.tally.done}", f"of {view.tally.total} tasks"),
        ("Spent", usd(money.usd), f"of {usd(money.cap_usd)}; {money.runs} runs"),
        _forecast_tile(view),
        ("Workers", f"{alive}", f"of {len(view.workers)} alive"),
        ("For you", f"{len(view.questions)}", "questions"),
    )  # fmt: skip
    shown = (
        el("div", el("dt", name), el("dd", el("strong", value), el("small", about)))
        for name, value, about in tiles
    )
    return el("dl", shown, class_="tiles")


def _forecast_tile(view: BoardView) -> tuple[str, str, str]:
    """Return how much time is left and what that means; of work that nobody does, no time of day is known."""
    forecast, end = view.forecast, view.forecast.done_at(view.at)
    if end is None or forecast.seconds is None:
        return "Forecast", "-", "too little is finished yet"
    if not forecast.remaining:
        return "Forecast", "-", "nothing is left for agents"
    is_going = view.headline.standing is RunStanding.GOING
    left = seconds_text(max(1.0, forecast.seconds))
    return "Forecast", left, f"done about {end:%H:%M}Z" if is_going else "of work left"


def _questions_of(site: Site, view: BoardView) -> list[Element]:
    known = {task.id for task in view.tasks}
    return [question_panel(one, site.access, view.at, one.subject in known) for one in view.questions]


def _overview(site: Site, _: Mapping[str, str]) -> Element:
    view = site.view()
    asked = _questions_of(site, view)
    news = [
        el("li", el("time", f"{one.at:%H:%M:%S}"), " ", el("strong", one.by), " ", one.what)
        for one in reversed(view.news)
    ]
    return el(
        "div",
        _headline(view),
        _tiles(view),
        switch_forms(site.access, view.switches),
        section("For you", asked) if asked else None,
        section("Workers", el("div", map(worker_panel, view.workers), class_="cards")),
        section("Hosts", el("ul", (el("li", str(host)) for host in view.hosts))) if view.hosts else None,
        section("What happened last", el("ol", news[:20], class_="news") if news else empty("Nothing yet.")),
        section("Tell the agents something", _note_form(site)) if not site.access.read_only else None,
    )


def _note_form(site: Site) -> Element | None:
    return form(
        site.access,
        "note",
        field("Note", "text", "new", lines=2),
        field("About which task (may stay empty)", "about", "new", required=False),
        button("Tell them", "go"),
    )


def _add_form(site: Site) -> Element | None:
    if site.access.read_only:
        return None
    made = form(
        site.access,
        "add",
        field("Id", "id", "new"),
        field("What is to be done", "description", "new", lines=2),
        field("Done when (one a line)", "done_when", "new", lines=2),
        field("Paths it may touch (one a line)", "include", "new", lines=2, required=False),
        field("Depends on", "depends_on", "new", required=False),
        button("Add the task", "go"),
        back="/board",
    )
    return el("details", el("summary", "Add a task"), made, class_="panel")


def _board(site: Site, asked: Mapping[str, str]) -> Element:
    view, wanted = site.view(), asked.get("q", "")
    found = [
        task for task in view.tasks if wanted.lower() in f"{task.id} {task.description} {task.holder}".lower()
    ]
    search = el(
        "form",
        field("Search", "q", "board", required=False, value=wanted),
        button("Search"),
        method="get",
        action="/board",
        class_="search",
        role="search",
    )
    head = el("div", el("h1", "Board"), search, class_="head")
    return el("div", head, board_columns(found, view), _add_form(site), _archive(view))


def board_columns(tasks: Sequence[TaskView], view: BoardView) -> Element:
    """Return *tasks* by where they are; a column that is seldom used is only there when it is."""
    found = {name: [task for task in tasks if task.status in held] for name, held in COLUMNS.items()}
    return el(
        "div",
        (_column(name, held, view) for name, held in found.items() if held or name not in SELDOM),
        class_="columns",
    )


def _column(name: str, tasks: Sequence[TaskView], view: BoardView) -> Element:
    more = len(tasks) - SHOWN_CARDS
    return el(
        "section",
        el("h2", name, el("span", len(tasks), class_="count")),
        (card(task, view.at) for task in tasks[:SHOWN_CARDS]),
        el("p", f"and {more} more; search finds them", class_="empty") if more > 0 else None,
        class_="column" if tasks else "column none",
        aria_label=f"{name}: {len(tasks)} tasks",
        tabindex=0,
    )


def _archive(view: BoardView) -> Element | None:
    if not view.archived:
        return None
    names = [
        el("li", task_link(name), " ", pill(status)) for name, status in list(view.archived.items())[-200:]
    ]
    return el(
        "details",
        el("summary", f"{len(view.archived)} finished tasks left the board"),
        el("ul", names),
        class_="panel",
    )


def _graph(site: Site, _: Mapping[str, str]) -> Element:
    view = site.view()
    drawn = charts.graph_svg(view.tasks, lambda name: f"/tasks/{name}")
    shown = scrollable(drawn, "Graph of dependencies")
    return el("div", el("h1", "What waits for what"), shown if view.tasks else empty("There is no task yet."))


def _timeline(site: Site, asked: Mapping[str, str]) -> Element:
    history = site.history()
    by_worker = asked.get("by") != "task"
    return el("div", el("h1", "Timeline"), timeline_of(history, by_worker=by_worker))


def timeline_of(history: HistoryView, *, by_worker: bool) -> Element:
    """Return the timeline with what its colours mean."""
    if not history.spans:
        return empty("Nothing has happened yet.")
    ways = (("worker", "By worker", by_worker), ("task", "By task", not by_worker))
    tabs = el(
        "p",
        (
            el("a", text, href=f"/timeline?by={way}", aria_current="true" if on else None)
            for way, text, on in ways
        ),
        class_="tabs",
    )
    drawn = charts.timeline_svg(
        history.spans,
        history.spans[0].began,
        history.at,
        by_worker=by_worker,
        link=lambda name: f"/tasks/{name}",
    )
    legend = el(
        "p",
        map(pill, history.seconds_by_status),
        el("span", " ▼ sent back; thin: waiting for somebody", class_="empty"),
        class_="legend",
    )
    return el(
        "div",
        tabs,
        scrollable(drawn, "Timeline"),
        legend,
    )


def _questions(site: Site, _: Mapping[str, str]) -> Element:
    asked = _questions_of(site, site.view())
    return el("div", el("h1", "For you"), asked or empty("Nobody waits for you."))


def _money(site: Site, _: Mapping[str, str]) -> Element:
    view, history = site.view(), site.history()
    tables = [
        section(f"By {way}", charts.bars({name: one.usd for name, one in list(sums.items())[:20]}, usd))
        for way, sums in history.costs.items()
    ]
    each = history.cost_per_merge
    told = f"{usd(view.money.usd)} of {usd(view.money.cap_usd)}" + (
        f"; {usd(each)} for each merged task, with its share of what came to nothing" if each else ""
    )
    return el(
        "div",
        el("h1", "Money and metrics"),
        el("p", told),
        section("Spent", _plot(_spending(history), "USD")),
        section("Burn-up", _plot(_burn_up(history), "tasks")),
        el("div", tables, class_="grid"),
        section("Time by status", charts.bars(dict(history.seconds_by_status), seconds_text, "bar")),
        section("Figures", _figures(history)),
    )


def _plot(series: Mapping[str, Sequence[float]], unit: str) -> Element:
    """Return the place for a plot, with its numbers; the script of the page draws it."""
    if len(next(iter(series.values()), ())) < 2:  # noqa: PLR2004 - a line has two ends
        return empty("There is too little to draw yet.")
    data = json.dumps({"unit": unit, "names": list(series), "values": list(series.values())})
    label = f"{' and '.join(list(series)[1:])} over time"
    return el("div", class_="plot", data_plot=data, hx_morph_skip_children=True, role="img", aria_label=label)


def _spending(history: HistoryView) -> dict[str, list[float]]:
    total, found = 0.0, {"time": list[float](), "spent": list[float]()}
    for run in history.runs:
        total += run.usd
        found["time"].append(run.began.timestamp())
        found["spent"].append(round(total, 4))
    return found


def _burn_up(history: HistoryView) -> dict[str, list[float]]:
    points = history.burn_up
    return {
        "time": [*(point.at.timestamp() for point in points), history.at.timestamp()],
        "tasks": [*(point.total for point in points), points[-1].total if points else 0],
        "done": [*(point.done for point in points), points[-1].done if points else 0],
    }


def _figures(history: HistoryView) -> Element:
    known = (*cycle_rows(history.cycles), *figure_rows(history.figures))
    rows = (el("tr", el("th", name, scope="row"), el("td", value)) for name, value in known)
    return el("table", el("tbody", rows))


def _trouble(site: Site, _: Mapping[str, str]) -> Element:
    view = site.view()
    trips = [
        el(
            "article",
            el(
                "h3",
                trip.id,
                el("small", f" {trip.rule} · {trip.severity} · {trip.action} ", ago(trip.at, view.at)),
            ),
            el("p", trip.says),
            el("ul", (el("li", one) for one in trip.evidence)),
            el("p", f"Resolved: {trip.resolution}") if trip.resolution else None,
            class_="card" if trip.resolved_at else "card asks",
        )
        for trip in reversed(view.trips)
    ]
    anomalies = [
        el(
            "tr",
            el("td", ago(one.at, view.at)),
            el("td", one.type),
            el("td", task_link(one.task) if one.task else "-"),
            el("td", one.says),
            el("td", "open" if one.is_open else "closed"),
        )
        for one in reversed(view.anomalies)
    ]
    head = el("tr", (el("th", name, scope="col") for name in ("ago", "type", "task", "what", "state")))
    table = scrollable(el("table", el("thead", head), el("tbody", anomalies)), "Anomalies")
    alerts = [el("li", el("time", one.at), " ", one.says) for one in reversed(view.alerts)]
    return el(
        "div",
        el("h1", "Anomalies and trips"),
        section("Trips of the circuit breaker", trips or empty("None.")),
        section("Anomalies", table if anomalies else empty("None.")),
        section("Alerts", el("ol", alerts, class_="news") if alerts else empty("None.")),
    )


def _task(site: Site, asked: Mapping[str, str]) -> Element:
    return task_page.show(site.board, site.gatherer, site.view(), site.access, asked["name"])


def _run(site: Site, asked: Mapping[str, str]) -> Element:
    return task_page.show_run(site.board, asked["name"], asked.get("before"))


def _past(site: Site, asked: Mapping[str, str]) -> Element:
    return past_page.show(site.board, site.gatherer, asked, board_columns, timeline_of)


PAGES: Final[dict[str, Page]] = {
    "/": Page("Overview", _overview, "◉", ON_OUTPUT),
    "/board": Page("Board", _board, "▤"),
    "/questions": Page("For you", _questions, "?"),
    "/graph": Page("Graph", _graph, "⋔"),
    "/timeline": Page("Timeline", _timeline, "≡"),
    "/money": Page("Money", _money, "$"),
    "/trouble": Page("Trouble", _trouble, "!"),
    "/past": Page("Time travel", _past, "↺", triggers=""),
    "/tasks/{name:path}": Page("Task", _task),
    "/runs/{name:path}": Page("Transcript", _run, triggers=ON_OUTPUT),
}
