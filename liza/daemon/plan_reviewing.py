"""A reviewer's turn about a plan: its tasks are released, or it goes back to the planner."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from liza.board.protocol import PLANNING_NAME
from liza.daemon import prompt_values
from liza.daemon.policy.retries import RELEASE_ENDINGS, RETRY_ENDINGS
from liza.daemon.turn import AfterTurn, open_turn
from liza.domain.answers import Review, Ruling, Step
from liza.domain.proposals import awaits_plan_reviewer, proposed_tasks
from liza.domain.record import printable
from liza.errors import AlreadyRunning, GitFailed, UnfitRepository
from liza.repo.scratch import scratch_tree
from liza.system.run_control import RunEnding
from liza.workflow.plan_approval import accept_plan, return_plan

if TYPE_CHECKING:
    from liza.daemon.turn import AgentAnswer, Turn, Worker
    from liza.domain.model import State

log = logging.getLogger(__name__)


def take_turn(place: Worker) -> AfterTurn:
    """Judge the plan, if one waits for a reviewer."""
    state = place.board.read()
    if not awaits_plan_reviewer(state):
        return AfterTurn.WAIT
    if not place.check_admission(state, place.planned_run(state, Step.REVIEW, None)):
        return AfterTurn.WAIT
    try:
        # Who plans and who judges the plan hold the same lock: neither sees half of what the other does.
        with place.board.presence.hold(PLANNING_NAME, at=place.clock()):
            return _judge_plan(place)
    except AlreadyRunning:
        return AfterTurn.WAIT
    except (GitFailed, UnfitRepository) as error:
        place.stop_requests.pause(printable(str(error)))
        return AfterTurn.WAIT


def _judge_plan(place: Worker) -> AfterTurn:
    state = place.board.read()
    if not awaits_plan_reviewer(state):
        return AfterTurn.WORK
    head = place.repository.commit_at(place.integration(state)) or place.repository.head()
    with open_turn(place, state) as turn, scratch_tree(place.worktrees, str(head)) as path:
        facts = prompt_values.for_plan_review(state)
        asked = turn.ask(Step.REVIEW, facts, path, again=RETRY_ENDINGS, template="plan_review")
        if asked.moved:
            turn.block_for_drift(asked.moved)
        elif asked.value is None and asked.reply.ending in RELEASE_ENDINGS:
            is_full = asked.reply.ending is RunEnding.CONTEXT_FULL
            return AfterTurn.RESTART if is_full else AfterTurn.WORK
        else:
            turn.update("review the plan", lambda now: _with_verdict(turn, now, asked))
        return AfterTurn.WORK


def _with_verdict(turn: Turn, state: State, asked: AgentAnswer) -> State:
    """Return the board after the review; what was changed meanwhile is judged again as it is then."""
    shown = prompt_values.plan_text(proposed_tasks(turn.state))
    if not awaits_plan_reviewer(state) or prompt_values.plan_text(proposed_tasks(state)) != shown:
        return state
    by, value = turn.place.actor().replace(run=asked.run), asked.value
    most = state.config.limits.max_rejections
    if not isinstance(value, Review) or value.verdict is Ruling.BLOCK:
        log.warning("the plan is for people to judge: %s", asked.why or "the reviewer says so")
        return state.replace(goal=state.goal.replace(plan_returns=most))
    if value.verdict is Ruling.APPROVE:
        return accept_plan(by=by, at=turn.place.clock())(state)
    returns = state.goal.plan_returns + 1
    if returns >= most:
        return state.replace(goal=state.goal.replace(plan_returns=returns))
    points = [f"- {one.message}{f' ({one.suggestion})' if one.suggestion else ''}" for one in value.feedback]
    return return_plan("\n".join([value.reason, *points]), by=by, returns=returns)(state)
