"""The values on the board: what `state.yaml` says, as frozen records that cannot hold nonsense.

In this order: verdicts and positions, money and providers, the task with all its parts, the goal, workers and
notes, and the state as a whole.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from liza.domain.anomalies import Anomaly
from liza.domain.config import Config, Count, Usd
from liza.domain.memory import MemoryEntry
from liza.domain.record import (
    Commit,
    Id,
    Keyed,
    NonEmptyStr,
    Record,
    Time,
    changed_names,
    default_record,
    with_record,
)
from liza.domain.version import VERSION as VERSION  # noqa: PLC0414 - it is of the state
from liza.errors import NotThere

# What a gate says about a tree, and where that brought a task in its workflow.

JUDGE: Final = "judge"  # to the rules, whoever gives a verdict
LONGEST_TAIL: Final = 4000  # characters of a command's output that the board keeps; the run's folder has all


class Severity(StrEnum):
    BLOCKER = "blocker"
    CONCERN = "concern"


class Feedback(Record):
    message: NonEmptyStr
    file: str | None = None
    line: Annotated[int, Field(ge=1)] | None = None
    severity: Severity = Severity.BLOCKER
    suggestion: str | None = None


class Outcome(StrEnum):
    """What a gate, or a phase, comes to."""

    PASS = "pass"  # noqa: S105 - no password
    ASK = "ask"  # a person has to answer first
    REVISE = "revise"  # back to whoever made it, with what is wrong
    STOP = "stop"  # the work is given up
    BLOCK = "block"  # somebody has to think before anybody goes on
    NONE = "none"  # no verdict: the workflow says what that means, and never that it passed


class Evidence(Record):
    """What a gate saw, so that nobody has to take its word."""

    command: NonEmptyStr | None = None
    code: int | None = None
    tail: str = ""
    run: Id | None = None  # the folder under runs/ that has the whole output
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def last_lines(self, most: int) -> tuple[str, ...]:
        """Return the last lines of what was printed, at most *most*."""
        return tuple(line for line in self.tail.splitlines() if line.strip())[-most:]


class Verdict(Record):
    """What *gate* says about *tree*; about another tree it says nothing."""

    gate: Id
    outcome: Outcome
    at: Time
    tree: Commit | None = None
    reason: NonEmptyStr | None = None
    feedback: tuple[Feedback, ...] = ()
    label: NonEmptyStr | None = None
    confidence: Annotated[int, Field(ge=0, le=10)] | None = None  # how sure a reviewer's agent says it is
    evidence: Evidence | None = None

    @property
    def judging_worker(self) -> str | None:
        """The worker whose agent gave this verdict; None for a machine."""
        seen = self.evidence
        return seen.run.partition(".")[0] if seen and seen.run and seen.command is None else None

    def signals(self) -> "tuple[Signal, ...]":
        """Return what rules count of it; nothing of a machine's."""
        if self.judging_worker is None:
            return ()
        said = Signal(name=SignalName.VERDICT, value=self.outcome.value, at=self.at, role=JUDGE)
        sure = said.replace(name=SignalName.CONFIDENCE, value=self.confidence)
        return (said,) if self.confidence is None else (said, sure)


class Decision(Record):
    """What a phase came to; rules count these, never a single gate's verdict."""

    phase: NonEmptyStr
    outcome: Outcome
    at: Time
    reason: NonEmptyStr | None = None
    output: NonEmptyStr | None = None  # a digest of what a command printed, numbers and places left out
    is_merge: bool = False  # about the tree that would be merged: no rejection of the work by itself


class Risk(StrEnum):
    """How risky an agent says that its work is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SignalName(StrEnum):
    TESTS = "tests"  # passed or failed, as the maker of the work says
    VERDICT = "verdict"  # the outcome
    SILENCE = "silence"  # no verdict, where one was asked for
    CONFIDENCE = "confidence"  # of ten
    RISK = "risk"  # low, medium or high, of the step that is next


class Signal(Record):
    """What an agent said, or left unsaid, beside its work and its verdicts; rules count it."""

    name: SignalName
    at: Time
    value: NonEmptyStr | int | None = None
    phase: NonEmptyStr | None = None
    role: NonEmptyStr | None = None


# Where a task is in its workflow: the record that the engine moves and the board keeps.

# What a position waits on beside the gates of a workflow; no gate can have such an id.
RELEASE: Final = ":release"  # a draft: somebody has to release it first
TAINT: Final = ":taint"  # a person has to accept what the work is tainted with


def taint_meaning(mark: str) -> str:
    """Return what *mark* says of work that is tainted with it, as people say it."""
    kind, _, where = mark.partition(":")
    phase, _, gate = where.partition("/")
    if kind == "skipped":
        return f"{gate} was not asked about the last round of {phase}"
    if kind != "forced":
        return f"the {mark.removeprefix('overrode_')} objected, and was overruled"
    if gate:
        return f"{gate} could not be asked in {phase}"
    return f"the rounds of {where} were over" if where.isupper() else f"it was forced through ({where})"


class End(StrEnum):
    """Where work can end; `FINAL` are those that nothing leads out of."""

    DONE = "DONE"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    STOPPED = "STOPPED"
    SUPERSEDED = "SUPERSEDED"
    BLOCKED = "BLOCKED"
    PAUSED = "PAUSED"


FINAL: Final = frozenset({End.DONE, End.NOTHING_TO_DO, End.STOPPED, End.SUPERSEDED})


class Stage(StrEnum):
    """What a phase is for, whatever its document calls it."""

    WORK = "work"  # somebody works
    JUDGE = "judge"  # gates judge what was made
    EFFECT = "effect"  # the daemon does something with it, as merging it


class Position(Record):
    """Where a piece of work is; all that the engine has to know of its past."""

    phase: NonEmptyStr
    stage: Stage = Stage.WORK  # of the phase
    end: End | None = None
    worked: bool = False
    asked: bool = False
    nothing: bool = False  # the worker says that there is nothing to do
    forced: bool = False  # this visit passes, whatever its gates said
    back_from: Stage | None = None  # where the work was sent back to this phase
    verdicts: tuple[Verdict, ...] = ()  # of this visit, one a gate; what they saw is with the task
    approvals: tuple[Verdict, ...] = ()  # what agents and people let pass since the work
    iterations: Mapping[str, int] = Field(default_factory=dict)
    attempt: int = 0
    loop: int = 0
    path: NonEmptyStr | None = None
    taints: tuple[NonEmptyStr, ...] = ()
    accepted: tuple[NonEmptyStr, ...] = ()
    waiting: NonEmptyStr | None = None
    known: tuple[
        NonEmptyStr, ...
    ] = ()  # predicates that hold for the work, which conditions of gates ask for
    tree: Commit | None = None
    made_in: NonEmptyStr | None = None
    runs: tuple[NonEmptyStr, ...] = ()  # that made the work, none of which may judge it

    @property
    def job(self) -> Stage | None:
        """What is next: to work until that is handed in; None at an end, and while a person is asked."""
        if self.end is not None or self.waiting is not None:
            return None
        return Stage.JUDGE if self.stage is Stage.WORK and self.worked else self.stage

    @property
    def is_tainted(self) -> bool:
        return not set(self.taints) <= set(self.accepted)

    def with_taints(self, *marks: str) -> "Position":
        """Return it with *marks*; one that was accepted before has to be accepted again."""
        return self.replace(
            taints=tuple(dict.fromkeys((*self.taints, *marks))),
            accepted=tuple(mark for mark in self.accepted if mark not in marks),
        )


# What runs cost, and which providers want to be left alone, as the board keeps it.

USD_DIGITS: Final = 6  # digits behind the point: sums of fractions of a cent stay readable


class Provenance(StrEnum):
    """Where the numbers of a usage come from."""

    REPORTED = "reported"
    PRICED = "priced"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class Usage(Record):
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cached: Count | None = None  # of those that went in, what the provider had read before
    usd: Usd | None = None
    model: NonEmptyStr | None = None
    provenance: Provenance = Provenance.UNKNOWN


# What one run can be believed to have cost; sums of more overflow.
MOST_USD: Final = 100_000
MOST_TOKENS: Final = 10**12
MOST_DIGITS: Final = 20  # of a whole number that is read as one
# What else programs and providers call what a run used.
_USAGE_ALIASES: Final = {
    **dict.fromkeys(("cost", "cost_usd", "total_cost", "total_cost_usd"), "usd"),
    **dict.fromkeys(("input_tokens", "prompt_tokens"), "tokens_in"),
    **dict.fromkeys(("output_tokens", "completion_tokens"), "tokens_out"),
    **dict.fromkeys(("cached_tokens", "cache_read_input_tokens"), "tokens_cached"),
}
_AMOUNT: Final = re.compile(
    r"\$?\s*((?:[1-9]\d{0,2}(?:[,_]\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?:USD|\$|tokens)?", re.IGNORECASE
)


class ReportedUsage(Record):
    """What an agent says of its own run, the `usage` beside its answer: as much of it as can be read."""

    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cached: Count | None = None
    usd: Usd | None = None
    model: NonEmptyStr | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        named = {re.sub(r"[\s-]+", "_", str(key).casefold()): inner for key, inner in value.items()}
        known = {
            _USAGE_ALIASES.get(name, name): inner if name == "model" else _amount_in(inner)
            for name, inner in named.items()
        }
        found = {name: inner for name, inner in known.items() if _is_believable(name, inner)}
        if not found:
            raise ValueError("nothing in it says what the run used")
        return found


def _amount_in(value: object) -> object:
    match = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    text = re.sub("[_,]", "", match[1])
    return int(text) if text.isdecimal() and len(text) < MOST_DIGITS else float(text)


def _is_believable(name: str, value: object) -> bool:
    """Return whether *value* can be what a run used of *name*."""
    if name == "model":
        return isinstance(value, str) and bool(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name == "usd":
        return 0 <= value <= MOST_USD
    return name in ReportedUsage.model_fields and isinstance(value, int) and 0 <= value <= MOST_TOKENS


class CostTotals(Record):
    """What runs cost in USD, by where the numbers come from; of *unreported* runs nobody knows it."""

    runs: Count = 0
    reported: Usd = 0
    priced: Usd = 0
    estimated: Usd = 0
    unreported: Count = 0

    @property
    def usd(self) -> float:
        return round(self.reported + self.priced + self.estimated, USD_DIGITS)

    def plus(self, usd: float, provenance: Provenance) -> Self:
        """Return the sum with one more run; what nobody knows counts as nothing."""
        more = self.replace(runs=self.runs + 1)
        if provenance is Provenance.UNKNOWN:
            return more.replace(unreported=self.unreported + 1)
        return more.replace(**{provenance.value: round(getattr(self, provenance) + usd, USD_DIGITS)})


class Reservation(Record):
    """The most that a run which is going on may cost; its id is its worker's, which runs one at a time.

    *likely* is what counts as spent where nobody learns what it came to.
    """

    id: Id
    task: Id | None = None
    kind: NonEmptyStr
    usd: Usd
    likely: Usd = 0
    since: Time


class CostStats(Record):
    """What runs of one kind (a step by a model) cost so far: in all, and at most.

    *silent* are further runs, which did not report it.
    """

    kind: NonEmptyStr
    runs: Count
    usd: Usd
    most: Usd = 0
    silent: Count = 0


class Spend(Record):
    """The money of the whole board. *warned* and *asked* name the cap for which people were told."""

    total: CostTotals = default_record(CostTotals)
    reserved: tuple[Reservation, ...] = ()
    kinds: tuple[CostStats, ...] = ()
    warned: Usd | None = None
    asked: Usd | None = None


class TaskAccount(Record):
    """The money of one task, whose id it has. *cap* is what a person allowed it instead of the setting."""

    id: Id
    spent: CostTotals = default_record(CostTotals)
    cap: Usd | None = None
    asked: Usd | None = None


class ProviderState(StrEnum):
    """How a provider takes our requests; `PROVIDER_STATES` says what each means."""

    OPEN = "open"
    LIMITED = "limited"
    EXHAUSTED = "exhausted"
    REFUSED = "refused"


PROVIDER_STATES: Final[dict[ProviderState, str]] = {
    ProviderState.OPEN: "it takes requests again, since then",
    ProviderState.LIMITED: "too many requests a minute; tried again when that has passed",
    ProviderState.EXHAUSTED: "its quota is used up; tried again when the window ends",
    ProviderState.REFUSED: "it does not accept the key or the bill; tried again when a person says so",
}


class Provider(Record):
    """Whoever sells the models. *probe* is the worker that tries first; the others wait for what it finds."""

    id: Id
    state: ProviderState
    since: Time
    until: Time | None = None
    why: NonEmptyStr
    probe: Id | None = None
    times: Count = 0  # tries in a row that it turned down


ANSWER_PLAN: Final = 'liza answer plan "…"'  # how the questions of a goal are answered
SHOWN_EVENTS: Final = 5  # history entries of a task that state.yaml shows; the journal holds all of them


class Status(StrEnum):
    """Where a task is in the lifecycle; `STATUS_MEANING` says what each means."""

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


STATUS_MEANING: Final[dict[Status, str]] = {
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

    def problems(self) -> Iterator[str]:
        """Yield why no work can keep to it."""
        for path in (*self.include, *self.exclude):
            if path.startswith(("/", "~")) or ".." in path.split("/"):
                yield f"the path {path!r} leads out of the repository; give one inside"
        if both := sorted(set(self.include) & set(self.exclude)):
            yield f"{both[0]!r} is both in and out; decide"


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

    # What work left for who comes after, by name.
    artifacts: Mapping[NonEmptyStr, Artifact] = Field(default_factory=dict)
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
    awaits_words: bool = False  # what it asks is to be answered, not consented to
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

    @property
    def asks_for_answer(self) -> bool:
        """Whether a person is asked for words where it awaits approval, and not for consent."""
        return self.status is Status.AWAITING_APPROVAL and self.awaits_words

    @property
    def approval_command(self) -> str:
        """How a person lets it go on where it awaits approval."""
        return f'liza answer {self.id} "…"' if self.asks_for_answer else f"liza task accept {self.id}"

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
    search_ended: NonEmptyStr | None = None  # why no further ideas are tried, where that has to be said
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
    """Counters of one sprint, carried on by every change; `liza.domain.changes` counts and reads them."""

    added: Count = 0
    outcomes: Counts = Field(default_factory=dict)  # by final status
    attempts: Count = 0  # claims of coders
    in_vain: Count = 0  # attempts that ended with neither a commit nor a verdict
    fruitless: tuple[NonEmptyStr, ...] = ()  # the latest of those since somebody made progress
    killed: tuple[NonEmptyStr, ...] = ()  # attempts since then whose agents were killed again and again
    # Failures of gates in a row that are the same, by entry and reason.
    red_gates: tuple[NonEmptyStr, ...] = ()
    submissions: Count = 0
    reviews: dict[Id, ReviewCounts] = Field(default_factory=dict)  # by reviewer
    rejections: Counts = Field(default_factory=dict)  # by kind of reason
    merged_rounds: Count = 0  # iterations of merged tasks, summed
    merged_cycles: Count = 0  # rejections of merged tasks, summed
    cycle_times: Counts = Field(default_factory=dict)  # of merged tasks: "90s" counts those within 90 seconds
    seconds: Counts = Field(default_factory=dict)  # that tasks spent, by status
    crashes: Counts = Field(default_factory=dict)  # by worker
    refusals: Counts = Field(default_factory=dict)  # answers that could not be used, by step
    gates: dict[str, dict[str, Count]] = Field(default_factory=dict)  # gate: outcome: how often


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


class LeaseIndex(NamedTuple):
    """The leased tasks of a board, by the holders and by the tokens of their leases."""

    tasks: Mapping[str, Task]
    leases: dict[str, Lease]
    by_holder: dict[str, tuple[str, ...]]
    by_token: dict[str, tuple[str, ...]]

    def moved_to(self, tasks: Mapping[str, Task]) -> Self:
        """Return the index of *tasks*; only those are looked at that are other ones than here."""
        moved = type(self)(tasks, self.leases.copy(), self.by_holder.copy(), self.by_token.copy())
        for name in [gone for gone in self.leases if gone not in tasks]:
            _put_lease(moved, name, None)
        for name in changed_names(self.tasks, tasks):
            _put_lease(moved, name, tasks[name].lease)
        return moved


def _put_lease(index: LeaseIndex, name: str, lease: Lease | None) -> None:
    known = index.leases.pop(name, None)
    if known is not None:
        _remove_name(index.by_holder, known.holder, name)
        _remove_name(index.by_token, known.token, name)
    if lease is not None:
        index.leases[name] = lease
        index.by_holder[lease.holder] = (*index.by_holder.get(lease.holder, ()), name)
        index.by_token[lease.token] = (*index.by_token.get(lease.token, ()), name)


def _remove_name(names_by: dict[str, tuple[str, ...]], key: str, name: str) -> None:
    if left := tuple(other for other in names_by.pop(key) if other != name):
        names_by[key] = left


def index_leases(tasks: Mapping[str, Task]) -> LeaseIndex:
    """Return the leases of *tasks*, carried on from the tasks that were last asked for.

    A look at each of a thousand tasks is most of a change where many processes share the cache of a core.
    """
    global _latest_leases  # noqa: PLW0603 - one value, set at once
    found = _latest_leases
    if found.tasks is not tasks:
        found = _latest_leases = found.moved_to(tasks)
    return found


_latest_leases = LeaseIndex({}, {}, {}, {})


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
