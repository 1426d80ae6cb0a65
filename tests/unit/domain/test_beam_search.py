"""The search over ideas: limits hold, the best go on, and a run that died goes on where it was."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.beam_search import (
    ROOT,
    BeamManifest,
    BeamSettings,
    EvaluationStatus,
    advance_search,
    begin_search,
    next_evaluations,
    nodes_without_ideas,
    rank_evaluations,
    resume_search,
    with_failure,
    with_figures,
    with_ideas,
    with_started,
)
from liza.domain.metric_gate import MetricKind, MetricRule
from liza.errors import UsageError

METRICS = (MetricRule(column="s", kind=MetricKind.PRIMARY), MetricRule(column="t"))


def commit(number: int) -> str:
    return f"{number:040x}"


def search(**settings: Any) -> BeamManifest:  # noqa: ANN401 - whatever the settings are
    chosen = BeamSettings.model_validate({"metrics": METRICS, **settings})
    return begin_search(chosen, commit(0), {"s": 1.0, "t": 1.0})


def measured(manifest: BeamManifest, name: str, value: float) -> BeamManifest:
    manifest = with_started(manifest, name)
    return with_figures(
        manifest, name, commit(sum(name.encode())), {"s": value, "t": value}, is_complete=True
    )


def test_the_best_of_a_depth_is_where_the_next_begins() -> None:
    manifest = with_ideas(search(depth=2), ROOT, ("a", "b", "c"))
    for name, value in (("root.1", 1.1), ("root.2", 1.5), ("root.3", 0.5)):
        assert advance_search(manifest) == manifest
        manifest = measured(manifest, name, value)

    deeper = advance_search(manifest)

    assert [node.id for node in deeper.frontier] == ["root.2"]
    assert deeper.frontier[0].figures == {"s": 1.5, "t": 1.5}
    assert [one.evaluation.id for one in rank_evaluations(deeper)] == ["root.2", "root.1", "root.3"]
    assert [one.is_promoted for one in rank_evaluations(deeper)] == [True, True, False]
    last = advance_search(measured(with_ideas(deeper, "root.2", ("d",)), "root.2.1", 2.0))
    assert last.ended == "the depth of 2 is reached"
    assert rank_evaluations(last)[0].evaluation.id == "root.2.1"


def test_what_is_not_complete_or_worse_than_its_parent_is_not_promoted() -> None:
    manifest = with_ideas(search(), ROOT, ("a", "b"))
    manifest = with_figures(
        with_started(manifest, "root.1"), "root.1", commit(1), {"s": 9.0, "t": 9.0}, is_complete=False
    )
    manifest = with_figures(
        with_started(manifest, "root.2"), "root.2", commit(2), {"s": 0.99, "t": 9.0}, is_complete=True
    )

    assert advance_search(manifest).ended == "no idea of this depth is worth to go on with"


def test_a_try_that_failed_is_tried_again_as_often_as_allowed() -> None:
    manifest = with_ideas(search(retries=1), ROOT, ("a",))
    for status in (EvaluationStatus.WAITING, EvaluationStatus.FAILED):
        manifest = with_failure(with_started(manifest, "root.1"), "root.1", "the sweep failed")
        assert manifest.evaluations[0].status is status
    assert advance_search(manifest).ended


def test_a_run_that_died_goes_on_where_it_was() -> None:
    manifest = with_started(with_ideas(search(), ROOT, ("a", "b", "c")), "root.1")
    manifest = with_started(measured(manifest, "root.2", 1.2), "root.3")

    again = resume_search(BeamManifest.model_validate_json(manifest.model_dump_json()))

    assert [one.status for one in again.evaluations] == ["waiting", "done", "waiting"]
    assert [one.id for one in next_evaluations(again, 5)] == ["root.1", "root.3"]
    assert again.evaluations[0].attempts == 1


def test_ideas_that_were_tried_are_not_tried_again_and_limits_hold() -> None:
    manifest = with_ideas(search(ideas_per_node=2, evaluations=3), ROOT, ("Use x.", " ", "use X", "b", "c"))

    assert [one.idea for one in manifest.evaluations] == ["Use x.", "b"]
    assert nodes_without_ideas(manifest) == ()
    for one in manifest.evaluations:
        manifest = measured(manifest, one.id, 2.0)
    manifest = advance_search(manifest)
    manifest = with_ideas(manifest, manifest.frontier[0].id, ("use x", "d", "e"))
    assert [one.idea for one in manifest.evaluations] == ["Use x.", "b", "d"]
    assert advance_search(measured(manifest, manifest.evaluations[-1].id, 3.0)).ended == "3 ideas were tried"


def test_a_baseline_without_a_metric_is_refused() -> None:
    with pytest.raises(UsageError, match="the baseline has no column t; measure it, or leave the metric out"):
        begin_search(BeamSettings(metrics=METRICS), commit(0), {"s": 1.0})


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.none() | st.integers(1, 12),
)
def test_however_ideas_turn_out_it_ends_within_its_limits(
    seed: int, per_node: int, width: int, depth: int, most: int | None
) -> None:
    """With deaths in between; every step goes through the text that is on disk."""
    luck = random.Random(seed)
    manifest = search(ideas_per_node=per_node, width=width, depth=depth, evaluations=most, retries=1)
    for _ in range(400):
        if manifest.ended:
            break
        manifest = resume_search(BeamManifest.model_validate_json(manifest.model_dump_json()))
        for node in nodes_without_ideas(manifest):
            manifest = with_ideas(manifest, node.id, tuple(f"idea {luck.random()}x" for _ in range(5)))
        for one in next_evaluations(manifest, 2):
            manifest = with_started(manifest, one.id)
            match luck.choice(["die", "fail", "measure", "measure"]):
                case "measure":
                    figures = {"s": luck.uniform(0.5, 2), "t": luck.uniform(0.5, 2)}
                    manifest = with_figures(
                        manifest, one.id, commit(luck.getrandbits(64)), figures, is_complete=True
                    )
                case "fail":
                    manifest = with_failure(manifest, one.id, "it failed")
        manifest = advance_search(manifest)

    assert manifest.ended
    assert len(manifest.evaluations) <= (most or 10**6)
    assert manifest.depth < depth
    for level in range(manifest.depth + 1):
        nodes = [node for node in manifest.nodes if node.depth == level]
        assert len(nodes) <= (width if level else 1)
    assert all(
        sum(one.node == node.id for one in manifest.evaluations) <= per_node for node in manifest.nodes
    )
