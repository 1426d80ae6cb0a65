"""A workflow as a document says it: phases, the gates that judge in them, where each outcome leads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from liza.domain.cycle_archive import PAGE, ArchiveNaming
from liza.domain.memory import Retention
from liza.domain.model import Role
from liza.domain.phase_handoff import HandoffKind
from liza.domain.position import Position, Stage
from liza.domain.record import Id, NonEmptyStr, Record
from liza.domain.rules import ALWAYS, GROUPS, RULE_BY_NAME, Count, Rule, RuleAction
from liza.domain.verdicts import Outcome

ANY_PATH: Final = "*"  # the key of what holds on every path that has no key of its own
PLANNER_SPLITS: Final = "planner"  # the source of tasks where nothing else is said
AFTER_WORK: Final = "after_work"  # the one key of `effects` that is no outcome


class GateKind(StrEnum):
    ARTIFACT = "artifact"
    SCOPE = "scope"
    COMMAND = "command"
    PROOF = "proof"
    SCAN = "scan"
    REFS = "refs"
    AGENT = "agent"
    HUMAN = "human"
    SCORE = "score"
    EFFECT = "effect"


# What each kind of gate can be told beside the keys of every gate; the gate itself checks the values.
OPTIONS: Final[Mapping[GateKind, Mapping[str, str]]] = {
    GateKind.ARTIFACT: {
        "checkpoint": "`required`: intent, assumptions and validation, said before the work",
        "schema": "what else must be written down: `step_spec`, or the `handoff` to the next phase",
        "diff": "`required`: not empty; no binary or huge file, no link that leads out, no submodule",
        "tests": "`required`: where the change touches code, it has tests; another word is refused so far",
        "max_bytes": "how large a file may be",
    },
    GateKind.SCOPE: {
        "announced": "`required` or `recorded`: what is touched stands in the checkpoint",
        "max_loc": "lines that may change",
        "max_files": "files that may change",
        "limit": "`any`: it is enough to keep one of the two limits; `all`: both",
        "tolerance": "how far a change of documentation alone may go beyond, 0.1 for a tenth",
    },
    GateKind.COMMAND: {
        "command": "which of the project's commands: `setup`, `lint` or `test` of `gates` in liza.yaml",
        "from": "where else the command is said: `checkpoint.validation`, `task.validation` or `done_when`",
        "run": "a command of its own",
        "expect": "what it has to print",
        "keep": "files that it makes and a later gate reads",
        "tree": "`merged`: run on the tree that the merge would make",
    },
    GateKind.PROOF: {"named": "`exactly` or `matching`: how the scope has to name a test that may change"},
    GateKind.SCAN: {
        "secrets": "whether to look for secrets",
        "commands": "whether to look for forbidden commands",
        "paths": "what a sensitive file comes to: `revise`, `ask`, `record` or `ignore`",
    },
    GateKind.REFS: {
        "max_docs": "documents that may be cited; every cited file and line must exist",
        "docs": "where documents are",
        "on_miss": "what a file that does not exist comes to: `revise` or `record`",
    },
    GateKind.AGENT: {"prompt": "the file that says what is looked at here, in place of the hat's own"},
    GateKind.HUMAN: {
        "question": "what the person is asked",
        "asks": "`approve`, `answer` or `risk`",
        "remind_minutes": "after how long the person is asked again, and again after as long",
        "on_timeout": "what silence means: only `remind`, after a day where no minutes are said",
    },
    GateKind.SCORE: {
        "run": "the command that measures",
        "from": "`settings`: command, file, column and baseline are those of `experiment` in liza.yaml",
        "results": "the CSV or JSON that it writes",
        "column": "where the number is",
        "baseline": "a number, a file of the base, or `run`",
        "higher_is_better": "the direction",
        "min_delta": "by how much it has to be better",
        "at_least": "a floor",
        "at_most": "a ceiling",
    },
    GateKind.EFFECT: {"effect": "what is done; the gate passes when it worked"},
}


A_DAY: Final = 24 * 60.0  # minutes after which a person is asked again where only `on_timeout` is said
# What a person is asked at a human gate that has no question of its own.
QUESTIONS: Final = {
    "approve": "May this be merged as it is?",
    "answer": "What is the answer?",
    "risk": "This is risky; do you take it on?",
}


class GateTiming(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class GateMode(StrEnum):
    DECIDE = "decide"
    ADVISORY = "advisory"
    RECORD = "record"


class Predicate(StrEnum):
    """What a condition may ask; there is no language of conditions beside these words."""

    ASKED = "asked"
    UPFRONT_PLAN = "upfront_plan"
    NO_CODE = "no_code"
    PATH_UNSET = "path_unset"
    FINAL_ITERATION = "final_iteration"
    RISK_MEDIUM_OR_HIGH = "risk_medium_or_high"
    TEST_COMMAND = "test_command"
    EMPTY_OUTPUT = "empty_output"
    SIMPLE_OUTPUT = "simple_output"
    NO_CODE_CHANGES = "no_code_changes"


# The engine knows these itself; what a caller says about them does not count.
DERIVED: Final = frozenset({Predicate.ASKED, Predicate.PATH_UNSET, Predicate.FINAL_ITERATION})


class Effect(StrEnum):
    """What the daemon does when work moves on; no agent does any of it."""

    MERGE = "merge"
    COMMIT_OR_MERGE = "commit_or_merge"
    ARCHIVE = "archive"
    ENSURE_DRAFT_PR = "ensure_draft_pr"
    FINALIZE_PR = "finalize_pr"
    MARK_NOMERGE = "mark_nomerge"
    WRITE_SUMMARY = "write_summary"
    CLEANUP_WORKTREE = "cleanup_worktree"


# Both merge; with the second, the person who approves may want one commit of it.
MERGES: Final = frozenset({Effect.MERGE, Effect.COMMIT_OR_MERGE})
SQUASH: Final = "squash"  # the label of an approval by who wants that
# What tainted work has to wait for, until a person accepts the taint…
CLEAN_ONLY: Final = frozenset({Effect.MERGE, Effect.COMMIT_OR_MERGE, Effect.ARCHIVE})
# …and what is done in place of it without waiting.
IF_TAINTED: Final[Mapping[Effect, Effect]] = {Effect.FINALIZE_PR: Effect.MARK_NOMERGE}
PUBLISHING_EFFECTS: Final = CLEAN_ONLY | IF_TAINTED.keys()  # effects that show the work to others as good


class OnExhausted(StrEnum):
    BLOCK = "block"
    PAUSE = "pause"
    FORCE_PASS = "force_pass"  # noqa: S105 - no password
    STOP = "stop"


class ErrorOutcome(StrEnum):
    """What a gate that cannot be run comes to."""

    BLOCK = "block"
    REVISE = "revise"
    STOP = "stop"
    FORCE_PASS = "force_pass"  # noqa: S105 - no password


class SessionMode(StrEnum):
    FRESH = "fresh"
    RESUME = "resume"


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _for_any_path(value: object) -> object:
    return value if isinstance(value, Mapping) else {ANY_PATH: value}


def _check_inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or not path.endswith(".md"):
        raise ValueError(f"{path!r} is no Markdown file of the project; name one, such as {PAGE}")
    return path


def _target(value: object) -> object:
    return {"to": value} if isinstance(value, str) else value


def _split_label(value: object) -> object:
    if not isinstance(value, str):
        return value
    outcome, _, label = value.partition("/")
    return {"outcome": outcome, "label": label or None}


Predicates = Annotated[tuple[Predicate, ...], BeforeValidator(_one_or_many)]
Iterations = Annotated[int, Field(ge=1)]


# One of Liza's own first, as whoever asks `is` expects; else the name of a kind that a package adds.
GateKindName = Annotated[GateKind | Id, Field(union_mode="left_to_right")]


class NoVerdict(Record):
    """What a gate without a verdict comes to."""

    outcome: Outcome = Outcome.BLOCK
    label: NonEmptyStr | None = None


class OnError(Record):
    retry: Annotated[int, Field(ge=0)] = 1
    then: ErrorOutcome = ErrorOutcome.BLOCK


class Gate(Record):
    """A check that turns the current tree and facts into a verdict."""

    id: Id
    kind: GateKindName
    at: GateTiming = GateTiming.AFTER
    mode: GateMode = GateMode.DECIDE
    role: NonEmptyStr | None = None
    when: Predicates = ()
    unless: Predicates = ()
    skip_if: Predicates = ()
    on_none: Annotated[NoVerdict, BeforeValidator(_split_label)] = NoVerdict()
    on_error: OnError = OnError()
    sets_path: bool = False
    skip_rest_on: Annotated[tuple[NonEmptyStr, ...], BeforeValidator(_one_or_many)] = ()
    taints_on_override: bool = False
    options: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def decides(self) -> bool:
        """Return whether somebody, and no machine, says here that the work is good."""
        return (
            self.kind in {GateKind.AGENT, GateKind.HUMAN}
            and self.mode is GateMode.DECIDE
            and not self.sets_path
        )

    @property
    def is_mechanical(self) -> bool:
        return self.kind not in {GateKind.AGENT, GateKind.HUMAN}

    @property
    def judges_another_tree(self) -> bool:
        return self.kind is GateKind.EFFECT or self.options.get("tree") == "merged"

    def applies(self, facts: frozenset[Predicate]) -> bool:
        return self.is_wanted(facts) and not facts.intersection(self.skip_if)

    def is_wanted(self, facts: frozenset[Predicate]) -> bool:
        return facts.issuperset(self.when) and facts.isdisjoint(self.unless)


class HatAccess(StrEnum):
    """What a hat may do with the files of the project."""

    WRITE = "write"  # a worktree on the branch of the task
    READ = "read"  # a checkout that is thrown away


class Hat(Record):
    """A role of a document: who wears it, what they may touch, how they are asked and how they answer."""

    process: Literal[Role.PLANNER, Role.CODER, Role.REVIEWER]  # the kind of worker
    access: HatAccess = HatAccess.READ
    prompt: NonEmptyStr | None = None  # the template; by itself that of the process
    instructions: NonEmptyStr | None = None  # or what the role is there for, in the document itself
    dialect: NonEmptyStr = "yaml"  # how the answer is written

    @model_validator(mode="after")
    def _is_told_once(self) -> Self:
        if self.prompt and self.instructions:
            raise ValueError("prompt and instructions both say what the role is there for; keep one")
        return self


# The kinds of worker are hats by themselves; any other is a row of the document.
OWN_HATS: Final[Mapping[str, Hat]] = {
    "planner": Hat(process=Role.PLANNER),
    "coder": Hat(process=Role.CODER, access=HatAccess.WRITE),
    "reviewer": Hat(process=Role.REVIEWER),
}


class Edge(Record):
    to: NonEmptyStr
    reset: bool = False


class Phase(Record):
    """A stage: who works in it, which gates judge, how often, and where it leads."""

    worker: NonEmptyStr | None = None
    gates: tuple[Gate, ...] = ()
    max_iterations: Annotated[dict[str, Iterations], BeforeValidator(_for_any_path)] = Field(
        default_factory=dict
    )
    edges: dict[str, Annotated[Edge, BeforeValidator(_target)]] = Field(default_factory=dict)
    next: NonEmptyStr | None = None
    on_exhausted: OnExhausted = OnExhausted.BLOCK
    blocking: bool = True
    collect: bool = False
    loop: bool = False
    session: Annotated[dict[str, SessionMode], BeforeValidator(_for_any_path)] = Field(
        default_factory=lambda: {ANY_PATH: SessionMode.FRESH}
    )
    effects: dict[str, tuple[Effect, ...]] = Field(default_factory=dict)
    hands_on: HandoffKind | None = None  # what an answer says beside its summary, for the next phase

    @property
    def stage(self) -> Stage:
        if self.worker is not None:
            return Stage.WORK
        return Stage.EFFECT if any(gate.kind is GateKind.EFFECT for gate in self.gates) else Stage.JUDGE

    @property
    def asks_checkpoint(self) -> bool:
        """Return whether a gate wants to see what is announced before the work."""
        return any(gate.at is GateTiming.BEFORE and "checkpoint" in gate.options for gate in self.gates)

    def gate(self, name: str) -> Gate | None:
        return next((gate for gate in self.gates if gate.id == name), None)

    def named(self, name: str) -> Gate:
        """Return the gate *name*, which is there."""
        return next(gate for gate in self.gates if gate.id == name)

    def edge(self, outcome: Outcome, label: str | None) -> Edge | None:
        """Return where *outcome* leads; None where the document does not say."""
        pass_on = Edge(to=self.next) if self.next and outcome is Outcome.PASS else None
        return self.edges.get(f"{outcome}/{label}") or self.edges.get(outcome) or pass_on

    def effects_for(self, outcome: Outcome, label: str | None) -> tuple[Effect, ...]:
        return self.effects.get(f"{outcome}/{label}", self.effects.get(outcome, ()))

    def session_mode(self, path: str | None) -> SessionMode:
        """Return whether work on *path* goes on in the session of the round before."""
        return self.session.get(path or ANY_PATH, self.session.get(ANY_PATH, SessionMode.FRESH))

    def most(self, path: str | None) -> int | None:
        """Return how often work may be tried on *path*; None where nothing limits it."""
        return self.max_iterations.get(path or ANY_PATH, self.max_iterations.get(ANY_PATH))


class ArtifactKind(Record):
    """A text that work leaves for who comes after; its name is what its maker calls it, or the phase."""

    retention: Retention = Retention.TASK


class WatchedRule(Record):
    """A rule that watches this workflow, with what it changes of its row."""

    name: NonEmptyStr
    phase: NonEmptyStr | None = None
    count: Iterations | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    action: RuleAction | None = None

    @property
    def options(self) -> dict[str, object]:
        """What it changes."""
        return {key: value for key, value in self if key != "name" and value is not None}

    def rows(self) -> tuple[Rule, ...]:
        """Return the row that it names, or the rows of a name for several, as it changes them."""
        return tuple(self._with_options(row) for row in self.unchanged_rows())

    def unchanged_rows(self) -> tuple[Rule, ...]:
        return tuple(RULE_BY_NAME[name] for name in GROUPS.get(self.name, (self.name,)))

    def _with_options(self, row: Rule) -> Rule:
        return replace(
            row,
            counts=row.counts._replace(phase=self.phase or row.counts.phase),
            # What ends the streak is the same phase passing.
            reset=tuple(
                one._replace(phase=self.phase) if self.phase and one.phase else one for one in row.reset
            ),
            count=Count(self.count) if self.count else row.count,
            window=timedelta(minutes=self.minutes) if self.minutes else row.window,
            action=self.action or row.action,
        )


class TaskSource(Record):
    """Where tasks come from: a planner that splits the goal, the goal itself, a file of ideas, or a forge."""

    source: NonEmptyStr = PLANNER_SPLITS
    file: NonEmptyStr | None = None  # of ideas
    limit: Iterations | None = None


class WorkspaceBase(StrEnum):
    INTEGRATION = "integration"
    HEAD = "head"
    WORKING_TREE = "working_tree"


class Workspace(Record):
    base: WorkspaceBase = WorkspaceBase.INTEGRATION


class WorkflowPage(Record):
    """A page in the checkout that people read along and answer in."""

    path: Annotated[NonEmptyStr, AfterValidator(_check_inside)] = PAGE
    naming: ArchiveNaming = ArchiveNaming.NUMBER  # of its archives


class Workflow(Record):
    name: Id
    says: NonEmptyStr
    start: NonEmptyStr
    roles: dict[str, Hat] = Field(default_factory=dict)
    phases: dict[str, Phase]
    rules: tuple[
        Annotated[WatchedRule, BeforeValidator(lambda v: {"name": v} if isinstance(v, str) else v)], ...
    ] = ()
    crash_consumes_iteration: bool = False
    remembers: bool = False  # what judges found wrong, and how phases ended, for who works next
    workspace: Workspace = Workspace()
    tasks: Annotated[TaskSource, BeforeValidator(lambda v: {"source": v} if isinstance(v, str) else v)] = (
        TaskSource()
    )
    artifacts: dict[str, ArtifactKind] = Field(default_factory=dict)
    at_end: tuple[Effect, ...] = ()
    page: WorkflowPage | None = None

    def hat(self, role: str) -> Hat:
        """Return the hat *role*, which is there."""
        return self.roles.get(role) or OWN_HATS[role]

    @property
    def offers_squash(self) -> bool:
        """Return whether a person who approves may have one commit merged of all that was made."""
        gates = (gate for phase in self.phases.values() for gate in phase.gates)
        return any(gate.options.get("effect") == Effect.COMMIT_OR_MERGE for gate in gates)

    @property
    def publishes(self) -> bool:
        """Return whether work is merged or shown to others as good; a report of it is neither."""
        effects = {one for phase in self.phases.values() for many in phase.effects.values() for one in many}
        gates = (gate for phase in self.phases.values() for gate in phase.gates)
        return bool(effects & PUBLISHING_EFFECTS) or any(gate.kind is GateKind.EFFECT for gate in gates)

    def watched_rules(self) -> tuple[Rule, ...]:
        """Return the rules that watch it: those that it names, and those that always do."""
        return (*(row for watch in self.rules for row in watch.rows()), *ALWAYS)


def process_at(workflow: Workflow, position: Position) -> Role:
    """Return the kind of worker whose job is next: who works, until it is handed in, then who judges."""
    phase = workflow.phases[position.phase]
    if phase.worker is None or position.worked:
        return Role.REVIEWER
    return workflow.hat(phase.worker).process


def remind_minutes(workflow: Workflow, position: Position) -> float | None:
    """Return after how long the person who is waited for is asked again; None where nobody said so."""
    gate = workflow.phases[position.phase].gate(position.waiting or "")
    if gate is None or gate.kind is not GateKind.HUMAN:
        return None
    asked = gate.options.get("remind_minutes")
    return asked or (A_DAY if "on_timeout" in gate.options else None)


class PhaseGates(NamedTuple):
    """The gates of a phase as they come: before the work, then after it."""

    before: tuple[Gate, ...]
    after: tuple[Gate, ...]


def gates_in_order(phase: Phase) -> PhaseGates:
    before = tuple(gate for gate in phase.gates if gate.at is GateTiming.BEFORE)
    return PhaseGates(before, tuple(gate for gate in phase.gates if gate.at is GateTiming.AFTER))


def edges_of(phase: Phase) -> Iterator[tuple[Outcome, str | None, Edge]]:
    """Yield every edge that the document gives *phase*, with the outcome and the label that take it."""
    if phase.next is not None and Outcome.PASS not in phase.edges:
        yield Outcome.PASS, None, Edge(to=phase.next)
    for key, edge in phase.edges.items():
        outcome, _, label = key.partition("/")
        yield Outcome(outcome), label or None, edge
