"""The order in which processes share the tests: nothing long begins at the end, and no process gets it all.

`--dist worksteal` hands each process one piece of the list, all of the same length; who is done takes from
the end of another's piece. So each piece begins with its share of what is long.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

import pytest

# Real runs and sweeps, which take three seconds of a core and more; the longest first.
LONGEST: Final = (
    "acceptance/daemon/test_run_whole.py",
    "acceptance/cli/test_demo.py",
    "acceptance/gauntlet/test_gauntlet.py",
    "acceptance/daemon/test_rules.py",
    "integration/forges/test_github.py",
    "acceptance/daemon/test_cycle.py",
    "acceptance/daemon/test_issues.py",
    "acceptance/daemon/test_ideas.py",
    "acceptance/cli/test_experiments.py",
    "acceptance/daemon/test_installed_projects.py",
    "acceptance/daemon/test_secrets.py",
    "acceptance/daemon/test_people.py",
    "integration/repo/test_durability.py",
    "acceptance/cli/test_history_commands.py",
    "integration/daemon/test_experiments.py",
    "integration/board/test_crash.py",
    "integration/daemon/test_supervisor.py",
)
# Files, then directories whose tests start processes.
RANKS: Final = (*LONGEST, "/acceptance/", "/integration/")


def deal(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return *items* in an order in which each process begins with its share of what is long."""
    by_length = sorted(items, key=_rank)  # stable: a file stays in its order
    long = [item for item in by_length if _rank(item) < len(RANKS)]
    quick = iter(by_length[len(long) :])
    pieces: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, block in enumerate(_blocks(long)):
        # There and back again, or the first process would get the longest of every round.
        turn, place = divmod(number, processes)
        pieces[place if turn % 2 == 0 else -1 - place] += block
    for number, piece in enumerate(pieces):
        length = len(items) // processes + (number >= processes - len(items) % processes)
        piece.extend(islice(quick, max(0, length - len(piece))))
    return [*chain.from_iterable(pieces), *quick]


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, part in enumerate(RANKS) if part in item.path.as_posix()), len(RANKS))


def _blocks(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Cut *items* into what one process has to run: one test, or all that share what was made for them."""
    blocks: dict[str, list[pytest.Item]] = {}
    for item in items:
        blocks.setdefault(_shared(item), []).append(item)
    return list(blocks.values())


def _shared(item: pytest.Item) -> str:
    found = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    is_shared = any(one.scope in ("class", "module") for several in found for one in several)
    return str(item.path) if is_shared else item.nodeid
