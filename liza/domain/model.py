"""The values on the board: what `state.yaml` says, as frozen records that cannot hold nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer

from liza.domain.anomalies import Anomaly
from liza.domain.config import Config
from liza.domain.memory import MemoryEntry
from liza.domain.position import Position
from liza.domain.record import Commit, Id, Keyed, NonEmptyStr, Record, Time, default_record, with_record
from liza.domain.spending import Provider, Spend, TaskAccount
from liza.domain.verdicts import Decision, Evidence, Feedback, Risk, Signal, Verdict
from liza.domain.version import VERSION as VERSION  # noqa: PLC0414 - it is of the state
from liza.errors import NotThere

ANSWER_PLAN: Final = 'liza answer plan "…"'  # how the questions of a goal are answered
SHOWN_EVENTS: Final = 5  # history entries of a task that state.yaml shows; the journal holds all of them

Count = Annotated[int, Field(ge=0)]


class Status(StrEnum):
    """Where a task is in the lifecycle; `MEANING` says what each means."""

    DRAFT = "DRAFT"
    IDLE = "IDLE"
    WORKING = "WORKING"
    READY_FOR_REVIEW = "READY_FOR_REVIEW"
    REJECTED = "REJECTED"
    APPROVED = "APPROVED"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    BLOCKED = "BLOCKED"
    INTEGRATION_FAILED = "INTEGRATION_FAILED"
    MERGED = "MERGED"
    COMPLETE = "COMPLETE"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    SUPERSEDED = "SUPERSEDED"
    ABANDONED = "ABANDONED"


MEANING: Final[dict[Status, str]] = {
    Status.DRAFT: "planned, not yet released to coders",
    Status.IDLE: "waiting for a coder",
    Status.WORKING: "a coder holds it",
    Status.READY_FOR_REVIEW: "submitted; a reviewer may hold it",
    Status.REJECTED: "goes back to its coder with feedback",
    Status.APPROVED: "may be merged, or moves on to the next phase",
    Status.AWAITING_APPROVAL: "a person decides",
    Status.BLOCKED: "needs the planner or a person, with questions",
    Status.INTEGRATION_FAILED: "approved, but it does not merge",
    Status.MERGED: "proven to be on the integration branch",
    Status.COMPLETE: "finished and approved; this workflow merges nothing",
    Status.NOTHING_TO_DO: "a reviewer confirmed that no change is needed",
    Status.SUPERSEDED: "replaced by other tasks",
    Status.ABANDONED: "given up",
}


# What dependants wait for.
SUCCEEDED: Final = frozenset({Status.MERGED, Status.COMPLETE, Status.NOTHING_TO_DO})


class Role(StrEnum):
    """Who acts: three kinds of worker, the supervisor, or a person."""

    PLANNER = "planner"
    CODER = "coder"
    REVIEWER = "reviewer"
    SUPERVISOR = "supervisor"
    HUMAN = "human"


class Actor(Record):
    """Somebody who writes; workers on a task they hold show the token of their lease."""

    role: Role
    id: Id
    token: str | None = None
    run: str | None = None

    def __str__(self) -> str:
        return self.id


class Lease(Record):
    """The right to work on a task until *expires*; the token fences out whoever lost it."""

    holder: Id
    token: NonEmptyStr
    expires: Time

    def is_live(self, now: datetime) -> bool:
        return now < self.expires


class TaskScope(Record):
    include: tuple[NonEmptyStr, ...] = Field(default=(), alias="in")
    exclude: tuple[NonEmptyStr, ...] = Field(default=(), alias="out")


class Validation(Record):
    command: NonEmptyStr
    expect: str = ""


class Checkpoint(Record):
    """What a coder says before it implements."""

    intent: NonEmptyStr
    assumptions: tuple[NonEmptyStr, ...] = ()
    risk_level: Risk | None = None
    risks: str = ""
    validation: Validation | None = None
    files_to_modify: tuple[NonEmptyStr, ...] = ()


class Artifact(Record):
    """A text that work left for who comes after."""

    text: NonEmptyStr
    phase: NonEmptyStr
    at: Time
    by: Id


class WorkSession(Record):
    """The conversation in which a task was worked on last; only the same hat of the same program has it."""

    id: NonEmptyStr
    hat: NonEmptyStr
    backend: NonEmptyStr


class IntegrationFailure(Record):
    reason: NonEmptyStr
    paths: tuple[str, ...] = ()


class MergeIntent(Record):
    """The merge that is about to happen, recorded before the ref moves."""

    onto: Commit
    commit: Commit


class EffectIntent(Record):
    """What is about to be done outside of the board when a task moves on, recorded before it is done."""

    effects: tuple[NonEmptyStr, ...]
    commit: Commit | None = None
    at: Time
    by: Id


class Taint(Record):
    """A pass that was forced; the task does not merge until a person accepts it."""

    mark: NonEmptyStr
    at: Time
    accepted_by: Id | None = None
    accepted_at: Time | None = None


class TaskIssue(Record):
    """The issue of a forge that a task is for; without a branch it could not be fetched."""

    number: Annotated[int, Field(ge=1)]
    title: NonEmptyStr
    branch: NonEmptyStr | None = None  # that its work is published as
    base: NonEmptyStr = "main"  # that its pull request is for, where it waits for no other issue
    begins: Commit | None = None  # the tip of the branch, where somebody worked on it before


class HistoryEntry(Record):
    """One transition, as it was; never changed, never removed."""

    at: Time
    event: NonEmptyStr
    by: Id
    role: Role
    source: Status | None = Field(default=None, alias="from")
    target: Status = Field(alias="to")
    facts: Mapping[str, Any] = Field(default_factory=dict)


class Waiver(Record):
    """A limit that a person lifted for one task."""

    name: NonEmptyStr
    by: Id
    at: Time
    reason: NonEmptyStr


class TaskKind(StrEnum):
    CODE = "code"
    DOCS = "docs"
    CONFIG = "config"


class Task(Record):
    """A unit of work with one worktree and one branch."""

    id: Id
    description: NonEmptyStr
    status: Status
    kind: TaskKind = TaskKind.CODE
    phase: NonEmptyStr | None = None
    priority: int = 0
    done_when: tuple[NonEmptyStr, ...] = ()
    scope: TaskScope = default_record(TaskScope)
    spec_ref: NonEmptyStr | None = None
    depends_on: tuple[Id, ...] = ()
    needs: tuple[Id, ...] = ()  # labels that a host must have whose workers take it
    issue: TaskIssue | None = None
    validation: Validation | None = None
    waivers: tuple[Waiver, ...] = ()
    created: Time
    created_by: Id

    assigned_to: Id | None = None
    lease: Lease | None = None
    authors: tuple[Id, ...] = ()
    failed_by: tuple[Id, ...] = ()
    iteration: Count = 0
    attempt: Count = 0
    review_cycles_current: Count = 0
    review_cycles_total: Count = 0

    checkpoint: Checkpoint | None = None
    base_commit: Commit | None = None
    review_commit: Commit | None = None
    submitted_run: str | None = None
    nothing_to_do: NonEmptyStr | None = None
    approved_by: Id | None = None
    merging: MergeIntent | None = None
    intended: EffectIntent | None = None  # until what came of it is known
    merge_commit: Commit | None = None
    taints: tuple[Taint, ...] = ()

    artifacts: Mapping[NonEmptyStr, Artifact] = Field(
        default={}
    )  # what work left for who comes after, by name
    memory: tuple[MemoryEntry, ...] = ()  # what agents want remembered of it
    session: WorkSession | None = None
    verdicts: tuple[Verdict, ...] = ()  # what the gates said in its current round
    decisions: tuple[Decision, ...] = ()  # what its phases came to since this coder began
    signals: tuple[Signal, ...] = ()  # what its agents said beside that

    rejection_reason: NonEmptyStr | None = None
    rejection_feedback: tuple[Feedback, ...] = ()
    rejection_output: Evidence | None = None  # of what the gate ran that sent it back, or the reviewer's run
    blocked_reason: NonEmptyStr | None = None
    blocked_questions: tuple[NonEmptyStr, ...] = ()
    blocked_rule: NonEmptyStr | None = None  # the limit that blocked it, where it was one
    planner_questions: tuple[NonEmptyStr, ...] = ()  # what the planner asks people beside the questions above
    asked: Time | None = None  # since when only a person can answer
    unblocks: Count = 0  # times that the planner let it go on since a person last did
    fresh_starts: Count = 0  # of these, after a limit had blocked it
    approval_question: NonEmptyStr | None = None
    guidance: NonEmptyStr | None = None
    integration_failure: IntegrationFailure | None = None
    integration_failures: Count = 0
    conflicted: tuple[str, ...] = ()  # the paths of its last conflict
    superseded_by: tuple[Id, ...] = ()
    rescope_reason: NonEmptyStr | None = None
    closing_reason: NonEmptyStr | None = None

    position: Position | None = None  # in its workflow, where the engine moves it; the status is its label
    history_earlier: Count = 0
    history: tuple[HistoryEntry, ...] = ()

    @property
    def event_count(self) -> int:
        return self.history_earlier + len(self.history)

    @property
    def is_tainted(self) -> bool:
        return any(taint.accepted_by is None for taint in self.taints)

    def waives(self, limit: str) -> bool:
        return any(one.name == limit for one in self.waivers)

    @property
    def questions(self) -> tuple[str, ...]:
        """What people are asked: by whoever blocked the task, and by the planner beside that."""
        return tuple(dict.fromkeys((*self.blocked_questions, *self.planner_questions)))

    def with_recent_history(self) -> Self:
        """Return the task with only the latest of its history shown."""
        spare = len(self.history) - SHOWN_EVENTS
        if spare <= 0:
            return self
        return self.replace(history=self.history[spare:], history_earlier=self.history_earlier + spare)


class GoalStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    ABANDONED = "ABANDONED"


class NextGoal(Record):
    """A goal that waits for those before it."""

    description: NonEmptyStr
    spec_ref: NonEmptyStr | None = None
    created: Time


class PastGoal(Record):
    """A goal that is over, as it ended."""

    description: NonEmptyStr
    spec_ref: NonEmptyStr | None = None
    status: GoalStatus
    created: Time
    completed: Time | None = None
    report: NonEmptyStr | None = None  # the file that looks back on it


class Goal(Record):
    """What all of it is for: the goal that is worked on, those that wait, and those that are over."""

    description: NonEmptyStr
    spec_ref: NonEmptyStr | None = None
    status: GoalStatus = GoalStatus.IN_PROGRESS
    questions: tuple[NonEmptyStr, ...] = ()  # what the planner has to know first; a note answers them
    created: Time
    completed: Time | None = None
    number: Annotated[int, Field(ge=1)] = 1
    begun: Time | None = None  # when its turn came, where another goal was first
    planned: Time | None = None
    sent_back: NonEmptyStr | None = None  # what is wrong with the plan; the planner's next one answers it
    plan_returns: Count = 0  # times that reviewers did not let it pass since a person decided
    search_ended: NonEmptyStr | None = None  # why no further ideas are tried, where a search tries them
    queued: tuple[NextGoal, ...] = ()
    past: tuple[PastGoal, ...] = ()

    @property
    def since(self) -> datetime:
        return self.begun or self.created

    @property
    def is_over(self) -> bool:
        """Whether nothing is worked on any more: this goal is over, and none waits."""
        return self.status is not GoalStatus.IN_PROGRESS and not self.queued


class WorkerStatus(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    PARKED = "PARKED"
    STOPPED = "STOPPED"


class Refusal(Record):
    """An answer of an agent that could not be used, and why."""

    at: Time
    step: NonEmptyStr
    task: Id | None = None
    why: NonEmptyStr


class WorkerRecord(Record):
    """A worker process as the board knows it.

    Its life is proven by a kernel lock, and what it works on by the lease that names it: neither is said
    a second time here.
    """

    id: Id
    role: Literal[Role.PLANNER, Role.CODER, Role.REVIEWER]
    host: Id | None = None  # the machine that it runs on, where there are several
    labels: tuple[Id, ...] = ()  # of its host
    status: WorkerStatus = WorkerStatus.STARTING
    since: Time
    crashes: tuple[Time, ...] = ()
    refusals: Count = 0  # answers of its agents that could not be used
    refusal: Refusal | None = None  # the latest of them
    stopped_reason: NonEmptyStr | None = None


Counts = dict[str, Count]


class ReviewCounts(Record):
    """What one reviewer said, and how often that was about work that nobody had seen before."""

    approved: Count = 0
    rejected: Count = 0
    first_seen: Count = 0
    first_approved: Count = 0


class Metrics(Record):
    """Counters of one sprint, carried on by every change; `liza.domain.metrics` counts and reads them."""

    added: Count = 0
    outcomes: Counts = Field(default={})  # by final status
    attempts: Count = 0  # claims of coders
    in_vain: Count = 0  # attempts that ended with neither a commit nor a verdict
    fruitless: tuple[NonEmptyStr, ...] = ()  # the latest of those since somebody made progress
    killed: tuple[NonEmptyStr, ...] = ()  # attempts since then whose agents were killed again and again
    # Failures of gates in a row that are the same, by entry and reason.
    red_gates: tuple[NonEmptyStr, ...] = ()
    submissions: Count = 0
    reviews: dict[Id, ReviewCounts] = Field(default={})  # by reviewer
    rejections: Counts = Field(default={})  # by kind of reason
    merged_rounds: Count = 0  # iterations of merged tasks, summed
    merged_cycles: Count = 0  # rejections of merged tasks, summed
    cycle_times: Counts = Field(default={})  # of merged tasks: "90s" counts those within 90 seconds
    seconds: Counts = Field(default={})  # that tasks spent, by status
    crashes: Counts = Field(default={})  # by worker
    refusals: Counts = Field(default={})  # answers that could not be used, by step
    gates: dict[str, dict[str, Count]] = Field(default={})  # gate: outcome: how often


class Sprint(Record):
    """A stretch of the run between two looks of a person; no tasks here means all of the board."""

    number: Annotated[int, Field(ge=1)] = 1
    goal: NonEmptyStr | None = None
    tasks: tuple[Id, ...] = ()
    started: Time | None = None
    deadline: Time | None = None
    ended: Time | None = None
    # The file that looks back on it; written after it, so it is there.
    retrospective: NonEmptyStr | None = None
    metrics: Metrics = default_record(Metrics)


class Note(Record):
    """Something a person tells the agents; marked processed, never deleted."""

    id: Id
    timestamp: Time
    message: NonEmptyStr
    about: Id | None = Field(default=None, alias="for")
    processed: Time | None = None
    processed_by: Id | None = None


class Urgency(StrEnum):
    IMMEDIATE = "immediate"
    DEFERRED = "deferred"


class Discovery(Record):
    """Work that an agent found beside its task; the planner decides what becomes of it."""

    id: Id
    description: NonEmptyStr
    discovered_by: Id
    task_id: Id | None = None
    timestamp: Time
    urgency: Urgency = Urgency.DEFERRED
    considered: Time | None = None
    became_task: Id | None = None


class Handoff(Record):
    """What an agent with a full context tells the next one; one per task, its id is the task's."""

    id: Id
    agent: Id
    timestamp: Time
    summary: NonEmptyStr


class BreakerStatus(StrEnum):
    OK = "OK"
    TRIPPED = "TRIPPED"


class Remedy(StrEnum):
    """What a rule of the breaker does when it fires."""

    ALERT = "alert"
    CHECKPOINT = "checkpoint"
    PAUSE = "pause"


class Trip(Record):
    """A rule that fired, with all that it saw; resolved by a person with a reason."""

    id: Id
    rule: NonEmptyStr
    severity: NonEmptyStr
    at: Time
    action: Remedy = Remedy.CHECKPOINT
    about: NonEmptyStr | None = None  # what the evidence has in common
    evidence: tuple[NonEmptyStr, ...] = ()  # ids: of anomalies, or of what else the rule counts
    says: tuple[NonEmptyStr, ...] = ()  # the same as sentences
    tasks: tuple[Id, ...] = ()  # those affected
    resolved_at: Time | None = None
    resolution: NonEmptyStr | None = None


class CircuitBreaker(Record):
    status: BreakerStatus = BreakerStatus.OK
    trips: tuple[Trip, ...] = ()


class PersonCommit(Record):
    """A commit on the integration branch that a person made: no task's, and taken as it is."""

    commit: Commit
    at: Time
    why: NonEmptyStr


class Integration(Record):
    """What is known of the integration branch beside the merges of tasks."""

    base: Commit | None = None  # where the branch was before the first merge of this board
    yours: tuple[PersonCommit, ...] = ()


class Adopted(Record):
    """The workflow that the tasks of this board follow: a person may edit its file while they do."""

    name: NonEmptyStr | None = None  # where it is another than the settings name, and of a file
    text: str = ""  # of the file, as it was when it was read
    gates: tuple[NonEmptyStr, ...] = ()  # the kinds of gate in it that packages add
    effects: tuple[NonEmptyStr, ...] = ()


def _check_positive(revision: int) -> int:
    if revision < 1:
        message = "revision counts from 1"
        raise ValueError(message)
    return revision


def _empty_mapping() -> Mapping[str, Any]:
    return MappingProxyType({})


class State(Record):
    """The whole board at one revision."""

    version: Literal[2] = VERSION
    revision: Annotated[int, AfterValidator(_check_positive)]
    goal: Goal
    tasks: Keyed[Task] = Field(default_factory=_empty_mapping)
    agents: Keyed[WorkerRecord] = Field(default_factory=_empty_mapping)
    sprint: Sprint = default_record(Sprint)
    human_notes: Keyed[Note] = Field(default_factory=_empty_mapping)
    anomalies: Keyed[Anomaly] = Field(default_factory=_empty_mapping)
    discovered: Keyed[Discovery] = Field(default_factory=_empty_mapping)
    handoff: Keyed[Handoff] = Field(default_factory=_empty_mapping)
    circuit_breaker: CircuitBreaker = default_record(CircuitBreaker)
    providers: Keyed[Provider] = Field(default_factory=_empty_mapping)
    spend: Spend = default_record(Spend)
    accounts: Keyed[TaskAccount] = Field(default_factory=_empty_mapping)
    integration: Integration = default_record(Integration)
    workflow: Adopted = default_record(Adopted)
    config: Config = default_record(Config)
    archived: Annotated[
        Mapping[Id, Status],
        AfterValidator(MappingProxyType),
        PlainSerializer(dict, return_type=dict[str, Status]),  # pydantic cannot write a read-only mapping
    ] = Field(default_factory=_empty_mapping)

    def task(self, name: str) -> Task:
        """Return the live task *name*."""
        try:
            return self.tasks[name]
        except KeyError:
            raise NotThere("task", name, "`liza status` lists the tasks") from None

    def with_task(self, task: Task) -> Self:
        return self.replace(tasks=with_record(self.tasks, task))

    @property
    def has_hosts(self) -> bool:
        """Whether its workers are those of several machines, and not those of its settings."""
        agents = self.agents.values()
        return any(agent.host and agent.status is not WorkerStatus.STOPPED for agent in agents)

    def status_of(self, name: str) -> Status | None:
        """Return the status of a task, live or archived, or None where there is none."""
        task = self.tasks.get(name)
        return task.status if task else self.archived.get(name)


def waits_for(state: State, task: Task) -> tuple[str, ...]:
    """Return the dependencies of *task* that have not succeeded yet, by their exact ids."""
    return tuple(name for name in task.depends_on if state.status_of(name) not in SUCCEEDED)


KEYED_SECTIONS: Final[dict[str, type[Record]]] = {
    "tasks": Task,
    "agents": WorkerRecord,
    "human_notes": Note,
    "anomalies": Anomaly,
    "discovered": Discovery,
    "handoff": Handoff,
    "providers": Provider,
    "accounts": TaskAccount,
}
PLAIN_SECTIONS: Final = (
    *("goal", "sprint", "circuit_breaker", "spend", "integration", "workflow", "config", "archived"),
)
