"""What can be done from the page: each form is a row, and does what the command of that name does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.cli import actions
from liza.domain.changes import HUMAN
from liza.domain.config import Switch
from liza.domain.record import utc_now
from liza.errors import NotThere

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.cli.actions import ActionResult
    from liza.domain.model import Actor


class FormAction(NamedTuple):
    """One form: what it does, and the fields that it sends."""

    run: Callable[..., ActionResult]
    fields: tuple[str, ...] = ()


def _add(board: Board, *, by: Actor, at: datetime, **typed: str) -> ActionResult:
    words: dict[str, Any] = {
        "id": typed["id"],
        "description": typed["description"],
        "done_when": _lines(typed["done_when"]),
        "include": _lines(typed["include"]),
        "exclude": [],
        "depends_on": typed["depends_on"].replace(",", " ").split(),
        "kind": "code",
        "priority": 0,
        "spec": None,
    }
    return actions.add(board, by=by, at=at, typed=words)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _note(board: Board, *, by: Actor, at: datetime, text: str, about: str) -> ActionResult:
    return actions.note(board, by=by, at=at, text=text, about=about or None)


def _reject(board: Board, *, by: Actor, at: datetime, task: str, reason: str, comments: str) -> ActionResult:
    said = tuple(map(actions.parse_comment, _lines(comments)))
    return actions.reject(board, by=by, at=at, task=task, reason=reason, comments=said)


def _retry(board: Board, *, by: Actor, at: datetime, task: str, guidance: str) -> ActionResult:
    return actions.retry(board, by=by, at=at, task=task, guidance=guidance or None)


def _thrower(switch: Switch) -> Callable[..., ActionResult]:
    def throw(board: Board, *, by: Actor, at: datetime, reason: str) -> ActionResult:  # noqa: ARG001 - as all
        return actions.throw(board, switch, by=by, reason=reason)

    return throw


FORMS: Final[dict[str, FormAction]] = {
    "answer": FormAction(actions.answer, ("task", "text")),
    "accept": FormAction(actions.accept, ("task", "reason")),
    "reject": FormAction(_reject, ("task", "reason", "comments")),
    "ready": FormAction(actions.ready, ("task",)),
    "retry": FormAction(_retry, ("task", "guidance")),
    "release": FormAction(actions.release, ("task", "reason")),
    "abandon": FormAction(actions.abandon, ("task", "reason")),
    "note": FormAction(_note, ("text", "about")),
    "add": FormAction(_add, ("id", "description", "done_when", "include", "depends_on")),
    "resolve": FormAction(actions.resolve, ("trip", "reason")),
    "pause": FormAction(_thrower(Switch.PAUSE), ("reason",)),
    "checkpoint": FormAction(_thrower(Switch.CHECKPOINT), ("reason",)),
    "abort": FormAction(_thrower(Switch.ABORT), ("reason",)),
    "resume": FormAction(actions.resume),
}


def perform_form(board: Board, name: str, form: Mapping[str, str]) -> str:
    """Do what the form *name* says, and return the sentence about it."""
    row = FORMS.get(name)
    if row is None:
        raise NotThere("action", name, f"there are {', '.join(FORMS)}")
    fields = {field: form.get(field, "") for field in row.fields}
    return str(row.run(board, by=HUMAN, at=utc_now(), **fields))
