"""A scripted run of a workflow: results are said in short, jobs and decisions are read back in short."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from liza.domain.config import Limits
from liza.domain.position import Position
from liza.domain.verdicts import Evidence, Outcome, Verdict
from liza.workflow import engine
from liza.workflow.catalogue import EventKind, RuleEvent
from liza.workflow.document import Predicate, Workflow
from liza.workflow.history import rule_events
from liza.workflow.load import load_workflow
from liza.workflow.phase_decision import Facts
from liza.workflow.position import (
    Accepted,
    Answered,
    Crashed,
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
from liza.workflow.rules import FiredRule, fired_rules

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
        self.events: list[RuleEvent] = []
        self.fired: list[FiredRule] = []
        self._rules = self.workflow.watched_rules() if rules else ()
        self._limits = limits or Limits()
        self._trees = 0
        self._seen = 0

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
        """Answer the job with *word*: an outcome, with `/label` or `:reason`, or what else `result` knows."""
        return self.take(self.result(word))

    def take(self, result: JobResult) -> Move:
        self.jobs.append(self.next)
        before = self.position
        moved = engine.after(self.workflow, before, result, self.facts)
        self.events += rule_events(self.workflow, before, result, moved, TASK)
        broken = fired_rules(self._rules, self.events, self._limits, max(len(self.events) - self._seen, 1))
        self._seen = len(self.events)
        moved = engine.enforce_rules(self.workflow, moved, broken)
        self.fired += broken
        self.moves.append(moved)
        self.position = moved.position
        return moved

    def signal(self, role: str, **fields: object) -> None:
        """Let *role* have said *fields* beside what it comes to."""
        said = RuleEvent(kind=EventKind.SIGNAL, at=self.now, task=TASK, role=role, fields=fields)
        self.events.append(said)

    def result(self, word: str) -> JobResult:
        job = engine.next_job(self.workflow, self.position, self.facts)
        word, _, reason = word.partition(":")
        word, _, label = word.partition("/")
        match word, job:
            case "crash", _:
                gate = job.gate.id if isinstance(job, GateJob) else None
                return Crashed(self.now, reason or "it crashed", gate)
            case "answer" | "take", _:
                return Answered(self.now, again=word == "answer")
            case "accept" | "go", _:
                return Accepted(self.now) if word == "accept" else Proceeded(self.now)
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
