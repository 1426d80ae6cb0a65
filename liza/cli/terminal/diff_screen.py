"""The diff of a task, by file, with comments on its lines that go back to the coder as one round."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Static

from liza.cli.terminal.line_list import LineList, fit, safe
from liza.cli.terminal.screens import AskScreen, plain
from liza.cli.views.diffs import file_heading
from liza.domain.model import Feedback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult

    from liza.cli.terminal.line_list import Piece
    from liza.cli.views.diffs import TaskDiff

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan", "#": "bold", "!": "bold yellow"}


class DiffRow(NamedTuple):
    """A line of the screen: of a file (`#`), of a hunk (`@`), of the diff, or a comment (`!`)."""

    sign: str
    text: str
    file: str
    line: int | None = None  # of the new file, else of the old one


class PersonVerdict(NamedTuple):
    """What a person decided about the work: accept or reject it, and the comments that go with a no."""

    is_yes: bool
    comments: tuple[Feedback, ...] = ()


def diff_rows(diff: TaskDiff) -> list[DiffRow]:
    """Return *diff* as rows, one heading a file."""
    rows = []
    for one in diff.files:
        rows.append(DiffRow("#", file_heading(one), one.path))
        rows += [
            DiffRow(line.sign, line.text, one.path, line.new if line.new is not None else line.old)
            for line in one.lines
        ]
    return rows


def with_comments(rows: Iterable[DiffRow], comments: Iterable[Feedback]) -> list[DiffRow]:
    """Return *rows* with each comment behind the line that it is about."""
    by_line: dict[tuple[str | None, int | None], list[Feedback]] = {}
    for comment in comments:
        by_line.setdefault((comment.file, comment.line), []).append(comment)
    found = []
    for row in rows:
        found.append(row)
        if row.sign in "+- " or row.sign == "#":
            said = by_line.pop((row.file, row.line), [])
            found += [DiffRow("!", f"you: {one.message}", row.file, row.line) for one in said]
    return found


def row_pieces(row: DiffRow, width: int) -> list[Piece]:
    number = f"{row.line:>5} " if row.line is not None and row.sign in "+- " else "      "
    sign = row.sign if row.sign in "+- " else ""
    return [(number, "dim"), (fit(f"{sign}{safe(row.text)}", max(0, width - 6)), _STYLES.get(row.sign, ""))]


class DiffScreen(Screen["PersonVerdict | None"]):
    """Shows what a task changed; where it asks for consent, yes and no decide."""

    BINDINGS: ClassVar = [
        Binding("escape,q", "dismiss(None)", "back"),
        Binding("right_square_bracket", "file(1)", "next file", key_display="]"),
        Binding("left_square_bracket", "file(-1)", "file before", key_display="["),
        Binding("c", "comment", "comment"),
        Binding("u", "uncomment", "take back", show=False),
        Binding("y", "decide(True)", "accept"),
        Binding("n", "decide(False)", "reject"),
    ]
    DEFAULT_CSS = "DiffScreen Static { height: auto; max-height: 6; background: $panel; }"

    def __init__(self, diff: TaskDiff, asks: str, *, can_decide: bool) -> None:
        super().__init__()
        self._subject = diff.task
        self._rows = diff_rows(diff)
        self._asks = asks
        self._can_decide = can_decide
        self._comments: tuple[Feedback, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static(plain(self._asks, "bold"))
        yield LineList(row_pieces, empty=f"{self._subject} changed nothing.", id="diff")
        yield Footer()

    def on_mount(self) -> None:
        self.list.show(self._rows)
        self.list.focus()

    @property
    def list(self) -> LineList[DiffRow]:
        return self.query_one("#diff", LineList)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        return self._can_decide or action not in {"decide", "comment", "uncomment"}

    def action_file(self, by: int) -> None:
        rows, here = self.list.rows, self.list.cursor
        heads = [place for place, row in enumerate(rows) if row.sign == "#"]
        ahead = [place for place in heads if (place > here if by > 0 else place < here)]
        if ahead:
            self.list.move_to(ahead[0] if by > 0 else ahead[-1])

    def action_comment(self) -> None:
        row = self.list.current
        if row is None:
            return
        where = row.file if row.line is None else f"{row.file}, line {row.line}"

        def add(said: str | None) -> None:
            if said and said.strip():
                self._comments += (Feedback(message=said, file=row.file, line=row.line),)
                self._redraw()

        self.app.push_screen(AskScreen(f"A comment on {where}", row.text), add)

    def action_uncomment(self) -> None:
        """Take back the comments on the line under the cursor."""
        row = self.list.current
        if row:
            left = (one for one in self._comments if (one.file, one.line) != (row.file, row.line))
            self._comments = tuple(left)
            self._redraw()

    def _redraw(self) -> None:
        self.list.show(with_comments(self._rows, self._comments))

    def action_decide(self, is_yes: bool) -> None:  # noqa: FBT001 - textual passes what the binding says
        if is_yes and self._comments:
            said = "your comments would be lost: n sends them back, u takes back those on a line"
            self.app.notify(said, severity="warning", markup=False)
            return
        self.dismiss(PersonVerdict(is_yes, self._comments))
