"""A workflow as a document says it: phases, who is asked, the gates that judge, where each outcome leads.

It is read from its file, checked to hang together, and held to the floor that no document can lower. In this
order: the records of a document, who is asked in it, how it is loaded, the floor, and what hangs together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from liza.domain.answer_parsing import KNOWN_DIALECTS
from liza.domain.answers import Step, lines_by_path
from liza.domain.config import Config, Limits, RouteKey
from liza.domain.cycle_archive import ARCHIVE, PAGE, ArchiveNaming
from liza.domain.memory import Retention
from liza.domain.model import Adopted, End, Outcome, Position, Role, Stage, State
from liza.domain.phase_handoff import HandoffKind
from liza.domain.problems import did_you_mean, line_of, violations_from
from liza.domain.record import Id, NonEmptyStr, Record
from liza.domain.rules import ACTIONS, ALWAYS, GROUPS, RULE_BY_NAME, RULES, Count, Rule, RuleAction
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import UsageError, Violation

ANY_PATH: Final = "*"  # the key of what holds on every path that has no key of its own
PLANNER_SPLITS: Final = "planner"  # the source of tasks where nothing else is said
IDEA_SOURCE: Final = "ideas"
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
        "directory": "where it runs, a folder of the repository; `settings`: `experiment.test_directory`",
        "tree": "`merged`: run on the tree that the merge would make",
    },
    GateKind.PROOF: {"named": "`exactly` or `matching`: how the scope has to name a test that may change"},
    GateKind.SCAN: {
        "secrets": "whether to look for secrets",
        "commands": "whether to look for forbidden commands",
        "bypasses": "whether to look for ways around a check of who may do what",
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
    """The outcome of a gate that cannot be run."""

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
    """The outcome of a gate without a verdict."""

    outcome: Outcome = Outcome.BLOCK
    label: NonEmptyStr | None = None


class OnError(Record):
    retry: Annotated[int, Field(ge=0)] = 1
    then: ErrorOutcome = ErrorOutcome.BLOCK


ENGINE_OPTIONS: Final = frozenset({"tree", "on_timeout", "effect"})


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
        """Return whether a pass of this gate approves the work: an agent or a person decides it."""
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

    @property
    def own_options(self) -> dict[str, Any]:
        """The options without those that the engine itself reads."""
        return {key: value for key, value in self.options.items() if key not in ENGINE_OPTIONS}

    @property
    def added_effect(self) -> str | None:
        """The effect, if it is one that a package adds."""
        name = self.options.get("effect") if self.kind is GateKind.EFFECT else None
        return name if name is not None and name not in list(Effect) else None

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
    sees: tuple[NonEmptyStr, ...] | None = None  # what others left that its prompt has; without it, all

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
    """A text that a phase leaves for later ones, under the name that its maker or the phase has."""

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
        return _watched_rules(self.rules)


@lru_cache(8)
def _watched_rules(watched: tuple[WatchedRule, ...]) -> tuple[Rule, ...]:
    """Return the rows; kept, since every event of a task is held against them."""
    return (*(row for watch in watched for row in watch.rows()), *ALWAYS)


def process_at(workflow: Workflow, position: Position) -> Role:
    """Return the kind of worker whose job is next: the maker until work is handed in, then the judge."""
    phase = workflow.phases[position.phase]
    if phase.worker is None or position.worked:
        return Role.REVIEWER
    return workflow.hat(phase.worker).process


def remind_minutes(workflow: Workflow, position: Position) -> float | None:
    """Return after how many minutes a person is reminded; None where no gate says so."""
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


# Who is asked in a workflow: the keys by which settings may name an agent for a phase or a hat.


def route_at(
    flow: Workflow, position: Position | None, role: Role, step: Step, hat: str | None = None
) -> RouteKey:
    """Return the route of *step* for a task at *position*; without a *hat*, that of the next job there."""
    place = position.phase if position else flow.start
    worn = hat or _first_hat(flow.phases[place], role)
    return _route(place, role, step, worn)


def maker_route(flow: Workflow, route: RouteKey) -> RouteKey:
    """Return the route of the maker whose work *route* judges: of its phase, else the first that writes."""
    made = flow.phases[route.phase].worker if route.phase in flow.phases else None
    return _route(route.phase, Role.CODER, Step.IMPLEMENT, made)


def _route(place: str | None, role: Role, step: Step, hat: str | None) -> RouteKey:
    # The kinds of worker are no hats: of them the step and the role count as well.
    return RouteKey(role, step, place, None if hat in OWN_HATS else hat)


def _first_hat(phase: Phase, role: Role) -> str | None:
    if role is not Role.REVIEWER:
        return phase.worker
    return next((gate.role for gate in phase.gates if gate.kind is GateKind.AGENT), None)


def routes_in(flow: Workflow) -> Iterator[RouteKey]:
    """Yield the route of every agent that may be asked in *flow*."""
    if flow.tasks.source == PLANNER_SPLITS:
        yield RouteKey(Role.PLANNER, Step.PLAN)
        yield RouteKey(Role.PLANNER, Step.REPLAN)
    for place, phase in flow.phases.items():
        if phase.worker is not None:
            process = flow.hat(phase.worker).process
            if phase.asks_checkpoint:
                yield _route(place, process, Step.CHECKPOINT, phase.worker)
            yield _route(place, process, Step.IMPLEMENT, phase.worker)
        for gate in phase.gates:
            if gate.kind is GateKind.AGENT:
                yield _route(place, Role.REVIEWER, Step.REVIEW, gate.role)


# A workflow from its file: checked to hang together, and held to the floor that no document can lower.

# The floor that no workflow document can lower.
#
# Nobody judges their own work; no verdict is no pass; work that was forced through is marked; nothing is
# merged or called done that nobody let pass; a person's silence approves nothing.

SUCCESS: Final = frozenset({End.DONE, End.NOTHING_TO_DO})


def floor_violations(workflow: Workflow) -> list[Violation]:
    return [one for check in FLOOR for one in check(workflow)]


def _silence_is_no_pass(workflow: Workflow) -> Iterator[Violation]:
    for at, phase, gate in _all_gates(workflow):
        silent = gate.on_none
        if silent.outcome in {Outcome.ASK, Outcome.NONE} or (
            silent.outcome is Outcome.PASS and not silent.label
        ):
            mend = "use block, revise or stop"
            yield Violation(f"{at}.on_none", f"no verdict of {gate.id} would become {silent.outcome}", mend)
        elif silent.outcome is Outcome.PASS and not _only_sets_path(phase, gate):
            problem = f"no verdict of {gate.id} would become a pass"
            yield Violation(
                f"{at}.on_none", problem, "only a gate that sets the path, with a judge after it, may"
            )
        if silent.label and silent.outcome is not Outcome.PASS:
            yield Violation(f"{at}.on_none", f"{silent.outcome} takes no label", f"write {silent.outcome}")


def _only_sets_path(phase: Phase, gate: Gate) -> bool:
    """Return whether *gate* only sets the path, and a later gate decides on the fallback path."""
    later = phase.gates[phase.gates.index(gate) + 1 :]
    return (
        gate.sets_path and gate.on_none.label not in gate.skip_rest_on and any(one.decides for one in later)
    )


def _people_are_waited_for(workflow: Workflow) -> Iterator[Violation]:
    for at, _, gate in _all_gates(workflow):
        if gate.kind is not GateKind.HUMAN:
            continue
        if gate.options.get("on_timeout", "remind") != "remind":
            problem = f"the silence of a person at {gate.id} would become {gate.options['on_timeout']}"
            yield Violation(
                f"{at}.on_timeout", problem, "use `remind`: a person is asked again, and waited for"
            )
        if "on_none" in gate.model_fields_set or "on_error" in gate.model_fields_set:
            yield Violation(at, f"the person at {gate.id} is waited for", "remove on_none and on_error")


def _who_acts_decides(workflow: Workflow) -> Iterator[Violation]:
    """People and effects are no advice, and nothing that was not done is called done."""
    for at, phase, gate in _all_gates(workflow):
        if gate.kind in {GateKind.HUMAN, GateKind.EFFECT} and gate.mode is not GateMode.DECIDE:
            yield Violation(f"{at}.mode", f"a gate of kind {gate.kind} always decides", "remove `mode`")
        if gate.kind is not GateKind.EFFECT:
            continue
        if gate.on_error.then is ErrorOutcome.FORCE_PASS or phase.on_exhausted is OnExhausted.FORCE_PASS:
            yield Violation(at, f"{gate.id} would be called done by force", "use block, pause or stop")
        if gate.when or gate.unless or gate.skip_if:
            yield Violation(at, f"{gate.id} could be left out", "remove when, unless and skip_if")


def _effects_show_what_passed(workflow: Workflow) -> Iterator[Violation]:
    said = {f"phases.{name}.effects.{key}": effects
            for name, phase in workflow.phases.items()
            for key, effects in phase.effects.items()
            if key.partition("/")[0] != Outcome.PASS}  # fmt: skip
    for path, effects in {**said, "at_end": workflow.at_end}.items():
        for effect in sorted(PUBLISHING_EFFECTS.intersection(effects)):
            yield Violation(path, f"{effect} would happen to work that did not pass", "put it under `pass`")


class _ReachedPhase(NamedTuple):
    """A way to come to a phase: how far the work is let pass by then, and who made it."""

    phase: str
    level: int
    maker: str | None


# How far work is let pass. Nobody has, or somebody had before a phase that does not count, or somebody has.
NOBODY, BEFORE, SOMEBODY = range(3)


def _nothing_is_done_unseen(workflow: Workflow) -> Iterator[Violation]:
    """Walk every way through the document, as if each condition could go either way."""
    seen, left = set[_ReachedPhase](), [_ReachedPhase(workflow.start, NOBODY, None)]
    told = set[Violation]()
    while left:
        here = left.pop()
        if here in seen or here.phase not in workflow.phases:
            continue
        seen.add(here)
        walk = _PhaseVisit(workflow, here)
        left += walk.next()
        told.update(walk.wrong)
    yield from sorted(told, key=lambda one: (one.path, one.problem))


class _PhaseVisit:
    """One visit of a phase: how far the work can be let pass when it leaves by a pass."""

    def __init__(self, workflow: Workflow, here: _ReachedPhase) -> None:
        self._phase, self._name = workflow.phases[here.phase], here.phase
        self._maker = self._phase.worker or here.maker
        self.wrong: list[Violation] = []
        back = [edge.to for outcome, _, edge in edges_of(self._phase) if outcome is not Outcome.PASS]
        again = [workflow.phases[to] for to in (self._name, *back) if to in workflow.phases]
        unmarked = any(one.on_exhausted is OnExhausted.FORCE_PASS and not one.blocking for one in again)
        self._passing = self._levels(here.level, unmarked=unmarked)

    def next(self) -> Iterator[_ReachedPhase]:
        for outcome, label, edge in edges_of(self._phase):
            passes = outcome is Outcome.PASS
            for level in self._passing if passes else {NOBODY}:
                self._judge_effects(level, self._phase.effects_for(outcome, label) if passes else ())
                if edge.to in SUCCESS and level == NOBODY:
                    self._tell(f"work that nobody let pass would be {edge.to}")
                yield _ReachedPhase(edge.to, level, self._maker)

    def _levels(self, level: int, *, unmarked: bool) -> set[int]:
        before, later = gates_in_order(self._phase)
        levels = {level}
        for gate in before:
            levels = self._through(gate, levels)
        if self._phase.worker is not None:
            levels = {NOBODY if self._phase.blocking else min(one, BEFORE) for one in levels}
        leaving = {min(one, BEFORE) for one in levels} if unmarked else set()
        for gate in later:
            levels = self._through(gate, levels)
            leaving |= levels if gate.skip_rest_on else set()
        return levels | leaving

    def _through(self, gate: Gate, levels: set[int]) -> set[int]:
        if gate.kind is GateKind.EFFECT:
            for level in levels:
                self._judge_effects(level, (gate.options["effect"],))
        if not gate.decides:
            return levels
        if gate.kind is GateKind.AGENT and gate.role == self._maker:
            self._tell(f"{gate.role} would judge its own work at {gate.id}")
        # Left out in the last round, it leaves a mark; left out for another reason, it does not.
        sure = not gate.when and not gate.unless and set(gate.skip_if) <= {Predicate.FINAL_ITERATION}
        return {SOMEBODY} if sure else levels | {SOMEBODY}

    def _judge_effects(self, level: int, effects: tuple[str, ...]) -> None:
        # Nobody here knows what an effect of a package does with the work: it may show it to all the world.
        needed = [
            (effect, BEFORE if effect in IF_TAINTED else SOMEBODY)
            for effect in effects
            if effect in PUBLISHING_EFFECTS or effect not in list(Effect)
        ]
        for effect, least in needed:
            if level < least:
                self._tell(f"{effect} would happen to work that nobody let pass")

    def _tell(self, problem: str) -> None:
        mend = "after the work, let a gate of kind human, or of kind agent with another role, decide"
        self.wrong.append(Violation(f"phases.{self._name}", problem, mend))


def _all_gates(workflow: Workflow) -> Iterator[tuple[str, Phase, Gate]]:
    for name, phase in workflow.phases.items():
        for number, gate in enumerate(phase.gates):
            yield f"phases.{name}.gates[{number}]", phase, gate


FLOOR: Final[tuple[Callable[[Workflow], Iterator[Violation]], ...]] = (
    _silence_is_no_pass,
    _people_are_waited_for,
    _who_acts_decides,
    _effects_show_what_passed,
    _nothing_is_done_unseen,
)


# Whether a workflow document hangs together: what it names is there, and it leads somewhere.

MAKERS: Final[tuple[Role, ...]] = (Role.PLANNER, Role.CODER)
JUDGES: Final[tuple[Role, ...]] = (Role.REVIEWER,)


def structure_violations(workflow: Workflow) -> list[Violation]:
    """Return what is wrong with *workflow*; where it leads is looked at once all names are right."""
    return [one for check in STRUCTURE for one in check(workflow)] or list(_unreachable(workflow))


def _start(workflow: Workflow) -> Iterator[Violation]:
    if workflow.start not in workflow.phases:
        yield Violation(
            "start", f"there is no phase {workflow.start!r}", did_you_mean(workflow.start, [*workflow.phases])
        )
    for name in sorted(workflow.phases.keys() & End.__members__.keys()):
        yield Violation(f"phases.{name}", f"{name} is an end, not a phase", "give the phase another name")


def _roles(workflow: Workflow) -> Iterator[Violation]:
    """Yield a violation for each worker or judge that is no hat, or a hat of the wrong process."""
    known = [*OWN_HATS, *workflow.roles]
    asked = {f"phases.{name}.worker": (phase.worker, MAKERS) for name, phase in workflow.phases.items()}
    asked |= {
        f"phases.{name}.gates[{number}].role": (gate.role, JUDGES)
        for name, phase in workflow.phases.items()
        for number, gate in enumerate(phase.gates)
    }
    for path, (role, processes) in asked.items():
        if role is None:
            continue
        if role not in known:
            problem, mend = f"there is no role {role!r}", "add it under `roles:` with its process"
            yield Violation(path, problem, f"{mend}; {did_you_mean(role, known)}")
        elif workflow.hat(role).process not in processes:
            what = "does no work" if processes is MAKERS else "judges nothing"
            said = f"a {workflow.hat(role).process} {what}"
            yield Violation(path, said, f"give it a role whose process is {' or '.join(processes)}")
    for name, hat in workflow.roles.items():
        if hat.dialect not in KNOWN_DIALECTS:
            hint = did_you_mean(hat.dialect, list(KNOWN_DIALECTS))
            yield Violation(f"roles.{name}.dialect", f"there is no dialect {hat.dialect!r}", hint)
    used = {role for role, _ in asked.values()}
    for name in sorted(workflow.roles.keys() - used):
        yield Violation(f"roles.{name}", "nobody wears it", "name it in a phase, or remove it")


def _edges(workflow: Workflow) -> Iterator[Violation]:
    known = [*workflow.phases, *(end for end in End if end is not End.SUPERSEDED)]
    for name, phase in workflow.phases.items():
        at = f"phases.{name}"
        if phase.next is None and Outcome.PASS not in phase.edges:
            yield Violation(at, "it does not say where a pass leads", "add `next: PHASE`, or `next: DONE`")
        targets = {f"{at}.edges.{key}": edge.to for key, edge in phase.edges.items()}
        for path, to in {**targets, f"{at}.next": phase.next or End.DONE}.items():
            if to not in known:
                yield Violation(path, f"there is no phase {to!r}", did_you_mean(to, known))
        yield from _outcomes(f"{at}.edges", phase.edges, [])
        yield from _outcomes(f"{at}.effects", phase.effects, [AFTER_WORK])


def _outcomes(path: str, keys: Mapping[str, object], more: list[str]) -> Iterator[Violation]:
    known = [*(outcome for outcome in Outcome if outcome not in {Outcome.ASK, Outcome.NONE}), *more]
    for key in keys:
        word = key.partition("/")[0]
        if word not in known:
            yield Violation(f"{path}.{key}", f"{word!r} is no outcome of a phase", did_you_mean(word, known))


def _gates(workflow: Workflow) -> Iterator[Violation]:
    for name, phase in workflow.phases.items():
        ids = [gate.id for gate in phase.gates]
        for number, gate in enumerate(phase.gates):
            at = f"phases.{name}.gates[{number}]"
            if gate.id in ids[:number]:
                yield Violation(at, f"the gate {gate.id!r} is already in {name}", "give it another id")
            if gate.kind is GateKind.AGENT and gate.role is None:
                yield Violation(at, f"the gate {gate.id!r} says no role", "add `role:`, who judges")


def _rules(workflow: Workflow) -> Iterator[Violation]:
    always = [rule.name for rule in ALWAYS]
    known = [*(rule.name for rule in RULES if not rule.always), *GROUPS]
    for number, watch in enumerate(workflow.rules):
        at = f"rules[{number}]"
        if watch.name in always:
            yield Violation(at, f"{watch.name} watches over every workflow as it is", "leave it out")
        elif watch.name not in known:
            yield Violation(at, f"there is no rule {watch.name!r}", did_you_mean(watch.name, known))
        else:
            yield from _options(watch, at)
        if watch.phase is not None and watch.phase not in workflow.phases:
            hint = did_you_mean(watch.phase, [*workflow.phases])
            yield Violation(f"{at}.phase", f"there is no phase {watch.phase!r}", hint)
        for row in watch.rows() if watch.name in known else ():
            yield from _never_fires(workflow, row, at)


def _options(watch: WatchedRule, at: str) -> Iterator[Violation]:
    """Yield a violation for each option of *watch* that its row does not have."""
    rows = watch.unchanged_rows()
    can = frozenset.intersection(*(row.options for row in rows))
    for key in watch.options.keys() - can:
        problem = f"{key!r} does nothing for {watch.name}"
        yield Violation(f"{at}.{key}", problem, f"it can be told {' or '.join(sorted(can))}")
    allowed = frozenset.intersection(*(ACTIONS[row.subject] for row in rows))
    if watch.action is not None and watch.action not in allowed:
        problem = f"{watch.action.value!r} cannot be done to a {rows[0].subject}"
        yield Violation(f"{at}.action", problem, f"use one of {', '.join(sorted(allowed))}")


def _never_fires(workflow: Workflow, row: Rule, at: str) -> Iterator[Violation]:
    """Yield a violation for a rule that can never fire in this workflow."""
    phase = row.counts.phase
    if phase is not None and phase not in workflow.phases:
        mend = f"say which is meant: {{name: {row.name}, phase: …}}"
        yield Violation(at, f"{row.name} counts what {phase} decides, and there is no such phase", mend)


def _unreachable(workflow: Workflow) -> Iterator[Violation]:
    reached, left = set[str](), [workflow.start]
    while left:
        name = left.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in workflow.phases:
            left += [edge.to for _, _, edge in edges_of(workflow.phases[name])]
    for name in workflow.phases.keys() - reached:
        yield Violation(f"phases.{name}", "nothing leads to it", "add an edge to it, or remove it")
    if End.DONE not in reached:
        yield Violation("phases", "no way leads to DONE", "let the last phase say `next: DONE`")


StructureCheck = Callable[[Workflow], Iterator[Violation]]

STRUCTURE: Final[tuple[StructureCheck, ...]] = (_start, _roles, _edges, _gates, _rules)


SUFFIX: Final = ".yaml"
GATE_KEYS: Final = frozenset(Gate.model_fields) - {"options"}
_PACKAGE: Final = files("liza.workflow")
Check = Callable[[Workflow], list[Violation]]


class AddedNames(NamedTuple):
    """What packages add to the words of a document."""

    gates: Collection[str] = ()
    effects: Collection[str] = ()


NOTHING_ADDED: Final = AddedNames()


class NamedSettings(NamedTuple):
    """What a document may take from the settings by name."""

    limits: Limits = Limits()
    review_rounds: int = 0  # of experiments
    proceed_unapproved: bool = False

    @classmethod
    def of(cls, config: Config) -> NamedSettings:
        ideas = config.experiment
        return cls(config.limits, ideas.review_rounds, ideas.proceed_unapproved)

    def values(self, key: str) -> dict[str, int | str]:
        """Return by name what may stand for the value of *key* of a phase."""
        if key == "on_exhausted":
            return {
                "experiment.proceed_unapproved": OnExhausted.FORCE_PASS
                if self.proceed_unapproved
                else OnExhausted.STOP
            }
        limits = {name: getattr(self.limits, name) for name in Limits.model_fields if name.startswith("max_")}
        return {**limits, "experiment.review_rounds": 1 + self.review_rounds}


NO_SETTINGS: Final = NamedSettings()


def packaged_names() -> list[str]:
    """Return the names of the workflows that come with Liza."""
    return sorted(
        found.name.removesuffix(SUFFIX) for found in _PACKAGE.iterdir() if found.name.endswith(SUFFIX)
    )


def load_workflow(
    name: str,
    settings: NamedSettings = NO_SETTINGS,
    check: Check | None = None,
    added: AddedNames = NOTHING_ADDED,
) -> Workflow:
    """Return the workflow *name*, or that in the file of this path; raise UsageError with what is wrong.

    *check* is what else a document has to be, for whoever asks for more than that it hangs together; *added*
    are the kinds of gate and effects that it may name beside those of Liza.
    """
    if not is_file(name):
        if name not in packaged_names():
            known = did_you_mean(name, packaged_names())
            hint = "a file of your own is named by its path, like flows/mine.yaml"
            raise UsageError(f"there is no workflow {name!r}; {known} ({hint})")
        return parse_workflow(
            _PACKAGE.joinpath(name + SUFFIX).read_text(encoding="utf-8"), name + SUFFIX, settings, check
        )
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(f"cannot read the workflow {name}: {why}; name a file that is there") from error
    return parse_workflow(text, name, settings, check, added)


def workflow_on(state: State) -> Workflow:
    """Return the workflow that the tasks of *state* follow; raise UsageError where none was read yet."""
    name = state.workflow.name or state.config.workflow
    if not state.workflow.text and is_file(name):
        raise UsageError(f"the workflow {name} was not read yet; `liza run` reads it")
    added = AddedNames(state.workflow.gates, state.workflow.effects)
    return _on_board(name, state.workflow.text, NamedSettings.of(state.config), added)


@lru_cache(maxsize=8)
def _on_board(name: str, text: str, settings: NamedSettings, added: AddedNames) -> Workflow:
    return parse_workflow(text, name, settings, added=added) if text else load_workflow(name, settings)


def is_file(name: str) -> bool:
    """Return whether *name* is the path of a workflow, and not one that comes with Liza."""
    return "/" in name or name.endswith(SUFFIX)


def workflow_text(config: Config, root: Path, added: AddedNames = NOTHING_ADDED) -> Adopted:
    """Return what a board has to know of the workflow that *config* names; nothing of one of Liza's own."""
    if not is_file(config.workflow):
        return Adopted()
    try:
        text = (root / config.workflow).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the workflow {config.workflow}; name a file that is there"
        raise UsageError(message) from error
    gates, effects = ([name for name in sorted(names) if name in text] for names in added)
    return Adopted(name=config.workflow, text=text, gates=tuple(gates), effects=tuple(effects))


def parse_workflow(
    text: str,
    where: str,
    settings: NamedSettings = NO_SETTINGS,
    check: Check | None = None,
    added: AddedNames = NOTHING_ADDED,
) -> Workflow:
    """Return what the document *text* says, checked; *where* is the file that an error names."""
    try:
        data, places = parse_yaml(text)
    except BadYaml as error:
        raise UsageError(f"{where} is no workflow: {error}; mend it") from error
    lines = lines_by_path(places)
    wrong = list(_expand(data, settings, added))
    if not wrong:
        try:
            workflow = Workflow.model_validate(data)
        except ValidationError as error:
            wrong = violations_from(error, Workflow, "", lines)
        else:
            wrong = (
                structure_violations(workflow)
                or floor_violations(workflow)
                or (check(workflow) if check else [])
            )
            if not wrong:
                return workflow
    told = (one._replace(line=one.line or line_of(one.path, lines)) for one in wrong)
    raise UsageError(f"{where} is no workflow: {'; '.join(map(str, told))}")


def _expand(data: dict[str, Any], settings: NamedSettings, added: AddedNames) -> Iterator[Violation]:
    """Write out in *data* what a document says in short, and yield what cannot be."""
    phases = data.get("phases")
    if not isinstance(phases, dict):
        return
    defined: dict[str, dict[str, Any]] = {}
    for name, phase in phases.items():
        if not isinstance(phase, dict):
            continue
        for key in ("max_iterations", "on_exhausted"):
            yield from _resolve_setting(phase, key, f"phases.{name}.{key}", settings)
        gates = phase.get("gates", [])
        if isinstance(gates, list):
            yield from _expand_gates(gates, f"phases.{name}.gates", defined, added)


def _resolve_setting(
    phase: dict[str, Any], key: str, path: str, settings: NamedSettings
) -> Iterator[Violation]:
    """Put what the settings say in place of its name."""
    said, known = phase.get(key), settings.values(key)
    if not isinstance(said, str) or said in list(OnExhausted):
        return
    if said in known:
        phase[key] = known[said]
    elif key == "max_iterations":
        problem = f"there is no limit {said!r}"
        yield Violation(path, problem, f"{did_you_mean(said, list(known))} Or write a number")


def _expand_gates(
    gates: list[Any], path: str, defined: dict[str, dict[str, Any]], added: AddedNames
) -> Iterator[Violation]:
    for number, gate in enumerate(gates):
        here = f"{path}[{number}]"
        if isinstance(gate, str):
            if gate in defined:
                gates[number] = defined[gate]
            else:
                hint = did_you_mean(gate, list(defined))
                yield Violation(here, f"no phase above defines a gate {gate!r}", hint)
        elif isinstance(gate, dict):
            yield from _collect_options(gate, here, added)
            name = str(gate.get("id"))
            if name in defined:
                mend = f"write `- {name}` where it is the same, or give it another id"
                yield Violation(here, f"another gate {name!r} is written out above", mend)
            defined.setdefault(name, gate)


def _collect_options(gate: dict[str, Any], path: str, added: AddedNames) -> Iterator[Violation]:
    """Gather under `options` what only gates of this kind can be told."""
    kind = gate.get("kind")
    kinds = [*GateKind, *added.gates]
    if kind not in kinds:
        if isinstance(kind, str):
            problem = f"{kind!r} is not one of the known kinds of gate"
            yield Violation(f"{path}.kind", problem, did_you_mean(kind, kinds))
        return  # else the record says so
    options = {key: gate.pop(key) for key in list(gate) if key not in GATE_KEYS}
    # What packages add checks its options itself.
    if kind in added.gates or (kind == GateKind.EFFECT and options.get("effect") in added.effects):
        gate["options"] = options
        return
    own = OPTIONS[GateKind(str(kind))]
    if kind == GateKind.EFFECT and options.get("effect") not in (effects := [*Effect, *added.effects]):
        said = str(options.get("effect"))
        yield Violation(f"{path}.effect", f"there is no effect {said!r}", did_you_mean(said, effects))
    known = sorted({*GATE_KEYS, *own})
    for key in options.keys() - own.keys():
        problem = f"{key!r} is not a key that belongs to a gate of kind {kind}"
        yield Violation(f"{path}.{key}", problem, did_you_mean(key, known))
    gate["options"] = options


def page_paths(state: State) -> tuple[str, ...]:
    """Return what only Liza and people write: the page of the workflow, and its archives."""
    page = workflow_on(state).page
    return () if page is None else (page.path, ARCHIVE)
