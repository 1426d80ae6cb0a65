"""What a restart puts right, as a function of facts."""

from __future__ import annotations

from typing import Any, Final

import pytest

from liza.daemon.policy.recovery import (
    FinishMerge,
    KillLeftover,
    Leftover,
    MarkStopped,
    PruneWorktree,
    ReclaimTask,
    RecoveryFacts,
    RetireBranch,
    action_json,
    finish_merge,
    mark_stopped,
    plan,
    reclaim_tasks,
)
from liza.domain import lifecycle as e
from liza.domain.changes import violations
from liza.domain.config import Config, Limits
from liza.domain.model import Role, Status, WorkerRecord, WorkerStatus
from liza.domain.record import records_by_id
from tests.support.sample_tasks import (
    HOUR,
    MERGE,
    NOW,
    PLANNER,
    REVIEWER,
    SECOND,
    WAYS,
    board,
    claim,
    new_task,
    start_merge,
    submit,
    take_review,
    task_in,
    walked,
)

LATER: Final = NOW + 600 * SECOND
LEFT: Final = Leftover(123, 456, "the agent's process sleep")
MERGING: Final = walked(new_task(), *WAYS[Status.APPROVED], start_merge())


def facts(*tasks: Any, **fields: Any) -> RecoveryFacts:  # noqa: ANN401 - whatever facts there may be
    known = {"now": LATER, **fields}
    return RecoveryFacts(state=board(*tasks, **known.pop("sections", {})), **known)


def agent(status: WorkerStatus, **fields: Any) -> WorkerRecord:  # noqa: ANN401 - whatever an agent may have
    return WorkerRecord(id="coder-1", role=Role.CODER, status=status, since=NOW, **fields)


def done(given: RecoveryFacts) -> RecoveryFacts:
    """Return the facts after the plan was done."""
    state = given.state
    for action in plan(given):
        match action:
            case FinishMerge(task, commit):
                state = finish_merge(task, commit, at=given.now)(state)
            case ReclaimTask():
                state = reclaim_tasks(given.living, at=given.now)(state)
            case MarkStopped(name):
                state = mark_stopped([name], at=given.now)(state)
    pruned = {action.task for action in plan(given) if isinstance(action, PruneWorktree)}
    return RecoveryFacts(
        state, given.now, given.living, contained=given.contained, worktrees=given.worktrees - pruned
    )


class TestLeases:
    def test_a_dead_holders_task_is_taken_back(self) -> None:
        assert plan(facts(task_in(Status.WORKING))) == (ReclaimTask("t1", "coder-1", "coder-1 does not run"),)

    def test_a_living_holder_keeps_it(self) -> None:
        assert plan(facts(task_in(Status.WORKING), living=frozenset({"coder-1"}))) == ()

    def test_unless_its_lease_ran_out(self) -> None:
        given = facts(task_in(Status.WORKING), living=frozenset({"coder-1"}), now=NOW + 2 * HOUR)
        assert plan(given) == (ReclaimTask("t1", "coder-1", "coder-1 let its lease run out at 13:00:00Z"),)

    def test_a_dead_reviewer_leaves_the_coders_name(self) -> None:
        state = reclaim_tasks([], at=LATER)(board(task_in(Status.READY_FOR_REVIEW)))
        assert (state.task("t1").lease, state.task("t1").assigned_to) == (None, "coder-1")

    def test_all_are_taken_back_in_one_change(self) -> None:
        tasks = (task_in(Status.WORKING), walked(new_task("t2"), claim(), submit(), take_review()))
        state = reclaim_tasks([], at=LATER)(board(*tasks))
        assert [task.lease for task in state.tasks.values()] == [None, None]
        assert violations(state) == []

    def test_a_board_without_dead_is_left_alone(self) -> None:
        state = board(task_in(Status.WORKING))
        assert reclaim_tasks(["coder-1"], at=LATER)(state) is state


class TestMerges:
    def test_a_merge_that_happened_is_written_down(self) -> None:
        """Pains A 5: every half-state converges."""
        assert plan(facts(MERGING, contained=frozenset({MERGE}))) == (FinishMerge("t1", MERGE),)

    def test_one_that_did_not_is_given_back(self) -> None:
        assert plan(facts(MERGING)) == (ReclaimTask("t1", "reviewer-1", "reviewer-1 does not run"),)

    def test_a_living_reviewer_writes_it_down_itself(self) -> None:
        given = facts(MERGING, contained=frozenset({MERGE}), living=frozenset({REVIEWER.id}))
        assert plan(given) == ()

    def test_somebody_may_have_written_it_down_meanwhile(self) -> None:
        state = board(task_in(Status.MERGED))
        assert finish_merge("t1", MERGE, at=LATER)(state) is state


class TestAgents:
    def test_what_does_not_run_is_said_to_be_stopped_without_blame(self) -> None:
        """Pains B: a coder stayed "busy" after its task merged."""
        given = facts(sections={"agents": records_by_id([agent(WorkerStatus.RUNNING)])})
        assert plan(given) == (MarkStopped("coder-1"),)
        after = done(given).state.agents["coder-1"]
        assert (after.status, after.stopped_reason) == (WorkerStatus.STOPPED, None)

    def test_why_one_was_stopped_is_kept(self) -> None:
        known = agent(WorkerStatus.STOPPED, stopped_reason="it crashes")
        state = board(agents=records_by_id([known]))
        assert plan(RecoveryFacts(state, LATER)) == ()
        assert mark_stopped(["coder-1"], at=LATER)(state) is state


GIVE_UP: Final = (e.Abandon(reason="not needed"), PLANNER)
NONE_KEPT: Final = {"config": Config(limits=Limits(kept_worktrees=0))}


class TestWorktrees:
    @pytest.mark.parametrize("status", Status)
    def test_only_finished_tasks_lose_theirs(self, status: Status) -> None:
        given = facts(task_in(status).replace(lease=None), worktrees=frozenset({"t1"}), sections=NONE_KEPT)
        is_over = status in {
            Status.MERGED,
            Status.COMPLETE,
            Status.NOTHING_TO_DO,
            Status.SUPERSEDED,
            Status.ABANDONED,
        }
        assert bool(plan(given)) is is_over

    def test_the_newest_are_kept_to_look_at(self) -> None:
        """As many as the settings say; those that were finished first go first."""
        names = ("t1", "t2", "t3")
        over = {name: NOW + number * SECOND for number, name in enumerate(names)}
        tasks = [walked(task_in(Status.BLOCKED, name=name), GIVE_UP, at=at) for name, at in over.items()]
        two = {"config": Config(limits=Limits(kept_worktrees=2))}

        assert plan(facts(*tasks, worktrees=frozenset(names), sections=two)) == (
            PruneWorktree("t1", Status.ABANDONED),
        )

    def test_archived_tasks_are_finished(self) -> None:
        given = facts(worktrees=frozenset({"old"}), sections={"archived": {"old": Status.MERGED}})
        assert plan(given) == (PruneWorktree("old", Status.MERGED),)

    def test_only_archived_tasks_lose_their_branch(self) -> None:
        assert plan(facts(merged_branches=frozenset({"old"}))) == (RetireBranch("old"),)

    def test_what_the_board_does_not_know_is_somebody_elses(self) -> None:
        assert plan(facts(worktrees=frozenset({"feature"}))) == ()

    def test_whoever_just_finished_one_may_be_clearing_up(self) -> None:
        given = facts(
            task_in(Status.MERGED),
            worktrees=frozenset({"t1"}),
            living=frozenset({"reviewer-1"}),
            sections=NONE_KEPT,
        )
        assert plan(given) == (PruneWorktree("t1", Status.MERGED),)
        assert (
            plan(RecoveryFacts(given.state, NOW + 9 * SECOND, given.living, worktrees=given.worktrees)) == ()
        )

    def test_the_worktree_of_a_merge_that_is_written_down_now_goes_as_well(self) -> None:
        there = {"contained": frozenset({MERGE}), "worktrees": frozenset({"t1"})}
        assert plan(facts(MERGING, **there)) == (FinishMerge("t1", MERGE),)
        given = facts(MERGING, **there, sections=NONE_KEPT)
        assert plan(given) == (FinishMerge("t1", MERGE), PruneWorktree("t1", Status.MERGED))


class TestPlan:
    def test_processes_end_before_their_work_is_given_away(self) -> None:
        actions = plan(facts(task_in(Status.WORKING), leftovers=(LEFT,)))
        assert [type(action) for action in actions] == [KillLeftover, ReclaimTask]

    @pytest.mark.parametrize("status", Status)
    @pytest.mark.parametrize("living", [frozenset(), frozenset({"coder-1", "reviewer-1"})])
    def test_doing_it_leaves_nothing_to_do(self, status: Status, living: frozenset[str]) -> None:
        given = facts(
            task_in(status),
            MERGING.replace(id="t2", lease=None),
            living=living,
            contained=frozenset({MERGE}),
            worktrees=frozenset({"t1", "t2"}),
            sections={"agents": records_by_id([agent(WorkerStatus.RUNNING)])},
        )
        assert plan(done(given)) == ()

    def test_an_empty_board_needs_nothing(self) -> None:
        assert plan(facts()) == ()

    @pytest.mark.parametrize(
        "action",
        [
            KillLeftover(LEFT),
            FinishMerge("t1", MERGE),
            ReclaimTask("t1", "coder-1", "coder-1 does not run"),
            MarkStopped("coder-1"),
            PruneWorktree("t1", Status.MERGED),
        ],
    )
    def test_every_action_is_a_sentence_and_json(self, action: KillLeftover | FinishMerge) -> None:
        found = action_json(action)
        assert found["action"] == type(action).__name__
        assert len(str(found["says"]).split()) > 4
