"""Pictures as SVG, drawn here: who worked on what, what waits for what, and how many are done.

They need no script, so that page and report have the same ones. Colours are classes of the style sheet.
"""

from __future__ import annotations

from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.html import Element, el
from liza.domain.report_words import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from liza.cli.views.board_view import HistoryView, TaskView
    from liza.cli.views.past import BurnUpPoint, TimelineSpan

    Link = Callable[[str], str | None]

WIDTH: Final = 1000
ROW: Final = 26
LABEL: Final = 150
AXIS: Final = 24
MOST_ROWS: Final = 200
SENT_BACK: Final = frozenset({"reject", "revise", "fail_integration", "fail", "lose", "block"})
NODE: Final = (168, 46)
GAP: Final = (44, 16)
MOST_NODES: Final = 300
TICKS: Final = 6
CHART_HEIGHT: Final = 180


class Scale(NamedTuple):
    """Moments as places between *left* and the right edge."""

    began: datetime
    ended: datetime
    left: float = LABEL

    def x(self, at: datetime) -> float:
        whole = max(1.0, (self.ended - self.began).total_seconds())
        share = min(1.0, max(0.0, (at - self.began).total_seconds() / whole))
        return round(self.left + share * (WIDTH - self.left - 8), 1)


def timeline_svg(
    spans: Sequence[TimelineSpan], began: datetime, now: datetime, *, by_worker: bool, link: Link
) -> Element:
    """Return a row a worker, or a task, with what it was at when; what was sent back has a red mark."""
    names = list(dict.fromkeys(_row_name(span, by_worker=by_worker) for span in spans))
    rows = [name for name in names if name][:MOST_ROWS]
    scale = Scale(began, now)
    height = AXIS + ROW * max(1, len(rows)) + 6
    shown = [
        _row(name, number, [s for s in spans if _row_name(s, by_worker=by_worker) == name], scale, link)
        for number, name in enumerate(rows)
    ]
    return el(
        "svg",
        _axis(scale, height),
        shown,
        viewBox=f"0 0 {WIDTH} {height}",
        class_="timeline",
        role="group",
        aria_label="Who worked on what" if by_worker else "Where each task was",
    )


def chart_end(history: HistoryView) -> datetime:
    """Return where a picture of *history* ends: now, or when everything was over."""
    ends = [span.ended for span in history.spans]
    return history.at if None in ends or not ends else max(end for end in ends if end)


def _row_name(span: TimelineSpan, *, by_worker: bool) -> str:
    return (span.worker or "") if by_worker else span.task


def _row(name: str, number: int, spans: Iterable[TimelineSpan], scale: Scale, link: Link) -> Element:
    top = AXIS + number * ROW
    label = el("text", name[:22], x=4, y=top + 17, class_="label")
    line = el("line", x1=LABEL, x2=WIDTH - 8, y1=top + ROW - 1, y2=top + ROW - 1, class_="rule")
    return el("g", label, line, [_bar(span, top, scale, link) for span in spans])


def _bar(span: TimelineSpan, top: int, scale: Scale, link: Link) -> Element:
    x, end = scale.x(span.began), scale.x(span.ended or scale.ended)
    is_held = span.worker is not None
    length = duration_text(timedelta(seconds=span.seconds(scale.ended)))
    held = f" with {span.worker}" if span.worker else ", waiting"
    ending = f"; then {span.ended_by}{f': {span.reason}' if span.reason else ''}" if span.ended_by else ""
    told = el("title", f"{span.task}: {span.status} for {length}{held}{ending}")
    box = el(
        "rect", told, x=x, y=top + (4 if is_held else 10), width=max(1.5, end - x),
        height=18 if is_held else 6, rx=3, class_=f"bar s-{span.status}{'' if is_held else ' wait'}",
    )  # fmt: skip
    mark = None
    if span.ended_by in SENT_BACK:
        mark = el("path", d=f"M{end - 4} {top + 4}l4 9 4-9z", class_="sent-back")
    shown = el("g", box, mark)
    place = link(span.task)
    return el("a", shown, href=place, aria_label=f"{span.task}, {span.status}") if place else shown


def _axis(scale: Scale, height: float) -> Element:
    step = (scale.ended - scale.began) / TICKS
    is_long = scale.ended - scale.began > timedelta(days=1)
    is_short = scale.ended - scale.began < timedelta(minutes=10)
    form = "%d %b %H:%M" if is_long else "%H:%M:%S" if is_short else "%H:%M"
    moments = [scale.began + step * number for number in range(TICKS)]
    return el(
        "g",
        (
            el(
                "g",
                el("line", x1=scale.x(at), x2=scale.x(at), y1=AXIS - 6, y2=height, class_="tick"),
                el("text", f"{at:{form}}", x=scale.x(at) + 3, y=12, class_="axis"),
            )
            for at in moments
        ),
    )


def graph_svg(tasks: Sequence[TaskView], link: Link) -> Element:
    """Return the tasks with an arrow from each to those that wait for it."""
    shown = {task.id: task for task in tasks[:MOST_NODES]}
    places = _places(shown)
    width = max((x for x, _ in places.values()), default=0) + NODE[0] + 8
    height = max((y for _, y in places.values()), default=0) + NODE[1] + 8
    edges = [
        _edge(places[before], places[task.id], is_open=before in task.waits_for)
        for task in shown.values()
        for before in task.depends_on
        if before in places
    ]
    nodes = [_node(task, places[task.id], link) for task in shown.values()]
    arrow = el("path", d="M0 0L8 4L0 8z")
    marker = el(
        "marker", arrow, id="arrow", markerWidth=8, markerHeight=8, refX=7, refY=4, orient="auto",
        class_="arrow",
    )  # fmt: skip
    return el(
        "svg",
        el("defs", marker),
        edges,
        nodes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="graph",
        role="group",
        aria_label="Which task waits for which",
    )


def _places(tasks: Mapping[str, TaskView]) -> dict[str, tuple[int, int]]:
    """Return where each task is drawn: right of all that it depends on."""
    needs = {name: [one for one in task.depends_on if one in tasks] for name, task in tasks.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:  # the board refuses one; a past one may have had it
        order, needs = list(tasks), {name: [] for name in tasks}
    layer: dict[str, int] = {}
    filled: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name in order:
        layer[name] = max((layer[one] + 1 for one in needs[name]), default=0)
        row = filled.get(layer[name], 0)
        filled[layer[name]] = row + 1
        places[name] = (4 + layer[name] * (NODE[0] + GAP[0]), 4 + row * (NODE[1] + GAP[1]))
    return places


def _edge(start: tuple[int, int], end: tuple[int, int], *, is_open: bool) -> Element:
    x1, y1 = start[0] + NODE[0], start[1] + NODE[1] // 2
    x2, y2 = end[0], end[1] + NODE[1] // 2
    bend = (x2 - x1) // 2
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return el("path", d=path, class_="edge open" if is_open else "edge", marker_end="url(#arrow)")


def _node(task: TaskView, place: tuple[int, int], link: Link) -> Element:
    x, y = place
    box = el(
        "g",
        el("title", f"{task.id}: {task.status}; {task.description}"),
        el("rect", x=x, y=y, width=NODE[0], height=NODE[1], rx=8, class_="node"),
        el("rect", x=x, y=y, width=5, height=NODE[1], rx=2, class_=f"s-{task.status}"),
        el("text", task.id[:20], x=x + 14, y=y + 19, class_="name"),
        el("text", str(task.status).replace("_", " ").lower(), x=x + 14, y=y + 36, class_="axis"),
    )
    return el("a", box, href=link(task.id))


def burn_up_svg(points: Sequence[BurnUpPoint], began: datetime, now: datetime) -> Element:
    """Return how many tasks there were, and how many were done, over time."""
    scale, most = Scale(began, now, left=40), max((point.total for point in points), default=1)
    bottom, top = CHART_HEIGHT - 10, AXIS + 4
    total = _stairs(
        [(scale.x(p.at), bottom - (bottom - top) * p.total / most) for p in points], scale, bottom
    )
    done = _stairs([(scale.x(p.at), bottom - (bottom - top) * p.done / most) for p in points], scale, bottom)
    return el(
        "svg",
        el("title", "Tasks, and those that are done"),
        _axis(scale, CHART_HEIGHT),
        el("text", most, x=4, y=top + 8, class_="axis"),
        el("text", 0, x=4, y=bottom, class_="axis"),
        el("path", d=total, class_="line total"),
        el("path", d=done, class_="line done"),
        viewBox=f"0 0 {WIDTH} {CHART_HEIGHT}",
        class_="chart",
        role="img",
    )


def _stairs(places: Sequence[tuple[float, float]], scale: Scale, bottom: float) -> str:
    height, path = bottom, f"M{scale.left} {bottom}"
    for x, y in places:
        path += f"L{x} {round(height, 1)}L{x} {round(y, 1)}"
        height = y
    return f"{path}L{WIDTH - 8} {round(height, 1)}"


def bars(values: Mapping[str, float], written: Callable[[float], str], css: str = "") -> Element:
    """Return a table with a bar for each value; with *css* they are statuses, each in its colour."""
    most = max(values.values(), default=0) or 1
    rows = [
        el(
            "tr",
            el("th", name.replace("_", " ").lower() if css else name, scope="row"),
            el("td", _meter(value / most, f"{css} s-{name}" if css else "fill"), class_="wide"),
            el("td", written(value), class_="number"),
        )
        for name, value in values.items()
    ]
    return el("table", el("tbody", rows), class_="bars")


def _meter(share: float, css: str) -> Element:
    box = el("rect", x=0, y=0, width=round(100 * share, 2), height=8, class_=css)
    return el("svg", box, viewBox="0 0 100 8", preserveAspectRatio="none", class_="meter", aria_hidden="true")
