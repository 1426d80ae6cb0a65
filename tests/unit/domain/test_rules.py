"""Each rule fires at its count and not before, starts anew where it says so, and counts what is stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from liza.domain import anomalies as a
from liza.domain.changes import with_anomaly
from liza.domain.config import Limits
from liza.domain.model import (
    Checkpoint,
    Decision,
    Evidence,
    HistoryEntry,
    Metrics,
    Note,
    Outcome,
    ReviewCounts,
    Risk,
    Role,
    Signal,
    SignalName,
    Sprint,
    State,
    Status,
    Task,
    Verdict,
    WorkerRecord,
)
from liza.domain.record import with_record
from liza.domain.rules import (
    ACTION_ORDER,
    ACTIONS,
    GROUPS,
    RULE_BY_NAME,
    RULES,
    SEVERITY,
    CountedEvent,
    EventKind,
    FiredRule,
    Rule,
    RuleAction,
    Subject,
    board_events,
    evaluate,
    task_events,
)
from liza.domain.similarity import normalized_digest
from liza.workflow.document import load_workflow
from tests.support.sample_tasks import NOW, board, new_task
from tests.support.workflow_script import MINUTE, START

LIMITS: Final = Limits()
SECOND: Final = timedelta(seconds=1)


def event(kind: EventKind, **facts: Any) -> CountedEvent:  # noqa: ANN401 - fields of an event
    return CountedEvent(kind, START, "", task="task-1", worker="coder-1")._replace(**facts)


def decision(phase: str, outcome: Outcome = Outcome.REVISE, reason: str | None = None) -> CountedEvent:
    return event(EventKind.DECISION, phase=phase, outcome=outcome, reason=reason)


def anomaly(kind: str, **facts: object) -> CountedEvent:
    return event(EventKind.ANOMALY, name=kind, fields=facts)


def signal(name: str, value: str | int, role: str | None = None) -> CountedEvent:
    return event(EventKind.SIGNAL, name=name, value=value, role=role)


REVIEWED: Final = decision("REVIEW", reason="the name lies")
JUDGED: Final = decision("JUDGE")
PERSON: Final = event(EventKind.HUMAN)
ASSIGNED: Final = event(EventKind.ASSIGN)
SILENCE: Final = event(EventKind.SILENCE, phase="PLAN")

# rule: what it counts, how many of them, what resets it (None where nothing does)
ROWS: Final[dict[str, tuple[CountedEvent, int, CountedEvent | None]]] = {
    "five_loop_pause": (JUDGED, 5, decision("JUDGE", Outcome.PASS)),
    "actor_fail_pause": (decision("ACT"), 5, decision("ACT", Outcome.PASS)),
    "stuck_cycle": (JUDGED, 3, PERSON),
    "high_risk_unapproved": (signal("risk", "high"), 1, event(EventKind.HUMAN, outcome=Outcome.PASS)),
    "low_confidence": (signal("confidence", 4, "judge"), 1, PERSON),
    "same_reason_twice": (REVIEWED, 2, ASSIGNED),
    "rejected_3x": (REVIEWED, 3, ASSIGNED),
    "warn_rejections": (REVIEWED, 2, ASSIGNED),
    "max_review_cycles": (REVIEWED, 5, ASSIGNED),
    "review_deadlock": (REVIEWED, 5, ASSIGNED),
    "warn_iterations": (decision("CODE"), 8, ASSIGNED),
    "assumption_budget": (event(EventKind.ASSUMPTION, weight=2), 3, None),
    "no_progress": (event(EventKind.ATTEMPT), 5, decision("CODE")),
    "no_signal": (SILENCE, 2, event(EventKind.VERDICT, outcome=Outcome.REVISE)),
    "test_failures": (signal("tests", "failed"), 3, signal("tests", "passed")),
    "dep_blocked": (event(EventKind.DEPENDENCY), 1, None),
    "crash_loop": (event(EventKind.CRASH), 3, None),
    "rubber_stamp": (event(EventKind.STAMP), 1, None),
    "retry_cluster": (anomaly("retry_loop", error_pattern="no route to db"), 3, None),
    "debt_accumulation": (anomaly("trade_off", debt=True), 3, None),
    "assumption_cascade": (anomaly("assumption_violated", assumption="ids are numbers"), 2, None),
    "workaround_pattern": (anomaly("workaround", root_cause="the parser drops lines"), 2, None),
    "spec_gap_cluster": (anomaly("spec_ambiguity", spec_ref="s.md#1"), 2, None),
    "external_service_outage": (anomaly("external_blocker", service="ci"), 2, None),
    "checkout_drift": (anomaly("checkout_drift", moved="HEAD"), 1, None),
    "rejected_edit": (anomaly("edit_rejected", file="x.yaml"), 1, None),
    "gate_broken": (anomaly("gate_broken", gate="test", command="pytest"), 1, None),
    "fruitless_attempts": (event(EventKind.FRUITLESS), 6, None),
    "agents_killed": (event(EventKind.KILLED), 18, None),
    "equal_failures": (event(EventKind.RED_GATE), 10, None),
    "hypothesis_exhaustion": (event(EventKind.FAILURE), 2, None),
}
CLOCKS: Final = {
    "cycle_duration": timedelta(minutes=30),
    "session_duration": timedelta(hours=2),
    "stale_checkpoint": timedelta(hours=8),
}


def history(*events: CountedEvent) -> list[CountedEvent]:
    """Return *events* a second apart."""
    return [one._replace(at=START + n * SECOND, id=str(n)) for n, one in enumerate(events)]


def fires(rule: str, *events: CountedEvent, limits: Limits = LIMITS) -> tuple[FiredRule, ...]:
    return evaluate([RULE_BY_NAME[rule]], history(*events), limits, START + MINUTE)


class TestTable:
    def test_every_row_is_tried_here_and_has_a_name_of_its_own(self) -> None:
        assert {*ROWS, *CLOCKS} == set(RULE_BY_NAME)
        assert len(RULE_BY_NAME) == len(RULES) == len(ROWS) + len(CLOCKS)

    @pytest.mark.parametrize("rule", ROWS)
    def test_it_fires_at_its_count_and_not_before(self, rule: str) -> None:
        match, count, _ = ROWS[rule]

        assert fires(rule, *[match] * (count - 1)) == ()
        (found,) = fires(rule, *[match] * count)
        assert (found.rule, found.action) == (rule, RULE_BY_NAME[rule].action)
        assert len(found.events) == count
        assert found.evidence

    @pytest.mark.parametrize("rule", [rule for rule, row in ROWS.items() if row[2]])
    def test_it_starts_anew_where_it_says_so(self, rule: str) -> None:
        match, count, reset = ROWS[rule]
        assert reset is not None

        assert bool(fires(rule, *[match] * (count - 1), reset, match)) is (count == 1)
        assert fires(rule, *[match] * count, reset) == ()

    @pytest.mark.parametrize("rule", ROWS)
    def test_what_it_fired_on_counts_no_more(self, rule: str) -> None:
        match, count, _ = ROWS[rule]
        events = history(*[match] * (2 * count))
        seen = {rule: {one.id for one in events[:count]}}
        row = [RULE_BY_NAME[rule]]

        assert evaluate(row, events[: 2 * count - 1], LIMITS, START, seen) == ()
        assert len(evaluate(row, events, LIMITS, START, seen)) == 1

    @pytest.mark.parametrize("rule", CLOCKS)
    def test_time_runs_from_the_first_event_and_it_fires_once_a_window(self, rule: str) -> None:
        row, window = RULE_BY_NAME[rule], CLOCKS[rule]
        begun = CountedEvent(EventKind.CLOCK, START, "it", name=next(iter(row.counts.names)))

        assert evaluate([row], [begun], LIMITS, START + window - SECOND) == ()
        (first,) = evaluate([row], [begun], LIMITS, START + window)
        seen = {rule: {one.id for one in first.events}}
        assert evaluate([row], [begun], LIMITS, START + 2 * window - SECOND, seen) == ()
        assert len(evaluate([row], [begun], LIMITS, START + 2 * window, seen)) == 1

    def test_time_runs_from_the_last_word_of_a_person(self) -> None:
        row, half = [RULE_BY_NAME["cycle_duration"]], timedelta(minutes=20)
        begun = CountedEvent(EventKind.CLOCK, START, "goal", name="goal")
        person = CountedEvent(EventKind.HUMAN, START + half, "note-1")

        assert len(evaluate(row, [begun], LIMITS, START + 2 * half)) == 1
        assert evaluate(row, [begun, person], LIMITS, START + 2 * half) == ()

    def test_crashes_count_only_close_together_and_by_worker(self) -> None:
        crash, other = event(EventKind.CRASH), event(EventKind.CRASH, worker="coder-2")
        apart = [crash._replace(at=START + n * timedelta(minutes=3), id=str(n)) for n in range(9)]

        assert evaluate([RULE_BY_NAME["crash_loop"]], apart, LIMITS, START) == ()
        assert fires("crash_loop", crash, other, crash) == ()
        assert fires("crash_loop", crash, other, crash, crash)

    def test_a_rule_of_a_task_counts_that_task(self) -> None:
        other = REVIEWED._replace(task="task-2")

        assert fires("rejected_3x", REVIEWED, other, REVIEWED) == ()
        assert fires("rejected_3x", REVIEWED, other, REVIEWED, REVIEWED)

    def test_a_silence_in_another_phase_is_another_silence(self) -> None:
        assert fires("no_signal", SILENCE, SILENCE._replace(phase="DOCS")) == ()

    def test_a_trade_off_is_debt_only_where_it_says_so(self) -> None:
        assert fires("debt_accumulation", *[anomaly("trade_off", debt=False)] * 5) == ()
        assert fires("debt_accumulation", anomaly("debt_created"), *[anomaly("trade_off", debt=True)] * 2)

    @pytest.mark.parametrize("rule", ["spec_gap_cluster", "external_service_outage"])
    def test_what_is_not_said_is_not_the_same(self, rule: str) -> None:
        """Absent never equals absent."""
        kind = "spec_gap" if rule == "spec_gap_cluster" else "external_blocker"

        assert fires(rule, *[anomaly(kind)] * 4) == ()

    def test_no_reason_is_not_the_same_reason(self) -> None:
        assert fires("same_reason_twice", *[decision("REVIEW")] * 2) == ()

    def test_the_same_reason_need_not_come_twice_in_a_row(self) -> None:
        other = decision("REVIEW", reason="no test covers the empty file")

        assert fires("same_reason_twice", REVIEWED, other) == ()
        assert fires("same_reason_twice", REVIEWED, other, REVIEWED)

    def test_a_limit_is_that_of_the_configuration(self) -> None:
        assert fires("rejected_3x", REVIEWED, limits=Limits(max_rejections=1))
        assumed = event(EventKind.ASSUMPTION)
        assert fires("assumption_budget", assumed, limits=Limits(assumption_budget=0))

    def test_a_warning_comes_before_what_it_warns_of_and_never_where_there_is_no_before(self) -> None:
        assert [one.rule for one in fires("warn_rejections", REVIEWED, REVIEWED)] == ["warn_rejections"]
        assert fires("warn_rejections", REVIEWED, limits=Limits(max_rejections=1)) == ()
        assert fires("warn_iterations", REVIEWED, limits=Limits(max_coder_iterations=2)) == ()

    def test_all_look_at_the_same_events_and_the_strongest_comes_last(self) -> None:
        """A pause does not hide an alert that the same event sets off."""
        watched = [RULE_BY_NAME["five_loop_pause"], RULE_BY_NAME["stuck_cycle"]]

        found = evaluate(watched, history(*[JUDGED] * 5), LIMITS, START)

        assert [one.action for one in found] == [RuleAction.ALERT, RuleAction.PAUSE]

    def test_the_order_of_actions(self) -> None:
        named = ["alert", "force_pass", "pause", "block", "stop"]

        assert [action for action in ACTION_ORDER if action in named] == named
        assert set(SEVERITY) == set(RuleAction)
        assert set(ACTIONS) == set(Subject)

    def test_nothing_happened_nothing_fires(self) -> None:
        assert evaluate(RULES, [], LIMITS, START) == ()

    def test_a_name_for_several_stands_for_all_of_them(self) -> None:
        watched = {rule.name for rule in load_workflow("liza").watched_rules()}

        assert set(GROUPS["anomaly_patterns"]) < watched
        assert len(GROUPS["anomaly_patterns"]) == 6

    def test_the_evidence_says_what_was_seen(self) -> None:
        (found,) = fires("rejected_3x", *[REVIEWED] * 3)

        says = "work is rejected, by a gate or a reviewer: 3 of 3 that rejected_3x waits for"
        assert found.evidence[0] == says
        assert found.evidence[-1] == "2026-01-01T00:00:02Z: REVIEW revise the name lies"


def eventful_task() -> Task:
    """Return a task to which everything happened that rules count."""
    phases = ("CODE", "REVIEW", "JUDGE", "ACT")
    asked = Verdict(
        gate="review", outcome=Outcome.REVISE, at=START, confidence=3, evidence=Evidence(run="reviewer-1.x")
    )
    said = (
        Signal(name=SignalName.TESTS, value="failed", at=START),
        Signal(name=SignalName.TESTS, value="passed", at=START),
        Signal(name=SignalName.SILENCE, phase="REVIEW", at=START),
    )
    entries = [("fail", Role.CODER), ("approve", Role.HUMAN)]
    return new_task("task-1").replace(
        authors=("coder-1",),
        attempt=1,
        failed_by=("coder-1",),
        depends_on=("task-2",),
        checkpoint=Checkpoint(intent="x", assumptions=("y",), risk_level=Risk.HIGH),
        signals=(*said, *asked.signals()),
        decisions=tuple(
            Decision(phase=phase, outcome=outcome, at=START)
            for phase in phases
            for outcome in (Outcome.REVISE, Outcome.PASS)
        ),
        history=tuple(
            HistoryEntry(at=START, event=name, by="x", role=role, source=Status.IDLE, target=Status.IDLE)
            for name, role in entries
        ),
    )


def eventful_board() -> State:
    """Return a board on which everything happened that rules count."""
    other = new_task("task-2").replace(status=Status.BLOCKED, blocked_reason="x")
    counts = Metrics(
        fruitless=("t#1",),
        killed=("t#2",),
        red_gates=("t#3 x",),
        reviews={"reviewer-1": ReviewCounts(approved=12, first_seen=12, first_approved=12)},
    )
    state = board(eventful_task(), other, sprint=Sprint(metrics=counts))
    for details in (
        *(a.RetryLoop(error_pattern="x", count=1), a.DebtCreated(what="x", why="y")),
        *(a.AssumptionViolated(assumption="x", reality="y"), a.Workaround(what="x", root_cause="y")),
        *(a.SpecGap(spec_ref="x", missing="y"), a.ExternalBlocker(service="x", symptom="y")),
        *(a.CheckoutDrift(moved=("x",)), a.RejectedEdit(file="x", problems=("y",))),
        a.GateBroken(gate="x", command="y", cause="z", likely="?"),
    ):
        state = with_anomaly(state, details, about="task-1", by="coder-1", at=NOW)
    worker = WorkerRecord(id="coder-1", role=Role.CODER, since=NOW, crashes=(NOW,))
    note = Note(id="note-1", timestamp=NOW, message="x", about="task-1")
    return state.replace(agents=with_record({}, worker), human_notes=with_record({}, note))


class TestEvents:
    STATE: Final = eventful_board()
    EVENTS: Final = (
        *task_events(STATE, STATE.task("task-1")),
        *board_events(STATE, NOW, checkpoint=NOW),
    )

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
    def test_what_a_row_counts_and_what_resets_it_comes_from_the_board(self, rule: Rule) -> None:
        for pattern in (rule.counts, *rule.reset):
            assert any(pattern.matches(one) for one in self.EVENTS), pattern

    def test_every_kind_of_event_is_one_that_a_row_asks_for(self) -> None:
        asked = {pattern.kind for rule in RULES for pattern in (rule.counts, *rule.reset)}

        assert asked == set(EventKind) == {one.kind for one in self.EVENTS}

    def test_every_event_has_an_id_of_its_own_within_its_kind(self) -> None:
        named = [(one.kind, one.id) for one in self.EVENTS if one.kind is EventKind.ANOMALY]

        assert len(set(named)) == len(named) == 9


def rejected(*reasons: str | None, phase: str = "REVIEW") -> Task:
    made = tuple(
        Decision(phase=phase, outcome=Outcome.REVISE, at=START + n * MINUTE, reason=reason)
        for n, reason in enumerate(reasons)
    )
    return new_task("task-1").replace(decisions=made, created=START)


def rules_broken(task: Task, limits: Limits = LIMITS, now: datetime = START + 99 * MINUTE) -> list[str]:
    rules = [rule for rule in load_workflow("liza").watched_rules() if rule.subject is Subject.TASK]
    events = [one for one in task_events(board(task), task) if one.at <= now]
    return [one.rule for one in evaluate(rules, events, limits, now)]


class TestTask:
    """What the board remembers of a task is enough to tell which rules it breaks."""

    def test_a_new_task_breaks_none(self) -> None:
        assert rules_broken(rejected()) == []

    def test_the_same_reason_twice(self) -> None:
        task = rejected("The name lies (line 3)", "the name lies, line 9")

        assert rules_broken(task) == ["warn_rejections", "same_reason_twice"]
        assert rules_broken(task, Limits(max_same_reason=3)) == ["warn_rejections"]

    def test_three_rejections(self) -> None:
        assert rules_broken(rejected("no test", "bad name", "slow loop"))[-1] == "rejected_3x"

    def test_what_machines_send_back_is_a_rejection_and_an_iteration(self) -> None:
        """Every agent is told: whatever breaks the contract is sent back, and the third time blocked."""
        patient = Limits(max_rejections=99, max_same_reason=99)

        assert rules_broken(rejected("no test", "bad name", "no scope", phase="CODE"))[-1] == "rejected_3x"
        assert rules_broken(rejected("no tests", "no tests", phase="CODE"))[-1] == "same_reason_twice"
        assert rules_broken(rejected(*["red"] * 7, phase="CODE"), patient) == []
        assert rules_broken(rejected(*["red"] * 8, phase="CODE"), patient) == ["warn_iterations"]

    def test_a_command_that_is_red_for_another_cause_was_tried_honestly(self) -> None:
        first, second = rejected("test is red", "test is red", phase="CODE").decisions

        def printing(*outputs: str) -> Task:
            both = (first.replace(output=outputs[0]), second.replace(output=outputs[1]))
            return rejected().replace(decisions=both)

        assert "same_reason_twice" not in rules_broken(printing("one failed", "another failed"))
        assert "same_reason_twice" in rules_broken(printing("one failed", "one failed"))
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
        named = {rule.name for rule in load_workflow("experiment").watched_rules()}

        assert named == {rule.name for rule in RULES if rule.always}

    def test_what_has_not_happened_yet_does_not_count(self) -> None:
        task = rejected("no test", "bad name", "slow loop")

        assert "rejected_3x" not in rules_broken(task, now=START + MINUTE)
