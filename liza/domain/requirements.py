"""What each status requires of its task: the second table of the lifecycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.model import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from liza.domain.model import Task


class Requirement(NamedTuple):
    says: str  # completes "a task that is WORKING …"
    field: str
    holds: Callable[[Task], bool]


_HELD_BY_ITS_CODER: Final = Requirement(
    "is leased to the coder it is assigned to",
    "lease",
    lambda task: task.lease is not None and task.lease.holder == task.assigned_to,
)
_NOT_HELD: Final = Requirement("is held by nobody", "lease", lambda task: task.lease is None)
_HELD_BY_NO_AUTHOR: Final = Requirement(
    "is held by nobody but a reviewer who did not write it",
    "lease",
    lambda task: task.lease is None or task.lease.holder not in task.authors,
)
_HAS_BASE: Final = Requirement("has a base_commit", "base_commit", lambda task: task.base_commit is not None)
_IS_COUNTED: Final = Requirement(
    "counts its iteration and attempt from 1",
    "iteration",
    lambda task: task.iteration >= 1 and task.attempt >= 1,
)
_HAS_AUTHOR: Final = Requirement("names its author", "authors", lambda task: bool(task.authors))
_HAS_WORK: Final = Requirement(
    "has a review_commit that is not its base, unless it says there is nothing to do",
    "review_commit",
    lambda task: (
        task.review_commit is not None
        and (task.review_commit == task.base_commit) == (task.nothing_to_do is not None)
    ),
)
_ANY_WORK_IS_MORE: Final = Requirement(
    "has no review_commit that is its base, unless it says there is nothing to do",
    "review_commit",
    lambda task: task.review_commit is None or _HAS_WORK.holds(task),
)
_HAS_APPROVER: Final = Requirement(
    "has an approved_by who is none of its authors",
    "approved_by",
    lambda task: task.approved_by is not None and task.approved_by not in task.authors,
)
_SAYS_WHY_REJECTED: Final = Requirement(
    "has a rejection_reason and rejection_feedback",
    "rejection_reason",
    lambda task: task.rejection_reason is not None and bool(task.rejection_feedback),
)
_MOST_QUESTIONS: Final = 3
_SAYS_WHY_BLOCKED: Final = Requirement(
    "has a blocked_reason and one to three blocked_questions",
    "blocked_reason",
    lambda task: task.blocked_reason is not None and 1 <= len(task.blocked_questions) <= _MOST_QUESTIONS,
)
_SAYS_WHAT_FAILED: Final = Requirement(
    "has an integration_failure with its reason",
    "integration_failure",
    lambda task: task.integration_failure is not None,
)
_IS_MERGED: Final = Requirement(
    "has the merge_commit that was started",
    "merge_commit",
    lambda task: (
        task.merge_commit is not None
        and task.merging is not None
        and task.merging.commit == task.merge_commit
    ),
)
_NOT_MERGED: Final = Requirement(
    "has no merge_commit", "merge_commit", lambda task: task.merge_commit is None
)
_IS_CLEAN: Final = Requirement(
    "has no taint that nobody accepted", "taints", lambda task: not task.is_tainted
)
_NAMES_SUCCESSORS: Final = Requirement(
    "has superseded_by and a rescope_reason",
    "superseded_by",
    lambda task: bool(task.superseded_by) and task.rescope_reason is not None,
)
_SAYS_WHY_CLOSED: Final = Requirement(
    "has a closing_reason", "closing_reason", lambda task: task.closing_reason is not None
)
_ASKS: Final = Requirement(
    "has an approval_question", "approval_question", lambda task: task.approval_question is not None
)
_SAYS_NOTHING_NEEDED: Final = Requirement(
    "says why there is nothing to do", "nothing_to_do", lambda task: task.nothing_to_do is not None
)

_SUBMITTED: Final = (_HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _NOT_MERGED)

REQUIRES: Final[dict[Status, tuple[Requirement, ...]]] = {
    Status.DRAFT: (_NOT_HELD, _NOT_MERGED),
    Status.IDLE: (_NOT_HELD, _NOT_MERGED),
    Status.WORKING: (_HELD_BY_ITS_CODER, _HAS_AUTHOR, _HAS_BASE, _IS_COUNTED, _NOT_MERGED),
    Status.READY_FOR_REVIEW: (*_SUBMITTED, _HELD_BY_NO_AUTHOR),
    Status.REJECTED: (
        _HAS_AUTHOR,
        _HAS_BASE,
        _ANY_WORK_IS_MORE,
        _NOT_MERGED,
        _NOT_HELD,
        _SAYS_WHY_REJECTED,
    ),
    Status.APPROVED: (*_SUBMITTED, _HELD_BY_NO_AUTHOR, _HAS_APPROVER),
    Status.AWAITING_APPROVAL: (*_SUBMITTED, _NOT_HELD, _ASKS),
    Status.BLOCKED: (_NOT_HELD, _SAYS_WHY_BLOCKED, _NOT_MERGED),
    Status.INTEGRATION_FAILED: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _SAYS_WHAT_FAILED),
    Status.MERGED: (_NOT_HELD, _HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _HAS_APPROVER, _IS_CLEAN, _IS_MERGED),
    Status.COMPLETE: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN),
    Status.NOTHING_TO_DO: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN, _SAYS_NOTHING_NEEDED),
    Status.SUPERSEDED: (_NOT_HELD, _NAMES_SUCCESSORS, _NOT_MERGED),
    Status.ABANDONED: (_NOT_HELD, _SAYS_WHY_CLOSED, _NOT_MERGED),
}


def unmet_requirements(task: Task) -> list[Requirement]:
    """Return the requirements of its status that *task* does not meet."""
    return [promise for promise in REQUIRES[task.status] if not promise.holds(task)]
