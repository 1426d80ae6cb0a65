"""What cycles come to, in numbers beside their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from liza.domain.cycle_archive import CycleEnd


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


def _ended(end: CycleEnd) -> Callable[[Sequence[CycleFacts]], float | None]:
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
    CycleMetric("cycles completed", _ended(CycleEnd.COMPLETE), "at least 80 %", least=0.8),
    CycleMetric("cycles incomplete", _ended(CycleEnd.INCOMPLETE), "none is set"),
    CycleMetric("cycles failed", _ended(CycleEnd.FAILED), "none is set"),
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
