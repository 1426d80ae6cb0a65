"""The patterns that open the breaker: each at its count, not before, and never twice on the same evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain import anomalies as a
from liza.domain import lifecycle as e
from liza.domain.changes import violations, with_anomaly
from liza.domain.config import Config, Limits
from liza.domain.model import BreakerStatus, Metrics, Remedy, ReviewCounts, Role, Sprint, WorkerRecord
from liza.domain.record import with_record
from liza.domain.rules import (
    RULES,
    Subject,
    due_trips,
    exact_word,
    fuzzy_words,
    open_trips,
    resolve_trip,
    with_due_trips,
)
from liza.domain.similarity import are_similar_words
from liza.errors import NotThere, Refused
from tests.support.sample_tasks import (
    CODER,
    NOW,
    OTHER_CODER,
    SECOND,
    board,
    claim,
    new_task,
    walked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.domain.model import State


def logged(details: Iterable[Any], *, start: State | None = None) -> State:
    """Return a board with *details* logged, one a second."""
    state = start or board(new_task("t1"), new_task("t2"))
    for number, one in enumerate(details):
        about = f"t{number % 2 + 1}"
        state = with_anomaly(state, one, about=about, by="coder-1", at=NOW + number * SECOND)
    return state


def fired(state: State) -> list[str]:
    return [trip.rule for trip in due_trips(state, NOW)]


def debt(number: int) -> a.TradeOff | a.DebtCreated:
    what = f"thing {number}"
    return (
        a.TradeOff(what=what, why="time", debt=True) if number % 2 else a.DebtCreated(what=what, why="time")
    )


def gap(number: int) -> a.SpecAmbiguity | a.SpecGap:
    ref = f"specs/vision.md:{number}"
    return (
        a.SpecGap(spec_ref=ref, missing="x") if number % 2 else a.SpecAmbiguity(spec_ref=ref, question="y?")
    )


# Rule: how many it takes, and the anomalies that are the same although they do not look it.
PATTERNS: Final[dict[str, tuple[int, list[Any]]]] = {
    "retry_cluster": (
        3,
        [
            a.RetryLoop(error_pattern="TimeoutError in src/db.py:12: no answer from db after 30s", count=2),
            a.RetryLoop(error_pattern="timeouterror in src/db.py:977: no answer from DB after 5s", count=3),
            a.RetryLoop(error_pattern="no answer from db after 31s: TimeoutError in src/db.py:1:4", count=1),
        ],
    ),
    "debt_accumulation": (3, [debt(number) for number in range(3)]),
    "assumption_cascade": (
        2,
        [
            a.AssumptionViolated(assumption="Ids are numbers", reality="they are words"),
            a.AssumptionViolated(assumption="ids ARE numbers", reality="some are UUIDs"),
        ],
    ),
    "workaround_pattern": (
        2,
        [a.Workaround(what=what, root_cause="the parser drops line breaks") for what in ("a", "b")],
    ),
    "spec_gap_cluster": (2, [gap(number) for number in range(2)]),
    "external_service_outage": (
        2,
        [a.ExternalBlocker(service="registry", symptom=symptom) for symptom in ("502", "no route")],
    ),
    "checkout_drift": (1, [a.CheckoutDrift(moved=("HEAD",))]),
    "rejected_edit": (1, [a.RejectedEdit(file="rejected/x.yaml", problems=("line 3",))]),
    "gate_broken": (1, [a.GateBroken(gate="test", command="pytest", cause="127", likely="install it")]),
    "hypothesis_exhaustion": (1, [a.HypothesisExhaustion(tried=("one", "two"))]),  # as good as two failures
}


@pytest.mark.parametrize("name", PATTERNS)
class TestPatterns:
    def test_it_fires_at_its_count_and_names_all_that_it_saw(self, name: str) -> None:
        """Pains B: the breaker kept only the last match."""
        count, details = PATTERNS[name]
        assert fired(logged(details[: count - 1])) == []
        (trip,) = due_trips(logged(details), NOW)
        assert trip.rule == name
        assert trip.evidence == tuple(f"anomaly-{number}" for number in range(1, count + 1))
        assert len(trip.says) == count
        assert trip.tasks == ("t1", "t2")[:count]

    def test_it_fires_once_on_what_it_saw(self, name: str) -> None:
        state = with_due_trips(logged(PATTERNS[name][1]), NOW)
        assert fired(state) == []
        assert violations(state) == []
        assert with_due_trips(state, NOW) is state

    def test_resolved_it_stays_quiet_until_the_count_is_reached_anew(self, name: str) -> None:
        """Pains B: it tripped again after being resolved."""
        count, details = PATTERNS[name]
        state = with_due_trips(logged(details), NOW)
        for trip in open_trips(state):
            state = resolve_trip(state, trip.id, "mended", NOW)
        assert fired(state) == []
        assert fired(logged(details[: count - 1], start=state)) == []
        (again,) = due_trips(logged(details, start=state), NOW)
        assert again.id == "trip-2"
        assert set(again.evidence) == {f"anomaly-{number}" for number in range(count + 1, 2 * count + 1)}

    def test_a_resolution_processes_what_the_trip_saw(self, name: str) -> None:
        state = with_due_trips(logged(PATTERNS[name][1]), NOW)
        for trip in open_trips(state):
            assert state.circuit_breaker.status is BreakerStatus.TRIPPED
            state = resolve_trip(state, trip.id, "mended", NOW)
            assert all(one.processed == NOW for one in state.anomalies.values())
        assert state.circuit_breaker.status is BreakerStatus.OK
        assert violations(state) == []


def test_every_rule_has_a_pattern_here_or_a_test_of_its_own() -> None:
    of_all = {rule.name for rule in RULES if rule.subject is not Subject.TASK and not rule.is_clock}
    assert of_all - PATTERNS.keys() == {
        "agents_killed",
        "crash_loop",
        "equal_failures",
        "fruitless_attempts",
        "rubber_stamp",
    }


class TestSameness:
    @pytest.mark.parametrize(
        "details",
        [
            [a.ExternalBlocker(service=name, symptom="down") for name in ("api-1", "api-2")],
            [a.SpecGap(spec_ref=name, missing="x") for name in ("specs/a.md", "specs/b.md")],
            [a.RetryLoop(error_pattern=text, count=9) for text in ("no space left", "bad token", "timeout")],
            [a.TradeOff(what="x", why="y") for _ in range(4)],
        ],
        ids=["two services", "two specifications", "three errors", "trade-offs without debt"],
    )
    def test_different_things_do_not_add_up(self, details: list[Any]) -> None:
        assert fired(logged(details)) == []

    @pytest.mark.parametrize("nothing", ["n/a", "?", "Unknown", "none", "-"])
    def test_what_nobody_said_matches_nothing(self, nothing: str) -> None:
        """Pains B: patterns tripped on missing fields, because absent equals absent."""
        details = [
            *(a.RetryLoop(error_pattern=nothing, count=1) for _ in range(3)),
            *(a.Workaround(what="x", root_cause=nothing) for _ in range(2)),
            *(a.ExternalBlocker(service=nothing, symptom="x") for _ in range(2)),
            *(a.SpecGap(spec_ref=nothing, missing="x") for _ in range(2)),
        ]
        assert fired(logged(details)) == []

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Error 500 at line 3", "error 502 at LINE 99"),
            ("object at 0x7f3a11 is gone", "object at 0x55dead is gone"),
            ("commit deadbeef12 not found", "commit 0123456789ab not found"),
            ("not found: the file", "the file: not found"),
            ("404", "404"),
        ],
    )
    def test_numbers_places_case_and_order_hide_nothing(self, one: str, other: str) -> None:
        assert are_similar_words(fuzzy_words(one), fuzzy_words(other))

    def test_nothing_is_like_nothing(self) -> None:
        assert not are_similar_words(fuzzy_words(""), fuzzy_words(""))
        assert not are_similar_words(exact_word("n/a"), exact_word("n/a"))

    def test_two_clusters_are_two_trips(self) -> None:
        details = [a.ExternalBlocker(service=name, symptom="down") for name in "abab"]
        found = due_trips(logged(details), NOW)
        assert [trip.evidence for trip in found] == [("anomaly-1", "anomaly-3"), ("anomaly-2", "anomaly-4")]
        assert found[0].at != found[1].at  # their reports have names of their own

    def test_more_of_what_is_open_waits_for_the_resolution(self) -> None:
        details = PATTERNS["external_service_outage"][1]
        state = logged(details, start=with_due_trips(logged(details), NOW))
        assert fired(state) == []
        assert fired(resolve_trip(state, "trip-1", "it is back", NOW)) == ["external_service_outage"]

    def test_what_a_person_marked_processed_does_not_count(self) -> None:
        state = logged(PATTERNS["workaround_pattern"][1])
        seen = {name: one.replace(processed=NOW) for name, one in state.anomalies.items()}
        assert fired(state.replace(anomalies=seen)) == []


class TestResolving:
    def test_what_only_tells_stops_nobody(self) -> None:
        state = with_due_trips(logged(PATTERNS["rejected_edit"][1]), NOW)
        assert state.circuit_breaker.status is BreakerStatus.OK
        assert state.circuit_breaker.trips[0].action is Remedy.ALERT

    def test_the_breaker_is_ok_once_no_trip_is_open(self) -> None:
        details = [*PATTERNS["workaround_pattern"][1], *PATTERNS["spec_gap_cluster"][1]]
        state = resolve_trip(with_due_trips(logged(details), NOW), "trip-1", "mended", NOW)
        assert state.circuit_breaker.status is BreakerStatus.TRIPPED
        assert resolve_trip(state, "trip-2", "as well", NOW).circuit_breaker.status is BreakerStatus.OK

    def test_a_trip_is_resolved_once(self) -> None:
        state = with_due_trips(logged(PATTERNS["workaround_pattern"][1]), NOW)
        state = resolve_trip(state, "trip-1", "mended", NOW)
        with pytest.raises(Refused, match=r"trip-1: it was resolved at .*: mended"):
            resolve_trip(state, "trip-1", "again", NOW)
        with pytest.raises(NotThere, match="`liza breaker` lists them"):
            resolve_trip(state, "trip-9", "what", NOW)


class TestBoardPatterns:
    def test_attempts_that_come_to_nothing_open_it(self) -> None:
        """Pains A 2: 44 runs overnight, all succeeded, and nothing done."""
        limits = Config(limits=Limits(attempts_without_progress=3))

        def after(*names: str) -> State:
            return board(new_task("t1"), config=limits, sprint=Sprint(metrics=Metrics(fruitless=names)))

        assert fired(after("t1#2", "t1#4")) == []
        state = with_due_trips(after("t1#2", "t1#4", "t1#6"), NOW)
        (trip,) = open_trips(state)
        assert (trip.rule, trip.tasks) == ("fruitless_attempts", ("t1",))
        state = resolve_trip(state, "trip-1", "a new key", NOW)
        more = state.sprint.metrics.replace(fruitless=("t1#2", "t1#4", "t1#6", "t1#8", "t1#10"))
        assert fired(state.replace(sprint=state.sprint.replace(metrics=more))) == []
        more = more.replace(fruitless=(*more.fruitless, "t1#12"))
        assert fired(state.replace(sprint=state.sprint.replace(metrics=more))) == ["fruitless_attempts"]

    def test_agents_that_are_killed_for_hours_open_it(self) -> None:
        """Who kills them is nobody's mistake, so that patience is three times as long."""
        limits = Config(limits=Limits(attempts_without_progress=2))

        def after(number: int) -> State:
            killed = tuple(f"t1#{2 * n}" for n in range(number))
            return board(new_task("t1"), config=limits, sprint=Sprint(metrics=Metrics(killed=killed)))

        assert fired(after(5)) == []
        assert fired(after(6)) == ["agents_killed"]

    def test_two_coders_that_failed_are_told_of_once_a_time(self) -> None:
        fail = e.Release(failed=True, reason="no idea")
        task = walked(new_task(), claim(), (fail, CODER), claim(OTHER_CODER), (fail, OTHER_CODER))
        state = with_due_trips(board(task), NOW)
        (trip,) = state.circuit_breaker.trips
        assert (trip.rule, trip.tasks) == ("hypothesis_exhaustion", ("t1",))
        assert trip.says == tuple(f"t1: coder-{number} could not do it: no idea" for number in (1, 2))
        assert fired(state) == []

    def test_a_worker_that_crashes_three_times_is_told_of_once(self) -> None:
        worker = WorkerRecord(
            id="coder-1", role=Role.CODER, since=NOW, crashes=tuple(NOW + n * SECOND for n in range(3))
        )
        state = board(new_task()).replace(agents=with_record({}, worker))
        assert fired(state.replace(agents=with_record({}, worker.replace(crashes=worker.crashes[1:])))) == []
        state = with_due_trips(state, NOW)
        (trip,) = state.circuit_breaker.trips
        assert (trip.rule, trip.action, trip.severity) == ("crash_loop", Remedy.ALERT, "high")
        assert fired(state) == []

    def test_a_rubber_stamp_is_told_once_a_sprint(self) -> None:
        """Pains A 15."""
        stamp = Metrics(reviews={"reviewer-1": ReviewCounts(approved=12, first_seen=12, first_approved=12)})
        one, two = (board(new_task(), sprint=Sprint(number=number, metrics=stamp)) for number in (1, 2))
        state = with_due_trips(one, NOW)
        (trip,) = state.circuit_breaker.trips
        assert (trip.rule, trip.says[0]) == (
            "rubber_stamp",
            "reviewer-1 approves 100% of what it sees for the first time",
        )
        assert fired(state) == []
        assert fired(state.replace(sprint=two.sprint)) == ["rubber_stamp"]
