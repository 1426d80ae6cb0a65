"""What cycles come to beside their targets, out of all that ever happened to their tasks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from liza.daemon.policy.cycle_log import RESULTS
from liza.domain.cycle_archive import CycleEnd, CycleFacts, MeasuredMetric, measure_cycles
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import Status
from liza.domain.rules import RULE_BY_NAME, RuleAction
from liza.workflow.document import workflow_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from liza.cli.views.past import TaskMove
    from liza.domain.model import State

_HATS: Final = {"planner": "planner", "coder": "actor", "reviewer": "judge", "human": "human"}
_PAUSES: Final = {rule.name for rule in RULE_BY_NAME.values() if rule.action is RuleAction.PAUSE}


def cycle_metrics(state: State, moves: Iterable[TaskMove]) -> tuple[MeasuredMetric, ...]:
    """Return what the cycles of a board come to; nothing where its workflow has no page."""
    if workflow_on(state).page is None:
        return ()
    by_task: defaultdict[str, list[TaskMove]] = defaultdict(list)
    for move in moves:
        by_task[move.task].append(move)
    cycles = [found for name, task in by_task.items() if (found := _facts(state, name, task))]
    return measure_cycles(cycles)


def _facts(state: State, name: str, moves: Sequence[TaskMove]) -> CycleFacts | None:
    """Return what is known of a cycle; None while it goes on and was never paused."""
    words = [RESULTS.get((_hat(move), move.event)) for move in moves]
    pauses = [move for move in moves if _is_pause(move)]
    status = state.status_of(name)
    if status not in {*SUCCEEDED, Status.ABANDONED} and not pauses:
        return None
    ends = {Status.ABANDONED: CycleEnd.FAILED}
    end = CycleEnd.COMPLETE if status in SUCCEEDED else ends.get(status or Status.IDLE, CycleEnd.INCOMPLETE)
    judged = [word for move, word in zip(moves, words, strict=True) if _is_verdict(move, word)]
    fails = words.count("FAIL")
    waits = tuple(_waits(moves))
    return CycleFacts(len(judged) + fails, judged.count("PASS"), len(judged), end, bool(pauses), waits)


def _hat(move: TaskMove) -> str:
    return _HATS.get(move.by.partition("-")[0], "judge")


def _is_verdict(move: TaskMove, word: str | None) -> bool:
    is_judge = _hat(move) == "judge" and move.source == Status.READY_FOR_REVIEW
    return is_judge and word in {"PASS", "INSUFFICIENT"} and not _is_pause(move)


def _is_pause(move: TaskMove) -> bool:
    return move.event == "block" and move.reason.partition(":")[0] in _PAUSES


def _waits(moves: Sequence[TaskMove]) -> Iterator[float]:
    """Yield the minutes from each pass of the judge to the word of the person who was asked."""
    asked = None
    for move in moves:
        if _hat(move) == "judge" and move.target == Status.AWAITING_APPROVAL:
            asked = move.at
        elif asked is not None and _hat(move) == "human":
            yield (move.at - asked).total_seconds() / 60
            asked = None


def cycle_rows(measured: Iterable[MeasuredMetric]) -> Iterator[tuple[str, str]]:
    """Yield each metric with its value, its target and whether that is met, as people read it."""
    for one in measured:
        kept = {True: ": kept", False: ": missed", None: ""}[one.is_met]
        value = "-" if one.value is None else _shown(one)
        yield one.name, f"{value} (target: {one.target}{kept})"


def _shown(one: MeasuredMetric) -> str:
    is_share = "%" in one.target or one.name.startswith("cycles")
    return f"{one.value:.0%}" if is_share else f"{one.value:.1f}"
