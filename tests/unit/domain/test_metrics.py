"""Counters on the board: carried on by every change, each thing once, and what they say."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.reports.metrics import figures_table, retrospective, suggestions
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change, figures, percentile, reason_kind, sum_metrics
from liza.domain.model import (
    Feedback,
    Handoff,
    Metrics,
    Outcome,
    ReviewCounts,
    Role,
    Status,
    Verdict,
    WorkerRecord,
)
from liza.domain.record import records_by_id, with_record
from liza.domain.rules import rubber_stampers
from liza.workflow.transition import add_task, apply
from tests.support.sample_tasks import (
    CODER,
    MERGED,
    NOW,
    PLANNER,
    SECOND,
    WAYS,
    WORK,
    approve,
    block,
    board,
    claim,
    new_task,
    reject,
    start_merge,
    submit,
    take_review,
    task_in,
)

if TYPE_CHECKING:
    from liza.domain.model import State
    from tests.support.sample_tasks import Deed

STEP: Final = 10 * SECOND


def done(state: State, *deeds: Deed, to: str = "t1", start: int = 1) -> State:
    """Return *state* after *deeds*, each a change of its own, ten seconds apart."""
    for number, (event, by) in enumerate(deeds, start=start):
        state = apply(event, to=to, by=by, at=NOW + number * STEP)(state)
    return state


def of(*deeds: Deed) -> Metrics:
    return done(board(new_task()), *deeds).sprint.metrics


IN_REVIEW: Final = (claim(), submit(), take_review())


def sent_back(reason: str) -> Deed:
    verdict = Verdict(gate="test", outcome=Outcome.REVISE, at=NOW, reason=reason)
    return e.Report(
        outcome=Outcome.REVISE, reason=reason, feedback=(Feedback(message=reason),), verdicts=(verdict,)
    ), CODER


class TestCounting:
    def test_equal_failures_of_gates_are_counted_while_they_are_in_a_row(self) -> None:
        """Another reason begins anew, and so does a pass."""
        same = [claim(), sent_back("test failed: no module a")]
        assert of(*same, *same).red_gates == (
            "t1#3 test failed: no module a",
            "t1#5 test failed: no module a",
        )
        other = [claim(), sent_back("lint failed: line too long")]
        assert of(*same, *other).red_gates == ("t1#5 lint failed: line too long",)
        passed = Verdict(gate="test", outcome=Outcome.PASS, at=NOW)
        submit_green = (submit()[0].replace(verdicts=(passed,)), CODER)
        assert of(*same, claim(), submit_green).red_gates == ()

    def test_a_task_that_merges_is_counted_with_its_times(self) -> None:
        found = of(*IN_REVIEW, approve(), start_merge(), MERGED)
        assert found.outcomes == {"MERGED": 1}
        assert (found.attempts, found.submissions, found.in_vain) == (1, 1, 0)
        assert (found.merged_rounds, found.merged_cycles) == (1, 0)
        assert percentile(found.cycle_times, 0.5) == 64  # sixty seconds, in classes a fifth wide
        assert found.seconds == {"IDLE": 10, "WORKING": 10, "READY_FOR_REVIEW": 20, "APPROVED": 20}

    def test_a_rejection_has_a_kind_and_a_second_look_is_no_first_one(self) -> None:
        again = (claim(), submit(), take_review(), approve())
        found = of(*IN_REVIEW, reject(reason="There is no TEST for it"), *again)
        assert found.rejections == {"tests": 1}
        assert found.reviews == {"reviewer-1": ReviewCounts(approved=1, rejected=1, first_seen=1)}

    @pytest.mark.parametrize("status", WAYS)
    def test_every_final_status_is_an_outcome(self, status: Status) -> None:
        state = done(board(new_task(), task_in(Status.IDLE, name="t2")), *WAYS[status])
        is_final = status in {
            *map(Status, ("MERGED", "COMPLETE", "NOTHING_TO_DO", "SUPERSEDED", "ABANDONED"))
        }
        assert state.sprint.metrics.outcomes == ({str(status): 1} if is_final else {})

    def test_the_gates_of_a_submission_are_counted(self) -> None:
        verdicts = (Verdict(gate="test", outcome=Outcome.PASS, at=NOW),)
        found = of(claim(), (e.Report(commit=WORK, verdicts=verdicts), CODER))
        assert found.gates == {"test": {"pass": 1}}

    def test_a_change_made_of_changes_counts_each_thing_once(self) -> None:
        def both(state: State) -> State:
            for name in ("t1", "t2"):
                task = new_task(name).replace(history=())
                state = add_task(task, by=PLANNER, at=NOW)(state)
            return done(state, claim())

        state = Change("planner-1", "plan", both)(board())
        assert (state.sprint.metrics.added, state.sprint.metrics.attempts) == (2, 1)

    def test_what_changes_no_history_costs_no_counter(self) -> None:
        state = done(board(new_task()), claim())
        renew = (e.Renew(expires=NOW + timedelta(hours=9)), CODER)
        assert done(state, renew, start=2).sprint is state.sprint

    def test_each_crash_is_counted_though_the_board_keeps_three(self) -> None:
        state = board(agents=records_by_id([WorkerRecord(id="coder-1", role=Role.CODER, since=NOW)]))
        for number in range(5):
            times = tuple(NOW + n * STEP for n in range(max(0, number - 2), number + 1))

            def crash(state: State, times: Any = times) -> State:  # noqa: ANN401
                agent = state.agents["coder-1"].replace(crashes=times)
                return state.replace(agents=with_record(state.agents, agent))

            state = Change("supervisor", "crash", crash)(state)
        assert state.sprint.metrics.crashes == {"coder-1": 5}


class TestProgress:
    """Pains A 2: progress is a commit, a verdict or a transition."""

    FAIL: Final[Deed] = (e.Release(failed=True, reason="no answer"), CODER)
    RECLAIM: Final[Deed] = (e.Reclaim(reason="it died"), SUPERVISOR)
    RELEASE: Final[Deed] = (e.Release(reason="asked to wait a minute"), CODER)

    def test_attempts_in_vain_add_up_until_somebody_gets_on(self) -> None:
        found = of(claim(), self.FAIL, claim(), self.RECLAIM)
        assert found.fruitless == ("t1#3", "t1#5")
        found = of(claim(), self.FAIL, claim(), self.RECLAIM, claim(), submit())
        assert (found.fruitless, found.in_vain) == ((), 2)

    def test_a_limit_of_the_provider_is_no_failure(self) -> None:
        """Pains A 1: parked time is no failure."""
        assert of(claim(), self.RELEASE).fruitless == ()

    def test_a_context_that_is_full_again_and_again_is_one(self) -> None:
        state = done(board(new_task()), claim())

        def full(state: State) -> State:
            note = Handoff(id="t1", agent="coder-1", timestamp=NOW, summary="half of it")
            return done(state.replace(handoff=with_record(state.handoff, note)), self.RELEASE, start=2)

        assert Change("coder-1", "release", full)(state).sprint.metrics.fruitless == ("t1#3",)

    def test_a_killed_worker_is_nobodys_failure_and_killed_agents_are_counted_apart(self) -> None:
        dead = (e.Reclaim(reason="it does not run", killed=True), SUPERVISOR)
        assert of(claim(), dead, claim(), dead).fruitless == ()
        killed = (e.Release(reason="it was killed", killed=True), CODER)
        found = of(claim(), killed, claim(), dead, claim(), killed)
        assert (found.fruitless, found.killed, found.in_vain) == ((), ("t1#3", "t1#7"), 2)
        assert of(claim(), killed, claim(), submit()).killed == ()

    def test_blocking_and_unblocking_is_no_progress(self) -> None:
        unblock = (e.Answer(guidance="try again"), PLANNER)
        found = of(claim(), self.FAIL, block(), unblock, claim(), self.FAIL)
        assert len(found.fruitless) == 2

    def test_a_person_who_steps_in_starts_it_anew(self) -> None:
        found = of(claim(), self.FAIL, block(), (e.Answer(guidance="like this"), HUMAN))
        assert found.fruitless == ()


class TestFigures:
    @pytest.mark.parametrize(
        ("reason", "kind"),
        [
            ("No tests cover it", "tests"),
            ("touches files out of scope", "scope"),
            ("The lint is red", "style"),
            ("criterion 2 is missing", "criteria"),
            ("it crashes on empty input", "defect"),
            ("hm", "other"),
        ],
    )
    def test_a_reason_has_a_kind(self, reason: str, kind: str) -> None:
        assert reason_kind(reason) == kind

    def test_percentiles_are_within_a_fifth(self) -> None:
        state = board()
        for number in range(1, 11):
            task = new_task(f"t{number}", created=NOW - number * 100 * SECOND)
            state = done(state.with_task(task), *WAYS[Status.MERGED], to=task.id, start=-6)
        times = state.sprint.metrics.cycle_times
        assert 500 <= (percentile(times, 0.5) or 0) <= 500 * 1.2
        assert 900 <= (percentile(times, 0.9) or 0) <= 900 * 1.2
        assert percentile({}, 0.5) is None

    @pytest.mark.parametrize(
        ("seen", "approved", "is_one"), [(9, 9, False), (10, 10, True), (20, 19, True), (20, 18, False)]
    )
    def test_a_rubber_stamp_is_told_from_ten_first_looks_on(
        self, seen: int, approved: int, is_one: bool
    ) -> None:
        """Pains A 15: approval rate watched."""
        found = Metrics(reviews={"reviewer-1": ReviewCounts(first_seen=seen, first_approved=approved)})
        assert ("reviewer-1" in rubber_stampers(found)) is is_one

    def test_sprints_add_up(self) -> None:
        one = of(*IN_REVIEW, approve(), start_merge(), MERGED)
        both = sum_metrics([one, one])
        assert both.outcomes == {"MERGED": 2}
        assert both.reviews["reviewer-1"].approved == 2
        assert percentile(both.cycle_times, 0.9) == percentile(one.cycle_times, 0.9)

    def test_a_fresh_board_has_figures_too(self) -> None:
        text = figures_table(figures(board(), NOW))
        assert "tasks added             0\n" in text
        assert "cycle time              p50 -, p90 -\n" in text

    def test_blocked_time_goes_on_while_a_task_is_blocked(self) -> None:
        state = done(board(new_task()), block())
        assert figures(state, NOW + 2 * STEP).blocked_seconds == 10
        state = done(state, (e.Answer(), HUMAN), start=3)
        assert figures(state, NOW + 99 * STEP).blocked_seconds == 20


class TestRetrospective:
    def test_it_says_why_and_what_the_numbers_suggest(self) -> None:
        state = done(board(new_task(), new_task("t2")), *IN_REVIEW, reject(reason="no test"))
        state = done(state, block(), to="t2")
        text = retrospective(state, "its deadline has passed", NOW + 10 * STEP)
        assert "It is over because its deadline has passed." in text
        assert "- t2: the goal is not clear" in text
        assert "`tests` is the commonest reason" in text
        assert 'answer what is BLOCKED: `liza answer TASK "…"`' in text

    def test_nothing_is_suggested_without_a_reason(self) -> None:
        state = done(board(new_task()), *IN_REVIEW, approve(), start_merge(), MERGED)
        assert list(suggestions(figures(state, NOW + 10 * STEP), [])) == []
