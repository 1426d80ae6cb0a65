"""What a board tells Prometheus, read back by the parser of its own client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from liza.daemon.reports.prometheus import METRICS, prometheus_text
from liza.domain.changes import HUMAN, Change
from liza.domain.config import Switch
from liza.domain.lifecycle import Abandon
from liza.domain.model import CostTotals
from liza.workflow.transition import apply
from tests.support.boards import new_board
from tests.support.sample_tasks import NOW

if TYPE_CHECKING:
    from pathlib import Path


def told(text: str) -> dict[tuple[str, str], float]:
    """Return each sample by its name and the value of its label."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_tells_what_the_board_says(tmp_path: Path) -> None:
    board = new_board(tmp_path / ".liza")
    board.update(apply(Abandon(reason="not needed"), to="t2", by=HUMAN, at=NOW))
    board.switches.throw(Switch.PAUSE, "lunch")
    with board.presence.hold("coder-1", at=NOW):
        found = told(prometheus_text(board, NOW))
    assert found["liza_revision", ""] == 2
    assert found["liza_tasks", "IDLE"] == 2
    assert found["liza_tasks", "ABANDONED"] == found["liza_sprint_outcomes", "ABANDONED"] == 1
    assert found["liza_tasks", "MERGED"] == 0
    assert (found["liza_switch_thrown", "PAUSE"], found["liza_switch_thrown", "ABORT"]) == (1, 0)
    assert (found["liza_workers_alive", "coder"], found["liza_workers_alive", "planner"]) == (1, 0)
    assert found["liza_spent_usd", ""] == found["liza_goal_complete", ""] == 0
    assert found["liza_budget_usd", ""] == board.read().config.budget.run_usd


def test_a_large_number_is_told_exactly(tmp_path: Path) -> None:
    board = new_board(tmp_path / ".liza")
    total = CostTotals(runs=1, reported=1234567.25)
    board.update(Change("me", "spend", lambda one: one.replace(spend=one.spend.replace(total=total))))
    assert told(prometheus_text(board, NOW))["liza_spent_usd", ""] == 1234567.25


def test_every_name_is_one_that_prometheus_takes_and_says_what_it_is() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"liza_[a-z_]+", name)
        assert metric.says
        assert metric.label == "" or re.fullmatch(r"[a-z]+", metric.label)


def test_a_label_cannot_break_the_text(tmp_path: Path) -> None:
    board = new_board(tmp_path / ".liza")
    with board.presence.hold('co"d\\er', at=NOW):
        found = told(prometheus_text(board, NOW))
    assert found["liza_workers_alive", 'co"d\\er'] == 1
