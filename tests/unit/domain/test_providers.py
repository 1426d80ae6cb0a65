"""What a provider's limit means for whom, by the board and the time alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from liza.domain import budget
from liza.domain.budget import LONGEST_BACKOFF, STAGGER, ProviderRejection
from liza.domain.changes import HUMAN
from liza.domain.model import ProviderState
from tests.support.sample_tasks import NOW, SECOND, board

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State

MINUTE: Final = 60 * SECOND
LIMITED: Final = ProviderRejection(ProviderState.LIMITED, "429", NOW + 5 * SECOND)
EXHAUSTED: Final = ProviderRejection(ProviderState.EXHAUSTED, "the window is used up")
REFUSED: Final = ProviderRejection(ProviderState.REFUSED, "the key is not valid")


def down(
    how: ProviderRejection,
    state: State | None = None,
    *,
    by: str = "coder-1",
    at: datetime = NOW,
    chance: float = 0,
) -> State:
    return budget.with_rejection(state or board(), "acme", by, how, at=at, chance=chance)


def until(state: State) -> timedelta:
    found = state.providers["acme"].until
    assert found
    return found - NOW


class TestTheGate:
    def test_a_limit_holds_for_everybody_until_its_reset(self) -> None:
        """Nobody asks before the announced time, and those of other providers go on."""
        state = down(LIMITED)

        assert budget.provider_wait(state, "acme", "coder-2", NOW + 4 * SECOND)
        assert budget.provider_wait(state, "other", "coder-2", NOW + 4 * SECOND) is None
        assert budget.provider_wait(state, "acme", "coder-2", NOW + 5 * SECOND) is None

    def test_one_tries_and_the_others_wait_for_it(self) -> None:
        """The first run after the lift is the probe."""
        later = NOW + 6 * SECOND
        state = budget.with_probe(down(LIMITED), "acme", "coder-1")

        assert budget.provider_wait(state, "acme", "coder-1", later) is None
        assert budget.provider_wait(state, "acme", "coder-2", later)

        opened = budget.with_success(state, "acme", "coder-1", at=later)
        assert opened.providers["acme"].state is ProviderState.OPEN
        assert budget.provider_wait(opened, "acme", "coder-2", later + STAGGER * SECOND) is None

    def test_the_others_do_not_start_in_the_same_moment(self) -> None:
        """After the probe each has a moment of its own."""
        state = budget.with_success(budget.with_probe(down(LIMITED), "acme", "w-1"), "acme", "w-1", at=NOW)
        gates = [budget.provider_wait(state, "acme", f"w-{number}", NOW) for number in range(8)]

        assert len({gate.until for gate in gates if gate}) >= 7

    def test_a_dead_probe_is_replaced(self) -> None:
        """What it would have found out, another one does."""
        state = budget.with_probe(down(LIMITED), "acme", "coder-1")

        state = budget.without_probes_of(state, {"coder-1"})

        assert budget.provider_wait(state, "acme", "coder-2", NOW + MINUTE) is None

    def test_a_success_of_somebody_who_was_on_the_way_opens_nothing(self) -> None:
        """It began before the limit came."""
        state = budget.with_success(down(LIMITED), "acme", "coder-2", at=NOW)

        assert state.providers["acme"].state is ProviderState.LIMITED

    def test_a_refusal_holds_until_a_person_says_so(self) -> None:
        """A bad key does not get better by itself, and is tried by one when it may be."""
        state = down(REFUSED)
        assert budget.provider_wait(state, "acme", "coder-1", NOW + timedelta(days=365))

        state = budget.retry_providers(HUMAN, NOW)(state)

        assert budget.provider_wait(state, "acme", "coder-1", NOW) is None


class TestHowLong:
    @pytest.mark.parametrize(
        ("how", "chance", "wait"),
        [
            (LIMITED, 0, 5 * SECOND),
            (LIMITED, 1, 6 * SECOND),
            (LIMITED._replace(reset=None), 0, MINUTE),
            (LIMITED._replace(reset=NOW - MINUTE), 0, SECOND),
            (EXHAUSTED._replace(reset=NOW + 60 * MINUTE), 1, 61 * MINUTE),
            (EXHAUSTED._replace(reset=NOW + 10 * LONGEST_BACKOFF), 0, LONGEST_BACKOFF),
            (EXHAUSTED, 0, 15 * MINUTE),
        ],
    )
    def test_the_announced_reset_counts_else_a_default(
        self, how: ProviderRejection, chance: float, wait: timedelta
    ) -> None:
        """Jitter is added and never taken away; nonsense is bounded."""
        assert until(down(how, chance=chance)) == wait

    def test_the_wait_grows_with_each_probe_that_fails(self) -> None:
        """A flag that never clears and a storm of retries are both avoided."""
        state, waits = down(EXHAUSTED), []
        for _ in range(6):
            at = state.providers["acme"].until
            assert at
            state = down(EXHAUSTED, budget.with_probe(state, "acme", "coder-1"), at=at)
            found = state.providers["acme"].until
            assert found
            waits.append((found - at) // MINUTE)

        assert waits == [30, 60, 120, 240, 240, 240]

    def test_those_who_were_on_the_way_make_it_no_longer(self) -> None:
        """Ten workers that meet one limit met it once."""
        state = down(EXHAUSTED)

        assert until(down(EXHAUSTED, state, by="coder-2")) == until(state)


class TestNews:
    def test_people_hear_of_each_edge_once(self) -> None:
        """The second worker that meets the same limit is no news; a worse one is."""
        first = down(LIMITED)
        again = down(LIMITED, first, by="coder-2")
        worse = down(REFUSED, again)

        assert "acme is limited until 2026-01-01T12:00:05Z: 429" in str(
            budget.provider_news(board(), first, "acme")
        )
        assert budget.provider_news(first, again, "acme") is None
        assert "then `liza resume`" in str(budget.provider_news(again, worse, "acme"))

    def test_a_lesser_word_does_not_hide_a_worse(self) -> None:
        """A rate limit after a refusal leaves the refusal."""
        state = down(LIMITED, down(REFUSED))

        assert (state.providers["acme"].state, state.providers["acme"].why) == (
            ProviderState.REFUSED,
            "the key is not valid",
        )
