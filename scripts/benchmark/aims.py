"""What the board is meant to reach, as rows that the measurements meet or do not."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from scripts.benchmark.race import Finish
from scripts.benchmark.rivals import C_YAML, LIZA, SQLITE
from scripts.benchmark.speed import MS, Alone, Crowded, Outcome, ratio
from scripts.benchmark.tables import Table

MOST_WRITERS: Final = 32
AIMED_RATES: Final = {8: 1_000, 32: 600}  # updates a second of so many writers at 100 tasks
MOST_TIMES_SQLITE: Final = 5  # the median of one writer at every size
MISSED: Final = "NOT MET"
WHY_ALONE: Final = (
    "what keeps one writer from less: an update is shown in state.yaml before it is acknowledged, which is "
    "two fifths of its time; a fifth is the change itself by the document of the workflow, and an eighth "
    "checks it by the rules of the board and reads it back; the number of tasks hardly matters"
)
WHY_RATES: Final = (
    "what keeps many writers from more: an update hands the lock from process to process twice, to write and "
    "to be told that it is on disk, and every other writer reads its line and builds its record anew; sqlite "
    "lets one writer go on"
)
UNSTEADY: Final = 4  # times that the slowest sync before a race takes the quickest


class Aim(NamedTuple):
    says: str
    measured: float | None  # None: not in this run
    least: float = -inf
    most: float = inf
    limit: str = ""  # what the machine itself takes for the like

    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if self.least <= self.measured <= self.most else MISSED


def aims_table(alone: Alone, crowded: Crowded, in_history: Alone) -> Table:
    table = Table("5. Aims", ("aim", "measured", "verdict", "the machine itself"))
    caution = _shared_disk([*alone.values(), *crowded.values(), *in_history.values()])
    speed, rates = [*_speed(alone), *_sizes(alone)], [*_rates(crowded), *_fairness(crowded)]
    for aim in (*speed, _flatness(in_history), *rates):
        # Engines that all wait for somebody else's syncs look alike: such a ratio proves nothing either way.
        unsure = caution and aim.measured is not None
        table.add(aim.says, aim.measured, "unsure" if unsure else aim.verdict(), aim.limit)
    safety = _safety(alone, crowded)
    table.add(safety.says, safety.measured, safety.verdict(), safety.limit)
    for aims, why in ((speed, WHY_ALONE), (rates, WHY_RATES)):
        if any(aim.verdict() == MISSED for aim in aims):
            table.notes.append(why)
    if caution:
        table.notes.append(caution)
    return table


def _shared_disk(outcomes: list[Outcome]) -> str | None:
    syncs = [outcome.sync for outcome in outcomes if isinstance(outcome, Finish)]
    if max(syncs) < UNSTEADY * min(syncs):
        return None
    return (
        f"unsure: others used the disk, a sync took from {min(syncs) * MS:.2f} to {max(syncs) * MS:.2f} ms; "
        "measure again on a quiet machine"
    )


def _speed(alone: Alone) -> list[Aim]:
    ours, theirs = alone.get((LIZA.name, 1_000)), alone.get((SQLITE.name, 1_000))
    naive = alone.get((C_YAML.name, 1_000))
    small = ratio(alone.get((LIZA.name, 100)), alone.get((SQLITE.name, 100)))
    return [
        Aim("1,000 tasks: at least 300 times as fast as yaml-c", ratio(naive, ours), least=300),
        Aim("1,000 tasks: at most 10 times sqlite's median", ratio(ours, theirs), most=10),
        Aim("100 tasks: at most 4 times sqlite's median", small, most=4),
    ]


def _sizes(alone: Alone) -> list[Aim]:
    return [
        Aim(
            f"{size:,} tasks: at most {MOST_TIMES_SQLITE} times sqlite's median",
            ratio(alone[LIZA.name, size], alone.get((SQLITE.name, size))),
            most=MOST_TIMES_SQLITE,
            limit=_bare_sync(alone[LIZA.name, size]),
        )
        for name, size in alone
        if name == LIZA.name
    ]


def _bare_sync(outcome: Outcome) -> str:
    return f"a sync {outcome.sync * MS:.2f} ms" if isinstance(outcome, Finish) else ""


def _rates(crowded: Crowded) -> list[Aim]:
    """Return what many writers are to reach, beside what the disk and SQLite do."""
    aims = []
    for writers, least in AIMED_RATES.items():
        ours, theirs = (crowded.get((row.name, 100, writers)) for row in (LIZA, SQLITE))
        if not isinstance(ours, Finish):
            continue
        limit = f"bare syncs {1 / ours.sync:,.0f}"
        if isinstance(theirs, Finish):
            limit += f", sqlite {theirs.rate:,.0f}"
        says = f"{writers} writers, 100 tasks: at least {least:,} updates a second"
        aims.append(Aim(says, ours.rate, least=least, limit=limit))
    return aims


def _flatness(in_history: Alone) -> Aim:
    growth = ratio(in_history.get((LIZA.name, 800)), in_history.get((LIZA.name, 8)))
    return Aim("histories of 800 events: at most 1.5 times the median with 8", growth, most=1.5)


def _fairness(crowded: Crowded) -> list[Aim]:
    finishes = [
        (size, finish.in_time)
        for (name, size, writers), finish in crowded.items()
        if name == LIZA.name and writers == MOST_WRITERS and isinstance(finish, Finish)
    ]
    return [
        Aim(
            f"{MOST_WRITERS} writers, {size:,} tasks: most by one at most 2 times the fewest",
            shares[-1] / shares[0] if shares[0] else inf,
            most=2,
        )
        for size, shares in finishes
    ]


def _safety(alone: Alone, crowded: Crowded) -> Aim:
    ours = [
        finish.lost
        for key, finish in (*alone.items(), *crowded.items())
        if key[0] == LIZA.name and isinstance(finish, Finish)
    ]
    return Aim("acknowledged updates that are not on our board", sum(map(abs, ours)), most=0)
