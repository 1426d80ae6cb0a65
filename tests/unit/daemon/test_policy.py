"""What workers decide: pure functions, tried on boards that came about by real events."""

from __future__ import annotations

import ast
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import liza.daemon.policy
from liza.agents.protocol import Reply
from liza.daemon.jobs import BY_STAGE, TURNS, do_task_job
from liza.daemon.policy import pick, planner
from liza.daemon.policy.jobs import JOB_POLICIES
from liza.domain import lifecycle as e
from liza.domain import model
from liza.domain.answers import (
    FeedbackStatus,
    Implement,
    Plan,
    PlannedTask,
    PriorFeedback,
    Review,
    Ruling,
    Step,
    WorkStatus,
)
from liza.domain.changes import HUMAN, add_note, violations
from liza.domain.model import (
    Adopted,
    Discovery,
    Feedback,
    GoalStatus,
    Outcome,
    Position,
    Role,
    Severity,
    Stage,
    Status,
    Urgency,
    WorkerRecord,
    WorkerStatus,
)
from liza.domain.record import records_by_id
from liza.errors import UnfitRepository, UsageError
from liza.system.run_control import RunEnding
from liza.workflow.engine import GatesResult, Move
from tests.support import sample_tasks as s

if TYPE_CHECKING:
    from liza.domain.model import State, Task

LATER: Final = s.NOW + timedelta(minutes=1)
IMPURE: Final = {"os", "subprocess", "time", "threading", "socket", "liza.board", "liza.repo", "pathlib"}


@pytest.mark.parametrize(
    "path", sorted(Path(liza.daemon.policy.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_roles_decide_and_do_nothing(path: Path) -> None:
    """A role imports nothing that could act: no files, no processes, no clock, no board."""
    names = {
        name
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert {
        name for name in names if name in IMPURE or name.startswith(("liza.board.", "liza.repo."))
    } == set()


def agent(name: str, **fields: Any) -> WorkerRecord:  # noqa: ANN401 - whatever an agent may be
    role = Role(name.partition("-")[0])
    return WorkerRecord.model_validate(
        {"id": name, "role": role, "since": s.NOW, "status": "RUNNING", **fields}
    )


def failed(task: Task, *names: str) -> Task:
    for name in names:
        by = s.worker(name)
        task = s.walked(task, s.claim(by), (e.Release(failed=True, reason="too hard"), by))
    return task


class TestCoderPicks:
    def test_its_own_rejected_task_then_failed_merges_then_new_ones(self) -> None:
        """What is nearest to being merged comes first."""
        tasks = [
            s.new_task("new"),
            s.task_in(Status.INTEGRATION_FAILED, name="merge"),
            s.task_in(Status.REJECTED, name="mine"),
        ]
        order = []
        while tasks and (task := pick.pick_work(s.board(*tasks), "coder-1")):
            order.append(task.id)
            tasks = [other for other in tasks if other.id != task.id]

        assert order == ["mine", "merge", "new"]

    def test_by_priority_and_then_by_age(self) -> None:
        """Among new tasks the urgent comes first, then the oldest."""
        tasks = [
            s.new_task("young", created=LATER),
            s.new_task("old"),
            s.new_task("urgent", priority=5, created=LATER),
        ]

        assert getattr(pick.pick_work(s.board(*tasks), "coder-1"), "id", None) == "urgent"
        assert getattr(pick.pick_work(s.board(*tasks[:2]), "coder-1"), "id", None) == "old"

    def test_dependencies_count_by_their_exact_ids(self) -> None:
        """`t10` does not wait because `t1` is not merged."""
        state = s.board(
            s.task_in(Status.MERGED, name="t10"),
            s.new_task("t1", depends_on=("t2",)),
            s.new_task("t2", priority=-1),
            s.new_task("t3", depends_on=("t10",)),
        )

        assert getattr(pick.pick_work(state, "coder-2"), "id", None) == "t3"

    @pytest.mark.parametrize("status", [Status.REJECTED, Status.INTEGRATION_FAILED])
    def test_another_coders_task_only_when_that_coder_is_gone(self, status: Status) -> None:
        """Work goes back to whoever knows it, as long as they are there."""
        task = s.task_in(status)
        gone = agent("coder-1", status=WorkerStatus.STOPPED, crashes=(s.NOW,))

        assert pick.pick_work(s.board(task), "coder-2") is None
        assert pick.pick_work(s.board(task, agents=records_by_id([gone])), "coder-2") == task

    def test_not_what_it_failed_itself_unless_it_is_alone(self) -> None:
        """Another pair of eyes first; two coders, or two rounds of the only one, are enough."""
        one = s.board(failed(s.new_task(), "coder-1"))
        alone = one.replace(config=one.config.replace(workers=one.config.workers.replace(coder=1)))
        twice = alone.with_task(failed(alone.task("t1"), "coder-1"))

        assert pick.pick_work(one, "coder-1") is None
        assert pick.pick_work(one, "coder-2") is not None
        assert pick.pick_work(alone, "coder-1") is not None
        assert pick.pick_work(twice, "coder-1") is None
        assert pick.pick_work(s.board(failed(s.new_task(), "coder-1", "coder-2")), "coder-3") is None

    def test_nothing_while_it_holds_something(self) -> None:
        """A worker that was started anew waits until its old lease is taken back."""
        assert pick.pick_work(s.board(s.task_in(Status.WORKING), s.new_task("t2")), "coder-1") is None


class TestCoderConcludes:
    @pytest.mark.parametrize("ending", list(RunEnding))
    def test_every_ending_without_an_answer_has_a_consequence(self, ending: RunEnding) -> None:
        """Nobody is blamed for a limit of a provider or for being stopped."""
        event = pick.event_without_answer(Reply(ending=ending, began=s.NOW), "")
        turned_down = {RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH}
        free = {*turned_down, RunEnding.CONTEXT_FULL, RunEnding.STOPPED, RunEnding.CAPPED, RunEnding.KILLED}

        assert (isinstance(event, e.Release) and not event.failed) == (ending in free)
        assert isinstance(event, e.Block) == (ending is RunEnding.NOT_STARTED)

    @pytest.mark.parametrize(
        ("answer", "reasons", "event"),
        [
            (Implement(status=WorkStatus.DONE, summary="it"), (), e.Report(commit=s.WORK)),
            (
                Implement(status=WorkStatus.DONE, summary="it"),
                ("dirty", "empty"),
                e.Release(failed=True, reason="dirty; empty"),
            ),
            (Implement(status=WorkStatus.NOTHING_TO_DO, summary="it"), (), e.Report(nothing_to_do="it")),
            (
                Implement(status=WorkStatus.BLOCKED, blocked_reason="why", blocked_questions=("What?",)),
                (),
                e.Block(reason="why", questions=("What?",)),
            ),
        ],
    )
    def test_git_decides_what_done_means(
        self, answer: Implement, reasons: tuple[str, ...], event: e.Event
    ) -> None:
        """An agent's word is a wish; the facts of the worktree say what came of it."""
        assert pick.event_for_answer(answer, s.WORK, reasons) == event


class TestReviewerPicks:
    def test_the_oldest_submission_first_and_approved_ones_before(self) -> None:
        """Nothing starves, and what is approved does not wait for more reviews."""
        old, young = (
            s.task_in(Status.READY_FOR_REVIEW, ready_for=e.Take, name="old"),
            s.new_task("young"),
        )
        young = s.walked(young, s.claim(at=LATER), s.submit(), at=LATER)
        state = s.board(young, old)

        assert getattr(pick.pick_review(state, "reviewer-1", LATER), "id", None) == "old"
        approved = s.task_in(Status.APPROVED, ready_for=e.Take, name="approved")
        assert (
            getattr(pick.pick_review(s.board(old, approved), "reviewer-1", LATER), "id", None) == "approved"
        )

    def test_never_its_own_work_nor_what_another_holds(self) -> None:
        """A lease keeps others away for as long as it lives."""
        task = s.task_in(Status.READY_FOR_REVIEW)
        state = s.board(task)

        assert pick.pick_review(state, "reviewer-2", LATER) is None
        assert pick.pick_review(state, "reviewer-2", s.NOW + 2 * s.HOUR) is not None
        assert pick.pick_review(state, "coder-1", s.NOW + 2 * s.HOUR) is None


# What is next for a task in each status; in all others nobody works on it.
NEXT: Final = {
    Status.IDLE: Stage.WORK,
    Status.WORKING: Stage.WORK,
    Status.REJECTED: Stage.WORK,
    Status.INTEGRATION_FAILED: Stage.WORK,
    Status.READY_FOR_REVIEW: Stage.JUDGE,
    Status.APPROVED: Stage.EFFECT,
}


def weighed(review: Review) -> GatesResult:
    said = pick.verdict_of_review("review", review, tree=s.WORK, run="r1", at=LATER)
    decision = model.Decision(phase="REVIEW", outcome=said.outcome, at=LATER, reason=said.reason)
    return GatesResult(Move(Position(phase="REVIEW"), decision), (said,))


class TestJobs:
    """Who does what is next for a task: rows, and no kind of worker is known elsewhere."""

    def test_whatever_is_next_is_the_job_of_some_kind_of_worker(self) -> None:
        """And of one that knows how."""
        does = frozenset().union(*(policy.stages for policy in JOB_POLICIES.values()))

        assert does == set(Stage) == set(BY_STAGE)
        assert JOB_POLICIES.keys() == TURNS.keys()
        assert all(do_task_job in turns for turns in TURNS.values())

    @pytest.mark.parametrize("status", list(Status))
    def test_the_job_of_a_task_follows_from_where_it_is(self, status: Status) -> None:
        """At an end, and while a person is asked, there is none."""
        task = s.task_in(status)

        assert task.position
        assert task.position.job is NEXT.get(status)

    @pytest.mark.parametrize("status", [one for one in Status if one in NEXT])
    def test_a_worker_picks_what_it_can_do(self, status: Status) -> None:
        """What a row picks is in a stage that the same row does."""
        state = s.board(s.task_in(status))
        late = s.NOW + 2 * s.HOUR

        for role, policy in JOB_POLICIES.items():
            task = policy.pick(state, f"{role}-9", late)
            assert task is None or (task.position and task.position.job in policy.stages)

    def test_what_follows_an_error_is_for_a_person_where_the_repository_is_unfit(self) -> None:
        """A coder's task is blocked; a reviewer lets everybody stop, and gives the task back."""
        error = UnfitRepository("the index is locked")
        block, stop = pick.after_work_error(error), pick.after_review_error(error)

        assert isinstance(block.event, e.Block)
        assert (block.event.only_people, block.pause) == (True, None)
        assert stop
        assert (stop.event, stop.pause) == (e.Release(reason=str(error)), str(error))

    def test_what_an_agent_left_broken_is_its_failure(self) -> None:
        """Of a reviewer's own errors none is known that the task has to do with."""
        error = UsageError("it is no worktree")

        assert pick.after_work_error(error).event == e.Release(reason=str(error), failed=True)
        assert pick.after_review_error(error) is None

    def test_a_merge_needs_no_agent(self) -> None:
        """A submission is reviewed, and new work is done."""
        review, merge, work = map(s.task_in, (Status.READY_FOR_REVIEW, Status.APPROVED, Status.IDLE))

        assert pick.steps_of_review(s.board(review), review) == (Step.REVIEW,)
        assert pick.steps_of_review(s.board(merge), merge) == ()
        assert pick.steps_of_work(s.board(work), work)[-1] is Step.IMPLEMENT


class TestReviewerConcludes:
    @pytest.mark.parametrize("ruling", list(Ruling))
    def test_every_verdict_has_its_event(self, ruling: Ruling) -> None:
        """A verdict names the commit that it judged."""
        feedback = (Feedback(message="Is it blue?"),)
        found = weighed(Review(verdict=ruling, reason="so", feedback=feedback))
        facts: Any = {"verdicts": found.verdicts}

        assert (
            pick.event_for_verdicts(s.task_in(Status.READY_FOR_REVIEW), found)
            == {
                Ruling.APPROVE: e.Report(commit=s.WORK, **facts),
                Ruling.REJECT: e.Report(outcome=Outcome.REVISE, reason="so", feedback=feedback, **facts),
                Ruling.BLOCK: e.Report(
                    outcome=Outcome.BLOCK, reason="so", feedback=feedback, questions=("Is it blue?",), **facts
                ),
            }[ruling]
        )

    def test_an_approval_with_open_points_is_a_rejection(self) -> None:
        """Whoever says approve and names a blocker, or a point that is still open, has not approved."""
        task = s.task_in(Status.READY_FOR_REVIEW)
        blocker = Feedback(message="it is red", severity=Severity.BLOCKER)
        point = PriorFeedback(message="no test", status=FeedbackStatus.OPEN)
        reviews = [
            Review(verdict=Ruling.APPROVE, reason="so", feedback=(blocker,)),
            Review(verdict=Ruling.APPROVE, reason="so", prior_feedback=(point,)),
        ]

        for review, said in zip(reviews, ("it is red", "no test"), strict=True):
            event = pick.event_for_verdicts(task, weighed(review))
            assert isinstance(event, e.Report)
            assert event.outcome is Outcome.REVISE
            assert said in str(event.reason)

    def test_from_the_second_round_an_approval_says_what_became_of_each_point(self) -> None:
        """It is asked for; a rejection never is, since the second answer might be another one."""
        task = s.walked(s.task_in(Status.REJECTED), s.claim(), s.submit(), s.take_review())
        done = PriorFeedback(message="add a test", status=FeedbackStatus.ADDRESSED)

        assert "0 of 1 points" in str(
            pick.missing_feedback(task, Review(verdict=Ruling.APPROVE, reason="so"))
        )
        assert (
            pick.missing_feedback(task, Review(verdict=Ruling.APPROVE, reason="so", prior_feedback=(done,)))
            is None
        )
        rejected = Review(verdict=Ruling.REJECT, reason="so", feedback=(Feedback(message="no"),))
        assert pick.missing_feedback(task, rejected) is None
        assert (
            pick.missing_feedback(
                s.task_in(Status.READY_FOR_REVIEW), Review(verdict=Ruling.APPROVE, reason="so")
            )
            is None
        )

    def test_a_conflict_on_the_same_paths_again_and_again_asks_people(self) -> None:
        """Twice its coder tries; the third time it is a question."""
        task = known = s.task_in(Status.APPROVED)

        for count, kinds in enumerate([["Report"], ["Report"], ["Report", "Block"]]):
            known = task.replace(integration_failures=count, conflicted=("a.txt",) if count else ())
            found = pick.events_for_conflict(known, "both changed it", ("a.txt",))
            assert [type(event).__name__ for event in found] == kinds
        last = pick.events_for_conflict(known, "both changed it", ("a.txt",))
        blocked = s.walked(task, *((event, s.REVIEWER) for event in last))
        assert blocked.asked is not None
        assert planner.plan_request(s.board(blocked)) is None  # no planner can merge it


def noted(state: State, message: str, about: str | None = None) -> State:
    return add_note(message, about=about, by=HUMAN, at=LATER)(state)


def asked(task: Task) -> Task:
    return s.walked(task, (e.Defer(questions=("Which?",)), s.PLANNER))


def discovery(**fields: Any) -> Discovery:  # noqa: ANN401 - whatever a discovery may be
    known = {"id": "d1", "description": "a leak", "discovered_by": "coder-1", "timestamp": s.NOW}
    return Discovery.model_validate({**known, "urgency": Urgency.IMMEDIATE, **fields})


BLOCKED: Final = s.task_in(Status.BLOCKED)
CONFLICT: Final = s.task_in(Status.BLOCKED, ready_for=e.Answer)
EMPTY: Final = s.board()

WAKES: Final[list[tuple[str, State, tuple[Step, str | None] | None]]] = [
    ("no tasks yet", EMPTY, (Step.PLAN, None)),
    ("no tasks, but it asked", EMPTY.replace(goal=EMPTY.goal.replace(questions=("Which?",))), None),
    (
        "it asked and was answered",
        noted(EMPTY.replace(goal=EMPTY.goal.replace(questions=("Which?",))), "blue"),
        (Step.PLAN, None),
    ),
    ("tasks that are on their way", s.board(s.new_task(), s.task_in(Status.WORKING, name="t2")), None),
    ("a blocked task", s.board(BLOCKED), (Step.REPLAN, "t1")),
    ("a blocked task that waits for people", s.board(asked(BLOCKED)), None),
    ("people answered", noted(s.board(asked(BLOCKED)), "blue", "t1"), (Step.REPLAN, "t1")),
    ("people said something", noted(s.board(asked(BLOCKED)), "blue"), (Step.REPLAN, "t1")),
    ("people spoke of another", noted(s.board(asked(BLOCKED), s.new_task("t2")), "blue", "t2"), None),
    ("a note about a task on its way", noted(s.board(s.new_task()), "hurry", "t1"), None),
    ("a note about all of it", noted(s.board(s.new_task()), "also in French"), (Step.PLAN, None)),
    ("a resolved conflict", noted(s.board(CONFLICT), "Conflict resolved for t1"), None),
    ("something urgent", s.board(s.new_task(), discovered=records_by_id([discovery()])), (Step.PLAN, None)),
    (
        "something that can wait",
        s.board(s.new_task(), discovered=records_by_id([discovery(urgency=Urgency.DEFERRED)])),
        None,
    ),
    (
        "something that was looked at",
        s.board(s.new_task(), discovered=records_by_id([discovery(considered=LATER)])),
        None,
    ),
    ("the goal is reached", EMPTY.replace(goal=EMPTY.goal.replace(status=GoalStatus.COMPLETE)), None),
]


class TestPlannerWakes:
    @pytest.mark.parametrize(("state", "expected"), [row[1:] for row in WAKES], ids=[row[0] for row in WAKES])
    def test_for_what_it_has_not_thought_about(
        self, state: State, expected: tuple[Step, str | None] | None
    ) -> None:
        """It thinks when something is new, and not again while nothing is."""
        wake = planner.plan_request(state)

        assert (wake and (wake.step, wake.task)) == expected

    @pytest.mark.parametrize(
        "state", [row[1] for row in WAKES if row[2]], ids=[row[0] for row in WAKES if row[2]]
    )
    def test_and_never_again_for_the_same(self, state: State) -> None:
        """Even without a usable answer the board then says that it was looked at."""
        wake = planner.plan_request(state)
        assert wake

        after = planner.with_people_asked(state, wake, "it said nothing", by=s.PLANNER, at=LATER + s.SECOND)

        assert planner.plan_request(after) is None

    def test_a_general_note_is_news_for_every_blocked_task(self) -> None:
        """The first answer does not use it up for the second."""
        other = asked(s.task_in(Status.BLOCKED, name="t2"))
        state = noted(s.board(asked(BLOCKED), other), "blue")
        seen = []
        for number in range(3):
            wake = planner.plan_request(state)
            seen.append(wake and wake.task)
            if wake:
                at = LATER + (number + 1) * s.SECOND
                state = planner.with_people_asked(state, wake, "it said nothing", by=s.PLANNER, at=at)

        assert seen == ["t1", "t2", None]
        assert state.human_notes["note-1"].processed

    def test_stuck_tasks_are_blocked_by_rule(self) -> None:
        """Two failed coders, or three failed merges, are for the planner."""
        merge = s.task_in(Status.INTEGRATION_FAILED, name="merge").replace(integration_failures=3)
        state = s.board(failed(s.new_task("hard"), "coder-1", "coder-2"), merge, s.new_task("easy"))

        assert [(task.id, block.reason.partition(":")[0]) for task, block in planner.stuck_tasks(state)] == [
            ("hard", "coder-1 and coder-2 could not do it"),
            ("merge", "it failed to merge 3 times"),
        ]


class TestThePlan:
    @pytest.mark.parametrize(
        ("tasks", "problem"),
        [
            ((PlannedTask(id="T1", description="x", done_when=("y",)),), "taken"),
            ((PlannedTask(id="n", description="x", done_when=("y",), depends_on=("zz",)),), "neither"),
            (
                (PlannedTask(id="n", description="x", done_when=("y",), depends_on=("dead",)),),
                "never be done",
            ),
            ((PlannedTask(id="n", description="x", done_when=("y",), depends_on=("t1",)),), None),
        ],
    )
    def test_must_fit_the_board(self, tasks: tuple[PlannedTask, ...], problem: str | None) -> None:
        """Ids are new, also apart from case, and dependencies can come true."""
        state = s.board(s.new_task("t1"), s.task_in(Status.ABANDONED, name="dead"))

        found = planner.problems(planner.PlanContext(state, lambda _: True), tasks)

        assert (problem is None and not found) or (problem is not None and problem in found[0])

    @pytest.mark.parametrize(
        ("line", "is_falsifiable"),
        [
            ("it works", False),
            ("everything is done properly and well", False),
            ("The code is clean and of high quality.", False),
            ("meets all requirements", False),
            ("greets", True),
            ("t1.txt is there", True),
            ("`make test` works", True),
            ("add(1, 2) is 3", True),
            ("refuses an empty name", True),
            ("es gibt eine Begrüßung", True),
        ],
    )
    def test_says_what_could_turn_out_to_be_false(self, line: str, *, is_falsifiable: bool) -> None:
        """A criterion that no test can fail is none."""
        assert planner.is_falsifiable(line) is is_falsifiable

    def test_is_put_on_the_board_whole(self) -> None:
        """All of its tasks come at once, ready for coders."""
        plan = Plan(tasks=(PlannedTask(id="a", description="x", done_when=("y",)),))
        wake = planner.plan_request(EMPTY)
        assert wake

        state = planner.with_plan(EMPTY, wake, plan, by=s.PLANNER, at=LATER)

        assert [(task.id, task.status) for task in state.tasks.values()] == [("a", Status.IDLE)]


class TestTheGoal:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (EMPTY, False),
            (s.board(s.task_in(Status.MERGED)), True),
            (s.board(s.task_in(Status.MERGED), s.new_task("t2")), False),
            (s.board(s.task_in(Status.REJECTED)), False),
            (s.board(s.task_in(Status.ABANDONED)), False),
            (s.board(s.task_in(Status.MERGED), s.task_in(Status.ABANDONED, name="t2")), True),
            (noted(s.board(s.task_in(Status.MERGED)), "one more thing"), False),
            (s.board(s.task_in(Status.MERGED), discovered=records_by_id([discovery()])), False),
            (s.board(archived={"t9": Status.MERGED}), True),
        ],
    )
    def test_is_complete_when_all_is_finished_and_nobody_adds_anything(
        self, state: State, *, expected: bool
    ) -> None:
        """Finished means finished: a rejected task is none, and neither is an unread note."""
        assert planner.is_complete(state) is expected
        assert (planner.with_goal_completed(state, LATER).goal.status is GoalStatus.COMPLETE) is expected

    @pytest.mark.parametrize(
        ("flow", "status", "ended"),
        [
            ("experiment", GoalStatus.COMPLETE, planner.NONE_PASSED),
            ("cycle", GoalStatus.ABANDONED, None),
            ("phased", GoalStatus.ABANDONED, None),
            ("liza", GoalStatus.IN_PROGRESS, None),  # its planner may think of something else
        ],
    )
    def test_is_over_when_nothing_was_done_and_nobody_plans_anything_else(
        self, flow: str, status: GoalStatus, ended: str | None
    ) -> None:
        """Ideas are there to be tried; what a person gave up is given up."""
        state = s.board(s.task_in(Status.ABANDONED))
        state = state.replace(
            goal=state.goal.replace(planned=s.NOW),
            workflow=Adopted(name=flow, text=files("liza.workflow").joinpath(f"{flow}.yaml").read_text()),
        )

        over = planner.with_goal_completed(state, LATER)

        assert (over.goal.status, over.goal.search_ended) == (status, ended)
        assert violations(over) == []


def test_a_failure_to_merge_is_counted() -> None:
    """The counter tells the planner when a task needs replanning, and a person's retry clears it."""
    failure = e.Report(outcome=Outcome.REVISE, reason="red")
    task = s.walked(s.task_in(Status.APPROVED), (failure, s.REVIEWER))

    assert task.integration_failures == 1
    assert s.walked(task, (e.Answer(), HUMAN)).integration_failures == 0
