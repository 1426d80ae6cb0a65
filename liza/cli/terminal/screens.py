"""What opens over the board: a page of text, a question to the person, a yes or no, and help."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from liza.cli.terminal.line_list import LineList, safe, text_pieces
from liza.cli.views import costs
from liza.cli.views.explain import explanation_of, observed_run_context
from liza.cli.views.past import BoardPast
from liza.cli.views.runs import RunFolder
from liza.cli.views.tasks import task_lines
from liza.domain.record import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from liza.board.protocol import Board


_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")  # between two columns
WRAP: Final = 500  # characters of a line on a page; what is longer goes on in the next


def plain(text: str, style: str = "") -> Text:
    """Return *text* as something that textual draws as it is: no markup in it means anything."""
    return Text("\n".join(safe(line) for line in text.splitlines()), style=style)


class PageScreen(Screen[None]):
    """A page of plain lines that can be scrolled."""

    BINDINGS: ClassVar = [Binding("escape,q", "dismiss", "back")]
    DEFAULT_CSS = "PageScreen Static { height: auto; background: $panel; }"

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield Static(plain(self._title, "bold"), id="title")
        yield LineList(text_pieces, empty="There is nothing.", id="page")
        yield Footer()

    def on_mount(self) -> None:
        self.list.focus()

    def on_resize(self) -> None:
        self.list.show(wrapped(self._lines, self.app.size.width))

    @property
    def list(self) -> LineList[str]:
        return self.query_one("#page", LineList)


def wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Return *lines*, each folded between words into as many as it takes in *width* cells."""
    most = max(20, min(WRAP, width - 1))
    return [part for line in lines for part in _fold(line, most)]


def _fold(line: str, most: int) -> list[str]:
    """Return *line* in parts; what goes on stands below the last column, else a little further in."""
    column = max((found.end() for found in _GAP.finditer(line)), default=2)
    indent = " " * (column if column < most // 2 else 2)
    return wrap(line, most, subsequent_indent=indent, break_on_hyphens=False) or [""]


class AskScreen(ModalScreen[str | None]):
    """Asks for a line of text; escape takes it back."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "cancel")]
    DEFAULT_CSS = """
    AskScreen { align: center middle; }
    AskScreen > Vertical { width: 90%; max-width: 110; height: auto; max-height: 90%; padding: 0 1;
                           border: round $primary; background: $surface; }
    AskScreen Static { height: auto; max-height: 14; }
    """

    def __init__(self, title: str, text: str, *, given: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._given = given

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(plain(self._title, "bold"))
            yield Static(plain(self._text))
            yield Input(value=self._given, placeholder="enter sends it, escape takes it back")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class ConfirmScreen(ModalScreen[bool]):
    """Asks once for a yes."""

    BINDINGS: ClassVar = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape", "dismiss(False)", "no"),
    ]
    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Static { width: 80%; max-width: 90; height: auto; padding: 0 1;
                             border: round $error; background: $surface; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(plain(f"{self._text}\n\ny: yes    n: no"))


# Pages of text that open over the board; each is made of what the command of the same name prints.


def task_page(board: Board, name: str) -> list[str]:
    """Return all about a task."""
    return list(task_lines(board, name))


def explain_page(board: Board, subject: str) -> list[str]:
    """Return why *subject* does not go on, and what to do."""
    now = utc_now()
    return explanation_of(subject, observed_run_context(board, board.read()), now).told(now).splitlines()


def cost_page(board: Board) -> list[str]:
    """Return what all runs cost."""
    state, moves = board.read(), BoardPast().extend(board.entries()).moves
    return list(costs.cost_lines(costs.run_costs(RunFolder(board.home).records(), state, moves), state))
