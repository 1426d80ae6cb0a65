"""Sprints: when one begins, what is in it, when it is over, and what the next takes along."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from liza.domain.changes import begin_next_sprint, end_sprint, why_ended, why_over, with_retrospective
from liza.domain.config import Config, SprintLength
from liza.domain.lifecycle import Abandon
from liza.domain.model import Metrics, Sprint
from liza.workflow.transition import add_task, apply
from tests.support.sample_tasks import NOW, PLANNER, board, new_task

if TYPE_CHECKING:
    from liza.domain.model import State

HOUR = timedelta(hours=1)


def planned(*names: str, length: SprintLength | None = None) -> State:
    state = board(config=Config(sprint=length or SprintLength()))
    for name in names:
        state = add_task(new_task(name).replace(history=()), by=PLANNER, at=NOW)(state)
    return state


def abandoned(state: State, *names: str) -> State:
    for name in names:
        state = apply(Abandon(reason="no"), to=name, by=PLANNER, at=NOW + HOUR / 2)(state)
    return state


class TestWithoutALimit:
    def test_the_goal_is_one_sprint_that_the_first_plan_begins(self) -> None:
        assert board().sprint == Sprint()
        state = planned("t1", "t2")
        assert (state.sprint.started, state.sprint.deadline, state.sprint.tasks) == (NOW, None, ())
        assert why_over(abandoned(state, "t1", "t2"), NOW + 1000 * HOUR) is None


class TestHours:
    LENGTH = SprintLength(hours=2)

    def test_it_is_over_at_its_deadline(self) -> None:
        state = planned("t1", length=self.LENGTH)
        assert state.sprint.deadline == NOW + 2 * HOUR
        assert why_over(state, NOW + 1.9 * HOUR) is None
        assert why_over(state, NOW + 2 * HOUR) == "its deadline, 2026-01-01T14:00:00Z, has passed"

    def test_it_is_over_when_all_of_its_tasks_are_finished(self) -> None:
        state = planned("t1", "t2", length=self.LENGTH)
        assert state.sprint.tasks == ("t1", "t2")
        assert why_over(abandoned(state, "t1"), NOW) is None
        assert why_over(abandoned(state, "t1", "t2"), NOW) == "all of its tasks are finished"

    def test_the_next_takes_along_what_is_open_and_counts_from_zero(self) -> None:
        state = abandoned(planned("t1", "t2", length=self.LENGTH), "t1")
        later = NOW + 3 * HOUR
        state = with_retrospective(end_sprint(state, later), 1, "report/sprint-1.md")
        assert why_over(state, later) is None
        assert why_ended(state) == "its deadline, 2026-01-01T14:00:00Z, has passed"
        assert end_sprint(state, later + HOUR) is state
        following = begin_next_sprint(state, later).sprint
        assert following == Sprint(number=2, tasks=("t2",), started=later, deadline=later + 2 * HOUR)
        assert following.metrics == Metrics()

    def test_a_sprint_that_goes_on_has_no_next(self) -> None:
        state = planned("t1", length=self.LENGTH)
        assert begin_next_sprint(state, NOW) is state


class TestTasks:
    def test_it_is_over_when_that_many_are_finished(self) -> None:
        state = planned("t1", "t2", "t3", length=SprintLength(tasks=2))
        assert why_over(abandoned(state, "t1"), NOW) is None
        assert why_over(abandoned(state, "t1", "t3"), NOW) == "2 tasks are finished"

    def test_what_comes_after_the_end_is_for_the_next(self) -> None:
        state = end_sprint(abandoned(planned("t1", length=SprintLength(tasks=1)), "t1"), NOW)
        state = add_task(new_task("t2").replace(history=()), by=PLANNER, at=NOW)(state)
        assert state.sprint.tasks == ("t1",)
        assert begin_next_sprint(state, NOW).sprint.tasks == ("t2",)
