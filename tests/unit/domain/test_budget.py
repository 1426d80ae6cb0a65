"""What may be spent, by the board alone; and what a run cost."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from liza.agents.protocol import price_list, price_of, with_cost
from liza.daemon.policy.pick import settle_reservations_except
from liza.domain import budget
from liza.domain.answer_parsing import ParsedAnswer, parse_answer, reported_usage
from liza.domain.answers import Step
from liza.domain.budget import Bill, Cap, RunRequest
from liza.domain.changes import HUMAN
from liza.domain.config import Budget, Config
from liza.domain.model import Provenance, State, Status, Usage
from liza.errors import LizaError, Refused, UsageError
from liza.workflow.transition import reply
from tests.support.sample_tasks import NOW, board, new_task, task_in

KIND: Final = budget.cost_kind("implement", "big")
CHECKPOINT: Final = budget.cost_kind("checkpoint", "big")
REVIEW: Final = budget.cost_kind("review", "big")


def purse(run: float = 1, task: float = 5, **sections: Any) -> State:  # noqa: ANN401 - whatever a board may hold
    return board(new_task("t1"), config=Config(budget=Budget(run_usd=run, task_usd=task)), **sections)


def want(worker: str = "coder-1", task: str | None = "t1", kind: str = KIND) -> RunRequest:
    return RunRequest(worker, task, kind)


def paid(state: State, usd: float, kind: str = KIND, mark: Provenance = Provenance.REPORTED) -> State:
    return budget.settle_run(state, Bill("coder-1", "t1", kind, usd, mark))


class TestTheCap:
    def test_the_third_run_of_forty_cents_is_one_too_many_for_a_dollar(self) -> None:
        """The next run is refused before it begins, not after it has passed the cap."""
        state = purse(run=1)
        seen = []
        for _ in range(3):
            seen.append(budget.cap_exceeded_by(state, want()))
            state = paid(state, 0.4)

        assert seen == [None, None, Cap.RUN]

    def test_two_workers_together_cannot_pass_it(self) -> None:
        """What one has set aside is not there for the other."""
        state = budget.reserve(paid(purse(run=1), 0.4), want("coder-1"), NOW)

        assert budget.cap_exceeded_by(state, want("coder-2", None)) is Cap.BUSY
        assert (
            budget.cap_exceeded_by(budget.without_reservation(state, "coder-1"), want("coder-2", None))
            is None
        )

    def test_a_task_has_a_cap_of_its_own(self) -> None:
        """One task cannot eat what is there for all."""
        state = paid(purse(run=20, task=1), 0.8)

        assert budget.cap_exceeded_by(state, want()) is Cap.TASK
        assert budget.cap_exceeded_by(state, want(task=None)) is None

    def test_a_budget_of_nothing_lets_nothing_begin(self) -> None:
        """Zero is an amount; who wants no cap gives a high one."""
        assert budget.cap_exceeded_by(purse(run=0), want()) is Cap.RUN

    def test_once_asked_nobody_begins_until_another_cap_is_there(self) -> None:
        """A cheaper run does not slip through while people are asked; an edited setting is an answer, too."""
        state = budget.with_budget_question(paid(purse(run=1), 0.4))
        assert budget.cap_exceeded_by(state, want()) is Cap.RUN

        state = state.replace(config=Config(budget=Budget(run_usd=3)))

        assert budget.cap_exceeded_by(state, want()) is None


class TestEstimates:
    def test_the_past_of_the_same_kind_counts_most(self) -> None:
        """Then other steps of the same model."""
        state = paid(paid(purse(), 0.1), 0.3)

        assert budget.average_cost(state, KIND) == 0.2
        assert budget.average_cost(state, REVIEW) == 0.2
        assert budget.average_cost(state, budget.cost_kind("review", "small")) is None

    def test_set_aside_is_the_most_that_its_like_has_cost(self) -> None:
        """An average is passed by every second run."""
        state = paid(paid(purse(), 0.1), 0.3)

        assert budget.amount_to_reserve(state, want()) == 0.3

    def test_where_nothing_is_known_all_that_is_left_for_the_task_is_set_aside(self) -> None:
        """What other steps of its model cost says nothing: a checkpoint is cheap, what follows is not."""
        state = paid(purse(run=20), 0.04, kind=CHECKPOINT)

        assert budget.amount_to_reserve(state, want()) == 4.96
        assert budget.amount_to_reserve(state, want(task=None)) == 5
        assert budget.amount_to_reserve(paid(purse(run=20, task=50), 0.04), want(kind=REVIEW)) == 19.96

    def test_what_follows_in_the_turn_is_set_aside_as_well(self) -> None:
        """A turn that has to be given back in the middle is paid for twice."""
        state = paid(paid(purse(run=20), 0.04, kind=CHECKPOINT), 0.5)

        assert budget.amount_to_reserve(state, want(kind=CHECKPOINT)._replace(later=(KIND,))) == 0.54

    def test_who_tells_its_cost_only_at_the_end_is_alone_until_that_is_known(self) -> None:
        """Nobody could end it in time, and two of them would pass the cap twice."""
        alone = want()._replace(is_metered=False)
        state = budget.reserve(purse(run=20), alone, NOW)

        assert state.spend.reserved[0].usd == 20
        assert budget.cap_exceeded_by(state, want("coder-2", None)) is Cap.BUSY
        assert budget.cap_exceeded_by(paid(state, 0.04), alone._replace(worker="coder-2")) is None

    def test_nothing_is_set_aside_for_who_never_says_what_it_costs(self) -> None:
        """No cap can hold it; so it keeps nobody from working, either."""
        state = paid(purse(run=20), 0.0, kind=CHECKPOINT, mark=Provenance.UNKNOWN)

        assert budget.never_reports_cost(state, KIND)
        assert budget.amount_to_reserve(state, want()._replace(is_metered=False)) == 0
        assert not budget.never_reports_cost(paid(state, 0.1, kind=REVIEW), KIND)

    def test_what_nobody_knows_is_counted_as_a_run_and_not_averaged(self) -> None:
        """A recording without a price says nothing about what a run costs."""
        state = paid(purse(), 0.0, mark=Provenance.UNKNOWN)

        assert (state.spend.total.runs, state.spend.total.usd, state.spend.total.unreported) == (1, 0, 1)
        assert budget.average_cost(state, KIND) is None


class TestWhileItRuns:
    """A run that tells its cost while it works."""

    def test_it_may_use_what_nobody_else_has_set_aside(self) -> None:
        """Twice as much at a time, so that the board is not written at every word."""
        state = budget.reserve(paid(purse(run=2), 0.1), want(), NOW)
        assert budget.is_within_reservation(state, "coder-1", 0.1)
        assert not budget.is_within_reservation(state, "coder-1", 0.2)

        state, why = budget.extend_reservation(state, "coder-1", 0.2)

        assert (why, state.spend.reserved[0].usd) == (None, 0.4)

    def test_it_is_ended_where_nothing_is_left_of_what_all_may_cost(self) -> None:
        """What others have set aside is theirs."""
        state = paid(purse(run=2), 0.1)
        state = budget.reserve(budget.reserve(state, want(), NOW), want("coder-2", None), NOW)

        state, why = budget.extend_reservation(state, "coder-1", 1.8)

        assert "of the $2.00 for everything no more is left" in str(why)

    def test_it_is_ended_where_nothing_is_left_of_what_its_task_may_cost(self) -> None:
        """Also before the cap of all is reached."""
        state = budget.reserve(paid(purse(run=20, task=1), 0.1), want(), NOW)

        state, why = budget.extend_reservation(state, "coder-1", 0.9)

        assert "of the $1.00 for t1 no more is left" in str(why)

    def test_it_is_ended_when_another_run_passed_the_cap(self) -> None:
        """Also one that tells nothing: it can only add to it."""
        state = budget.reserve(purse(run=2), want("coder-2", None), NOW)
        assert budget.is_within_reservation(state, "coder-2", 0.0)

        state = paid(state, 30)

        assert not budget.is_within_reservation(state, "coder-2", 0.0)
        assert budget.extend_reservation(state, "coder-2", 0.0)[1]


class TestSettling:
    def test_every_cent_is_marked_with_where_it_comes_from(self) -> None:
        """A sum of reports and guesses shows both."""
        state = paid(paid(purse(), 0.1), 0.2, mark=Provenance.ESTIMATED)

        total = state.spend.total
        assert (total.runs, total.reported, total.estimated, total.usd) == (2, 0.1, 0.2, 0.3)
        assert state.accounts["t1"].spent == total

    def test_what_the_dead_set_aside_is_spent(self) -> None:
        """Their agents did work; nobody knows how much, so it is an estimate."""
        state = budget.reserve(budget.reserve(purse(), want("coder-1"), NOW), want("coder-2", None), NOW)

        state = settle_reservations_except(state, {"coder-2"})

        assert [one.id for one in state.spend.reserved] == ["coder-2"]
        assert state.accounts["t1"].spent.estimated == budget.DEFAULT_RUN_USD

    def test_the_warning_comes_once_a_cap(self) -> None:
        """At four fifths people are told; a new cap has a new warning."""
        state = paid(purse(run=1), 0.79)
        assert budget.budget_warning(state) is None

        state = paid(state, 0.02)
        assert "$0.81 of the $1.00" in str(budget.budget_warning(state))
        assert budget.budget_warning(budget.with_warning_given(state)) is None


class TestAnswers:
    @pytest.mark.parametrize("spent", [0.0, 0.9, 1.0, 60.04, 1234.5])
    def test_what_is_proposed_is_accepted_and_lets_a_run_begin(self, spent: float) -> None:
        """Also where the cap was passed by far."""
        state = budget.with_budget_question(paid(purse(run=1, task=5000), spent))
        *_, text = budget.raise_budget_command(state).split()

        state = reply("budget", text, by=HUMAN, at=NOW)(state)

        assert budget.cap_exceeded_by(state, want()) is None

    def test_an_amount_raises_the_cap_of_all(self) -> None:
        """`liza answer budget 30`."""
        state = budget.with_budget_question(paid(purse(run=1), 0.9))

        state = reply("budget", "$30", by=HUMAN, at=NOW)(state)

        assert (state.config.budget.run_usd, state.spend.asked) == (30, None)
        assert not budget.is_budget_question_open(state)

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
            reply("budget", text, by=HUMAN, at=NOW)(paid(purse(run=1), 0.9))

    def test_a_task_that_is_named_budget_is_a_task(self) -> None:
        """Its questions are answered as any task's are."""
        state = board(task_in(Status.BLOCKED, name="budget"))

        state = reply("budget", "30", by=HUMAN, at=NOW)(state)

        assert state.task("budget").status is Status.IDLE
        assert state.config == Config()

    @pytest.mark.parametrize(
        ("text", "usd"),
        [("30", 30), ("$7.50", 7.5), ("12 USD", 12), ("1e9", None), ("", None), ("9" * 9, None)],
    )
    def test_an_amount_is_read_as_people_write_it(self, text: str, usd: float | None) -> None:
        """A sentence is no amount: nothing is guessed where money is meant."""
        assert budget.parse_amount(text) == usd


class TestPrices:
    def test_a_report_is_taken_as_it_is(self) -> None:
        """Whoever was there knows best."""
        usage = with_cost(Usage(usd=0.4), "gpt-4o", "", "")

        assert (usage.usd, usage.provenance) == (0.4, Provenance.REPORTED)

    def test_tokens_of_a_known_model_are_priced(self) -> None:
        """Cached tokens cost what cached tokens cost."""
        usage = Usage(tokens_in=1_000_000, tokens_out=100_000, tokens_cached=400_000)

        found = with_cost(usage, "openai/gpt-4o", "", "")

        assert (found.usd, found.provenance) == (0.6 * 2.5 + 0.4 * 1.25 + 1.0, Provenance.PRICED)

    def test_an_unknown_model_is_estimated_at_a_dear_price(self) -> None:
        """Tokens that are known are used; the price is not, and the mark says so."""
        found = with_cost(Usage(tokens_in=1_000_000, tokens_out=0), "acme/secret-1", "", "")

        assert (found.usd, found.provenance) == (price_list().default.tokens_in, Provenance.ESTIMATED)

    def test_nothing_known_is_estimated_from_the_texts(self) -> None:
        """A cap must hold also for agents that report nothing."""
        found = with_cost(Usage(), None, "p" * 3000, "a" * 3000)

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

        found = reported_usage(text)

        assert found
        assert (found.usd, found.tokens_in, found.model) == (0.4, 12, "big")
        assert isinstance(parse_answer(text, Step.CHECKPOINT), ParsedAnswer)

    @pytest.mark.parametrize(
        ("usage", "read"),
        [
            ('{"usd": "$0.30"}', {"usd": 0.3}),
            ('{"usd": "0.30 USD"}', {"usd": 0.3}),
            ('{"USD": 0.3, "mood": "good"}', {"usd": 0.3}),
            ('{"total_cost_usd": 0.3}', {"usd": 0.3}),
            ('{"usd": 30, "tokens_in": -4}', {"usd": 30}),
            ('{"usd": 0.3, "tokens_out": "many"}', {"usd": 0.3}),
            ('{"input_tokens": 12, "output_tokens": 3}', {"tokens_in": 12, "tokens_out": 3}),
            ('{"prompt_tokens": "1,200", "completion_tokens": 3}', {"tokens_in": 1200, "tokens_out": 3}),
        ],
    )
    def test_what_can_be_read_of_a_report_counts(self, usage: str, read: dict[str, float]) -> None:
        """A budget that holds for some spellings only would not hold."""
        found = reported_usage(f'```liza\n{{"intent": "do it", "usage": {usage}}}\n```')

        assert found
        assert found.model_dump(exclude_none=True) == read

    @pytest.mark.parametrize(
        "usage",
        [
            *("-1", '{"usd": -3}', '{"usd": "much"}', '{"cents": 3}', '{"usd": true}', "[]"),
            *('{"usd": 1e308}', '{"usd": "0.30 EUR"}', '{"tokens_in": 1' + "0" * 400 + "}"),
        ],
    )
    def test_a_report_that_makes_no_sense_costs_no_answer(self, usage: str) -> None:
        """Money is estimated then."""
        text = f'```liza\n{{"intent": "do it", "usage": {usage}}}\n```'

        assert reported_usage(text) is None
        assert isinstance(parse_answer(text, Step.CHECKPOINT), ParsedAnswer)
