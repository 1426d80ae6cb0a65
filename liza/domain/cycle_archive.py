"""Archives of cycles: names, what is written below one that ended early, and cycles in numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from liza.domain.issues import slug_of
from liza.domain.similarity import are_similar

PAGE: Final = "docs/context/current_cycle.md"
ARCHIVE: Final = "docs/context/archive"
PAUSED: Final = "Cycle paused after {count} {word} results. Review blockers in archive."
INSUFFICIENT: Final = "Judge INSUFFICIENT"
FAIL: Final = "Actor FAIL"
SCHEMA_VERSIONS: Final = {
    "SIGNAL BLOCK": "1.0",
    "current_cycle": "1.0",
    "Archive": "1.0",
}


class ArchiveNaming(StrEnum):
    NUMBER = "number"  # YYYY-MM-DD_cycle-NNN
    TIMESTAMP = "timestamp"  # YYYYMMDD_HHMMSS_description


class CycleEnd(StrEnum):
    """How a cycle ended; the value is the end of the name of its archive."""

    COMPLETE = ""
    INCOMPLETE = "_incomplete"
    FAILED = "_failed"


class CycleName(NamedTuple):
    """What the name of an archive is made of."""

    id: str
    at: datetime
    description: str


def cycle_id(at: datetime, taken: Iterable[str]) -> str:
    """Return the id of the next cycle of a day, such as 2026-01-31-001."""
    day = f"{at:%Y-%m-%d}"
    numbers = [int(found[1]) for name in taken if (found := re.fullmatch(rf"{day}-(\d+)", name))]
    return f"{day}-{max(numbers, default=0) + 1:03d}"


def archive_name(name: CycleName, naming: ArchiveNaming, end: CycleEnd, taken: Collection[str] = ()) -> str:
    """Return a name for an archive that is not *taken*."""
    stem = f"{_stem(name, naming)}{end.value}"
    names = [f"{stem}.md", *(f"{stem}-{number}.md" for number in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


def _stem(name: CycleName, naming: ArchiveNaming) -> str:
    if naming is ArchiveNaming.NUMBER:
        day, _, number = name.id.rpartition("-")
        return f"{day}_cycle-{number}"
    return f"{name.at:%Y%m%d_%H%M%S}_{slug_of(name.description) or 'goal'}"


class LoopOutcome(NamedTuple):
    """What the judge said of one loop."""

    loop: int
    reason: str
    blockers: tuple[str, ...] = ()


def pause_summary(loops: Sequence[LoopOutcome], word: str = INSUFFICIENT) -> str:
    """Return what is written below a cycle that is paused: its history, what is in the way, what to do."""
    same = _repeated_reason(loops)
    blockers = dict.fromkeys(blocker for loop in loops for blocker in loop.blockers)
    cause = (
        f"the same came back {same[1]} times: {same[0]}" if same else "each loop failed for another reason"
    )
    advice = (
        "Change what the planner is told about it, or mend it yourself; another loop would end the same way."
        if same
        else "Look at the last loops: the goal may be too large or unclear for steps of this size."
    )
    history = [f"- Loop {loop.loop}: {loop.reason}" for loop in loops]
    return _summary(
        "PAUSE SUMMARY",
        [
            PAUSED.format(count=len(loops), word=word),
            "\n".join(history),
            _named("Main blockers", blockers),
            f"Root cause: {cause}",
        ],
        f"Recommendation: {advice} ",
    )


def failure_summary(reason: str, done: Sequence[str]) -> str:
    """Return what is written below a cycle that failed."""
    return _summary(
        "FAILURE SUMMARY", [reason, _named("Done before", done)], "A person has to look before it goes on."
    )


def _summary(heading: str, parts: Sequence[str], last: str) -> str:
    return "\n\n".join([f"## {heading}", *(part for part in parts if part), last]) + "\n"


def _named(heading: str, items: Iterable[str]) -> str:
    lines = "\n".join(f"- {item}" for item in items)
    return f"{heading}:\n{lines}" if lines else ""


def _repeated_reason(loops: Sequence[LoopOutcome]) -> tuple[str, int] | None:
    """Return the reason that comes most often, in other words as well, and how often; None for once each."""
    counts = [(loop.reason, sum(are_similar(loop.reason, other.reason) for other in loops)) for loop in loops]
    found = max(counts, key=lambda pair: pair[1], default=("", 0))
    return found if found[1] > 1 else None


# What cycles come to, in numbers beside their targets.


class CycleFacts(NamedTuple):
    """What is known of one cycle that ended or was paused."""

    loops: int
    passes: int  # verdicts of the judge
    verdicts: int
    end: CycleEnd
    was_paused: bool = False
    approval_minutes: tuple[float, ...] = ()  # from each pass of the judge to the person's word


class CycleMetric(NamedTuple):
    """A row: what is measured, its target in words, and the bounds that keep it."""

    name: str
    measure: Callable[[Sequence[CycleFacts]], float | None]
    target: str
    most: float | None = None
    least: float | None = None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _latency(cycles: Sequence[CycleFacts]) -> float | None:
    waits = [minutes for cycle in cycles for minutes in cycle.approval_minutes]
    return _share(sum(waits), len(waits))


def _share_ending_in(end: CycleEnd) -> Callable[[Sequence[CycleFacts]], float | None]:
    return lambda cycles: _share(sum(cycle.end is end for cycle in cycles), len(cycles))


CYCLE_METRICS: Final[tuple[CycleMetric, ...]] = (
    CycleMetric(
        "loops per cycle",
        lambda cycles: _share(sum(one.loops for one in cycles), len(cycles)),
        "at most 3",
        most=3,
    ),
    CycleMetric(
        "pass rate of the judge",
        lambda cycles: _share(sum(one.passes for one in cycles), sum(one.verdicts for one in cycles)),
        "at least 70 %",
        least=0.7,
    ),
    CycleMetric("minutes until a person answers", _latency, "under 30", most=30),
    CycleMetric(
        "cycles that were paused",
        lambda cycles: _share(sum(one.was_paused for one in cycles), len(cycles)),
        "under 10 %",
        most=0.1,
    ),
    CycleMetric("cycles completed", _share_ending_in(CycleEnd.COMPLETE), "at least 80 %", least=0.8),
    CycleMetric("cycles incomplete", _share_ending_in(CycleEnd.INCOMPLETE), "none is set"),
    CycleMetric("cycles failed", _share_ending_in(CycleEnd.FAILED), "none is set"),
)


class MeasuredMetric(NamedTuple):
    name: str
    value: float | None  # None where nothing was measured yet
    target: str
    is_met: bool | None


def measure_cycles(cycles: Sequence[CycleFacts]) -> tuple[MeasuredMetric, ...]:
    """Return every metric with its value, and whether its target is met; None where there is none of both."""
    return tuple(_measure(metric, cycles) for metric in CYCLE_METRICS)


def _measure(metric: CycleMetric, cycles: Sequence[CycleFacts]) -> MeasuredMetric:
    value = metric.measure(cycles)
    if value is None or (metric.most is None and metric.least is None):
        return MeasuredMetric(metric.name, value, metric.target, None)
    # "Under" excludes the bound itself, "at most" does not.
    most_kept = (
        metric.most is None or value < metric.most or (value == metric.most and "at most" in metric.target)
    )
    least_kept = metric.least is None or value >= metric.least
    return MeasuredMetric(metric.name, value, metric.target, most_kept and least_kept)
