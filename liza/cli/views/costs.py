"""What it cost: every recorded run by task, role, model and outcome, with where each number comes from.

The runs on disk tell it, also of tasks that left the board; the journal tells what became of the work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.cli.views.runs import run_start
from liza.domain.budget import DEFAULT_RUN_USD
from liza.domain.model import USD_DIGITS, Provenance, Status
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from liza.cli.views.past import TaskMove
    from liza.cli.views.runs import RunRecord
    from liza.domain.model import State

MARKS: Final = (Provenance.REPORTED, Provenance.PRICED, Provenance.ESTIMATED)
GROUPINGS: Final = ("task", "role", "model", "outcome")
PLANNING: Final = "(planning)"
SECOND_TRY: Final = "second try"  # of an answer that could not be used; what the first try cost is its work's

# What an event says about all work on its task before it, back to the event before.
_OUTCOME_OF_EVENT: Final = {
    "merge": "merged",
    "reject": "rejected",
    "revise": "rejected",
    "fail": "failed",
    "fail_integration": "not merged",
    "supersede": "superseded",
    "abandon": "abandoned",
    "confirm": "nothing to do",
    "complete": "complete",
}
_CRASHED: Final = frozenset(
    {
        RunEnding.CRASHED,
        RunEnding.KILLED,
        RunEnding.TIMEOUT,
        RunEnding.SILENT,
        RunEnding.SLOW_START,
        RunEnding.EMPTY,
        RunEnding.NOT_STARTED,
    }
)
_TURNED_DOWN: Final = frozenset({RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH})


class RunCost(NamedTuple):
    """One run and what it cost."""

    task: str
    role: str
    model: str
    outcome: str
    usd: float
    provenance: Provenance
    tokens: int
    has_worked: bool = True


class CostSum(NamedTuple):
    runs: int
    tokens: int
    usd: float
    marks: dict[str, float]
    unreported: int = 0  # runs that worked, and of which nobody knows what they cost

    def __str__(self) -> str:
        parts = [f"${usd:.2f} {mark}" for mark, usd in self.marks.items() if usd]
        parts += [f"{self.unreported} not reported"] if self.unreported else []
        return (
            f"{self.runs:>6} runs {self.tokens:>12,} tokens  ${self.usd:>8.2f}  {', '.join(parts)}".rstrip()
        )


def run_costs(runs: Iterable[RunRecord], state: State, moves: Iterable[TaskMove]) -> list[RunCost]:
    """Return what each of *runs* that is not going on cost, by what the *moves* of its task made of it."""
    runs, decided = list(runs), _decisions(moves)
    going_on = _running_runs(runs, {one.id for one in state.spend.reserved})
    return [_run_cost(run, state, decided) for run in runs if run.run not in going_on]


def _running_runs(runs: Iterable[RunRecord], busy: set[str]) -> set[str]:
    """Return the latest run of each worker that has money set aside, unless it ended."""
    open_ones = [run for run in runs if run.worker in busy and run.ending is None]
    return set(
        {run.worker: run.run for run in sorted(open_ones, key=lambda run: run_start(run.run))}.values()
    )


def _decisions(moves: Iterable[TaskMove]) -> dict[str, list[tuple[datetime, str]]]:
    """Return when what was decided about each task, in order."""
    found: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for move in moves:
        if move.event in _OUTCOME_OF_EVENT:
            found[move.task].append((move.at, _OUTCOME_OF_EVENT[move.event]))
    return found


def _run_cost(run: RunRecord, state: State, decided: Mapping[str, list[tuple[datetime, str]]]) -> RunCost:
    task = run.task or PLANNING
    if run.ending is None:
        guess = _guess(state, run.step)
        mark = Provenance.ESTIMATED if guess else Provenance.UNKNOWN
        return RunCost(task, run.role, "unknown", "lost", guess, mark, 0)
    return RunCost(
        task,
        run.role,
        run.model or "unknown",
        SECOND_TRY if run.is_again else _outcome(run, decided),
        run.usd,
        run.provenance,
        run.tokens,
        run.has_worked,
    )


def _guess(state: State, step: str) -> float:
    alike = [one for one in state.spend.kinds if one.kind.partition(" ")[0] == step]
    runs = sum(one.runs for one in alike)
    if runs:
        return sum(one.usd for one in alike) / runs
    return 0.0 if any(one.silent for one in state.spend.kinds) else DEFAULT_RUN_USD


def _outcome(run: RunRecord, decided: Mapping[str, list[tuple[datetime, str]]]) -> str:
    if run.ending in _CRASHED:
        return "crashed"
    if run.ending in _TURNED_DOWN:
        return "turned down"
    if run.ending is not RunEnding.DONE:
        return str(run.ending)
    if run.task is None:
        return "planned"
    later = decided.get(run.task, [])
    place = bisect_left(later, (run.began, ""))
    return later[place][1] if place < len(later) else "open"


def cost_sum(runs: Iterable[RunCost]) -> CostSum:
    runs = list(runs)
    marks = {str(mark): 0.0 for mark in MARKS}
    for run in runs:
        if run.provenance in MARKS:
            marks[run.provenance] = round(marks[run.provenance] + run.usd, USD_DIGITS)
    silent = sum(run.has_worked and run.provenance is Provenance.UNKNOWN for run in runs)
    return CostSum(
        len(runs), sum(run.tokens for run in runs), round(sum(marks.values()), USD_DIGITS), marks, silent
    )


def costs_by(runs: Iterable[RunCost], way: str) -> dict[str, CostSum]:
    """Return what each task, role, model or outcome cost, the dearest first."""
    groups: defaultdict[str, list[RunCost]] = defaultdict(list)
    for run in runs:
        groups[getattr(run, way)].append(run)
    sums = {name: cost_sum(group) for name, group in groups.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1].usd, item[0])))


def merged_tasks(state: State) -> int:
    counts = Counter([*(task.status for task in state.tasks.values()), *state.archived.values()])
    return counts[Status.MERGED]


def cost_per_merge(runs: list[RunCost], state: State) -> float | None:
    """Return what a merged task cost, with its share of all that came to nothing."""
    merged = merged_tasks(state)
    return round(cost_sum(runs).usd / merged, USD_DIGITS) if merged else None


def costs_json(runs: list[RunCost], state: State) -> dict[str, Any]:
    return {
        "total": cost_sum(runs)._asdict(),
        "counted_usd": state.spend.total.usd,
        "budget": state.config.budget.model_dump(),
        "merged_tasks": merged_tasks(state),
        "usd_per_merged_task": cost_per_merge(runs, state),
        "second_tries": cost_sum(run for run in runs if run.outcome == SECOND_TRY)._asdict(),
        **{
            f"by_{way}": {name: one._asdict() for name, one in costs_by(runs, way).items()}
            for way in GROUPINGS
        },
    }


def cost_lines(runs: list[RunCost], state: State) -> Iterator[str]:
    """Yield the table that people read."""
    total, counted = cost_sum(runs), state.spend.total.usd
    yield f"{'Total':<22}{total}; the budget is ${state.config.budget.run_usd:.2f}"
    if round(counted - total.usd, 2) > 0:
        yield f"{'Counted':<22}${counted:.2f} against the budget: runs without a report at what is usual"
    each = cost_per_merge(runs, state)
    share = f", ${each:.2f} each with its share of what came to nothing" if each is not None else ""
    yield f"{'Tasks':<22}{merged_tasks(state):>6} merged{share}"
    if again := [run for run in runs if run.outcome == SECOND_TRY]:
        yield f"{'Second tries':<22}{cost_sum(again)}; their first answers could not be used"
    for way in GROUPINGS:
        yield f"By {way}"
        yield from (f"  {name:<20}{one}" for name, one in costs_by(runs, way).items())
