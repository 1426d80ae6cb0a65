"""What a provider's limit means for everybody who uses it: until when nobody asks, and who tries first.

A limit is nobody's failure. After it one worker tries, the probe, and the others wait for what comes of it:
a limit that still holds costs one request, not one of each worker.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from liza.domain.record import with_record, with_records
from liza.domain.spending import Provider, ProviderState

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from liza.domain.changes import Change
    from liza.domain.model import Actor, State

RESUME: Final = "liza resume"
# In these another agent is better than to wait; too many requests a minute are over in a minute.
WORTH_ANOTHER: Final = frozenset({ProviderState.EXHAUSTED, ProviderState.REFUSED})


class Patience(NamedTuple):
    """How long to leave a provider alone that does not say until when: doubled each time, up to *most*."""

    first: timedelta
    most: timedelta
    jitter: timedelta  # added by chance, so that many users of one provider do not come back at once


PATIENCE: Final = {
    ProviderState.LIMITED: Patience(timedelta(minutes=1), timedelta(minutes=16), timedelta(seconds=1)),
    ProviderState.EXHAUSTED: Patience(timedelta(minutes=15), timedelta(hours=4), timedelta(seconds=60)),
}
LONGEST: Final = timedelta(days=8)  # the longest window that is sold is a week; a later reset is a mistake
SOONEST: Final = timedelta(seconds=1)  # a reset that has passed already is not tried at once, or it spins
STAGGER: Final = 3.0  # seconds within which the others start once the probe went well
_WORSE: Final = (
    ProviderState.OPEN,
    ProviderState.LIMITED,
    ProviderState.EXHAUSTED,
    ProviderState.REFUSED,
)


class Turned(NamedTuple):
    """How a provider turned a run down."""

    state: ProviderState
    why: str
    reset: datetime | None = None


class Gate(NamedTuple):
    """Why nothing is sent to a provider now, and until when; None where that is not known."""

    why: str
    until: datetime | None = None


def gate(state: State, provider: str, worker: str, now: datetime) -> Gate | None:
    """Return what keeps *worker* from asking *provider*, or None where it may."""
    known = state.providers.get(provider)
    if known is None or (known.state is ProviderState.OPEN and known.probe == worker):
        return None
    if known.state is ProviderState.OPEN:
        free = known.since + timedelta(seconds=_turn_of(worker))
        return Gate(f"{provider} takes requests again, one after the other", free) if now < free else None
    if known.state is ProviderState.REFUSED:
        return Gate(told(known))
    if known.until is not None and now < known.until:
        return Gate(told(known), known.until)
    if known.probe in (None, worker):
        return None
    return Gate(f"{known.probe} tries whether {provider} takes requests again")


def _turn_of(worker: str) -> float:
    return crc32(worker.encode()) % 1000 / 1000 * STAGGER


def told(provider: Provider) -> str:
    """Return what is the matter with *provider*, as a sentence that ends with what helps."""
    if provider.state is ProviderState.REFUSED:
        return f"{provider.id} refuses: {provider.why}; mend that, then `{RESUME}`"
    until = f" until {provider.until:%Y-%m-%dT%H:%M:%SZ}" if provider.until else ""
    return f"{provider.id} is {provider.state}{until}: {provider.why}; work goes on by itself after that"


def told_with_stand_in(state: State, provider: Provider) -> str:
    """Return what is the matter with *provider*, and who stands in for those who use it."""
    other, shut = state.config.agents.fallback, {one.id for one in closed(state)}
    if other is None or provider.state not in WORTH_ANOTHER:
        return told(provider)
    name = other.backend or (other.command[0] if other.command else other.model) or "the fallback"
    of_its_own = {other.provider, other.backend, (other.model or "").partition("/")[0]}
    stands = "" if shut & of_its_own else f"; {name} stands in meanwhile (agents.fallback)"
    return f"{told(provider)}{stands}"


def is_worth_another(state: State, provider: str, worker: str, now: datetime) -> bool:
    """Return whether *worker* should ask another provider: this one is shut for longer than a moment."""
    known = state.providers.get(provider)
    return (
        known is not None and known.state in WORTH_ANOTHER and gate(state, provider, worker, now) is not None
    )


def probing(state: State, provider: str, worker: str) -> State:
    """Return the board with *worker* as the one that tries, where *provider* is to be tried."""
    known = state.providers.get(provider)
    if known is None or known.state is ProviderState.OPEN or known.probe == worker:
        return state
    return state.but(providers=with_record(state.providers, known.but(probe=worker)))


def turned_down(
    state: State, provider: str, worker: str, how: Turned, *, at: datetime, chance: float
) -> State:
    """Return the board after *provider* turned a run of *worker* down; *chance* is between 0 and 1."""
    known = state.providers.get(provider)
    same = known if known and known.state is not ProviderState.OPEN else None
    worst = max(how.state, same.state if same else how.state, key=_WORSE.index)
    # Whoever was on the way when the limit came says nothing new; only the probe's failure counts.
    times = (same.times + (same.probe == worker)) if same else 0
    until = None
    if worst is not ProviderState.REFUSED:
        until = _until(worst, how, times, at, chance)
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
    return state.but(providers=with_record(state.providers, fresh))


def _until(state: ProviderState, how: Turned, times: int, at: datetime, chance: float) -> datetime:
    patience = PATIENCE[state]
    wait = min(patience.first * (1 << min(times, 10)), patience.most)
    if how.reset is not None and how.state is state:
        wait = min(max(how.reset - at, SOONEST), LONGEST)
    jitter: timedelta = min(patience.jitter, wait / 5) * chance
    return at + wait + jitter


def answered(state: State, provider: str, worker: str, *, at: datetime) -> State:
    """Return the board after *provider* took a run of *worker*: what the probe got, all may have."""
    known = state.providers.get(provider)
    if known is None or known.probe != worker or known.state is ProviderState.OPEN:
        return state
    # The probe stays named: it goes on with its turn, while the others come one after the other.
    opened = known.but(state=ProviderState.OPEN, since=at, until=None, times=0)
    return state.but(providers=with_record(state.providers, opened))


def unprobed(state: State, gone: Collection[str]) -> State:
    """Return the board without probes of the workers in *gone*, who will not tell what came of theirs."""
    freed = {one.id: one.but(probe=None) for one in closed(state) if one.probe in gone}
    return state.but(providers=with_records(state.providers, freed)) if freed else state


def news(before: State, after: State, provider: str) -> str | None:
    """Return the sentence for people where *provider* has changed for the worse; once an edge."""
    old, new = before.providers.get(provider), after.providers.get(provider)
    if new is None or new.state is ProviderState.OPEN or (old and old.state is new.state):
        return None
    return told_with_stand_in(after, new)


def closed(state: State) -> tuple[Provider, ...]:
    return tuple(one for one in state.providers.values() if one.state is not ProviderState.OPEN)


def refusing(state: State) -> tuple[Provider, ...]:
    return tuple(one for one in state.providers.values() if one.state is ProviderState.REFUSED)


def retried(by: Actor, at: datetime, *, refused_only: bool = False) -> Change:
    """Return the change with which a person lets providers be tried again, now."""
    from liza.domain.changes import Change  # noqa: PLC0415 - who only looks at the board needs no event

    def make(state: State) -> State:
        shut = {
            one.id: one.but(state=ProviderState.LIMITED, until=at, since=at, probe=None)
            for one in (refusing(state) if refused_only else closed(state))
        }
        return state.but(providers=with_records(state.providers, shut)) if shut else state

    return Change(by.id, "try the providers again", make)
