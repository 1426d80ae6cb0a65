"""Whether a run may begin, given its provider's limits and the money, and what follows from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import did_nothing
from liza.domain import budget, providers
from liza.domain.budget import Bill, Cap
from liza.domain.model import AgentStatus
from liza.domain.providers import Turned
from liza.domain.record import with_record
from liza.domain.spending import Provenance, ProviderState
from liza.system.run_control import MEANING, Ending

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.agents.protocol import Reply
    from liza.domain.budget import Run, Want
    from liza.domain.model import State
    from liza.domain.spending import Usage


class Closed(NamedTuple):
    """Why a run may not begin."""

    why: str
    until: datetime | None = None
    cap: Cap | None = None


class Ended(NamedTuple):
    """A run that ended, as the board should know it."""

    run: Run
    reply: Reply


TURNED_DOWN: Final[dict[Ending, ProviderState]] = {
    Ending.RATE_LIMITED: ProviderState.LIMITED,
    Ending.QUOTA: ProviderState.EXHAUSTED,
    Ending.AUTH: ProviderState.REFUSED,
}
# After these nobody knows whether the provider would have taken the run.
UNTRIED: Final = frozenset({Ending.STOPPED, Ending.NOT_STARTED, Ending.KILLED})


def closed(state: State, run: Run, now: datetime) -> Closed | None:
    """Return why *run* may not begin now, or None where it may."""
    for provider in run.providers:
        if gate := providers.gate(state, provider, run.want.worker, now):
            return Closed(gate.why, gate.until)
    cap = budget.over(state, run.want)
    if cap is None:
        return None
    if cap is Cap.RUN:
        return Closed(budget.question(state), cap=cap)
    if cap is Cap.BUSY:
        return Closed(budget.busy(state), cap=cap)
    return Closed(f"{run.want.task} may not cost more", cap=cap)


def admitted(state: State, run: Run, now: datetime) -> State:
    """Return the board with *run* begun: its money is set aside, and it probes its provider if it is due."""
    state = budget.reserved(state, run.want, now)
    for provider in run.providers:
        state = providers.probing(state, provider, run.want.worker)
    return _shown(state, run.want.worker, AgentStatus.RUNNING, now)


def parked(state: State, run: Run, shut: Closed, now: datetime) -> State:
    """Return the board with the worker of *run* waiting, and the question on it if it is about money."""
    if shut.cap is Cap.RUN:
        state = budget.asked(state)
    return _shown(state, run.want.worker, AgentStatus.PARKED, now)


def _shown(state: State, worker: str, status: AgentStatus, now: datetime) -> State:
    agent = state.agents.get(worker)
    if agent is None or agent.status is status:
        return state
    return state.but(agents=with_record(state.agents, agent.but(status=status, since=now)))


def ended(state: State, end: Ended, *, at: datetime, chance: float) -> State:
    """Return the board with a run paid for and its provider's word heeded; *chance* is between 0 and 1."""
    reply, run = end.reply, end.run
    if did_nothing(reply):
        state = budget.unreserved(state, run.want.worker)
    else:
        state = budget.settled(state, _bill(state, run.want, reply.usage))
    worse = TURNED_DOWN.get(reply.ending)
    if worse is not None:
        how = Turned(worse, reply.why or MEANING[reply.ending], reply.reset)
        return providers.turned_down(state, run.provider, run.want.worker, how, at=at, chance=chance)
    if reply.ending in UNTRIED:
        return providers.unprobed(state, {run.want.worker})
    return providers.answered(state, run.provider, run.want.worker, at=at)


def _bill(state: State, want: Want, usage: Usage) -> Bill:
    """Return what a run cost; one that is silent about it where its like was not counts as they do."""
    if usage.usd is not None:
        return Bill(want.worker, want.task, want.kind, usage.usd, usage.provenance)
    if not want.guess:  # a recording costs what it says
        return Bill(want.worker, want.task, want.kind, 0.0, Provenance.REPORTED)
    usual = budget.average(state, want.kind)
    mark = Provenance.UNKNOWN if usual is None else Provenance.ESTIMATED
    return Bill(want.worker, want.task, want.kind, usual or 0.0, mark)


def left(state: State, worker: str) -> State:
    """Return the board without what *worker* set aside or was to try, and did not come to."""
    return providers.unprobed(budget.unreserved(state, worker), {worker})


def mourned(state: State, gone: Collection[str]) -> State:
    """Return the board with what the workers in *gone* set aside counted as spent."""
    held = {one.id for one in state.spend.reserved} | {one.probe or "" for one in state.providers.values()}
    return buried(state, held - set(gone))


def buried(state: State, living: Collection[str]) -> State:
    """Return the board with what dead workers set aside counted as spent, and their probes given up."""
    state = budget.buried(state, living)
    gone = {one.probe for one in state.providers.values() if one.probe and one.probe not in living}
    return providers.unprobed(state, gone)
