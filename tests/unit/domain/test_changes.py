"""Changes of the whole board: what a task alone cannot know."""

import pytest

from liza.board.journal import diff_states
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, add_note, diff_violations, violations, waits_for
from liza.domain.model import Actor, State, Status, Task
from liza.domain.record import next_id
from liza.errors import Forbidden, NotThere, Refused, UsageError
from liza.workflow.transition import add_task, answer_task, apply, new_task_at_start
from tests.support.sample_tasks import (
    CODER,
    HOUR,
    NOW,
    OTHER_CODER,
    OTHER_REVIEWER,
    PLAIN,
    PLANNER,
    REVIEWER,
    SECOND,
    Deed,
    block,
    board,
    claim,
    lease_of,
    new_task,
    submit,
    take_review,
    task_in,
    walked,
    worker,
)

LATER = NOW + 60 * SECOND


def happen(state: State, deed: Deed, to: str) -> State:
    """Let *deed* happen on *state*, and check the step as the board would."""
    event, actor = deed
    new = apply(event, to=to, by=actor, at=LATER)(state)
    assert diff_violations(diff_states(state, new)) == []
    assert violations(new) == []
    return new


def supersede(*by: str, actor: Actor = PLANNER) -> Deed:
    return e.Supersede(superseded_by=by, rescope_reason="too big"), actor


class TestApply:
    def test_only_the_named_task_changes(self) -> None:
        state = board(new_task("t1"), new_task("t2"))

        moved = happen(state, claim(), to="t2")

        assert moved.tasks["t2"].status is Status.WORKING
        assert moved.tasks["t1"] is state.tasks["t1"]

    def test_the_journal_is_told_who_did_what(self) -> None:
        change = apply(claim()[0], to="t1", by=CODER, at=LATER)
        change(board(new_task("t1")))

        assert (change.by, change.told) == ("coder-1", "claim t1")

    def test_a_task_that_is_not_there_is_named(self) -> None:
        with pytest.raises(NotThere, match="there is no task 't9'"):
            happen(board(new_task("t1")), claim(), to="t9")

    def test_it_decides_on_the_state_it_is_handed(self) -> None:
        """Two coders wanted the task; whose change comes second is told that it is taken."""
        first, second = (apply(claim(by)[0], to="t1", by=by, at=LATER) for by in (CODER, OTHER_CODER))

        with pytest.raises(Forbidden, match="coder-2 may not claim a task that is WORKING"):
            second(first(board(new_task())))


class TestClaims:
    @pytest.mark.parametrize(
        "status", [s for s in Status if s not in {"MERGED", "COMPLETE", "NOTHING_TO_DO"}]
    )
    def test_a_task_waits_for_what_has_not_succeeded(self, status: Status) -> None:
        state = board(task_in(status, name="t1"), new_task("t2", depends_on=("t1",)))

        with pytest.raises(Refused, match=r"t2: coder-2 may not claim it, because it waits for t1$"):
            happen(state, claim(OTHER_CODER), to="t2")

    @pytest.mark.parametrize("status", [Status.MERGED, Status.COMPLETE, Status.NOTHING_TO_DO])
    def test_what_succeeded_is_waited_for_no_longer(self, status: Status) -> None:
        state = board(task_in(status, name="t1"), new_task("t2", depends_on=("t1",)))

        assert happen(state, claim(), to="t2").tasks["t2"].status is Status.WORKING

    def test_dependencies_are_exact_ids(self) -> None:
        """A dependency on t10 was refused because t1 was not merged, once."""
        state = board(new_task("t1"), task_in(Status.MERGED, name="t10"), new_task("t2", depends_on=("t10",)))

        assert waits_for(state, state.tasks["t2"]) == ()
        assert happen(state, claim(), to="t2").tasks["t2"].status is Status.WORKING

    def test_an_archived_success_counts(self) -> None:
        state = board(new_task("t2", depends_on=("t1",)), archived={"t1": Status.MERGED})

        assert happen(state, claim(), to="t2").tasks["t2"].status is Status.WORKING

    @pytest.mark.parametrize("archived", [{"t1": Status.ABANDONED}, {}], ids=["abandoned", "unknown"])
    def test_nothing_else_in_the_archive_does(self, archived: dict[str, Status]) -> None:
        state = board(new_task("t2", depends_on=("t1",)), archived=archived)

        assert waits_for(state, state.tasks["t2"]) == ("t1",)

    def test_a_rejected_task_waits_as_well(self) -> None:
        rejected = task_in(Status.REJECTED, name="t2").replace(depends_on=("t1",))

        with pytest.raises(Refused, match="waits for t1"):
            happen(board(new_task("t1"), rejected), claim(), to="t2")

    def test_only_claiming_waits(self) -> None:
        state = board(new_task("t1"), new_task("t2", depends_on=("t1",)))

        assert happen(state, block(PLANNER), to="t2").tasks["t2"].status is Status.BLOCKED

    def test_a_coder_holds_one_task(self) -> None:
        state = happen(board(new_task("t1"), new_task("t2")), claim(), to="t1")

        with pytest.raises(Refused, match="t2: coder-1 may not claim it, because coder-1 still holds t1"):
            happen(state, claim(), to="t2")

    def test_a_coder_that_let_go_may_claim_again(self) -> None:
        state = happen(board(new_task("t1"), new_task("t2")), claim(), to="t1")

        submitted = happen(state, submit(), to="t1")

        assert happen(submitted, claim(), to="t2").tasks["t2"].assigned_to == "coder-1"

    def test_a_reviewer_holds_one_review(self) -> None:
        """Two reviews of one reviewer would be two leases of one holder, which is an invalid board."""
        state = board(*(walked(new_task(name), claim(), submit()) for name in ("t1", "t2")))
        reviewing = happen(state, take_review(), to="t1")

        with pytest.raises(Refused, match="because reviewer-1 still holds t1"):
            happen(reviewing, take_review(), to="t2")
        both = happen(reviewing, take_review(OTHER_REVIEWER), to="t2")
        assert [task.lease and task.lease.holder for task in both.tasks.values()] == [
            "reviewer-1",
            "reviewer-2",
        ]

    def test_a_reviewer_may_take_its_own_expired_review_again(self) -> None:
        reborn = worker("reviewer-1", token="a new token")  # noqa: S106
        event, _ = take_review(reborn, at=NOW + HOUR)
        state = board(task_in(Status.READY_FOR_REVIEW))

        taken = apply(event, to="t1", by=reborn, at=NOW + HOUR)(state)

        assert taken.tasks["t1"].lease == lease_of(reborn, at=NOW + HOUR)


class TestSupersede:
    def test_whoever_waited_waits_for_the_successors(self) -> None:
        state = board(
            new_task("t1"),
            new_task("t2"),
            new_task("t3"),
            new_task("w", depends_on=("x", "t1")),
            new_task("x"),
        )

        rewired = happen(state, supersede("t2", "t3"), to="t1")

        assert rewired.tasks["w"].depends_on == ("x", "t2", "t3")
        assert rewired.tasks["x"] is state.tasks["x"]

    @pytest.mark.parametrize("status", [Status.DRAFT, Status.IDLE, Status.BLOCKED, Status.REJECTED])
    def test_in_whatever_status_it_waits(self, status: Status) -> None:
        """Whoever is left waiting for a task that is gone waits for ever."""
        waiting = task_in(status, name="w").replace(depends_on=("t1",))

        rewired = happen(board(new_task("t1"), new_task("t2"), waiting), supersede("t2"), to="t1")

        assert rewired.tasks["w"].depends_on == ("t2",)

    def test_what_is_over_keeps_its_record(self) -> None:
        over = task_in(Status.ABANDONED, name="w").replace(depends_on=("t1",))

        rewired = happen(board(new_task("t1"), new_task("t2"), over), supersede("t2"), to="t1")

        assert rewired.tasks["w"] is over

    def test_a_dependency_is_not_named_twice(self) -> None:
        state = board(new_task("t1"), new_task("t2"), new_task("w", depends_on=("t1", "t2")))

        assert happen(state, supersede("t2"), to="t1").tasks["w"].depends_on == ("t2",)

    def test_successors_that_waited_for_it_wait_for_each_other_no_more(self) -> None:
        """Otherwise t2 would wait for t3, and t3 for t2."""
        state = board(new_task("t1"), new_task("t2", depends_on=("t1",)), new_task("t3", depends_on=("t1",)))

        rewired = happen(state, supersede("t2", "t3"), to="t1")

        assert [rewired.tasks[name].depends_on for name in ("t2", "t3")] == [(), ()]

    @pytest.mark.parametrize("status", [Status.ABANDONED, Status.SUPERSEDED])
    def test_what_is_gone_itself_replaces_nothing(self, status: Status) -> None:
        """Its dependants would wait for what will never be done."""
        state = board(new_task("t1"), task_in(status, name="t5"), new_task("t2"))

        with pytest.raises(Refused, match=f"may not supersede it, because t5 is {status} itself"):
            happen(state, supersede("t2", "t5"), to="t1")

    def test_the_way_round_is_seen_by_the_board(self) -> None:
        """A dependant that the successor waits for would close a ring; the step is refused."""
        state = board(new_task("t1"), new_task("w", depends_on=("t1",)), new_task("t2", depends_on=("w",)))

        new = apply(supersede("t2")[0], to="t1", by=PLANNER, at=LATER)(state)

        assert [violation.path for violation in diff_violations(diff_states(state, new))] == [
            "tasks.t2.depends_on"
        ]


class TestAdding:
    def a_new(self, name: str = "t1", status: Status = Status.IDLE) -> Task:
        return new_task(name, status=status).replace(history=())

    def test_a_task_begins_with_its_adding(self) -> None:
        state = add_task(self.a_new(), by=PLANNER, at=NOW)(board())

        (entry,) = state.tasks["t1"].history
        assert (entry.event, entry.by, entry.source, entry.target) == (
            "added",
            "planner-1",
            None,
            Status.IDLE,
        )
        assert violations(state) == []

    def test_it_comes_last(self) -> None:
        state = add_task(self.a_new("a"), by=HUMAN, at=NOW)(board(new_task("b")))

        assert list(state.tasks) == ["b", "a"]

    def test_an_id_is_used_once(self) -> None:
        with pytest.raises(Refused, match=r"t1: there is such a task already \(IDLE\); choose another id"):
            add_task(self.a_new(), by=PLANNER, at=NOW)(board(new_task("t1")))

    def test_the_id_of_an_archived_task_is_used_up(self) -> None:
        """Its branch and its history have that name."""
        with pytest.raises(Refused, match=r"there is such a task already \(MERGED\)"):
            add_task(self.a_new(), by=PLANNER, at=NOW)(board(archived={"t1": Status.MERGED}))

    @pytest.mark.parametrize("status", [s for s in Status if s not in {"DRAFT", "IDLE"}])
    def test_it_has_no_past(self, status: Status) -> None:
        with pytest.raises(Refused, match=f"a new task starts as DRAFT or IDLE, not as {status}"):
            new_task_at_start(PLAIN, self.a_new(status=Status.IDLE).replace(status=status), by=HUMAN, at=NOW)

    @pytest.mark.parametrize("by", [CODER, REVIEWER])
    def test_workers_add_none(self, by: Actor) -> None:
        """Planning is the planner's; a worker that finds something logs a discovery."""
        with pytest.raises(Forbidden, match=f"t1: {by.id} may not add a task that is IDLE"):
            add_task(self.a_new(), by=by, at=NOW)(board())


class TestNotes:
    def test_a_note_is_kept_with_its_time(self) -> None:
        state = add_note("use blue", about="t1", by=HUMAN, at=NOW)(board(new_task("t1")))

        (note,) = state.human_notes.values()
        assert (note.id, note.message, note.about, note.timestamp) == ("note-1", "use blue", "t1", NOW)
        assert note.processed is None
        assert violations(state) == []

    def test_a_note_may_be_for_nobody_or_for_what_is_over(self) -> None:
        state = board(archived={"t0": Status.MERGED})

        for about in (None, "t0"):
            state = add_note("well done", about=about, by=HUMAN, at=NOW)(state)

        assert list(state.human_notes) == ["note-1", "note-2"]

    def test_a_note_for_a_task_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(NotThere, match="there is no task 't9'"):
            add_note("hello?", about="t9", by=HUMAN, at=NOW)(board())

    def test_the_journal_is_told_whom_it_is_for(self) -> None:
        changes = [add_note("hello", about=about, by=HUMAN, at=NOW) for about in ("t1", None)]

        assert [(change.by, change.told) for change in changes] == [("human", "note t1"), ("human", "note")]

    @pytest.mark.parametrize("text", ["", "  \n"])
    def test_a_note_has_words(self, text: str) -> None:
        with pytest.raises(UsageError, match="a note needs words"):
            add_note(text, about=None, by=HUMAN, at=NOW)

    @pytest.mark.parametrize("by", [CODER, REVIEWER, PLANNER, SUPERVISOR])
    def test_only_people_speak_as_people(self, by: Actor) -> None:
        """A note unblocks tasks: an agent that could write one would answer itself."""
        with pytest.raises(Refused, match=f"{by.id} may not write in the name of people"):
            add_note("go on", about=None, by=by, at=NOW)(board())

    @pytest.mark.parametrize(
        ("taken", "name"),
        [
            ((), "n-1"),
            (("n-1",), "n-2"),
            (("n-2",), "n-3"),
            (("x", "n-3", "n-4"), "n-5"),
            (("n-1", "x"), "n-3"),
        ],
    )
    def test_ids_do_not_collide(self, taken: tuple[str, ...], name: str) -> None:
        """People give notes ids of their own."""
        assert next_id(taken, "n") == name


class TestAnswers:
    BLOCKED = walked(new_task("t1"), claim(), block())

    def test_an_answer_is_kept_and_the_task_goes_on(self) -> None:
        state = answer_task("t1", "blue", by=HUMAN, at=LATER)(board(self.BLOCKED))

        task, (note,) = state.tasks["t1"], state.human_notes.values()
        assert (task.status, task.guidance, task.blocked_reason) == (Status.IDLE, "blue", None)
        assert (note.message, note.about, note.processed, note.processed_by) == ("blue", "t1", LATER, "human")
        assert diff_violations(diff_states(board(self.BLOCKED), state)) == []
        assert violations(state) == []

    def test_earlier_notes_stay_as_they_are(self) -> None:
        before = add_note("hello", about="t1", by=HUMAN, at=NOW)(board(self.BLOCKED))

        state = answer_task("t1", "blue", by=HUMAN, at=LATER)(before)

        assert [note.processed for note in state.human_notes.values()] == [None, LATER]

    def test_what_asks_for_consent_gets_a_yes_or_a_no(self) -> None:
        with pytest.raises(Refused, match="t1: it asks for a yes or a no; `liza task accept t1`, or `liza "):
            answer_task("t1", "blue", by=HUMAN, at=LATER)(board(task_in(Status.AWAITING_APPROVAL)))

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.BLOCKED, Status.AWAITING_APPROVAL}))
    def test_what_asks_nothing_gets_no_answer(self, status: Status) -> None:
        with pytest.raises(Refused, match=f"t1: it asks nothing, because it is {status}; `liza note"):
            answer_task("t1", "blue", by=HUMAN, at=LATER)(board(task_in(status)))

    def test_a_task_that_is_not_there_is_named(self) -> None:
        with pytest.raises(NotThere, match="'t9'"):
            answer_task("t9", "blue", by=HUMAN, at=LATER)(board())

    @pytest.mark.parametrize("by", [CODER, REVIEWER, PLANNER, SUPERVISOR])
    def test_only_people_answer(self, by: Actor) -> None:
        with pytest.raises(Refused):
            answer_task("t1", "blue", by=by, at=LATER)(board(self.BLOCKED))
