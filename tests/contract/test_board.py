"""What every engine of the board must do; written against the protocol, so that a second is held to it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from liza.domain import events as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change
from liza.domain.invariants import violations
from liza.domain.model import Handoff, Status
from liza.domain.record import utc_now, with_record
from liza.errors import Forbidden, InvalidBoard, LizaError, Refused
from liza.workflow.transition import apply
from tests.boards import PATIENCE, PROCESSES, ended_well, messages, noted
from tests.engines import ENGINES, Store, claim_what_is_left, die_inside, note_when_told, submit_late
from tests.stories import BASE, NOW, PLANNER, lease_of, new_task, worker
from tests.stories import board as story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import Actor, State

TASKS = [f"t{number}" for number in range(40)]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param, tmp_path)


@pytest.fixture
def board(store: Store) -> Iterator[Board]:
    board = ENGINES[store.engine].make(store.place, story(*(new_task(name) for name in TASKS)))
    yield board
    board.close()


@pytest.fixture
def other(store: Store, board: Board) -> Iterator[Board]:  # noqa: ARG001 - the board has to be there first
    """Another board on the same store."""
    other = store.open()
    yield other
    other.close()


def with_creator(state: State, creator: object) -> State:
    return state.with_task(state.task("t0").replace(created_by=creator))


def claimed(board: Board, task: str, by: Actor) -> State:
    now = utc_now()
    return board.update(apply(e.Claim(lease=lease_of(by, at=now), base_commit=BASE), to=task, by=by, at=now))


class TestUpdate:
    def test_what_it_returns_is_what_is_read(self, board: Board, other: Board) -> None:
        state = board.update(noted("hello"))
        assert state.revision == 2
        assert messages(state) == ["hello"]
        assert board.read() == other.read() == state

    def test_every_change_is_one_revision(self, board: Board, other: Board) -> None:
        for number in range(2, 12):
            assert (board, other)[number % 2].update(noted(f"{number}")).revision == number

    def test_a_change_that_returns_its_input_writes_nothing(self, board: Board, other: Board) -> None:
        before = board.read()
        assert board.update(Change("human", "look", lambda state: state)) == before
        assert other.read() == before
        assert [entry.revision for entry in board.entries()] == [1]

    def test_a_change_that_only_copies_writes_nothing(self, board: Board) -> None:
        before = board.read()
        board.update(Change("human", "copy", lambda state: state.replace(tasks=dict(state.tasks))))
        assert board.read() == before

    def test_a_refused_change_raises_and_writes_nothing(self, board: Board, other: Board) -> None:
        before = board.read()
        with pytest.raises(Forbidden, match="t0: human may not release to coders a task that is IDLE"):
            board.update(apply(e.Ready(), to="t0", by=HUMAN, at=NOW))
        assert board.read() == other.read() == before
        assert [entry.revision for entry in board.entries()] == [1]

    def test_a_change_that_breaks_the_board_writes_nothing(self, board: Board, other: Board) -> None:
        before = board.read()
        waits = e.Amend(fields={"depends_on": ("nowhere",)})
        with pytest.raises(InvalidBoard, match="there is no task 'nowhere'"):
            board.update(apply(waits, to="t0", by=PLANNER, at=NOW))
        assert board.read() == other.read() == before

    def test_a_status_is_not_set_without_an_event(self, board: Board) -> None:
        before = board.read()
        forced = Change("coder-1", "force", lambda s: s.with_task(s.task("t0").replace(status=Status.MERGED)))
        with pytest.raises(InvalidBoard, match="IDLE became MERGED without an event"):
            board.update(forced)
        assert board.read() == before

    def test_history_is_append_only(self, board: Board) -> None:
        before = board.read()

        def rewritten(state: State) -> State:
            task = state.task("t0")
            return state.with_task(task.replace(history=(task.history[0].replace(by="somebody"),)))

        def forgotten(state: State) -> State:
            return state.with_task(state.task("t0").replace(history=()))

        for make in (rewritten, forgotten):
            with pytest.raises(InvalidBoard, match="history"):
                board.update(Change("human", "rewrite", make))
        assert board.read() == before

    @pytest.mark.parametrize("section", ["tasks", "human_notes"])
    def test_nothing_is_removed(self, section: str, board: Board) -> None:
        before = board.update(noted("hello"))
        with pytest.raises(InvalidBoard, match="it was removed"):
            board.update(Change("human", "remove", lambda state: state.replace(**{section: {}})))
        assert board.read() == before

    def test_a_value_that_could_not_be_read_back_is_refused(self, board: Board) -> None:
        """A record is copied without being checked, so the board checks it."""
        before = board.read()
        for wrong in ("../x", 3, None):
            broken = Change("human", "x", partial(with_creator, creator=wrong))
            with pytest.raises(InvalidBoard, match="the change was refused"):
                board.update(broken)
        assert board.read() == before

    def test_an_exception_inside_leaves_the_lock_free(self, store: Store, board: Board) -> None:
        def make(state: State) -> State:
            raise ZeroDivisionError(state.revision)

        with pytest.raises(ZeroDivisionError):
            board.update(Change("human", "die", make))
        process = PROCESSES.Process(target=die_inside, args=(store,))
        process.start()
        ended_well([process])
        assert messages(board.update(noted("went on as well"))) == ["went on", "went on as well"]

    def test_a_change_may_read_but_not_update(self, board: Board) -> None:
        """It is handed the state; a second update inside the first could only wait for itself."""

        def reading(state: State) -> State:
            assert board.read() == state
            return noted("read")(state)

        def updating(state: State) -> State:
            board.update(noted("inner"))
            return state

        board.update(Change("human", "read", reading))
        with pytest.raises(RuntimeError, match="a change must not update the board"):
            board.update(Change("human", "update", updating))
        assert messages(board.update(noted("after"))) == ["read", "after"]


class TestDecisions:
    def test_processes_that_claim_never_claim_the_same(self, store: Store, board: Board) -> None:
        """Decisions are made inside, on the state as it is under the lock."""
        pipes = [PROCESSES.Pipe(duplex=False) for _ in range(4)]
        workers = [
            PROCESSES.Process(target=claim_what_is_left, args=(store, f"coder-{n}", pipe))
            for n, (_, pipe) in enumerate(pipes)
        ]
        for process in workers:
            process.start()
        claimed = [pipe.recv() for pipe, _ in pipes]
        ended_well(workers)
        assert sorted(name for names in claimed for name in names) == sorted(TASKS)
        state = board.read()
        assert violations(state) == []
        assert {name: state.task(name).assigned_to for names in claimed for name in names} == {
            name: f"coder-{n}" for n, names in enumerate(claimed) for name in names
        }

    def test_threads_that_share_a_board_lose_nothing(self, board: Board) -> None:
        def raised(state: State) -> State:
            event = e.Amend(fields={"priority": state.task("t0").priority + 1})
            return apply(event, to="t0", by=PLANNER, at=NOW)(state)

        with ThreadPoolExecutor(8) as pool:
            states = list(pool.map(lambda _: board.update(Change("planner-1", "count", raised)), range(80)))
        assert sorted(state.revision for state in states) == list(range(2, 82))
        assert board.read().task("t0").priority == 80
        assert board.read().task("t0").event_count == 81

    def test_a_late_writer_is_refused(self, store: Store, board: Board) -> None:
        """Its lease was taken back and given to another: its token opens nothing any more."""
        claimed(board, "t0", worker("coder-1", token="old"))  # noqa: S106 - a lease is no secret
        board.update(apply(e.Reclaim(reason="silent"), to="t0", by=SUPERVISOR, at=utc_now()))
        state = claimed(board, "t0", worker("coder-1", token="new"))  # noqa: S106
        ours, theirs = PROCESSES.Pipe(duplex=False)
        late = PROCESSES.Process(target=submit_late, args=(store, "t0", "old", theirs))
        late.start()
        assert "may not submit it, because the lease is coder-1's by another token" in ours.recv()
        assert board.read() == state
        timely = PROCESSES.Process(target=submit_late, args=(store, "t0", "new", theirs))
        timely.start()
        assert ours.recv() == "taken"
        ended_well([late, timely])
        assert board.read().task("t0").status is Status.READY_FOR_REVIEW

    def test_a_writer_whose_lease_ended_is_refused(self, board: Board) -> None:
        coder = worker("coder-1")
        board.update(apply(e.Claim(lease=lease_of(coder), base_commit=BASE), to="t0", by=coder, at=NOW))
        with pytest.raises(Refused, match="the lease ended at"):
            board.update(apply(e.Submit(commit="c" * 40), to="t0", by=coder, at=NOW + timedelta(hours=2)))


class TestEntries:
    def test_every_change_is_there_in_order(self, board: Board, other: Board) -> None:
        board.update(noted("one"))
        other.update(apply(e.Amend(fields={"priority": 3}), to="t1", by=PLANNER, at=NOW))
        board.update(Change("human", "nothing", lambda state: state))
        with pytest.raises(LizaError):
            board.update(apply(e.Ready(), to="t0", by=HUMAN, at=NOW))
        first, *later = board.entries()
        assert [entry.revision for entry in (first, *later)] == [1, 2, 3]
        assert [(entry.by, entry.what) for entry in later] == [("human", "note"), ("planner-1", "amend t1")]
        assert later[1].put["tasks"]["t1"]["priority"] == 3
        assert [entry.at for entry in later] == sorted(entry.at for entry in later)
        assert list(other.entries()) == [first, *later]

    def test_it_begins_where_one_left_off(self, board: Board) -> None:
        for number in range(5):
            board.update(noted(f"{number}"))
        assert [entry.revision for entry in board.entries(after=4)] == [5, 6]
        assert list(board.entries(after=6)) == []

    def test_times_never_run_backwards(self, board: Board, other: Board) -> None:
        for number in range(20):
            (board, other)[number % 2].update(noted(f"{number}"))
        times = [entry.at for entry in board.entries()]
        assert times == sorted(times)
        assert all(time.utcoffset() == timedelta(0) for time in times)

    def test_what_left_is_named(self, board: Board) -> None:
        handoff = {"id": "t0", "agent": "coder-1", "timestamp": NOW, "summary": "half done"}

        def put(state: State) -> State:
            return state.replace(handoff=with_record(state.handoff, Handoff.model_validate(handoff)))

        board.update(Change("coder-1", "hand off", put))
        board.update(Change("coder-2", "take over", lambda state: state.replace(handoff={})))
        assert [entry.gone for entry in board.entries(after=1)] == [{}, {"handoff": ["t0"]}]
        assert board.read().handoff == {}


class TestWait:
    def test_it_returns_at_once_what_is_there(self, board: Board) -> None:
        state = board.update(noted("one"))
        assert board.wait(1, PATIENCE) == state

    def test_it_wakes_on_the_change_of_another_process(self, store: Store, board: Board) -> None:
        ours, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=note_when_told, args=(store, theirs))
        process.start()
        assert ours.recv() == "ready"
        for number in range(5):
            revision = board.read().revision
            ours.send(f"{number}")
            assert messages(board.wait(revision, PATIENCE))[-1] == f"{number}"
        ours.send(None)
        ended_well([process])

    def test_it_wakes_on_the_change_of_another_thread(self, board: Board) -> None:
        writer = threading.Thread(target=lambda: board.update(noted("one")))
        writer.start()
        assert messages(board.wait(1, PATIENCE)) == ["one"]
        writer.join()

    def test_it_times_out_with_the_state_as_it_is(self, board: Board) -> None:
        before, start = board.read(), time.monotonic()
        assert board.wait(before.revision, 0.2) == before
        assert 0.2 <= time.monotonic() - start < PATIENCE

    def test_no_time_is_only_a_look(self, board: Board) -> None:
        assert board.wait(1, 0) == board.read()


class TestClose:
    def test_one_board_closes_for_itself_alone(self, board: Board, other: Board) -> None:
        other.wait(1, 0.01)
        other.update(noted("one"))
        other.close()
        assert messages(board.update(noted("two"))) == ["one", "two"]

    def test_it_may_be_done_twice(self, store: Store, board: Board) -> None:  # noqa: ARG002
        other = store.open()
        other.read()
        other.close()
        other.close()

    def test_what_was_read_stays(self, store: Store, board: Board) -> None:
        """A state is a value: it needs no board, and no later change touches it."""
        other = store.open()
        state = other.read()
        other.close()
        board.update(noted("one"))
        assert messages(state) == []
        assert state.revision == 1

    def test_no_thread_stays(self, store: Store, board: Board) -> None:  # noqa: ARG002
        before = threading.active_count()
        other = store.open()
        other.wait(1, 0.01)
        other.close()
        assert threading.active_count() == before
