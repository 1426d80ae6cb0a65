"""What it cost: every recorded run by task, role, model and outcome, with where each number comes from.

The runs on disk tell it, also of tasks that left the board; the journal tells what became of the work.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.protocol import Reply, did_nothing
from liza.agents.recording import BRIEF, REPLY
from liza.domain.budget import DEFAULT_RUN_USD
from liza.domain.model import Status
from liza.domain.spending import USD_DIGITS, Provenance
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from liza.board.protocol import JournalEntry
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


def run_costs(folder: Path, state: State, entries: Iterable[JournalEntry]) -> list[RunCost]:
    """Return every run recorded in *folder* that is not going on."""
    decided = _decisions(entries)
    going_on = _running_runs(folder, {one.id for one in state.spend.reserved})
    briefs = (path for path in folder.glob(f"*/{BRIEF}") if path.parent.name not in going_on)
    found: list[RunCost] = []
    for path in briefs:
        with suppress(OSError, ValueError, KeyError):  # half written by a worker that died
            found.append(_run_cost(path.parent, state, decided))
    return found


def _running_runs(folder: Path, busy: set[str]) -> set[str]:
    """Return the latest run of each worker that has money set aside, unless it ended."""
    latest: dict[str, str] = {}
    for path in folder.glob(f"*/{BRIEF}"):
        name = path.parent.name
        worker = name.partition(".")[0]
        if worker in busy and not path.with_name(REPLY).exists():
            latest[worker] = max(name, latest.get(worker, ""))
    return set(latest.values())


def _decisions(entries: Iterable[JournalEntry]) -> dict[str, list[tuple[datetime, str]]]:
    """Return when what was decided about each task, in order."""
    found: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for entry in entries:
        tasks = entry.put.get("tasks", {})
        if isinstance(tasks, list):  # the first entry has them as a list
            tasks = {task["id"]: task for task in tasks}
        for name, fields in tasks.items():
            for event in fields.get("history", ()):
                if event["event"] in _OUTCOME_OF_EVENT:
                    found[name].append(
                        (datetime.fromisoformat(event["at"]), _OUTCOME_OF_EVENT[event["event"]])
                    )
    return found


def _run_cost(folder: Path, state: State, decided: Mapping[str, list[tuple[datetime, str]]]) -> RunCost:
    brief = json.loads((folder / BRIEF).read_bytes())
    task = brief.get("task")
    path = folder / REPLY
    if not path.exists():
        guess = _guess(state, brief["step"])
        mark = Provenance.ESTIMATED if guess else Provenance.UNKNOWN
        return RunCost(task or PLANNING, brief["role"], "unknown", "lost", guess, mark, 0)
    reply = json.loads(path.read_bytes())
    usage = reply.get("usage") or {}
    return RunCost(
        task or PLANNING,
        brief["role"],
        usage.get("model") or "unknown",
        SECOND_TRY if brief.get("is_again") else _outcome(task, reply, decided),
        usage.get("usd") or 0.0,
        Provenance(usage.get("provenance", Provenance.UNKNOWN)),
        (usage.get("tokens_in") or 0) + (usage.get("tokens_out") or 0),
        not did_nothing(Reply.model_validate(reply)),
    )


def _guess(state: State, step: str) -> float:
    alike = [one for one in state.spend.kinds if one.kind.partition(" ")[0] == step]
    runs = sum(one.runs for one in alike)
    if runs:
        return sum(one.usd for one in alike) / runs
    return 0.0 if any(one.silent for one in state.spend.kinds) else DEFAULT_RUN_USD


def _outcome(
    task: str | None, reply: Mapping[str, Any], decided: Mapping[str, list[tuple[datetime, str]]]
) -> str:
    ending = RunEnding(reply["ending"])
    if ending in _CRASHED:
        return "crashed"
    if ending in _TURNED_DOWN:
        return "turned down"
    if ending is not RunEnding.DONE:
        return str(ending)
    if task is None:
        return "planned"
    later = decided.get(task, [])
    place = bisect_left(later, (datetime.fromisoformat(reply["began"]), ""))
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
