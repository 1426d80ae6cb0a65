"""The board as columns by status, side by side, of which those around the cursor are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.strip import Strip

from liza.cli.terminal.drawing import STYLES
from liza.cli.terminal.line_list import CursorWidget, fit, safe
from liza.domain.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events

    from liza.cli.views.board_view import TaskView

COLUMN: Final = 26  # cells of one, where the terminal is wide
NARROW: Final = 19  # cells of one, so that four fit into eighty


class BoardColumns(CursorWidget):
    """Tasks by status. Left and right go to another column, up and down within one."""

    BINDINGS: ClassVar = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("left,h", "column(-1)", "left", show=False),
        Binding("right", "column(1)", "right", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
        Binding("pagedown,space", "move(10)", "page down", show=False),
        Binding("enter", "choose", "open", show=False),
    ]
    DEFAULT_CSS = "BoardColumns { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns: list[tuple[Status, list[TaskView]]] = []
        self._column = 0
        self._row = 0
        self._tops: dict[Status, int] = {}

    @property
    def current(self) -> TaskView | None:
        tasks = self._columns[self._column][1] if self._column < len(self._columns) else []
        return tasks[self._row] if self._row < len(tasks) else None

    def show(self, tasks: Sequence[TaskView], current: str | None = None) -> None:
        """Show *tasks*; the cursor stays with its task, or goes to *current*."""
        chosen = current or (self.current.id if self.current else None)
        by_status: dict[Status, list[TaskView]] = {}
        for task in tasks:
            by_status.setdefault(task.status, []).append(task)
        self._columns = [(status, by_status[status]) for status in Status if status in by_status]
        self._column = min(self._column, max(0, len(self._columns) - 1))
        for place, (_, found) in enumerate(self._columns):
            rows = [row for row, task in enumerate(found) if task.id == chosen]
            if rows:
                self._column, self._row = place, rows[0]
        self.keep_in_view()
        self.refresh()

    def keep_in_view(self) -> None:
        if not self._columns:
            self._column = self._row = 0
            return
        status, tasks = self._columns[self._column]
        self._row = max(0, min(self._row, len(tasks) - 1))
        height = max(1, self.size.height - 1)
        top = min(self._tops.get(status, 0), self._row, max(0, len(tasks) - height))
        self._tops[status] = max(top, self._row - height + 1)

    def _layout(self) -> tuple[int, int, int]:
        """Return the first column that is drawn, how many are, and how wide each is."""
        width = max(1, self.size.width)
        count = max(1, width // (COLUMN if width >= 5 * COLUMN else NARROW))
        first = max(0, min(self._column - count // 2, len(self._columns) - count))
        return first, count, width // count

    def render_line(self, y: int) -> Strip:
        first, count, width = self._layout()
        segments = [
            segment
            for place in range(first, min(first + count, len(self._columns)))
            for segment in self._cell(place, y, width)
        ]
        return Strip(segments).adjust_cell_length(self.size.width)

    def _cell(self, place: int, y: int, width: int) -> list[Segment]:
        status, tasks = self._columns[place]
        style = Style.parse(STYLES[status])
        if y == 0:
            heading = f"{status} {len(tasks)}"
            return [Segment(fit(heading, width - 1), style + Style(bold=True, underline=True)), Segment(" ")]
        row = self._tops.get(status, 0) + y - 1
        if row >= len(tasks):
            return [Segment(" " * width)]
        is_current = place == self._column and row == self._row
        task = tasks[row]
        text = f"{safe(task.id)} {safe(task.description)}"
        cursor = Style(reverse=is_current and self.has_focus, underline=is_current and not self.has_focus)
        return [Segment(fit(text, width - 1), style + cursor), Segment(" ")]

    def action_move(self, by: int) -> None:
        self._row += by
        self._after_move()

    def action_column(self, by: int) -> None:
        self._column = max(0, min(len(self._columns) - 1, self._column + by))
        self._after_move()

    def _after_move(self) -> None:
        self.keep_in_view()
        self.refresh()
        self.post_message(self.Moved(self))

    def on_click(self, event: events.Click) -> None:
        first, _, width = self._layout()
        self._column = min(len(self._columns) - 1, first + event.x // width)
        if self._columns:
            self._row = self._tops.get(self._columns[self._column][0], 0) + event.y - 1
        self._after_move()
        if event.chain > 1:
            self.action_choose()
