"""Time travel: the board as it was at any revision, and what differs between two moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.cli.views.html import Element, el
from liza.cli.views.status import board_differences
from liza.cli.views.time_argument import parse_moment
from liza.cli.web.parts import button, empty, section
from liza.domain.record import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liza.board.protocol import Board
    from liza.cli.views.gather import Gatherer

SHOWN_DIFFERENCES: Final = 300


def show(
    board: Board,
    gatherer: Gatherer,
    asked: Mapping[str, str],
    columns_of: Callable[..., Element],
    timeline_of: Callable[..., Element],
) -> Element:
    """Return the board at the moment that *asked* names, and what changed since another."""
    last = board.read().revision
    at = _revision(board, asked.get("at", ""), last)
    since = _revision(board, asked.get("since", ""), max(1, at - 1))
    facts = gatherer.facts_at(at)
    view = gatherer.view_at(at)
    return el(
        "div",
        el("h1", f"Revision {at} of {last}"),
        _travel_form(at, since, last),
        el("p", f"{view.at:%Y-%m-%d %H:%M:%SZ} · {view.headline.says}", class_="lead"),
        section(f"The board at revision {at}", columns_of(view.tasks, view)),
        section("Up to then", timeline_of(gatherer.history(facts), by_worker=True)),
        section(f"From revision {since} to {at}", _differences(board, since, at)),
    )


def _revision(board: Board, text: str, otherwise: int) -> int:
    if not text.strip():
        return otherwise
    return board.at(parse_moment(text.strip(), utc_now()))[0].revision


def _travel_form(at: int, since: int, last: int) -> Element:
    def slider(label: str, name: str, value: int) -> Element:
        box = el("input", type="range", id=name, name=name, min=1, max=last, value=value, step=1)
        return el("label", el("span", f"{label}: {value}"), box, for_=name)

    return el(
        "form",
        slider("Show revision", "at", at),
        slider("Compare with revision", "since", min(since, at)),
        el("noscript", button("Travel")),
        method="get",
        action="/past",
        hx_get="/past",
        hx_trigger="input delay:150ms",
        hx_target="#main",
        hx_swap="innerMorph",
        hx_push_url="true",
        class_="travel",
    )


def _differences(board: Board, since: int, at: int) -> Element:
    if since == at:
        return empty("Both are the same moment.")
    found = board_differences(board.at(since)[0], board.at(at)[0])
    marks = {"+": "plus", "-": "minus", "~": "hunk"}
    rows = [el("li", str(one), class_=marks[str(one)[0]]) for one in found[:SHOWN_DIFFERENCES]]
    more = len(found) - len(rows)
    cut = empty(f"{more} more; `liza board diff {since} {at}` shows all") if more > 0 else None
    return el("div", el("ul", rows, class_="differences"), cut) if rows else empty("Nothing differs.")
