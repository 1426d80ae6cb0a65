"""What may be spent, by the board alone; and what a run cost."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from liza import money
from liza.agents.pricing import price_list, price_of, priced
from liza.answers import Answer, answer, reported
from liza.changes import HUMAN
from liza.config import Budget, Config
from liza.errors import LizaError, Refused, UsageError
from liza.model import State, Status
from liza.money import Bill, Cap, Want
from liza.replies import Step
from liza.roles.admission import buried
from liza.spending import Provenance, Usage
from tests.stories import NOW, board, new_task, task_in

KIND: Final = money.kind_of("implement", "big")


def purse(run: float = 1, task: float = 5, **sections: Any) -> State:  # noqa: ANN401 - whatever a board may hold
    return board(new_task("t1"), config=Config(budget=Budget(run_usd=run, task_usd=task)), **sections)


def want(worker: str = "coder-1", task: str | None = "t1", kind: str = KIND) -> Want:
    return Want(worker, task, kind)


def paid(state: State, usd: float, kind: str = KIND, mark: Provenance = Provenance.REPORTED) -> State:
    return money.settled(state, Bill("coder-1", "t1", kind, usd, mark))


class TestTheCap:
    def test_the_third_run_of_forty_cents_is_one_too_many_for_a_dollar(self) -> None:
        """The next run is refused before it begins, not after it has passed the cap."""
        state = purse(run=1)
        seen = []
        for _ in range(3):
            seen.append(money.over(state, want()))
            state = paid(state, 0.4)

        assert seen == [None, None, Cap.RUN]

    def test_two_workers_together_cannot_pass_it(self) -> None:
        """What one has set aside is not there for the other."""
        state = money.reserved(paid(purse(run=1), 0.4), want("coder-1"), NOW)

        assert money.over(state, want("coder-2", None)) is Cap.RUN
        assert money.over(money.unreserved(state, "coder-1"), want("coder-2", None)) is None

    def test_a_task_has_a_cap_of_its_own(self) -> None:
        """One task cannot eat what is there for all."""
        state = paid(purse(run=20, task=1), 0.8)

        assert money.over(state, want()) is Cap.TASK
        assert money.over(state, want(task=None)) is None

    def test_a_budget_of_nothing_lets_nothing_begin(self) -> None:
        """Zero is an amount; who wants no cap gives a high one."""
        assert money.over(purse(run=0), want()) is Cap.RUN

    def test_once_asked_nobody_begins_until_another_cap_is_there(self) -> None:
        """A cheaper run does not slip through while people are asked; an edited setting is an answer, too."""
        state = money.asked(paid(purse(run=1), 0.4))
        assert money.over(state, want()) is Cap.RUN

        state = state.but(config=Config(budget=Budget(run_usd=3)))

        assert money.over(state, want()) is None


class TestEstimates:
    def test_the_past_of_the_same_kind_counts_most(self) -> None:
        """Then other steps of the same model, then a guess."""
        state = paid(paid(purse(), 0.1), 0.3)

        assert money.estimate(state, KIND) == 0.2
        assert money.estimate(state, money.kind_of("review", "big")) == 0.2
        assert money.estimate(state, money.kind_of("review", "small")) == money.FIRST_GUESS

    def test_what_nobody_knows_is_counted_as_a_run_and_not_averaged(self) -> None:
        """A recording without a price says nothing about what a run costs."""
        state = paid(purse(), 0.0, mark=Provenance.UNKNOWN)

        assert (state.spend.total.runs, state.spend.total.usd, state.spend.kinds) == (1, 0, ())


class TestSettling:
    def test_every_cent_is_marked_with_where_it_comes_from(self) -> None:
        """A sum of reports and guesses shows both."""
        state = paid(paid(purse(), 0.1), 0.2, mark=Provenance.ESTIMATED)

        total = state.spend.total
        assert (total.runs, total.reported, total.estimated, total.usd) == (2, 0.1, 0.2, 0.3)
        assert state.accounts["t1"].spent == total

    def test_what_the_dead_set_aside_is_spent(self) -> None:
        """Their agents did work; nobody knows how much, so it is an estimate."""
        state = money.reserved(money.reserved(purse(), want("coder-1"), NOW), want("coder-2", None), NOW)

        state = buried(state, {"coder-2"})

        assert [one.id for one in state.spend.reserved] == ["coder-2"]
        assert state.accounts["t1"].spent.estimated == money.FIRST_GUESS

    def test_the_warning_comes_once_a_cap(self) -> None:
        """At four fifths people are told; a new cap has a new warning."""
        state = paid(purse(run=1), 0.79)
        assert money.warning(state) is None

        state = paid(state, 0.02)
        assert "$0.81 of the $1.00" in str(money.warning(state))
        assert money.warning(money.warned(state)) is None


class TestAnswers:
    def test_an_amount_raises_the_cap_of_all(self) -> None:
        """`liza answer budget 30`."""
        state = money.asked(paid(purse(run=1), 0.9))

        state = money.reply("budget", "$30", by=HUMAN, at=NOW)(state)

        assert (state.config.budget.run_usd, state.spend.asked) == (30, None)
        assert not money.is_closed(state)

    @pytest.mark.parametrize(
        ("text", "error", "said"),
        [
            ("more", UsageError, "is no amount"),
            ("-3", UsageError, "no amount"),
            ("0.5", Refused, "spent already"),
        ],
    )
    def test_what_does_not_help_is_refused(self, text: str, error: type[LizaError], said: str) -> None:
        """The sentence says what would."""
        with pytest.raises(error, match=said):
            money.reply("budget", text, by=HUMAN, at=NOW)(paid(purse(run=1), 0.9))

    def test_a_task_that_is_named_budget_is_a_task(self) -> None:
        """Its questions are answered as any task's are."""
        state = board(task_in(Status.BLOCKED, name="budget"))

        state = money.reply("budget", "30", by=HUMAN, at=NOW)(state)

        assert state.task("budget").status is Status.IDLE
        assert state.config == Config()

    @pytest.mark.parametrize(
        ("text", "usd"),
        [("30", 30), ("$7.50", 7.5), ("12 USD", 12), ("1e9", None), ("", None), ("9" * 9, None)],
    )
    def test_an_amount_is_read_as_people_write_it(self, text: str, usd: float | None) -> None:
        """A sentence is no amount: nothing is guessed where money is meant."""
        assert money.amount(text) == usd


class TestPrices:
    def test_a_report_is_taken_as_it_is(self) -> None:
        """Whoever was there knows best."""
        usage = priced(Usage(usd=0.4), "gpt-4o", "", "")

        assert (usage.usd, usage.provenance) == (0.4, Provenance.REPORTED)

    def test_tokens_of_a_known_model_are_priced(self) -> None:
        """Cached tokens cost what cached tokens cost."""
        usage = Usage(tokens_in=1_000_000, tokens_out=100_000, tokens_cached=400_000)

        found = priced(usage, "openai/gpt-4o", "", "")

        assert (found.usd, found.provenance) == (0.6 * 2.5 + 0.4 * 1.25 + 1.0, Provenance.PRICED)

    def test_an_unknown_model_is_estimated_at_a_dear_price(self) -> None:
        """Tokens that are known are used; the price is not, and the mark says so."""
        found = priced(Usage(tokens_in=1_000_000, tokens_out=0), "acme/secret-1", "", "")

        assert (found.usd, found.provenance) == (price_list().default.tokens_in, Provenance.ESTIMATED)

    def test_nothing_known_is_estimated_from_the_texts(self) -> None:
        """A cap must hold also for agents that report nothing."""
        found = priced(Usage(), None, "p" * 3000, "a" * 3000)

        assert found.provenance is Provenance.ESTIMATED
        assert found.usd
        assert found.usd > 0

    @pytest.mark.parametrize("number", range(len(price_list().models)))
    def test_every_price_can_be_reached(self, number: int) -> None:
        """A pattern below a more general one would never count."""
        one = price_list().models[number]
        names = [re.sub(r"\[(.)[^]]*]", r"\1", one.model).replace("*", filling) for filling in ("", "1", "x")]

        assert one in [price_of(name) for name in names]


class TestReports:
    def test_usage_stands_beside_any_answer(self) -> None:
        """The answer is read as if it were not there."""
        text = '```liza\n{"intent": "do it", "usage": {"usd": 0.4, "tokens_in": 12, "model": "big"}}\n```'

        found = reported(text)

        assert found
        assert (found.usd, found.tokens_in, found.model) == (0.4, 12, "big")
        assert isinstance(answer(text, Step.CHECKPOINT), Answer)

    @pytest.mark.parametrize("usage", ["-1", '{"usd": -3}', '{"usd": "much"}', '{"cents": 3}'])
    def test_a_report_that_makes_no_sense_costs_no_answer(self, usage: str) -> None:
        """Money is estimated then."""
        text = f'```liza\n{{"intent": "do it", "usage": {usage}}}\n```'

        assert reported(text) is None
        assert isinstance(answer(text, Step.CHECKPOINT), Answer)
