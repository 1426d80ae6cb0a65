"""How rows of the view model look, and the board as columns of which those around the cursor are drawn."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.strip import Strip

from liza.cli.terminal.line_list import CursorWidget, fit, safe
from liza.cli.views.headline import RunStanding
from liza.cli.views.progress import forecast_text, forecast_words
from liza.cli.views.words import rounds_text
from liza.domain.model import Status
from liza.domain.report_words import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events

    from liza.cli.terminal.line_list import Piece
    from liza.cli.views.board_view import BoardView, MoneyView, TaskView, WorkerView
    from liza.cli.views.hosts import HostRow
    from liza.cli.views.questions import OpenQuestion


# Each status is a word beside its colour, so that nothing is lost without colours.
STYLES: Final[dict[Status, str]] = {
    Status.DRAFT: "dim",
    Status.IDLE: "",
    Status.WORKING: "cyan",
    Status.READY_FOR_REVIEW: "blue",
    Status.REJECTED: "yellow",
    Status.APPROVED: "green",
    Status.AWAITING_APPROVAL: "bold magenta",
    Status.BLOCKED: "bold red",
    Status.INTEGRATION_FAILED: "yellow",
    Status.MERGED: "green dim",
    Status.COMPLETE: "green dim",
    Status.NOTHING_TO_DO: "dim",
    Status.SUPERSEDED: "dim",
    Status.ABANDONED: "dim",
}
_ID: Final = 14  # cells of the narrow columns
_STATUS: Final = 18
_HOLDER: Final = 11
_ROUND: Final = 6
BAR: Final = 20


def task_pieces(task: TaskView, width: int) -> list[Piece]:
    """Return a row of the table: id, status, who holds it, its round, and what it is or waits for."""
    rounds = (
        rounds_text(task.iteration, task.max_iterations, "/") if task.iteration and not task.place else ""
    )
    told = (
        task.why
        if task.needs_person or task.status is Status.REJECTED or task.waits_for
        else task.description
    )
    told = f"{task.place}: {told}" if task.place and not task.is_over else told
    rest = max(0, width - _ID - _STATUS - _HOLDER - _ROUND - 4)
    return [
        (f"{fit(safe(task.id), _ID)} ", "bold"),
        (f"{fit(task.status, _STATUS)} ", STYLES[task.status]),
        (f"{fit(safe(task.holder or ''), _HOLDER)} ", ""),
        (f"{fit(rounds, _ROUND)} ", "dim"),
        (fit(safe(told), rest), ""),
    ]


def question_pieces(question: OpenQuestion, width: int) -> list[Piece]:
    asks = "; ".join(question.asks)
    who = "" if question.who == "you" else f" ({question.who} looks at it first)"
    head = f"? {fit(safe(question.subject), _ID)} "
    return [(head, "bold yellow"), (fit(safe(f"{asks}{who}"), max(0, width - len(head))), "")]


def worker_pieces(worker: WorkerView, width: int) -> list[Piece]:
    """Return a worker: what it does since when, what that takes, and what its agent said last."""
    doing = f"{worker.step or worker.task_status or ''} {worker.task or ''}".strip()
    age = duration_text(timedelta(seconds=worker.seconds)) if worker.since else ""
    use = (
        f"{worker.use.processes}p {worker.use.memory >> 20}MB {worker.use.cpu_seconds:.0f}s"
        if worker.use
        else ""
    )
    is_dead = worker.is_alive is False and worker.status == "at work"
    status = "died" if is_dead else worker.status
    last = worker.why or (worker.lines[-1] if worker.lines else worker.agent)
    head = f"{fit(safe(worker.id), 12)} {fit(status, 11)} {fit(age, 7)}"
    middle = f" {fit(safe(doing), 20)}" + (f" {fit(use, 16)}" if width >= _WIDE else "")
    rest = max(0, width - len(head) - len(middle) - 1)
    style = "bold red" if is_dead or worker.why else "cyan" if worker.status == "at work" else "dim"
    return [(head, style), (middle, ""), (f" {fit(safe(last), rest)}", "dim")]


_WIDE: Final = 100  # cells from which there is room for what is nice to know


def progress_text(view: BoardView, width: int) -> str:
    """Return one line: how far, for how much, and how long; where it is narrow, what matters least goes."""
    is_going = view.headline.standing is RunStanding.GOING
    bar = bar_text(view.tally.ended, view.tally.total)
    how_far = (str(view.tally), money_text(view.money))
    when = forecast_text(view.forecast, view.at, is_going=is_going)
    shorter = forecast_words(view.forecast, view.at, is_going=is_going)
    choices = (
        (bar, *how_far, when, f"revision {view.revision}"),
        (bar, *how_far, when),
        (bar, *how_far, shorter),
        (*how_far, shorter),
    )
    lines = ["  ".join(filter(None, choice)) for choice in choices]
    return next((line for line in lines if len(line) <= width), lines[-1])


def hosts_text(hosts: Sequence[HostRow], width: int) -> str:
    """Return the machines that share the board in one line, those that a person should look at first."""
    alive = sum(host.is_alive for host in hosts)
    shown = sorted(hosts, key=lambda host: not host.concerns)
    return fit(safe(f"{alive} of {len(hosts)} hosts alive. {' | '.join(map(str, shown))}"), width)


def bar_text(done: int, total: int) -> str:
    full = BAR * done // total if total else 0
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def money_text(money: MoneyView) -> str:
    return f"${money.usd:.2f} of ${money.cap_usd:.2f}" if money.runs else ""


# The board as columns by status, side by side, of which those around the cursor are drawn.

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
