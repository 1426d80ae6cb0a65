"""What a run may spend and whom it may call: money is reserved, limited providers are left alone.

Admission and settlement happen inside the update, so that several workers together cannot pass a cap. The
reservation is the highest cost of earlier runs of its kind; without any, all that is left for its task. A
metered run is ended when it reaches what is left. An unmetered run can pass a cap once: until its cost is
known, nothing else starts beside it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from liza.domain.model import (
    USD_DIGITS,
    CostStats,
    CostTotals,
    Provenance,
    Provider,
    ProviderState,
    Reservation,
    TaskAccount,
)
from liza.domain.record import with_record, with_records
from liza.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.changes import Change
    from liza.domain.config import AgentChoice
    from liza.domain.lifecycle import Block
    from liza.domain.model import Actor, State


BUDGET: Final = "budget"  # what `liza answer` calls the cap of the whole board
PLAN_NAMES: Final = ("plan", "goal", "planner")  # what it calls the planner's own questions
# No new task is called so: a person who answers the budget, or asks about the run, would get the task.
RESERVED_IDS: Final = frozenset({BUDGET, *PLAN_NAMES, "run"})
RESERVED: Final = "`liza answer` and `liza explain` take {!r} for something else; choose another"
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
    from liza.domain.lifecycle import Block  # noqa: PLC0415 - who only looks at the board needs no event

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


# Rate limits of providers: until when no worker calls a limited provider, and which worker probes it.
#
# A limit is no failure of a task. After it one worker, the probe, tries first while the others wait: a limit
# that still holds costs one request and not one for each worker.

RESUME: Final = "liza resume"
# In these another agent is better than to wait; too many requests a minute are over in a minute.
FALLBACK_STATES: Final = frozenset({ProviderState.EXHAUSTED, ProviderState.REFUSED})


class Backoff(NamedTuple):
    """Exponential back-off for a provider that names no reset time."""

    first: timedelta
    most: timedelta
    jitter: timedelta  # added by chance, so that many users of one provider do not come back at once


BACKOFF: Final = {
    ProviderState.LIMITED: Backoff(timedelta(minutes=1), timedelta(minutes=16), timedelta(seconds=1)),
    ProviderState.EXHAUSTED: Backoff(timedelta(minutes=15), timedelta(hours=4), timedelta(seconds=60)),
}
# The longest window that is sold is a week; a later reset is a mistake.
LONGEST_BACKOFF: Final = timedelta(days=8)
# A reset that has passed already is not tried at once, or it spins.
SHORTEST_BACKOFF: Final = timedelta(seconds=1)
STAGGER: Final = 3.0  # seconds within which the others start once the probe went well
_BY_SEVERITY: Final = (
    ProviderState.OPEN,
    ProviderState.LIMITED,
    ProviderState.EXHAUSTED,
    ProviderState.REFUSED,
)


class ProviderRejection(NamedTuple):
    """How a provider rejected a run."""

    state: ProviderState
    why: str
    reset: datetime | None = None


class ProviderWait(NamedTuple):
    """Why nothing is sent to a provider now, and until when; None where that is not known."""

    why: str
    until: datetime | None = None


def provider_wait(state: State, provider: str, worker: str, now: datetime) -> ProviderWait | None:
    """Return what keeps *worker* from asking *provider*, or None where it may."""
    known = state.providers.get(provider)
    if known is None or (known.state is ProviderState.OPEN and known.probe == worker):
        return None
    if known.state is ProviderState.OPEN:
        free = known.since + timedelta(seconds=_stagger_seconds(worker))
        return (
            ProviderWait(f"{provider} takes requests again, one after the other", free)
            if now < free
            else None
        )
    if known.state is ProviderState.REFUSED:
        return ProviderWait(provider_sentence(known))
    if known.until is not None and now < known.until:
        return ProviderWait(provider_sentence(known), known.until)
    if known.probe in (None, worker):
        return None
    return ProviderWait(f"{known.probe} tries whether {provider} takes requests again")


def _stagger_seconds(worker: str) -> float:
    return crc32(worker.encode()) % 1000 / 1000 * STAGGER


def provider_sentence(provider: Provider) -> str:
    """Return the state of *provider* as a sentence with the remedy."""
    if provider.state is ProviderState.REFUSED:
        return f"{provider.id} refuses: {provider.why}; mend that, then `{RESUME}`"
    until = f" until {provider.until:%Y-%m-%dT%H:%M:%SZ}" if provider.until else ""
    return f"{provider.id} is {provider.state}{until}: {provider.why}; work goes on by itself after that"


def provider_sentence_with_fallback(state: State, provider: Provider) -> str:
    """Return the state of *provider* as a sentence, with the fallback agent in use."""
    other, shut = state.config.agents.fallback, {one.id for one in closed_providers(state)}
    if other is None or provider.state not in FALLBACK_STATES:
        return provider_sentence(provider)
    name = other.backend or (other.command[0] if other.command else other.model) or "the fallback"
    of_its_own = {other.provider, other.backend, (other.model or "").partition("/")[0]}
    stands = "" if shut & of_its_own else f"; {name} stands in meanwhile (agents.fallback)"
    return f"{provider_sentence(provider)}{stands}"


def should_use_fallback(state: State, provider: str, worker: str, now: datetime) -> bool:
    """Return whether *worker* should ask another provider: this one is shut for longer than a moment."""
    known = state.providers.get(provider)
    return (
        known is not None
        and known.state in FALLBACK_STATES
        and provider_wait(state, provider, worker, now) is not None
    )


def with_probe(state: State, provider: str, worker: str) -> State:
    """Return the board with *worker* as the probe of *provider*, where it is limited."""
    known = state.providers.get(provider)
    if known is None or known.state is ProviderState.OPEN or known.probe == worker:
        return state
    return state.replace(providers=with_record(state.providers, known.replace(probe=worker)))


def with_rejection(
    state: State, provider: str, worker: str, how: ProviderRejection, *, at: datetime, chance: float
) -> State:
    """Return the board after *provider* turned a run of *worker* down; *chance* is between 0 and 1."""
    known = state.providers.get(provider)
    same = known if known and known.state is not ProviderState.OPEN else None
    worst = max(how.state, same.state if same else how.state, key=_BY_SEVERITY.index)
    # Whoever was on the way when the limit came says nothing new; only the probe's failure counts.
    times = (same.times + (same.probe == worker)) if same else 0
    until = None
    if worst is not ProviderState.REFUSED:
        until = _retry_time(worst, how, times, at, chance)
        until = max(until, same.until) if same and same.until else until
    fresh = Provider(
        id=provider,
        state=worst,
        since=same.since if same and same.state is worst else at,
        until=until,
        why=how.why if not same or how.state is worst else same.why,
        probe=same.probe if same and same.probe != worker else None,
        times=times,
    )
    return state.replace(providers=with_record(state.providers, fresh))


def _retry_time(
    state: ProviderState, how: ProviderRejection, times: int, at: datetime, chance: float
) -> datetime:
    patience = BACKOFF[state]
    wait = min(patience.first * (1 << min(times, 10)), patience.most)
    if how.reset is not None and how.state is state:
        wait = min(max(how.reset - at, SHORTEST_BACKOFF), LONGEST_BACKOFF)
    jitter: timedelta = min(patience.jitter, wait / 5) * chance
    return at + wait + jitter


def with_success(state: State, provider: str, worker: str, *, at: datetime) -> State:
    """Return the board after *provider* served *worker*; success of the probe opens it for all."""
    known = state.providers.get(provider)
    if known is None or known.probe != worker or known.state is ProviderState.OPEN:
        return state
    # The probe stays named: it goes on with its turn, while the others come one after the other.
    opened = known.replace(state=ProviderState.OPEN, since=at, until=None, times=0)
    return state.replace(providers=with_record(state.providers, opened))


def without_probes_of(state: State, gone: Collection[str]) -> State:
    """Return the board without probes of the dead workers *gone*."""
    freed = {one.id: one.replace(probe=None) for one in closed_providers(state) if one.probe in gone}
    return state.replace(providers=with_records(state.providers, freed)) if freed else state


def provider_news(before: State, after: State, provider: str) -> str | None:
    """Return the sentence for people where the state of *provider* got worse; once per state."""
    old, new = before.providers.get(provider), after.providers.get(provider)
    if new is None or new.state is ProviderState.OPEN or (old and old.state is new.state):
        return None
    return provider_sentence_with_fallback(after, new)


def closed_providers(state: State) -> tuple[Provider, ...]:
    return tuple(one for one in state.providers.values() if one.state is not ProviderState.OPEN)


def refusing_providers(state: State) -> tuple[Provider, ...]:
    return tuple(one for one in state.providers.values() if one.state is ProviderState.REFUSED)


def retry_providers(by: Actor, at: datetime, *, refused_only: bool = False) -> Change:
    """Return the change with which a person lets providers be tried again, now."""
    from liza.domain.changes import Change  # noqa: PLC0415 - who only looks at the board needs no event

    def make(state: State) -> State:
        shut = {
            one.id: one.replace(state=ProviderState.LIMITED, until=at, since=at, probe=None)
            for one in (refusing_providers(state) if refused_only else closed_providers(state))
        }
        return state.replace(providers=with_records(state.providers, shut)) if shut else state

    return Change(by.id, "try the providers again", make)
