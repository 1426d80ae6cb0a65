"""One commit instead of many, with the same tree: what only commits on the way had is not merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from liza.errors import LizaError
from liza.repo.repository import branch_of
from liza.repo.trailers import Trailer, message_with_trailers

if TYPE_CHECKING:
    from datetime import datetime

    from liza.repo.repository import Repository


class Squashing(NamedTuple):
    """What becomes one commit: all from *base* to *head*, with a message."""

    base: str
    head: str
    message: str


def squash(repository: Repository, what: Squashing, *, at: datetime) -> str:
    """Make the commit, which nothing refers to yet, and return its hash."""
    subject, _, body = what.message.strip().partition("\n")
    message = message_with_trailers(subject, body, {Trailer.SQUASHED: what.head})
    return repository.commit_tree(repository.tree_of(what.head), parents=(what.base,), message=message, at=at)


def move_squashed(repository: Repository, task: str, commit: str, *, instead_of: str) -> None:
    """Let the branch of *task* be *commit*; what was there stays in the branch's own log."""
    if not repository.move_ref(branch_of(task), to=commit, expected=instead_of, why=f"squash {task}"):
        raise LizaError(f"{task}: its branch moved while its gates looked at it; nothing was changed")
