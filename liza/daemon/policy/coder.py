"""What a coder picks, and what follows from how its agent's run ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from liza.daemon.policy.conditions import FREE, LABELLED, Blocker, Candidate, Condition, all_hold, is_at_work
from liza.domain import events as e
from liza.domain import verdicts
from liza.domain.answers import WorkStatus
from liza.domain.changes import dead_dependencies, waits_for
from liza.domain.model import Role, Status, WorkerStatus
from liza.domain.rules import RULE_BY_NAME, UNCLEAR_SPEC
from liza.system.run_control import MEANING, RunEnding
from liza.workflow.document import process_at
from liza.workflow.load import workflow_on

if TYPE_CHECKING:
    from liza.agents.protocol import Reply
    from liza.domain.answers import CheckpointAnswer, Implement
    from liza.domain.model import State, Task
    from liza.domain.verdicts import Feedback, Verdict

# Coders that failed a task, or rounds of the only one; the next would fail as well.
ENOUGH_FAILURES: Final = RULE_BY_NAME["hypothesis_exhaustion"].count.number
MOST_FAILED_INTEGRATIONS: Final = 3  # of one task; then somebody has to think, not to code
NOT_STARTED_QUESTION: Final = (
    "Is what it needs there: the agent (`agents` in the settings), the spec, the worktree?"
)
_LONGEST_SUBJECT: Final = 72  # characters; where git log and forges cut it


def available_coders(state: State, role: Role = Role.CODER) -> frozenset[str]:
    """Return the workers of *role* that work or will: those of the settings and those that registered.

    One that was stopped because it kept crashing is not among them. One that ended in good order comes back
    with the next start, and its tasks wait for it.
    """
    count = 0 if state.has_hosts else getattr(state.config.workers, role)
    configured = {f"{role}-{number}" for number in range(1, count + 1)}
    coders = [agent for agent in state.agents.values() if agent.role is role]
    gone = {agent.id for agent in coders if agent.status is WorkerStatus.STOPPED and agent.crashes}
    there = {agent.id for agent in coders if agent.status is not WorkerStatus.STOPPED}
    return frozenset((configured | there) - gone)


def is_given_up(state: State, task: Task) -> bool:
    """Tell whether no coder takes *task* again before somebody thought about it."""
    if len(task.failed_by) >= ENOUGH_FAILURES:
        return True
    alone = not available_coders(state) - set(task.failed_by)
    return alone and bool(task.failed_by) and task.iteration >= ENOUGH_FAILURES


def pick(state: State, me: str) -> Task | None:
    """Return the task that coder *me* takes next: its own rejected ones, failed merges, then what is new."""
    if is_at_work(state, me):
        return None
    looks = (Candidate(state, task, me, task.created) for task in state.tasks.values())
    free = [look for look in looks if all_hold(_TASK_CONDITIONS, look)]
    first = min(free, key=lambda look: _rank(look.task, me), default=None)
    # Asked of the first alone: it counts all tasks, and new ones come last.
    return first.task if first and all_hold(_QUEUE_CONDITIONS, first) else None


def _other_coders(look: Candidate) -> frozenset[str]:
    return available_coders(look.state, _process(look)) - {look.me}


def _process(look: Candidate) -> Role:
    """Return the kind of worker whose job is next."""
    return process_at(workflow_on(look.state), look.task.position) if look.task.position else Role.CODER


def _is_open(look: Candidate) -> bool:
    return look.task.status in _ORDER


def _status_blocker(look: Candidate) -> Blocker:
    return Blocker(f"{look.task.status} is not for coders", "nobody", f"liza task show {look.task.id}")


def _dependency_blocker(look: Candidate) -> Blocker:
    waiting = waits_for(look.state, look.task)
    named = ", ".join(f"{name} ({look.state.status_of(name) or 'not on the board'})" for name in waiting)
    if dead := dead_dependencies(look.state, look.task):
        what = f"it waits for {named}, and {' and '.join(dead)} will never be done; the planner is asked next"
        return Blocker(what, "the planner, or you", "liza edit")
    return Blocker(f"it waits for {named}", "whoever works on that", f"liza explain {waiting[0]}")


def is_unfetched(task: Task) -> bool:
    """Return whether the issue of an open task has to be fetched before anybody can work on it."""
    return task.status is Status.IDLE and task.issue is not None and task.issue.branch is None


def _unfetched_blocker(look: Candidate) -> Blocker:
    return Blocker("its issue is fetched first", "the planner", f"liza task show {look.task.id}")


def _may_merge(look: Candidate) -> bool:
    failures = look.task.integration_failures
    return look.task.status is not Status.INTEGRATION_FAILED or failures < MOST_FAILED_INTEGRATIONS


def _merge_blocker(look: Candidate) -> Blocker:
    times = f"it failed to merge {look.task.integration_failures} times, so somebody has to think about it"
    return Blocker(times, "the planner", f'liza note "…" --for {look.task.id}')


def _is_unassigned_or_mine(look: Candidate) -> bool:
    return look.task.status is Status.IDLE or look.task.assigned_to not in _other_coders(look)


def _assigned_blocker(look: Candidate) -> Blocker:
    other = str(look.task.assigned_to)
    return Blocker(f"{other} takes it up again itself", other, f"liza explain {other}")


def _given_up_blocker(look: Candidate) -> Blocker:
    failed = " and ".join(look.task.failed_by)
    return Blocker(
        f"{failed} could not do it, so the planner looks at it first",
        "the planner",
        f'liza note "…" --for {look.task.id}',
    )


def _is_not_my_failure(look: Candidate) -> bool:
    return look.me not in look.task.failed_by or not _other_coders(look)


def _own_failure_blocker(look: Candidate) -> Blocker:
    return Blocker(
        f"{look.me} could not do it, so another coder takes it",
        "another coder",
        f"liza task show {look.task.id}",
    )


def unmerged_count(state: State) -> int:
    """Return how many tasks wait for reviewers; what waits for people holds up no coder."""
    return sum(
        task.status is Status.READY_FOR_REVIEW or (task.status is Status.APPROVED and not task.is_tainted)
        for task in state.tasks.values()
    )


def _has_queue_room(look: Candidate) -> bool:
    # What was rejected, or did not merge, is finished first: only new work makes the queue longer.
    return (
        look.task.status is not Status.IDLE
        or unmerged_count(look.state) < look.state.config.limits.max_unmerged
    )


def _queue_blocker(look: Candidate) -> Blocker:
    waiting, most = unmerged_count(look.state), look.state.config.limits.max_unmerged
    return Blocker(
        f"{waiting} tasks wait for review or merge, and with {most} no new one begins (limits.max_unmerged)",
        "the reviewers",
        "liza status",
    )


def _process_blocker(look: Candidate) -> Blocker:
    process = _process(look)
    return Blocker(f"its next job is one for a {process}", f"a {process}", f"liza task show {look.task.id}")


def _is_mine(look: Candidate) -> bool:
    return look.me.partition("-")[0] == _process(look)


_TASK_CONDITIONS: Final = (
    Condition(_is_open, _status_blocker),
    Condition(_is_mine, _process_blocker),
    Condition(lambda look: not waits_for(look.state, look.task), _dependency_blocker),
    Condition(lambda look: not is_unfetched(look.task), _unfetched_blocker),
    Condition(_may_merge, _merge_blocker),
    Condition(lambda look: not is_given_up(look.state, look.task), _given_up_blocker),
    Condition(_is_unassigned_or_mine, _assigned_blocker),
    Condition(_is_not_my_failure, _own_failure_blocker),
    LABELLED,
    FREE,
)
_QUEUE_CONDITIONS: Final = (Condition(_has_queue_room, _queue_blocker),)
CONDITIONS: Final = (*_TASK_CONDITIONS, *_QUEUE_CONDITIONS)

_ORDER: Final = {Status.REJECTED: 0, Status.INTEGRATION_FAILED: 1, Status.IDLE: 2}


def _rank(task: Task, me: str) -> tuple[object, ...]:
    return _ORDER[task.status], task.assigned_to != me, -task.priority, task.created


def is_carried_on(task: Task) -> bool:
    """Return whether what was made in another phase is worked on, whoever does so."""
    here = task.position
    return here is not None and task.review_commit is not None and here.made_in not in {None, here.phase}


def start_of(state: State, task: Task) -> str | None:
    """Return the commit of earlier work that *task* goes on from: its own, or that of what it waited for."""
    if task.issue and task.issue.begins:
        return task.issue.begins
    parents = (state.tasks[name] for name in reversed(task.depends_on) if name in state.tasks)
    return next((one.review_commit for one in parents if one.status is Status.COMPLETE), None)


def base_for(task: Task, me: str, head: str) -> str:
    """Return what the work of *me* on *task* is based on: what it was for the same coder, else *head*."""
    is_mine = task.authors[-1:] == (me,) or is_carried_on(task)
    goes_on = is_mine and task.status is not Status.INTEGRATION_FAILED
    return task.base_commit if goes_on and task.base_commit else head


def is_out_of_iterations(task: Task, most: int) -> bool:
    """Tell whether the next round of *task* would be one too many."""
    return task.attempt == 0 and task.iteration >= most


def iterations_block(most: int) -> e.Block:
    return e.Block(
        reason=f"Max iterations ({most}) reached without approval",
        questions=UNCLEAR_SPEC,
        rule="coder_iterations",
    )


# The endings without an answer after which a coder has failed; after all others it may try again.
_FAILED_ENDINGS: Final = frozenset(
    {
        RunEnding.DONE,  # it said something, but no answer
        *(RunEnding.TIMEOUT, RunEnding.SILENT, RunEnding.SLOW_START, RunEnding.CRASHED, RunEnding.EMPTY),
    }
)


def event_without_answer(reply: Reply, why: str) -> e.Event:
    """Return what happens to a task whose coder's agent gave no answer, because of *why*."""
    reason = why or reply.why or MEANING[reply.ending]
    if reply.ending is RunEnding.NOT_STARTED:
        return e.Block(reason=reason, questions=(NOT_STARTED_QUESTION,), only_people=True)
    return e.Release(
        reason=reason,
        killed=reply.ending is RunEnding.KILLED,
        used_up=reply.ending is RunEnding.CONTEXT_FULL,
        failed=reply.ending in _FAILED_ENDINGS,
    )


# An intent that is made of these alone could stand before any task.
_EMPTY: Final = (
    "a all and as asked be change changes code complete described do done everything finish fix for go i in "
    "implement is it make my needed now of on perform proceed requested required requirements solve start "
    "task that the things this to what will with work"
)
_EMPTY_WORDS: Final = frozenset(_EMPTY.split())
SAYS_NOTHING: Final = (
    "the checkpoint says nothing about the work: name in intent what will be there, in validation the "
    "command that shows it, in files_to_modify what you will touch; or say blocked, and what you must know"
)


def says_nothing(answer: CheckpointAnswer) -> bool:
    """Tell whether *answer* announces nothing that the work could be held against."""
    if answer.is_blocked or answer.validation or answer.files_to_modify:
        return False
    return not set(re.findall(r"\w+", (answer.intent or "").casefold())) - _EMPTY_WORDS


def event_for_answer(answer: Implement, head: str | None, reasons: tuple[str, ...]) -> e.Event:
    """Return what follows from an answer, the commit that the branch is at, and why it cannot be taken."""
    if answer.status is WorkStatus.BLOCKED:
        return e.Block(reason=str(answer.blocked_reason), questions=answer.blocked_questions)
    if answer.status is WorkStatus.NOTHING_TO_DO:
        return e.Report(nothing_to_do=answer.summary)
    if head is None or reasons:
        return e.Release(reason="; ".join(reasons) or "there is no commit to hand in", failed=True)
    return e.Report(commit=head)


class GateFindings(Protocol):
    """What the machines said together."""

    @property
    def outcome(self) -> verdicts.Outcome: ...
    @property
    def reason(self) -> str: ...
    @property
    def feedback(self) -> tuple[Feedback, ...]: ...
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...
    @property
    def phase(self) -> str | None: ...
    @property
    def taints(self) -> tuple[str, ...]: ...
    @property
    def known(self) -> tuple[str, ...]: ...
    @property
    def tree(self) -> str | None: ...


def event_for_gates(outcome: verdicts.Outcome, head: str, found: GateFindings) -> e.Event:
    """Return what follows from what the machines said about *head*."""
    said: dict[str, Any] = {"verdicts": found.verdicts, "known": found.known, "tree": found.tree}
    if outcome is verdicts.Outcome.PASS:
        return e.Report(commit=head, **said)
    if outcome is verdicts.Outcome.ASK:  # a gate that asks means a person
        asked = (f"How should this be settled: {found.reason}",)
        return e.Block(reason=found.reason, questions=asked, only_people=True)
    return e.Report(outcome=outcome, reason=found.reason, feedback=found.feedback, **said)


def commit_message(task: Task, answer: Implement) -> str:
    """Return the message for what the agent left without a commit."""
    first, _, rest = answer.summary.strip().partition("\n")
    subject = first if len(first) <= _LONGEST_SUBJECT else f"{first[: _LONGEST_SUBJECT - 1].rstrip()}…"
    body = answer.summary.strip() if subject != first else rest.strip()
    return "\n\n".join(part for part in (subject or task.description, body) if part)
