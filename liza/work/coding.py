"""A coder's turn: claim, prepare the worktree, checkpoint, implement, hand in what git says was done."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from liza import events as e
from liza import money
from liza.agents.protocol import Ending
from liza.answers import says_blocked
from liza.changes import Change, apply, with_discovery
from liza.errors import BrokenGate, DiskTrouble, GitFailed, InvalidBoard, LizaError, Refused, UnfitRepository
from liza.gates.finding import blames_history
from liza.model import Handoff, Status
from liza.money import Cap
from liza.record import printable, with_record
from liza.replies import CheckpointAnswer, Implement, Outcome, Step
from liza.repo import salvage
from liza.repo.content import commit_all, conflict_marks, lay, put_back
from liza.repo.copies import committed_copies
from liza.repo.durable import sync_work
from liza.repo.merging import merge
from liza.repo.objects import listing
from liza.repo.repository import branch_of
from liza.repo.shadow import left_by_a_crash
from liza.repo.squash import Squashing, move_squashed, squash
from liza.repo.submission import submission
from liza.repo.trespass import leave_at_rest, touched_at_rest
from liza.roles import coder
from liza.roles.admission import admitted, closed
from liza.verdicts import Feedback
from liza.verdicts import Outcome as GateOutcome
from liza.work import course, known, setup
from liza.work.caging import CAGES
from liza.work.flows import asks_checkpoint
from liza.work.ruling import ruled
from liza.work.turn import Next, Strayed, begun, held_by
from liza.workflows.position import Worked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liza.events import Event
    from liza.model import State, Task
    from liza.replies import Value
    from liza.repo.worktree import Worktree
    from liza.roles.admission import Run
    from liza.verdicts import Verdict
    from liza.work.turn import Asked, Place, Turn

LONGEST_HANDOFF: Final = 4000  # characters of an agent's last words that the next one is given
GONE: Final = (
    "the integration branch {name} is gone; put it back (`git branch {name} <commit>`), then `liza resume`"
)

log = logging.getLogger(__name__)


class Claimed(NamedTuple):
    """A task that was taken: as it is now, and as it was before."""

    state: State
    task: Task
    before: Task
    token: str


def turn(place: Place) -> Next:
    """Do one task, if there is one to do."""
    state = place.board.read()
    task = coder.pick(state, place.name)
    if task is None or not place.may_begin(state, _first_run(place, state, task)):
        return Next.WAIT
    head = _base(place, state)
    if head is None:
        return Next.WAIT
    claimed = claimed_by(place, head)
    if claimed is None:
        return Next.WORK
    log.info("%s: claimed, iteration %d", claimed.task.id, claimed.task.iteration)
    run = _first_run(place, claimed.state, claimed.task)
    with begun(place, claimed.state, claimed.task, claimed.token, admitted=run) as turn:
        return _worked(turn, claimed)


def _base(place: Place, state: State) -> str | None:
    """Return what new work begins at; None where people have to put the integration branch right first."""
    head = place.repository.commit_at(place.integration(state))
    if head is None:
        place.orders.pause(GONE.format(name=state.config.integration_branch))
        return None
    return head if place.is_known(head) else None


def _worked(turn: Turn, claimed: Claimed) -> Next:
    try:
        worktree = _prepared(turn.place, claimed)
        return _work(turn, claimed, worktree) if _is_ready(turn, worktree) else Next.WORK
    except Refused as error:  # somebody else decides about the task now, so nothing more is written
        log.warning("%s", turn.keeper.lost or error)
    except Strayed as found:
        turn.drifted(found.moved, "tests")
    except (DiskTrouble, InvalidBoard):
        raise
    except UnfitRepository as error:
        question = "Can you put the repository right, so that this can go on?"
        block = e.Block(reason=printable(str(error)), questions=(question,), only_people=True)
        _given_up(turn, block)
    except LizaError as error:  # the agent left a worktree that git cannot work with
        _given_up(turn, e.Fail(reason=printable(str(error))))
    return Next.WORK


def _first_run(place: Place, state: State, task: Task) -> Run:
    return place.wanted(state, Step.CHECKPOINT, task.id, Step.IMPLEMENT)


def claimed_by(place: Place, head: str) -> Claimed | None:
    """Take the task that comes next, chosen under the lock; None where others were faster."""
    token, taken = secrets.token_hex(16), []
    by = place.actor(token)

    def make(state: State) -> State:
        task, at = coder.pick(state, place.name), place.clock()
        run = _first_run(place, state, task) if task else None
        shut = closed(state, run, at) if run else None
        if task is None or run is None or (shut and shut.cap is not Cap.TASK):
            return state
        taken.append(task)
        most = place.workflow(state).phases[place.workflow(state).start].most(None)
        claim = e.Claim(lease=place.lease(state, token), base_commit=coder.base_for(task, place.name, head))
        state = apply(claim, to=task.id, by=by, at=at)(state)
        if most is not None and coder.is_spent(task, most):
            return apply(coder.spent(most), to=task.id, by=by, at=at)(state)
        if shut:
            state, block = money.blocked(state, task.id)
            return apply(block, to=task.id, by=by, at=at)(state)
        state = ruled(place.workflow(state), state, task.id, at)
        return admitted(state, run, at) if state.task(task.id).lease else state

    state = place.board.update(Change(place.name, "claim", make, about=lambda: taken[-1].id))
    task = held_by(state, token)
    return Claimed(state, task, taken[-1], token) if task else None


def _work(turn: Turn, claimed: Claimed, worktree: Worktree) -> Next:
    asked = _checkpointed(turn, worktree) if asks_checkpoint(turn.place.workflow(turn.state)) else None
    if asked is not None and isinstance(asked.value, CheckpointAnswer) and asked.value.is_blocked:
        return _cannot_begin(turn, asked.value)
    if asked is None or isinstance(asked.value, CheckpointAnswer):
        if asked is not None and not _is_let_begin(turn, asked):
            return Next.WORK
        task = turn.state.task(claimed.task.id)
        facts, begins = known.for_implement(turn.state, task), turn.place.trees.after if asked else None
        turn.proof = _Proof(turn)
        asked = turn.ask(Step.IMPLEMENT, facts, worktree.path, begins=begins)
    setup.tear_down(turn, worktree)
    if turn.keeper.lost:
        log.warning("%s: what its agent did after that is not used", turn.keeper.lost)
        return Next.WORK
    if asked.moved:
        turn.drifted(asked.moved)
        return Next.WORK
    if isinstance(asked.value, Implement):
        _hand_in(turn, worktree, asked, asked.value)
        return Next.WORK
    return _without_answer(turn, worktree, asked)


def _is_ready(turn: Turn, worktree: Worktree) -> bool:
    """Run the project's setup; where it fails on the base, tell people and hold it against nobody."""
    try:
        why = setup.make_ready(turn, worktree)
    except course.Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    if why is None:
        return True
    turn.place.orders.pause(f"{printable(why)}; mend it, or gates.setup, then `liza resume`")
    turn.record(e.Release(reason="the project's setup fails, so that nobody can begin"))
    return False


def _prepared(place: Place, claimed: Claimed) -> Worktree:
    """Return the worktree: as it was left for the same coder, fresh for another, brought up to date."""
    task, at, trees = claimed.task, place.clock(), place.worktrees
    base = str(task.base_commit)
    if found := trees.registered(trees.path_of(task.id)):
        left_by_a_crash(place.home / CAGES, found, task.id)
        if where := touched_at_rest(found):
            told = f"{task.id}: its worktree was touched in {where} while nobody worked on it"
            place.tell([f"{told}; its coder finds it so, unless you put it back"])
    tip = place.repository.commit_at(branch_of(task.id))
    is_mine = claimed.before.authors[-1:] == (place.name,)
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
    lay(worktree, over.tree)
    return worktree


def _checkpointed(turn: Turn, worktree: Worktree) -> Asked:
    task = turn.state.task(str(turn.task))

    def check(value: Value) -> str | None:
        said = (
            coder.SAYS_NOTHING if isinstance(value, CheckpointAnswer) and coder.says_nothing(value) else None
        )
        return unchanged() or said

    def unchanged() -> str | None:
        before, after = turn.place.trees.before, turn.place.trees.after
        if before is None or before == after:
            return None
        put_back(worktree, task.id, head=before.head, tree=before.tree, at=turn.place.clock())
        return "the worktree was changed in a step that is read-only; it was put back"

    facts = known.for_checkpoint(turn.state, task)
    asked = turn.ask(Step.CHECKPOINT, facts, worktree.path, check=check)
    if asked.value is None and worktree.is_there:
        unchanged()
    return asked


def _cannot_begin(turn: Turn, answer: CheckpointAnswer) -> Next:
    """Record what a coder has to know before it begins."""
    if turn.keeper.lost:
        log.warning("%s: what its agent asks is not used", turn.keeper.lost)
        return Next.WORK
    block = e.Block(reason=str(answer.blocked_reason), questions=answer.blocked_questions)
    turn.record(block, more=lambda state: turn.with_anomalies(state, answer.anomalies))
    return Next.WORK


def _is_let_begin(turn: Turn, asked: Asked) -> bool:
    """Write the checkpoint down, and tell whether no rule and no gate stops the task for what it says."""
    if isinstance(asked.value, CheckpointAnswer):
        checkpoint, anomalies = e.WriteCheckpoint(checkpoint=asked.value.checkpoint()), asked.value.anomalies
        more = (lambda state: turn.with_anomalies(state, anomalies)) if anomalies else None
        turn.state = turn.record(checkpoint, more=more, then=Step.IMPLEMENT)
    task, flow = turn.state.task(str(turn.task)), turn.place.workflow(turn.state)
    if task.status is not Status.WORKING:
        return False
    base = str(task.base_commit)
    try:
        with course.case_of(turn, task, base, base, course.said(asked)) as case:
            found = course.judged(turn, flow, course.coding(flow, task), case)
    except course.Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    except BrokenGate as error:
        turn.broken(error, e.Release(reason=printable(str(error))))
        return False
    if found.outcome is not GateOutcome.PASS:
        turn.record(coder.judged(found.outcome, base, found))
        return False
    turn.verdicts = found.verdicts
    return True


class _Proof:
    """Takes work for done whose coder committed something and gave no answer that can be read.

    What it did is judged by machines and a reviewer in any case. Whoever speaks of being blocked is asked.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __call__(self, asked: Asked) -> Implement | None:
        before, after = self._turn.place.trees.before, self._turn.place.trees.after
        if before is None or after is None or before.head == after.head or says_blocked(asked.reply.text):
            return None
        log.info("%s: taken as done, because it committed; %s", self._turn.task, asked.why)
        return Implement(status=Outcome.DONE, summary=f"Finish {self._turn.task}")


def _hand_in(turn: Turn, worktree: Worktree, asked: Asked, answer: Implement) -> None:
    task = turn.state.task(str(turn.task))
    head: str | None = None
    reasons: tuple[str, ...] = ()
    if answer.status is Outcome.DONE and worktree.is_there:
        after = turn.place.trees.after
        message = coder.message_of(task, answer)
        commit_all(worktree, message, at=turn.place.clock(), tree=after and after.tree)
    if answer.status is Outcome.DONE:
        after = turn.place.trees.after
        tree = after and after.tree
        head, reasons = submission(worktree, task.id, str(task.base_commit), tree=tree)
        reasons += _unresolved(turn, task, head)
        reasons += _copied(turn, task, head)
    _leave(turn, worktree)
    event = coder.concluded(answer, head, tuple(map(printable, reasons)))
    if isinstance(event, e.Submit):  # what an agent committed itself, nobody has synced yet
        sync_work(turn.place.repository, str(task.base_commit), event.commit, branch_of(task.id))
    if isinstance(event, e.Submit):
        try:
            event = _through_gates(turn, task, event.commit, asked, answer)
        except BrokenGate as error:
            # Handed in as it is: whoever reviews it asks the gates first, and no agent is paid for it again.
            turn.broken(error, event)
            return
    elif isinstance(event, e.FindNothing):
        event = _believed(turn, task, event, asked)
    turn.record(event, more=lambda state: _told(turn, state, answer, event))


def _leave(turn: Turn, worktree: Worktree) -> None:
    """Remember what *worktree* is, where others could get into it before its task is taken again."""
    if turn.lookout and worktree.is_there:
        leave_at_rest(worktree)


def _through_gates(turn: Turn, task: Task, head: str, asked: Asked, answer: Implement) -> Event:
    """Return what the machines of the workflow make of *head*: handed in, sent back, or a question.

    Where commits on the way are at fault that the head's tree is not, as one that a later commit took back,
    one commit of the same tree takes their place: an agent hardly knows how, and none of it may be merged.
    """
    try:
        found = _asked_machines(turn, task, head, asked)
        if found.outcome is GateOutcome.PASS or not blames_history(found.feedback):
            return coder.judged(found.outcome, head, found)
        many = Squashing(str(task.base_commit), head, coder.message_of(task, answer))
        one = squash(turn.place.repository, many, at=turn.place.clock())
        why = f"{found.against}: {found.reason}"
        found = _asked_machines(turn, task, one, asked, before=found.verdicts)
    except course.Halted:
        return e.Release(reason="it was stopped before its gates were through")
    move_squashed(turn.place.repository, task.id, one, instead_of=head)
    event = coder.judged(found.outcome, one, found)
    return event.but(squashed=head, squashed_for=why) if isinstance(event, e.Submit) else event


def _asked_machines(
    turn: Turn, task: Task, head: str, asked: Asked, before: Sequence[Verdict] = ()
) -> course.Judged:
    flow, tree = turn.place.workflow(turn.state), turn.place.repository.tree_of(head)
    work = Worked(turn.place.clock(), tree=tree, run=asked.run)
    position = course.worked(flow, course.coding(flow, task), work)
    with course.case_of(turn, task, str(task.base_commit), head, course.said(asked)) as case:
        found = course.judged(turn, flow, position, case, before)
    log.info("%s: the gates say %s", task.id, found.outcome)
    return found._replace(verdicts=(*turn.verdicts, *found.verdicts))


def _believed(turn: Turn, task: Task, claim: e.FindNothing, asked: Asked) -> Event:
    """Return *claim*, unless a command that shows when the task is done says that it is not."""
    flow, base = turn.place.workflow(turn.state), str(task.base_commit)
    try:
        with course.case_of(turn, task, base, base, course.said(asked)) as case:
            said = course.denied(flow, case)
    except course.Halted:
        return e.Release(reason="it was stopped before its claim was checked")
    except BrokenGate:  # whoever reviews the claim asks again
        return claim
    if not said:
        return claim
    reason = f"there is something to do: {said[-1].reason}"
    feedback = said[-1].feedback or (Feedback(message=reason),)
    return e.Revise(reason=reason, feedback=feedback, verdicts=(*turn.verdicts, *said), phase=flow.start)


def _unresolved(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return why a conflict that was given back is not resolved; only then there may be marks of it."""
    if head is None or not task.conflicted:
        return ()
    paths = conflict_marks(turn.place.repository, str(task.base_commit), head)
    return tuple(f"{task.id}: conflict marks are left in {path}; resolve them" for path in paths)


def _copied(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return which files of the user's checkout were committed that every worktree gets a copy of."""
    names = turn.state.config.worktree.copied
    if head is None or not names:
        return ()
    paths = listing(turn.place.repository, head)
    found = committed_copies(names, paths)
    return tuple(f"{task.id}: {path} is a copy of the user's own file; take it out" for path in found)


def _told(turn: Turn, state: State, answer: Implement, event: Event) -> State:
    """Return the board with what the agent says beside its outcome; a hand-over that was used goes."""
    name, at, task = turn.place.name, turn.place.clock(), turn.task
    state = turn.with_anomalies(state, answer.anomalies)
    for found in answer.discovered:
        state = with_discovery(state, found.description, urgency=found.urgency, about=task, by=name, at=at)
    if isinstance(event, e.Submit | e.FindNothing) and task in state.handoff:
        return state.but(handoff={key: value for key, value in state.handoff.items() if key != task})
    return state


def _without_answer(turn: Turn, worktree: Worktree, asked: Asked) -> Next:
    ending, name, at = asked.reply.ending, str(turn.task), turn.place.clock()
    is_full = ending is Ending.CONTEXT_FULL
    if is_full:
        commit_all(worktree, f"Work in progress on {name}", at=at)
    elif worktree.is_there:
        salvage.save(turn.place.repository, name, worktree, at=at)
    _leave(turn, worktree)

    def more(state: State) -> State:
        note = Handoff(id=name, agent=turn.place.name, timestamp=at, summary=_last_words(asked))
        return state.but(handoff=with_record(state.handoff, note)) if is_full else state

    turn.record(coder.without_answer(asked.reply, asked.why), more=more)
    return Next.RESTART if is_full else Next.WORK


def _last_words(asked: Asked) -> str:
    return (
        asked.reply.text.strip()[-LONGEST_HANDOFF:].strip() or "its context was full before it said anything"
    )


def _given_up(turn: Turn, event: Event) -> None:
    try:
        turn.record(event)
    except Refused as error:
        log.warning("%s", error)
