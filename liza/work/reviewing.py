"""A reviewer's turn: judge the oldest submission in a checkout of its own, and merge what is approved."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

from liza import events as e
from liza import money
from liza.agents.protocol import Ending
from liza.changes import Change, apply
from liza.errors import GitFailed, Refused, UnfitRepository
from liza.model import Status
from liza.money import Cap
from liza.record import with_record
from liza.replies import Review, Step
from liza.repo.content import altered
from liza.repo.scratch import scratch
from liza.roles import reviewer
from liza.roles.admission import admitted, closed
from liza.work import known
from liza.work.integration import integrate, unfit
from liza.work.turn import Next, begun, held_by

if TYPE_CHECKING:
    from liza.model import State, Task
    from liza.replies import Value
    from liza.work.turn import Asked, Place, Turn

# After these a second try may give what the first did not; all others say when to come back.
AGAIN: Final = frozenset(
    {Ending.DONE, Ending.TIMEOUT, Ending.SILENT, Ending.SLOW_START, Ending.CRASHED, Ending.EMPTY}
)
GIVEN_BACK: Final = frozenset(
    {Ending.RATE_LIMITED, Ending.QUOTA, Ending.AUTH, Ending.CONTEXT_FULL, Ending.STOPPED}
)

log = logging.getLogger(__name__)


def turn(place: Place) -> Next:
    """Review or merge one task, if there is one."""
    state = place.board.read()
    if reviewer.resolved(state):
        _retry(place)
        return Next.WORK
    found = _found(place, state)
    if found is None:
        return Next.WAIT
    token = secrets.token_hex(16)
    state = _taken(place, token)
    task = held_by(state, token)
    if task is None:
        return Next.WORK
    run = place.wanted(state, Step.REVIEW, task.id) if task.status is Status.READY_FOR_REVIEW else None
    with begun(place, state, task, token, admitted=run) as turn:
        try:
            return _judged(turn, task)
        except Refused as error:  # somebody else decides about the task now, so nothing more is written
            log.warning("%s", turn.keeper.lost or error)
        except (GitFailed, UnfitRepository) as error:
            _given_back(turn, error)
        return Next.WORK


def _found(place: Place, state: State) -> Task | None:
    """Return what to take: a merge, which costs nothing, or a review that may begin."""
    task = reviewer.pick(state, place.name, place.clock())
    if task is None or task.status is not Status.READY_FOR_REVIEW:
        return task
    return task if place.may_begin(state, place.wanted(state, Step.REVIEW, task.id)) else None


def _given_back(turn: Turn, error: GitFailed | UnfitRepository) -> None:
    try:
        unfit(turn, error)
    except Refused as refused:
        log.warning("%s", refused)


def _retry(place: Place) -> None:
    """Try the merge again that a person says is possible now."""

    def make(state: State) -> State:
        found = reviewer.resolved(state)
        if found is None:
            return state
        at, by = place.clock(), place.actor()
        state = apply(e.RetryMerge(reason=found.note.message), to=found.task.id, by=by, at=at)(state)
        note = found.note.but(processed=at, processed_by=place.name)
        return state.but(human_notes=with_record(state.human_notes, note))

    place.board.update(Change(place.name, "retry_merge", make))


def _taken(place: Place, token: str) -> State:
    def make(state: State) -> State:
        now = place.clock()
        task = reviewer.pick(state, place.name, now)
        if task is None:
            return state
        take, by = e.TakeReview(lease=place.lease(state, token)), place.actor(token)
        if task.status is not Status.READY_FOR_REVIEW:
            return apply(take, to=task.id, by=by, at=now)(state)
        run = place.wanted(state, Step.REVIEW, task.id)
        shut = closed(state, run, now)
        if shut and shut.cap is not Cap.TASK:
            return state
        state = apply(take, to=task.id, by=by, at=now)(state)
        if not shut:
            return admitted(state, run, now)
        state, block = money.blocked(state, task.id)
        return apply(block, to=task.id, by=by, at=now)(state)

    return place.board.update(Change(place.name, "take_review", make))


def _judged(turn: Turn, task: Task) -> Next:
    if task.status is Status.READY_FOR_REVIEW:
        asked = _asked(turn, task)
        if turn.keeper.lost:
            log.warning("%s: the verdict is not used", turn.keeper.lost)
            return Next.WORK
        if not isinstance(asked.value, Review):
            return _without_verdict(turn, asked)
        log.info("%s: reviewed: %s", task.id, asked.value.verdict)
        state = turn.record(reviewer.concluded(task, asked.value))
        if state.task(task.id).status is not Status.APPROVED:
            return Next.WORK
    integrate(turn)
    return Next.WORK


def _asked(turn: Turn, task: Task) -> Asked:
    place, repository = turn.place, turn.place.repository
    base, commit = str(task.base_commit), str(task.review_commit)
    diff = repository.git("diff", "--no-color", base, commit)
    said = repository.git("log", "--no-color", "--format=%B", f"{base}..{commit}")

    tree = repository.tree_of(commit)

    def unchanged(_: Value) -> str | None:
        after = place.trees.after
        # What tests leave behind is no change of the work; it goes with the checkout.
        if after and after.head == commit and not altered(repository, tree, after.tree):
            return None
        return "the checkout was changed, and a reviewer changes nothing; the verdict does not count"

    facts = known.for_review(task, diff=diff, log=said)
    with scratch(place.worktrees, commit) as path:
        return turn.ask(Step.REVIEW, facts, path, check=unchanged, again=AGAIN)


def _without_verdict(turn: Turn, asked: Asked) -> Next:
    ending = asked.reply.ending
    if asked.moved:
        turn.drifted(asked.moved)
        return Next.WORK
    if ending in GIVEN_BACK:
        turn.record(e.Release(reason=asked.why))
    else:
        turn.record(reviewer.no_verdict(asked.why))
    return Next.RESTART if ending is Ending.CONTEXT_FULL else Next.WORK
