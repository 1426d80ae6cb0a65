"""A planner's turn: look whether there is anything to think about, and ask its agent only then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from liza.board.protocol import PLANNING_NAME
from liza.daemon import coding, prompt_values
from liza.daemon.policy import plan_checks, planner
from liza.daemon.policy.coder import is_unfetched
from liza.daemon.policy.retries import RELEASE_ENDINGS, RETRY_ENDINGS
from liza.daemon.sources import find_tasks, with_refetched_tasks, with_source_tasks
from liza.daemon.turn import AfterTurn, open_turn
from liza.domain.anomalies import RetryLoop, SpecAmbiguity
from liza.domain.answers import Plan, Replan, Step
from liza.domain.changes import Change, with_anomaly
from liza.domain.providers import RESUME
from liza.domain.record import printable
from liza.errors import AlreadyRunning, ForgeFailed, GitFailed, UnfitRepository, UsageError
from liza.repo.scratch import scratch_tree
from liza.system.run_control import RunEnding
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from pathlib import Path

    from liza.daemon.policy.planner import PlanRequest
    from liza.daemon.sources import NewTask
    from liza.daemon.turn import AgentAnswer, Turn, Worker
    from liza.domain.answers import AnswerValue
    from liza.domain.model import State

LONGEST_PATTERN: Final = 300  # characters of why a planner's answer was of no use

log = logging.getLogger(__name__)


def take_turn(place: Worker) -> AfterTurn:
    """Plan or replan, if something on the board is new."""
    if _tidy(place):
        return AfterTurn.WORK
    if coding.take_turn(place) is not AfterTurn.WAIT:
        return AfterTurn.WORK
    state = place.board.read()
    wake = planner.plan_request(state)
    if wake is None or not place.check_admission(state, place.planned_run(state, wake.step, None)):
        return AfterTurn.WAIT
    try:
        # Two planners would plan the same twice: a plan has no task to hold a lease on.
        with place.board.presence.hold(PLANNING_NAME, at=place.clock()):
            return _ask_planner(place)
    except AlreadyRunning:
        return AfterTurn.WAIT


def _tidy(place: Worker) -> bool:
    """Block stuck tasks and complete the goal; return whether the board changed."""

    def make(state: State) -> State:
        at, by = place.clock(), place.actor()
        for task, block in planner.stuck_tasks(state):
            state = apply(block, to=task.id, by=by, at=at)(state)
        state = with_refetched_tasks(with_source_tasks(state, found, at), again, at)
        return planner.with_goal_completed(state, at)

    before = place.board.read()
    try:
        found, again = find_tasks(before, place.repository.root), _refetch(place, before)
    except (ForgeFailed, UsageError) as error:
        place.stop_requests.pause(f"{printable(str(error))}; mend it, then `{RESUME}`")
        return True
    if make(before) is before:
        return False
    place.board.update(Change(place.name, "tidy", make))
    return True


def _refetch(place: Worker, state: State) -> list[NewTask]:
    if not any(map(is_unfetched, state.tasks.values())):
        return []
    from liza.daemon.issue_tasks import refetch_tasks  # noqa: PLC0415 - few boards have issues

    return refetch_tasks(state, place.repository.root)


def _ask_planner(place: Worker) -> AfterTurn:
    state = place.board.read()
    wake = planner.plan_request(state)
    if wake is None:
        return AfterTurn.WORK
    log.info("planning, because %s", wake.why)
    place.fetch(state)
    head = place.repository.commit_at(place.integration(state)) or place.repository.head()
    try:
        with (
            open_turn(place, state, about=wake.task) as turn,
            scratch_tree(place.worktrees, str(head)) as path,
        ):
            asked = turn.ask(
                wake.step, _values_for(state, wake), path, check=_PlanCheck(place, path), again=RETRY_ENDINGS
            )
            return _record(turn, wake, asked)
    except (GitFailed, UnfitRepository) as error:
        place.stop_requests.pause(printable(str(error)))
        return AfterTurn.WAIT


def _values_for(state: State, wake: PlanRequest) -> dict[str, str]:
    return (
        prompt_values.for_plan(state, wake)
        if wake.step is Step.PLAN
        else prompt_values.for_replan(state, wake)
    )


class _PlanCheck:
    """Returns why a plan is refused; a plan that is only doubtful is refused once."""

    def __init__(self, place: Worker, checkout: Path) -> None:
        self._place = place
        self._checkout = checkout
        self._doubted = False

    def __call__(self, value: AnswerValue) -> str | None:
        if not isinstance(value, Plan | Replan):
            return None
        context = plan_context(self._place.board.read(), self._place, self._checkout)
        found = plan_checks.problems(context, value.tasks)
        found += plan_checks.why_nothing(context, value) if isinstance(value, Plan) else []
        if not self._doubted:
            found += plan_checks.concerns(value.tasks)
            self._doubted = True
        return "; ".join(found) or None


def plan_context(state: State, place: Worker, checkout: Path | None = None) -> plan_checks.PlanContext:
    """Return what plans are held against: a spec may be on the branch, or not committed yet."""
    roots = [root.resolve() for root in (checkout, place.repository.root) if root is not None]

    def has_file(path: str) -> bool:
        found = ((root / path).resolve() for root in roots)
        return any(one.is_file() and one.is_relative_to(root) for one, root in zip(found, roots, strict=True))

    return plan_checks.PlanContext(state, has_file)


def _record(turn: Turn, wake: PlanRequest, asked: AgentAnswer) -> AfterTurn:
    if asked.moved:
        turn.block_for_drift(asked.moved)
        return AfterTurn.WORK
    if asked.value is None and asked.reply.ending in RELEASE_ENDINGS:
        return AfterTurn.RESTART if asked.reply.ending is RunEnding.CONTEXT_FULL else AfterTurn.WORK

    def make(state: State) -> State:
        return _with_answer(turn, state, wake, asked)

    turn.update(f"{wake.step} {wake.task or ''}".strip(), make)
    log.info("%s: %s", wake.step, asked.why or "recorded")
    return AfterTurn.WORK


def _with_answer(turn: Turn, state: State, wake: PlanRequest, asked: AgentAnswer) -> State:
    place, value = turn.place, asked.value
    at, by = place.clock(), place.actor().replace(run=asked.run)
    if isinstance(value, Plan | Replan) and plan_checks.problems(plan_context(state, place), value.tasks):
        return state  # somebody took one of its ids meanwhile: it is asked again
    if isinstance(value, Plan | Replan):
        state = turn.with_anomalies(state, value.anomalies, about=wake.task)
    if isinstance(value, Plan):
        state = planner.with_plan(state, wake, value, by=by, at=at)
        for question in value.questions:
            details = SpecAmbiguity(spec_ref=state.goal.spec_ref or "the goal", question=question)
            state = with_anomaly(state, details, about=None, by=place.name, at=at)
        return state
    if isinstance(value, Replan):
        return planner.with_replan(state, wake, value, by=by, at=at)
    state = planner.with_people_asked(state, wake, asked.why, by=by, at=at)
    loop = RetryLoop(error_pattern=asked.why[:LONGEST_PATTERN], count=2)
    return with_anomaly(state, loop, about=wake.task, by=place.name, at=at)
