"""The budget: reserved before a run, settled after it; a run that reaches a cap is ended.

Admission and settlement happen inside the update, so that several workers together cannot pass a cap. The
reservation is the highest cost of earlier runs of its kind; without any, all that is left for its task. A
metered run is ended when it reaches what is left. An unmetered run can pass a cap once: until its cost is
known, nothing else starts beside it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.record import with_record
from liza.domain.spending import USD_DIGITS, CostStats, CostTotals, Provenance, Reservation, TaskAccount
from liza.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.config import AgentChoice
    from liza.domain.events import Block
    from liza.domain.model import State

BUDGET: Final = "budget"  # what `liza answer` calls the cap of the whole board
PLAN_NAMES: Final = ("plan", "goal", "planner")  # what it calls the planner's own questions
WARN_AT: Final = 0.8  # of a cap; then people are told once
# USD for a run of which nothing is known; a session of a coding agent is rarely cheaper.
DEFAULT_RUN_USD: Final = 0.25
LARGEST_AMOUNT: Final = 1_000_000.0  # USD; more than that is a typing mistake
_AMOUNT: Final = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:\$|usd|dollars?)?", re.IGNORECASE)
_DUST: Final = 1e-9  # what sums of floats are off by


class RunRequest(NamedTuple):
    """A run that a worker asks to start; *later* are the kinds of run that follow in the same turn."""

    worker: str
    task: str | None
    kind: str
    # What has to be there at least where nothing is known; 0: it costs nothing.
    guess: float = DEFAULT_RUN_USD
    later: tuple[str, ...] = ()
    is_metered: bool = True  # it tells what it costs while it works, so that it can be ended in time


class AdmissionRequest(NamedTuple):
    """A request to start a run. *providers* are all that the turn needs: half a turn is wasted money."""

    want: RunRequest
    provider: str
    providers: tuple[str, ...]
    choice: AgentChoice | None = None  # who is to run


class Bill(NamedTuple):
    """What a run cost."""

    worker: str
    task: str | None
    kind: str
    usd: float
    provenance: Provenance


class Cap(Enum):
    """The cap that a run would pass: the board's, its task's, or (BUSY) what others' reservations leave."""

    RUN = auto()
    TASK = auto()
    BUSY = auto()


def cost_kind(step: str, model: str) -> str:
    """Return the key by which costs of runs are compared: step and model."""
    return f"{step} {model}"


def average_cost(state: State, kind: str) -> float | None:
    """Return the average cost of runs of *kind*, else of its model; None where no cost is known."""
    same = [one for one in state.spend.kinds if one.kind == kind]
    for known in (same, _stats_of_model(state, kind)):
        runs = sum(one.runs for one in known)
        if runs:
            return round(sum(one.usd for one in known) / runs, USD_DIGITS)
    return None


def highest_cost(state: State, kind: str) -> float | None:
    """Return the highest cost of a run of *kind*; None where no cost is known.

    0 for an agent that has run and never reported a cost: no cap can hold it.
    """
    known = next((one for one in state.spend.kinds if one.kind == kind and one.runs), None)
    if known is not None:
        return known.most
    return 0.0 if never_reports_cost(state, kind) else None


def never_reports_cost(state: State, kind: str) -> bool:
    """Return whether the agent of *kind* has worked and never reported what it cost."""
    alike = _stats_of_model(state, kind)
    return any(one.silent for one in alike) and not any(one.runs for one in alike)


def _stats_of_model(state: State, kind: str) -> list[CostStats]:
    """Return the cost statistics of all steps of the model of *kind*."""
    model = kind.partition(" ")[2]
    return [one for one in state.spend.kinds if one.kind.partition(" ")[2] == model]


def task_cap(state: State, task: str) -> float:
    """Return the cap of *task*: the one a person set, else the configured one."""
    account = state.accounts.get(task)
    return account.cap if account and account.cap is not None else state.config.budget.task_usd


def spent_on(state: State, task: str) -> CostTotals:
    account = state.accounts.get(task)
    return account.spent if account else CostTotals()


def cap_exceeded_by(state: State, want: RunRequest) -> Cap | None:
    """Return the cap that *want* would pass, were it begun, or None."""
    least = sum(_minimum_needed(state, kind, want.guess) for kind in (want.kind, *want.later))
    left = state.config.budget.run_usd - state.spend.total.usd
    if is_budget_question_open(state) or least > left + _DUST:
        return Cap.RUN
    if (
        want.task is not None
        and _expected_cost(state, want) > remaining_for_task(state, want.worker, want.task) + _DUST
    ):
        return Cap.TASK
    return Cap.BUSY if least > unreserved_budget(state, want.worker) + _DUST else None


def _minimum_needed(state: State, kind: str, guess: float) -> float:
    """Return what must be left for a run of *kind*: its highest known cost, else an estimate."""
    known = highest_cost(state, kind)
    return known if known is not None else max(guess, average_cost(state, kind) or 0.0) if guess else 0.0


def _expected_cost(state: State, want: RunRequest) -> float:
    """Return what a task must have left for a run: its average cost, since the run is ended at the cap."""
    usual = average_cost(state, want.kind)
    return usual if usual is not None else 0.0 if never_reports_cost(state, want.kind) else want.guess


def unreserved_budget(state: State, worker: str) -> float:
    """Return what is left of the board's budget after the reservations of other workers."""
    others = sum(one.usd for one in state.spend.reserved if one.id != worker)
    return state.config.budget.run_usd - state.spend.total.usd - others


def remaining_for_task(state: State, worker: str, task: str | None) -> float:
    """Return what is left for *task* after others' reservations; without a task, the cap of a new one."""
    if task is None:
        return state.config.budget.task_usd
    others = sum(one.usd for one in state.spend.reserved if one.id != worker and one.task == task)
    return task_cap(state, task) - spent_on(state, task).usd - others


def amount_to_reserve(state: State, want: RunRequest) -> float:
    """Return the amount to reserve for *want*: the most that it and the rest of its turn may cost."""
    known = [highest_cost(state, kind) for kind in (want.kind, *want.later)]
    certain = sum(one for one in known if one is not None)
    if None not in known or not want.guess:
        return round(certain, USD_DIGITS)
    left = unreserved_budget(state, want.worker)
    rest = min(left, remaining_for_task(state, want.worker, want.task)) if want.is_metered else left
    return round(max(certain, rest, 0.0), USD_DIGITS)


def is_budget_question_open(state: State) -> bool:
    """Return whether the question for a higher budget is open; a changed cap answers it."""
    return state.spend.asked is not None and state.spend.asked == state.config.budget.run_usd


def is_cap_question_open(state: State, task: str) -> bool:
    """Return whether *task* is blocked by its cap and the cap was not raised since."""
    account = state.accounts.get(task)
    return account is not None and account.asked is not None and account.asked == task_cap(state, task)


def reserve(state: State, want: RunRequest, at: datetime) -> State:
    """Return the board with a reservation for *want*, in place of its worker's earlier one."""
    usual = average_cost(state, want.kind)
    likely = usual if usual is not None else want.guess if want.is_metered else 0.0
    mine = Reservation(
        id=want.worker,
        task=want.task,
        kind=want.kind,
        usd=amount_to_reserve(state, want),
        likely=likely,
        since=at,
    )
    return _with_reservation(state, mine)


def _with_reservation(state: State, mine: Reservation) -> State:
    others = tuple(one for one in state.spend.reserved if one.id != mine.id)
    return state.replace(spend=state.spend.replace(reserved=(*others, mine)))


def is_within_reservation(state: State, worker: str, usd: float) -> bool:
    """Return whether a run of *worker* that has cost *usd* so far may go on as it is."""
    mine = _reservation_of(state, worker)
    return mine is None or (usd <= mine.usd and unreserved_budget(state, worker) >= usd)


def extend_reservation(state: State, worker: str, usd: float) -> tuple[State, str | None]:
    """Return the board with a larger reservation for a run that has cost *usd*, or why it must end."""
    mine = _reservation_of(state, worker)
    if mine is None:
        return state, None
    left = unreserved_budget(state, worker)
    if left < -_DUST or (usd and usd >= left):
        cap = state.config.budget.run_usd
        return state, f"it has cost ${usd:.2f} so far, and of the ${cap:.2f} for everything no more is left"
    if mine.task is not None and usd and usd >= remaining_for_task(state, worker, mine.task):
        cap = task_cap(state, mine.task)
        return state, f"it has cost ${usd:.2f} so far, and of the ${cap:.2f} for {mine.task} no more is left"
    # Twice as much, so that a long run changes the board a few times and not at every word.
    more = round(min(max(2 * usd, mine.usd), max(left, 0.0)), USD_DIGITS)
    return (_with_reservation(state, mine.replace(usd=more)) if usd > mine.usd else state), None


def _reservation_of(state: State, worker: str) -> Reservation | None:
    return next((one for one in state.spend.reserved if one.id == worker), None)


def without_reservation(state: State, worker: str) -> State:
    """Return the board without the reservation of *worker*."""
    others = tuple(one for one in state.spend.reserved if one.id != worker)
    if len(others) == len(state.spend.reserved):
        return state
    return state.replace(spend=state.spend.replace(reserved=others))


def settle_run(state: State, bill: Bill) -> State:
    """Return the board with the cost of a run booked and its reservation removed."""
    spend = without_reservation(state, bill.worker).spend
    spend = spend.replace(
        total=spend.total.plus(bill.usd, bill.provenance), kinds=_with_cost(spend.kinds, bill)
    )
    state = state.replace(spend=spend)
    if bill.task is None or bill.task not in state.tasks:
        return state
    account = state.accounts.get(bill.task) or TaskAccount(id=bill.task)
    account = account.replace(spent=account.spent.plus(bill.usd, bill.provenance))
    return state.replace(accounts=with_record(state.accounts, account))


def _with_cost(kinds: tuple[CostStats, ...], bill: Bill) -> tuple[CostStats, ...]:
    known = next((one for one in kinds if one.kind == bill.kind), CostStats(kind=bill.kind, runs=0, usd=0))
    if bill.provenance is Provenance.UNKNOWN:
        fresh = known.replace(silent=known.silent + 1)
    else:
        usd = round(known.usd + bill.usd, USD_DIGITS)
        fresh = known.replace(runs=known.runs + 1, usd=usd, most=max(known.most, bill.usd))
    return (*(one for one in kinds if one.kind != bill.kind), fresh)


def settle_reservations_of_dead(state: State, living: Collection[str]) -> State:
    """Return the board with reservations of workers that are not *living* booked at their likely cost."""
    for one in state.spend.reserved:
        if one.id not in living:
            mark = Provenance.ESTIMATED if one.likely else Provenance.UNKNOWN
            state = settle_run(state, Bill(one.id, one.task, one.kind, one.likely, mark))
    return state


def budget_warning(state: State) -> str | None:
    """Return the budget warning once most of the budget is spent; None where it was given already."""
    cap, spent = state.config.budget.run_usd, state.spend.total.usd
    if spent < WARN_AT * cap or cap in {state.spend.warned, 0}:
        return None
    more = raise_budget_command(state)
    return f"${spent:.2f} of the ${cap:.2f} that the run may cost are spent; `{more}` allows more"


def with_warning_given(state: State) -> State:
    return state.replace(spend=state.spend.replace(warned=state.config.budget.run_usd))


def with_budget_question(state: State) -> State:
    """Return the board with the question on it whether the run may cost more."""
    return (
        state
        if is_budget_question_open(state)
        else state.replace(spend=state.spend.replace(asked=state.config.budget.run_usd))
    )


def budget_question(state: State) -> str:
    cap, spent = state.config.budget.run_usd, state.spend.total.usd
    return (
        f"the budget is reached: ${spent:.2f} of ${cap:.2f} are spent and the next run would pass it; "
        "how much may all of it cost?"
    )


def why_budget_is_busy(state: State) -> str:
    """Return why a run waits for others: what is left is set aside for what they may cost."""
    who = ", ".join(one.id for one in state.spend.reserved if one.usd)
    left = state.config.budget.run_usd - state.spend.total.usd
    return f"the ${left:.2f} that are left of the budget are set aside for {who}, who will be through"


def raise_budget_command(state: State) -> str:
    """Return the command that allows enough more for work to go on."""
    return f"liza answer {BUDGET} {_suggested_cap(state, state.config.budget.run_usd, state.spend.total.usd)}"


def _suggested_cap(state: State, cap: float, spent: float) -> int:
    """Return a cap to suggest, in whole dollars: 1.5 times *cap*, or *spent* plus the dearest run."""
    dearest = max([DEFAULT_RUN_USD, *(one.most for one in state.spend.kinds)])
    return int(max(cap * 1.5, spent + dearest)) + 1


def block_for_cost(state: State, task: str) -> tuple[State, Block]:
    """Return the board with the question for a higher cap of *task*, and the event that blocks the task."""
    from liza.domain.events import Block  # noqa: PLC0415 - who only looks at the board needs no event

    cap, spent = task_cap(state, task), spent_on(state, task).usd
    account = (state.accounts.get(task) or TaskAccount(id=task)).replace(asked=cap)
    block = Block(
        reason=f"it has cost ${spent:.2f} of the ${cap:.2f} that a task may, and the next run would pass it",
        questions=(
            f"How much may it cost in all? (`liza answer {task} {_suggested_cap(state, cap, spent)}`)",
        ),
        only_people=True,
    )
    return state.replace(accounts=with_record(state.accounts, account)), block


def parse_amount(text: str) -> float | None:
    """Return the USD that *text* names, or None where it is no amount."""
    match = _AMOUNT.fullmatch(text.strip())
    return float(match[1]) if match and float(match[1]) <= LARGEST_AMOUNT else None


def allow(state: State, task: str, text: str) -> State:
    """Return the board on which *task* may cost what *text* says."""
    cap = _parse_cap(task, text, spent_on(state, task).usd)
    account = state.accounts[task].replace(cap=cap, asked=None)
    return state.replace(accounts=with_record(state.accounts, account))


def raise_budget(state: State, text: str) -> State:
    """Return the board on which the whole run may cost what *text* says."""
    cap = _parse_cap(BUDGET, text, state.spend.total.usd)
    budget = state.config.budget.replace(run_usd=cap)
    return state.replace(config=state.config.replace(budget=budget), spend=state.spend.replace(asked=None))


def _parse_cap(who: str, text: str, spent: float) -> float:
    cap = parse_amount(text)
    if cap is None:
        raise UsageError(
            f"{text!r} is no amount; say what it may cost in all, in USD, such as `liza answer {who} 30`"
        )
    if cap <= spent:
        raise Refused(
            f"{who}: ${spent:.2f} are spent already, so ${cap:.2f} allows nothing; say more than that"
        )
    return cap
