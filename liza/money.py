"""What may be spent: reserved before a run, settled after it, and stopped before a cap is passed.

All of it happens in the update that admits or records a run, so that workers together cannot pass a cap that
none of them would pass alone. What is going on when a cap is reached comes to its end.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.errors import Refused, UsageError
from liza.record import with_record
from liza.spending import CENTS, Account, Average, Provenance, Reservation, Spent

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.changes import Change
    from liza.events import Block
    from liza.model import Actor, State

BUDGET: Final = "budget"  # what `liza answer` calls the cap of the whole board
WARN_AT: Final = 0.8  # of a cap; then people are told once
FIRST_GUESS: Final = (
    0.25  # USD for a run of which nothing is known; a session of a coding agent is rarely cheaper
)
MOST: Final = 1_000_000.0  # USD; more than that is a typing mistake
_AMOUNT: Final = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:\$|usd|dollars?)?", re.IGNORECASE)
_DUST: Final = 1e-9  # what sums of floats are off by


class Want(NamedTuple):
    """A run that a worker wants to begin."""

    worker: str
    task: str | None
    kind: str
    guess: float = FIRST_GUESS  # where nothing is known


class Bill(NamedTuple):
    """What a run cost."""

    worker: str
    task: str | None
    kind: str
    usd: float
    provenance: Provenance


class Cap(Enum):
    RUN = auto()
    TASK = auto()


def kind_of(step: str, model: str) -> str:
    """Return what runs are averaged by: what was asked of which model."""
    return f"{step} {model}"


def estimate(state: State, kind: str, guess: float = FIRST_GUESS) -> float:
    """Return what a run of *kind* will cost: as its like did, or other steps of its model, or *guess*."""
    model = kind.partition(" ")[2]
    same = [one for one in state.spend.kinds if one.kind == kind]
    alike = [one for one in state.spend.kinds if one.kind.partition(" ")[2] == model]
    for known in (same, alike):
        runs = sum(one.runs for one in known)
        if runs:
            return round(sum(one.usd for one in known) / runs, CENTS)
    return guess


def cap_of(state: State, task: str) -> float:
    """Return what *task* may cost: what a person said of it, else the setting."""
    account = state.accounts.get(task)
    return account.cap if account and account.cap is not None else state.config.budget.task_usd


def spent_on(state: State, task: str) -> Spent:
    account = state.accounts.get(task)
    return account.spent if account else Spent()


def over(state: State, want: Want) -> Cap | None:
    """Return the cap that *want* would pass, were it reserved, or None."""
    usd = estimate(state, want.kind, want.guess)
    others = [one for one in state.spend.reserved if one.id != want.worker]
    budget = state.config.budget.run_usd
    if is_closed(state) or state.spend.total.usd + _sum(others) + usd > budget + _DUST:
        return Cap.RUN
    if want.task is not None:
        mine = _sum([one for one in others if one.task == want.task])
        if spent_on(state, want.task).usd + mine + usd > cap_of(state, want.task) + _DUST:
            return Cap.TASK
    return None


def _sum(reservations: list[Reservation]) -> float:
    return sum(one.usd for one in reservations)


def is_closed(state: State) -> bool:
    """Tell whether people were asked for more money and have not answered: another cap is an answer."""
    return state.spend.asked is not None and state.spend.asked == state.config.budget.run_usd


def awaits(state: State, task: str) -> bool:
    """Tell whether *task* was blocked for its cost and nobody said since that it may cost more."""
    account = state.accounts.get(task)
    return account is not None and account.asked is not None and account.asked == cap_of(state, task)


def reserved(state: State, want: Want, at: datetime) -> State:
    """Return the board with the money for *want* set aside; it replaces what its worker had set aside."""
    usd = estimate(state, want.kind, want.guess)
    mine = Reservation(id=want.worker, task=want.task, kind=want.kind, usd=usd, since=at)
    others = tuple(one for one in state.spend.reserved if one.id != want.worker)
    return state.but(spend=state.spend.but(reserved=(*others, mine)))


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
    if bill.provenance is Provenance.UNKNOWN:
        return kinds
    known = next((one for one in kinds if one.kind == bill.kind), Average(kind=bill.kind, runs=0, usd=0))
    fresh = known.but(runs=known.runs + 1, usd=round(known.usd + bill.usd, CENTS))
    return (*(one for one in kinds if one.kind != bill.kind), fresh)


def buried(state: State, living: Collection[str]) -> State:
    """Return the board with what the dead had set aside counted as spent: their agents did some work."""
    for one in state.spend.reserved:
        if one.id not in living:
            state = settled(state, Bill(one.id, one.task, one.kind, one.usd, Provenance.ESTIMATED))
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


def command(state: State) -> str:
    """Return the command that allows more: half as much again, rounded up."""
    return f"liza answer {BUDGET} {_more(state.config.budget.run_usd)}"


def _more(cap: float) -> int:
    return int(cap * 1.5) + 1


def blocked(state: State, task: str) -> tuple[State, Block]:
    """Return the board with the account of *task* waiting for an answer, and the event that blocks it."""
    from liza.events import Block  # noqa: PLC0415 - who only looks at the board needs no event

    cap, spent = cap_of(state, task), spent_on(state, task).usd
    account = (state.accounts.get(task) or Account(id=task)).but(asked=cap)
    block = Block(
        reason=f"it has cost ${spent:.2f} of the ${cap:.2f} that a task may, and the next run would pass it",
        questions=(f"How much may it cost in all? (`liza answer {task} {_more(cap)}`)",),
        only_people=True,
    )
    return state.but(accounts=with_record(state.accounts, account)), block


def amount(text: str) -> float | None:
    """Return the USD that *text* names, or None where it is no amount."""
    match = _AMOUNT.fullmatch(text.strip())
    return float(match[1]) if match and float(match[1]) <= MOST else None


def reply(who: str, text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers what *who*, a task or the budget, asks."""
    from liza.changes import Change, answer  # noqa: PLC0415 - as above

    def make(state: State) -> State:
        if who == BUDGET and state.status_of(who) is None:
            return _raised(state, text)
        if not awaits(state, who):
            return answer(who, text, by=by, at=at)(state)
        cap = _allowed(who, text, spent_on(state, who).usd)
        account = state.accounts[who].but(cap=cap, asked=None)
        state = state.but(accounts=with_record(state.accounts, account))
        return answer(who, text, by=by, at=at)(state)

    return Change(by.id, f"answer {who}", make)


def _raised(state: State, text: str) -> State:
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
