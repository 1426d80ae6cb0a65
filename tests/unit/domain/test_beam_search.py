"""The search over ideas: limits hold, and the best go on."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liza.domain.experiment_config import (
    ROOT,
    IdeaSearch,
    MeasuredIdea,
    MetricKind,
    MetricRule,
    SearchSettings,
)

METRICS = (MetricRule(column="s", kind=MetricKind.PRIMARY), MetricRule(column="t"))


def tried(name: str, value: float | None, parent: str = ROOT, **more: Any) -> MeasuredIdea:  # noqa: ANN401 - fields
    return MeasuredIdea(name, parent, None if value is None else {"s": value, "t": value}, **more)


def search(*ideas: MeasuredIdea, **settings: Any) -> IdeaSearch:  # noqa: ANN401 - whatever the settings are
    return IdeaSearch(SearchSettings.model_validate(settings), METRICS, {"s": 1.0, "t": 1.0}, ideas)


def test_the_best_of_a_depth_is_where_the_next_begins() -> None:
    first = (tried("a", 1.1), tried("b", 1.5), tried("c", 0.5), tried("d", None))

    assert search(*first).next_depth().nodes == ("b",)
    assert search(*first, width=3).next_depth().nodes == ("b", "a")
    deeper = search(*first, tried("e", 2.0, "b"), depth=2)
    assert deeper.next_depth().ended == "the depth of 2 is reached"
    assert max(deeper.tried, key=deeper.score).id == "e"


def test_what_is_not_whole_or_worse_than_its_parent_is_not_promoted() -> None:
    worse = MeasuredIdea("b", ROOT, {"s": 0.99, "t": 9.0})
    lacking = MeasuredIdea("c", ROOT, {"s": 9.0})

    found = search(tried("a", 9.0, is_whole=False), worse, lacking)

    assert found.next_depth().ended == "no idea of the last depth is worth to go on with"
    below = search(tried("a", 2.0), tried("b", 1.9, "a"))
    assert below.next_depth().ended == "no idea of the last depth is worth to go on with"


def test_no_more_ideas_are_tried_than_the_settings_allow() -> None:
    assert search(tried("a", 2.0), tried("b", 2.0), most=2).next_depth().ended == "2 ideas were tried"
    assert search(tried("a", 2.0), most=3).left() == 2


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_however_ideas_turn_out_it_ends_within_its_limits(
    seed: int, per_node: int, width: int, depth: int
) -> None:
    luck, ideas, levels = random.Random(seed), list[MeasuredIdea](), 0
    parents: tuple[str, ...] = (ROOT,)
    while parents:
        levels += 1
        for parent in parents:
            ideas += [
                tried(f"{parent}.{number}", luck.choice([None, luck.uniform(0.5, 2)]), parent)
                for number in range(per_node)
            ]
        found = search(*ideas, width=width, depth=depth, ideas=per_node).next_depth()
        assert (not found.nodes) == (found.ended is not None)
        assert len(found.nodes) <= width
        parents = found.nodes

    assert levels <= depth
