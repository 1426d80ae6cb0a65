"""`liza watch` on a terminal: what there is to see, and a key for everything that a person does about it.

Every action is one of `liza.cli.actions`, as when it is typed: the same rules, the same sentences.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual import work
from textual.app import App
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Input, Static

from liza.cli import actions
from liza.cli.terminal.diff_screen import DiffScreen
from liza.cli.terminal.drawing import (
    BoardColumns,
    hosts_text,
    progress_text,
    question_pieces,
    task_pieces,
    worker_pieces,
)
from liza.cli.terminal.feed import BoardFeed
from liza.cli.terminal.keys import KEYS, key_rows
from liza.cli.terminal.line_list import CursorWidget, LineList, text_pieces
from liza.cli.terminal.log_screen import LogScreen
from liza.cli.terminal.screens import (
    AskScreen,
    ConfirmScreen,
    PageScreen,
    cost_page,
    explain_page,
    plain,
    task_page,
)
from liza.cli.views.board_view import TaskView
from liza.cli.views.diffs import task_diff
from liza.cli.views.questions import OpenQuestion, PersonAction, QuestionKind
from liza.domain.changes import HUMAN
from liza.domain.config import Switch
from liza.domain.record import utc_now
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from liza.board.protocol import Board
    from liza.cli.actions import ActionResult
    from liza.cli.terminal.diff_screen import PersonVerdict
    from liza.cli.terminal.feed import FeedItem
    from liza.cli.views.board_view import BoardView, WorkerView
    from liza.cli.views.diffs import TaskDiff

TAIL: Final = 40  # lines of an agent that the pane beside the workers may show
MOST_QUESTIONS: Final = 5  # that are on top at once; the list scrolls
WIDE: Final = 110  # cells from which the lines of a worker's agent stand beside the workers


Answer = TypeVar("Answer")

_SHOWN_KEYS: Final = 11  # of the keys, the first of which are those that are needed most

_CSS: Final = """
#headline { height: auto; max-height: 3; background: $panel; }
#progress, #hosts { height: 1; background: $panel; }
#questions { height: auto; max-height: 5; background: $boost; }
#search { height: 1; border: none; display: none; }
#search.open { display: block; }
ContentSwitcher { height: 1fr; }
#lower { height: 30%; min-height: 3; border-top: solid $primary; }
#tail { display: none; border-left: solid $primary; }
#tail.wide { display: block; }
"""


class BoardScreen(Screen[None]):
    """The board, its questions and its workers, live."""

    CSS = _CSS
    BINDINGS: ClassVar = [
        Binding(one.key, one.action, one.word, show=place < _SHOWN_KEYS, key_display=one.shown)
        for place, one in enumerate(KEYS)
    ]

    class BoardLooked(Message):
        """The feed has looked at the board."""

        def __init__(self, item: FeedItem) -> None:
            super().__init__()
            self.item = item

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board
        self.view: BoardView | None = None
        self._trouble = ""
        self._query = ""
        self._feed = BoardFeed(board, lambda item: self.post_message(self.BoardLooked(item)), tail=TAIL)

    def compose(self) -> ComposeResult:
        yield Static(id="headline")
        yield Static(id="progress")
        yield Static(id="hosts")
        yield LineList(question_pieces, id="questions")
        yield Input(placeholder="search: part of an id, a status, a worker or a description", id="search")
        with ContentSwitcher(initial="table"):
            yield LineList(task_pieces, empty="No task yet.", id="table")
            yield BoardColumns(id="columns")
        with Horizontal(id="lower"):
            yield LineList(worker_pieces, empty="No worker yet.", id="workers")
            yield LineList(text_pieces, empty="It says nothing.", id="tail")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.questions.display = False
        self.query_one("#hosts").display = False
        self.table.focus()
        self._feed.start()

    def on_unmount(self) -> None:
        self._feed.stop()

    @property
    def table(self) -> LineList[TaskView]:
        return self.query_one("#table", LineList)

    @property
    def columns(self) -> BoardColumns:
        return self.query_one("#columns", BoardColumns)

    @property
    def questions(self) -> LineList[OpenQuestion]:
        return self.query_one("#questions", LineList)

    @property
    def staff(self) -> LineList[WorkerView]:
        return self.query_one("#workers", LineList)

    @property
    def tail(self) -> LineList[str]:
        return self.query_one("#tail", LineList)

    def on_board_screen_board_looked(self, message: BoardLooked) -> None:
        item = message.item
        if item.view is not None:
            self.view = item.view
            self._draw()
        if item.trouble and item.trouble != self._trouble:
            self.tell(item.trouble, is_error=True)
        self._trouble = item.trouble or ""
        if item.view is None:
            headline = self.query_one("#headline", Static)
            headline.update(plain(f"The board cannot be read: {item.trouble}", "bold red"))

    def _draw(self) -> None:
        view = self.view
        if view is None:
            return
        self._draw_head(view)
        self.questions.display = bool(view.questions)
        self.questions.styles.height = min(MOST_QUESTIONS, len(view.questions))
        self.questions.show(view.questions)
        self._draw_tasks(view)
        self._draw_workers(view)
        self._draw_tail()

    def _draw_head(self, view: BoardView) -> None:
        width = self.size.width
        self.query_one("#headline", Static).update(plain(str(view.headline), "bold"))
        self.query_one("#progress", Static).update(plain(progress_text(view, width)))
        hosts = self.query_one("#hosts", Static)
        hosts.display = bool(view.hosts)
        hosts.update(plain(hosts_text(view.hosts, width)))

    def _draw_tasks(self, view: BoardView) -> None:
        shown = [task for task in view.tasks if _matches(task, self._query)]
        chosen = self.table.current
        places = {task.id: place for place, task in enumerate(shown)} if chosen else {}
        self.table.show(shown, cursor=places.get(chosen.id) if chosen else None)
        if self.query_one(ContentSwitcher).current == "columns":
            self.columns.show(shown)

    def _draw_workers(self, view: BoardView) -> None:
        """Show the workers; until the person chooses one, the cursor is on one whose agent says something."""
        place = self.staff.cursor
        if not self.staff.has_focus and not any(one.lines for one in view.workers[place : place + 1]):
            place = next((place for place, one in enumerate(view.workers) if one.lines), place)
        self.staff.show(view.workers, cursor=place)

    def _draw_tail(self) -> None:
        self.tail.set_class(self.size.width >= WIDE, "wide")
        worker = self.staff.current
        lines = worker.lines if worker else ()
        self.tail.show(lines, cursor=len(lines) - 1)

    def on_cursor_widget_moved(self, message: CursorWidget.Moved) -> None:
        if message.sender is self.staff:
            self._draw_tail()

    def on_cursor_widget_chosen(self, message: CursorWidget.Chosen) -> None:
        if type(message) is not CursorWidget.Chosen:
            return
        if message.sender is self.questions:
            self._act_on(self.questions.current)
        elif message.sender is self.staff:
            self.action_logs()
        elif task := self.chosen_task():
            self.open_page(f"{task.id}: {task.status}", lambda: task_page(self.board, task.id))

    def on_resize(self) -> None:
        if self.view is not None:
            self._draw_head(self.view)
        self._draw_tail()

    def chosen_task(self) -> TaskView | None:
        """Return the task that the keys are about: that of the focused list."""
        if self.view is None:
            return None
        if self.questions.has_focus and self.questions.current:
            return self.view.task(self.questions.current.subject)
        if self.staff.has_focus and self.staff.current:
            return self.view.task(self.staff.current.task or "")
        is_table = self.query_one(ContentSwitcher).current == "table"
        return self.table.current if is_table else self.columns.current

    def chosen_question(self) -> OpenQuestion | None:
        """Return the question under the cursor, or the one of the chosen task, or the only one."""
        if self.view is None:
            return None
        if self.questions.has_focus:
            return self.questions.current
        task = self.chosen_task()
        mine = [one for one in self.view.questions if task and one.subject == task.id]
        return next(iter(mine or self.view.questions), None)

    def tell(self, sentence: str, *, is_error: bool = False) -> None:
        self.app.notify(
            plain(sentence).plain, severity="error" if is_error else "information", markup=False, timeout=8
        )

    @work(thread=True)
    def perform(self, action: Callable[..., ActionResult], **fields: object) -> None:
        """Do *action* in the name of the person, and say what it came to."""
        try:
            done = action(self.board, by=HUMAN, **fields)
        except LizaError as error:
            self.app.call_from_thread(self.tell, str(error), is_error=True)
        else:
            self.app.call_from_thread(self.tell, str(done))

    def perform_now(self, action: Callable[..., ActionResult], **fields: object) -> None:
        self.perform(action, at=utc_now(), **fields)

    def ask(self, title: str, text: str, then: Callable[[str], None], *, given: str = "") -> None:
        """Ask for a line and go on with it; nothing happens where it is taken back."""

        def take(said: str | None) -> None:
            if said is not None:
                then(said)

        self._open_dialog(AskScreen(title, text, given=given), take)

    def _open_dialog(self, screen: Screen[Answer], then: Callable[[Answer | None], None]) -> None:
        """Show *screen* without what was told before, which would lie over it."""
        self.app.clear_notifications()
        self.app.push_screen(screen, then)

    def _act_on(self, question: OpenQuestion | None) -> None:
        if question is None:
            return
        match question.actions[0]:
            case PersonAction.ANSWER:
                self._answer(question)
            case PersonAction.ACCEPT if question.kind is QuestionKind.PROPOSAL:
                self._confirm_plan(question)
            case PersonAction.ACCEPT:
                self._open_diff(question.subject)
            case PersonAction.READY:
                self._confirm(
                    f"Release {question.subject} to the coders?", actions.ready, task=question.subject
                )
            case PersonAction.RESOLVE:
                self._resolve(question)
            case PersonAction.RESUME:
                self.action_resume()
            case _:
                self.tell(f"{'; '.join(question.asks)}. Next: {question.command}")

    def action_answer(self) -> None:
        question = self.chosen_question()
        if question is None:
            self.tell("Nobody asks anything.")
        else:
            self._act_on(question)

    def _answer(self, question: OpenQuestion) -> None:
        lines = [
            *question.asks,
            *([f"because {question.because}"] if question.because else []),
            *question.said,
        ]

        def send(text: str) -> None:
            self.perform_now(actions.answer, task=question.subject, text=text)

        self.ask(f"{question.subject} asks", "\n".join(lines), send)

    def _confirm_plan(self, question: OpenQuestion) -> None:
        def send(text: str) -> None:
            if text.strip():
                self.perform_now(actions.reject, task=question.subject, reason=text)
            else:
                self.perform_now(actions.accept, task=question.subject, reason="accepted by hand")

        lines = (*question.asks, *question.said, "Leave it empty to say yes; else say what is wrong with it.")
        self.ask("The plan asks for your approval", "\n".join(lines), send)

    def _resolve(self, question: OpenQuestion) -> None:
        if question.command == "liza resume":
            self.action_resume()
            return

        def send(reason: str) -> None:
            self.perform_now(actions.resolve, trip=question.subject, reason=reason)

        lines = (*question.asks, *question.said, "What was done about it?")
        self.ask(f"{question.subject} stops everybody", "\n".join(lines), send)

    def _confirm(self, text: str, action: Callable[..., ActionResult], **fields: object) -> None:
        def decide(is_yes: bool | None) -> None:  # noqa: FBT001 - what the screen returns
            if is_yes:
                self.perform_now(action, **fields)

        self._open_dialog(ConfirmScreen(text), decide)

    def action_accept(self) -> None:
        self._decide_on_chosen()

    def action_reject(self) -> None:
        self._decide_on_chosen()

    def _decide_on_chosen(self) -> None:
        """Show the work before anybody says yes or no to it."""
        question = self.chosen_question()
        task = self.chosen_task()
        kinds = {QuestionKind.APPROVAL, QuestionKind.TAINT, QuestionKind.DRAFT}
        if question is None or question.kind not in kinds or (task and task.id != question.subject):
            name = task.id if task else "Nothing"
            self.tell(f"{name} asks for no consent; `e` explains it.")
        else:
            self._act_on(question)

    def action_diff(self) -> None:
        if task := self.chosen_task():
            self._open_diff(task.id)

    @work(thread=True)
    def _open_diff(self, name: str) -> None:
        try:
            diff = task_diff(self.board, name)
        except LizaError as error:
            self.app.call_from_thread(self.tell, str(error), is_error=True)
        else:
            self.app.call_from_thread(self._show_diff, diff)

    def _show_diff(self, diff: TaskDiff) -> None:
        asked = [
            one
            for one in (self.view.questions if self.view else ())
            if one.subject == diff.task and one.actions[0] is PersonAction.ACCEPT
        ]
        lines = [f"{diff.task}: {'; '.join(one.asks)}" for one in asked] or [diff.task]
        lines += [said for one in asked for said in one.said]

        def decide(verdict: PersonVerdict | None) -> None:
            if verdict is not None:
                self._decide(diff.task, verdict)

        self.app.push_screen(DiffScreen(diff, "\n".join(lines), can_decide=bool(asked)), decide)

    def _decide(self, name: str, verdict: PersonVerdict) -> None:
        if verdict.is_yes:
            self.perform_now(actions.accept, task=name, reason="accepted by hand")
            return
        count = len(verdict.comments)
        given = f"see the comments on {count} line{'s' if count > 1 else ''}" if count else ""

        def send(reason: str) -> None:
            self.perform_now(actions.reject, task=name, reason=reason, comments=verdict.comments)

        self.ask(f"What is wrong with {name}?", "It goes back to its coder with this.", send, given=given)

    def action_note(self) -> None:
        task = self.chosen_task()
        about = task.id if task else None

        def send(text: str) -> None:
            self.perform_now(actions.note, text=text, about=about)

        whom = f"the agents that work on {about}" if about else "the agents"
        self.ask(f"A note for {whom}", "They read it with their next step.", send)

    def action_retry(self) -> None:
        if task := self.chosen_task():

            def send(guidance: str) -> None:
                self.perform_now(actions.retry, task=task.id, guidance=guidance or None)

            self.ask(f"Try {task.id} again", "What should the next coder know? It may stay empty.", send)

    def action_pause(self) -> None:
        self.perform(actions.throw, switch=Switch.PAUSE)

    def action_checkpoint(self) -> None:
        self.perform(actions.throw, switch=Switch.CHECKPOINT)

    def action_resume(self) -> None:
        self.perform_now(actions.resume)

    def action_abort(self) -> None:
        def decide(is_yes: bool | None) -> None:  # noqa: FBT001 - what the screen returns
            if is_yes:
                self.perform(actions.abort)

        said = "End every agent now? Their work is saved, and `u` and `liza run` go on with it."
        self._open_dialog(ConfirmScreen(said), decide)

    def action_explain(self) -> None:
        worker = self.staff.current if self.staff.has_focus else None
        task = self.chosen_task()
        subject = worker.id if worker else task.id if task else "run"
        self.open_page(f"Why {subject} does not go on", lambda: explain_page(self.board, subject))

    def action_cost(self) -> None:
        self.open_page("What all runs cost", lambda: cost_page(self.board))

    def action_help(self) -> None:
        self.app.push_screen(PageScreen("Keys", [f"  {key:<14} {says}" for key, says in key_rows()]))

    @work(thread=True)
    def open_page(self, title: str, make: Callable[[], list[str]]) -> None:
        """Open a page that takes a moment to make."""
        try:
            lines = make()
        except LizaError as error:
            self.app.call_from_thread(self.tell, str(error), is_error=True)
        else:
            self.app.call_from_thread(self.app.push_screen, PageScreen(title, lines))

    def action_logs(self) -> None:
        worker = self.staff.current if self.staff.has_focus else None
        task = self.chosen_task()
        subject = (worker.run or worker.id) if worker else task.id if task else None
        if subject:
            self.app.push_screen(LogScreen(self.board, subject))

    def action_switch_view(self) -> None:
        switcher = self.query_one(ContentSwitcher)
        task = self.chosen_task()
        switcher.current = "columns" if switcher.current == "table" else "table"
        if self.view is not None:
            self._draw_tasks(self.view)
        if switcher.current == "columns":
            self.columns.show(self.table.rows, task.id if task else None)
            self.columns.focus()
        else:
            self.table.focus()

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.add_class("open")
        search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "search":
            self._query = event.value.casefold()
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "search":
            self.table.focus()

    def action_close_search(self) -> None:
        search = self.query_one("#search", Input)
        search.value = ""
        search.remove_class("open")
        self.table.focus()


def _matches(task: TaskView, query: str) -> bool:
    if not query:
        return True
    texts = (task.id, task.status, task.holder or "", task.phase or "", task.description, task.why)
    return any(query in text.casefold() for text in texts)


class BoardApp(App[None]):
    """The screen of `liza watch`."""

    TITLE = "liza"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [Binding("ctrl+c", "quit", "quit", show=False, priority=True)]

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board_screen = BoardScreen(board)

    def on_mount(self) -> None:
        # Whoever ends us gets the terminal back as it was.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.push_screen(self.board_screen)


def watch_terminal(board: Board) -> None:
    """Show *board* on this terminal until the person leaves."""
    # Started where hang-ups are ignored, it would read from a terminal that went away as fast as it can.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    BoardApp(board).run()
