"""What differs by who takes a job of a task: which one, what an agent is asked for, what follows errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy.pick import (
    after_review_error,
    after_work_error,
    next_work,
    pick_review,
    steps_of_review,
    steps_of_work,
)
from liza.domain.model import Role, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.daemon.policy.pick import AfterError
    from liza.domain.answers import Step
    from liza.domain.model import State, Task
    from liza.errors import LizaError


class JobPolicy(NamedTuple):
    """How a kind of worker takes jobs of tasks."""

    taken: str  # what the board calls that one is taken
    stages: frozenset[Stage]  # what it does of a task, one after the other while it holds it
    pick: Callable[[State, str, datetime], Task | None]
    steps: Callable[[State, Task], tuple[Step, ...]]  # what an agent is asked for; nothing where none is
    begins_round: bool  # a round of the work begins, which is counted, has a base and is seen by the rules
    after_error: Callable[[LizaError], AfterError | None]  # None where it is for who started the worker


_WORK: Final = JobPolicy(
    taken="claim",
    stages=frozenset({Stage.WORK}),
    pick=next_work,
    steps=steps_of_work,
    begins_round=True,
    after_error=after_work_error,
)
JOB_POLICIES: Final[Mapping[Role, JobPolicy]] = {
    Role.PLANNER: _WORK,
    Role.CODER: _WORK,
    Role.REVIEWER: JobPolicy(
        taken="take_review",
        stages=frozenset({Stage.JUDGE, Stage.EFFECT}),
        pick=pick_review,
        steps=steps_of_review,
        begins_round=False,
        after_error=after_review_error,
    ),
}
