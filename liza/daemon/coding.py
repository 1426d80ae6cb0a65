"""Work of an agent: claim, prepare what its hat may touch, ask, hand in what came of it.

Who may write gets a worktree on the branch of the task, and hands in what git says was done. Who may only
read gets a checkout that is thrown away, and hands in what it says.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import Session
from liza.agents.select import backend_of
from liza.daemon import course, prompt_values, worktree_setup
from liza.daemon.breaker import apply_rules
from liza.daemon.handing_on import handoff_artifact, handoff_in, with_work_handed_on
from liza.daemon.policy import coder
from liza.daemon.policy.admission import admit, denial_of
from liza.daemon.project_sandbox import SANDBOXES
from liza.daemon.turn import AfterTurn, GateTampered, open_turn, task_with_token
from liza.domain import budget
from liza.domain import events as e
from liza.domain.answer_parsing import says_blocked
from liza.domain.answers import CheckpointAnswer, Implement, Step, WorkStatus
from liza.domain.budget import Cap
from liza.domain.changes import Change, with_discovery, with_signals
from liza.domain.dialects.verdict_lines import PATCH_DIALECT, patch_in
from liza.domain.model import Handoff, Status, WorkSession
from liza.domain.record import printable, with_record
from liza.domain.step_spec import LOOPS, STEP, IssuedStep, step_risk
from liza.domain.verdicts import Feedback, Risk, Signal, SignalName
from liza.domain.verdicts import Outcome as GateOutcome
from liza.errors import (
    BrokenGate,
    DiskTrouble,
    GitFailed,
    InvalidBoard,
    LizaError,
    Refused,
    RemoteTrouble,
    UnfitRepository,
)
from liza.gates.finding import blames_history
from liza.gates.forbidden import forbidden_command_in
from liza.repo import salvage
from liza.repo.apply_patch import apply_patch
from liza.repo.copies import committed_copies
from liza.repo.durable import sync_work
from liza.repo.merge import merge
from liza.repo.objects import list_tree
from liza.repo.private_gitdir import import_after_crash
from liza.repo.repository import branch_of
from liza.repo.scratch import scratch_tree
from liza.repo.snapshot import commit_all, conflict_marked_paths, overlay, roll_back
from liza.repo.squash import Squashing, move_squashed, squash
from liza.repo.submission import inspect_submission
from liza.repo.working_copy import commit_checkout
from liza.repo.worktree_fingerprint import pop_idle_change, record_idle_state
from liza.system.run_control import RunEnding
from liza.workflow.document import HatAccess, Predicate, SessionMode, WorkspaceBase
from liza.workflow.position import Worked
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liza.daemon.turn import AgentAnswer, Turn, Worker
    from liza.domain.answers import AnswerValue
    from liza.domain.budget import AdmissionRequest
    from liza.domain.events import Event
    from liza.domain.model import State, Task
    from liza.domain.verdicts import Verdict
    from liza.repo.worktree import Worktree
    from liza.workflow.document import Phase

SIMPLE_LINES: Final = 10  # that are not empty: what says less is simple
LONGEST_HANDOFF: Final = 4000  # characters of an agent's last words that the next one is given
BRANCH_GONE: Final = (
    "the integration branch {name} is gone; put it back (`git branch {name} <commit>`), then `liza resume`"
)

log = logging.getLogger(__name__)


class ClaimedTask(NamedTuple):
    """A claimed task: as it is now, and as it was before."""

    state: State
    task: Task
    before: Task
    token: str


def take_turn(place: Worker) -> AfterTurn:
    """Work on one task, if there is one whose next job is one for this kind of worker."""
    state = place.board.read()
    task = coder.pick(state, place.name)
    if task is None or not place.check_admission(state, _first_run(place, state, task)):
        return AfterTurn.WAIT
    place.fetch(state, task.id, *task.depends_on)
    head = _base_commit(place, state)
    if head is None:
        return AfterTurn.WAIT
    claimed = claim_next(place, head)
    if claimed is None:
        return AfterTurn.WORK
    log.info("%s: claimed, iteration %d", claimed.task.id, claimed.task.iteration)
    run = _first_run(place, claimed.state, claimed.task)
    with open_turn(place, claimed.state, claimed.task, claimed.token, admitted=run) as turn:
        turn.hat = _phase(turn).worker
        after = _prepare_and_work(turn, claimed)
    if state.config.remote:
        place.exchange.publish_salvages(state.config)
    return after


def _phase(turn: Turn) -> Phase:
    """Return the phase that the task of *turn* is in."""
    flow, task = turn.place.workflow(turn.state), turn.state.task(str(turn.task))
    return flow.phases[task.position.phase if task.position else flow.start]


def _base_commit(place: Worker, state: State) -> str | None:
    """Return the commit that new work starts from; None while the integration branch needs repair."""
    base = place.workflow(state).workspace.base
    if base is WorkspaceBase.WORKING_TREE or state.config.experiment.base_on_working_tree:
        # Of the same files the same commit, whoever makes it.
        return commit_checkout(place.repository, at=state.goal.created)
    if base is WorkspaceBase.HEAD:
        return place.repository.head()
    head = place.repository.commit_at(place.integration(state))
    if head is None:
        place.stop_requests.pause(BRANCH_GONE.format(name=state.config.integration_branch))
        return None
    return head if place.verify_head(head) else None


def _prepare_and_work(turn: Turn, claimed: ClaimedTask) -> AfterTurn:
    try:
        if turn.state.config.remote:
            turn.place.exchange.fetch_missing(turn.state.config, claimed.task)
        if turn.place.workflow(turn.state).hat(str(turn.hat)).access is not HatAccess.WRITE:
            return _think(turn)
        worktree = _prepare_worktree(turn.place, claimed)
        return _work(turn, claimed, worktree) if _run_setup(turn, worktree) else AfterTurn.WORK
    except Refused as error:  # somebody else decides about the task now, so nothing more is written
        log.warning("%s", turn.lease_renewer.lost or error)
    except GateTampered as found:
        turn.block_for_drift(found.moved, "tests")
    except (DiskTrouble, InvalidBoard, RemoteTrouble):
        raise
    except UnfitRepository as error:
        question = "Can you put the repository right, so that this can go on?"
        block = e.Block(reason=printable(str(error)), questions=(question,), only_people=True)
        _give_up(turn, block)
    except LizaError as error:  # the agent left a worktree that git cannot work with
        _give_up(turn, e.Release(reason=printable(str(error)), failed=True))
    return AfterTurn.WORK


def _first_run(place: Worker, state: State, task: Task) -> AdmissionRequest:
    flow, here = place.workflow(state), task.position
    if flow.phases[here.phase if here else flow.start].asks_checkpoint:
        return place.planned_run(state, Step.CHECKPOINT, task.id, Step.IMPLEMENT)
    return place.planned_run(state, Step.IMPLEMENT, task.id)


def claim_next(place: Worker, head: str) -> ClaimedTask | None:
    """Claim the next task, chosen under the lock; None where another worker was faster."""
    token, taken = secrets.token_hex(16), []
    by = place.actor(token)

    def make(state: State) -> State:
        task, at = coder.pick(state, place.name), place.clock()
        run = _first_run(place, state, task) if task else None
        shut = denial_of(state, run, at) if run else None
        if task is None or run is None or (shut and shut.cap is not Cap.TASK):
            return state
        taken.append(task)
        flow, here = place.workflow(state), task.position
        most = flow.phases[here.phase if here else flow.start].most(here.path if here else None)
        claim = e.Take(
            lease=place.lease(state, token),
            base_commit=coder.base_for(task, place.name, coder.start_of(state, task) or head),
        )
        state = apply(claim, to=task.id, by=by, at=at)(state)
        if most is not None and coder.is_out_of_iterations(task, most) and here and here.phase == flow.start:
            return apply(coder.iterations_block(most), to=task.id, by=by, at=at)(state)
        if shut:
            state, block = budget.block_for_cost(state, task.id)
            return apply(block, to=task.id, by=by, at=at)(state)
        state = apply_rules(place.workflow(state), state, task.id, at)
        return admit(state, run, at) if state.task(task.id).lease else state

    state = place.board.update(Change(place.name, "claim", make, about=lambda: taken[-1].id))
    task = task_with_token(state, token)
    return ClaimedTask(state, task, taken[-1], token) if task else None


def _work(turn: Turn, claimed: ClaimedTask, worktree: Worktree) -> AfterTurn:
    asked = _ask_checkpoint(turn, worktree) if _phase(turn).asks_checkpoint else None
    if asked is not None and isinstance(asked.value, CheckpointAnswer) and asked.value.is_blocked:
        return _record_block(turn, asked.value)
    if asked is None or isinstance(asked.value, CheckpointAnswer):
        if asked is not None and not _pass_checkpoint(turn, asked):
            return AfterTurn.WORK
        task = turn.state.task(claimed.task.id)
        facts, begins = (
            prompt_values.for_implement(turn.state, task),
            turn.place.trees.after if asked else None,
        )
        turn.proof = _CommitProof(turn)
        asked = turn.ask(
            Step.IMPLEMENT, facts, worktree.path, begins=begins, session=_session(turn, claimed.before)
        )
    worktree_setup.run_teardown(turn, worktree)
    if turn.lease_renewer.lost:
        log.warning("%s: what its agent did after that is not used", turn.lease_renewer.lost)
        return AfterTurn.WORK
    if asked.moved:
        turn.block_for_drift(asked.moved)
        return AfterTurn.WORK
    if isinstance(asked.value, Implement):
        _hand_in(turn, worktree, asked, asked.value)
        return AfterTurn.WORK
    return _record_no_answer(turn, worktree, asked)


def _session(turn: Turn, before: Task) -> Session | None:
    """Return the conversation to go on with, where the phase says so and the same worker had one."""
    phase, here = _phase(turn), before.position
    resumes = phase.session_mode(here.path if here else None) is SessionMode.RESUME
    left = before.session
    if not resumes or left is None or before.authors[-1:] != (turn.place.name,):
        return None
    chosen = turn.place.choice(turn.state, Step.IMPLEMENT, turn.task, turn.hat)
    is_same = (left.hat, left.backend) == (turn.hat, backend_of(chosen))
    return Session(id=left.id) if is_same else None


def _think(turn: Turn) -> AfterTurn:
    """Ask who changes nothing, and hand in what they say."""
    task = turn.state.task(str(turn.task))
    shown = str(task.review_commit or task.base_commit)
    with scratch_tree(turn.place.worktrees, shown) as path:
        facts = prompt_values.for_thinking(turn.state, task)
        asked = turn.ask(Step.IMPLEMENT, facts, path, template="hats/think")
    if turn.lease_renewer.lost:
        log.warning("%s: what its agent said after that is not used", turn.lease_renewer.lost)
    elif asked.moved:
        turn.block_for_drift(asked.moved)
    elif not isinstance(asked.value, Implement):
        turn.record(_without_answer(turn, asked))
        return AfterTurn.RESTART if asked.reply.ending is RunEnding.CONTEXT_FULL else AfterTurn.WORK
    else:
        said, value = _judge_words(turn, task, shown, asked, asked.value), asked.value
        turn.comments.append((str(turn.hat), value.summary or str(value.blocked_reason)))
        turn.record(said, more=lambda state: _with_side_reports(turn, state, value, said))
    return AfterTurn.WORK


def _judge_words(turn: Turn, task: Task, head: str, asked: AgentAnswer, answer: Implement) -> Event:
    """Return what follows from what was said: the machines of the phase look at it first."""
    phase = _phase(turn)
    if answer.status is WorkStatus.BLOCKED:
        is_asked = any(Predicate.ASKED in gate.when for gate in phase.gates)
        outcome = GateOutcome.ASK if is_asked else GateOutcome.BLOCK
        told = " ".join([f"{answer.blocked_reason}:", *answer.blocked_questions])
        reason = told if is_asked else answer.blocked_reason
        asks = e.Report(outcome=outcome, reason=reason, questions=answer.blocked_questions)
        return asks.replace(artifacts={_artifact_name(task): str(answer.blocked_reason)})
    flow, known = turn.place.workflow(turn.state), _known_facts(answer)
    work, handed = Worked(turn.place.clock(), run=asked.run), handoff_in(phase, task, answer)
    said_so = course.agent_output(asked, handed)
    try:
        with course.gate_context(turn, task, str(task.base_commit), head, said_so) as case:
            found = course.run_gates(turn, flow, task.position, case, work=work, known=known)
    except course.Halted:
        return e.Release(reason="it was stopped before its gates were through")
    said = e.Report(
        verdicts=found.verdicts,
        known=found.known,
        session=_work_session(turn, asked),
        remember=answer.remember,
    )
    if found.outcome in {GateOutcome.PASS, GateOutcome.ASK}:
        made = {
            _artifact_name(task): answer.summary,
            **_loops_artifact(answer),
            **_step_artifact(answer, head),
            **handoff_artifact(phase, handed),
        }
        return said.replace(artifacts=made)
    return said.replace(outcome=found.outcome, reason=found.reason, feedback=found.feedback)


def _loops_artifact(answer: Implement) -> dict[str, str]:
    told = "\n".join(f"{number}. {line}" for number, line in enumerate(answer.loops, start=1))
    return {LOOPS: told} if told else {}


def _step_artifact(answer: Implement, head: str) -> dict[str, str]:
    if answer.step is None:
        return {}
    given = IssuedStep.model_validate({**answer.step.to_json(), "base": head})
    return {STEP: given.model_dump_json(indent=1, exclude_defaults=True)}


def _artifact_name(task: Task) -> str:
    return task.position.phase.lower() if task.position else "work"


def _work_session(turn: Turn, asked: AgentAnswer) -> WorkSession | None:
    """Return the conversation that *asked* ended with, and whose it is."""
    said, backend = asked.reply.session, backend_of(turn.last) if turn.last else None
    return WorkSession(id=said.id, hat=str(turn.hat), backend=backend) if said and backend else None


def _known_facts(answer: Implement) -> frozenset[str]:
    """Return what conditions of gates ask that only an answer tells."""
    lines = [line for line in answer.summary.splitlines() if line.strip()]
    facts = {
        Predicate.RISK_MEDIUM_OR_HIGH: _risk(answer) in {Risk.MEDIUM, Risk.HIGH},
        Predicate.UPFRONT_PLAN: bool(answer.loops),
        Predicate.EMPTY_OUTPUT: not lines,
        Predicate.SIMPLE_OUTPUT: len(lines) < SIMPLE_LINES,
    }
    return frozenset(str(name) for name, holds in facts.items() if holds)


def _risk(answer: Implement) -> Risk | None:
    """Return the risk of what is to be done; a command that is forbidden is for a person to allow."""
    step = answer.step
    if step is None:
        return answer.risk
    if any(forbidden_command_in(line) for line in step.instructions.splitlines()):
        return Risk.HIGH
    return max(step_risk(step), answer.risk or Risk.LOW, key=list(Risk).index)


def _signals(turn: Turn, answer: Implement) -> list[Signal]:
    """Return what rules count of *answer*."""
    task = turn.state.task(str(turn.task))
    said = {
        SignalName.TESTS: answer.tests_ended,
        SignalName.CONFIDENCE: answer.confidence,
        SignalName.RISK: _risk(answer) if answer.step else None,
    }
    phase = task.position.phase if task.position else None
    about = Signal(name=SignalName.TESTS, at=turn.place.clock(), phase=phase, role=turn.hat)
    return [about.replace(name=name, value=value) for name, value in said.items() if value is not None]


def _without_answer(turn: Turn, asked: AgentAnswer) -> Event:
    """Return what becomes of a task whose agent gave no answer; a crash may use up a round, as a no does."""
    event = coder.event_without_answer(asked.reply, asked.why)
    return _as_document_says(turn, event)


def _as_document_says(turn: Turn, event: Event) -> Event:
    """Return *event*, or the report that it is by a document that counts failures, or leads blocks on."""
    is_used = turn.place.workflow(turn.state).crash_consumes_iteration
    if is_used and isinstance(event, e.Release) and event.failed:
        return e.Report(outcome=GateOutcome.NONE, reason=event.reason)
    if not isinstance(event, e.Block) or event.only_people:
        return event
    edges, flow = _phase(turn).edges, turn.place.workflow(turn.state)
    if GateOutcome.BLOCK in edges:
        return e.Report(outcome=GateOutcome.BLOCK, reason=event.reason, questions=event.questions)
    if GateOutcome.REVISE in edges and edges[GateOutcome.REVISE].to in flow.phases:
        # Whoever planned it can say what to do instead: they get the blocker as what was found wrong.
        wrong = tuple(Feedback(message=one) for one in (event.reason, *event.questions))
        return e.Report(outcome=GateOutcome.REVISE, reason=f"blocked: {event.reason}", feedback=wrong)
    return event


def _run_setup(turn: Turn, worktree: Worktree) -> bool:
    """Run the project's setup; return False and pause the run where it fails on the base."""
    try:
        why = worktree_setup.run_setup(turn, worktree)
    except course.Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    if why is None:
        return True
    turn.place.stop_requests.pause(f"{printable(why)}; mend it, or gates.setup, then `liza resume`")
    turn.record(e.Release(reason="the project's setup fails, so that nobody can begin"))
    return False


def _prepare_worktree(place: Worker, claimed: ClaimedTask) -> Worktree:
    """Return the worktree: as it was left for the same coder, fresh for another, brought up to date."""
    task, at, trees = claimed.task, place.clock(), place.worktrees
    base = str(task.base_commit)
    if found := trees.worktree_at(trees.path_of(task.id)):
        import_after_crash(place.home / SANDBOXES, found, task.id)
        if where := pop_idle_change(found):
            told = f"{task.id}: its worktree was touched in {where} while nobody worked on it"
            place.tell([f"{told}; its coder finds it so, unless you put it back"])
    is_mine = claimed.before.authors[-1:] == (place.name,) or coder.is_carried_on(claimed.before)
    if claimed.state.config.remote and (is_mine or claimed.before.status is Status.INTEGRATION_FAILED):
        place.exchange.bring_branch(claimed.state.config, claimed.before, at=at)
    tip = place.repository.commit_at(branch_of(task.id))
    is_current = tip is None or place.repository.contains(tip, base)
    if is_mine and is_current and claimed.before.status is not Status.INTEGRATION_FAILED:
        return trees.prepare(task.id, base, at=at)
    if tip is None or (not is_mine and claimed.before.status is not Status.INTEGRATION_FAILED):
        return trees.renew(task.id, base, at=at)
    # What was approved, or begun, is laid over the new base without a commit, with git's marks where
    # the two do not fit: no commit with marks in it can ever reach the integration branch.
    try:
        over = merge(place.repository, base, tip)
    except GitFailed:  # its agent wrote history anew, and nothing of it has to do with the base any more
        return trees.renew(task.id, base, at=at)
    worktree = trees.renew(task.id, base, at=at)
    overlay(worktree, over.tree)
    return worktree


def _ask_checkpoint(turn: Turn, worktree: Worktree) -> AgentAnswer:
    task = turn.state.task(str(turn.task))

    def check(value: AnswerValue) -> str | None:
        said = (
            coder.SAYS_NOTHING if isinstance(value, CheckpointAnswer) and coder.says_nothing(value) else None
        )
        return unchanged() or said

    def unchanged() -> str | None:
        before, after = turn.place.trees.before, turn.place.trees.after
        if before is None or before == after:
            return None
        roll_back(worktree, task.id, head=before.head, tree=before.tree, at=turn.place.clock())
        return "the worktree was changed in a step that is read-only; it was put back"

    facts = prompt_values.for_checkpoint(turn.state, task)
    asked = turn.ask(Step.CHECKPOINT, facts, worktree.path, check=check)
    if asked.value is None and worktree.is_there:
        unchanged()
    return asked


def _record_block(turn: Turn, answer: CheckpointAnswer) -> AfterTurn:
    """Record what a coder has to know before it begins."""
    if turn.lease_renewer.lost:
        log.warning("%s: what its agent asks is not used", turn.lease_renewer.lost)
        return AfterTurn.WORK
    block = e.Block(reason=str(answer.blocked_reason), questions=answer.blocked_questions)
    turn.record(block, more=lambda state: turn.with_anomalies(state, answer.anomalies))
    return AfterTurn.WORK


def _pass_checkpoint(turn: Turn, asked: AgentAnswer) -> bool:
    """Record the checkpoint, run its gates, and return whether the work may begin."""
    if isinstance(asked.value, CheckpointAnswer):
        checkpoint, anomalies = e.Write(checkpoint=asked.value.checkpoint()), asked.value.anomalies
        more = (lambda state: turn.with_anomalies(state, anomalies)) if anomalies else None
        turn.state = turn.record(checkpoint, more=more, then=Step.IMPLEMENT)
    task, flow = turn.state.task(str(turn.task)), turn.place.workflow(turn.state)
    if task.status is not Status.WORKING:
        return False
    base = str(task.base_commit)
    try:
        with course.gate_context(turn, task, base, base, course.agent_output(asked)) as case:
            found = course.run_gates(turn, flow, task.position, case)
    except course.Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    except BrokenGate as error:
        turn.broken(error, e.Release(reason=printable(str(error))))
        return False
    if found.outcome is not GateOutcome.PASS:
        turn.record(coder.event_for_gates(found.outcome, base, found))
        return False
    turn.verdicts = found.verdicts
    return True


class _CommitProof:
    """Accepts work as done if its coder committed something and gave no readable answer.

    Gates and a reviewer judge it anyway. A coder that says it is blocked is asked again instead.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __call__(self, asked: AgentAnswer) -> Implement | None:
        before, after = self._turn.place.trees.before, self._turn.place.trees.after
        if before is None or after is None or before.head == after.head or says_blocked(asked.reply.text):
            return None
        log.info("%s: taken as done, because it committed; %s", self._turn.task, asked.why)
        return Implement(status=WorkStatus.DONE, summary=f"Finish {self._turn.task}")


def _hand_in(turn: Turn, worktree: Worktree, asked: AgentAnswer, answer: Implement) -> None:
    """Submit what was done, after the patch is applied where the answer is one."""
    if answer.status is WorkStatus.DONE and _answers_with_patch(turn):
        why = apply_patch(worktree, patch_in(asked.reply.text))
        if why is not None:
            turn.record(_as_document_says(turn, e.Release(reason=why, failed=True)))
            return
        answer = answer.replace(summary=f"Try {turn.state.task(str(turn.task)).description}")
    _submit(turn, worktree, asked, answer)


def _submit(turn: Turn, worktree: Worktree, asked: AgentAnswer, answer: Implement) -> None:
    task = turn.state.task(str(turn.task))
    head: str | None = None
    reasons: tuple[str, ...] = ()
    after = turn.place.trees.after
    # What was known of the files when the run ended, unless its patch was applied since then.
    tree = after.tree if after and not _answers_with_patch(turn) else None
    if answer.status is WorkStatus.DONE and worktree.is_there:
        message = coder.commit_message(task, answer)
        commit_all(worktree, message, at=turn.place.clock(), tree=tree)
    if answer.status is WorkStatus.DONE:
        head, reasons = inspect_submission(worktree, task.id, str(task.base_commit), tree=tree)
        reasons += _conflict_mark_faults(turn, task, head)
        reasons += _copied_file_faults(turn, task, head)
    _record_at_rest(turn, worktree)
    event = coder.event_for_answer(answer, head, tuple(map(printable, reasons)))
    if isinstance(event, e.Report):
        event = event.replace(verdicts=turn.verdicts)
    if isinstance(event, e.Report) and event.commit:
        # What an agent committed itself, nobody has synced yet.
        sync_work(turn.place.repository, str(task.base_commit), event.commit, branch_of(task.id))
        event = event.replace(tree=turn.place.repository.tree_of(event.commit))
        try:
            event = _judge_submission(turn, task, str(event.commit), asked, answer)
        except BrokenGate as error:
            # Handed in as it is: whoever reviews it asks the gates first, and no agent is paid for it again.
            turn.broken(error, event)
            return
    elif isinstance(event, e.Report):
        event = _verify_nothing_to_do(turn, task, event, asked)
    event = _as_document_says(turn, event)
    if isinstance(event, e.Report):
        event = _with_words(turn, asked, answer, event)
    turn.comments.append((str(turn.hat), answer.summary or str(answer.blocked_reason)))
    turn.record(event, more=lambda state: _with_side_reports(turn, state, answer, event))


def _with_words(turn: Turn, asked: AgentAnswer, answer: Implement, event: e.Report) -> e.Report:
    """Return *event* with what is kept for who works on the task next."""
    said = event.replace(session=_work_session(turn, asked), remember=answer.remember)
    phase, task = _phase(turn), turn.state.task(str(turn.task))
    return with_work_handed_on(turn.place.repository, phase, task, answer, said) if phase.hands_on else said


def _answers_with_patch(turn: Turn) -> bool:
    """Return whether the hat of *turn* says what to change instead of changing it."""
    return turn.place.workflow(turn.state).hat(str(turn.hat)).dialect == PATCH_DIALECT


def _record_at_rest(turn: Turn, worktree: Worktree) -> None:
    """Record the state of *worktree*, so that a change made while nobody holds its task is noticed."""
    if turn.tamper_monitor and worktree.is_there:
        record_idle_state(worktree)


def _judge_submission(turn: Turn, task: Task, head: str, asked: AgentAnswer, answer: Implement) -> Event:
    """Run the gates on *head* and return the event that follows: submit, revise, or a question."""
    try:
        found = _run_machine_gates(turn, task, head, asked)
        if found.outcome is GateOutcome.PASS or not blames_history(found.feedback):
            return coder.event_for_gates(found.outcome, head, found)
        many = Squashing(str(task.base_commit), head, coder.commit_message(task, answer))
        one = squash(turn.place.repository, many, at=turn.place.clock())
        why = f"{found.against}: {found.reason}"
        found = _run_machine_gates(turn, task, one, asked, before=found.verdicts)
    except course.Halted:
        return e.Release(reason="it was stopped before its gates were through")
    move_squashed(turn.place.repository, task.id, one, instead_of=head)
    event = coder.event_for_gates(found.outcome, one, found)
    return (
        event.replace(squashed=head, squashed_for=why)
        if isinstance(event, e.Report) and event.commit
        else event
    )


def _run_machine_gates(
    turn: Turn, task: Task, head: str, asked: AgentAnswer, before: Sequence[Verdict] = ()
) -> course.GatesResult:
    flow, tree = turn.place.workflow(turn.state), turn.place.repository.tree_of(head)
    work = Worked(turn.place.clock(), tree=tree, run=asked.run)
    known = tuple(one for one in before if one.outcome is GateOutcome.PASS) or turn.verdicts
    with course.gate_context(turn, task, str(task.base_commit), head, course.agent_output(asked)) as case:
        facts = _known_facts(asked.value) if isinstance(asked.value, Implement) else frozenset()
        found = course.run_gates(turn, flow, task.position, case, work=work, before=known, known=facts)
    log.info("%s: the gates say %s", task.id, found.outcome)
    return found._replace(verdicts=(*known, *found.verdicts))


def _verify_nothing_to_do(turn: Turn, task: Task, claim: e.Report, asked: AgentAnswer) -> Event:
    """Return *claim*, unless a check of the task itself fails."""
    flow, base = turn.place.workflow(turn.state), str(task.base_commit)
    try:
        with course.gate_context(turn, task, base, base, course.agent_output(asked)) as case:
            said = course.run_own_checks(flow, case)
    except course.Halted:
        return e.Release(reason="it was stopped before its claim was checked")
    except BrokenGate:  # whoever reviews the claim asks again
        return claim
    if not said:
        return claim
    reason = f"there is something to do: {said[-1].reason}"
    feedback = said[-1].feedback or (Feedback(message=reason),)
    return e.Report(
        outcome=GateOutcome.REVISE, reason=reason, feedback=feedback, verdicts=(*turn.verdicts, *said)
    )


def _conflict_mark_faults(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return why a conflict that was given back is not resolved; only then there may be marks of it."""
    if head is None or not task.conflicted:
        return ()
    paths = conflict_marked_paths(turn.place.repository, str(task.base_commit), head)
    return tuple(f"{task.id}: conflict marks are left in {path}; resolve them" for path in paths)


def _copied_file_faults(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return which files of the user's checkout were committed that every worktree gets a copy of."""
    names = turn.state.config.worktree.copied
    if head is None or not names:
        return ()
    paths = list_tree(turn.place.repository, head)
    found = committed_copies(names, paths)
    return tuple(f"{task.id}: {path} is a copy of the user's own file; take it out" for path in found)


def _with_side_reports(turn: Turn, state: State, answer: Implement, event: Event) -> State:
    """Return the board with the anomalies and discoveries of *answer*, and without the hand-over that was
    used.
    """
    name, at, task = turn.place.name, turn.place.clock(), turn.task
    state = turn.with_anomalies(state, answer.anomalies)
    state = with_signals(state, str(task), *_signals(turn, answer))
    for found in answer.discovered:
        state = with_discovery(state, found.description, urgency=found.urgency, about=task, by=name, at=at)
    is_handed_in = isinstance(event, e.Report) and event.outcome is GateOutcome.PASS
    if is_handed_in and task in state.handoff:
        return state.replace(handoff={key: value for key, value in state.handoff.items() if key != task})
    return state


def _record_no_answer(turn: Turn, worktree: Worktree, asked: AgentAnswer) -> AfterTurn:
    ending, name, at = asked.reply.ending, str(turn.task), turn.place.clock()
    is_full = ending is RunEnding.CONTEXT_FULL
    if is_full:
        commit_all(worktree, f"Work in progress on {name}", at=at)
    elif worktree.is_there:
        salvage.save_work(turn.place.repository, name, worktree, at=at)
    _record_at_rest(turn, worktree)

    def more(state: State) -> State:
        note = Handoff(id=name, agent=turn.place.name, timestamp=at, summary=_last_words(asked))
        return state.replace(handoff=with_record(state.handoff, note)) if is_full else state

    turn.record(_without_answer(turn, asked), more=more)
    return AfterTurn.RESTART if is_full else AfterTurn.WORK


def _last_words(asked: AgentAnswer) -> str:
    return (
        asked.reply.text.strip()[-LONGEST_HANDOFF:].strip() or "its context was full before it said anything"
    )


def _give_up(turn: Turn, event: Event) -> None:
    try:
        turn.record(event)
    except Refused as error:
        log.warning("%s", error)
