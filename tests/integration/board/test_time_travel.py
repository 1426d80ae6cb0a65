"""Every state that ever was can be seen again, and nothing that only saves time is needed for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from liza.board import journal as journal_module
from liza.board.file import FileBoard
from liza.board.view import SLACK
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change
from liza.domain.config import Config, Limits
from liza.domain.model import Role, State, Status, Task, WorkerRecord
from liza.domain.record import with_record
from liza.errors import JournalDamaged, NotThere, Refused
from liza.workflow.transition import add_task, apply
from tests.support.boards import is_whole, messages, noted, was_not_disturbed
from tests.support.editors import by_rename, with_note
from tests.support.sample_tasks import (
    BASE,
    NOW,
    PLANNER,
    REVIEWER,
    WAYS,
    commit,
    lease_of,
    new_task,
    walked,
    worker,
)
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TICK: Final = timedelta(microseconds=1)


class Clock:
    """A clock that shows the next of *times* each time it is asked, and then the last."""

    def __init__(self, *times: datetime) -> None:
        self._times = list(times)

    def __call__(self) -> datetime:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


def join(name: str) -> Change:
    agent = WorkerRecord(id=name, role=Role.CODER, since=NOW)
    return Change("supervisor", f"start {name}", lambda s: s.replace(agents=with_record(s.agents, agent)))


def leave(name: str) -> Change:
    def make(state: State) -> State:
        kept = {known: agent for known, agent in state.agents.items() if known != name}
        return state.replace(agents=MappingProxyType(kept))

    return Change("supervisor", f"stop {name}", make)


def life() -> Iterator[Change]:
    """Yield changes of every kind: things come, change, go, and come back."""
    coder = worker("coder-1")
    yield join("coder-1")
    yield join("coder-2")
    yield noted("hello\nworld: [")
    for number in range(8):
        yield apply(e.Take(lease=lease_of(coder), base_commit=BASE), to="t1", by=coder, at=NOW)
        yield apply(e.Renew(expires=NOW + timedelta(hours=number + 2)), to="t1", by=coder, at=NOW)
        yield apply(e.Release(reason=f"{number}"), to="t1", by=coder, at=NOW)
    yield leave("coder-1")
    yield join("coder-3")
    yield join("coder-1")
    yield add_task(new_task("t9", depends_on=("t1", "t2")).replace(history=()), by=PLANNER, at=NOW)
    yield apply(e.Supersede(superseded_by=("t9",), rescope_reason="too big"), to="t3", by=HUMAN, at=NOW)
    yield Change("human", "settings", lambda s: s.replace(config=Config(limits=Limits(agent_minutes=1.5))))
    yield apply(e.Block(reason="hm", questions=("Why?",)), to="t2", by=SUPERVISOR, at=NOW)
    yield apply(e.Answer(guidance="because"), to="t2", by=HUMAN, at=NOW)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".liza"


def lived(home: Path) -> tuple[FileBoard, list[State], list[bytes]]:
    """Return a board after a long life, with each state and each text as they were then."""
    tasks = (new_task("t1"), new_task("t2"), new_task("t3"), new_task("t4", depends_on=("t3",)))
    board = FileBoard.create(home, story(*tasks))
    states, texts = [board.read()], [(home / "state.yaml").read_bytes()]
    for change in life():
        states.append(board.update(change))
        texts.append((home / "state.yaml").read_bytes())
    by_rename(home / "state.yaml", with_note(texts[-1].decode(), "by hand").encode())
    states.append(board.absorb())
    texts.append((home / "state.yaml").read_bytes())
    return board, states, texts


@pytest.mark.parametrize("every", [1, 3000, journal_module.SNAPSHOT_EVERY])
def test_each_revision_is_as_it_was_read_then(
    every: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte, in the process that made it, in one that followed, and in one that comes later."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", every)
    board, states, texts = lived(home)
    for state, text in zip(states, texts, strict=True):
        assert board.at(state.revision)[0] == state
        assert board.text_at(state.revision) == text
    assert [state.revision for state in states] == list(range(1, len(states) + 1))
    assert FileBoard(home).read() == states[-1]
    is_whole(board)


def test_whoever_follows_piece_by_piece_sees_the_same(home: Path) -> None:
    """A process that looks after every change, now and then, or once at the end writes the same bytes."""
    board = FileBoard.create(home, story(new_task("t1"), new_task("t2"), new_task("t3")))
    followers = {every: FileBoard(home) for every in (1, 4, 7)}
    for follower in followers.values():
        follower.judge((home / "state.yaml").read_bytes())  # so that it has a text to follow with
    for number, change in enumerate(life()):
        board.update(change)
        for every, follower in followers.items():
            if number % every == 0:
                assert follower.read() == board.read()
    for follower in followers.values():
        follower.update(noted("mine"))
        is_whole(follower)


class TestTime:
    def test_it_is_told_to_the_microsecond(self, home: Path) -> None:
        times = [NOW + number * TICK for number in range(10)]
        board = FileBoard.create(home, story(new_task("t1")), clock=Clock(*times))
        for number in range(1, 10):
            board.update(noted(f"{number}"))
        for number, time in enumerate(times):
            assert len(board.at(time)[0].human_notes) == number
        assert len(board.at(NOW + timedelta(days=1))[0].human_notes) == 9

    def test_before_the_first_there_was_nothing(self, home: Path) -> None:
        board = FileBoard.create(home, story(new_task("t1")), clock=Clock(NOW))
        with pytest.raises(NotThere, match="there is no revision"):
            board.at(NOW - TICK)

    @pytest.mark.parametrize("revision", [-1, 0, 3, 99])
    def test_a_revision_that_never_was_is_said(self, revision: int, home: Path) -> None:
        board = FileBoard.create(home, story(new_task("t1")))
        board.update(noted("one"))
        with pytest.raises(NotThere, match=f"there is no revision '{revision}'; `liza log` lists them"):
            board.at(revision)

    @pytest.mark.parametrize("every", [1, journal_module.SNAPSHOT_EVERY])
    def test_a_clock_that_was_set_back_does_not_mix_up_the_past(
        self, every: int, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where a process starts from a snapshot and has read no line behind it."""
        monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", every)
        FileBoard.create(home, story(new_task("t1")), clock=Clock(NOW)).update(noted("one"))
        late = FileBoard(home, clock=Clock(NOW - timedelta(days=1)))
        late.update(noted("two"))
        assert [entry.at for entry in late.entries()] == [NOW] * 3
        assert messages(late.at(NOW)[0]) == ["one", "two"]


class TestSnapshot:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 1)

    def test_it_is_optional(self, home: Path) -> None:
        _, states, texts = lived(home)
        (home / journal_module.SNAPSHOT).unlink()
        board = FileBoard(home)
        assert board.read() == states[-1]
        assert board.text_at(len(states)) == texts[-1]
        assert board.update(noted("more")).revision == len(states) + 1
        is_whole(board)

    def test_it_is_used(self, home: Path) -> None:
        """Who opens a board with a snapshot need not read what came before it, even if that is damaged."""
        board, states, _ = lived(home)
        board.update(noted("so that the snapshot is of this state"))
        journal = home / "journal.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b"hello", b"hallo", 1))
        fresh = FileBoard(home)
        assert fresh.read().revision == len(states) + 1
        with pytest.raises(JournalDamaged):
            fresh.at(len(states))


class TestArchive:
    LIMIT: Final = 2

    @pytest.fixture
    def board(self, home: Path) -> FileBoard:
        """Return a board with so many finished tasks that one more moves the oldest of them off it."""
        finished = [merged(f"done-{number:02}", number) for number in range(self.LIMIT + SLACK)]
        waiting = new_task("waits", depends_on=("done-00",))
        config = Config(limits=Limits(finished_on_board=self.LIMIT))
        return FileBoard.create(home, story(*finished, waiting, new_task("last"), config=config))

    def archived(self, board: FileBoard) -> State:
        return board.update(
            apply(e.Abandon(reason="enough"), to="last", by=HUMAN, at=NOW + timedelta(days=1))
        )

    def test_the_oldest_finished_tasks_leave_the_board(self, board: FileBoard) -> None:
        before = board.read()
        state = self.archived(board)
        assert set(state.tasks) == {f"done-{self.LIMIT + SLACK - 1:02}", "waits", "last"}
        assert state.archived == dict.fromkeys(before.tasks.keys() - state.tasks.keys(), Status.MERGED)
        assert [entry.what for entry in board.entries(after=1)] == [
            "abandon last",
            f"archive {SLACK + 1} finished tasks",
        ]
        is_whole(board)
        assert FileBoard(board.home).read() == state

    def test_they_can_be_read_there(self, board: FileBoard) -> None:
        state = self.archived(board)
        files = {path.stem: path.read_text() for path in (board.home / "archive").iterdir()}
        assert files.keys() == state.archived.keys()
        assert "status: MERGED" in files["done-00"]

    def test_they_are_still_seen_in_the_past(self, board: FileBoard) -> None:
        before = board.read()
        self.archived(board)
        assert board.at(1)[0] == before
        assert board.at(2)[0].task("last").status is Status.ABANDONED
        assert "done-00" in board.at(2)[0].tasks

    def test_who_depends_on_one_may_start(self, board: FileBoard) -> None:
        self.archived(board)
        coder = worker("coder-9")
        claim = e.Take(lease=lease_of(coder), base_commit=BASE)
        assert board.update(apply(claim, to="waits", by=coder, at=NOW)).task("waits").status is Status.WORKING

    def test_their_ids_are_not_used_again(self, board: FileBoard) -> None:
        self.archived(board)
        task = new_task("done-00").replace(history=())
        with pytest.raises(Refused, match="done-00: there is such a task already"):
            board.update(add_task(task, by=PLANNER, at=NOW))

    def test_an_edit_made_before_they_left_is_taken(self, board: FileBoard) -> None:
        text = (board.home / "state.yaml").read_text()
        self.archived(board)
        by_rename(board.home / "state.yaml", with_note(text, "by hand").encode())
        state = board.absorb()
        assert messages(state) == ["by hand"]
        assert len(state.archived) == SLACK + 1
        is_whole(board)
        was_not_disturbed(board.home)


def merged(name: str, number: int) -> Task:
    """Return a task that was merged *number* minutes after the first."""
    work = commit(number + 1)
    ways = (
        *WAYS[Status.APPROVED],
        (e.Intend(onto=BASE, commit=work), REVIEWER),
        (e.Land(commit=work), REVIEWER),
    )
    return walked(new_task(name), *ways, at=NOW + timedelta(minutes=number))
