"""What may be spent: set aside before a run, settled after it, and ended where a cap is reached.

All of it happens in the update that admits or records a run, so that workers together cannot pass a cap that
none of them would pass alone. Set aside is the most that a run may cost, never what it usually does: the most
that its like has cost, and where there is none, all that is left for its task. A run whose agent tells its
cost while it works is ended when it reaches what is left. An agent that tells it only at its end can pass a
cap, once: until it is known what such a run costs, nothing else begins beside it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.record import with_record
from liza.domain.spending import CENTS, Account, Average, Provenance, Reservation, Spent
from liza.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.config import AgentChoice
    from liza.domain.events import Block
    from liza.domain.model import State

BUDGET: Final = "budget"  # what `liza answer` calls the cap of the whole board
PLAN: Final = ("plan", "goal", "planner")  # what it calls the planner's own questions
WARN_AT: Final = 0.8  # of a cap; then people are told once
FIRST_GUESS: Final = (
    0.25  # USD for a run of which nothing is known; a session of a coding agent is rarely cheaper
)
MOST: Final = 1_000_000.0  # USD; more than that is a typing mistake
_AMOUNT: Final = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:\$|usd|dollars?)?", re.IGNORECASE)
_DUST: Final = 1e-9  # what sums of floats are off by


class Want(NamedTuple):
    """A run that a worker wants to begin; *later* are the kinds of those that follow in the same turn."""

    worker: str
    task: str | None
    kind: str
    guess: float = FIRST_GUESS  # what has to be there at least where nothing is known; 0: it costs nothing
    later: tuple[str, ...] = ()
    is_metered: bool = True  # it tells what it costs while it works, so that it can be ended in time


class Run(NamedTuple):
    """A run that is wanted. *providers* are all that the turn will need: half a turn is paid for nothing."""

    want: Want
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
    """What a run would pass: the cap of all, its task's, or only what others have left of it for now."""

    RUN = auto()
    TASK = auto()
    BUSY = auto()


def kind_of(step: str, model: str) -> str:
    """Return what runs are compared by: what was asked of which model."""
    return f"{step} {model}"


def average(state: State, kind: str) -> float | None:
    """Return what a run of *kind* cost on average, or other steps of its model; None where nobody knows."""
    same = [one for one in state.spend.kinds if one.kind == kind]
    for known in (same, _alike(state, kind)):
        runs = sum(one.runs for one in known)
        if runs:
            return round(sum(one.usd for one in known) / runs, CENTS)
    return None


def worst(state: State, kind: str) -> float | None:
    """Return the most that a run of *kind* has cost; None where nobody knows yet.

    Nothing is set aside for an agent that has never said what it costs: no cap can hold it.
    """
    known = next((one for one in state.spend.kinds if one.kind == kind and one.runs), None)
    if known is not None:
        return known.most
    return 0.0 if is_silent(state, kind) else None


def is_silent(state: State, kind: str) -> bool:
    """Return whether the agent of *kind* has worked and never reported what it cost."""
    alike = _alike(state, kind)
    return any(one.silent for one in alike) and not any(one.runs for one in alike)


def _alike(state: State, kind: str) -> list[Average]:
    """Return what is known of all steps of the model of *kind*."""
    model = kind.partition(" ")[2]
    return [one for one in state.spend.kinds if one.kind.partition(" ")[2] == model]


def cap_of(state: State, task: str) -> float:
    """Return what *task* may cost: what a person said of it, else the setting."""
    account = state.accounts.get(task)
    return account.cap if account and account.cap is not None else state.config.budget.task_usd


def spent_on(state: State, task: str) -> Spent:
    account = state.accounts.get(task)
    return account.spent if account else Spent()


def over(state: State, want: Want) -> Cap | None:
    """Return the cap that *want* would pass, were it begun, or None."""
    least = sum(_least(state, kind, want.guess) for kind in (want.kind, *want.later))
    left = state.config.budget.run_usd - state.spend.total.usd
    if is_closed(state) or least > left + _DUST:
        return Cap.RUN
    if want.task is not None and _first(state, want) > left_for(state, want.worker, want.task) + _DUST:
        return Cap.TASK
    return Cap.BUSY if least > room(state, want.worker) + _DUST else None


def _least(state: State, kind: str, guess: float) -> float:
    """Return what has to be there for a run of *kind*: the most that its like cost, or what seems likely."""
    known = worst(state, kind)
    return known if known is not None else max(guess, average(state, kind) or 0.0) if guess else 0.0


def _first(state: State, want: Want) -> float:
    """Return what a task has to have left for a run: what is usual. At its cap the run is ended anyway."""
    usual = average(state, want.kind)
    return usual if usual is not None else 0.0 if is_silent(state, want.kind) else want.guess


def room(state: State, worker: str) -> float:
    """Return what is left under the cap of all beside what others than *worker* have set aside."""
    others = sum(one.usd for one in state.spend.reserved if one.id != worker)
    return state.config.budget.run_usd - state.spend.total.usd - others


def left_for(state: State, worker: str, task: str | None) -> float:
    """Return what is left for *task* beside what others set aside for it; for none, what a new one has."""
    if task is None:
        return state.config.budget.task_usd
    others = sum(one.usd for one in state.spend.reserved if one.id != worker and one.task == task)
    return cap_of(state, task) - spent_on(state, task).usd - others


def most(state: State, want: Want) -> float:
    """Return what is set aside for *want*: the most that it may cost, with what follows in its turn."""
    known = [worst(state, kind) for kind in (want.kind, *want.later)]
    certain = sum(one for one in known if one is not None)
    if None not in known or not want.guess:
        return round(certain, CENTS)
    left = room(state, want.worker)
    rest = min(left, left_for(state, want.worker, want.task)) if want.is_metered else left
    return round(max(certain, rest, 0.0), CENTS)


def is_closed(state: State) -> bool:
    """Tell whether people were asked for more money and have not answered: another cap is an answer."""
    return state.spend.asked is not None and state.spend.asked == state.config.budget.run_usd


def awaits(state: State, task: str) -> bool:
    """Tell whether *task* was blocked for its cost and nobody said since that it may cost more."""
    account = state.accounts.get(task)
    return account is not None and account.asked is not None and account.asked == cap_of(state, task)


def reserved(state: State, want: Want, at: datetime) -> State:
    """Return the board with the money for *want* set aside; it replaces what its worker had set aside."""
    usual = average(state, want.kind)
    likely = usual if usual is not None else want.guess if want.is_metered else 0.0
    mine = Reservation(
        id=want.worker, task=want.task, kind=want.kind, usd=most(state, want), likely=likely, since=at
    )
    return _with(state, mine)


def _with(state: State, mine: Reservation) -> State:
    others = tuple(one for one in state.spend.reserved if one.id != mine.id)
    return state.but(spend=state.spend.but(reserved=(*others, mine)))


def is_within(state: State, worker: str, usd: float) -> bool:
    """Return whether a run of *worker* that has cost *usd* so far may go on as it is."""
    mine = _reserved_by(state, worker)
    return mine is None or (usd <= mine.usd and room(state, worker) >= usd)


def extended(state: State, worker: str, usd: float) -> tuple[State, str | None]:
    """Return the board with more set aside for a run that has cost *usd* so far, or why it has to end."""
    mine = _reserved_by(state, worker)
    if mine is None:
        return state, None
    left = room(state, worker)
    if left < -_DUST or (usd and usd >= left):
        cap = state.config.budget.run_usd
        return state, f"it has cost ${usd:.2f} so far, and of the ${cap:.2f} for everything no more is left"
    if mine.task is not None and usd and usd >= left_for(state, worker, mine.task):
        cap = cap_of(state, mine.task)
        return state, f"it has cost ${usd:.2f} so far, and of the ${cap:.2f} for {mine.task} no more is left"
    # Twice as much, so that a long run changes the board a few times and not at every word.
    more = round(min(max(2 * usd, mine.usd), max(left, 0.0)), CENTS)
    return (_with(state, mine.but(usd=more)) if usd > mine.usd else state), None


def _reserved_by(state: State, worker: str) -> Reservation | None:
    return next((one for one in state.spend.reserved if one.id == worker), None)


def unreserved(state: State, worker: str) -> State:
    """Return the board without what *worker* set aside."""
    others = tuple(one for one in state.spend.reserved if one.id != worker)
    if len(others) == len(state.spend.reserved):
        return state
    return state.but(spend=state.spend.but(reserved=others))


def settled(state: State, bill: Bill) -> State:
    """Return the board with a run paid for, and nothing set aside for its worker any more."""
    spend = unreserved(state, bill.worker).spend
    spend = spend.but(total=spend.total.plus(bill.usd, bill.provenance), kinds=_averaged(spend.kinds, bill))
    state = state.but(spend=spend)
    if bill.task is None or bill.task not in state.tasks:
        return state
    account = state.accounts.get(bill.task) or Account(id=bill.task)
    account = account.but(spent=account.spent.plus(bill.usd, bill.provenance))
    return state.but(accounts=with_record(state.accounts, account))


def _averaged(kinds: tuple[Average, ...], bill: Bill) -> tuple[Average, ...]:
    known = next((one for one in kinds if one.kind == bill.kind), Average(kind=bill.kind, runs=0, usd=0))
    if bill.provenance is Provenance.UNKNOWN:
        fresh = known.but(silent=known.silent + 1)
    else:
        usd = round(known.usd + bill.usd, CENTS)
        fresh = known.but(runs=known.runs + 1, usd=usd, most=max(known.most, bill.usd))
    return (*(one for one in kinds if one.kind != bill.kind), fresh)


def buried(state: State, living: Collection[str]) -> State:
    """Return the board with what runs of the dead probably cost counted as spent: they did some work."""
    for one in state.spend.reserved:
        if one.id not in living:
            mark = Provenance.ESTIMATED if one.likely else Provenance.UNKNOWN
            state = settled(state, Bill(one.id, one.task, one.kind, one.likely, mark))
    return state


def warning(state: State) -> str | None:
    """Return the sentence for people once most of the money is gone, or None where they were told."""
    cap, spent = state.config.budget.run_usd, state.spend.total.usd
    if spent < WARN_AT * cap or cap in {state.spend.warned, 0}:
        return None
    return f"${spent:.2f} of the ${cap:.2f} that the run may cost are spent; `{command(state)}` allows more"


def warned(state: State) -> State:
    return state.but(spend=state.spend.but(warned=state.config.budget.run_usd))


def asked(state: State) -> State:
    """Return the board with the question on it whether the run may cost more."""
    return state if is_closed(state) else state.but(spend=state.spend.but(asked=state.config.budget.run_usd))


def question(state: State) -> str:
    cap, spent = state.config.budget.run_usd, state.spend.total.usd
    return (
        f"the budget is reached: ${spent:.2f} of ${cap:.2f} are spent and the next run would pass it; "
        "how much may all of it cost?"
    )


def busy(state: State) -> str:
    """Return why a run waits for others: what is left is set aside for what they may cost."""
    who = ", ".join(one.id for one in state.spend.reserved if one.usd)
    left = state.config.budget.run_usd - state.spend.total.usd
    return f"the ${left:.2f} that are left of the budget are set aside for {who}, who will be through"


def command(state: State) -> str:
    """Return the command that allows enough more for work to go on."""
    return f"liza answer {BUDGET} {_more(state, state.config.budget.run_usd, state.spend.total.usd)}"


def _more(state: State, cap: float, spent: float) -> int:
    """Return half as much again as *cap*, or what is spent and the dearest run once more; whole dollars."""
    dearest = max([FIRST_GUESS, *(one.most for one in state.spend.kinds)])
    return int(max(cap * 1.5, spent + dearest)) + 1


def blocked(state: State, task: str) -> tuple[State, Block]:
    """Return the board with the account of *task* waiting for an answer, and the event that blocks it."""
    from liza.domain.events import Block  # noqa: PLC0415 - who only looks at the board needs no event

    cap, spent = cap_of(state, task), spent_on(state, task).usd
    account = (state.accounts.get(task) or Account(id=task)).but(asked=cap)
    block = Block(
        reason=f"it has cost ${spent:.2f} of the ${cap:.2f} that a task may, and the next run would pass it",
        questions=(f"How much may it cost in all? (`liza answer {task} {_more(state, cap, spent)}`)",),
        only_people=True,
    )
    return state.but(accounts=with_record(state.accounts, account)), block


def amount(text: str) -> float | None:
    """Return the USD that *text* names, or None where it is no amount."""
    match = _AMOUNT.fullmatch(text.strip())
    return float(match[1]) if match and float(match[1]) <= MOST else None


def allow(state: State, task: str, text: str) -> State:
    """Return the board on which *task* may cost what *text* says."""
    cap = _allowed(task, text, spent_on(state, task).usd)
    account = state.accounts[task].but(cap=cap, asked=None)
    return state.but(accounts=with_record(state.accounts, account))


def raise_budget(state: State, text: str) -> State:
    """Return the board on which the whole run may cost what *text* says."""
    cap = _allowed(BUDGET, text, state.spend.total.usd)
    budget = state.config.budget.but(run_usd=cap)
    return state.but(config=state.config.but(budget=budget), spend=state.spend.but(asked=None))


def _allowed(who: str, text: str, spent: float) -> float:
    cap = amount(text)
    if cap is None:
        raise UsageError(
            f"{text!r} is no amount; say what it may cost in all, in USD, such as `liza answer {who} 30`"
        )
    if cap <= spent:
        raise Refused(
            f"{who}: ${spent:.2f} are spent already, so ${cap:.2f} allows nothing; say more than that"
        )
    return cap
