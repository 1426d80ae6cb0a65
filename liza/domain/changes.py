"""Changes of the whole board, pure functions from state to state, and what must be true after each.

In this order: closing anomalies, sprints, metrics, the changes that people and workers make, and the
invariants of a board and of a step from one to the next.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain.anomalies import Anomaly
from liza.domain.lifecycle import ADDED, SUCCEEDED, TERMINAL, is_allowed_entry, label_of, unmet_requirements
from liza.domain.model import (
    Actor,
    BreakerStatus,
    Discovery,
    EffectIntent,
    Goal,
    GoalStatus,
    Metrics,
    NextGoal,
    Note,
    Outcome,
    PastGoal,
    ReviewCounts,
    Role,
    Sprint,
    State,
    Status,
    Task,
    index_leases,
)
from liza.domain.model import waits_for as waits_for  # noqa: PLC0414 - a claim is refused by it
from liza.domain.record import changed_names, next_id, with_record, with_records
from liza.domain.rules import rubber_stampers
from liza.domain.similarity import are_similar
from liza.errors import NotThere, Refused, UsageError, Violation

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.anomalies import Details
    from liza.domain.config import SprintLength
    from liza.domain.model import HistoryEntry, Signal, Urgency
    from liza.domain.record import Record


# When an anomaly is closed: it was processed, or its task is finished.
#
# Anomalies that only a planner processed still count for the circuit breaker.

# What Liza itself states about the run: no agent's answer is about these.
STATED_BY_LIZA: Final = frozenset(
    {"merge_conflict", "checkout_drift", "crash_loop", "edit_rejected", "no_sandbox"}
)
ENDS_WITH_TASK: Final = frozenset({"merge_conflict"})


def is_for_planner(anomaly: Anomaly) -> bool:
    """Return whether a planner can do something about *anomaly*."""
    return anomaly.type not in STATED_BY_LIZA


def open_anomalies(state: State, about: str | None = None) -> tuple[Anomaly, ...]:
    """Return the anomalies that are not processed: all, or those of the task *about*."""
    return tuple(
        one
        for one in state.anomalies.values()
        if one.processed is None and (about is None or one.task_id == about)
    )


def close_anomalies(state: State, names: Collection[str], *, by: str, at: datetime) -> State:
    """Return the board with the anomalies *names* processed; evidence of an open trip stays open."""
    trips = state.circuit_breaker.trips
    held = {name for trip in trips if trip.resolved_at is None for name in trip.evidence}
    over = {
        name: state.anomalies[name].replace(processed=at, processed_by=by)
        for name in names
        if name not in held and state.anomalies[name].processed is None
    }
    return state.replace(anomalies=with_records(state.anomalies, over)) if over else state


def close_with_finished_tasks(old: State, new: State) -> State:
    """Return *new* with the anomalies closed whose task was finished since *old*."""
    for one in open_anomalies(new) if new.tasks is not old.tasks else ():
        task = new.tasks.get(one.task_id or "")
        if one.type in ENDS_WITH_TASK and task is not None and task.status in TERMINAL:
            new = close_anomalies(new, (one.id,), by=task.history[-1].by, at=task.history[-1].at)
    return new


# When a sprint begins, what belongs to it, when it is over, and what the next one takes along.
#
# With neither `sprint.hours` nor `sprint.tasks` in the settings the goal is one sprint and all tasks are in
# it.


def is_limited(length: SprintLength) -> bool:
    return length.hours is not None or length.tasks is not None


def with_sprint_scope(old: State, new: State) -> State:
    """Return *new* with its sprint started by the first tasks, and with new tasks added to its scope."""
    sprint = new.sprint
    if sprint.ended is not None or len(new.tasks) <= len(old.tasks):
        return new
    if sprint.started is None:
        first = min(task.created for task in new.tasks.values())
        sprint = sprint.replace(started=first, deadline=sprint.deadline or _deadline(new, first))
    if is_limited(new.config.sprint):
        added = [name for name in new.tasks if name not in old.tasks and name not in sprint.tasks]
        sprint = sprint.replace(tasks=(*sprint.tasks, *added))
    return new.replace(sprint=sprint)


def _deadline(state: State, began: datetime) -> datetime | None:
    hours = state.config.sprint.hours
    return began + timedelta(hours=hours) if hours else None


def why_over(state: State, now: datetime) -> str | None:
    """Return why the sprint is over, or None while it goes on, or where that is written down already."""
    sprint, length = state.sprint, state.config.sprint
    if sprint.started is None or sprint.ended is not None:
        return None
    deadline = sprint.deadline or _deadline(state, sprint.started)
    if deadline is not None and now >= deadline:
        return f"its deadline, {deadline:%Y-%m-%dT%H:%M:%SZ}, has passed"
    finished = sum(sprint.metrics.outcomes.values())
    if length.tasks is not None and finished >= length.tasks:
        return f"{finished} tasks are finished"
    if is_limited(length) and sprint.tasks and not _open_tasks(state, sprint.tasks):
        return "all of its tasks are finished"
    return None


def why_ended(state: State) -> str:
    """Return why the sprint that is over was."""
    sprint = state.sprint
    if state.goal.status is not GoalStatus.IN_PROGRESS or sprint.ended is None:
        return f"the goal is {state.goal.status}"
    return why_over(state.replace(sprint=sprint.replace(ended=None)), sprint.ended) or "it was ended"


def _open_tasks(state: State, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if state.status_of(name) not in TERMINAL)


def end_sprint(state: State, now: datetime) -> State:
    """Return the board with its sprint ended, unless it is already."""
    if state.sprint.started is None or state.sprint.ended is not None:
        return state
    return state.replace(sprint=state.sprint.replace(ended=now))


def with_retrospective(state: State, number: int, file: str) -> State:
    """Return the board with the name of the file that looks back on sprint *number*."""
    if state.sprint.number != number:
        return state
    return state.replace(sprint=state.sprint.replace(retrospective=file))


def begin_next_sprint(state: State, now: datetime) -> State:
    """Return the board with the next sprint begun: what is open goes along, counters are fresh."""
    if state.sprint.ended is None:
        return state
    carried = _open_tasks(state, state.tasks) if is_limited(state.config.sprint) else ()
    sprint = Sprint(
        number=state.sprint.number + 1, tasks=carried, started=now, deadline=_deadline(state, now)
    )
    return state.replace(sprint=sprint)


# What a run comes to in numbers: counters that every change carries on, and what they say.
#
# The board shows only the latest history of a task, so nothing here is counted from scratch: `counted`
# derives from the two sides of one change what happened in it, and costs what the change costs.

MAX_FRUITLESS: Final = 50  # attempts since the last progress that the board names
BUCKET_RATIO: Final = 2**0.25  # from one bound of a cycle time to the next: a percentile is right within 19 %

# A commit, a verdict, or a step on a task's way: what tells work from spending.
FORWARD: Final = frozenset(
    {"submit", "revise", "approve", "pass", "reject", "confirm", "merge", "complete", "proceed"}
)
_FRUITLESS_EVENTS: Final = frozenset({"fail", "reclaim"})
# What history calls a review, and whether it let the work pass; None where only its verdicts say so.
_REVIEWS: Final[Mapping[str, bool | None]] = {
    "approve": True,
    "confirm": True,
    "reject": False,
    **dict.fromkeys(("pass", "proceed", "complete", "ask_human")),
}
_SENT_BACK: Final = frozenset({"reject", "revise"})
_RED: Final = frozenset({"reject", "revise", "fail_integration"})
LONGEST_REASON: Final = 200  # characters by which one failure of a gate is told from another

# The first row whose words are in a reason gives its kind.
REASONS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("tests", re.compile(r"\btests?\b|\btested\b|\bcoverage\b|\bpytest\b", re.IGNORECASE)),
    ("scope", re.compile(r"\bscope\b|\bunrelated\b|\bout of\b", re.IGNORECASE)),
    ("checkpoint", re.compile(r"\bcheckpoint\b|\bassumption|\bintent\b", re.IGNORECASE)),
    ("security", re.compile(r"\bsecur|\bsecret|\binjection\b|\bcredential", re.IGNORECASE)),
    ("style", re.compile(r"\blint|\bformat|\bstyle\b|\bnaming\b|\btypos?\b", re.IGNORECASE)),
    ("criteria", re.compile(r"\bcriteri|\bdone_when\b|\bmissing\b|\bincomplete\b|\bspec\b", re.IGNORECASE)),
    ("defect", re.compile(r"\bbugs?\b|\bwrong\b|\bfails?\b|\bcrash|\berror|\bbreaks?\b", re.IGNORECASE)),
)
OTHER: Final = "other"


def reason_kind(reason: str) -> str:
    """Return what kind of thing a rejection is about."""
    return next((kind for kind, words in REASONS if words.search(reason)), OTHER)


class NewEntry(NamedTuple):
    """One new entry of a history, the one before it, and the task before and after the change."""

    entry: HistoryEntry
    last: HistoryEntry | None
    before: Task | None
    task: Task
    number: int  # of the entry, counted from the task's first

    @property
    def id(self) -> str:
        return f"{self.task.id}#{self.number}"


def with_metrics(old: State, new: State) -> State:
    """Return *new* with the metrics of *old* plus the events between the two.

    Metrics already in *new* are ignored, so that a change composed of changes is counted once. A change that
    wraps another comes to the same two states, of which the latest are remembered.
    """
    global _latest_counted  # noqa: PLW0603 - one value, set at once
    if _latest_counted[0] is old and _latest_counted[1] is new:
        return new
    counted = _with_counted_events(old, new)
    _latest_counted = old, counted
    return counted


_latest_counted: tuple[State | None, State | None] = (None, None)


def _with_counted_events(old: State, new: State) -> State:
    base = old.sprint.metrics if new.sprint.number == old.sprint.number else new.sprint.metrics
    happened = [
        item
        for name in changed_names(old.tasks, new.tasks)
        for item in _new_entries(old.tasks.get(name), new.tasks[name])
    ]
    if not happened and new.agents is old.agents and new.sprint.metrics is base:
        return new
    found = _MetricsCounter(base)
    for item in happened:
        found.entry(item, is_handed_over=old.handoff.get(item.task.id) is not new.handoff.get(item.task.id))
    for name in changed_names(old.agents, new.agents):
        agent, known = new.agents[name], old.agents.get(name)
        found.crashes[agent.id] += len(set(agent.crashes) - set(known.crashes if known else ()))
        if agent.refusal and agent.refusals > (known.refusals if known else 0):
            found.refusals[agent.refusal.step] += 1
    metrics = found.metrics()
    if metrics == new.sprint.metrics:
        return new
    return new.replace(sprint=new.sprint.replace(metrics=metrics))


def _new_entries(before: Task | None, task: Task) -> Iterator[NewEntry]:
    known = before.event_count if before else 0
    for number in range(max(known, task.history_earlier), task.event_count):
        place = number - task.history_earlier
        last = task.history[place - 1] if place else None
        yield NewEntry(task.history[place], last, before, task, number + 1)


def _review_outcome(item: NewEntry) -> bool | None:
    """Return whether the agent of a reviewer let the work pass; None where none has judged it.

    What machines found decides nothing here, nor does that work goes on by force.
    """
    entry = item.entry
    if entry.role is not Role.REVIEWER or entry.event not in _REVIEWS:
        return None
    gates = entry.facts.get("gates", {})
    said = [one for one in item.task.verdicts if one.gate in gates and one.judging_worker]
    if gates:
        return said[-1].outcome is Outcome.PASS if said else None
    return _REVIEWS[entry.event]


class _MetricsCounter:
    """Counters while a change is counted."""

    def __init__(self, base: Metrics) -> None:
        self._base = base
        self._sums: Counter[str] = Counter()
        self.outcomes = Counter(base.outcomes)
        self.rejections = Counter(base.rejections)
        self.cycle_times = Counter(base.cycle_times)
        self.seconds = Counter(base.seconds)
        self.crashes = Counter(base.crashes)
        self.refusals = Counter(base.refusals)
        self._reviews = dict(base.reviews)
        self._gates = {gate: Counter(outcomes) for gate, outcomes in base.gates.items()}
        self._fruitless = base.fruitless
        self._killed = base.killed
        self._red_gates = base.red_gates

    def entry(self, item: NewEntry, *, is_handed_over: bool) -> None:
        entry, event = item.entry, item.entry.event
        self._sums["added"] += event == ADDED
        self._sums["attempts"] += event == "claim"
        self._sums["submissions"] += event == "submit"
        if entry.source is not None and item.last is not None:
            spent = round((entry.at - item.last.at).total_seconds())
            self.seconds[_status_key(item.before or item.task, entry.source)] += spent
        for gate, outcome in entry.facts.get("gates", {}).items():
            self._gates.setdefault(gate, Counter())[outcome] += 1
        if event in _SENT_BACK:
            self.rejections[reason_kind(str(entry.facts.get("reason", "")))] += 1
        is_pass = _review_outcome(item)
        if is_pass is not None:
            self._count_verdict(item, is_pass=is_pass)
        self._count_red_gate(item)
        self._count_progress(item, is_handed_over=is_handed_over)
        if entry.target in TERMINAL and entry.source is not entry.target:
            self._count_end(item)

    def _count_verdict(self, item: NewEntry, *, is_pass: bool) -> None:
        known = self._reviews.get(item.entry.by, ReviewCounts())
        earlier = item.before.review_cycles_total if item.before else 0
        first = earlier == 0
        self._reviews[item.entry.by] = known.replace(
            approved=known.approved + is_pass,
            rejected=known.rejected + (not is_pass),
            first_seen=known.first_seen + first,
            first_approved=known.first_approved + (first and is_pass),
        )

    def _count_red_gate(self, item: NewEntry) -> None:
        """Note a gate that failed as the one before it did, whoever's work it was about."""
        said = item.entry.facts.get("gates", {})
        if not said:
            return
        reason = str(item.entry.facts.get("reason", "")).partition("\n")[0][:LONGEST_REASON]
        if item.entry.event not in _RED:
            self._red_gates = ()
        elif self._red_gates and not are_similar(self._red_gates[-1].partition(" ")[2], reason):
            self._red_gates = (f"{item.id} {reason}",)
        else:
            self._red_gates = (*self._red_gates, f"{item.id} {reason}")[-MAX_FRUITLESS:]

    def _count_progress(self, item: NewEntry, *, is_handed_over: bool) -> None:
        """Note an attempt that came to nothing; a provider's limit, or a person's stop, makes none of it.

        Nor does the death of a worker that was killed. An agent that was killed was tried several times, and
        what kills it may well be short memory: such attempts are counted by themselves.
        """
        event, was_killed = item.entry.event, bool(item.entry.facts.get("killed"))
        if event in FORWARD or item.entry.role is Role.HUMAN:
            self._fruitless = self._killed = ()
        elif event == "release" and was_killed:
            self._sums["in_vain"] += 1
            self._killed = (*self._killed, item.id)[-MAX_FRUITLESS:]
        elif (event in _FRUITLESS_EVENTS and not was_killed) or (event == "release" and is_handed_over):
            self._sums["in_vain"] += 1
            self._fruitless = (*self._fruitless, item.id)[-MAX_FRUITLESS:]

    def _count_end(self, item: NewEntry) -> None:
        self.outcomes[item.entry.target] += 1
        if item.entry.target is Status.MERGED:
            self._sums["merged_rounds"] += item.task.iteration
            self._sums["merged_cycles"] += item.task.review_cycles_total
            self.cycle_times[_duration_bucket((item.entry.at - item.task.created).total_seconds())] += 1

    def metrics(self) -> Metrics:
        sums = {name: getattr(self._base, name) + more for name, more in self._sums.items()}
        return self._base.replace(
            **sums,
            fruitless=self._fruitless,
            killed=self._killed,
            red_gates=self._red_gates,
            reviews=self._reviews,
            gates={gate: dict(outcomes) for gate, outcomes in self._gates.items()},
            outcomes=_positive_counts(self.outcomes),
            rejections=_positive_counts(self.rejections),
            cycle_times=_positive_counts(self.cycle_times),
            seconds=_positive_counts(self.seconds),
            crashes=_positive_counts(self.crashes),
            refusals=_positive_counts(self.refusals),
        )


def _positive_counts(counter: Counter[Any]) -> dict[str, int]:
    return {str(name): count for name, count in counter.items() if count > 0}


def _status_key(task: Task, status: Status) -> str:
    return f"{task.phase}.{status}" if task.phase else str(status)


def _duration_bucket(seconds: float) -> str:
    """Return the name of the histogram bucket of *seconds*."""
    power = max(0, math.ceil(math.log(max(seconds, 1.0), BUCKET_RATIO) - 1e-9))
    return f"{math.ceil(BUCKET_RATIO**power - 1e-9)}s"


def percentile(times: Mapping[str, int], share: float) -> int | None:
    """Return the seconds within which *share* of what is counted in *times* came to be, or None."""
    left = math.ceil(share * sum(times.values()))
    for name in sorted(times, key=_bucket_seconds):
        left -= times[name]
        if left <= 0:
            return _bucket_seconds(name)
    return None


def _bucket_seconds(name: str) -> int:
    return int(name.removesuffix("s"))


def sum_metrics(parts: Iterable[Metrics]) -> Metrics:
    """Return the sum of the metrics of several sprints."""
    total = Metrics()
    for part in parts:
        total = Metrics(
            **{name: _sum_field(getattr(total, name), getattr(part, name)) for name in Metrics.model_fields}
        )
    return total


def _sum_field(one: Any, other: Any) -> Any:  # noqa: ANN401 - a field of Metrics: a number, counters, or names
    if isinstance(one, dict):
        return {
            key: _sum_field(one[key], other[key]) if key in one and key in other else (one | other)[key]
            for key in one | other
        }
    if isinstance(one, ReviewCounts):
        return ReviewCounts(
            **{name: getattr(one, name) + getattr(other, name) for name in ReviewCounts.model_fields}
        )
    return other if isinstance(one, tuple) else one + other


def blocked_seconds(state: State, now: datetime) -> int:
    """Return how long tasks have been BLOCKED in this sprint, those that still are included."""
    still = (task.history[-1].at for task in state.tasks.values() if task.status is Status.BLOCKED)
    past = sum(spent for name, spent in state.sprint.metrics.seconds.items() if name.endswith(Status.BLOCKED))
    return past + round(sum(max(0.0, (now - since).total_seconds()) for since in still))


class Figures(NamedTuple):
    """What the counters say, as people ask for it; None where there is nothing to say it from."""

    sprint: int
    hours: float
    added: int
    outcomes: dict[str, int]
    merged_per_hour: float | None
    cycle_seconds_p50: int | None
    cycle_seconds_p90: int | None
    iterations_per_merged: float | None
    rejections_per_merged: float | None
    attempts: int
    attempts_in_vain: int
    attempts_since_progress: int
    submissions: int
    first_pass_rate: float | None
    approval_rates: dict[str, float | None]
    rubber_stamps: list[str]
    rejections: dict[str, int]
    blocked_seconds: int
    seconds: dict[str, int]
    crashes: dict[str, int]
    refused_answers: dict[str, int]
    anomalies: dict[str, int]
    gates: dict[str, dict[str, int]]


def figures(
    state: State, now: datetime, metrics: Metrics | None = None, since: datetime | None = None
) -> Figures:
    """Return the figures of the sprint, or of *metrics* that began at *since*."""
    known, began = metrics or state.sprint.metrics, since or state.sprint.started or state.goal.created
    hours = max(0.0, ((state.sprint.ended or now) - began).total_seconds() / 3600)
    merged = known.outcomes.get(Status.MERGED, 0)
    seen, passed = (
        sum(getattr(found, name) for found in known.reviews.values())
        for name in ("first_seen", "first_approved")
    )
    return Figures(
        sprint=state.sprint.number,
        hours=round(hours, 2),
        added=known.added,
        outcomes=known.outcomes,
        merged_per_hour=round(merged / hours, 2) if hours and merged else None,
        cycle_seconds_p50=percentile(known.cycle_times, 0.5),
        cycle_seconds_p90=percentile(known.cycle_times, 0.9),
        iterations_per_merged=_ratio(known.merged_rounds, merged),
        rejections_per_merged=_ratio(known.merged_cycles, merged),
        attempts=known.attempts,
        attempts_in_vain=known.in_vain,
        attempts_since_progress=len(known.fruitless),
        submissions=known.submissions,
        first_pass_rate=_ratio(passed, seen),
        approval_rates={
            name: _ratio(one.approved, one.approved + one.rejected) for name, one in known.reviews.items()
        },
        rubber_stamps=sorted(rubber_stampers(known)),
        rejections=known.rejections,
        blocked_seconds=blocked_seconds(state, now),
        seconds=known.seconds,
        crashes=known.crashes,
        refused_answers=known.refusals,
        anomalies=dict(Counter(one.type for one in state.anomalies.values() if one.timestamp >= began)),
        gates=known.gates,
    )


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 2) if whole else None


HUMAN: Final = Actor(role=Role.HUMAN, id="human")
# A person who acts through an assistant: the role says whose it is, the id that an assistant did it.
ASSISTANT: Final = Actor(role=Role.HUMAN, id="assistant")
SUPERVISOR: Final = Actor(role=Role.SUPERVISOR, id="supervisor")
MAX_SIGNALS: Final = 50  # of a task that the board keeps, the latest: more than any rule waits for


@dataclass(frozen=True)
class Change:
    """What one update does to the board, and what the journal says of it."""

    by: str
    what: str
    make: Callable[[State], State]
    about: Callable[[], str] | None = None  # the task, where *make* is what chooses it

    @property
    def told(self) -> str:
        """What the journal says, once the change was made."""
        return f"{self.what} {self.about()}".strip() if self.about else self.what

    def __call__(self, state: State) -> State:
        made = self.make(state)
        # Here, because every engine of the board lets every change happen by this one call.
        return (
            made
            if made is state
            else with_metrics(state, close_with_finished_tasks(state, with_sprint_scope(state, made)))
        )


def dead_dependencies(state: State, task: Task) -> tuple[str, ...]:
    """Return the dependencies of *task* that ended without success."""
    return tuple(name for name in task.depends_on if state.status_of(name) in TERMINAL - SUCCEEDED)


def queue_goal(text: str, *, spec: str | None, by: Actor, at: datetime) -> Change:
    """Return the change that puts a goal behind those that are there."""
    if not text.strip():
        raise UsageError("the goal is empty; say in a sentence what to build")

    def make(state: State) -> State:
        more = NextGoal(description=text, spec_ref=spec, created=at)
        return state.replace(goal=state.goal.replace(queued=(*state.goal.queued, more)))

    return Change(by.id, "queue a goal", make)


def begin_next_goal(state: State, at: datetime) -> State:
    """Return the board with the next goal begun where the current one is over; the same board elsewhere."""
    goal = state.goal
    if goal.status is GoalStatus.IN_PROGRESS or not goal.queued:
        return state
    report = state.sprint.retrospective
    past = PastGoal(
        description=goal.description,
        spec_ref=goal.spec_ref,
        status=goal.status,
        created=goal.created,
        completed=goal.completed,
        report=report,
    )
    following = Goal(
        description=goal.queued[0].description,
        spec_ref=goal.queued[0].spec_ref,
        created=goal.queued[0].created,
        number=goal.number + 1,
        begun=at,
        queued=goal.queued[1:],
        past=(*goal.past, past),
    )
    return begin_next_sprint(state, at).replace(goal=following)


def add_note(message: str, *, about: str | None, by: Actor, at: datetime) -> Change:
    """Return the change that records what a person tells the agents."""
    if not message.strip():
        raise UsageError("a note needs words; say what the agents should know")

    def make(state: State) -> State:
        if by.role is not Role.HUMAN:
            sentence = f"{by.id} may not write in the name of people; agents log anomalies and discoveries"
            raise Refused(sentence)
        if about is not None and state.status_of(about) is None:
            raise NotThere("task", about, "`liza status` lists the tasks")
        name = next_id(state.human_notes, "note")
        note = Note(id=name, timestamp=at, message=message, about=about)
        return state.replace(human_notes=with_record(state.human_notes, note))

    return Change(by.id, f"note {about}" if about else "note", make)


def with_anomaly(state: State, details: Details, *, about: str | None, by: str, at: datetime) -> State:
    """Return the board with something logged that should not have happened."""
    anomaly = Anomaly(
        id=next_id(state.anomalies, "anomaly"),
        type=details.type,
        task_id=about,
        logged_by=by,
        timestamp=at,
        details=details,
    )
    return state.replace(anomalies=with_record(state.anomalies, anomaly))


def with_effects_intended(state: State, task: str, intent: EffectIntent, by: Actor) -> State:
    """Return the board with what is about to be done for *task*; raise where somebody else holds it now."""
    found = state.task(task)
    if found.lease is None or found.lease.token != by.token:
        raise Refused(f"{task}: {by.id} may not act for it, because it does not hold it any more")
    return state.with_task(found.replace(intended=intent))


def with_signals(state: State, task: str, *signals: Signal) -> State:
    """Return the board with what an agent said, or left unsaid, about *task*."""
    found = state.task(task)
    kept = (*found.signals, *signals)[-MAX_SIGNALS:]
    return state.with_task(found.replace(signals=kept)) if signals else state


def with_discovery(
    state: State, description: str, *, urgency: Urgency, about: str | None, by: str, at: datetime
) -> State:
    """Return the board with work that somebody saw beside their task."""
    found = Discovery(
        id=next_id(state.discovered, "discovery"),
        description=description,
        discovered_by=by,
        task_id=about,
        timestamp=at,
        urgency=urgency,
    )
    return state.replace(discovered=with_record(state.discovered, found))


def answer_plan(text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers what the planner has to know before it plans."""

    def make(state: State) -> State:
        if not state.goal.questions:
            message = 'the plan asks nothing; `liza note "…"` tells the agents something'
            raise Refused(message)
        noted = add_note(text, about=None, by=by, at=at)(state)
        over = [one.id for one in open_anomalies(noted) if one.task_id is None and is_for_planner(one)]
        answered = noted.replace(goal=noted.goal.replace(questions=()))
        return close_anomalies(answered, over, by=by.id, at=at)

    return Change(by.id, "answer the plan", make)


def with_notes_read(state: State, notes: tuple[str, ...], *, by: Actor, at: datetime) -> State:
    """Return the board with *notes* marked as processed."""
    seen = {
        name: state.human_notes[name].replace(processed=at, processed_by=by.id)
        for name in notes
        if state.human_notes[name].processed is None
    }
    return state.replace(human_notes=with_records(state.human_notes, seen)) if seen else state


# What must be true of a whole board, and of the step from one board to the next.
#
# Both tables are linear in what they look at. A board that is opened is checked whole; an update is checked
# by the same rows, narrowed to the records that changed and to the rules that read a changed field.

Violations = Iterator[Violation]
MOST_CYCLES: Final = 20  # cycles told at once: each is a look at all dependencies


class BoardRule(NamedTuple):
    """A rule over the whole board and the fields it reads (`tasks.lease`, `sprint.tasks`, or a section)."""

    reads: frozenset[str]
    find: Callable[[State], Violations]
    # What the rule finds where the board before the step kept it and the step passes all of DIFF_CHECKS: by
    # a look at what changed alone, since updates of a large board are many.
    find_in_step: Callable[[StateDiff], Violations] | None = None

    def check(self, step: StateDiff) -> Violations:
        return self.find_in_step(step) if self.find_in_step else self.find(step.new)


def violations(state: State) -> list[Violation]:
    """Return everything that is wrong with *state*."""
    found = [violation for task in state.tasks.values() for violation in task_violations(task)]
    found += [violation for rule in BOARD_RULES for violation in rule.find(state)]
    return found


def task_violations(task: Task) -> Violations:
    """Yield what is wrong with one task by itself."""
    for check in TASK_CHECKS:
        yield from check(task)


def _keeps_promises(task: Task) -> Violations:
    """A task keeps every promise of its status."""
    for promise in unmet_requirements(task):
        yield Violation(
            f"tasks.{task.id}.{promise.field}",
            f"a task that is {task.status} {promise.says}",
            "undo the edit, or use `liza task` to move it",
        )


def _judged_by_another(task: Task) -> Violations:
    """Nobody approves their own work, in whatever status it is."""
    if task.approved_by is not None and task.approved_by in task.authors:
        yield Violation(
            f"tasks.{task.id}.approved_by",
            f"{task.approved_by} wrote this and approved it",
            "let a reviewer judge it",
        )


def _depends_sensibly(task: Task) -> Violations:
    """A task neither waits for itself nor replaces itself, and names each dependency once."""
    path = f"tasks.{task.id}.depends_on"
    if task.id in task.depends_on:
        yield Violation(path, "it waits for itself", f"remove {task.id} from the list")
    if len(set(task.depends_on)) < len(task.depends_on):
        yield Violation(path, "a dependency is named twice", "name it once")
    if task.id in task.superseded_by:
        yield Violation(f"tasks.{task.id}.superseded_by", "it replaces itself", "name other tasks")


def _counts_add_up(task: Task) -> Violations:
    """The review cycles of the current coder are no more than all of them."""
    if task.review_cycles_current > task.review_cycles_total:
        yield Violation(
            f"tasks.{task.id}.review_cycles_current",
            f"{task.review_cycles_current} cycles of {task.review_cycles_total} in all",
            "put both numbers back",
        )


def _history_tells_the_status(task: Task) -> Violations:
    """History begins with the adding, follows the rows of the lifecycle in order, and ends in the status."""
    path = f"tasks.{task.id}.history"
    mend = "history is Liza's own: put it back as it was"
    if not task.history:
        yield Violation(path, "there is none", mend)
        return
    if task.history_earlier == 0 and task.history[0].event != ADDED:
        yield Violation(f"{path}[0]", f"it begins with {task.history[0].event!r}, not with {ADDED!r}", mend)
    before = None
    for number, entry in enumerate(task.history):
        if not is_allowed_entry(entry):
            way = f"{entry.event} from {entry.source} to {entry.target} by a {entry.role}"
            yield Violation(f"{path}[{number}]", f"no row of the lifecycle allows {way}", mend)
        if before and (before.target != entry.source or before.at > entry.at):
            yield Violation(f"{path}[{number}]", "it does not follow from the entry before it", mend)
        before = entry
    if task.history[-1].target != task.status:
        yield Violation(
            f"tasks.{task.id}.status",
            f"it says {task.status}, but its history ends in {task.history[-1].target}",
            "put the status back, or use `liza task` to move it",
        )


def _position_has_its_label(task: Task) -> Violations:
    """The status of a task is the label of its position in the workflow."""
    if task.position is None:
        yield Violation(f"tasks.{task.id}.position", "there is none", "positions are Liza's own: put it back")
    elif (label := label_of(task.position, task.lease)) is not task.status:
        problem = f"it says {task.status}, but its position in the workflow is that of a task that is {label}"
        yield Violation(
            f"tasks.{task.id}.status", problem, "put the status back, or use `liza task` to move it"
        )


TASK_CHECKS: Final[tuple[Callable[[Task], Violations], ...]] = (
    _keeps_promises,
    _judged_by_another,
    _depends_sensibly,
    _counts_add_up,
    _history_tells_the_status,
    _position_has_its_label,
)


def _duplicates(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, first name, later name) for every repeated key."""
    first: dict[str, str] = {}
    for key, name in pairs:
        if key in first:
            yield key, first[key], name
        else:
            first[key] = name


def _ids_are_unique(state: State) -> Violations:
    """No two tasks, live or archived, have ids that differ in nothing or only in case."""
    names = ((name.casefold(), name) for section in (state.tasks, state.archived) for name in section)
    for _, one, other in _duplicates(names):
        same = (
            "is used twice, here and in the archive" if one == other else f"differs from {one!r} only in case"
        )
        yield Violation(f"tasks.{other}.id", f"the id {other!r} {same}", "choose another id")


def _dependencies_exist(state: State) -> Violations:
    """Every dependency is a task, live or archived."""
    for task in state.tasks.values():
        for name in task.depends_on:
            if state.status_of(name) is None:
                yield Violation(
                    f"tasks.{task.id}.depends_on",
                    f"there is no task {name!r}",
                    "add it, or remove the dependency",
                )


def _dependencies_have_no_cycle(state: State) -> Violations:
    """No task waits for itself by way of others."""
    waits = {
        task.id: {name for name in task.depends_on if name != task.id and name in state.tasks}
        for task in state.tasks.values()
        if task.depends_on
    }
    for _ in range(MOST_CYCLES):
        ring = _cycle_in(waits)
        if not ring:
            return
        yield Violation(
            f"tasks.{ring[0]}.depends_on",
            f"{' waits for '.join([*ring, ring[0]])}: a cycle",
            "remove one of these dependencies",
        )
        for name in ring:
            del waits[name]


def _cycle_in(waits: Mapping[str, set[str]]) -> list[str]:
    """Return tasks that wait for each other in a circle, from the first by name; empty where none do."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1][:0:-1]  # who waits comes last there, and the first twice
        first = ring.index(min(ring))
        return ring[first:] + ring[:first]
    return []


def _one_task_a_holder(state: State) -> Violations:
    """A worker holds one task at most, and no two leases have the same token."""
    leases = [(task.lease, task.id) for task in state.tasks.values() if task.lease]
    for holder, one, other in _duplicates((lease.holder, name) for lease, name in leases):
        yield Violation(
            f"tasks.{other}.lease", f"{holder} holds {one} as well", f"`liza task release {other}`"
        )
    for _, one, other in _duplicates((lease.token, name) for lease, name in leases):
        yield Violation(
            f"tasks.{other}.lease.token", f"it is the token of {one}", f"`liza task release {other}`"
        )


def _has_lease_of_another(step: StateDiff) -> Violations:
    """A lease that the step brought has a holder or a token of another one."""
    index, changed = index_leases(step.new.tasks), step.put.get("tasks", ())
    leases = [lease for name in changed if (lease := index.leases.get(name))]
    if any(len(index.by_holder[one.holder]) > 1 or len(index.by_token[one.token]) > 1 for one in leases):
        yield from _one_task_a_holder(step.new)


def _work_waits_its_turn(state: State) -> Violations:
    """A task is WORKING only after all that it depends on succeeded."""
    yield from _work_before_its_turn(state, state.tasks.values())


def _changed_work_waits(step: StateDiff) -> Violations:
    """Work that the step changed waits its turn; on the board success is final, and nobody waits anew."""
    names = step.new.tasks if "archived" in step.put else step.put.get("tasks", ())
    yield from _work_before_its_turn(step.new, (step.new.tasks[name] for name in names))


def _work_before_its_turn(state: State, tasks: Iterable[Task]) -> Violations:
    for task in tasks:
        if task.status is not Status.WORKING:
            continue
        for name in task.depends_on:
            status = state.status_of(name)
            if status is not None and status not in SUCCEEDED:
                yield Violation(
                    f"tasks.{task.id}.depends_on",
                    f"it is WORKING while {name} is {status}",
                    f"remove the dependency, or `liza task release {task.id}`",
                )


def _one_merge_a_task(state: State) -> Violations:
    """No two tasks have the same merge_commit."""
    merges = ((task.merge_commit, task.id) for task in state.tasks.values() if task.merge_commit)
    for _, one, other in _duplicates(merges):
        yield Violation(f"tasks.{other}.merge_commit", f"it is the merge of {one}", "put the commit back")


def _named_tasks_exist(state: State) -> Violations:
    """Successors, notes, anomalies, discoveries, handoffs and the sprint name tasks that are there."""
    named = [
        *((f"tasks.{t.id}.superseded_by", name) for t in state.tasks.values() for name in t.superseded_by),
        *((f"human_notes.{n.id}.for", n.about) for n in state.human_notes.values()),
        *((f"anomalies.{a.id}.task_id", a.task_id) for a in state.anomalies.values()),
        *((f"discovered.{d.id}.task_id", d.task_id) for d in state.discovered.values()),
        *((f"discovered.{d.id}.became_task", d.became_task) for d in state.discovered.values()),
        *((f"handoff.{h.id}.id", h.id) for h in state.handoff.values()),
        *(("sprint.tasks", name) for name in state.sprint.tasks),
    ]
    for path, name in named:
        if name is not None and state.status_of(name) is None:
            yield Violation(path, f"there is no task {name!r}", "name a task of this board")


def _notes_are_marked_whole(state: State) -> Violations:
    """A processed note says both when and by whom."""
    for note in state.human_notes.values():
        if (note.processed is None) != (note.processed_by is None):
            yield Violation(
                f"human_notes.{note.id}.processed",
                "it says when or by whom, but not both",
                "remove both to have the note read again",
            )


def _goal_is_truly_complete(state: State) -> Violations:
    """A goal is COMPLETE only when every task is finished, and at least one succeeded or no idea is left."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return
    open_ones = [task.id for task in state.tasks.values() if task.status not in TERMINAL]
    if open_ones:
        yield Violation(
            "goal.status",
            f"it says COMPLETE, but {', '.join(open_ones[:3])} is not finished",
            "set it to IN_PROGRESS",
        )
    statuses = [*(task.status for task in state.tasks.values()), *state.archived.values()]
    if not SUCCEEDED.intersection(statuses) and state.goal.search_ended is None:
        yield Violation("goal.status", "it says COMPLETE, but nothing was done", "set it to IN_PROGRESS")


def _breaker_says_its_trips(state: State) -> Violations:
    """The breaker is TRIPPED exactly while a trip is not resolved, and trips have ids of their own."""
    trips = state.circuit_breaker.trips
    unresolved = any(trip.resolved_at is None for trip in trips)
    if unresolved != (state.circuit_breaker.status is BreakerStatus.TRIPPED):
        yield Violation(
            "circuit_breaker.status",
            f"it says {state.circuit_breaker.status}, but "
            + ("a trip is not resolved" if unresolved else "no trip is open"),
            "undo the edit",
        )
    for _, one, other in _duplicates((trip.id, f"{number}") for number, trip in enumerate(trips)):
        yield Violation(f"circuit_breaker.trips[{other}].id", f"it is the id of trip {one}", "undo the edit")


def _rule(
    find: Callable[[State], Violations],
    *reads: str,
    in_step: Callable[[StateDiff], Violations] | None = None,
) -> BoardRule:
    return BoardRule(frozenset(reads), find, in_step)


BOARD_RULES: Final[tuple[BoardRule, ...]] = (
    _rule(_ids_are_unique, "tasks.id", "archived"),
    _rule(_dependencies_exist, "tasks.id", "tasks.depends_on", "archived"),
    _rule(_dependencies_have_no_cycle, "tasks.id", "tasks.depends_on"),
    _rule(_one_task_a_holder, "tasks.lease", in_step=_has_lease_of_another),
    _rule(_work_waits_its_turn, "tasks.status", "tasks.depends_on", "archived", in_step=_changed_work_waits),
    _rule(_one_merge_a_task, "tasks.merge_commit"),
    _rule(
        _named_tasks_exist,
        *("tasks.id", "tasks.superseded_by", "archived"),
        *("human_notes", "anomalies", "discovered", "handoff", "sprint.tasks"),
    ),
    _rule(_notes_are_marked_whole, "human_notes"),
    _rule(_goal_is_truly_complete, "goal", "tasks.status", "tasks.id", "archived"),
    _rule(_breaker_says_its_trips, "circuit_breaker"),
)


class StateDiff(NamedTuple):
    """The difference between two boards: the records added, changed or removed, by section."""

    old: State
    new: State
    put: Mapping[str, tuple[str, ...]]  # section: ids of records that are new or changed
    gone: Mapping[str, tuple[str, ...]]  # section: ids of records that are no longer there

    def fields(self) -> frozenset[str]:
        """Return what changed, in the words of `Rule.reads`."""
        changed = {section for section in (*self.put, *self.gone) if section not in {"tasks", "sprint"}}
        if "sprint" in self.put:
            changed |= {f"sprint.{field}" for field in _changed_fields(self.old.sprint, self.new.sprint)}
        if "tasks" in self.gone:
            changed.add("tasks.id")
        for name in self.put.get("tasks", ()):
            changed |= {
                f"tasks.{field}" for field in _changed_fields(self.old.tasks.get(name), self.new.tasks[name])
            }
        return frozenset(changed)


def _changed_fields(old: Record | None, new: Record) -> Iterable[str]:
    """Return the names of the fields that differ; values are shared between copies, so identity tells."""
    if old is None:
        return new.__class__.model_fields
    before, after = old.__dict__, new.__dict__
    return [name for name in after if before[name] is not after[name]]


def diff_violations(step: StateDiff) -> list[Violation]:
    """Return what is wrong with the new board of *step*, or with how it came to be."""
    found = [violation for check in DIFF_CHECKS for violation in check(step)]
    found += [
        violation for name in step.put.get("tasks", ()) for violation in task_violations(step.new.tasks[name])
    ]
    fields = step.fields()
    found += [violation for rule in BOARD_RULES if rule.reads & fields for violation in rule.check(step)]
    return found


def _changed_tasks(step: StateDiff) -> Iterator[tuple[Task, Task]]:
    for name in step.put.get("tasks", ()):
        if (old := step.old.tasks.get(name)) is not None:
            yield old, step.new.tasks[name]


def _history_only_grows(step: StateDiff) -> Violations:
    """No entry of a history is changed or removed."""
    for old, new in _changed_tasks(step):
        kept = new.history[: len(old.history)]
        if new.history_earlier != old.history_earlier or kept != old.history:
            yield Violation(f"tasks.{new.id}.history", "an entry was changed or removed", "append only")


def _status_moves_by_the_table(step: StateDiff) -> Violations:
    """A status changes by an event only, and nothing of a task changes once its status is final."""
    for old, new in _changed_tasks(step):
        added = new.history[len(old.history) :]
        if old.status in TERMINAL:
            yield Violation(f"tasks.{new.id}.status", f"{old.status} is final", "make a new task")
        elif old.status is not new.status and not added:
            yield Violation(
                f"tasks.{new.id}.status", f"{old.status} became {new.status} without an event", "use an event"
            )


def _new_tasks_begin(step: StateDiff) -> Violations:
    """A new task comes with its whole history."""
    for name in step.put.get("tasks", ()):
        if name not in step.old.tasks:
            task = step.new.tasks[name]
            if task.history_earlier or not task.history or task.history[0].event != ADDED:
                yield Violation(f"tasks.{name}.history", "a new task begins with its adding", "add it anew")


def _totals_never_fall(step: StateDiff) -> Violations:
    """Counts of all review cycles never fall, and authors are never forgotten."""
    for old, new in _changed_tasks(step):
        if new.review_cycles_total < old.review_cycles_total:
            yield Violation(f"tasks.{new.id}.review_cycles_total", "it was lowered", "it never resets")
        if not set(old.authors) <= set(new.authors):
            yield Violation(f"tasks.{new.id}.authors", "an author was removed", "put the name back")


def _nothing_vanishes(step: StateDiff) -> Violations:
    """Tasks leave only finished and for the archive; notes, anomalies and discoveries stay for good."""
    for name in step.gone.get("tasks", ()):
        status = step.old.tasks[name].status
        if status not in TERMINAL or step.new.archived.get(name) is not status:
            yield Violation(f"tasks.{name}", "it was removed", "`liza task` abandons a task; none is removed")
    for section in ("human_notes", "anomalies", "discovered"):
        for name in step.gone.get(section, ()):
            yield Violation(
                f"{section}.{name}", "it was removed", "entries are marked processed, never removed"
            )
    for name, status in step.old.archived.items() if "archived" in step.put else ():
        if step.new.archived.get(name) is not status:
            yield Violation(f"archived.{name}", "it was changed", "the archive only grows")


def _trips_stay(step: StateDiff) -> Violations:
    """A trip of the circuit breaker is resolved, never removed."""
    if "circuit_breaker" not in step.put:
        return
    there = {trip.id for trip in step.new.circuit_breaker.trips}
    for trip in step.old.circuit_breaker.trips:
        if trip.id not in there:
            yield Violation(f"circuit_breaker.trips.{trip.id}", "it was removed", "resolve it with a reason")


DIFF_CHECKS: Final[tuple[Callable[[StateDiff], Violations], ...]] = (
    _history_only_grows,
    _status_moves_by_the_table,
    _new_tasks_begin,
    _totals_never_fall,
    _nothing_vanishes,
    _trips_stay,
)
