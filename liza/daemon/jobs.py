"""One turn of any worker: find a job for its kind, take it, do it.

The engine says what is next for a task, and the table `BY_STAGE` who does that; a question to a person is
nobody's here. What differs by the kind of worker are the rows of `TURNS` and of `policy/jobs.py`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from liza.agents.protocol import Session
from liza.agents.select import backend_of
from liza.daemon import prompting
from liza.daemon.ask_agent import ask
from liza.daemon.judge import (
    GateTampered,
    Halted,
    agent_output,
    gate_context,
    integrate,
    judge,
    retry_merge,
    run_gates,
    run_own_checks,
    setup_runner,
)
from liza.daemon.planning import judge_plan, make_plan, tidy_board
from liza.daemon.policy import pick
from liza.daemon.policy.jobs import JOB_POLICIES
from liza.daemon.policy.pick import admit, denial_of
from liza.daemon.project_sandbox import SANDBOXES
from liza.daemon.prompting import shown_to
from liza.daemon.turn import AfterTurn, TakenTask, open_turn
from liza.domain import budget
from liza.domain import lifecycle as e
from liza.domain.answer_parsing import says_blocked
from liza.domain.answers import CheckpointAnswer, Implement, Step, WorkStatus
from liza.domain.budget import Cap
from liza.domain.changes import Change, with_discovery, with_signals
from liza.domain.config import PlanApproval
from liza.domain.dialects import PATCH_DIALECT, patch_in
from liza.domain.model import Feedback, Handoff, Outcome, Role, Stage, Status, WorkSession
from liza.domain.phase_handoff import HandoffKind, ImplementHandoff, parse_handoff
from liza.domain.record import printable, with_record
from liza.domain.waits import awaits_plan_reviewer
from liza.errors import BrokenGate, DiskTrouble, GitFailed, InvalidBoard, LizaError, Refused, RemoteTrouble
from liza.gates.context import SETUP, TEARDOWN, blames_history, describe_ending, tail
from liza.repo import salvage
from liza.repo.merge import Squashing, merge, move_squashed, squash
from liza.repo.pool import committed_copies, copy_into, scratch_tree
from liza.repo.private_gitdir import import_after_crash
from liza.repo.repository import branch_of, commits_between, list_tree
from liza.repo.snapshot import (
    added_paths,
    altered_paths,
    apply_patch,
    commit_all,
    commit_checkout,
    conflict_marked_paths,
    overlay,
    pop_idle_change,
    record_idle_state,
    restore_paths,
    roll_back,
    snapshot,
)
from liza.repo.worktree import inspect_submission, sync_work, write_text_whole
from liza.system.files import first_line, read_file
from liza.workflow.document import HatAccess, SessionMode, WorkspaceBase
from liza.workflow.engine import Worked
from liza.workflow.transition import apply, apply_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from liza.daemon.ask_agent import AgentAnswer
    from liza.daemon.turn import Turn, Worker
    from liza.domain.answers import AnswerValue
    from liza.domain.budget import AdmissionRequest
    from liza.domain.lifecycle import Event
    from liza.domain.model import State, Task, Verdict
    from liza.domain.record import Record
    from liza.gates.context import CommandResult
    from liza.repo.repository import Repository
    from liza.repo.worktree import Worktree
    from liza.workflow.document import Phase
    from liza.workflow.engine import GatesResult


# Work of an agent: prepare what its hat may touch, ask, hand in what came of it.
#
# Who may write gets a worktree on the branch of the task, and hands in what git says was done. Who may only
# read gets a checkout that is thrown away, and hands in what it says.

# What an agent works in: the commit that its work starts from, its worktree, and the project's setup there.
#
# The setup runs once, until a lock file or a manifest changes. Gates set up every tree that they test, since
# what a setup builds belongs to the tree. An agent keeps its worktree over many turns and can build by
# itself; what it needs again is what was installed.

# What says which packages a project has, by the end of the path.
DEPENDENCY_FILES: Final = (
    *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock"),
    *("bun.lockb", "pyproject.toml", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile", "Pipfile.lock"),
    *("setup.py", "setup.cfg", "requirements*.txt", "environment.yml", "Cargo.toml", "Cargo.lock", "go.mod"),
    *("go.sum", "Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "pom.xml", "build.gradle"),
    *(
        "build.gradle.kts",
        "gradle.lockfile",
        "mix.exs",
        "mix.lock",
        "pubspec.yaml",
        "pubspec.lock",
        "Makefile",
    ),
)
SHOWN_LINES: Final = 15  # lines of a failed setup that people are told

BRANCH_GONE: Final = (
    "the integration branch {name} is gone; put it back (`git branch {name} <commit>`), then `liza resume`"
)

log = logging.getLogger(__name__)


def base_commit(worker: Worker, state: State) -> str | None:
    """Return the commit that new work starts from; None while the integration branch needs repair."""
    base = worker.workflow(state).workspace.base
    if base is WorkspaceBase.WORKING_TREE or state.config.experiment.base_on_working_tree:
        # The same files make the same commit on every worker.
        return commit_checkout(worker.repository, at=state.goal.created)
    if base is WorkspaceBase.HEAD:
        return worker.repository.head()
    head = worker.repository.commit_at(worker.integration(state))
    if head is None:
        worker.stop_requests.pause(BRANCH_GONE.format(name=state.config.integration_branch))
        return None
    return head if worker.verify_head(head) else None


def prepare_worktree(worker: Worker, taken: TakenTask) -> Worktree:
    """Return the worktree: as it was left for the same coder, fresh for another, brought up to date."""
    task, at, trees = taken.task, worker.clock(), worker.worktrees
    base = str(task.base_commit)
    if found := trees.worktree_at(trees.path_of(task.id)):
        import_after_crash(worker.home / SANDBOXES, found, task.id)
        if where := pop_idle_change(found):
            told = f"{task.id}: its worktree was touched in {where} while nobody worked on it"
            worker.tell([f"{told}; its coder finds it so, unless you put it back"])
    is_mine = taken.before.authors[-1:] == (worker.name,) or pick.is_carried_on(taken.before)
    if taken.state.config.remote and (is_mine or taken.before.status is Status.INTEGRATION_FAILED):
        worker.exchange.bring_branch(taken.state.config, taken.before, at=at)
    tip = worker.repository.commit_at(branch_of(task.id))
    is_current = tip is None or worker.repository.contains(tip, base)
    if is_mine and is_current and taken.before.status is not Status.INTEGRATION_FAILED:
        return trees.prepare(task.id, base, at=at)
    if tip is None or (not is_mine and taken.before.status is not Status.INTEGRATION_FAILED):
        return trees.renew(task.id, base, at=at)
    # What was approved, or begun, is laid over the new base without a commit, with git's marks where
    # the two do not fit: no commit with marks in it can ever reach the integration branch.
    try:
        merged = merge(worker.repository, base, tip)
    except GitFailed:  # its agent wrote history anew, and nothing of it has to do with the base any more
        return trees.renew(task.id, base, at=at)
    worktree = trees.renew(task.id, base, at=at)
    overlay(worktree, merged.tree)
    return worktree


def make_ready(turn: Turn, worktree: Worktree) -> bool:
    """Run the project's setup; return False and pause the run where it fails on the base."""
    try:
        why = run_setup(turn, worktree)
    except Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    if why is None:
        return True
    turn.worker.stop_requests.pause(f"{printable(why)}; mend it, or gates.setup, then `liza resume`")
    turn.record(e.Release(reason="the project's setup fails, so that nobody can begin"))
    return False


def run_setup(turn: Turn, worktree: Worktree) -> str | None:
    """Run the project's setup in *worktree*, unless it ran there; return why nobody can work there."""
    config = turn.state.config
    copy_into(turn.worker.repository, config.worktree.copied, worktree.path)
    line = config.gates.setup
    if line is None:
        return None
    key = _setup_key(line, worktree)
    if first_line(worktree.setup_record) == key:
        return None
    before = snapshot(worktree)
    ran = setup_runner(turn)(line, worktree.path, SETUP)
    _exclude_setup_files(worktree, before)
    if ran.is_green:
        write_text_whole(worktree.setup_record, key)
        return None
    why = f"setup ({line}) {describe_ending(ran)} in the worktree of {turn.task}: {_last_lines(ran)}"
    if before == turn.worker.repository.tree_of(str(turn.state.task(str(turn.task)).base_commit)):
        return why
    log.warning("%s; its agent goes on, since it changed what is there", why)
    return None


def run_teardown(turn: Turn, worktree: Worktree) -> None:
    """Run the project's teardown where its setup ran; the next turn begins with the setup then."""
    line = turn.state.config.gates.teardown
    if line is None or not worktree.is_there or not worktree.setup_record.exists():
        return
    with suppress(Halted):
        ran = setup_runner(turn)(line, worktree.path, TEARDOWN)
        worktree.setup_record.unlink()
        # It runs what the agent left, after all that its run left was put right.
        turn.worker.worktrees.secure(worktree, str(turn.task), at=turn.worker.clock())
        if not ran.is_green:
            log.warning("teardown (%s) %s in the worktree of %s", line, describe_ending(ran), turn.task)


def _setup_key(line: str, worktree: Worktree) -> str:
    """Return a hash of the setup command and the dependency files: equal hashes make equal environments."""
    patterns = [f":(glob)**/{name}" for name in DEPENDENCY_FILES]
    names = worktree.git("ls-files", "-z", "--", *patterns).split("\0")
    known = hashlib.sha256(line.encode(errors="surrogateescape"))
    for name in sorted(filter(None, names)):
        known.update(f"\0{name}\0".encode(errors="surrogateescape") + _content(worktree.path, name))
    return known.hexdigest()


def _content(top: Path, name: str) -> bytes:
    try:
        return read_file(top, name)
    except OSError:
        return b""


def _exclude_setup_files(worktree: Worktree, before: str) -> None:
    """Keep files that the setup wrote out of the commits of the task."""
    after = snapshot(worktree)
    if after == before:
        return
    repository = worktree.repository
    restore_paths(worktree, before, altered_paths(repository, before, after))
    worktree.exclude(added_paths(repository, before, after))


def _last_lines(ran: CommandResult) -> str:
    lines = [line.strip() for line in tail(ran.said).splitlines() if line.strip()]
    return " / ".join(lines[-SHOWN_LINES:]) or "it said nothing"


def record_idle_worktree(turn: Turn, worktree: Worktree) -> None:
    """Record the state of *worktree*, so that a change made while nobody holds its task is noticed."""
    if turn.tamper_monitor and worktree.is_there:
        record_idle_state(worktree)


# Hand in what an agent did or said: gates judge it first, and what follows is recorded with it.


def hand_in(turn: Turn, worktree: Worktree, asked: AgentAnswer, answer: Implement) -> None:
    """Submit what was done, after the patch is applied where the answer is one."""
    if answer.status is WorkStatus.DONE and _answers_with_patch(turn):
        why = apply_patch(worktree, patch_in(asked.reply.text))
        if why is not None:
            turn.record(pick.as_document_says(turn.workflow, turn.phase, e.Release(reason=why, failed=True)))
            return
        answer = answer.replace(summary=f"Try {turn.subject.description}")
    _submit(turn, worktree, asked, answer)


def _submit(turn: Turn, worktree: Worktree, asked: AgentAnswer, answer: Implement) -> None:
    task = turn.subject
    head: str | None = None
    reasons: tuple[str, ...] = ()
    after = turn.worker.trees.after
    # What was known of the files when the run ended, unless its patch was applied since then.
    tree = after.tree if after and not _answers_with_patch(turn) else None
    if answer.status is WorkStatus.DONE and worktree.is_there:
        message = pick.commit_message(task, answer)
        commit_all(worktree, message, at=turn.worker.clock(), tree=tree)
    if answer.status is WorkStatus.DONE:
        head, reasons = inspect_submission(worktree, task.id, str(task.base_commit), tree=tree)
        reasons += _conflict_mark_faults(turn, task, head)
        reasons += _copied_file_faults(turn, task, head)
    record_idle_worktree(turn, worktree)
    event = pick.event_for_answer(answer, head, tuple(map(printable, reasons)))
    if isinstance(event, e.Report):
        event = event.replace(verdicts=turn.verdicts)
    if isinstance(event, e.Report) and event.commit:
        # What an agent committed itself, nobody has synced yet.
        sync_work(turn.worker.repository, str(task.base_commit), event.commit, branch_of(task.id))
        event = event.replace(tree=turn.worker.repository.tree_of(event.commit))
        try:
            event = _judge_submission(turn, task, str(event.commit), asked, answer)
        except BrokenGate as error:
            # Submitted as it is: the reviewer runs the gates first, and no agent is paid for it again.
            turn.record_broken_gate(error, event)
            return
    elif isinstance(event, e.Report):
        event = _verify_nothing_to_do(turn, task, event, asked)
    event = pick.as_document_says(turn.workflow, turn.phase, event)
    if isinstance(event, e.Report):
        event = _with_answer_facts(turn, asked, answer, event)
    turn.comments.append((str(turn.hat), answer.summary or str(answer.blocked_reason)))
    turn.record(event, more=lambda state: _with_side_reports(turn, state, answer, event))


def _with_answer_facts(turn: Turn, asked: AgentAnswer, answer: Implement, event: e.Report) -> e.Report:
    """Return *event* with the session, the facts to remember and what the phase hands on."""
    said = event.replace(session=_work_session(turn, asked), remember=answer.remember)
    phase, task = turn.phase, turn.subject
    return _with_work_handed_on(turn.worker.repository, phase, task, answer, said) if phase.hands_on else said


def _answers_with_patch(turn: Turn) -> bool:
    """Return whether the hat of *turn* answers with a patch instead of changing files."""
    return turn.workflow.hat(str(turn.hat)).dialect == PATCH_DIALECT


def _judge_submission(turn: Turn, task: Task, head: str, asked: AgentAnswer, answer: Implement) -> Event:
    """Run the gates on *head* and return the event that follows: submit, revise, or a question."""
    try:
        found = _run_machine_gates(turn, task, head, asked)
        why = _blame_of_history(task, found)
        if why is None:
            return pick.event_for_gates(found.outcome, head, found)
        squashing = Squashing(str(task.base_commit), head, pick.commit_message(task, answer))
        squashed = squash(turn.worker.repository, squashing, at=turn.worker.clock())
        found = _run_machine_gates(turn, task, squashed, asked, before=found.verdicts)
    except Halted:
        return e.Release(reason="it was stopped before its gates were through")
    move_squashed(turn.worker.repository, task.id, squashed, instead_of=head)
    event = pick.event_for_gates(found.outcome, squashed, found)
    return (
        event.replace(squashed=head, squashed_for=why)
        if isinstance(event, e.Report) and event.commit
        else event
    )


def _blame_of_history(task: Task, found: GatesResult) -> str | None:
    """Return why the commits are made one: what is wrong is in one of them, and not in the files any more.

    Gates of a later phase look at all commits as well, and who judges there cannot make them one.
    """
    if found.outcome is not Outcome.PASS:
        return f"{found.against}: {found.reason}" if blames_history(found.feedback) else None
    judged = (
        one.facts for one in reversed(task.history) if one.role is Role.REVIEWER and "gates" in one.facts
    )
    facts = next(judged, {})
    said = tuple(Feedback.model_validate(one) for one in facts.get("feedback", ()))
    return str(facts["reason"]) if blames_history(said) else None


def _run_machine_gates(
    turn: Turn, task: Task, head: str, asked: AgentAnswer, before: Sequence[Verdict] = ()
) -> GatesResult:
    flow, tree = turn.workflow, turn.worker.repository.tree_of(head)
    work = Worked(turn.worker.clock(), tree=tree, run=asked.run)
    earlier = tuple(one for one in before if one.outcome is Outcome.PASS) or turn.verdicts
    with gate_context(turn, task, str(task.base_commit), head, agent_output(asked)) as context:
        facts = pick.known_facts(asked.value) if isinstance(asked.value, Implement) else frozenset()
        found = run_gates(turn, flow, task.position, context, work=work, before=earlier, known=facts)
    log.info("%s: the gates say %s", task.id, found.outcome)
    return found._replace(verdicts=(*earlier, *found.verdicts))


def _verify_nothing_to_do(turn: Turn, task: Task, claim: e.Report, asked: AgentAnswer) -> Event:
    """Return *claim*, unless a check of the task itself fails."""
    flow, base = turn.workflow, str(task.base_commit)
    try:
        with gate_context(turn, task, base, base, agent_output(asked)) as context:
            said = run_own_checks(flow, context)
    except Halted:
        return e.Release(reason="it was stopped before its claim was checked")
    except BrokenGate:  # the reviewer of the claim runs the checks again
        return claim
    if not said:
        return claim
    reason = f"there is something to do: {said[-1].reason}"
    feedback = said[-1].feedback or (Feedback(message=reason),)
    return e.Report(
        outcome=Outcome.REVISE, reason=reason, feedback=feedback, verdicts=(*turn.verdicts, *said)
    )


def _conflict_mark_faults(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return why a conflict that was given back is not resolved; only then there may be marks of it."""
    if head is None or not task.conflicted:
        return ()
    paths = conflict_marked_paths(turn.worker.repository, str(task.base_commit), head)
    return tuple(f"{task.id}: conflict marks are left in {path}; resolve them" for path in paths)


def _copied_file_faults(turn: Turn, task: Task, head: str | None) -> tuple[str, ...]:
    """Return the committed files that are copies from the user's checkout (`worktree.copy`)."""
    names = turn.state.config.worktree.copied
    if head is None or not names:
        return ()
    # What the base has is no copy: a submodule, whose commit is in every tree.
    known = set(list_tree(turn.worker.repository, str(task.base_commit)))
    paths = [path for path in list_tree(turn.worker.repository, head) if path not in known]
    found = committed_copies(names, paths)
    return tuple(f"{task.id}: {path} is a copy of the user's own file; take it out" for path in found)


def hand_in_words(turn: Turn, shown: str, asked: AgentAnswer, answer: Implement) -> None:
    """Record the answer of a role that writes no files, about the commit that it was *shown*."""
    said = _judge_words(turn, turn.subject, shown, asked, answer)
    turn.comments.append((str(turn.hat), answer.summary or str(answer.blocked_reason)))
    turn.record(said, more=lambda state: _with_side_reports(turn, state, answer, said))


def _judge_words(turn: Turn, task: Task, head: str, asked: AgentAnswer, answer: Implement) -> Event:
    """Return the event that follows an answer without files, after the machine gates of the phase."""
    phase = turn.phase
    if answer.status is WorkStatus.BLOCKED:
        return pick.event_for_asking(phase, task, answer)
    work, handed = Worked(turn.worker.clock(), run=asked.run), _handoff_in(phase, task, answer)
    known, said_so = pick.known_facts(answer), agent_output(asked, handed)
    try:
        with gate_context(turn, task, str(task.base_commit), head, said_so) as context:
            found = run_gates(turn, turn.workflow, task.position, context, work=work, known=known)
    except Halted:
        return e.Release(reason="it was stopped before its gates were through")
    said = e.Report(
        verdicts=found.verdicts,
        known=found.known,
        session=_work_session(turn, asked),
        remember=answer.remember,
    )
    if found.outcome in {Outcome.PASS, Outcome.ASK}:
        made = pick.artifacts_of(task, answer, head) | _handoff_artifact(phase, handed)
        return said.replace(artifacts=made)
    return said.replace(outcome=found.outcome, reason=found.reason, feedback=found.feedback)


def _work_session(turn: Turn, asked: AgentAnswer) -> WorkSession | None:
    """Return the session that *asked* ended with, its hat and its backend."""
    said, backend = asked.reply.session, backend_of(turn.last) if turn.last else None
    return WorkSession(id=said.id, hat=str(turn.hat), backend=backend) if said and backend else None


def _with_side_reports(turn: Turn, state: State, answer: Implement, event: Event) -> State:
    """Return the board with the anomalies and discoveries of *answer*, and without the hand-over that was
    used.
    """
    name, at, task = turn.worker.name, turn.worker.clock(), turn.task
    state = turn.with_anomalies(state, answer.anomalies)
    state = with_signals(state, str(task), *pick.signals_of(turn.subject, answer, turn.hat, at))
    for found in answer.discovered:
        state = with_discovery(state, found.description, urgency=found.urgency, about=task, by=name, at=at)
    is_handed_in = isinstance(event, e.Report) and event.outcome is Outcome.PASS
    if is_handed_in and task in state.handoff:
        return state.replace(handoff={key: value for key, value in state.handoff.items() if key != task})
    return state


def _handoff_in(phase: Phase, task: Task, answer: Implement) -> Record | None:
    """Return the handoff in *answer*, as *phase* defines it; invalid parts are left out and logged."""
    kind, said = phase.hands_on, answer.handoff
    if kind is None or said is None:
        return None
    found = parse_handoff(kind, {"summary": answer.summary, **said} if kind is HandoffKind.PLAN else said)
    for remark in found.remarks:
        log.warning("%s: not handed on: %s", task.id, remark)
    return found.value


def _handoff_artifact(phase: Phase, handed: Record | None) -> dict[str, str]:
    """Return *handed* as it is kept on a task."""
    return {phase.hands_on.artifact: json.dumps(handed.to_json())} if phase.hands_on and handed else {}


def _with_work_handed_on(
    repository: Repository, phase: Phase, task: Task, answer: Implement, event: e.Report
) -> e.Report:
    """Return *event* with the handoff to the next phase; its commits and files are taken from git."""
    handed = _handoff_in(phase, task, answer)
    if phase.hands_on is HandoffKind.WORK and event.commit:
        base = str(task.base_commit)
        made = commits_between(repository, base, event.commit)
        changed = repository.git("diff", "--name-only", "-z", base, event.commit)
        known = {
            "commits": [{"hash": one.commit, "message": one.message.partition("\n")[0]} for one in made],
            "files_changed": [path for path in changed.split("\0") if path],
        }
        handed = ImplementHandoff.model_validate({**(handed.to_json() if handed else {}), **known})
    return event.replace(artifacts={**event.artifacts, **_handoff_artifact(phase, handed)})


LONGEST_HANDOFF: Final = 4000  # characters of an agent's last words that the next one is given


def work(turn: Turn, taken: TakenTask) -> AfterTurn:
    """Let an agent work on the task: in a worktree, or read-only where its hat may not write."""
    log.info("%s: claimed, iteration %d", taken.task.id, taken.task.iteration)
    turn.hat = turn.phase.worker
    if turn.workflow.hat(str(turn.hat)).access is not HatAccess.WRITE:
        return _ask_read_only(turn)
    worktree = prepare_worktree(turn.worker, taken)
    return _work_in_worktree(turn, taken, worktree) if make_ready(turn, worktree) else AfterTurn.WORK


def _work_in_worktree(turn: Turn, taken: TakenTask, worktree: Worktree) -> AfterTurn:
    asked = _ask_checkpoint(turn, worktree) if turn.phase.asks_checkpoint else None
    if asked is not None and isinstance(asked.value, CheckpointAnswer) and asked.value.is_blocked:
        return _record_block(turn, asked.value)
    if asked is None or isinstance(asked.value, CheckpointAnswer):
        if asked is not None and not _pass_checkpoint(turn, asked):
            return AfterTurn.WORK
        asked = ask(
            turn,
            Step.IMPLEMENT,
            prompting.for_implement(turn.state, shown_to(turn.worn, turn.subject)),
            worktree.path,
            begins=turn.worker.trees.after if asked else None,
            session=_session(turn, taken.before),
            proof=lambda said: _proven_by_commit(turn, said),
        )
    run_teardown(turn, worktree)
    if turn.lease_renewer.lost:
        log.warning("%s: what its agent did after that is not used", turn.lease_renewer.lost)
        return AfterTurn.WORK
    if asked.moved:
        turn.block_for_drift(asked.moved)
        return AfterTurn.WORK
    if isinstance(asked.value, Implement):
        hand_in(turn, worktree, asked, asked.value)
        return AfterTurn.WORK
    return _record_no_answer(turn, worktree, asked)


def _session(turn: Turn, before: Task) -> Session | None:
    """Return the session to resume, where the phase allows it and the same worker had one."""
    phase, here = turn.phase, before.position
    resumes = phase.session_mode(here.path if here else None) is SessionMode.RESUME
    left = before.session
    if not resumes or left is None or before.authors[-1:] != (turn.worker.name,):
        return None
    chosen = turn.worker.choice(turn.state, Step.IMPLEMENT, turn.task, turn.hat)
    is_same = (left.hat, left.backend) == (turn.hat, backend_of(chosen))
    return Session(id=left.id) if is_same else None


def _ask_read_only(turn: Turn) -> AfterTurn:
    """Ask a role that writes no files, and hand in its answer."""
    task = turn.subject
    shown = str(task.review_commit or task.base_commit)
    with scratch_tree(turn.worker.worktrees, shown) as path:
        facts = prompting.for_thinking(turn.state, shown_to(turn.worn, task))
        asked = ask(turn, Step.IMPLEMENT, facts, path, template="hats/think")
    if turn.lease_renewer.lost:
        log.warning("%s: what its agent said after that is not used", turn.lease_renewer.lost)
    elif asked.moved:
        turn.block_for_drift(asked.moved)
    elif not isinstance(asked.value, Implement):
        turn.record(_without_answer(turn, asked))
        return AfterTurn.RESTART if asked.is_context_full else AfterTurn.WORK
    else:
        hand_in_words(turn, shown, asked, asked.value)
    return AfterTurn.WORK


def _without_answer(turn: Turn, asked: AgentAnswer) -> e.Event:
    """Return the event for a task whose agent gave no answer; a crash may count as a failed round."""
    event = pick.event_without_answer(asked.reply, asked.why)
    return pick.as_document_says(turn.workflow, turn.phase, event)


def _ask_checkpoint(turn: Turn, worktree: Worktree) -> AgentAnswer:
    task = turn.subject

    def check(value: AnswerValue) -> str | None:
        said = pick.SAYS_NOTHING if isinstance(value, CheckpointAnswer) and pick.says_nothing(value) else None
        return restore_if_changed() or said

    def restore_if_changed() -> str | None:
        before, after = turn.worker.trees.before, turn.worker.trees.after
        if before is None or before == after:
            return None
        roll_back(worktree, task.id, head=before.head, tree=before.tree, at=turn.worker.clock())
        return "the worktree was changed in a step that is read-only; it was put back"

    facts = prompting.for_checkpoint(turn.state, shown_to(turn.worn, task))
    asked = ask(turn, Step.CHECKPOINT, facts, worktree.path, check=check)
    if asked.value is None and worktree.is_there:
        restore_if_changed()
    return asked


def _record_block(turn: Turn, answer: CheckpointAnswer) -> AfterTurn:
    """Block the task with the questions that its coder asks before it begins."""
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
    task, flow = turn.subject, turn.workflow
    if task.status is not Status.WORKING:
        return False
    base = str(task.base_commit)
    try:
        with gate_context(turn, task, base, base, agent_output(asked)) as context:
            found = run_gates(turn, flow, task.position, context)
    except Halted:
        turn.record(e.Release(reason="it was stopped before it began"))
        return False
    except BrokenGate as error:
        turn.record_broken_gate(error, e.Release(reason=printable(str(error))))
        return False
    if found.outcome is not Outcome.PASS:
        turn.record(pick.event_for_gates(found.outcome, base, found))
        return False
    turn.verdicts = found.verdicts
    return True


def _proven_by_commit(turn: Turn, asked: AgentAnswer) -> Implement | None:
    """Return `done` for work whose coder committed something and gave no readable answer.

    Gates and a reviewer judge it anyway. A coder that says it is blocked is asked again instead.
    """
    before, after = turn.worker.trees.before, turn.worker.trees.after
    if before is None or after is None or before.head == after.head or says_blocked(asked.reply.text):
        return None
    log.info("%s: taken as done, because it committed; %s", turn.task, asked.why)
    return Implement(status=WorkStatus.DONE, summary=f"Finish {turn.task}")


def _record_no_answer(turn: Turn, worktree: Worktree, asked: AgentAnswer) -> AfterTurn:
    name, at, is_full = str(turn.task), turn.worker.clock(), asked.is_context_full
    if is_full:
        commit_all(worktree, f"Work in progress on {name}", at=at)
    elif worktree.is_there:
        salvage.save_work(turn.worker.repository, name, worktree, at=at)
    record_idle_worktree(turn, worktree)

    def more(state: State) -> State:
        note = Handoff(id=name, agent=turn.worker.name, timestamp=at, summary=_last_words(asked))
        return state.replace(handoff=with_record(state.handoff, note)) if is_full else state

    turn.record(_without_answer(turn, asked), more=more)
    return AfterTurn.RESTART if is_full else AfterTurn.WORK


def _last_words(asked: AgentAnswer) -> str:
    return (
        asked.reply.text.strip()[-LONGEST_HANDOFF:].strip() or "its context was full before it said anything"
    )


def take_turn(worker: Worker) -> AfterTurn:
    """Do the first job on the board for this kind of worker."""
    for take in TURNS[worker.role]:
        if (after := take(worker)) is not AfterTurn.WAIT:
            return after
    return AfterTurn.WAIT


def do_task_job(worker: Worker) -> AfterTurn:
    """Take the next job of a task that is for this kind of worker, and do it."""
    state, policy = worker.board.read(), JOB_POLICIES[worker.role]
    task = policy.pick(state, worker.name, worker.clock())
    run = _first_run(worker, state, task) if task else None
    if task is None or (run and not worker.check_admission(state, run)):
        return AfterTurn.WAIT
    worker.fetch(state, task.id, *(task.depends_on if policy.begins_round else ()))
    head = base_commit(worker, state) if policy.begins_round else None
    if policy.begins_round and head is None:
        return AfterTurn.WAIT
    taken = take_job(worker, head)
    if taken is None:
        return AfterTurn.WORK
    run = _first_run(worker, taken.state, taken.task)
    with open_turn(worker, taken.state, taken.task, taken.token, admitted=run) as turn:
        after = _do_jobs(turn, taken)
    if state.config.remote and policy.begins_round:
        worker.exchange.publish_salvages(state.config)
    return after


def judge_waiting_plan(worker: Worker) -> AfterTurn:
    """Judge the plan, if one waits for a reviewer; work that others wait for comes first."""
    state = worker.board.read()
    is_asked = state.config.plan.approval is PlanApproval.REVIEWER and awaits_plan_reviewer(state)
    return judge_plan(worker, state) if is_asked else AfterTurn.WAIT


def _first_run(worker: Worker, state: State, task: Task) -> AdmissionRequest | None:
    """Return the run that the next job of *task* begins with; None where no agent is asked."""
    steps = JOB_POLICIES[worker.role].steps(state, task)
    return worker.planned_run(state, steps[0], task.id, *steps[1:]) if steps else None


def take_job(worker: Worker, head: str | None = None) -> TakenTask | None:
    """Take the next job, chosen under the lock; None where another worker was faster.

    *head* is what a round of work begins from.
    """
    policy, token = JOB_POLICIES[worker.role], secrets.token_hex(16)
    by, taken = worker.actor(token), []

    def make(state: State) -> State:
        at = worker.clock()
        task = policy.pick(state, worker.name, at)
        run = _first_run(worker, state, task) if task else None
        denial = denial_of(state, run, at) if run else None
        if task is None or (denial and denial.cap is not Cap.TASK):
            return state
        taken.append(task)
        base = pick.base_for(task, worker.name, pick.start_of(state, task) or head) if head else None
        block = pick.block_before_round(state, task) if policy.begins_round else None
        state = apply(e.Take(lease=worker.lease(state, token), base_commit=base), to=task.id, by=by, at=at)(
            state
        )
        if denial and not block:
            state, block = budget.block_for_cost(state, task.id)
        if block:
            return apply(block, to=task.id, by=by, at=at)(state)
        if policy.begins_round:
            state = apply_rules(worker.workflow(state), state, task.id, at)
        return admit(state, run, at) if run and state.task(task.id).lease else state

    state = worker.board.update(Change(worker.name, policy.taken, make, about=lambda: taken[-1].id))
    held = (task for task in state.tasks.values() if task.lease and task.lease.token == token)
    task = next(held, None)
    return TakenTask(state, task, taken[-1], token) if task else None


def _do_jobs(turn: Turn, taken: TakenTask) -> AfterTurn:
    """Do the jobs of the task; after an error, record what the policy decides."""
    policy = JOB_POLICIES[turn.worker.role]
    try:
        if turn.state.config.remote:
            turn.worker.exchange.fetch_missing(turn.state.config, taken.task)
        return _do_jobs_in_order(turn, taken, policy.stages)
    except Refused as error:  # somebody else decides about the task now, so nothing more is written
        log.warning("%s", turn.lease_renewer.lost or error)
    except GateTampered as found:
        turn.block_for_drift(found.moved, "tests")
    except (DiskTrouble, InvalidBoard, RemoteTrouble):
        raise
    except LizaError as error:
        if (follows := policy.after_error(error)) is None:
            raise
        _give_up(turn, follows.event, follows.pause)
    return AfterTurn.WORK


def _do_jobs_in_order(turn: Turn, taken: TakenTask, stages: frozenset[Stage]) -> AfterTurn:
    """Do one job of the task after the other, for as long as they are this worker's and it holds the task."""
    task = taken.task
    while task.position and (stage := task.position.job) in stages:
        after = BY_STAGE[stage](turn, taken)
        if after is not None:
            return after
        turn.state = turn.worker.board.read()
        task = turn.subject
        if task.lease is None or task.lease.token != turn.actor.token:
            break
    return AfterTurn.WORK


def _give_up(turn: Turn, event: e.Event, pause: str | None) -> None:
    if pause:
        turn.worker.stop_requests.pause(pause)
    try:
        turn.record(event)
    except Refused as error:
        log.warning("%s", error)


# Who does what is next for a task; None where it may go on to the next job in the same turn.
BY_STAGE: Final[Mapping[Stage | None, Callable[[Turn, TakenTask], AfterTurn | None]]] = {
    Stage.WORK: work,
    Stage.JUDGE: judge,
    Stage.EFFECT: integrate,
}
# What each kind of worker looks for, in this order.
TURNS: Final[Mapping[Role, tuple[Callable[[Worker], AfterTurn], ...]]] = {
    Role.PLANNER: (tidy_board, do_task_job, make_plan),
    Role.CODER: (do_task_job,),
    Role.REVIEWER: (retry_merge, do_task_job, judge_waiting_plan),
}
