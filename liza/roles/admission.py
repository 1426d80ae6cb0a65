"""Whether a run may begin, given its provider's limits and the money, and what follows from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza import limits, money
from liza.agents.protocol import MEANING, Ending, did_nothing
from liza.limits import Turned
from liza.model import AgentStatus
from liza.money import Bill, Cap
from liza.record import with_record
from liza.spending import Provenance, ProviderState

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.agents.protocol import Reply
    from liza.config import AgentChoice
    from liza.model import State
    from liza.money import Want
    from liza.spending import Usage


class Run(NamedTuple):
    """A run that is wanted. *providers* are all that the turn will need: half a turn is paid for nothing."""

    want: Want
    provider: str
    providers: tuple[str, ...]
    choice: AgentChoice | None = None  # who is to run


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
        if gate := limits.gate(state, provider, run.want.worker, now):
            return Closed(gate.why, gate.until)
    cap = money.over(state, run.want)
    if cap is None:
        return None
    if cap is Cap.RUN:
        return Closed(money.question(state), cap=cap)
    if cap is Cap.BUSY:
        return Closed(money.busy(state), cap=cap)
    return Closed(f"{run.want.task} may not cost more", cap=cap)


def admitted(state: State, run: Run, now: datetime) -> State:
    """Return the board with *run* begun: its money is set aside, and it probes its provider if it is due."""
    state = money.reserved(state, run.want, now)
    for provider in run.providers:
        state = limits.probing(state, provider, run.want.worker)
    return _shown(state, run.want.worker, AgentStatus.RUNNING, now)


def parked(state: State, run: Run, shut: Closed, now: datetime) -> State:
    """Return the board with the worker of *run* waiting, and the question on it if it is about money."""
    if shut.cap is Cap.RUN:
        state = money.asked(state)
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
        state = money.unreserved(state, run.want.worker)
    else:
        state = money.settled(state, _bill(state, run.want, reply.usage))
    worse = TURNED_DOWN.get(reply.ending)
    if worse is not None:
        how = Turned(worse, reply.why or MEANING[reply.ending], reply.reset)
        return limits.turned_down(state, run.provider, run.want.worker, how, at=at, chance=chance)
    if reply.ending in UNTRIED:
        return limits.unprobed(state, {run.want.worker})
    return limits.answered(state, run.provider, run.want.worker, at=at)


def _bill(state: State, want: Want, usage: Usage) -> Bill:
    """Return what a run cost; one that is silent about it where its like was not counts as they do."""
    if usage.usd is not None:
        return Bill(want.worker, want.task, want.kind, usage.usd, usage.provenance)
    if not want.guess:  # a recording costs what it says
        return Bill(want.worker, want.task, want.kind, 0.0, Provenance.REPORTED)
    usual = money.average(state, want.kind)
    mark = Provenance.UNKNOWN if usual is None else Provenance.ESTIMATED
    return Bill(want.worker, want.task, want.kind, usual or 0.0, mark)


def left(state: State, worker: str) -> State:
    """Return the board without what *worker* set aside or was to try, and did not come to."""
    return limits.unprobed(money.unreserved(state, worker), {worker})


def mourned(state: State, gone: Collection[str]) -> State:
    """Return the board with what the workers in *gone* set aside counted as spent."""
    held = {one.id for one in state.spend.reserved} | {one.probe or "" for one in state.providers.values()}
    return buried(state, held - set(gone))


def buried(state: State, living: Collection[str]) -> State:
    """Return the board with what dead workers set aside counted as spent, and their probes given up."""
    state = money.buried(state, living)
    gone = {one.probe for one in state.providers.values() if one.probe and one.probe not in living}
    return limits.unprobed(state, gone)
