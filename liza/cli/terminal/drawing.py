"""How rows of the view model look: pure functions from a value and a width to pieces of text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.cli.terminal.line_list import fit, safe
from liza.cli.views.forecast import forecast_text, forecast_words
from liza.cli.views.headline import RunStanding
from liza.daemon.reports.words import duration_text
from liza.domain.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    rounds = f"{task.iteration}/{task.max_iterations}" if task.iteration else ""
    told = (
        task.why
        if task.needs_person or task.status is Status.REJECTED or task.waits_for
        else task.description
    )
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
