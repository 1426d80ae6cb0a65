"""The ideal that the daemon is measured against."""

from __future__ import annotations

import pytest

from scripts.benchmark.schedule import Team, ideal

CHAIN = (None, 0, 1)


class TestIdeal:
    def test_a_lone_task_takes_two_steps_of_a_coder_and_one_of_a_reviewer(self) -> None:
        assert ideal([None], Team(1, 1), 0.5) == pytest.approx(1.5)

    def test_a_chain_takes_all_its_steps_however_many_work(self) -> None:
        assert ideal(CHAIN, Team(8, 4), 1.0) == pytest.approx(9.0)

    def test_a_review_is_done_while_the_next_task_is_coded(self) -> None:
        assert ideal([None] * 10, Team(1, 1), 1.0) == pytest.approx(2 * 10 + 1)

    def test_coders_share_what_waits_for_nothing(self) -> None:
        assert ideal([None] * 8, Team(4, 2), 1.0) == pytest.approx(2 + 2 + 2)

    def test_too_few_reviewers_hold_everybody_up(self) -> None:
        assert ideal([None] * 8, Team(8, 1), 1.0) == pytest.approx(2 + 8)

    def test_a_coder_does_something_else_while_the_chain_is_reviewed(self) -> None:
        """One coder: six steps for the chain and two for the other, which fill the first review."""
        assert ideal([*CHAIN, None], Team(1, 1), 1.0) == pytest.approx(2 + 2 + 2 + 1 + 2 + 1)
