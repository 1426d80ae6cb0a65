"""The life of a task: the events that can happen to it, and a table that says when each may.

Events are the same for every role and every workflow: a job is taken, and what came of it is reported. An
event carries the facts that its transition needs. It says why it may not happen to this task (`refusal`),
which fields it sets (`changes`), and what history calls it (`word`) and keeps of it (`facts`). Which statuses
and roles it belongs to is said in the table of rows, and where a report leads by the engine; neither is said
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field, TypeAdapter, field_validator

from liza.domain.memory import Remembered
from liza.domain.model import (
    RELEASE,
    Checkpoint,
    End,
    Feedback,
    HistoryEntry,
    Lease,
    MergeIntent,
    Outcome,
    Role,
    Stage,
    Status,
    Task,
    Verdict,
    Waiver,
    WorkSession,
)
from liza.domain.model import SUCCEEDED as SUCCEEDED  # noqa: PLC0414 - it belongs to the table, too
from liza.domain.record import Commit, Id, NonEmptyStr, Record, Time
from liza.errors import Forbidden, LeaseLost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from liza.domain.model import Actor, Position


# What can happen to a task: events that carry the facts their transition needs.
#
# They are the same for every role and every workflow: a job is taken, and what came of it is reported. An
# event says why it may not happen to this task (`refusal`), which fields it sets (`changes`), and what
# history calls it (`word`) and keeps of it (`facts`). Which statuses and roles it belongs to is said in the
# table of `lifecycle`, and where a report leads by the engine; neither is said elsewhere.

Questions = Annotated[tuple[NonEmptyStr, ...], Field(min_length=1, max_length=3)]
FieldChanges = dict[str, Any]

NO_REVIEW: Final[FieldChanges] = {
    "review_commit": None,
    "submitted_run": None,
    "nothing_to_do": None,
    "approved_by": None,
    "merging": None,
    "integration_failure": None,
}
NO_BLOCK: Final[FieldChanges] = {
    "blocked_reason": None,
    "blocked_questions": (),
    "blocked_rule": None,
    "planner_questions": (),
    "asked": None,
}
# Another chance is a real one: whoever failed may try again, and old conflicts do not count.
NO_FAILURES: Final[FieldChanges] = {"failed_by": (), "integration_failures": 0, "conflicted": ()}
NO_HOLDER: Final[FieldChanges] = {"lease": None, "assigned_to": None}
FRESH_ROUNDS: Final[FieldChanges] = {
    "iteration": 0,
    "attempt": 0,
    "review_cycles_current": 0,
    "decisions": (),
    "signals": (),
}
NO_REJECTION: Final[FieldChanges] = {
    "rejection_reason": None,
    "rejection_feedback": (),
    "rejection_output": None,
}
FORCED_REFUSAL: Final = "a pass was forced and nobody accepted it"
MAX_FRESH_STARTS: Final = 1  # that a planner gives after a limit: the next limit is for people
MAX_UNBLOCKS: Final = 3  # that a planner gives between two words of people, whoever codes


class Event(Record):
    verb: ClassVar[str]  # completes "coder-1 may not … a task that is MERGED"
    words: ClassVar[tuple[str, ...]]  # what history may call it
    silent: ClassVar[bool] = False  # True where history would only grow noise; the journal has it anyway

    def verb_by(self, by: Actor) -> str:  # noqa: ARG002
        """Return what it is called where *by* may not do it."""
        return self.verb

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        """Return what history calls it, where it took a task from *source* to *target*."""
        return self.words[0]

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        """Return why this may not happen to *task* although the table has a row, or None."""
        return None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        """Return the fields of *task* that this sets, apart from its position and its status."""
        return {}

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Return what history keeps of what happened to a task that was *source*."""
        return self.to_json()


class Ready(Event):
    verb = "release to coders"
    words = ("ready",)


class Take(Event):
    """A worker takes the job that is next; who works anew on a task starts its counters anew."""

    verb = "claim"
    words = ("claim", "take_review")
    lease: Lease
    base_commit: Commit | None = None  # what the work starts from, where there is work to do

    def verb_by(self, by: Actor) -> str:  # noqa: ARG002
        return "claim" if self.base_commit else "take for review"

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        return "claim" if target is Status.WORKING else "take_review"

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:
        if task.lease and task.lease.is_live(at):
            return f"{task.lease.holder} holds it until {task.lease.expires:%H:%M:%SZ}"
        return _lease_refusal(self.lease, by, at) or (
            None if self.base_commit else _own_work_refusal(task, by)
        )

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        if self.base_commit is None:
            return {"lease": self.lease}
        here = task.position
        is_new_phase = here is not None and here.made_in not in {None, here.phase}
        again = is_new_phase or (bool(task.authors) and task.authors[-1] == by.id)
        rounds = here.iterations.get(here.phase, 1) if here and is_new_phase else task.iteration
        return {
            **NO_REVIEW,
            **({"review_commit": task.review_commit} if is_new_phase else {}),  # it is worked on further
            "assigned_to": by.id,
            "lease": self.lease,
            "base_commit": self.base_commit,
            "checkpoint": None,
            "authors": (*(author for author in task.authors if author != by.id), by.id),
            # An attempt that ended without an outcome (released, reclaimed) repeats its round.
            "iteration": max(1, rounds + (task.attempt == 0 and not is_new_phase)) if again else 1,
            "attempt": task.attempt + 1 if again else 1,
            "review_cycles_current": task.review_cycles_current if again else 0,
            "verdicts": (),
            "decisions": task.decisions if again else (),
            "signals": task.signals if again else (),
        }

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return {"base_commit": self.base_commit} if self.base_commit else {}


class Write(Event):
    """Write down what is said before the work."""

    verb = "announce work on"
    words = ("pre_execution_checkpoint",)
    checkpoint: Checkpoint

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "its work is announced already" if task.checkpoint else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"checkpoint": self.checkpoint}

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return self.checkpoint.to_json()


# What history calls a report, by where it took the task from and to.
REPORT_WORDS: Final[Mapping[Status, Mapping[Status, str]]] = {
    Status.WORKING: {
        Status.READY_FOR_REVIEW: "submit",
        Status.AWAITING_APPROVAL: "ask_human",
        Status.REJECTED: "revise",
        Status.IDLE: "proceed",
        Status.COMPLETE: "complete",
    },
    Status.READY_FOR_REVIEW: {
        Status.READY_FOR_REVIEW: "pass",
        Status.APPROVED: "approve",
        Status.AWAITING_APPROVAL: "ask_human",
        Status.REJECTED: "reject",
        Status.IDLE: "proceed",
        Status.NOTHING_TO_DO: "confirm",
        Status.COMPLETE: "complete",
    },
    Status.APPROVED: {
        Status.APPROVED: "pass",
        Status.AWAITING_APPROVAL: "ask_human",
        Status.INTEGRATION_FAILED: "fail_integration",
        Status.IDLE: "proceed",
        Status.COMPLETE: "complete",
    },
    Status.AWAITING_APPROVAL: {
        Status.READY_FOR_REVIEW: "pass",
        Status.APPROVED: "approve",
        Status.AWAITING_APPROVAL: "ask_human",
        Status.REJECTED: "reject",
        Status.INTEGRATION_FAILED: "fail_integration",
        Status.IDLE: "proceed",
        Status.NOTHING_TO_DO: "confirm",
        Status.COMPLETE: "complete",
    },
}


class Report(Event):
    """Tell what came of a job: work, verdicts, a word; the engine says what follows from it."""

    verb = "report on"
    words = (
        *("submit", "find_nothing", "revise", "approve", "pass", "reject", "confirm", "ask_human"),
        *("force_pass", "fail_integration", "proceed", "complete"),
    )
    outcome: Outcome = Outcome.PASS  # what it comes to, where the verdicts leave that open
    verdicts: tuple[Verdict, ...] = ()  # in the order of the gates
    known: tuple[NonEmptyStr, ...] = ()  # predicates that hold, which conditions of gates ask for
    commit: Commit | None = None  # that was made, or that is judged
    tree: Commit | None = None  # of it
    label: NonEmptyStr | None = None
    reason: NonEmptyStr | None = None
    feedback: tuple[Feedback, ...] = ()
    questions: tuple[NonEmptyStr, ...] = ()  # to people, where it comes to that
    only_people: bool = False
    crashed: Id | None = None  # the gate that could not be asked
    nothing_to_do: NonEmptyStr | None = None  # why, where the work is that there is none
    paths: tuple[str, ...] = ()  # in which a merge conflicts
    mark: NonEmptyStr | None = None  # what a pass is tainted with that a rule forces
    squashed: Commit | None = None  # the agent's own commit, where Liza made one commit of all that led to it
    squashed_for: NonEmptyStr | None = None  # which gate wanted it, and why
    artifacts: Mapping[NonEmptyStr, NonEmptyStr] = Field(default_factory=dict)  # texts by their names
    session: WorkSession | None = None  # the conversation in which it was made
    remember: tuple[Remembered, ...] = ()  # for who works on it later
    # What was done for it, and what came of that.
    effects: Mapping[NonEmptyStr, str] = Field(default_factory=dict)

    def verb_by(self, by: Actor) -> str:
        if self.mark:
            return "force through"
        is_maker = by.role in {Role.CODER, Role.PLANNER} and self.outcome is Outcome.PASS
        return "submit" if is_maker else _REPORT_VERBS.get(self.outcome, self.verb)

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        if self.mark:
            return "force_pass"
        word = REPORT_WORDS.get(source, {}).get(target, "pass")
        return "find_nothing" if word == "submit" and self.nothing_to_do else word

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if task.status is Status.WORKING:
            return "the commit is its base, so nothing was done" if self.commit == task.base_commit else None
        if self.outcome is Outcome.ASK:
            return _merging_refusal(task)
        if self.mark:
            return (
                _no_change_refusal(task) if by.role is Role.SUPERVISOR else "only a rule forces work through"
            )
        return self._verdict_refusal(task, by) or _own_work_refusal(task, by)

    def _verdict_refusal(self, task: Task, by: Actor) -> str | None:
        """Return why it cannot be a verdict on what *task* has handed in."""
        if self.commit and self.commit != task.review_commit:
            return f"the verdict is on {self.commit[:12]}, but {str(task.review_commit)[:12]} was submitted"
        if self.outcome is not Outcome.PASS:
            return None
        if by.role is Role.SUPERVISOR:
            return "nobody has judged it"
        if self.crashed:
            return None
        if self.commit:
            return _no_change_refusal(task)
        return "it carries a change to be judged" if task.review_commit and not task.nothing_to_do else None

    def facts(self, source: Status | None = None) -> dict[str, Any]:
        # What a machine found is with its verdict.
        left_out = {"feedback"} if source is Status.WORKING else set()
        kept = self.model_dump(mode="json", include=_REPORT_FACTS - left_out, exclude_defaults=True)
        if self.outcome is Outcome.ASK:
            kept["question"] = kept.pop("reason", "")
        told = {"summary": self.nothing_to_do} if self.nothing_to_do else {}
        return {**kept, **told, **_gate_outcomes(self.verdicts)}


_REPORT_VERBS: Final = {
    Outcome.PASS: "approve",
    Outcome.REVISE: "reject",
    Outcome.ASK: "ask a person about",
    Outcome.BLOCK: "block",
    Outcome.STOP: "give up",
}
_REPORT_FACTS: Final = {
    "commit",
    "reason",
    "feedback",
    "paths",
    "mark",
    "squashed",
    "squashed_for",
    "label",
    "effects",
}


class Renew(Event):
    """Prolong the lease. A lease past its time that nobody took over yet may still be renewed."""

    verb = "renew the lease of"
    words = ("renew",)
    silent = True
    expires: Time

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return None if self.expires > at else "the new end of the lease is in the past"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"lease": task.lease and task.lease.replace(expires=self.expires)}


class Release(Event):
    """Give the task back, without blame: the attempt counts only where a run was used up for nothing."""

    verb = "release"
    words = ("release", "fail")
    reason: NonEmptyStr
    killed: bool = False  # by whom nobody knows, so that nothing follows from it for the task
    used_up: bool = False  # the agent worked until it could not go on, as with a full context
    failed: bool = False  # its worker gives up, and another one takes over

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        return "fail" if self.failed else self.words[0]

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if self.failed:
            return None if task.status is Status.WORKING else "nobody works on it"
        return None if task.lease else "nobody holds it"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        if self.failed:
            failed_by = tuple(dict.fromkeys((*task.failed_by, *task.authors[-1:])))
            return {**NO_HOLDER, "failed_by": failed_by, "attempt": 0}
        # Not down to 0, which would make the next attempt a new round.
        uncounted = {"attempt": max(1, task.attempt - 1)} if task.attempt and not self.counts() else {}
        return {**_release_changes(task), **uncounted}

    def counts(self) -> bool:
        """Return whether the attempt that ends so is one of those without progress."""
        return self.used_up

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return self.model_dump(mode="json", exclude={"failed"}, exclude_defaults=True)


class Reclaim(Event):
    """Take the task from a holder that died or fell silent, or whose work the disk lost."""

    verb = "reclaim"
    words = ("reclaim", "lose")
    reason: NonEmptyStr
    killed: bool = False  # by whom nobody knows, so that nothing follows from it for the task
    lost: bool = False  # the machine went down before what was submitted was on disk: it is done again

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        return "lose" if self.lost else "reclaim"

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if self.lost:
            return "nothing was handed in" if task.status is Status.WORKING else None
        return None if task.lease else "nobody holds it"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        if self.lost:
            return {**NO_HOLDER, **NO_REVIEW, "verdicts": (), "guidance": self.reason}
        uncounted = {"attempt": max(1, task.attempt - 1)} if task.attempt and self.killed else {}
        return {**_release_changes(task), **uncounted}

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return self.model_dump(mode="json", exclude={"lost"}, exclude_defaults=True)


class Accept(Event):
    """A person accepts what the work is tainted with."""

    verb = "accept the taint of"
    words = ("accept_taint",)
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return None if task.is_tainted else "it has no taint to accept"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        return {
            "taints": tuple(
                taint if taint.accepted_by else taint.replace(accepted_by=by.id, accepted_at=at)
                for taint in task.taints
            )
        }


class Waive(Event):
    """A person lifts a limit for this task."""

    verb = "waive a limit of"
    words = ("waive",)
    limit: Literal["scope_limit"]
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return f"{self.limit} is waived already" if task.waives(self.limit) else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        lifted = Waiver(name=self.limit, by=by.id, at=at, reason=self.reason)
        return {"waivers": (*task.waivers, lifted)}


class Intend(Event):
    """Record which merge is about to happen, so that a crash after the ref moved can be told."""

    verb = "start merging"
    words = ("start_merge",)
    onto: Commit
    commit: Commit

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return FORCED_REFUSAL if task.is_tainted else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"merging": MergeIntent(onto=self.onto, commit=self.commit)}


class Land(Event):
    """Record that what was intended has happened."""

    verb = "merge"
    words = ("merge",)
    commit: Commit
    # What else was done, and what came of that.
    effects: Mapping[NonEmptyStr, str] = Field(default_factory=dict)

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if task.is_tainted:
            return FORCED_REFUSAL
        if task.merging is None or task.merging.commit != self.commit:
            return f"no merge as {self.commit[:12]} was started"
        return None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "merge_commit": self.commit, "intended": None}


class Block(Event):
    verb = "block"
    words = ("block",)
    reason: NonEmptyStr
    questions: Questions
    rule: NonEmptyStr | None = None  # the limit that was reached, where one was
    only_people: bool = False  # no planner can help: a conflict, money, the repository, a program

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _merging_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        spent = self.rule is not None and task.fresh_starts >= MAX_FRESH_STARTS
        is_for_people = self.only_people or spent or task.unblocks >= MAX_UNBLOCKS
        return {
            **NO_HOLDER,
            **NO_BLOCK,
            "blocked_reason": self.reason,
            "blocked_questions": self.questions,
            "blocked_rule": self.rule,
            "asked": at if is_for_people else None,
            "attempt": 0,
            "intended": None,
        }

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return {key: value for key, value in self.to_json().items() if key != "only_people"}


class Defer(Event):
    """The planner has no answer either; from now on the task waits for a person."""

    verb = "ask people about"
    words = ("defer",)
    questions: Questions

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"planner_questions": self.questions, "asked": at}


class Answer(Event):
    """Let a task that is stuck go on: by a planner who knows the answer, or by a person, with fresh counters.

    Counters go on after a planner's answer, and start anew where a limit had blocked the task; totals stay.
    """

    verb = "retry"
    words = ("unblock", "retry", "retry_merge")
    guidance: NonEmptyStr | None = None
    merge: bool = False  # it is not to be done again, only to be merged

    def verb_by(self, by: Actor) -> str:  # noqa: ARG002
        return "retry the merge of" if self.merge else self.verb

    def word(self, by: Actor, source: Status, target: Status) -> str:  # noqa: ARG002
        if self.merge:
            return "retry_merge"
        return "unblock" if by.role is Role.PLANNER else "retry"

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if self.merge:
            is_approved = task.integration_failure and task.approved_by and task.review_commit
            return None if is_approved else "it was not an approved task that failed to merge"
        if by.role is Role.PLANNER:
            if task.status is not Status.BLOCKED:
                return f"it is {task.status}, and asks nothing"
            return None if self.guidance else "it needs an answer"
        return None if by.role is Role.HUMAN else "only its merge can be tried again so"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        if self.merge:
            return {**NO_BLOCK, **NO_FAILURES, "integration_failure": None}
        fresh = {**NO_BLOCK, **NO_REVIEW, **NO_FAILURES, "guidance": self.guidance}
        if by.role is Role.PLANNER:
            is_limit = task.blocked_rule is not None
            counters = {"unblocks": task.unblocks + 1, "fresh_starts": task.fresh_starts + is_limit}
            return {**fresh, **(FRESH_ROUNDS if is_limit else {}), **counters}
        return {**fresh, **FRESH_ROUNDS, "assigned_to": None, "unblocks": 0, "fresh_starts": 0}

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return {"reason" if self.merge else "guidance": self.guidance} if self.guidance else {}


class Supersede(Event):
    verb = "supersede"
    words = ("supersede",)
    superseded_by: Annotated[tuple[Id, ...], Field(min_length=1)] = Field(alias="by")
    rescope_reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "it cannot replace itself" if task.id in self.superseded_by else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "superseded_by": self.superseded_by, "rescope_reason": self.rescope_reason}


class Abandon(Event):
    verb = "abandon"
    words = ("abandon",)
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _merging_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "closing_reason": self.reason}


class Amend(Event):
    """Change what is asked for, not where the task is."""

    verb = "amend"
    words = ("amend",)
    fields: dict[str, Any]

    @field_validator("fields")
    @classmethod
    def _as_a_task_has_them(cls, fields: FieldChanges) -> FieldChanges:
        known = {name: _adapter(name).validate_python(fields[name]) for name in fields.keys() & AMENDABLE}
        return fields | known

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        wrong = sorted(self.fields.keys() - AMENDABLE)
        return f"{', '.join(wrong)} cannot be amended" if wrong else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return dict(self.fields)

    def facts(self, source: Status | None = None) -> dict[str, Any]:  # noqa: ARG002
        return {"fields": sorted(self.fields)}


AMENDABLE: Final = frozenset(
    {
        "description",
        "kind",
        "priority",
        "done_when",
        "scope",
        "spec_ref",
        "depends_on",
        "needs",
        "validation",
        "guidance",
    }
)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Task.model_fields[name]
    form: Any = Annotated[field.annotation, field]
    return TypeAdapter(form)


def _gate_outcomes(verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """Return the outcome of each gate, for the history."""
    return {"gates": {one.gate: str(one.outcome) for one in verdicts}} if verdicts else {}


def _release_changes(task: Task) -> FieldChanges:
    """Return the changes of a release; a reviewer's release keeps `assigned_to`, which names the coder."""
    holder_is_coder = task.lease is not None and task.lease.holder == task.assigned_to
    return NO_HOLDER if holder_is_coder else {"lease": None}


def _lease_refusal(lease: Lease, by: Actor, at: datetime) -> str | None:
    if lease.holder != by.id:
        return f"the lease is made out to {lease.holder}"
    return None if lease.is_live(at) else "the lease is over already"


def _no_change_refusal(task: Task) -> str | None:
    if task.nothing_to_do:
        return "it carries no change: confirm that there is nothing to do, or reject it"
    return None


def _merging_refusal(task: Task) -> str | None:
    """Return a refusal while a merge has started: the branch may already hold the commit."""
    return "its merge has begun" if task.merging else None


def _own_work_refusal(task: Task, by: Actor) -> str | None:
    if by.id in task.authors:
        return "nobody judges their own work"
    if by.run is not None and by.run == task.submitted_run:
        return "the run that produced the work cannot judge it"
    return None


# The life of a task: a table of rows, the function that sets a status, and the label of a position.


class Transition(NamedTuple):
    """*who* may let *event* happen to a task in any of *sources*, after which it is in one of *targets*."""

    event: type[Event]
    sources: frozenset[Status]
    targets: frozenset[Status]  # empty: it stays where it is
    who: frozenset[Role]
    held: bool = False  # a worker has to hold the lease and show its token


S = Status
P, C, R, V, H = Role.PLANNER, Role.CODER, Role.REVIEWER, Role.SUPERVISOR, Role.HUMAN


def _transition(
    event: type[Event], sources: Iterable[Status], targets: Iterable[Status], *who: Role, held: bool = False
) -> Transition:
    return Transition(event, frozenset(sources), frozenset(targets), frozenset(who), held)


_WAITING: Final = (S.DRAFT, S.IDLE, S.BLOCKED)
_SENT_BACK: Final = (S.REJECTED, S.INTEGRATION_FAILED)
_JUDGED: Final = (S.READY_FOR_REVIEW, S.APPROVED)
_IN_HANDS: Final = (S.WORKING, *_JUDGED, *_SENT_BACK, S.AWAITING_APPROVAL)
_GIVEN_UP: Final = (S.BLOCKED, S.ABANDONED)  # where the workflow may end what it does not let pass


def _reports(source: Status) -> frozenset[Status]:
    return frozenset((*REPORT_WORDS[source], *_GIVEN_UP))


# The worker whose job it is takes it and reports: who works on what waits for work, who judges on all else.
# Which of them it is, the document says (`workflow.transition`); that no maker judges, the events themselves.
TRANSITIONS: Final[tuple[Transition, ...]] = (
    _transition(Ready, [S.DRAFT], [S.IDLE], P, R, H),
    _transition(Take, [S.IDLE, *_SENT_BACK], [S.WORKING], P, C),
    _transition(Take, _JUDGED, [], R),
    _transition(Write, [S.WORKING], [], P, C, held=True),
    _transition(Renew, [S.WORKING], [], P, C, held=True),
    _transition(Renew, _JUDGED, [], R, held=True),
    _transition(Report, [S.WORKING], _reports(S.WORKING), P, C, held=True),
    _transition(Report, [S.READY_FOR_REVIEW], _reports(S.READY_FOR_REVIEW), R, V, held=True),
    _transition(Report, [S.APPROVED], _reports(S.APPROVED), R, V, held=True),
    _transition(Report, [S.AWAITING_APPROVAL], _reports(S.AWAITING_APPROVAL), H),
    _transition(Release, [S.WORKING], [S.IDLE], P, C, V, H, held=True),
    _transition(Release, _JUDGED, [], R, H, held=True),
    _transition(Reclaim, [S.WORKING, *_JUDGED, S.INTEGRATION_FAILED], [S.IDLE], V),
    _transition(Accept, [S.APPROVED, S.AWAITING_APPROVAL], [], H),
    _transition(Waive, [*_WAITING, *_IN_HANDS], [], H),
    _transition(Intend, [S.APPROVED], [], R, V, held=True),
    _transition(Land, [S.APPROVED], [S.MERGED], R, V, held=True),
    _transition(Block, [S.WORKING], [S.BLOCKED], P, C, V, H, held=True),
    _transition(Block, _JUDGED, [S.BLOCKED], R, V, H, held=True),
    _transition(Block, [S.DRAFT, S.IDLE, S.REJECTED], [S.BLOCKED], P, V, H),
    _transition(Block, [S.INTEGRATION_FAILED], [S.BLOCKED], P, R, V, H),
    _transition(Defer, [S.BLOCKED], [], P),
    _transition(Answer, [S.BLOCKED], [S.IDLE, S.APPROVED], P, R, V, H),
    _transition(Answer, [S.INTEGRATION_FAILED], [S.IDLE, S.APPROVED], R, V, H),
    _transition(Answer, [S.REJECTED], [S.IDLE], H),
    _transition(Supersede, [*_WAITING, *_SENT_BACK], [S.SUPERSEDED], P, H),
    _transition(Abandon, _WAITING, [S.ABANDONED], P, H),
    _transition(Abandon, [S.WORKING, *_JUDGED, S.AWAITING_APPROVAL], [S.ABANDONED], H),
    _transition(Abandon, _SENT_BACK, [S.ABANDONED], V, H),
    _transition(Amend, _WAITING, [], P, H),
    _transition(Amend, _IN_HANDS, [], H),
)

EVENTS: Final = tuple(dict.fromkeys(row.event for row in TRANSITIONS))
BY_SOURCE: Final = {(source, row.event): row for row in TRANSITIONS for source in row.sources}
EVENT_BY_WORD: Final = {word: event for event in EVENTS for word in event.words}

TERMINAL: Final = frozenset(Status) - {source for source, _ in BY_SOURCE}
CLAIMABLE: Final = frozenset({S.IDLE, *_SENT_BACK})
INITIAL_STATUSES: Final = frozenset({S.DRAFT, S.IDLE})  # where a new task may start
ADDED: Final = "added"  # the first entry of every history
ADDING_ROLES: Final = frozenset({P, V, H})
LEASED_ROLES: Final = frozenset({Role.PLANNER, Role.CODER, Role.REVIEWER})  # those whom a lease fences


def event_name(event: type[Event]) -> str:
    """Return what the table calls *event*."""
    return event.__name__.lower()


def moves() -> Iterator[tuple[str, Status, Status]]:
    """Yield every move of the table: what history or the table calls it, from where, to where."""
    for row in TRANSITIONS:
        for source in sorted(row.sources):
            for target in sorted(row.targets - {source}):
                if row.event is not Report:
                    yield event_name(row.event), source, target
                elif target in REPORT_WORDS[source]:
                    yield REPORT_WORDS[source][target], source, target


def row_for(task: Task, event: Event, *, by: Actor, at: datetime) -> Transition:
    """Return the row by which *event* may happen to *task*, or raise why it may not."""
    row = BY_SOURCE.get((task.status, type(event)))
    if row is None or by.role not in row.who:
        raise Forbidden(task.id, by.id, event.verb_by(by), task.status)
    if row.held and by.role in LEASED_ROLES:
        _check_lease(task, event, by, at)
    if refusal := event.refusal(task, by, at):
        raise Refused(f"{task.id}: {by.id} may not {event.verb_by(by)} it, because {refusal}")
    return row


def with_entry(before: Task, after: Task, event: Event, *, by: Actor, at: datetime) -> Task:
    """Return *after* with what history says of *event*; raise where its status requires more than it has."""
    if not event.silent:
        entry = HistoryEntry(
            # A clock that was set back must not make the board invalid: history never runs backwards.
            at=max([at, *(last.at for last in before.history[-1:])]),
            event=event.word(by, before.status, after.status),
            by=by.id,
            role=by.role,
            source=before.status,
            target=after.status,
            facts={**event.facts(before.status), **_entered_phase(before, after)},
        )
        after = after.replace(history=(*before.history, entry))
    for promise in unmet_requirements(after):
        why = f"a task that is {after.status} {promise.says}"
        raise Refused(f"{before.id}: {by.id} may not {event.verb_by(by)} it, because {why}")
    return after


def _entered_phase(before: Task, after: Task) -> dict[str, str]:
    """Return the phase in which other work than before is to be done now; nothing where none began."""
    was, here = before.position, after.position
    if was is None or here is None or here.stage is not Stage.WORK or here.worked or here.end:
        return {}
    return {} if here.phase in {was.phase, here.made_in} else {"phase": here.phase}


def _check_lease(task: Task, event: Event, by: Actor, at: datetime) -> None:
    lease = task.lease
    if lease is None:
        raise LeaseLost(task.id, by.id, event.verb_by(by), "nobody holds its lease any more")
    if lease.holder != by.id or by.token is None or lease.token != by.token:
        raise LeaseLost(task.id, by.id, event.verb_by(by), f"the lease is {lease.holder}'s by another token")
    if not lease.is_live(at) and not isinstance(event, Renew):
        raise LeaseLost(
            task.id, by.id, event.verb_by(by), f"the lease ended at {lease.expires:%Y-%m-%dT%H:%M:%SZ}"
        )


def is_allowed_entry(entry: HistoryEntry) -> bool:
    """Return whether the transition table allows a history entry."""
    if entry.source is None:
        return entry.event == ADDED and entry.target in INITIAL_STATUSES and entry.role in ADDING_ROLES
    event = EVENT_BY_WORD.get(entry.event)
    row = BY_SOURCE.get((entry.source, event)) if event else None
    if row is None or entry.role not in row.who:
        # A report may end a task, as the document says, by whoever makes it.
        row = BY_SOURCE.get((entry.source, Report)) if event in {Block, Abandon} else None
    if row is None or entry.role not in row.who:
        return False
    if event is Report and entry.event not in {"find_nothing", "force_pass"}:
        return REPORT_WORDS[entry.source].get(entry.target) == entry.event
    return entry.target in row.targets or entry.target is entry.source


class Requirement(NamedTuple):
    says: str  # completes "a task that is WORKING …"
    field: str
    holds: Callable[[Task], bool]


_HELD_BY_ITS_CODER: Final = Requirement(
    "is leased to the coder it is assigned to",
    "lease",
    lambda task: task.lease is not None and task.lease.holder == task.assigned_to,
)
_NOT_HELD: Final = Requirement("is held by nobody", "lease", lambda task: task.lease is None)
_HELD_BY_NO_AUTHOR: Final = Requirement(
    "is held by nobody but a reviewer who did not write it",
    "lease",
    lambda task: task.lease is None or task.lease.holder not in task.authors,
)
_HAS_BASE: Final = Requirement("has a base_commit", "base_commit", lambda task: task.base_commit is not None)
_IS_COUNTED: Final = Requirement(
    "counts its iteration and attempt from 1",
    "iteration",
    lambda task: task.iteration >= 1 and task.attempt >= 1,
)
_HAS_AUTHOR: Final = Requirement("names its author", "authors", lambda task: bool(task.authors))
_HAS_WORK: Final = Requirement(
    "has a review_commit that is not its base, unless there is nothing to do, or words are all of it",
    "review_commit",
    lambda task: (
        (task.review_commit is None and bool(task.artifacts))
        or (
            task.review_commit is not None
            and (task.review_commit == task.base_commit) == (task.nothing_to_do is not None)
        )
    ),
)
_ANY_WORK_IS_MORE: Final = Requirement(
    "has no review_commit that is its base, unless it says there is nothing to do",
    "review_commit",
    lambda task: task.review_commit is None or _HAS_WORK.holds(task),
)
_HAS_APPROVER: Final = Requirement(
    "has an approved_by who is none of its authors",
    "approved_by",
    lambda task: task.approved_by is not None and task.approved_by not in task.authors,
)
_SAYS_WHY_REJECTED: Final = Requirement(
    "has a rejection_reason and rejection_feedback",
    "rejection_reason",
    lambda task: task.rejection_reason is not None and bool(task.rejection_feedback),
)
_MOST_QUESTIONS: Final = 3
_SAYS_WHY_BLOCKED: Final = Requirement(
    "has a blocked_reason and one to three blocked_questions",
    "blocked_reason",
    lambda task: task.blocked_reason is not None and 1 <= len(task.blocked_questions) <= _MOST_QUESTIONS,
)
_SAYS_WHAT_FAILED: Final = Requirement(
    "has an integration_failure with its reason",
    "integration_failure",
    lambda task: task.integration_failure is not None,
)
_IS_MERGED: Final = Requirement(
    "has the merge_commit that was started",
    "merge_commit",
    lambda task: (
        task.merge_commit is not None
        and task.merging is not None
        and task.merging.commit == task.merge_commit
    ),
)
_NOT_MERGED: Final = Requirement(
    "has no merge_commit", "merge_commit", lambda task: task.merge_commit is None
)
_IS_CLEAN: Final = Requirement(
    "has no taint that nobody accepted", "taints", lambda task: not task.is_tainted
)
_NAMES_SUCCESSORS: Final = Requirement(
    "has superseded_by and a rescope_reason",
    "superseded_by",
    lambda task: bool(task.superseded_by) and task.rescope_reason is not None,
)
_SAYS_WHY_CLOSED: Final = Requirement(
    "has a closing_reason", "closing_reason", lambda task: task.closing_reason is not None
)
_ASKS: Final = Requirement(
    "has an approval_question", "approval_question", lambda task: task.approval_question is not None
)
_SAYS_NOTHING_NEEDED: Final = Requirement(
    "says why there is nothing to do", "nothing_to_do", lambda task: task.nothing_to_do is not None
)

_SUBMITTED: Final = (_HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _NOT_MERGED)

REQUIRES: Final[dict[Status, tuple[Requirement, ...]]] = {
    Status.DRAFT: (_NOT_HELD, _NOT_MERGED),
    Status.IDLE: (_NOT_HELD, _NOT_MERGED),
    Status.WORKING: (_HELD_BY_ITS_CODER, _HAS_AUTHOR, _HAS_BASE, _IS_COUNTED, _NOT_MERGED),
    Status.READY_FOR_REVIEW: (*_SUBMITTED, _HELD_BY_NO_AUTHOR),
    Status.REJECTED: (
        _HAS_AUTHOR,
        _HAS_BASE,
        _ANY_WORK_IS_MORE,
        _NOT_MERGED,
        _NOT_HELD,
        _SAYS_WHY_REJECTED,
    ),
    Status.APPROVED: (*_SUBMITTED, _HELD_BY_NO_AUTHOR, _HAS_APPROVER),
    Status.AWAITING_APPROVAL: (*_SUBMITTED, _NOT_HELD, _ASKS),
    Status.BLOCKED: (_NOT_HELD, _SAYS_WHY_BLOCKED, _NOT_MERGED),
    Status.INTEGRATION_FAILED: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _SAYS_WHAT_FAILED),
    Status.MERGED: (_NOT_HELD, _HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _HAS_APPROVER, _IS_CLEAN, _IS_MERGED),
    Status.COMPLETE: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN),
    Status.NOTHING_TO_DO: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN, _SAYS_NOTHING_NEEDED),
    Status.SUPERSEDED: (_NOT_HELD, _NAMES_SUCCESSORS, _NOT_MERGED),
    Status.ABANDONED: (_NOT_HELD, _SAYS_WHY_CLOSED, _NOT_MERGED),
}


def unmet_requirements(task: Task) -> list[Requirement]:
    """Return the requirements of its status that *task* does not meet."""
    return [promise for promise in REQUIRES[task.status] if not promise.holds(task)]


# What a position is called, in every workflow.
ENDED: Final[Mapping[End, Status]] = {
    End.DONE: Status.COMPLETE,  # or MERGED, where the phase that it ended in merges
    End.NOTHING_TO_DO: Status.NOTHING_TO_DO,
    End.STOPPED: Status.ABANDONED,
    End.SUPERSEDED: Status.SUPERSEDED,
    End.BLOCKED: Status.BLOCKED,
    End.PAUSED: Status.BLOCKED,
}
SENT_BACK: Final[Mapping[Stage | None, Status]] = {
    None: Status.IDLE,
    Stage.WORK: Status.REJECTED,
    Stage.JUDGE: Status.REJECTED,
    Stage.EFFECT: Status.INTEGRATION_FAILED,
}


def label_of(position: Position, lease: Lease | None) -> Status:
    """Return what a task at *position* is called while *lease* holds it."""
    if position.end is not None:
        is_merged = position.end is End.DONE and position.stage is Stage.EFFECT
        return Status.MERGED if is_merged else ENDED[position.end]
    if position.waiting is not None:
        return _waiting(position)
    if position.job is Stage.EFFECT:
        return Status.APPROVED
    if position.job is Stage.JUDGE:
        return Status.READY_FOR_REVIEW
    return Status.WORKING if lease else SENT_BACK[position.back_from]


def _waiting(position: Position) -> Status:
    if position.waiting == RELEASE:
        return Status.DRAFT
    # Somebody who is about to work needs an answer; what was made needs a yes.
    is_before_work = position.stage is Stage.WORK and not position.worked
    return Status.BLOCKED if is_before_work else Status.AWAITING_APPROVAL
