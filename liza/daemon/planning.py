"""Turns that hold no task: the board is tidied, and a plan is made or judged where there is need for it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from liza.board.protocol import PLANNING_NAME
from liza.daemon import prompting
from liza.daemon.ask_agent import ask
from liza.daemon.policy import planner
from liza.daemon.policy.pick import is_unfetched
from liza.daemon.policy.retries import RELEASE_ENDINGS, RETRY_ENDINGS
from liza.daemon.sources import find_tasks, with_refetched_tasks, with_source_tasks
from liza.daemon.turn import AfterTurn, open_turn
from liza.domain.anomalies import RetryLoop, SpecAmbiguity
from liza.domain.answers import Plan, Replan, Review, Ruling, Step
from liza.domain.budget import RESUME
from liza.domain.changes import Change, with_anomaly
from liza.domain.record import printable
from liza.domain.waits import awaits_plan_reviewer, proposed_tasks
from liza.errors import AlreadyRunning, ForgeFailed, GitFailed, UnfitRepository, UsageError
from liza.repo.pool import scratch_tree
from liza.workflow.plan_approval import accept_plan, return_plan
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.daemon.ask_agent import AgentAnswer
    from liza.daemon.policy.planner import PlanRequest
    from liza.daemon.sources import NewTask
    from liza.daemon.turn import Turn, Worker
    from liza.domain.answers import AnswerValue
    from liza.domain.model import State

LONGEST_PATTERN: Final = 300  # characters of why a planner's answer was of no use

log = logging.getLogger(__name__)


def tidy_board(worker: Worker) -> AfterTurn:
    """Block stuck tasks, take in new ones and complete the goal."""

    def make(state: State) -> State:
        at, by = worker.clock(), worker.actor()
        for task, block in planner.stuck_tasks(state):
            state = apply(block, to=task.id, by=by, at=at)(state)
        state = with_refetched_tasks(with_source_tasks(state, found, at), again, at)
        return planner.with_goal_completed(state, at)

    before = worker.board.read()
    try:
        found, again = find_tasks(before, worker.repository.root), _refetch(worker, before)
    except (ForgeFailed, UsageError) as error:
        worker.stop_requests.pause(f"{printable(str(error))}; mend it, then `{RESUME}`")
        return AfterTurn.WORK
    if make(before) is before:
        return AfterTurn.WAIT
    worker.board.update(Change(worker.name, "tidy", make))
    return AfterTurn.WORK


def _refetch(worker: Worker, state: State) -> list[NewTask]:
    if not any(map(is_unfetched, state.tasks.values())):
        return []
    from liza.daemon.issue_tasks import refetch_tasks  # noqa: PLC0415 - few boards have issues

    return refetch_tasks(state, worker.repository.root)


def make_plan(worker: Worker) -> AfterTurn:
    """Plan or replan, if something on the board is new."""
    state = worker.board.read()
    wake = planner.plan_request(state)
    return _hold_plan(worker, state, wake.step, _ask_planner) if wake else AfterTurn.WAIT


def judge_plan(worker: Worker, state: State) -> AfterTurn:
    """Judge the plan that waits for a reviewer."""
    return _hold_plan(worker, state, Step.REVIEW, _ask_reviewer)


def _hold_plan(
    worker: Worker, state: State, step: Step, do: Callable[[Worker, State], AfterTurn]
) -> AfterTurn:
    """Let *do* make or judge the plan, if that may begin: a plan has no task to hold a lease on.

    Two planners would plan the same twice, and who judges the plan sees no half of what a planner does.
    """
    if not worker.check_admission(state, worker.planned_run(state, step, None)):
        return AfterTurn.WAIT
    try:
        with worker.board.presence.hold(PLANNING_NAME, at=worker.clock()):
            return do(worker, worker.board.read())
    except AlreadyRunning:
        return AfterTurn.WAIT
    except (GitFailed, UnfitRepository) as error:
        worker.stop_requests.pause(printable(str(error)))
        return AfterTurn.WAIT


@contextmanager
def _plan_turn(worker: Worker, state: State, about: str | None = None) -> Iterator[tuple[Turn, Path]]:
    """Open a turn about the plan, with a checkout of what is merged."""
    head = worker.repository.commit_at(worker.integration(state)) or worker.repository.head()
    with (
        open_turn(worker, state, about=about) as turn,
        scratch_tree(worker.worktrees, str(head)) as path,
    ):
        yield turn, path


def _record(turn: Turn, asked: AgentAnswer, what: str, make: Callable[[State], State]) -> AfterTurn:
    """Let *make* happen to the board, unless its agent reached too far or has to be asked another time."""
    if asked.moved:
        turn.block_for_drift(asked.moved)
    elif asked.value is None and asked.reply.ending in RELEASE_ENDINGS:
        return AfterTurn.RESTART if asked.is_context_full else AfterTurn.WORK
    else:
        turn.update(what, make)
        log.info("%s: %s", what, asked.why or "recorded")
    return AfterTurn.WORK


def _ask_planner(worker: Worker, state: State) -> AfterTurn:
    wake = planner.plan_request(state)
    if wake is None:
        return AfterTurn.WORK
    log.info("planning, because %s", wake.why)
    worker.fetch(state)
    with _plan_turn(worker, state, wake.task) as (turn, path):
        check = _PlanCheck(worker, path)
        asked = ask(turn, wake.step, _values_for(state, wake), path, check=check, again=RETRY_ENDINGS)
        what = f"{wake.step} {wake.task or ''}".strip()
        return _record(turn, asked, what, lambda now: _with_plan(turn, now, wake, asked))


def _values_for(state: State, wake: PlanRequest) -> dict[str, str]:
    return prompting.for_plan(state, wake) if wake.step is Step.PLAN else prompting.for_replan(state, wake)


class _PlanCheck:
    """Returns why a plan is refused; a plan that is only doubtful is refused once."""

    def __init__(self, worker: Worker, checkout: Path) -> None:
        self._worker = worker
        self._checkout = checkout
        self._doubted = False

    def __call__(self, value: AnswerValue) -> str | None:
        if not isinstance(value, Plan | Replan):
            return None
        context = plan_context(self._worker.board.read(), self._worker, self._checkout)
        found = planner.problems(context, value.tasks)
        found += planner.why_nothing(context, value) if isinstance(value, Plan) else []
        if not self._doubted:
            found += planner.concerns(value.tasks)
            self._doubted = True
        return "; ".join(found) or None


def plan_context(state: State, worker: Worker, checkout: Path | None = None) -> planner.PlanContext:
    """Return what plans are held against: a spec may be on the branch, or not committed yet."""
    roots = [root.resolve() for root in (checkout, worker.repository.root) if root is not None]

    def has_file(path: str) -> bool:
        found = ((root / path).resolve() for root in roots)
        return any(one.is_file() and one.is_relative_to(root) for one, root in zip(found, roots, strict=True))

    return planner.PlanContext(state, has_file)


def _with_plan(turn: Turn, state: State, wake: PlanRequest, asked: AgentAnswer) -> State:
    worker, value = turn.worker, asked.value
    at, by = worker.clock(), worker.actor().replace(run=asked.run)
    if isinstance(value, Plan | Replan) and planner.problems(plan_context(state, worker), value.tasks):
        return state  # somebody took one of its ids meanwhile: it is asked again
    if isinstance(value, Plan | Replan):
        state = turn.with_anomalies(state, value.anomalies, about=wake.task)
    if isinstance(value, Plan):
        state = planner.with_plan(state, wake, value, by=by, at=at)
        for question in value.questions:
            details = SpecAmbiguity(spec_ref=state.goal.spec_ref or "the goal", question=question)
            state = with_anomaly(state, details, about=None, by=worker.name, at=at)
        return state
    if isinstance(value, Replan):
        return planner.with_replan(state, wake, value, by=by, at=at)
    state = planner.with_people_asked(state, wake, asked.why, by=by, at=at)
    loop = RetryLoop(error_pattern=asked.why[:LONGEST_PATTERN], count=2)
    return with_anomaly(state, loop, about=wake.task, by=worker.name, at=at)


def _ask_reviewer(worker: Worker, state: State) -> AfterTurn:
    if not awaits_plan_reviewer(state):
        return AfterTurn.WORK
    with _plan_turn(worker, state) as (turn, path):
        facts = prompting.for_plan_review(state)
        asked = ask(turn, Step.REVIEW, facts, path, again=RETRY_ENDINGS, template="plan_review")
        return _record(turn, asked, "review the plan", lambda now: _with_verdict(turn, now, asked))


def _with_verdict(turn: Turn, state: State, asked: AgentAnswer) -> State:
    """Return the board after the review; a plan that changed meanwhile is left for another review."""
    shown = prompting.plan_text(proposed_tasks(turn.state))
    if not awaits_plan_reviewer(state) or prompting.plan_text(proposed_tasks(state)) != shown:
        return state
    by, value = turn.worker.actor().replace(run=asked.run), asked.value
    most = state.config.limits.max_rejections
    if not isinstance(value, Review) or value.verdict is Ruling.BLOCK:
        log.warning("the plan is for people to judge: %s", asked.why or "the reviewer says so")
        return state.replace(goal=state.goal.replace(plan_returns=most))
    if value.verdict is Ruling.APPROVE:
        return accept_plan(by=by, at=turn.worker.clock())(state)
    returns = state.goal.plan_returns + 1
    if returns >= most:
        return state.replace(goal=state.goal.replace(plan_returns=returns))
    points = [f"- {one.message}{f' ({one.suggestion})' if one.suggestion else ''}" for one in value.feedback]
    return return_plan("\n".join([value.reason, *points]), by=by, returns=returns)(state)
