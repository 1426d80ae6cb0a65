"""What is wrong with a plan before anything of it is on the board: the gates of the planner.

What a plan shows by itself (circles, ids used twice, tasks that only add tests) is refused when it is read.
Here is what takes the board, the settings and the repository to see. Each fault is a sentence that goes back
to the planner's agent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy.planner import is_unplanned
from liza.domain.lifecycle import SUCCEEDED, TERMINAL
from liza.domain.model import Status
from liza.domain.proposals import is_plan_returned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from liza.domain.answers import Plan, PlannedTask
    from liza.domain.model import State

MOST_CRITERIA: Final = 15  # lines of done_when that one review can hold in its head
LONGEST_TASK: Final = 4000  # characters of a description; what is longer is a spec, and belongs into one

# A line that is made of these alone cannot turn out to be false. What names a thing can.
_VAGUE: Final = (
    "a all also an and any are as at be been better clean code complete completed correct correctly "
    "criteria do does done enough etc everything expected fine fully good great high implemented improved "
    "in is it its looks made meets more new nice nicely of ok okay perfect perfectly possible properly "
    "quality ready requirements robust satisfied should so specified task tests that the there they thing "
    "things this to user users very was well were will with work worked working works "
)
_VAGUE_WORDS: Final = frozenset(_VAGUE.split())
_NAMES_SOMETHING: Final = re.compile(r"[`'\"\d/_]|\w\.\w")


class PlanContext(NamedTuple):
    """What a plan is held against."""

    state: State
    has_file: Callable[[str], bool]  # whether the repository has a path


def problems(ground: PlanContext, tasks: tuple[PlannedTask, ...]) -> list[str]:
    """Return why *tasks* cannot be put on the board; all faults at once, so that one answer can mend them."""
    if crowd := _too_many(ground, tasks):
        return [crowd]
    return [fault for task in tasks for check in _CHECKS for fault in check(ground, task, tasks)]


def why_nothing(ground: PlanContext, plan: Plan) -> list[str]:
    """Return why *plan* may not add nothing: there has to be one before."""
    if plan.nothing_to_add is None:
        return []
    if is_plan_returned(ground.state):
        return ["the plan was sent back; give all of its tasks anew, or questions"]
    if not is_unplanned(ground.state):
        return []
    return ["there is no plan yet to which nothing had to be added; give tasks or questions"]


def concerns(tasks: tuple[PlannedTask, ...]) -> list[str]:
    """Return what a planner is asked to reconsider once; a plan that stays so is taken all the same."""
    unbounded = [task.id for task in tasks if not task.scope.include]
    if not unbounded:
        return []
    return [
        f"{', '.join(unbounded)}: scope says no path that may be touched (`in`); name files or directories"
    ]


def _too_many(ground: PlanContext, tasks: tuple[PlannedTask, ...]) -> str | None:
    most = ground.state.config.limits.max_plan_tasks
    if len(tasks) <= most:
        return None
    return f"a plan of {len(tasks)} tasks is more than {most}; plan the first steps, each worth one review"


def _ids(ground: PlanContext, task: PlannedTask, _: tuple[PlannedTask, ...]) -> Iterator[str]:
    known = {name.casefold() for section in (ground.state.tasks, ground.state.archived) for name in section}
    if task.id.casefold() in known:
        yield f"the id {task.id} is taken; choose another"


def _dependencies(ground: PlanContext, task: PlannedTask, tasks: tuple[PlannedTask, ...]) -> Iterator[str]:
    mine = {other.id for other in tasks}
    for name in task.depends_on:
        status = ground.state.status_of(name)
        if name not in mine and status is None:
            yield f"{task.id} depends on {name}, which is neither in the plan nor on the board"
        elif name not in mine and is_plan_returned(ground.state) and status is Status.DRAFT:
            yield f"{task.id} depends on {name}, which was sent back and is replaced; name a task of the plan"
        elif name not in mine and status in TERMINAL - SUCCEEDED:
            yield f"{task.id} depends on {name}, which is {status} and will never be done"


def _criteria(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    for line in task.done_when:
        if not is_falsifiable(line):
            yield f"{task.id}: no test can show that {line!r} is false; say what is there, or printed"
    if len(task.done_when) > MOST_CRITERIA:
        yield f"{task.id} has {len(task.done_when)} lines of done_when; split it, {MOST_CRITERIA} are enough"


def is_falsifiable(line: str) -> bool:
    """Tell whether a line of done_when says something that could turn out to be false."""
    if _NAMES_SOMETHING.search(line):
        return True
    words = re.findall(r"\w+", line.casefold())
    return any(word not in _VAGUE_WORDS for word in words)


def _size(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    if len(task.description) > LONGEST_TASK:
        yield f"the description of {task.id} has {len(task.description)} characters; move them to a spec file"


def _paths(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    for path in (*task.scope.include, *task.scope.exclude):
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            yield f"{task.id}: the path {path!r} of its scope leads out of the repository; give one inside"
    both = sorted(set(task.scope.include) & set(task.scope.exclude))
    if both:
        yield f"{task.id}: {both[0]!r} is both in and out of its scope; decide"


def _spec(ground: PlanContext, task: PlannedTask, _: tuple[PlannedTask, ...]) -> Iterator[str]:
    if task.spec_ref is not None and not ground.has_file(spec_file(task.spec_ref)):
        yield (
            f"{task.id}: its spec_ref {task.spec_ref!r} names no file of the repository; name one "
            "(`docs/x.md#part`), or leave it out"
        )


def spec_file(reference: str) -> str:
    """Return the file that a reference such as `docs/x.md#part` or `docs/x.md:12` is about."""
    return re.split(r"#|:\d|\s", reference.strip(), maxsplit=1)[0]


_CHECKS: Final = (_ids, _dependencies, _criteria, _size, _paths, _spec)
