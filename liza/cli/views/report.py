"""What came of a run, for somebody who was away: values, Markdown for a pull request, and one HTML file."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views import charts
from liza.cli.views.board_view import board_view, history_view
from liza.cli.views.gather import Gatherer
from liza.cli.views.html import Element, el, scrollable
from liza.cli.views.words import seconds_text, usd
from liza.domain.model import SUCCEEDED, Status
from liza.domain.printed_text import escape_unsafe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.cli.views.board_view import AnomalyView, BoardView, HistoryView, TripView
    from liza.cli.views.costs import CostSum
    from liza.cli.views.html import Child


# What money went to that came to nothing, by the outcome of the run.
NO_WASTE: Final = frozenset({"merged", "complete", "nothing to do", "planned", "open"})
SHOWN: Final = 100  # rows of a table; `liza status` and `liza log` have all
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#!])")


class MergedTask(NamedTuple):
    task: str
    description: str
    commit: str | None


class DoneTask(NamedTuple):
    """A task that succeeded without a merge: its workflow merges nothing, or there was nothing to do."""

    task: str
    description: str
    status: str


class OpenTask(NamedTuple):
    """A task that was not merged, and why."""

    task: str
    description: str
    status: str
    why: str


class RunReport(NamedTuple):
    """What a report says, of all that happened or of what happened *since* a moment."""

    view: BoardView
    history: HistoryView
    since: datetime | None
    merged: tuple[MergedTask, ...]
    done: tuple[DoneTask, ...]
    unmerged: tuple[OpenTask, ...]
    waste: dict[str, CostSum]
    anomalies: tuple[AnomalyView, ...]
    trips: tuple[TripView, ...]

    @property
    def title(self) -> str:
        when = f"{self.view.at:%Y-%m-%d %H:%MZ}"
        return f"Since {self.since:%Y-%m-%d %H:%MZ}, until {when}" if self.since else f"Until {when}"


def gather_report(board: Board, now: datetime, since: datetime | None = None) -> RunReport:
    """Return the report of *board* as it is, about what happened since a moment or about all of it."""
    gatherer = Gatherer(board)
    facts = gatherer.facts(now)
    runs = [run for run in gatherer.runs.records() if since is None or run.began >= since]
    return report_of(board_view(facts), history_view(facts, gatherer.past(), runs), since)


def report_of(view: BoardView, history: HistoryView, since: datetime | None) -> RunReport:
    """Return the report of what is shown."""
    ended = {move.task: move for move in history.moves if move.event in {"merge", "complete", "confirm"}}
    succeeded = {
        name: Status(move.target)
        for name, move in ended.items()
        if (since is None or move.at >= since) and Status(move.target) in SUCCEEDED
    }
    merged = tuple(
        MergedTask(name, history.descriptions.get(name, ""), history.merges.get(name))
        for name, status in succeeded.items()
        if status is Status.MERGED
    )
    done = tuple(
        DoneTask(name, history.descriptions.get(name, ""), str(status))
        for name, status in succeeded.items()
        if status is not Status.MERGED
    )
    unmerged = tuple(
        OpenTask(task.id, task.description, str(task.status), task.why)
        for task in view.tasks
        if task.status not in SUCCEEDED
    )
    waste = {name: one for name, one in history.costs["outcome"].items() if name not in NO_WASTE}
    anomalies = tuple(one for one in view.anomalies if since is None or one.at >= since)
    trips = tuple(one for one in view.trips if since is None or one.at >= since)
    return RunReport(view, history, since, merged, done, unmerged, waste, anomalies, trips)


def takeover_commands(report: RunReport) -> list[str]:
    """Return what to type to look at the merged work, and to take it over."""
    branch = report.view.integration_branch
    shown = [f"git log --oneline --first-parent HEAD..{branch}", f"git diff HEAD...{branch}"]
    return [*shown, f"git merge {branch}"] if report.merged else []


def markdown(text: str) -> str:
    """Return *text* so that nothing in it is markup: no link, no picture, no mention."""
    line = " ".join(escape_unsafe(text).split())
    return _SPECIAL.sub(r"\\\1", line).replace("@", "&#64;")


def report_markdown(report: RunReport) -> str:
    """Return *report* as Markdown."""
    view = report.view
    parts = [
        f"# {markdown(view.goal.description)}",
        f"{report.title}. {markdown(view.headline.says)}."
        + (f" Next: `{view.headline.command}`." if view.headline.command else ""),
        *_section("Questions for you", (f"{markdown(one.subject)}: {markdown(' '.join(one.asks))} "
                                        f"(`{one.command}`)" for one in view.questions)),
        *_section("Merged", _merged_lines(report.merged) if report.merged else ["nothing"]),
        *_commands(report),
        *_section("Done without a merge", (
            f"**{markdown(one.task)}** ({one.status}): {markdown(one.description)} "
            f"(`liza task show {one.task}`)" for one in report.done)),
        *_section("Not done, and why", (
            f"**{markdown(one.task)}** ({one.status}): {markdown(one.why)}" for one in report.unmerged)),
        *_section("Cost", _cost_lines(report)),
        *_section("Reviews", review_lines(report)),
        *_section("Time by status", (
            f"{name}: {seconds_text(spent)}" for name, spent in report.history.seconds_by_status.items())),
        *_section("Anomalies and trips", (markdown(line) for line in trouble_lines(report))),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    more = [f"- and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if found:
        yield f"## {title}"
        yield "\n".join([*(f"- {line}" for line in found[:SHOWN]), *more])


def _merged_lines(merged: Sequence[MergedTask]) -> Iterator[str]:
    for one in merged:
        how = f" (`git show {one.commit[:12]}`)" if one.commit else ""
        yield f"**{markdown(one.task)}**: {markdown(one.description)}{how}"


def _commands(report: RunReport) -> Iterator[str]:
    if found := takeover_commands(report):
        yield "```\n" + "\n".join(found) + "\n```"


def cost_sentence(report: RunReport) -> str:
    """Return what was spent, and where the budget counts more than the runs told."""
    cost, money = report.history.cost, report.view.money
    told = f"${cost.usd:.2f} for {cost.runs} runs, of a budget of ${money.cap_usd:.2f}"
    if not money.estimated:
        return told
    guess = f"${money.estimated:.2f} are estimated for runs that did not tell"
    return f"{told}; it counts ${money.usd:.2f}, since {guess}"


def _cost_lines(report: RunReport) -> Iterator[str]:
    yield cost_sentence(report)
    if report.history.cost_per_merge is not None:
        yield f"${report.history.cost_per_merge:.2f} a merged task, with its share of what came to nothing"
    lost = sum(one.usd for one in report.waste.values())
    causes = ", ".join(f"{name} ${one.usd:.2f}" for name, one in report.waste.items() if one.usd)
    if lost:
        yield f"${lost:.2f} came to nothing: {causes}"
    for name, one in list(report.history.costs["task"].items())[:10]:
        yield f"{markdown(name)}: ${one.usd:.2f} in {one.runs} runs"


def review_lines(report: RunReport) -> Iterator[str]:
    """Yield how far reviewers agree: with coders at first sight, and among themselves."""
    found = report.history.figures
    if found.first_pass_rate is not None:
        yield f"{found.first_pass_rate:.0%} of the work passed its first review"
    rates = {name: rate for name, rate in found.approval_rates.items() if rate is not None}
    yield from (f"{name} approved {rate:.0%} of what it saw" for name, rate in rates.items())
    if len(rates) > 1:
        spread = max(rates.values()) - min(rates.values())
        yield f"between the mildest and the strictest reviewer are {spread * 100:.0f} points"
    if found.rubber_stamps:
        yield f"approves nearly everything: {', '.join(found.rubber_stamps)}; check some of it by hand"
    if found.rejections:
        kinds = ", ".join(f"{count} {name}" for name, count in found.rejections.items())
        yield f"rejections by kind: {kinds}"


def trouble_lines(report: RunReport) -> Iterator[str]:
    """Yield what should not have happened."""
    for trip in report.trips:
        yield f"{trip.id}: {trip.says}; {trip.resolution or 'open'}"
    for one in report.anomalies:
        about = f" of {one.task}" if one.task else ""
        yield f"{one.id}: {one.type}{about} by {one.by}: {one.says}"


# The report as one file that opens anywhere: no script, no request, pictures drawn in it.


# Whatever agents wrote, the file asks nobody for anything and runs nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
SHOWN_BARS = 20


def report_html(report: RunReport) -> str:
    """Return *report* as a page of its own."""
    style = files("liza.cli.web").joinpath("static/page.css").read_text(encoding="utf-8")
    extra = "body{display:block}main{max-width:1100px;margin:0 auto}@media print{.panel{break-inside:avoid}}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"Report: {report.view.goal.description}"),
        Element(f"<style>{style}{extra}</style>"),
    )
    return (
        f"<!doctype html>{el('html', head, el('body', el('main', el('div', _content(report)))), lang='en')}\n"
    )


def _content(report: RunReport) -> list[Element]:
    view, history = report.view, report.history
    hero = el(
        "section",
        el("h1", view.goal.description),
        el("p", report.title),
        el("p", str(view.headline)),
        el("p", f"Specified in {view.goal.spec}") if view.goal.spec else None,
        class_=f"hero h-{view.headline.standing}",
    )
    parts: list[Element | None] = [
        hero,
        _panel("Questions for you", [_bullet_list(_question_lines(report))] if view.questions else []),
        _panel("Notes of yours", [_bullet_list(note.message for note in view.notes)] if view.notes else []),
        _panel("Merged", _merged_panel(report)),
        _panel("Done without a merge", _done(report)),
        _panel("Not done, and why", _unmerged_panel(report)),
        _panel("Timeline", [_timeline(report)] if history.spans else []),
        _panel("Burn-up", [_burn_up(report)] if history.burn_up else []),
        _panel("Time by status", [charts.bars(dict(history.seconds_by_status), seconds_text, "bar")]),
        _panel("Cost", _cost(report)),
        _panel("Reviewers' agreement", _some(list(review_lines(report)))),
        _panel("Anomalies and trips", _some(list(trouble_lines(report)))),
    ]
    return [part for part in parts if part is not None]


def _panel(title: str, children: Sequence[Child]) -> Element | None:
    return el("section", el("h2", title), *children, class_="panel") if children else None


def _bullet_list(lines: Iterable[str]) -> Element:
    return el("ul", (el("li", line) for line in lines))


def _some(lines: list[str]) -> list[Element]:
    return [_bullet_list(lines[:SHOWN])] if lines else []


def _question_lines(report: RunReport) -> Iterable[str]:
    return (f"{one.subject}: {' '.join(one.asks)} ({one.command})" for one in report.view.questions)


def _table(head: Sequence[str], rows: Iterable[Sequence[Child]]) -> Element:
    heading = el("tr", (el("th", name, scope="col") for name in head))
    body = (el("tr", (el("td", cell) for cell in row)) for row in rows)
    return scrollable(el("table", el("thead", heading), el("tbody", body)), " and ".join(head))


def _merged_panel(report: RunReport) -> list[Child]:
    if not report.merged:
        return [el("p", "Nothing.", class_="empty")]
    rows = (
        (one.task, one.description, el("code", f"git show {one.commit[:12]}") if one.commit else "")
        for one in report.merged[-SHOWN:]
    )
    commands = el("pre", "\n".join(takeover_commands(report)), class_="tail")
    return [el("p", f"{len(report.merged)} tasks"), _table(("task", "what", "look at it"), rows), commands]


def _done(report: RunReport) -> list[Child]:
    rows = [
        (one.task, one.status, one.description, el("code", f"liza task show {one.task}"))
        for one in report.done[-SHOWN:]
    ]
    return [_table(("task", "status", "what", "look at it"), rows)] if rows else []


def _unmerged_panel(report: RunReport) -> list[Child]:
    rows = [(one.task, one.status, one.description, one.why) for one in report.unmerged[:SHOWN]]
    return [_table(("task", "status", "what", "why"), rows)] if rows else []


def _timeline(report: RunReport) -> Element:
    history, since = report.history, report.since
    spans = [span for span in history.spans if since is None or span.ended is None or span.ended >= since]
    began = since or history.spans[0].began
    drawn = charts.timeline_svg(spans, began, charts.chart_end(history), by_worker=False, link=lambda _: None)
    return scrollable(drawn, "Timeline")


def _burn_up(report: RunReport) -> Element:
    history = report.history
    return charts.burn_up_svg(history.burn_up, history.burn_up[0].at, charts.chart_end(history))


def _cost(report: RunReport) -> list[Child]:
    history, each = report.history, report.history.cost_per_merge
    share = f"{usd(each)} a merged task, with its share of what came to nothing" if each is not None else ""
    parts: list[Child] = [el("p", cost_sentence(report)), el("p", share)]
    tables = {
        "By task": history.costs["task"],
        "By outcome": history.costs["outcome"],
        "Waste by cause": report.waste,
    }
    for title, sums in tables.items():
        values = {name: one.usd for name, one in list(sums.items())[:SHOWN_BARS]}
        parts += [el("h3", title), charts.bars(values, usd)] if values else []
    return parts
