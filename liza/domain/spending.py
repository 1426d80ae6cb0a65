"""What runs cost, and which providers want to be left alone, as the board keeps it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

from liza.domain.config import Count, Usd
from liza.domain.record import Id, NonEmptyStr, Record, Time, default_record

USD_DIGITS: Final = 6  # digits behind the point: sums of fractions of a cent stay readable


class Provenance(StrEnum):
    """Where the numbers of a usage come from."""

    REPORTED = "reported"
    PRICED = "priced"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class Usage(Record):
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cached: Count | None = None  # of those that went in, what the provider had read before
    usd: Usd | None = None
    model: NonEmptyStr | None = None
    provenance: Provenance = Provenance.UNKNOWN


class ReportedUsage(Record):
    """What an agent says of its own run: the `usage` beside its answer."""

    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cached: Count | None = None
    usd: Usd | None = None
    model: NonEmptyStr | None = None


class CostTotals(Record):
    """What runs cost in USD, by where the numbers come from; of *unreported* runs nobody knows it."""

    runs: Count = 0
    reported: Usd = 0
    priced: Usd = 0
    estimated: Usd = 0
    unreported: Count = 0

    @property
    def usd(self) -> float:
        return round(self.reported + self.priced + self.estimated, USD_DIGITS)

    def plus(self, usd: float, provenance: Provenance) -> Self:
        """Return the sum with one more run; what nobody knows counts as nothing."""
        more = self.replace(runs=self.runs + 1)
        if provenance is Provenance.UNKNOWN:
            return more.replace(unreported=self.unreported + 1)
        return more.replace(**{provenance.value: round(getattr(self, provenance) + usd, USD_DIGITS)})


class Reservation(Record):
    """The most that a run which is going on may cost; its id is its worker's, which runs one at a time.

    *likely* is what counts as spent where nobody learns what it came to.
    """

    id: Id
    task: Id | None = None
    kind: NonEmptyStr
    usd: Usd
    likely: Usd = 0
    since: Time


class CostStats(Record):
    """What runs of one kind (a step by a model) cost so far: in all, and at most.

    *silent* are further runs, which did not report it.
    """

    kind: NonEmptyStr
    runs: Count
    usd: Usd
    most: Usd = 0
    silent: Count = 0


class Spend(Record):
    """The money of the whole board. *warned* and *asked* name the cap for which people were told."""

    total: CostTotals = default_record(CostTotals)
    reserved: tuple[Reservation, ...] = ()
    kinds: tuple[CostStats, ...] = ()
    warned: Usd | None = None
    asked: Usd | None = None


class TaskAccount(Record):
    """The money of one task, whose id it has. *cap* is what a person allowed it instead of the setting."""

    id: Id
    spent: CostTotals = default_record(CostTotals)
    cap: Usd | None = None
    asked: Usd | None = None


class ProviderState(StrEnum):
    """How a provider takes our requests; `PROVIDER_STATES` says what each means."""

    OPEN = "open"
    LIMITED = "limited"
    EXHAUSTED = "exhausted"
    REFUSED = "refused"


PROVIDER_STATES: Final[dict[ProviderState, str]] = {
    ProviderState.OPEN: "it takes requests again, since then",
    ProviderState.LIMITED: "too many requests a minute; tried again when that has passed",
    ProviderState.EXHAUSTED: "its quota is used up; tried again when the window ends",
    ProviderState.REFUSED: "it does not accept the key or the bill; tried again when a person says so",
}


class Provider(Record):
    """Whoever sells the models. *probe* is the worker that tries first; the others wait for what it finds."""

    id: Id
    state: ProviderState
    since: Time
    until: Time | None = None
    why: NonEmptyStr
    probe: Id | None = None
    times: Count = 0  # tries in a row that it turned down
