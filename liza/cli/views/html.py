"""HTML as values: every text is escaped because it is text, and only an element is markup.

What agents wrote is shown as it is: signs that would act, hide or turn the direction of the line are written
out, as on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from liza.domain.printed_text import escape_unsafe
from liza.domain.record import strip_colour

VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Element:
    """A piece of markup; nothing but `el` makes one."""

    __slots__ = ("_markup",)

    def __init__(self, markup: str) -> None:
        self._markup = markup

    def __str__(self) -> str:
        return self._markup


Child = Element | str | int | float | None | Iterable["Child"]
Value = str | int | float | bool | None


def el(tag: str, *children: Child, **attributes: Value) -> Element:
    """Return an element; `_` in the name of an attribute is `-`, and one behind it is left away."""
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    if tag in VOID:
        return Element(opening)
    return Element(f"{opening}{''.join(map(_rendered, children))}</{tag}>")


def scrollable(child: Element, label: str) -> Element:
    """Return *child*, wider than the window perhaps, in a box that a keyboard can scroll, too."""
    return el("div", child, class_="scroll", tabindex=0, role="group", aria_label=label)


def text(value: str) -> str:
    """Return *value* as HTML text, with whatever would act on the reader written out."""
    return escape(escape_unsafe(strip_colour(value)), quote=True)


def _attribute(name: str, value: Value) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def _rendered(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Element):
        return str(child)
    if isinstance(child, str | int | float):
        return text(str(child))
    return "".join(map(_rendered, child))
