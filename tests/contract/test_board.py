"""What every engine of the board must do; written against the protocol, so that a second is held to it."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from liza.board.protocol import PLANNING_NAME, SUPERVISOR_NAME, Glance, glance_at, has_board, validate_board
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change, violations
from liza.domain.config import SWITCH_FILES, Switch
from liza.domain.model import Handoff, Status
from liza.domain.record import utc_now, with_record
from liza.errors import AlreadyRunning, Forbidden, InvalidBoard, LizaError, NotThere, Refused
from liza.workflow.transition import apply
from tests.support.board_engines import (
    ENGINES,
    Store,
    claim_what_is_left,
    die_by_signal_inside,
    die_inside,
    hold_until_told,
    note_when_told,
    submit_late,
    take_when_told,
    throw_and_alert,
)
from tests.support.boards import PATIENCE, PROCESSES, ended, ended_well, messages, noted
from tests.support.sample_tasks import BASE, NOW, PLANNER, lease_of, new_task, worker
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import Actor, State

TASKS = [f"t{number}" for number in range(40)]


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name == "file" else [pytest.mark.hosts]) for name in ENGINES]
)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_STATE_HOME", "")  # put back afterwards: a store sets it
    server = "" if request.param == "file" else request.getfixturevalue("postgres").address
    return Store(request.param, tmp_path, server)


@pytest.fixture
def board(store: Store) -> Iterator[Board]:
    board = store.create(story(*(new_task(name) for name in TASKS)))
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
    return board.update(apply(e.Take(lease=lease_of(by, at=now), base_commit=BASE), to=task, by=by, at=now))


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

    def test_who_is_killed_inside_holds_nobody_up(self, store: Store, board: Board) -> None:
        """The lock goes with its holder, and what it had not finished never was."""
        before = board.read()
        process = PROCESSES.Process(target=die_by_signal_inside, args=(store,))
        process.start()
        assert ended(process) == -signal.SIGKILL
        assert board.read() == before
        assert messages(board.update(noted("went on"))) == ["went on"]

    def test_who_waits_can_be_told_for_whom(self, board: Board) -> None:
        board.update(noted("one"))
        assert str(os.getpid()) in board.lock_holder()


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
        board.update(apply(e.Take(lease=lease_of(coder), base_commit=BASE), to="t0", by=coder, at=NOW))
        with pytest.raises(Refused, match="the lease ended at"):
            board.update(apply(e.Report(commit="c" * 40), to="t0", by=coder, at=NOW + timedelta(hours=2)))


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


class TestCreate:
    def test_there_is_one_board_at_a_location(self, store: Store, board: Board) -> None:
        assert has_board(store.location)
        with pytest.raises(LizaError, match=r"there is a board in .* already"):
            store.create(story())
        assert list(store.open().read().tasks) == TASKS
        assert board.read().revision == 1

    def test_an_invalid_board_is_not_begun(self, store: Store) -> None:
        lost = new_task("t1", depends_on=("nowhere",))
        with pytest.raises(InvalidBoard, match="there is no task 'nowhere'"):
            store.create(story(lost))

    def test_where_there_is_none_nothing_is_made(self, store: Store) -> None:
        assert not has_board(store.location)
        assert glance_at(store.location) is None
        with pytest.raises(LizaError):
            store.open().read()
        assert list(store.place.iterdir()) == []

    def test_its_home_is_a_directory_of_this_machine(self, board: Board, other: Board) -> None:
        """Runs and logs are written there, whatever engine has the board."""
        assert board.home == other.home
        assert board.home.is_dir()

    def test_a_glance_is_the_board(self, store: Store, board: Board) -> None:
        state = board.update(noted("hello"))
        board.switches.throw(Switch.PAUSE, "lunch")
        assert glance_at(store.location) == Glance(state, {"PAUSE": "lunch"}, is_running=False)

    def test_a_good_board_is_valid(self, store: Store, board: Board) -> None:
        state = board.update(noted("hello"))
        assert validate_board(store.location) == state


def text_of(board: Board, before: str = "", after: str = "") -> bytes:
    """Return the board's text with one thing in it changed."""
    text = board.text_at(board.read().revision).decode()
    assert before in text
    return text.replace(before, after, 1).encode()


class TestPeople:
    def test_what_a_person_changed_happens(self, board: Board, other: Board) -> None:
        state = board.take(text_of(board, "do t3", "do it well"))
        assert state.task("t3").description == "do it well"
        assert other.read() == state
        assert [(entry.revision, entry.by) for entry in board.entries(after=1)] == [(2, "human")]

    def test_what_is_unchanged_changes_nothing(self, board: Board) -> None:
        before = board.read()
        assert board.take(text_of(board)) == before
        assert [entry.revision for entry in board.entries()] == [1]

    def test_an_old_copy_takes_back_nothing_that_came_meanwhile(self, board: Board, other: Board) -> None:
        copy = text_of(board, "do t3", "do it well")
        other.update(apply(e.Amend(fields={"priority": 7}), to="t3", by=PLANNER, at=NOW))
        other.update(noted("meanwhile"))
        state = board.take(copy)
        assert (state.task("t3").description, state.task("t3").priority) == ("do it well", 7)
        assert messages(state) == ["meanwhile"]

    def test_saved_twice_is_one_change(self, board: Board, other: Board) -> None:
        copy = text_of(board, "do t3", "do it well")
        state = board.take(copy)
        assert other.take(copy) == state

    def test_what_breaks_a_rule_is_refused_whole_with_its_line(self, board: Board, other: Board) -> None:
        before = board.read()
        copy = text_of(board, "do t3", "do it well").replace(b"status: IDLE", b"status: MERGED", 1)
        line = copy[: copy.index(b"status: MERGED")].count(b"\n") + 1
        for refuse in (board.judge, board.take):
            with pytest.raises(InvalidBoard) as refused:
                refuse(copy)
            assert [wrong.line for wrong in refused.value.violations] == [line]
        assert board.read() == other.read() == before

    @pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"tasks: [", b"- 1\n"])
    def test_what_is_no_board_is_refused(self, data: bytes, board: Board) -> None:
        before = board.read()
        for refuse in (board.judge, board.take):
            with pytest.raises(InvalidBoard):
                refuse(data)
        assert board.read() == before

    def test_to_judge_changes_nothing(self, board: Board) -> None:
        before = board.read()
        board.judge(text_of(board, "do t3", "do it well"))
        assert board.read() == before

    def test_people_who_save_at_once_lose_nothing(self, store: Store, board: Board) -> None:
        pipes = [PROCESSES.Pipe() for _ in range(3)]
        people = [
            PROCESSES.Process(
                target=take_when_told, args=(store, f"do t3{n}".encode(), f"done by {n}".encode(), theirs)
            )
            for n, (_, theirs) in enumerate(pipes)
        ]
        for person in people:
            person.start()
        for pipe, _ in pipes:
            assert pipe.recv() == "ready"
        for pipe, _ in pipes:
            pipe.send("now")
        assert sorted(pipe.recv() for pipe, _ in pipes) == [2, 3, 4]
        ended_well(people)
        assert [board.read().task(f"t3{n}").description for n in range(3)] == [
            f"done by {n}" for n in range(3)
        ]

    def test_with_nothing_saved_there_is_nothing_to_take_in(self, board: Board, other: Board) -> None:
        state = other.update(noted("one"))
        assert board.absorb() == state

    def test_what_was_refused_is_kept_whole(self, board: Board) -> None:
        """Also what comes in the same second, and is the same."""
        kept = [board.quarantine(b"tasks: [\xff", at=NOW) for _ in range(3)]
        assert len(set(kept)) == 3
        assert [path.read_bytes() for path in kept] == [b"tasks: [\xff"] * 3


class TestTimeTravel:
    def test_a_revision_is_what_it_was(self, board: Board, other: Board) -> None:
        states = [board.read(), *(other.update(noted(f"{number}")) for number in range(5))]
        assert [board.at(state.revision)[0] for state in states] == states

    def test_a_time_is_the_last_change_until_then(self, board: Board) -> None:
        states = [board.read(), *(board.update(noted(f"{number}")) for number in range(3))]
        times = [entry.at for entry in board.entries()]
        later = times[-1] + timedelta(hours=1)
        found = [board.at(at)[0].revision for at in times]
        # Two changes may have the same time: then it is the later one that was until then.
        assert found == [max(n for n, one in enumerate(times, start=1) if one <= at) for at in times]
        assert board.at(later)[0] == states[-1]

    def test_a_text_stays_what_it_was(self, board: Board) -> None:
        first = board.text_at(1)
        board.take(text_of(board, "do t3", "do it well"))
        assert board.text_at(1) == first
        assert board.text_at(2) != first

    @pytest.mark.parametrize("moment", [0, 2, -1, NOW - timedelta(days=9999)])
    def test_what_never_was_is_one_sentence(self, moment: int, board: Board) -> None:
        with pytest.raises(NotThere, match=r"there is no revision .*`liza log`"):
            board.at(moment)


class TestSwitches:
    def test_everybody_sees_what_is_thrown_and_why(self, board: Board, other: Board) -> None:
        assert board.switches.thrown() == {}
        for switch in (Switch.PAUSE, Switch.ABORT, Switch.CHECKPOINT):
            assert board.switches.throw(switch, f"for {switch.name}\nand more")
            assert other.switches.thrown()[switch.name] == f"for {switch.name} and more"
            assert switch.name in other.switches.place_of(switch)
        assert set(other.switches.thrown()) == set(SWITCH_FILES)

    def test_what_is_thrown_stays_until_it_is_replaced_or_taken_back(
        self, board: Board, other: Board
    ) -> None:
        board.switches.throw(Switch.PAUSE, "lunch")
        assert not other.switches.throw(Switch.PAUSE, "mine")
        assert board.switches.thrown() == {"PAUSE": "lunch"}
        other.switches.replace(Switch.PAUSE, "mine")
        assert board.switches.thrown() == {"PAUSE": "mine"}
        board.switches.clear(Switch.PAUSE)
        assert other.switches.thrown() == {}
        other.switches.clear(Switch.PAUSE)

    def test_it_says_since_when(self, board: Board, other: Board) -> None:
        assert board.switches.thrown_at(Switch.CHECKPOINT) is None
        board.switches.throw(Switch.CHECKPOINT, "")
        deadline = time.monotonic() + PATIENCE
        while (
            at := other.switches.thrown_at(Switch.CHECKPOINT)
        ) is None:  # for a moment it may be being written
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert abs(utc_now() - at) < timedelta(seconds=PATIENCE)
        assert board.switches.thrown_at(Switch.CHECKPOINT) == at
        assert other.switches.thrown_at(Switch.PAUSE) is None

    def test_one_thrower_wins_and_no_alert_is_lost_or_torn(self, store: Store, board: Board) -> None:
        pipes = [PROCESSES.Pipe() for _ in range(3)]
        throwers = [
            PROCESSES.Process(target=throw_and_alert, args=(store, name, theirs))
            for name, (_, theirs) in zip("abc", pipes, strict=True)
        ]
        for thrower in throwers:
            thrower.start()
        for pipe, _ in pipes:
            assert pipe.recv() == "ready"
        for pipe, _ in pipes:
            pipe.send("now")
        won = [name for name, (pipe, _) in zip("abc", pipes, strict=True) if pipe.recv()]
        ended_well(throwers)
        assert board.switches.thrown() == {"PAUSE": f"{won[0]} wants it"}
        assert len(won) == 1
        told = [alert.says for alert in board.alerts.after(0)]
        assert sorted(told) == sorted(f"{name} {n} {'x' * 5000}" for name in "abc" for n in range(20))


class TestAlerts:
    def test_they_are_read_in_order_from_where_one_left_off(self, board: Board, other: Board) -> None:
        assert board.alerts.after(0) == []
        assert board.alerts.end() == board.alerts.sent() == 0
        for number in range(3):
            (board, other)[number % 2].alerts.append(f"alert {number}", at=NOW)
        first, second, third = other.alerts.after(0)
        assert [alert.says for alert in (first, second, third)] == ["alert 0", "alert 1", "alert 2"]
        assert first.at == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
        assert board.alerts.after(first.position) == [second, third]
        assert board.alerts.after(third.position) == []
        assert third.position == board.alerts.end()

    def test_what_was_sent_is_known_to_the_next_supervisor(self, store: Store, board: Board) -> None:
        board.alerts.append("one", at=NOW)
        board.alerts.mark_sent(board.alerts.end())
        board.alerts.append("two", at=NOW)
        again = store.open().alerts
        assert [alert.says for alert in again.after(again.sent())] == ["two"]

    def test_an_alert_is_one_line_without_secrets(
        self, board: Board, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person-alone-123456")
        board.alerts.append("one\ntwo sk-of-the-person-alone-123456 \x1b[31m", at=NOW)
        (alert,) = board.alerts.after(0)
        assert alert.says.startswith("one two ")
        assert "person-alone" not in alert.says
        assert "\x1b" not in alert.says


class TestPresence:
    def test_a_name_has_one_holder_whom_everybody_knows(self, board: Board, other: Board) -> None:
        assert not other.presence.is_held("coder-1")
        with board.presence.hold("coder-1", at=NOW):
            assert other.presence.is_held("coder-1")
            holder = other.presence.holder_of("coder-1")
            assert holder is not None
            assert holder.pid == os.getpid()
            with (
                pytest.raises(AlreadyRunning, match=rf"coder-1 is already running: process {os.getpid()}"),
                other.presence.hold("coder-1", at=NOW),
            ):
                pass
            with other.presence.hold("coder-2", at=NOW):
                assert board.presence.live_workers() == {"coder-1", "coder-2"}
        assert other.presence.holder_of("coder-1") is None
        with other.presence.hold("coder-1", at=NOW):
            pass

    def test_supervisor_and_planning_are_no_workers(self, board: Board, other: Board) -> None:
        with (
            board.presence.hold(SUPERVISOR_NAME, at=NOW),
            board.presence.hold(PLANNING_NAME, at=NOW),
        ):
            assert other.presence.is_held(SUPERVISOR_NAME)
            assert other.presence.is_held(PLANNING_NAME)
            assert other.presence.live_workers() == frozenset()

    def test_whoever_is_killed_is_not_alive(self, store: Store, board: Board) -> None:
        ours, theirs = PROCESSES.Pipe()
        holder = PROCESSES.Process(target=hold_until_told, args=(store, "coder-1", theirs))
        holder.start()
        pid = ours.recv()
        assert board.presence.live_workers() == {"coder-1"}
        board.presence.remove_stale()
        assert board.presence.is_held("coder-1")
        os.kill(pid, signal.SIGKILL)
        assert ended(holder) == -signal.SIGKILL
        assert board.presence.live_workers() == frozenset()
        assert board.presence.holder_of("coder-1") is None
        board.presence.remove_stale()
        with board.presence.hold("coder-1", at=NOW):
            assert board.presence.live_workers() == {"coder-1"}

    def test_whoever_lets_go_is_not_alive(self, store: Store, board: Board) -> None:
        ours, theirs = PROCESSES.Pipe()
        holder = PROCESSES.Process(target=hold_until_told, args=(store, "reviewer-1", theirs))
        holder.start()
        ours.recv()
        assert board.presence.is_held("reviewer-1")
        ours.send("now")
        assert ours.recv() == "let go"
        ended_well([holder])
        assert not board.presence.is_held("reviewer-1")
