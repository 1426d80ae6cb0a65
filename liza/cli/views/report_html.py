"""The report as one file that opens anywhere: no script, no request, pictures drawn in it."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from liza.cli.views import charts
from liza.cli.views.html import Element, el, scrollable
from liza.cli.views.report import SHOWN, cost_sentence, review_lines, takeover_commands, trouble_lines
from liza.cli.views.words import seconds_text, usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from liza.cli.views.html import Child
    from liza.cli.views.report import RunReport

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
        _panel("Questions for you", [_listed(_question_lines(report))] if view.questions else []),
        _panel("Notes of yours", [_listed(note.message for note in view.notes)] if view.notes else []),
        _panel("Merged", _merged(report)),
        _panel("Not merged, and why", _unmerged(report)),
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


def _listed(lines: Iterable[str]) -> Element:
    return el("ul", (el("li", line) for line in lines))


def _some(lines: list[str]) -> list[Element]:
    return [_listed(lines[:SHOWN])] if lines else []


def _question_lines(report: RunReport) -> Iterable[str]:
    return (f"{one.subject}: {' '.join(one.asks)} ({one.command})" for one in report.view.questions)


def _table(head: Sequence[str], rows: Iterable[Sequence[Child]]) -> Element:
    heading = el("tr", (el("th", name, scope="col") for name in head))
    body = (el("tr", (el("td", cell) for cell in row)) for row in rows)
    return scrollable(el("table", el("thead", heading), el("tbody", body)), " and ".join(head))


def _merged(report: RunReport) -> list[Child]:
    if not report.merged:
        return [el("p", "Nothing.", class_="empty")]
    rows = (
        (one.task, one.description, el("code", f"git show {one.commit[:12]}") if one.commit else "")
        for one in report.merged[-SHOWN:]
    )
    commands = el("pre", "\n".join(takeover_commands(report)), class_="tail")
    return [el("p", f"{len(report.merged)} tasks"), _table(("task", "what", "look at it"), rows), commands]


def _unmerged(report: RunReport) -> list[Child]:
    rows = [(one.task, one.status, one.description, one.why) for one in report.unmerged[:SHOWN]]
    return [_table(("task", "status", "what", "why"), rows)] if rows else []


def _timeline(report: RunReport) -> Element:
    history, since = report.history, report.since
    spans = [span for span in history.spans if since is None or span.ended is None or span.ended >= since]
    began = since or history.spans[0].began
    drawn = charts.timeline_svg(spans, began, charts.end_of(history), by_worker=False, link=lambda _: None)
    return scrollable(drawn, "Timeline")


def _burn_up(report: RunReport) -> Element:
    history = report.history
    return charts.burn_up_svg(history.burn_up, history.burn_up[0].at, charts.end_of(history))


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
