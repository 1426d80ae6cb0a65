"""What a run comes to in numbers: counters that every change carries on, and what they say.

The board shows only the latest history of a task, so nothing here is counted from scratch: `counted` derives
from the two sides of one change what happened in it, and costs what the change costs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import chain, compress, islice
from operator import is_not
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain.lifecycle import ADDED, TERMINAL
from liza.domain.model import Metrics, ReviewCounts, Role, Status
from liza.domain.rule_events import rubber_stampers
from liza.domain.similarity import are_similar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from liza.domain.model import HistoryEntry, State, Task

MAX_FRUITLESS: Final = 50  # attempts since the last progress that the board names
BUCKET_RATIO: Final = 2**0.25  # from one bound of a cycle time to the next: a percentile is right within 19 %

# A commit, a verdict, or a step on a task's way: what tells work from spending.
FORWARD: Final = frozenset(
    {"submit", "revise", "approve", "pass", "reject", "confirm", "merge", "complete", "proceed"}
)
_FRUITLESS_EVENTS: Final = frozenset({"fail", "reclaim"})
_VERDICTS: Final = {"approve": True, "confirm": True, "reject": False}
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

    Metrics already in *new* are ignored, so that a change composed of changes is counted once.
    """
    base = old.sprint.metrics if new.sprint.number == old.sprint.number else new.sprint.metrics
    happened = [
        item
        for task in _changed_records(old.tasks, new.tasks)
        for item in _new_entries(old.tasks.get(task.id), task)
    ]
    if not happened and new.agents is old.agents and new.sprint.metrics is base:
        return new
    found = _MetricsCounter(base)
    for item in happened:
        found.entry(item, is_handed_over=old.handoff.get(item.task.id) is not new.handoff.get(item.task.id))
    for agent in _changed_records(old.agents, new.agents):
        known = old.agents.get(agent.id)
        found.crashes[agent.id] += len(set(agent.crashes) - set(known.crashes if known else ()))
        if agent.refusal and agent.refusals > (known.refusals if known else 0):
            found.refusals[agent.refusal.step] += 1
    metrics = found.metrics()
    if metrics == new.sprint.metrics:
        return new
    return new.replace(sprint=new.sprint.replace(metrics=metrics))


def _changed_records(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Any]:
    """Return the records of *after* that were added or changed, and perhaps some that only moved.

    They are compared by position, at the speed of C; by name it would take ten times as long.
    """
    if before is after:
        return ()
    changed = compress(after.values(), map(is_not, after.values(), before.values()))
    return chain(changed, islice(after.values(), len(before), None))


def _new_entries(before: Task | None, task: Task) -> Iterator[NewEntry]:
    known = before.event_count if before else 0
    for number in range(max(known, task.history_earlier), task.event_count):
        place = number - task.history_earlier
        last = task.history[place - 1] if place else None
        yield NewEntry(task.history[place], last, before, task, number + 1)


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
        if entry.role is Role.REVIEWER and event in _VERDICTS:
            self._count_verdict(item, is_pass=_VERDICTS[event])
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
