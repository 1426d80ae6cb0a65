"""Whether a run may begin, given its provider's limits and the money, and what follows from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import did_nothing
from liza.domain import budget, providers
from liza.domain.budget import Bill, Cap
from liza.domain.model import WorkerStatus
from liza.domain.providers import ProviderRejection
from liza.domain.record import with_record
from liza.domain.spending import Provenance, ProviderState
from liza.system.run_control import MEANING, RunEnding

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.agents.protocol import Reply
    from liza.domain.budget import AdmissionRequest, RunRequest
    from liza.domain.model import State
    from liza.domain.spending import Usage


class Denial(NamedTuple):
    """Why a run may not begin."""

    why: str
    until: datetime | None = None
    cap: Cap | None = None


class EndedRun(NamedTuple):
    """A run that ended, as the board should know it."""

    run: AdmissionRequest
    reply: Reply


STATE_AFTER_ENDING: Final[dict[RunEnding, ProviderState]] = {
    RunEnding.RATE_LIMITED: ProviderState.LIMITED,
    RunEnding.QUOTA: ProviderState.EXHAUSTED,
    RunEnding.AUTH: ProviderState.REFUSED,
}
# After these nobody knows whether the provider would have taken the run.
UNTRIED: Final = frozenset({RunEnding.STOPPED, RunEnding.NOT_STARTED, RunEnding.KILLED})


def denial_of(state: State, run: AdmissionRequest, now: datetime) -> Denial | None:
    """Return why *run* may not begin now; None where it may."""
    for provider in run.providers:
        if gate := providers.provider_wait(state, provider, run.want.worker, now):
            return Denial(gate.why, gate.until)
    cap = budget.cap_exceeded_by(state, run.want)
    if cap is None:
        return None
    if cap is Cap.RUN:
        return Denial(budget.budget_question(state), cap=cap)
    if cap is Cap.BUSY:
        return Denial(budget.why_budget_is_busy(state), cap=cap)
    return Denial(f"{run.want.task} may not cost more", cap=cap)


def admit(state: State, run: AdmissionRequest, now: datetime) -> State:
    """Return the board with the cost of *run* reserved, and its provider probed if that is due."""
    state = budget.reserve(state, run.want, now)
    for provider in run.providers:
        state = providers.with_probe(state, provider, run.want.worker)
    return _with_status(state, run.want.worker, WorkerStatus.RUNNING, now)


def park(state: State, run: AdmissionRequest, shut: Denial, now: datetime) -> State:
    """Return the board with the worker of *run* waiting, and the question on it if it is about money."""
    if shut.cap is Cap.RUN:
        state = budget.with_budget_question(state)
    return _with_status(state, run.want.worker, WorkerStatus.PARKED, now)


def _with_status(state: State, worker: str, status: WorkerStatus, now: datetime) -> State:
    agent = state.agents.get(worker)
    if agent is None or agent.status is status:
        return state
    return state.replace(agents=with_record(state.agents, agent.replace(status=status, since=now)))


def settle_run(state: State, end: EndedRun, *, at: datetime, chance: float) -> State:
    """Return the board with a run settled and its provider's state updated; *chance* is between 0 and 1."""
    reply, run = end.reply, end.run
    if did_nothing(reply):
        state = budget.without_reservation(state, run.want.worker)
    else:
        state = budget.settle_run(state, _bill(state, run.want, reply.usage))
    worse = STATE_AFTER_ENDING.get(reply.ending)
    if worse is not None:
        how = ProviderRejection(worse, reply.why or MEANING[reply.ending], reply.reset)
        return providers.with_rejection(state, run.provider, run.want.worker, how, at=at, chance=chance)
    if reply.ending in UNTRIED:
        return providers.without_probes_of(state, {run.want.worker})
    return providers.with_success(state, run.provider, run.want.worker, at=at)


def _bill(state: State, want: RunRequest, usage: Usage) -> Bill:
    """Return what a run cost; one that is silent about it where its like was not counts as they do."""
    if usage.usd is not None:
        return Bill(want.worker, want.task, want.kind, usage.usd, usage.provenance)
    if not want.guess:  # a recording costs what it says
        return Bill(want.worker, want.task, want.kind, 0.0, Provenance.REPORTED)
    usual = budget.average_cost(state, want.kind)
    mark = Provenance.UNKNOWN if usual is None else Provenance.ESTIMATED
    return Bill(want.worker, want.task, want.kind, usual or 0.0, mark)


def release_unused(state: State, worker: str) -> State:
    """Return the board without the reservations and probes that *worker* did not use."""
    return providers.without_probes_of(budget.without_reservation(state, worker), {worker})


def settle_reservations_of(state: State, gone: Collection[str]) -> State:
    """Return the board with the reservations of the dead workers *gone* counted as spent."""
    held = {one.id for one in state.spend.reserved} | {one.probe or "" for one in state.providers.values()}
    return settle_reservations_except(state, held - set(gone))


def settle_reservations_except(state: State, living: Collection[str]) -> State:
    """Return the board with the reservations of all workers not in *living* counted as spent, and their
    probes given up.
    """
    state = budget.settle_reservations_of_dead(state, living)
    gone = {one.probe for one in state.providers.values() if one.probe and one.probe not in living}
    return providers.without_probes_of(state, gone)
