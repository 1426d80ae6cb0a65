"""A reviewer's turn: judge the oldest submission in a checkout of its own, and merge what is approved."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

from liza.daemon import course, prompt_values
from liza.daemon.course import Judged
from liza.daemon.integrate import integrate, unfit
from liza.daemon.policy import reviewer
from liza.daemon.policy.admission import admitted, closed
from liza.daemon.turn import Next, Strayed, begun, held_by
from liza.domain import budget
from liza.domain import events as e
from liza.domain.answers import Review, Step
from liza.domain.budget import Cap
from liza.domain.changes import Change
from liza.domain.model import Status
from liza.domain.record import printable, with_record
from liza.domain.verdicts import Outcome, Verdict
from liza.errors import BrokenGate, GitFailed, Refused, UnfitRepository
from liza.gates.feedback import report
from liza.gates.human import QUESTIONS
from liza.gates.instructions import with_instructions_of
from liza.repo.scratch import refill, scratch
from liza.repo.snapshot import altered
from liza.system.run_control import Ending
from liza.workflow import engine
from liza.workflow.document import GateKind
from liza.workflow.position import Judge, Wait
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from liza.daemon.turn import Asked, Place, Turn
    from liza.domain.answers import AgentAnomaly, Value
    from liza.domain.model import State, Task
    from liza.workflow.document import Gate

# After these a second try may give what the first did not; all others say when to come back.
AGAIN: Final = frozenset(
    {Ending.DONE, Ending.TIMEOUT, Ending.SILENT, Ending.SLOW_START, Ending.CRASHED, Ending.EMPTY}
)
GIVEN_BACK: Final = frozenset(
    {
        *(Ending.RATE_LIMITED, Ending.QUOTA, Ending.AUTH),
        *(Ending.CONTEXT_FULL, Ending.STOPPED, Ending.CAPPED, Ending.KILLED),
    }
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
        except Strayed as strayed:
            turn.drifted(strayed.moved, "tests")
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
    taken: list[str] = []

    def make(state: State) -> State:
        now = place.clock()
        task = reviewer.pick(state, place.name, now)
        if task is None:
            return state
        taken.append(task.id)
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
        state, block = budget.blocked(state, task.id)
        return apply(block, to=task.id, by=by, at=now)(state)

    return place.board.update(Change(place.name, "take_review", make, about=lambda: taken[-1]))


def _judged(turn: Turn, task: Task) -> Next:
    if task.status is Status.READY_FOR_REVIEW:
        after = _reviewed(turn, task)
        if after is not None:
            return after
        latest = turn.current()
        if latest.status is not Status.APPROVED or latest.lease is None:
            return Next.WORK
    integrate(turn)
    return Next.WORK


def _reviewed(turn: Turn, task: Task) -> Next | None:
    """Bring *task* through the gates of review; return what to do next where no verdict came of it."""
    try:
        found = _checked(turn, task)
    except course.Halted:
        turn.record(e.Release(reason="the review was stopped before its gates were through"))
        return Next.WORK
    except BrokenGate as error:
        turn.broken(error, e.Release(reason=printable(str(error))))
        return Next.WORK
    flow = turn.place.workflow(turn.state)
    said: tuple[AgentAnomaly, ...] = ()
    while (next_up := engine.job(flow, found.moved.position, found.facts)) and found.outcome is Outcome.PASS:
        match next_up:
            case Judge(gate) if gate.kind is GateKind.AGENT:
                asked = _asked(turn, task, found.verdicts)
                if turn.keeper.lost:
                    log.warning("%s: the verdict is not used", turn.keeper.lost)
                    return Next.WORK
                if not isinstance(asked.value, Review):
                    return _without_verdict(turn, asked, gate)
                found, said = _weighed(turn, task, found, gate.id, asked, asked.value), asked.value.anomalies
            case Wait(_, gate):
                question = f"{task.id}: {_question(gate)}"
                taints = _taints_of_a_yes(turn, found, gate)
                said_now = reviewer.news(task, found.verdicts)
                known = found.known
                ask = e.AskHuman(question=question, verdicts=said_now, taints=taints, known=known)
                _conclude(turn, ask, said)
                return Next.WORK
            case _:
                break
    _conclude(turn, reviewer.concluded(task, found), said)
    return None


def _conclude(turn: Turn, event: e.Event, said: tuple[AgentAnomaly, ...]) -> None:
    """Record a verdict; a task that is approved while others are merged waits in the queue, unheld."""
    at, by = turn.place.clock(), turn.by

    def more(state: State) -> State:
        state = turn.with_anomalies(state, said)
        task = state.task(str(turn.task))
        if task.status is not Status.APPROVED or reviewer.is_next_to_merge(state, task, at):
            return state
        return apply(e.Release(reason="others are merged first"), to=task.id, by=by, at=at)(state)

    turn.record(event, more=more)


def _question(gate: Gate | None) -> str:
    options = gate.options if gate else {}
    return str(options.get("question") or QUESTIONS[options.get("asks", "approve")])


def _taints_of_a_yes(turn: Turn, found: Judged, gate: Gate | None) -> tuple[str, ...]:
    """Return what a person's yes would be marked with, so that it is given in the knowledge of it."""
    flow, position = turn.place.workflow(turn.state), found.moved.position
    if gate is None:
        return position.taints
    yes = Verdict(gate=gate.id, outcome=Outcome.PASS, at=turn.place.clock(), tree=position.tree)
    return engine.after(flow, position, yes, found.facts).position.taints


def _weighed(turn: Turn, task: Task, so_far: Judged, gate: str, asked: Asked, review: Review) -> Judged:
    """Return where the word of a reviewer's agent leads; machines that said no are not asked again by it."""
    tree = turn.place.repository.tree_of(str(task.review_commit))
    verdict = reviewer.verdict(gate, review, tree=tree, run=asked.run, at=turn.place.clock())
    log.info("%s: reviewed: %s", task.id, verdict.outcome)
    flow, position = turn.place.workflow(turn.state), so_far.moved.position
    moved = engine.after(flow, position, verdict, so_far.facts)
    return so_far._replace(moved=moved, verdicts=(*so_far.verdicts, verdict))


def _checked(turn: Turn, task: Task) -> Judged:
    """Ask the machines that did not judge yet what was submitted; most did."""
    flow, commit = turn.place.workflow(turn.state), str(task.review_commit)
    with course.case_of(turn, task, str(task.base_commit), commit) as case:
        held = tuple(one for one in task.verdicts if one.tree == case.tree and one.outcome is Outcome.PASS)
        found = course.judged(turn, flow, task.position, case, before=held)
    return found._replace(verdicts=(*held, *found.verdicts))


def _asked(turn: Turn, task: Task, found: tuple[Verdict, ...]) -> Asked:
    place, repository = turn.place, turn.place.repository
    base, commit = str(task.base_commit), str(task.review_commit)
    diff = repository.git("diff", "--no-color", base, commit)
    said = repository.git("log", "--no-color", "--format=%B", f"{base}..{commit}")

    def check(value: Value) -> str | None:
        before, after = place.trees.before, place.trees.after
        # What tests leave behind is no change of the work; it goes with the checkout.
        is_same = before and after and not altered(repository, before.tree, after.tree)
        if not is_same or not after or after.head != shown:
            # Whoever is asked again judges the work, not what became of it.
            refill(place.worktrees, path, shown)
            place.trees.begin()
            return "the checkout was changed, and a reviewer changes nothing; the verdict does not count"
        first = len(turn.runs) == 1
        return reviewer.unsaid(task, value) if first and isinstance(value, Review) else None

    shown = with_instructions_of(repository, base, commit, at=place.clock())
    facts = prompt_values.for_review(turn.state, task, diff=diff, log=said, checks=report(found))
    with scratch(place.worktrees, shown) as path:
        return turn.ask(Step.REVIEW, facts, path, check=check, again=AGAIN)


def _without_verdict(turn: Turn, asked: Asked, gate: Gate) -> Next:
    ending = asked.reply.ending
    if asked.moved:
        turn.drifted(asked.moved)
        return Next.WORK
    if ending in GIVEN_BACK:
        turn.record(e.Release(reason=asked.why, killed=ending is Ending.KILLED))
    else:
        turn.record(reviewer.no_verdict(asked.why, gate.on_none.outcome))
    return Next.RESTART if ending is Ending.CONTEXT_FULL else Next.WORK
