"""A scripted run of a workflow: results are said in short, jobs and decisions are read back in short."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from liza.domain.config import Limits
from liza.domain.model import TAINT, End, Evidence, Outcome, Position, Verdict
from liza.domain.rules import CountedEvent, EventKind, FiredRule, RuleAction, evaluate
from liza.workflow import engine
from liza.workflow.document import GateKind, GateMode, Predicate, Workflow, load_workflow
from liza.workflow.engine import (
    Crashed,
    Facts,
    GateJob,
    JobResult,
    Move,
    Proceeded,
    ProceedJob,
    WaitJob,
    Worked,
    WorkflowJob,
    WorkJob,
)

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
TASK: Final = "task-1"


packaged = cache(load_workflow)


def tree(number: int) -> str:
    return f"{number:040x}"


class WorkflowScript:
    """One piece of work that is driven through *workflow*; each piece of work makes a new tree."""

    def __init__(
        self, workflow: Workflow | str, *facts: str, rules: bool = True, limits: Limits | None = None
    ) -> None:
        self.workflow = packaged(workflow) if isinstance(workflow, str) else workflow
        self.facts: Facts = frozenset(map(Predicate, facts))
        self.position: Position = engine.begin(self.workflow)
        self.moves: list[Move] = []
        self.jobs: list[str] = []
        self.events: list[CountedEvent] = []
        self.fired: list[FiredRule] = []
        self._rules = self.workflow.watched_rules() if rules else ()
        self._limits = limits or Limits()
        self._trees = 0
        self._seen: dict[str, set[str]] = {}  # by rule, what an alert was about

    @property
    def next(self) -> str:
        return shown(engine.next_job(self.workflow, self.position, self.facts))

    @property
    def end(self) -> str | None:
        return self.position.end

    @property
    def decisions(self) -> list[str]:
        made = [moved.decision for moved in self.moves if moved.decision]
        return [f"{one.phase}={one.outcome}" for one in made]

    @property
    def effects(self) -> list[str]:
        return [effect for moved in self.moves for effect in moved.effects]

    @property
    def alerts(self) -> list[str]:
        return [one.rule for one in self.fired if one.action == "alert"]

    @property
    def now(self) -> datetime:
        return START + len(self.moves) * MINUTE

    def play(self, script: str | Iterable[str]) -> WorkflowScript:
        """Answer one job after the other with the words of *script*."""
        for word in script.split() if isinstance(script, str) else script:
            self.say(word)
        return self

    def say(self, word: str) -> Move:
        """Answer the job with *word*: an outcome, with `/label` or `:reason`, or what else `result` knows.

        `answer` and `accept` are what a person says to a task that waits, as `transition` applies it.
        """
        if word == "answer":
            return self._after_person(Move(engine.redo(self.workflow, self.position, fresh=True)))
        if word == "accept":
            return self._after_person(self._accept())
        return self.take(self.result(word))

    def _accept(self) -> Move:
        here = self.position.replace(accepted=self.position.taints)
        if here.waiting != TAINT:
            return Move(here)
        return engine.report(self.workflow, here.replace(waiting=None), self.now, facts=self.facts)

    def _after_person(self, moved: Move) -> Move:
        self.jobs.append(self.next)
        self._add(EventKind.HUMAN, self.now)
        self.moves.append(moved)
        self.position = moved.position
        return moved

    def take(self, result: JobResult) -> Move:
        self.jobs.append(self.next)
        before = self.position
        moved = engine.after(self.workflow, before, result, self.facts)
        self._note(before, result, moved)
        fired = evaluate(self._rules, self.events, self._limits, self.now, self._seen)
        for one in fired:
            if one.action is RuleAction.ALERT:
                self._seen.setdefault(one.rule, set()).update(event.id for event in one.events)
        if moved.position.end is None and any(one.action is not RuleAction.ALERT for one in fired):
            moved = engine.end_work(self.workflow, moved.position, End.BLOCKED, moved.decision)
        self.fired += fired
        self.moves.append(moved)
        self.position = moved.position
        return moved

    def signal(self, role: str, **fields: object) -> None:
        """Let *role* have said *fields* beside what it comes to."""
        for name, value in fields.items():
            self._add(EventKind.SIGNAL, self.now, role=role, name=name, value=value)

    def _note(self, before: Position, result: JobResult, moved: Move) -> None:
        """Add what *result* is to the rules, the decision last."""
        if moved.stale:
            return
        phase = self.workflow.phases[before.phase]
        if isinstance(result, Verdict):
            gate = phase.named(result.gate)
            by_person = gate.kind is GateKind.HUMAN or before.waiting == gate.id
            decides = gate.kind is GateKind.AGENT and gate.mode is GateMode.DECIDE
            silent = result.outcome is Outcome.NONE
            kind = EventKind.HUMAN if by_person else EventKind.SILENCE if silent else EventKind.VERDICT
            if by_person or decides:
                self._add(kind, result.at, phase=before.phase, outcome=result.outcome)
        elif isinstance(result, Crashed) and result.gate is None:
            self._add(EventKind.ATTEMPT, result.at)
        if (made := moved.decision) is not None:
            self._add(EventKind.DECISION, made.at, phase=made.phase, outcome=made.outcome, reason=made.reason)

    def _add(self, kind: EventKind, at: datetime, **facts: Any) -> None:  # noqa: ANN401 - fields of an event
        self.events.append(CountedEvent(kind, at, str(len(self.events)), task=TASK, **facts))

    def result(self, word: str) -> JobResult:
        job = engine.next_job(self.workflow, self.position, self.facts)
        word, _, reason = word.partition(":")
        word, _, label = word.partition("/")
        match word, job:
            case "crash", _:
                gate = job.gate.id if isinstance(job, GateJob) else None
                return Crashed(self.now, reason or "it crashed", gate)
            case "go", _:
                return Proceeded(self.now)
            case _, WorkJob():
                return self.worked(word, reason)
        return self.verdict(Outcome(word), reason, label)

    def worked(self, word: str, reason: str = "") -> Worked:
        if word not in {"work", "nothing"}:
            return Worked(self.now, Outcome(word), reason or None, self.position.tree)
        self._trees += 1
        made = tree(self._trees)
        return Worked(self.now, tree=made, run=f"run-{self._trees}", nothing_to_do=word == "nothing")

    def verdict(self, outcome: Outcome, reason: str = "", label: str = "", of: str | None = None) -> Verdict:
        job = engine.next_job(self.workflow, self.position, self.facts)
        assert isinstance(job, GateJob | WaitJob)
        assert job.gate is not None
        return Verdict(
            gate=job.gate.id,
            outcome=outcome,
            at=self.now,
            tree=of or self.position.tree,
            reason=reason or None,
            label=label or None,
            evidence=Evidence(run="a-run-of-its-own"),
        )


def shown(job: WorkflowJob | None) -> str:
    match job:
        case WorkJob():
            return f"{job.phase}:{job.role}"
        case GateJob():
            return job.gate.id
        case WaitJob():
            return f"wait {job.on}"
        case ProceedJob():
            return "go"
    return "-"
