"""What can happen to a task: events that carry the facts their transition needs.

They are the same for every role and every workflow: a job is taken, and what came of it is reported. An
event says why it may not happen to this task (`refusal`), which fields it sets (`changes`), and what history
calls it (`word`) and keeps of it (`facts`). Which statuses and roles it belongs to is said in the table of
`lifecycle`, and where a report leads by the engine; neither is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter, field_validator

from liza.domain.memory import Remembered
from liza.domain.model import Checkpoint, Lease, MergeIntent, Role, Status, Task, Waiver, WorkSession
from liza.domain.record import Commit, Id, NonEmptyStr, Record, Time
from liza.domain.verdicts import Feedback, Outcome, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import Actor

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
    artifacts: Mapping[NonEmptyStr, NonEmptyStr] = Field(default={})  # texts by their names
    session: WorkSession | None = None  # the conversation in which it was made
    remember: tuple[Remembered, ...] = ()  # for who works on it later
    effects: Mapping[NonEmptyStr, str] = Field(default={})  # what was done for it, and what came of that

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
    effects: Mapping[NonEmptyStr, str] = Field(default={})  # what else was done, and what came of that

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
