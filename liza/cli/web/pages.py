"""What each address shows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from liza.cli.web.html import Element, el
from liza.cli.web.security import CSRF_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liza.board.protocol import Board
    from liza.cli.web.security import Access


class Site:
    """The page of one board: what it shows, and what it has to say once."""

    def __init__(self, board: Board, access: Access) -> None:
        self.board = board
        self.access = access
        self._said: deque[str] = deque(maxlen=3)

    def render(self, path: str, address: str, asked: Mapping[str, str], *, is_part: bool) -> str:
        """Return the page at *path*, or only what changes on it."""
        content = PAGES[path](self, asked)
        return str(content) if is_part else str(frame(self, address, content))

    def flash(self, sentence: str) -> None:
        """Say *sentence* on the next page."""
        self._said.append(sentence)

    def take_flash(self) -> list[str]:
        said = list(self._said)
        self._said.clear()
        return said

    def toast(self, sentence: str, *, is_error: bool = False) -> Element:
        return el(
            "p", sentence, class_="toast bad" if is_error else "toast", role="alert" if is_error else "status"
        )


def frame(site: Site, address: str, content: Element) -> Element:
    """Return a whole page around *content*."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("title", "Liza"),
        el("link", rel="stylesheet", href="/static/page.css"),
        el("script", src="/static/htmx.min.js", defer=True),
        el("script", src="/static/page.js", defer=True),
    )
    toasts = el("div", map(site.toast, site.take_flash()), id="toasts", aria_live="polite")
    body = el("body", toasts, el("main", content, id="main", hx_get=address))
    return Element(f"<!doctype html>{el('html', head, body, lang='en')}")


def form(site: Site, action: str, *children: Element) -> Element:
    """Return a form that does *action*; it carries the token without which nothing is changed."""
    token = el("input", type="hidden", name=CSRF_FIELD, value=site.access.csrf)
    return el(
        "form",
        token,
        *children,
        method="post",
        action=f"/do/{action}",
        hx_post=f"/do/{action}",
        hx_target="#toasts",
    )


def error_page(site: Site, sentence: str, *, is_part: bool) -> Element:
    shown = el("div", el("h1", "That did not work"), el("p", sentence))
    return shown if is_part else frame(site, "/", shown)


def _overview(site: Site, _: Mapping[str, str]) -> Element:
    state = site.board.read()
    return el(
        "ul", (el("li", task.id, " ", task.status, " ", task.description) for task in state.tasks.values())
    )


PAGES: Final[dict[str, Callable[[Site, Mapping[str, str]], Element]]] = {"/": _overview}
