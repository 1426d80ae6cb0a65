"""Pages of text that open over the board; each is made of what the command of the same name prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.cli.views import costs
from liza.cli.views.explain import explanation_of, observed_run_context
from liza.cli.views.past import BoardPast
from liza.cli.views.runs import RunFolder
from liza.cli.views.tasks import task_lines
from liza.domain.record import utc_now

if TYPE_CHECKING:
    from liza.board.protocol import Board


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
