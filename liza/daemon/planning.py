"""A planner's turn: look whether there is anything to think about, and ask its agent only then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from liza.daemon import prompt_values
from liza.daemon.policy import plan_checks, planner
from liza.daemon.reviewing import AGAIN, GIVEN_BACK
from liza.daemon.turn import Next, begun
from liza.domain.anomalies import RetryLoop, SpecAmbiguity
from liza.domain.answers import Plan, Replan, Step
from liza.domain.changes import Change, with_anomaly
from liza.domain.record import printable
from liza.errors import AlreadyRunning, GitFailed, UnfitRepository
from liza.repo.scratch import scratch
from liza.system import locks
from liza.system.run_control import Ending
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from pathlib import Path

    from liza.daemon.policy.planner import Wake
    from liza.daemon.turn import Asked, Place, Turn
    from liza.domain.answers import Value
    from liza.domain.model import State

LOCK: Final = "planning.lock"
LONGEST_PATTERN: Final = 300  # characters of why a planner's answer was of no use

log = logging.getLogger(__name__)


def turn(place: Place) -> Next:
    """Think about one thing, if the board has something new to think about."""
    if _tidied(place):
        return Next.WORK
    state = place.board.read()
    wake = planner.wake(state)
    if wake is None or not place.may_begin(state, place.wanted(state, wake.step, None)):
        return Next.WAIT
    try:
        # Two planners would plan the same twice: a plan has no task to hold a lease on.
        with locks.held(place.home / LOCK, at=place.clock()):
            return _thought(place)
    except AlreadyRunning:
        return Next.WAIT


def _tidied(place: Place) -> bool:
    """Do what takes no thought: block stuck tasks, see that all is done."""

    def make(state: State) -> State:
        at, by = place.clock(), place.actor()
        for task, block in planner.stuck(state):
            state = apply(block, to=task.id, by=by, at=at)(state)
        return planner.completed(state, at)

    before = place.board.read()
    if make(before) is before:
        return False
    place.board.update(Change(place.name, "tidy", make))
    return True


def _thought(place: Place) -> Next:
    state = place.board.read()
    wake = planner.wake(state)
    if wake is None:
        return Next.WORK
    log.info("planning, because %s", wake.why)
    head = place.repository.commit_at(place.integration(state)) or place.repository.head()
    try:
        with begun(place, state, about=wake.task) as turn, scratch(place.worktrees, str(head)) as path:
            asked = turn.ask(wake.step, _known(state, wake), path, check=_Check(place, path), again=AGAIN)
            return _recorded(turn, wake, asked)
    except (GitFailed, UnfitRepository) as error:
        place.orders.pause(printable(str(error)))
        return Next.WAIT


def _known(state: State, wake: Wake) -> dict[str, str]:
    return (
        prompt_values.for_plan(state, wake)
        if wake.step is Step.PLAN
        else prompt_values.for_replan(state, wake)
    )


class _Check:
    """Says why a plan that reads well is not taken; what is only doubtful goes back once."""

    def __init__(self, place: Place, checkout: Path) -> None:
        self._place = place
        self._checkout = checkout
        self._doubted = False

    def __call__(self, value: Value) -> str | None:
        if not isinstance(value, Plan | Replan):
            return None
        found = plan_checks.problems(
            ground(self._place.board.read(), self._place, self._checkout), value.tasks
        )
        if not self._doubted:
            found += plan_checks.doubts(value.tasks)
            self._doubted = True
        return "; ".join(found) or None


def ground(state: State, place: Place, checkout: Path | None = None) -> plan_checks.Ground:
    """Return what plans are held against: a spec may be on the branch, or not committed yet."""
    roots = [root.resolve() for root in (checkout, place.repository.root) if root is not None]

    def has_file(path: str) -> bool:
        found = ((root / path).resolve() for root in roots)
        return any(one.is_file() and one.is_relative_to(root) for one, root in zip(found, roots, strict=True))

    return plan_checks.Ground(state, has_file)


def _recorded(turn: Turn, wake: Wake, asked: Asked) -> Next:
    if asked.moved:
        turn.drifted(asked.moved)
        return Next.WORK
    if asked.value is None and asked.reply.ending in GIVEN_BACK:
        return Next.RESTART if asked.reply.ending is Ending.CONTEXT_FULL else Next.WORK

    def make(state: State) -> State:
        return _after(turn, state, wake, asked)

    turn.update(f"{wake.step} {wake.task or ''}".strip(), make)
    log.info("%s: %s", wake.step, asked.why or "recorded")
    return Next.WORK


def _after(turn: Turn, state: State, wake: Wake, asked: Asked) -> State:
    place, value = turn.place, asked.value
    at, by = place.clock(), place.actor().but(run=asked.run)
    if isinstance(value, Plan | Replan) and plan_checks.problems(ground(state, place), value.tasks):
        return state  # somebody took one of its ids meanwhile: it is asked again
    if isinstance(value, Plan | Replan):
        state = turn.with_anomalies(state, value.anomalies, about=wake.task)
    if isinstance(value, Plan):
        state = planner.planned(state, wake, value, by=by, at=at)
        for question in value.questions:
            details = SpecAmbiguity(spec_ref=state.goal.spec_ref or "the goal", question=question)
            state = with_anomaly(state, details, about=None, by=place.name, at=at)
        return state
    if isinstance(value, Replan):
        return planner.replanned(state, wake, value, by=by, at=at)
    state = planner.without_answer(state, wake, asked.why, by=by, at=at)
    loop = RetryLoop(error_pattern=asked.why[:LONGEST_PATTERN], count=2)
    return with_anomaly(state, loop, about=wake.task, by=place.name, at=at)
