"""Each rule fires at its count and not before, and starts anew where it says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from liza.domain.config import Limits
from liza.domain.model import Checkpoint, Task
from liza.domain.similarity import SIMILARITY, are_similar, normalize, normalized_digest
from liza.domain.verdicts import Decision, Outcome
from liza.workflow.catalogue import (
    ACTION_ORDER,
    CATALOGUE,
    GROUPS,
    SEVERITY,
    CountMode,
    EventKind,
    RuleAction,
    RuleEvent,
)
from liza.workflow.load import load_workflow
from liza.workflow.rules import FiredRule, broken_task_rules, fired_rules, task_events
from tests.support.sample_tasks import new_task
from tests.support.workflow_script import MINUTE, START

LIMITS: Final = Limits()


def event(kind: str, **facts: object) -> dict[str, object]:
    return {"kind": kind, "task": "task-1", "agent": "coder-1", **facts}


def decision(phase: str, outcome: str, reason: str | None = None) -> dict[str, object]:
    return event("decision", phase=phase, outcome=outcome, reason=reason)


def anomaly(kind: str, **facts: object) -> dict[str, object]:
    return event("anomaly", fields={"type": kind, **facts})


def signal(role: str | None = None, **fields: object) -> dict[str, object]:
    return event("signal", role=role, fields=fields)


SILENCE: Final = event("verdict", outcome="none", phase="PLAN", fields={"kind": "agent", "mode": "decide"})
CALLED: Final = event("verdict", outcome="revise", phase="PLAN", fields={"kind": "agent", "mode": "decide"})
REVIEWED: Final = decision("REVIEW", "revise", "the name lies")
JUDGED: Final = decision("JUDGE", "revise")
PERSON: Final = event("human")
ASSIGNED: Final = event("assign")

# rule: what it counts, how many of them, what resets it (None where nothing does)
ROWS: Final[dict[str, tuple[dict[str, object], int, dict[str, object] | None]]] = {
    "five_loop_pause": (JUDGED, 5, decision("JUDGE", "pass")),
    "actor_fail_pause": (
        event("work", role="actor", outcome="revise"), 5, event("work", role="actor", outcome="pass"),
    ),
    "stuck_cycle": (JUDGED, 3, PERSON),
    "high_risk_unapproved": (signal("planner", risk="high"), 1, event("human", outcome="pass")),
    "low_confidence": (signal("judge", confidence=4), 1, PERSON),
    "same_reason_twice": (REVIEWED, 2, ASSIGNED),
    "rejected_3x": (REVIEWED, 3, ASSIGNED),
    "max_review_cycles": (REVIEWED, 5, ASSIGNED),
    "coder_iterations": (decision("CODE", "revise"), 10, ASSIGNED),
    "warn_iterations": (decision("CODE", "revise"), 8, ASSIGNED),
    "warn_review_cycles": (REVIEWED, 3, ASSIGNED),
    "assumption_budget": (signal(assumptions=2), 3, None),
    "agent_crash_loop": (event("crash"), 3, None),
    "no_progress": (event("crash"), 5, decision("CODE", "revise")),
    "validation_failed": (signal(board="invalid"), 1, signal(board="valid")),
    "retry_cluster": (anomaly("retry_loop"), 3, None),
    "debt_accumulation": (anomaly("trade_off", debt=True), 3, None),
    "assumption_cascade": (anomaly("assumption_violated"), 2, None),
    "workaround_pattern": (anomaly("workaround"), 2, None),
    "spec_gap_cluster": (anomaly("spec_ambiguity", spec_ref="s.md#1"), 2, None),
    "external_service_outage": (anomaly("external_blocker", service="ci"), 2, None),
    "phase_exhausted": (event("decision", outcome="revise", fields={"exhausted": True}), 1, PERSON),
    "no_signal": (SILENCE, 2, CALLED),
    "test_failures": (signal(status="TESTS_FAILED"), 3, signal(status="TESTS_PASSED")),
    "dep_blocked": (signal(parent="BLOCKED"), 1, signal(parent="UNBLOCKED")),
    "idea_budget": (ASSIGNED, 11, None),
}  # fmt: skip
OVER_TIME: Final = {"cycle_duration": timedelta(minutes=30), "session_duration": timedelta(hours=2)}


def history(*events: dict[str, object]) -> list[RuleEvent]:
    """Return *events* a second apart."""
    return [
        RuleEvent.model_validate({"at": START + number * timedelta(seconds=1), **one})
        for number, one in enumerate(events)
    ]


def fires(rule: str, *events: dict[str, object], limits: Limits = LIMITS) -> tuple[FiredRule, ...]:
    return fired_rules([CATALOGUE[rule]], history(*events), limits)


class TestCatalogue:
    def test_every_row_is_tried_here(self) -> None:
        assert set(ROWS) | set(OVER_TIME) == set(CATALOGUE)

    @pytest.mark.parametrize("rule", ROWS)
    def test_it_fires_at_its_count_and_not_before(self, rule: str) -> None:
        match, count, _ = ROWS[rule]

        assert fires(rule, *[match] * (count - 1)) == ()
        (found,) = fires(rule, *[match] * count)
        assert (found.rule, found.action) == (rule, CATALOGUE[rule].action)
        assert found.severity == SEVERITY[found.action]
        assert found.evidence

    @pytest.mark.parametrize("rule", [rule for rule, row in ROWS.items() if row[2]])
    def test_it_starts_anew_where_it_says_so(self, rule: str) -> None:
        match, count, reset = ROWS[rule]
        assert reset is not None

        assert bool(fires(rule, *[match] * (count - 1), reset, match)) is (count == 1)
        assert fires(rule, *[match] * count, reset) == ()

    @pytest.mark.parametrize("rule", [*GROUPS["anomaly_patterns"], "rejected_3x"])
    def test_what_a_person_resolved_does_not_trip_again(self, rule: str) -> None:
        match, count, _ = ROWS[rule]
        resolved = event("human", fields={"resolved": rule})

        assert fires(rule, *[match] * count, resolved) == ()
        assert fires(rule, *[match] * count, resolved, match) == ()
        assert fires(rule, *[match] * count, event("human", fields={"resolved": "another"}))

    @pytest.mark.parametrize("rule", ROWS)
    def test_an_alert_is_told_once_and_all_else_as_long_as_it_holds(self, rule: str) -> None:
        match, count, _ = ROWS[rule]
        silent = CATALOGUE[rule].action is RuleAction.ALERT

        assert bool(fires(rule, *[match] * (count + 1))) is not silent

    @pytest.mark.parametrize("rule", OVER_TIME)
    def test_time_runs_from_the_first_event(self, rule: str) -> None:
        window = OVER_TIME[rule]
        begun = RuleEvent(kind=EventKind.WORK, at=START, task="task-1")
        clock = [
            RuleEvent(kind=EventKind.CLOCK, at=START + window + n * MINUTE, task="task-1") for n in (-1, 0, 1)
        ]
        row = [CATALOGUE[rule]]

        assert fired_rules(row, [begun, clock[0]], LIMITS) == ()
        assert len(fired_rules(row, [begun, *clock[:2]], LIMITS)) == 1
        again = fired_rules(row, [begun, *clock], LIMITS)
        assert bool(again) is (CATALOGUE[rule].action is not RuleAction.ALERT)

    def test_time_runs_from_the_last_word_of_a_person(self) -> None:
        row, half = [CATALOGUE["cycle_duration"]], timedelta(minutes=20)
        begun = RuleEvent(kind=EventKind.WORK, at=START, task="task-1")
        person = RuleEvent(kind=EventKind.HUMAN, at=START + half, task="task-1")
        clock = RuleEvent(kind=EventKind.CLOCK, at=START + 2 * half, task="task-1")

        assert len(fired_rules(row, [begun, clock], LIMITS)) == 1
        assert fired_rules(row, [begun, person, clock], LIMITS) == ()

    def test_crashes_count_only_close_together(self) -> None:
        row = [CATALOGUE["agent_crash_loop"]]
        apart = [
            RuleEvent(kind=EventKind.CRASH, at=START + n * timedelta(minutes=3), agent="coder-1")
            for n in range(9)
        ]

        assert fired_rules(row, apart, LIMITS) == ()

    def test_a_rule_of_an_agent_counts_that_agent(self) -> None:
        crash, other = event("crash"), event("crash", agent="coder-2")

        assert fires("agent_crash_loop", crash, other, crash) == ()
        assert fires("agent_crash_loop", crash, other, crash, crash)

    def test_a_rule_of_a_task_counts_that_task(self) -> None:
        other = {**REVIEWED, "task": "task-2"}

        assert fires("rejected_3x", REVIEWED, other, REVIEWED) == ()
        assert fires("rejected_3x", REVIEWED, other, REVIEWED, REVIEWED)

    def test_a_silence_in_another_phase_is_another_silence(self) -> None:
        assert fires("no_signal", SILENCE, {**SILENCE, "phase": "DOCS"}) == ()

    def test_advice_does_not_break_the_silence_of_a_judge(self) -> None:
        advice = event("verdict", outcome="pass", phase="PLAN", fields={"kind": "agent", "mode": "advisory"})
        check = event("verdict", outcome="pass", phase="PLAN", fields={"kind": "command", "mode": "decide"})

        assert fires("no_signal", SILENCE, advice, check, SILENCE)

    def test_a_trade_off_is_debt_only_where_it_says_so(self) -> None:
        assert fires("debt_accumulation", *[anomaly("trade_off", debt=False)] * 5) == ()
        assert fires("debt_accumulation", anomaly("debt_created"), *[anomaly("trade_off", debt=True)] * 2)

    @pytest.mark.parametrize("rule", ["spec_gap_cluster", "external_service_outage"])
    def test_what_is_not_said_is_not_the_same(self, rule: str) -> None:
        """Absent never equals absent."""
        kind = "spec_gap" if rule == "spec_gap_cluster" else "external_blocker"

        assert fires(rule, *[anomaly(kind)] * 4) == ()

    def test_no_reason_is_not_the_same_reason(self) -> None:
        assert fires("same_reason_twice", *[decision("REVIEW", "revise")] * 2) == ()

    def test_the_same_reason_need_not_come_twice_in_a_row(self) -> None:
        other = decision("REVIEW", "revise", "no test covers the empty file")

        assert fires("same_reason_twice", REVIEWED, other) == ()
        assert fires("same_reason_twice", REVIEWED, other, REVIEWED)

    def test_a_limit_is_that_of_the_configuration(self) -> None:
        assert fires("rejected_3x", REVIEWED, limits=Limits(max_rejections=1))
        assert fires("assumption_budget", signal(assumptions=1), limits=Limits(assumption_budget=0))

    def test_all_look_at_the_same_snapshot_and_the_strongest_comes_last(self) -> None:
        """A pause does not hide an alert that the same event sets off."""
        watched = [CATALOGUE["five_loop_pause"], replace(CATALOGUE["stuck_cycle"], count=5)]

        found = fired_rules(watched, history(*[JUDGED] * 5), LIMITS)

        assert [one.action for one in found] == [RuleAction.ALERT, RuleAction.PAUSE]

    def test_the_order_of_actions(self) -> None:
        named = ["alert", "force_pass", "pause", "block", "stop"]

        assert [action for action in ACTION_ORDER if action in named] == named
        assert set(SEVERITY) == set(RuleAction)

    def test_nothing_happened_nothing_fires(self) -> None:
        assert fired_rules(CATALOGUE.values(), [], LIMITS) == ()

    def test_an_alert_is_told_by_any_event_that_is_new(self) -> None:
        events = history(JUDGED, JUDGED, JUDGED, event("clock"))

        assert fired_rules([CATALOGUE["stuck_cycle"]], events, LIMITS, new=1) == ()
        assert fired_rules([CATALOGUE["stuck_cycle"]], events, LIMITS, new=2)

    def test_a_name_for_several_stands_for_all_of_them(self) -> None:
        watched = {rule.name for rule in load_workflow("liza").watched_rules()}

        assert set(GROUPS["anomaly_patterns"]) < watched
        assert len(GROUPS["anomaly_patterns"]) == 6

    def test_the_evidence_says_what_was_seen(self) -> None:
        (found,) = fires("rejected_3x", *[REVIEWED] * 3)

        says = "work is rejected, by a gate or a reviewer: 3 of 3 that rejected_3x waits for"
        assert found.evidence[0] == says
        assert found.evidence[-1] == "2026-01-01T00:00:02Z: REVIEW revise the name lies"


SAME: Final = [
    ("The name lies.", "the  NAME lies"),
    ("Test missing in src/app.py:12", "test missing in src/app.py:97"),
    ("Line 12: unused import", "line 48: unused import"),
    ("3 tests fail", "5 tests fail"),
    ("1 test fails", "2 tests fail"),
    ("Commit 4f2a9c1 breaks the build", "commit 9b8e7d6a breaks the build!"),
    ("Missing test for empty input", "The test for the empty input is missing"),
    ("'src/app.py:3' is not covered", '"src/app.py:44" is not covered'),
    ("no test for the empty input", "there is still no test for empty input, please"),
    ("took 1.5s, too slow", "took 2.75s - too slow"),
]
OTHERS: Final = [
    ("missing tests for the parser", "missing tests for the lexer"),
    ("the name lies", "the loop is slow"),
    ("tests pass", "tests do not pass"),
    ("test_1 fails", "test_2 fails"),
    ("", ""),
    (None, None),
    (None, "x"),
    ("1", "2"),
]


class TestReasons:
    @pytest.mark.parametrize(("one", "other"), SAME)
    def test_the_same_in_other_words(self, one: str, other: str) -> None:
        assert are_similar(one, other)
        assert are_similar(other, one)

    @pytest.mark.parametrize(("one", "other"), OTHERS)
    def test_another(self, one: str | None, other: str | None) -> None:
        assert not are_similar(one, other)

    def test_marks_alone_are_the_same_only_if_they_are(self) -> None:
        assert are_similar("???", " ??? ")
        assert not are_similar("???", "!!!")

    def test_what_is_left_is_what_it_says(self) -> None:
        assert normalize("Line 12: Foo, at `a.py:7` (0xFF) — 3 TIMES") == "foo at a py times"

    def test_the_threshold_lets_one_word_in_four_differ(self) -> None:
        assert SIMILARITY == 0.75
        assert are_similar("alpha beta gamma", "alpha beta gamma delta")
        assert not are_similar("alpha beta gamma epsilon", "alpha beta gamma delta")


def rejected(*reasons: str | None, phase: str = "REVIEW") -> Task:
    made = tuple(
        Decision(phase=phase, outcome=Outcome.REVISE, at=START + n * MINUTE, reason=reason)
        for n, reason in enumerate(reasons)
    )
    return new_task("task-1").replace(decisions=made, created=START)


def rules_broken(task: Task, limits: Limits = LIMITS, now: datetime = START + 99 * MINUTE) -> list[str]:
    return [one.rule for one in broken_task_rules(load_workflow("liza"), task, limits, now)]


class TestTask:
    """What the board remembers of a task is enough to tell which rules it breaks."""

    def test_a_new_task_breaks_none(self) -> None:
        assert rules_broken(rejected()) == []

    def test_the_same_reason_twice(self) -> None:
        task = rejected("The name lies (line 3)", "the name lies, line 9")

        assert rules_broken(task) == ["same_reason_twice"]
        assert rules_broken(task, Limits(max_same_reason=3)) == []

    def test_three_rejections(self) -> None:
        assert rules_broken(rejected("no test", "bad name", "slow loop")) == ["rejected_3x"]

    def test_what_machines_send_back_is_a_rejection_and_an_iteration(self) -> None:
        """Every agent is told: whatever breaks the contract is sent back, and the third time blocked."""
        patient = Limits(max_rejections=99, max_same_reason=99)

        assert rules_broken(rejected("no test", "bad name", "no scope", phase="CODE")) == ["rejected_3x"]
        assert rules_broken(rejected("no tests", "no tests", phase="CODE")) == ["same_reason_twice"]
        assert rules_broken(rejected(*["red"] * 7, phase="CODE"), patient) == []
        assert rules_broken(rejected(*["red"] * 8, phase="CODE"), patient) == ["warn_iterations"]
        assert rules_broken(rejected(*["red"] * 9, phase="CODE"), patient) == []
        assert rules_broken(rejected(*["red"] * 10, phase="CODE"), patient) == ["coder_iterations"]

    def test_a_command_that_is_red_for_another_cause_was_tried_honestly(self) -> None:
        first, second = rejected("test is red", "test is red", phase="CODE").decisions

        def printing(*outputs: str) -> Task:
            both = (first.replace(output=outputs[0]), second.replace(output=outputs[1]))
            return rejected().replace(decisions=both)

        assert rules_broken(printing("one failed", "another failed")) == []
        assert rules_broken(printing("one failed", "one failed")) == ["same_reason_twice"]
        assert normalized_digest("test_a failed in 0.12s, line 3") == normalized_digest(
            "test_a failed in 1.5s, line 8"
        )
        assert normalized_digest("test_a failed in 0.12s") != normalized_digest("test_b failed in 0.12s")

    def test_what_does_not_merge_is_not_rejected(self) -> None:
        """Others were faster: that is counted, and says nothing against the work."""
        made = tuple(
            one.replace(is_merge=True) for one in rejected(*["red"] * 3, phase="INTEGRATE").decisions
        )

        assert rules_broken(rejected().replace(decisions=made)) == []

    def test_more_assumptions_than_the_budget_has(self) -> None:
        def assuming(number: int) -> Task:
            assumptions = tuple(f"assumption {n}" for n in range(number))
            return rejected().replace(checkpoint=Checkpoint(intent="x", assumptions=assumptions))

        assert rules_broken(assuming(5)) == []
        assert rules_broken(assuming(6)) == ["assumption_budget"]

    def test_attempts_without_progress(self) -> None:
        assert rules_broken(rejected("no test").replace(attempt=4)) == []
        assert rules_broken(rejected("no test").replace(attempt=5)) == ["no_progress"]

    def test_a_rule_that_the_workflow_does_not_name_watches_nothing(self) -> None:
        task = rejected("no test", "bad name", "slow loop")

        assert broken_task_rules(load_workflow("experiment"), task, LIMITS, START + 99 * MINUTE) == ()

    def test_what_has_not_happened_yet_does_not_count(self) -> None:
        task = rejected("no test", "bad name", "slow loop")

        assert rules_broken(task, now=START + MINUTE) == []

    def test_its_decisions_are_events(self) -> None:
        (told,) = task_events(rejected("no test"))

        assert (told.kind, told.phase, told.outcome) == (EventKind.DECISION, "REVIEW", Outcome.REVISE)
        assert (told.reason, told.task) == ("no test", "task-1")

    def test_time_alone_breaks_none_of_its_rules(self) -> None:
        """The clock is the supervisor's; a task is judged by what it did."""
        assert all(rule.mode is not CountMode.ELAPSED for rule in load_workflow("liza").watched_rules())
