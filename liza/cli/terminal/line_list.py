"""A list of which only the lines on the screen are drawn, so that a thousand tasks cost what forty do.

Whatever agents wrote goes through `safe`: it is plain text to the screen, never markup, and acts on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from liza.domain.printed_text import escape_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from textual import events

Row = TypeVar("Row")
Piece = tuple[str, str]  # a text, and the style it is drawn in

PLAIN = Style()


def safe(text: str) -> str:
    """Return *text* on one line, with nothing in it that would act on a terminal."""
    return escape_unsafe(" ".join(text.splitlines()) if "\n" in text else text).replace("\t", "    ")


def fit(text: str, width: int) -> str:
    """Return *text* in exactly *width* cells; what is cut ends with an ellipsis."""
    fitted = set_cell_size(text, width)
    return fitted if fitted.rstrip() == text.rstrip() or width < 1 else set_cell_size(text, width - 1) + "…"


class CursorWidget(Widget, can_focus=True):
    """What has a cursor on one of its rows: it tells when that moves, and when somebody chooses."""

    class Chosen(Message):
        """Somebody pressed enter on a row, or clicked it twice."""

        def __init__(self, sender: Widget) -> None:
            super().__init__()
            self.sender = sender

        @property
        def control(self) -> Widget:
            return self.sender

    class Moved(Chosen):
        """The cursor is on another row."""

    @property
    def current(self) -> object | None:
        """The row of the cursor."""
        raise NotImplementedError

    def keep_in_view(self) -> None:
        """Bring the cursor to a row that is there, and that row onto the screen."""
        raise NotImplementedError

    def action_choose(self) -> None:
        if self.current is not None:
            self.post_message(self.Chosen(self))

    def on_resize(self) -> None:
        self.keep_in_view()
        self.refresh()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()


class LineList(CursorWidget, Generic[Row]):
    """Rows of one line each, with a cursor; `draw` says what a row looks like in a given width."""

    BINDINGS: ClassVar = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home", "end(0)", "first", show=False),
        Binding("end,G", "end(1)", "last", show=False),
        Binding("enter", "choose", "open", show=False),
    ]
    DEFAULT_CSS = "LineList { width: 1fr; height: 1fr; }"

    def __init__(
        self,
        draw: Callable[[Row, int], Iterable[Piece]],
        *,
        empty: str = "",
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._empty = empty
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self._top = 0

    @property
    def current(self) -> Row | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def show(self, rows: Sequence[Row], *, cursor: int | None = None) -> None:
        """Show *rows*; the cursor stays at its place, or goes to *cursor*."""
        before, place, self.rows = self.rows, self.cursor, rows
        self.cursor = max(0, min(len(rows) - 1, self.cursor if cursor is None else cursor))
        self.keep_in_view()
        if rows != before or self.cursor != place:
            self.refresh()

    def move_to(self, place: int) -> None:
        place = max(0, min(len(self.rows) - 1, place))
        if place != self.cursor:
            self.cursor = place
            self.keep_in_view()
            self.post_message(self.Moved(self))
        self.refresh()

    def keep_in_view(self) -> None:
        height = max(1, self.size.height)
        self._top = min(self._top, self.cursor, max(0, len(self.rows) - height))
        self._top = max(self._top, self.cursor - height + 1)

    def render_line(self, y: int) -> Strip:
        width, place = self.size.width, self._top + y
        if place >= len(self.rows):
            return Strip([Segment(fit(self._empty if y == 0 and not self.rows else "", width), PLAIN)])
        is_current = place == self.cursor
        cursor = Style(reverse=is_current and self.has_focus, underline=is_current and not self.has_focus)
        segments = [
            Segment(text, Style.parse(style) + cursor) for text, style in self._draw(self.rows[place], width)
        ]
        return Strip(segments).adjust_cell_length(width, cursor)

    def action_move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self.move_to(self.cursor + by * max(1, self.size.height - 1))

    def action_end(self, last: int) -> None:
        self.move_to(len(self.rows) - 1 if last else 0)

    def on_click(self, event: events.Click) -> None:
        self.move_to(self._top + event.y)
        if event.chain > 1:
            self.action_choose()

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)


def text_pieces(line: str, width: int) -> list[Piece]:
    """Return a plain line, for lists of text."""
    return [(fit(safe(line), width), "")]
