"""What always holds of a board: every rule is broken once, and is the only one to notice."""

import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import pytest

from liza.board.journal import diff_states
from liza.domain import lifecycle as e
from liza.domain.anomalies import Anomaly, RetryLoop
from liza.domain.changes import (
    BOARD_RULES,
    DIFF_CHECKS,
    HUMAN,
    MOST_CYCLES,
    TASK_CHECKS,
    StateDiff,
    diff_violations,
    task_violations,
    violations,
)
from liza.domain.lifecycle import REQUIRES, TERMINAL, Requirement, unmet_requirements
from liza.domain.model import (
    KEYED_SECTIONS,
    BreakerStatus,
    CircuitBreaker,
    Discovery,
    Goal,
    GoalStatus,
    Handoff,
    HistoryEntry,
    Note,
    Position,
    Role,
    Sprint,
    Stage,
    State,
    Status,
    Taint,
    Task,
    Trip,
)
from liza.domain.record import records_by_id
from liza.errors import Violation
from tests.support.sample_tasks import (
    BASE,
    CODER,
    HOUR,
    MERGE,
    NOW,
    OTHER_CODER,
    REVIEWER,
    SECOND,
    WORK,
    board,
    claim,
    commit,
    lease_of,
    new_task,
    reject,
    submit,
    take_review,
    task_in,
    walked,
    worker,
)

Mutation = Callable[[State], State]
FINISHED = {"t0": Status.MERGED}


def trip(name: str, **fields: Any) -> Trip:  # noqa: ANN401 - whatever a trip may say
    return Trip(id=name, rule="retry_cluster", severity="high", at=NOW).replace(**fields)


def goal(status: GoalStatus) -> Goal:
    return Goal(description="say hello", created=NOW, status=status)


def busy_board() -> State:
    """Return a valid board with something of everything on it."""
    return board(
        task_in(Status.MERGED, name="t1"),
        walked(new_task("t2", depends_on=("t1", "t0")), claim()),
        walked(new_task("t3"), claim(OTHER_CODER), submit(OTHER_CODER), take_review()),
        new_task("t4", depends_on=("t2",)),
        new_task("t5", status=Status.DRAFT, depends_on=("t4", "t3")),
        task_in(Status.BLOCKED, ready_for=e.Answer, name="t6"),
        walked(new_task("t7"), (e.Supersede(superseded_by=("t4",), rescope_reason="too big"), HUMAN)),
        human_notes=records_by_id([Note(id="note-1", timestamp=NOW, message="use blue", about="t4")]),
        anomalies=records_by_id([anomaly()]),
        discovered=records_by_id(
            [
                Discovery(
                    id="found-1", description="a leak", discovered_by="coder-1", task_id="t2", timestamp=NOW
                )
            ]
        ),
        handoff=records_by_id([Handoff(id="t2", agent="coder-1", timestamp=NOW, summary="half done")]),
        sprint=Sprint(tasks=("t1", "t2")),
        circuit_breaker=CircuitBreaker(
            status=BreakerStatus.TRIPPED, trips=(trip("trip-1", resolved_at=NOW), trip("trip-2"))
        ),
        archived=FINISHED,
    )


def anomaly() -> Anomaly:
    details = RetryLoop(error_pattern="ImportError", count=3)
    return Anomaly(
        id="anomaly-1",
        type="retry_loop",
        task_id="t2",
        logged_by="coder-1",
        timestamp=NOW,
        details=details,
    )


def with_task(name: str, **fields: Any) -> Mutation:  # noqa: ANN401 - whatever a task may hold
    return lambda state: state.with_task(state.tasks[name].replace(**fields))


def with_entry(name: str, number: int, **fields: Any) -> Mutation:  # noqa: ANN401 - as above
    def mutate(state: State) -> State:
        history = list(state.tasks[name].history)
        history[number] = history[number].replace(**fields)
        return state.with_task(state.tasks[name].replace(history=tuple(history)))

    return mutate


def with_record(section: str, name: str, **fields: Any) -> Mutation:  # noqa: ANN401 - as above
    def mutate(state: State) -> State:
        records = getattr(state, section)
        return state.replace(**{section: {**records, name: records[name].replace(**fields)}})

    return mutate


def with_section(section: str, value: object) -> Mutation:
    return lambda state: state.replace(**{section: value})


def without(section: str, name: str) -> Mutation:
    return lambda state: state.replace(
        **{section: {key: record for key, record in getattr(state, section).items() if key != name}}
    )


def without_tasks(state: State) -> State:
    return state.replace(
        **{section: {} for section in KEYED_SECTIONS},
        sprint=Sprint(),
        archived={},
    )


def both(*mutations: Mutation) -> Mutation:
    def mutate(state: State) -> State:
        for mutation in mutations:
            state = mutation(state)
        return state

    return mutate


class Case(NamedTuple):
    check: str  # the one rule that notices
    mutation: Mutation
    path: str
    words: str

    def is_told_by(self, violation: Violation) -> bool:
        return violation.path == self.path and self.words in violation.problem


_FIRST_ENTRY = HistoryEntry(
    at=NOW, event="ready", by="human", role=Role.HUMAN, source=Status.DRAFT, target=Status.IDLE
)

TASK_CASES = [
    Case("_keeps_promises", with_task("t2", lease=None), "tasks.t2.lease", "WORKING is leased to the coder"),
    Case(
        "_judged_by_another",
        with_task("t6", approved_by="coder-1"),
        "tasks.t6.approved_by",
        "coder-1 wrote this and approved it",
    ),
    Case(
        "_depends_sensibly", with_task("t4", depends_on=("t4",)), "tasks.t4.depends_on", "it waits for itself"
    ),
    Case(
        "_depends_sensibly",
        with_task("t4", depends_on=("t2", "t3", "t2")),
        "tasks.t4.depends_on",
        "a dependency is named twice",
    ),
    Case(
        "_depends_sensibly",
        with_task("t7", superseded_by=("t4", "t7")),
        "tasks.t7.superseded_by",
        "it replaces itself",
    ),
    Case(
        "_counts_add_up",
        with_task("t2", review_cycles_current=3, review_cycles_total=2),
        "tasks.t2.review_cycles_current",
        "3 cycles of 2 in all",
    ),
    Case("_history_tells_the_status", with_task("t4", history=()), "tasks.t4.history", "there is none"),
    Case(
        "_history_tells_the_status",
        with_task("t4", history=(_FIRST_ENTRY,)),
        "tasks.t4.history[0]",
        "it begins with 'ready', not with 'added'",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t3", 1, role=Role.REVIEWER),
        "tasks.t3.history[1]",
        "no row of the lifecycle allows claim from IDLE to WORKING by a reviewer",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t3", 1, target=Status.APPROVED),
        "tasks.t3.history[1]",
        "no row of the lifecycle allows claim from IDLE to APPROVED by a coder",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t3", 1, event="sing"),
        "tasks.t3.history[1]",
        "no row of the lifecycle allows sing from IDLE to WORKING",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t4", 0, role=Role.CODER),
        "tasks.t4.history[0]",
        "no row of the lifecycle allows added from None to IDLE by a coder",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t3", 1, source=Status.REJECTED),
        "tasks.t3.history[1]",
        "it does not follow from the entry before it",
    ),
    Case(
        "_history_tells_the_status",
        with_entry("t3", 1, at=NOW - HOUR),
        "tasks.t3.history[1]",
        "it does not follow from the entry before it",
    ),
    Case(
        "_history_tells_the_status",
        with_task("t4", status=Status.DRAFT),
        "tasks.t4.status",
        "it says DRAFT, but its history ends in IDLE",
    ),
    Case("_position_has_its_label", with_task("t4", position=None), "tasks.t4.position", "there is none"),
    Case(
        "_position_has_its_label",
        with_task("t4", position=Position(phase="REVIEW", stage=Stage.JUDGE)),
        "tasks.t4.status",
        "it says IDLE, but its position in the workflow is that of a task that is READY_FOR_REVIEW",
    ),
]

BOARD_CASES = [
    Case(
        "_ids_are_unique",
        lambda state: state.with_task(new_task("T4")),
        "tasks.T4.id",
        "the id 'T4' differs from 't4' only in case",
    ),
    Case(
        "_ids_are_unique",
        with_section("archived", {**FINISHED, "t4": Status.MERGED}),
        "tasks.t4.id",
        "the id 't4' is used twice, here and in the archive",
    ),
    Case(
        "_dependencies_exist",
        with_task("t4", depends_on=("t2", "t22")),
        "tasks.t4.depends_on",
        "there is no task 't22'",
    ),
    Case("_dependencies_exist", with_section("archived", {}), "tasks.t2.depends_on", "there is no task 't0'"),
    Case(
        "_dependencies_have_no_cycle",
        with_task("t3", depends_on=("t5",)),
        "tasks.t3.depends_on",
        "t3 waits for t5 waits for t3: a cycle",
    ),
    Case(
        "_one_task_a_holder",
        with_task("t3", lease=lease_of(CODER).replace(token="another")),  # noqa: S106
        "tasks.t3.lease",
        "coder-1 holds t2 as well",
    ),
    Case(
        "_one_task_a_holder",
        with_task("t3", lease=lease_of(REVIEWER.replace(token=CODER.token))),
        "tasks.t3.lease.token",
        "it is the token of t2",
    ),
    Case(
        "_work_waits_its_turn",
        with_task("t2", depends_on=("t1", "t3")),
        "tasks.t2.depends_on",
        "it is WORKING while t3 is READY_FOR_REVIEW",
    ),
    Case(
        "_work_waits_its_turn",
        with_section("archived", {"t0": Status.ABANDONED}),
        "tasks.t2.depends_on",
        "it is WORKING while t0 is ABANDONED",
    ),
    Case(
        "_one_merge_a_task",
        lambda state: state.with_task(task_in(Status.MERGED, name="t8")),
        "tasks.t8.merge_commit",
        "it is the merge of t1",
    ),
    *(
        Case("_named_tasks_exist", mutation, path, "there is no task 't9'")
        for mutation, path in [
            (with_task("t7", superseded_by=("t9",)), "tasks.t7.superseded_by"),
            (with_record("human_notes", "note-1", about="t9"), "human_notes.note-1.for"),
            (with_record("anomalies", "anomaly-1", task_id="t9"), "anomalies.anomaly-1.task_id"),
            (with_record("discovered", "found-1", task_id="t9"), "discovered.found-1.task_id"),
            (with_record("discovered", "found-1", became_task="t9"), "discovered.found-1.became_task"),
            (
                with_section(
                    "handoff", records_by_id([Handoff(id="t9", agent="a", timestamp=NOW, summary="s")])
                ),
                "handoff.t9.id",
            ),
            (with_section("sprint", Sprint(tasks=("t1", "t9"))), "sprint.tasks"),
        ]
    ),
    Case(
        "_notes_are_marked_whole",
        with_record("human_notes", "note-1", processed=NOW),
        "human_notes.note-1.processed",
        "it says when or by whom, but not both",
    ),
    Case(
        "_notes_are_marked_whole",
        with_record("human_notes", "note-1", processed_by="planner-1"),
        "human_notes.note-1.processed",
        "it says when or by whom, but not both",
    ),
    Case(
        "_goal_is_truly_complete",
        with_section("goal", goal(GoalStatus.COMPLETE)),
        "goal.status",
        "it says COMPLETE, but t2, t3, t4 is not finished",
    ),
    Case(
        "_goal_is_truly_complete",
        both(without_tasks, with_section("goal", goal(GoalStatus.COMPLETE))),
        "goal.status",
        "it says COMPLETE, but nothing was done",
    ),
    Case(
        "_goal_is_truly_complete",
        both(
            without_tasks,
            with_section("tasks", records_by_id([task_in(Status.ABANDONED)])),
            with_section("goal", goal(GoalStatus.COMPLETE)),
        ),
        "goal.status",
        "it says COMPLETE, but nothing was done",
    ),
    Case(
        "_breaker_says_its_trips",
        with_section("circuit_breaker", CircuitBreaker(trips=(trip("trip-1"),))),
        "circuit_breaker.status",
        "it says OK, but a trip is not resolved",
    ),
    Case(
        "_breaker_says_its_trips",
        with_section("circuit_breaker", CircuitBreaker(status=BreakerStatus.TRIPPED)),
        "circuit_breaker.status",
        "it says TRIPPED, but no trip is open",
    ),
    Case(
        "_breaker_says_its_trips",
        with_section(
            "circuit_breaker",
            CircuitBreaker(status=BreakerStatus.TRIPPED, trips=(trip("trip-1"), trip("trip-1"))),
        ),
        "circuit_breaker.trips[1].id",
        "it is the id of trip 0",
    ),
]

STEP_CASES = [
    Case(
        "_history_only_grows",
        with_entry("t3", 1, facts={}),
        "tasks.t3.history",
        "an entry was changed or removed",
    ),
    Case(
        "_history_only_grows",
        lambda state: state.with_task(state.tasks["t3"].replace(history=state.tasks["t3"].history[:-1])),
        "tasks.t3.history",
        "an entry was changed or removed",
    ),
    Case(
        "_history_only_grows",
        with_task("t3", history_earlier=2),
        "tasks.t3.history",
        "an entry was changed or removed",
    ),
    Case(
        "_status_moves_by_the_table",
        with_task("t4", status=Status.DRAFT),
        "tasks.t4.status",
        "IDLE became DRAFT without an event",
    ),
    Case(
        "_status_moves_by_the_table",
        with_task("t1", status=Status.IDLE),
        "tasks.t1.status",
        "MERGED is final",
    ),
    Case(
        "_status_moves_by_the_table",
        lambda state: with_task("t1", history=(*state.tasks["t1"].history, _FIRST_ENTRY))(state),
        "tasks.t1.status",
        "MERGED is final",
    ),
    Case(
        "_new_tasks_begin",
        lambda state: state.with_task(
            task_in(Status.APPROVED, name="t8").replace(
                history=task_in(Status.APPROVED).history[-1:], history_earlier=4
            )
        ),
        "tasks.t8.history",
        "a new task begins with its adding",
    ),
    Case(
        "_totals_never_fall",
        lambda state: with_task("t6", review_cycles_total=state.tasks["t6"].review_cycles_total - 1)(state),
        "tasks.t6.review_cycles_total",
        "it was lowered",
    ),
    Case(
        "_totals_never_fall",
        with_task("t3", authors=("coder-9",)),
        "tasks.t3.authors",
        "an author was removed",
    ),
    *(
        Case("_new_tasks_begin", mutation, "tasks.t8.history", "a new task begins with its adding")
        for mutation in [
            lambda state: state.with_task(new_task("t8").replace(history_earlier=4)),
            lambda state: state.with_task(new_task("t8").replace(history=())),
            lambda state: state.with_task(new_task("t8").replace(history=(_FIRST_ENTRY,))),
        ]
    ),
    Case(
        "_status_moves_by_the_table", with_task("t1", merge_commit=WORK), "tasks.t1.status", "MERGED is final"
    ),
    Case("_nothing_vanishes", without("tasks", "t5"), "tasks.t5", "it was removed"),
    Case(
        "_nothing_vanishes",
        both(without("tasks", "t5"), with_section("archived", {**FINISHED, "t5": Status.DRAFT})),
        "tasks.t5",
        "it was removed",
    ),
    Case("_nothing_vanishes", without("tasks", "t1"), "tasks.t1", "it was removed"),
    Case(
        "_nothing_vanishes",
        both(without("tasks", "t5"), with_section("archived", {**FINISHED, "t5": Status.MERGED})),
        "tasks.t5",
        "it was removed",
    ),
    *(
        Case("_nothing_vanishes", without(section, name), f"{section}.{name}", "it was removed")
        for section, name in [
            ("human_notes", "note-1"),
            ("anomalies", "anomaly-1"),
            ("discovered", "found-1"),
        ]
    ),
    Case("_nothing_vanishes", with_section("archived", {}), "archived.t0", "it was changed"),
    Case(
        "_nothing_vanishes",
        with_section("archived", {"t0": Status.ABANDONED}),
        "archived.t0",
        "it was changed",
    ),
    Case(
        "_trips_stay",
        with_section("circuit_breaker", CircuitBreaker()),
        "circuit_breaker.trips.trip-1",
        "it was removed",
    ),
]


def of_state(state: State) -> Iterator[tuple[str, Violation]]:
    """Yield every violation with the name of the check that told it."""
    for check in TASK_CHECKS:
        for task in state.tasks.values():
            yield from ((check.__name__, violation) for violation in check(task))
    for rule in BOARD_RULES:
        yield from ((rule.find.__name__, violation) for violation in rule.find(state))


def of_step(step: StateDiff) -> Iterator[tuple[str, Violation]]:
    for check in DIFF_CHECKS:
        yield from ((check.__name__, violation) for violation in check(step))


def for_cases(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: f"{case.check} {case.path}")


class TestEveryRule:
    @for_cases(TASK_CASES + BOARD_CASES)
    def test_a_broken_board_is_told_by_exactly_one_rule(self, case: Case) -> None:
        """Without the rule, nobody would notice."""
        state = case.mutation(busy_board())

        assert {name for name, violation in of_state(state) if case.is_told_by(violation)} == {case.check}
        assert any(map(case.is_told_by, violations(state)))

    @for_cases(TASK_CASES + BOARD_CASES)
    def test_an_update_that_breaks_the_board_is_told_as_well(self, case: Case) -> None:
        """An update runs only the rules that read what it changed; they are the ones that matter."""
        state = busy_board()

        assert any(map(case.is_told_by, diff_violations(diff_states(state, case.mutation(state)))))

    @for_cases(STEP_CASES)
    def test_a_wrong_step_is_told_by_exactly_one_rule(self, case: Case) -> None:
        state = busy_board().with_task(
            walked(new_task("t6"), claim(), submit(), take_review(), *REJECTED_AND_BLOCKED)
        )
        assert violations(state) == []

        step = diff_states(state, case.mutation(state))

        assert {name for name, violation in of_step(step) if case.is_told_by(violation)} == {case.check}
        assert any(map(case.is_told_by, diff_violations(step)))

    def test_no_rule_is_left_out(self) -> None:
        checks = [*TASK_CHECKS, *(rule.find for rule in BOARD_RULES), *DIFF_CHECKS]

        assert {case.check for case in TASK_CASES + BOARD_CASES + STEP_CASES} == {
            check.__name__ for check in checks
        }

    def test_every_rule_says_in_a_sentence_what_holds(self) -> None:
        """People read it in specs/board.md."""
        checks = [*TASK_CHECKS, *(rule.find for rule in BOARD_RULES), *DIFF_CHECKS]

        assert [check.__name__ for check in checks if not (check.__doc__ or "").endswith(".")] == []

    def test_a_board_that_keeps_all_of_them_is_valid(self) -> None:
        assert violations(busy_board()) == []

    def test_a_goal_is_complete_when_its_tasks_are(self) -> None:
        over = [task_in(status, name=f"t{number}") for number, status in enumerate(sorted(TERMINAL))]

        assert violations(board(*over, goal=goal(GoalStatus.COMPLETE))) == []
        assert violations(board(archived=FINISHED, goal=goal(GoalStatus.COMPLETE))) == []

    def test_a_history_that_is_shown_in_part_is_in_order(self) -> None:
        assert violations(board(task_in(Status.MERGED).with_recent_history())) == []


REJECTED_AND_BLOCKED = (
    (reject(reason="no")[0], REVIEWER),
    (e.Block(reason="why", questions=("Why?",)), HUMAN),
)


class TestReports:
    def test_everything_that_is_wrong_is_told_at_once(self) -> None:
        """Whoever mends a file by hand wants one list, not one surprise after another."""
        cases = [
            TASK_CASES[0],
            TASK_CASES[1],
            *(case for case in BOARD_CASES if case.check == "_named_tasks_exist"),
            next(case for case in BOARD_CASES if case.check == "_breaker_says_its_trips"),
        ]
        state = both(*(case.mutation for case in cases))(busy_board())

        found = violations(state)

        assert [case for case in cases if not any(map(case.is_told_by, found))] == []

    def test_every_cycle_is_told(self) -> None:
        pairs = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "a"}
        state = board(*(new_task(name, depends_on=(other,)) for name, other in pairs.items()))

        assert [violation.problem for violation in violations(state)] == [
            "a waits for b waits for a: a cycle",
            "c waits for d waits for c: a cycle",
        ]

    def test_a_board_full_of_cycles_is_told_at_a_limit(self) -> None:
        """Looking for the next one costs as much as for the first, and nobody reads a thousand."""
        names = [f"{number}-{side}" for number in range(30) for side in "ab"]
        other = {"a": "b", "b": "a"}
        state = board(*(new_task(name, depends_on=(name[:-1] + other[name[-1]],)) for name in names))

        assert len(violations(state)) == MOST_CYCLES

    def test_a_task_that_waits_for_itself_is_told_once(self) -> None:
        assert [violation.problem for violation in violations(board(new_task(depends_on=("t1",))))] == [
            "it waits for itself"
        ]

    def test_a_missing_dependency_of_work_is_told_once(self) -> None:
        state = board(walked(new_task(depends_on=("t9",)), claim()))

        assert [violation.problem for violation in violations(state)] == ["there is no task 't9'"]

    def test_a_violation_is_a_sentence_with_a_place_and_a_way_out(self) -> None:
        (violation,) = violations(board(new_task(depends_on=("t9",))))

        assert str(violation) == (
            "tasks.t1.depends_on: there is no task 't9'; add it, or remove the dependency"
        )
        assert str(violation._replace(line=7)).startswith("line 7: tasks.t1.depends_on: ")

    def test_absent_does_not_equal_absent(self) -> None:
        """Tasks without a lease, a merge or a successor have nothing in common that could clash."""
        assert violations(board(*(new_task(f"t{number}") for number in range(3)))) == []


def breaking(task: Task) -> Mapping[str, list[dict[str, Any]]]:
    """Return, by what a promise says, the changes of *task* that break it."""
    return {
        "is leased to the coder it is assigned to": [{"lease": None}, {"assigned_to": "coder-9"}],
        "is held by nobody": [{"lease": lease_of(REVIEWER)}],
        "is held by nobody but a reviewer who did not write it": [{"lease": lease_of(CODER)}],
        "has a base_commit": [{"base_commit": None}],
        "counts its iteration and attempt from 1": [{"iteration": 0}, {"attempt": 0}],
        "names its author": [{"authors": ()}],
        "has a review_commit that is not its base, unless there is nothing to do, or words are all of it": [
            {"review_commit": None},
            {"review_commit": WORK if task.nothing_to_do else BASE},
            {"nothing_to_do": None if task.nothing_to_do else "nothing"},
        ],
        "has no review_commit that is its base, unless it says there is nothing to do": [
            {"review_commit": WORK if task.nothing_to_do else BASE}
        ],
        "has an approved_by who is none of its authors": [{"approved_by": None}, {"approved_by": "coder-1"}],
        "has a rejection_reason and rejection_feedback": [
            {"rejection_reason": None},
            {"rejection_feedback": ()},
        ],
        "has a blocked_reason and one to three blocked_questions": [
            {"blocked_reason": None},
            {"blocked_questions": ()},
            {"blocked_questions": ("1?", "2?", "3?", "4?")},
        ],
        "has an integration_failure with its reason": [{"integration_failure": None}],
        "has the merge_commit that was started": [
            {"merge_commit": None},
            {"merge_commit": commit(7)},
            {"merging": None},
        ],
        "has no merge_commit": [{"merge_commit": MERGE}],
        "has no taint that nobody accepted": [{"taints": (Taint(mark="forced", at=NOW),)}],
        "has superseded_by and a rescope_reason": [{"superseded_by": ()}, {"rescope_reason": None}],
        "has a closing_reason": [{"closing_reason": None}],
        "has an approval_question": [{"approval_question": None}],
        "says why there is nothing to do": [{"nothing_to_do": None}],
    }


class TestPromises:
    @pytest.mark.parametrize(
        ("status", "promise"),
        [(status, promise) for status, promises in REQUIRES.items() for promise in promises],
        ids=lambda value: value.says if isinstance(value, Requirement) else value,
    )
    def test_each_can_be_broken_and_is_told(self, status: Status, promise: Requirement) -> None:
        """A promise that holds of everything promises nothing."""
        task = task_in(status)

        for changes in breaking(task)[promise.says]:
            assert promise in unmet_requirements(task.replace(**changes))
            assert f"tasks.t1.{promise.field}" in {
                path for path, *_ in task_violations(task.replace(**changes))
            }

    @pytest.mark.parametrize("status", Status)
    def test_what_came_to_be_by_events_keeps_them(self, status: Status) -> None:
        assert unmet_requirements(task_in(status)) == []


class TestSteps:
    @pytest.mark.parametrize(
        ("old", "new", "path", "words"),
        [
            (
                busy_board(),
                without("tasks", "t2")(busy_board()),
                "tasks.t4.depends_on",
                "there is no task 't2'",
            ),
            (
                busy_board(),
                without("tasks", "t4")(busy_board()),
                "human_notes.note-1.for",
                "there is no task 't4'",
            ),
            (
                board(archived=FINISHED, sprint=Sprint(tasks=("t0",))),
                board(sprint=Sprint(tasks=("t0",))),
                "sprint.tasks",
                "there is no task 't0'",
            ),
            (
                busy_board(),
                busy_board().with_task(walked(new_task("t4", depends_on=("t2",)), claim(OTHER_CODER))),
                "tasks.t4.depends_on",
                "it is WORKING while t2 is WORKING",
            ),
            (
                board(task_in(Status.MERGED), goal=goal(GoalStatus.COMPLETE)),
                board(task_in(Status.MERGED), new_task("t2"), goal=goal(GoalStatus.COMPLETE)),
                "goal.status",
                "it says COMPLETE, but t2 is not finished",
            ),
            (
                board(archived={"t0": Status.MERGED}, goal=goal(GoalStatus.COMPLETE)),
                board(archived={"t0": Status.ABANDONED}, goal=goal(GoalStatus.COMPLETE)),
                "goal.status",
                "it says COMPLETE, but nothing was done",
            ),
        ],
        ids=[
            "a dependency left",
            "a named task left",
            "the archive shrank",
            "claimed too early",
            "added to a complete goal",
            "no longer a success",
        ],
    )
    def test_a_change_here_that_breaks_a_rule_there_is_told(
        self, old: State, new: State, path: str, words: str
    ) -> None:
        found = diff_violations(diff_states(old, new))

        assert (path, words) in {(violation.path, violation.problem) for violation in found}

    def test_a_task_may_be_added(self) -> None:
        state = board(new_task("t1"))

        assert diff_violations(diff_states(state, state.with_task(new_task("t2")))) == []

    def test_a_task_whose_history_is_shown_in_part_goes_on(self) -> None:
        state = board(walked(task_in(Status.INTEGRATION_FAILED), claim(), submit()).with_recent_history())
        moved = walked(state.tasks["t1"], take_review(), at=NOW + 9 * SECOND)

        assert moved.history_earlier > 0
        assert diff_violations(diff_states(state, state.with_task(moved))) == []

    def test_an_update_names_the_fields_it_changed(self) -> None:
        """A heartbeat must not make every rule look at the whole board."""
        state = board(task_in(Status.WORKING), new_task("t2"))
        renewed = walked(state.tasks["t1"], (e.Renew(expires=NOW + 2 * HOUR), CODER))

        assert diff_states(state, state.with_task(renewed)).fields() == {"tasks.lease"}

    def test_a_task_that_leaves_or_comes_changes_which_ids_there_are(self) -> None:
        state = board(new_task("t1"))

        assert "tasks.id" in diff_states(state, state.with_task(new_task("t2"))).fields()
        assert "tasks.id" in diff_states(state, state.replace(tasks={})).fields()

    @pytest.mark.parametrize("status", sorted(TERMINAL))
    def test_a_finished_task_may_leave_for_the_archive(self, status: Status) -> None:
        state = board(new_task("t2"), task_in(status), archived=FINISHED)

        archived = without("tasks", "t1")(state).replace(archived={**FINISHED, "t1": status})

        assert diff_violations(diff_states(state, archived)) == []

    def test_a_handoff_may_be_taken_off_the_board(self) -> None:
        """It is for one reader, who has read it."""
        state = busy_board()

        assert diff_violations(diff_states(state, state.replace(handoff={}))) == []

    def test_nothing_changed_is_no_step(self) -> None:
        state = busy_board()

        assert diff_violations(diff_states(state, state)) == []


def chain(length: int, **first: Any) -> State:  # noqa: ANN401 - whatever a task may hold
    """Return a board on which each task waits for the one before it, some of them held."""
    pattern = new_task("n0")
    held = task_in(Status.WORKING)
    tasks = {
        "n0": pattern.replace(**first),
        **{f"n{n}": pattern.replace(id=f"n{n}", depends_on=(f"n{n - 1}",)) for n in range(1, length)},
        **{
            f"h{n}": held.replace(
                id=f"h{n}",
                assigned_to=f"coder-{n}",
                lease=lease_of(worker(f"coder-{n}")),
                authors=(f"coder-{n}",),
            )
            for n in range(length // 10)
        },
    }
    return board().replace(tasks=tasks)


def lines_run(function: Callable[[], object]) -> int:
    """Return how many lines of Python *function* runs: work that no busy machine can make look slow."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ANN401 - as sys.settrace has it
        nonlocal count
        del frame, argument
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


class TestSize:
    def test_ten_times_the_tasks_are_ten_times_the_work(self) -> None:
        """Checking a board is linear in its tasks."""
        small, large = chain(2_000), chain(20_000)

        assert lines_run(lambda: violations(large)) <= 11 * lines_run(lambda: violations(small))

    def test_a_change_of_one_task_does_not_look_at_every_other(self) -> None:
        """A heartbeat costs what one task costs and one look at who holds what, not a check of the board."""
        state = chain(2_000)
        moved = state.with_task(state.tasks["h1"].replace(lease=lease_of(worker("coder-1"), at=NOW + SECOND)))

        assert lines_run(lambda: diff_violations(diff_states(state, moved))) * 10 < lines_run(
            lambda: violations(moved)
        )

    def test_a_long_chain_of_dependencies_is_no_deep_recursion(self) -> None:
        assert violations(chain(20_000)) == []

    def test_a_long_cycle_is_found(self) -> None:
        (violation,) = violations(chain(20_000, depends_on=("n19999",)))

        assert violation.problem.endswith("n1 waits for n0: a cycle")
