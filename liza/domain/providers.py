"""Rate limits of providers: until when no worker calls a limited provider, and which worker probes it.

A limit is no failure of a task. After it one worker, the probe, tries first while the others wait: a limit
that still holds costs one request and not one for each worker.
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
