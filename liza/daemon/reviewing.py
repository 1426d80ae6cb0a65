"""A reviewer's turn: judge the oldest submission in a checkout of its own, and merge what is approved."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

from liza.daemon import course, prompt_values
from liza.daemon.course import GatesResult
from liza.daemon.integrate import integrate, pause_and_release
from liza.daemon.policy import reviewer
from liza.daemon.policy.admission import admit, denial_of
from liza.daemon.policy.retries import RELEASE_ENDINGS, RETRY_ENDINGS
from liza.daemon.turn import AfterTurn, GateTampered, open_turn, task_with_token
from liza.domain import budget
from liza.domain import events as e
from liza.domain.answers import Review, Step
from liza.domain.budget import Cap
from liza.domain.changes import Change, with_signals
from liza.domain.config import PlanApproval
from liza.domain.model import Status
from liza.domain.record import printable, with_record
from liza.domain.review_rounds import HeldVerdict, hold_to_first
from liza.domain.verdicts import Outcome, Signal, SignalName, Verdict
from liza.errors import BrokenGate, GitFailed, Refused, UnfitRepository
from liza.gates.feedback import gate_report
from liza.gates.instructions import with_instructions_of
from liza.repo.objects import commits_between
from liza.repo.scratch import refill, scratch_tree
from liza.repo.snapshot import WorktreeState, altered_paths
from liza.system.run_control import RunEnding
from liza.workflow import engine
from liza.workflow.document import GateKind, OnError
from liza.workflow.position import GateJob
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from liza.daemon.turn import AgentAnswer, Turn, Worker
    from liza.domain.anomalies import AgentAnomaly
    from liza.domain.answers import AnswerValue
    from liza.domain.model import State, Task
    from liza.workflow.document import Gate

LATE_BUT_CRITICAL: Final = (
    "{}: its reviewer found something critical after the first review, which decides nothing any more: {}; "
    "look at it before you apply the patch"
)

log = logging.getLogger(__name__)


def take_turn(place: Worker) -> AfterTurn:
    """Review or merge one task, if there is one."""
    state = place.board.read()
    if reviewer.resolved_conflict(state):
        _retry_merge(place)
        return AfterTurn.WORK
    found = _next_task(place, state)
    if found is None:
        return _review_plan(place, state)
    place.fetch(state, found.id)
    token = secrets.token_hex(16)
    state = _take_next(place, token)
    task = task_with_token(state, token)
    if task is None:
        return AfterTurn.WORK
    run = place.planned_run(state, Step.REVIEW, task.id) if task.status is Status.READY_FOR_REVIEW else None
    with open_turn(place, state, task, token, admitted=run) as turn:
        try:
            return _review_or_merge(turn, task)
        except Refused as error:  # somebody else decides about the task now, so nothing more is written
            log.warning("%s", turn.lease_renewer.lost or error)
        except GateTampered as strayed:
            turn.block_for_drift(strayed.moved, "tests")
        except (GitFailed, UnfitRepository) as error:
            _release_unfit(turn, error)
        return AfterTurn.WORK


def _review_plan(place: Worker, state: State) -> AfterTurn:
    """Judge the plan, which has to wait for work that others wait for."""
    if state.config.plan.approval is not PlanApproval.REVIEWER:
        return AfterTurn.WAIT
    from liza.daemon import plan_reviewing  # noqa: PLC0415 - few boards have plans that are judged

    return plan_reviewing.take_turn(place)


def _next_task(place: Worker, state: State) -> Task | None:
    """Return the task to take: a merge, which costs nothing, or a review that is admitted."""
    task = reviewer.pick(state, place.name, place.clock())
    if task is None or task.status is not Status.READY_FOR_REVIEW:
        return task
    return task if place.check_admission(state, place.planned_run(state, Step.REVIEW, task.id)) else None


def _release_unfit(turn: Turn, error: GitFailed | UnfitRepository) -> None:
    try:
        pause_and_release(turn, error)
    except Refused as refused:
        log.warning("%s", refused)


def _retry_merge(place: Worker) -> None:
    """Try the merge again that a person says is possible now."""

    def make(state: State) -> State:
        found = reviewer.resolved_conflict(state)
        if found is None:
            return state
        at, by = place.clock(), place.actor()
        state = apply(e.Answer(guidance=found.note.message, merge=True), to=found.task.id, by=by, at=at)(
            state
        )
        note = found.note.replace(processed=at, processed_by=place.name)
        return state.replace(human_notes=with_record(state.human_notes, note))

    place.board.update(Change(place.name, "retry_merge", make))


def _take_next(place: Worker, token: str) -> State:
    taken: list[str] = []

    def make(state: State) -> State:
        now = place.clock()
        task = reviewer.pick(state, place.name, now)
        if task is None:
            return state
        taken.append(task.id)
        take, by = e.Take(lease=place.lease(state, token)), place.actor(token)
        if task.status is not Status.READY_FOR_REVIEW:
            return apply(take, to=task.id, by=by, at=now)(state)
        run = place.planned_run(state, Step.REVIEW, task.id)
        shut = denial_of(state, run, now)
        if shut and shut.cap is not Cap.TASK:
            return state
        state = apply(take, to=task.id, by=by, at=now)(state)
        if not shut:
            return admit(state, run, now)
        state, block = budget.block_for_cost(state, task.id)
        return apply(block, to=task.id, by=by, at=now)(state)

    return place.board.update(Change(place.name, "take_review", make, about=lambda: taken[-1]))


def _review_or_merge(turn: Turn, task: Task) -> AfterTurn:
    """Judge *task*, phase after phase, for as long as judging is next; then do what its effect is."""
    if turn.state.config.remote:
        turn.place.exchange.fetch_missing(turn.state.config, task)
    while task.status is Status.READY_FOR_REVIEW:
        after = _review(turn, task)
        if after is not None:
            return after
        turn.state = turn.place.board.read()
        task = turn.current()
        if task.lease is None or task.lease.token != turn.actor.token:
            return AfterTurn.WORK
    if task.status is Status.APPROVED and task.lease is not None:
        integrate(turn)
    return AfterTurn.WORK


def _review(turn: Turn, task: Task) -> AfterTurn | None:
    """Bring *task* through the gates of review; return what to do next where no verdict came of it."""
    try:
        found = _rerun_gates(turn, task)
    except course.Halted:
        turn.record(e.Release(reason="the review was stopped before its gates were through"))
        return AfterTurn.WORK
    except BrokenGate as error:
        turn.broken(error, e.Release(reason=printable(str(error))))
        return AfterTurn.WORK
    flow = turn.place.workflow(turn.state)
    said: tuple[AgentAnomaly, ...] = ()
    while (
        next_up := engine.next_job(flow, found.moved.position, found.facts)
    ) and found.outcome is Outcome.PASS:
        match next_up:
            case GateJob(gate) if gate.kind is GateKind.AGENT:
                turn.hat, turn.part = gate.role, gate.options.get("prompt")
                asked = _ask_reviewer(turn, task, found.verdicts)
                if turn.lease_renewer.lost:
                    log.warning("%s: the verdict is not used", turn.lease_renewer.lost)
                    return AfterTurn.WORK
                if not isinstance(asked.value, Review):
                    return _record_no_verdict(turn, asked, gate, reviewer.new_verdicts(task, found.verdicts))
                turn.comments.append((str(gate.role), _spoken(asked.value)))
                found, said = (
                    _with_verdict(turn, task, found, gate.id, asked, asked.value),
                    asked.value.anomalies,
                )
            case _:
                break
    event = reviewer.event_for_verdicts(task, found)
    if found.artifacts and isinstance(event, e.Report):
        event = event.replace(artifacts=found.artifacts)
    _conclude(turn, event, said)
    return None


def _spoken(review: Review) -> str:
    """Return what a reviewer's agent said, as people read it."""
    points = [f"- {f'{one.file}: ' if one.file else ''}{one.message}" for one in review.feedback]
    return "\n".join(
        [f"{review.verdict}{f' ({review.label})' if review.label else ''}: {review.reason}", *points]
    )


def _conclude(turn: Turn, event: e.Event, said: tuple[AgentAnomaly, ...]) -> None:
    """Record a verdict; a task that is approved while others are merged waits in the queue, unheld."""
    at, by = turn.place.clock(), turn.by
    verdicts = event.verdicts if isinstance(event, e.Report) else ()
    signals = [signal for verdict in verdicts for signal in verdict.signals()]

    def more(state: State) -> State:
        state = turn.with_anomalies(state, said)
        state = with_signals(state, str(turn.task), *signals)
        task = state.task(str(turn.task))
        if task.status is not Status.APPROVED or reviewer.is_next_to_merge(state, task, at):
            return state
        return apply(e.Release(reason="others are merged first"), to=task.id, by=by, at=at)(state)

    turn.record(event, more=more)


def _with_verdict(
    turn: Turn, task: Task, so_far: GatesResult, gate: str, asked: AgentAnswer, review: Review
) -> GatesResult:
    """Return where the word of a reviewer's agent leads; machines that said no are not asked again by it."""
    tree = turn.place.repository.tree_of(str(task.review_commit or task.base_commit))
    verdict = reviewer.verdict_of_review(gate, review, tree=tree, run=asked.run, at=turn.place.clock())
    flow, position = turn.place.workflow(turn.state), so_far.moved.position
    held = HeldVerdict(verdict)
    if turn.state.config.experiment.converge:
        held = hold_to_first(verdict, task.artifacts, position.iterations.get(position.phase, 1) - 1)
        turn.place.tell(
            [LATE_BUT_CRITICAL.format(task.id, "; ".join(held.critical))] if held.critical else []
        )
    log.info("%s: reviewed: %s", task.id, held.verdict.outcome)
    moved = engine.after(flow, position, held.verdict, so_far.facts)
    said = (*so_far.verdicts, held.verdict)
    return so_far._replace(moved=moved, verdicts=said, artifacts={**so_far.artifacts, **held.artifacts})


def _rerun_gates(turn: Turn, task: Task) -> GatesResult:
    """Run the gates whose verdicts are not about the submitted tree."""
    flow, commit = turn.place.workflow(turn.state), str(task.review_commit or task.base_commit)
    with course.gate_context(turn, task, str(task.base_commit), commit) as case:
        held = tuple(one for one in task.verdicts if one.tree == case.tree and one.outcome is Outcome.PASS)
        found = course.run_gates(turn, flow, task.position, case, before=held)
    return found._replace(verdicts=(*held, *found.verdicts))


def _ask_reviewer(turn: Turn, task: Task, found: tuple[Verdict, ...]) -> AgentAnswer:
    place, repository = turn.place, turn.place.repository
    base, commit = str(task.base_commit), str(task.review_commit or task.base_commit)
    diff = repository.git("diff", "--no-color", base, commit)
    said = "\n\n".join(one.message for one in commits_between(repository, base, commit))

    def check(value: AnswerValue) -> str | None:
        before, after = place.trees.before, place.trees.after
        # What tests leave behind is no change of the work; it goes with the checkout.
        is_same = before and after and not altered_paths(repository, before.tree, after.tree)
        if not is_same or not after or after.head != shown:
            # Whoever is asked again judges the work, not what became of it.
            refill(place.worktrees, path, shown)
            place.trees.begin()
            return "the checkout was changed, and a reviewer changes nothing; the verdict does not count"
        first = len(turn.runs) == 1
        return reviewer.missing_feedback(task, value) if first and isinstance(value, Review) else None

    shown = with_instructions_of(repository, base, commit, at=place.clock())
    facts = prompt_values.for_review(turn.state, task, diff=diff, log=said, checks=gate_report(found))
    with scratch_tree(place.worktrees, shown) as path:
        begins = WorktreeState(shown, repository.tree_of(shown))
        return turn.ask(Step.REVIEW, facts, path, check=check, again=RETRY_ENDINGS, begins=begins)


def _record_no_verdict(turn: Turn, asked: AgentAnswer, gate: Gate, said: tuple[Verdict, ...]) -> AfterTurn:
    ending, position = asked.reply.ending, turn.current().position
    phase = position.phase if position else None
    if asked.moved:
        turn.block_for_drift(asked.moved)
        return AfterTurn.WORK
    if ending in RELEASE_ENDINGS:
        turn.record(e.Release(reason=asked.why, killed=ending is RunEnding.KILLED))
    elif gate.on_error != OnError() and ending is not RunEnding.DONE:
        turn.record(e.Report(crashed=gate.id, reason=asked.why, verdicts=said))
        turn.release()
    else:
        silence = Signal(name=SignalName.SILENCE, at=turn.place.clock(), phase=phase, role=gate.role)
        turn.record(
            reviewer.event_for_silence(
                asked.why, gate, said, position.tree if position else None, turn.place.clock()
            ),
            more=lambda state: with_signals(state, str(turn.task), silence),
        )
        turn.release()
    return AfterTurn.RESTART if ending is RunEnding.CONTEXT_FULL else AfterTurn.WORK
