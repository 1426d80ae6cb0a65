"""How the tests of this suite are dealt to the processes that share them."""

from __future__ import annotations

import pytest

from tests.support.suite_order import _rank, deal


@pytest.mark.parametrize("processes", [2, 3, 6])
def test_each_process_begins_with_its_share_of_the_long_ones(
    request: pytest.FixtureRequest, processes: int
) -> None:
    everything = sorted(request.session.items, key=lambda item: item.nodeid)
    items = everything[:: max(1, len(everything) // 500)]
    dealt = deal(items, processes)
    assert sorted(dealt, key=id) == sorted(items, key=id)
    rest = list(dealt)
    for left in range(processes, 0, -1):  # as `--dist worksteal` cuts it
        piece, rest = rest[: len(rest) // left], rest[len(rest) // left :]
        assert [_rank(item) for item in piece] == sorted(_rank(item) for item in piece)
