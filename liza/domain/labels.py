"""The status that people see: what a position and its lease are called, in every workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.model import Status
from liza.domain.position import RELEASE, WORK, End, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.model import Lease
    from liza.domain.position import Position

ENDED: Final[Mapping[End, Status]] = {
    End.DONE: Status.COMPLETE,  # or MERGED, where the phase that it ended in merges
    End.NOTHING_TO_DO: Status.NOTHING_TO_DO,
    End.STOPPED: Status.ABANDONED,
    End.SUPERSEDED: Status.SUPERSEDED,
    End.BLOCKED: Status.BLOCKED,
    End.PAUSED: Status.BLOCKED,
}
SENT_BACK: Final[Mapping[Stage | None, Status]] = {
    None: Status.IDLE,
    Stage.WORK: Status.REJECTED,
    Stage.JUDGE: Status.REJECTED,
    Stage.EFFECT: Status.INTEGRATION_FAILED,
}


def label_of(position: Position, lease: Lease | None) -> Status:
    """Return what a task at *position* is called while *lease* holds it."""
    if position.end is not None:
        is_merged = position.end is End.DONE and position.stage is Stage.EFFECT
        return Status.MERGED if is_merged else ENDED[position.end]
    if position.waiting is not None:
        return _waiting(position)
    if position.stage is Stage.EFFECT:
        return Status.APPROVED
    if position.stage is Stage.JUDGE or position.worked:
        return Status.READY_FOR_REVIEW
    return Status.WORKING if lease else SENT_BACK[position.back_from]


def _waiting(position: Position) -> Status:
    if position.waiting == RELEASE:
        return Status.DRAFT
    # Somebody who is about to work, or has asked, needs an answer; what was made needs a yes.
    needs_answer = position.waiting == WORK or (position.stage is Stage.WORK and not position.worked)
    return Status.BLOCKED if needs_answer else Status.AWAITING_APPROVAL
