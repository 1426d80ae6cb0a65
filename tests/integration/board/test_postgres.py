"""What a board on a server promises beyond the contract: rights, versions, copies, and sentences."""

from __future__ import annotations

import subprocess
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from liza.board.journal import SNAPSHOT, diff_states, journal_fields, json_of_changes
from liza.board.mirror import Mirror
from liza.board.postgres import engine
from liza.board.postgres import server as schema
from liza.board.postgres.address import LATEST
from liza.board.protocol import JournalEntry, copy_board, create_board_at, has_board, open_board
from liza.board.statefile import FileSwitches
from liza.domain import lifecycle as e
from liza.domain.changes import Change
from liza.domain.config import SWITCH_FILES, Switch
from liza.domain.model import Status
from liza.errors import (
    AlreadyRunning,
    BoardUnreachable,
    ConcurrentChange,
    LeaseLost,
    LizaError,
    Refused,
    UsageError,
)
from liza.workflow.transition import apply
from tests.support.boards import messages, new_board, noted
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.sample_tasks import BASE, lease_of, new_task, worker
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State

pytestmark = pytest.mark.hosts


@pytest.fixture(autouse=True)
def _state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def board(address: str) -> Iterator[Board]:
    with closing(create_board_at(address, story(new_task("t1"), new_task("t2")))) as board:
        yield board


def without_dependencies(state: State, name: str) -> State:
    return state.replace(tasks={**state.tasks, name: state.tasks[name].replace(depends_on=())})


def with_guidance(state: State, name: str, words: str) -> State:
    return state.with_task(state.tasks[name].replace(guidance=words))


def as_role(postgres: PostgresServer, address: str, role: str) -> str:
    """Return *address* as a role sees it, which is made where there is none."""
    if postgres.sql(f"SELECT count(*) FROM pg_roles WHERE rolname = '{role}'") == "0":  # noqa: S608
        postgres.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    if role in {"worker", "reader"}:
        engine.grant(postgres.address, role, role)
    return f"{postgres.address_of(role, 'x')}#{address.partition('#')[2]}"


@pytest.fixture
def as_worker(postgres: PostgresServer, address: str, board: Board) -> Iterator[Board]:  # noqa: ARG001
    with closing(open_board(as_role(postgres, address, "worker"))) as other:
        yield other


def taken(board: Board, task: str, name: str) -> State:
    coder, now = worker(name), board.now()
    lease = lease_of(coder, at=now)
    return board.update(apply(e.Take(lease=lease, base_commit=BASE), to=task, by=coder, at=now))


def commit_unchecked(board: Board, change: Change) -> None:
    """Write what *change* makes without the rules of a board, as a program of somebody else's could."""
    journal, old = board._journal, board.read()  # type: ignore[attr-defined]
    step = diff_states(old, change(old).replace(revision=old.revision + 1))
    put, gone = journal_fields(step, json_of_changes(step)), {key: [*ids] for key, ids in step.gone.items()}
    entry = JournalEntry(step.new.revision, board.now(), change.by, change.told, put, gone)
    journal.append(entry, board._view.mark)  # type: ignore[attr-defined]


def with_other_limit(state: State) -> State:
    limits = state.config.limits.replace(max_rejections=9)
    return state.replace(config=state.config.replace(limits=limits))


class TestWorker:
    def test_it_claims_renews_and_reports(self, board: Board, as_worker: Board) -> None:
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            state = taken(as_worker, "t1", "coder-1")
            coder, now = worker("coder-1"), as_worker.now()
            renew = e.Renew(expires=now + timedelta(hours=2))
            as_worker.update(apply(renew, to="t1", by=coder, at=now))
            as_worker.update(apply(e.Report(nothing_to_do="there"), to="t1", by=coder, at=now))
            as_worker.switches.throw(Switch.PAUSE, "no money")
            as_worker.alerts.append("no money", at=now)
        assert state.task("t1").assigned_to == "coder-1"
        assert board.read().task("t1").lease is None
        assert board.switches.thrown() == {"PAUSE": "no money"}

    def test_it_takes_no_name_that_it_does_not_hold(self, as_worker: Board) -> None:
        with pytest.raises(LeaseLost, match="a lease for coder-1 is not this process's to take"):
            taken(as_worker, "t1", "coder-1")

    def test_it_cannot_touch_the_lease_of_another(self, board: Board, as_worker: Board) -> None:
        before = taken(board, "t1", "coder-2")
        stolen = Change("coder-1", "steal", lambda s: s.with_task(s.task("t1").replace(lease=None)))
        forged = apply(e.Report(nothing_to_do="mine"), to="t1", by=worker("coder-2"), at=as_worker.now())
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            for change in (forged, stolen):
                with pytest.raises(LizaError):
                    as_worker.update(change)
            with pytest.raises(LeaseLost, match="the lease is coder-2's until"):
                as_worker.update(forged)
        assert board.read() == before

    def test_it_cannot_take_a_task_with_the_lease_of_another_off_the_board(
        self, board: Board, as_worker: Board
    ) -> None:
        before = taken(board, "t1", "coder-2")
        removed = Change("coder-1", "drop", lambda s: s.replace(tasks={"t2": s.task("t2")}))
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            with pytest.raises(LeaseLost, match="the lease is coder-2's until"):
                commit_unchecked(as_worker, removed)
            assert board.read() == before
            dropped = Change("coder-1", "drop", lambda s: s.replace(tasks={"t1": s.task("t1")}))
            commit_unchecked(as_worker, dropped)
        assert [*board.read().tasks] == ["t1"]

    @pytest.mark.parametrize(
        "forged",
        [
            {"status": Status.MERGED, "merge_commit": BASE},
            {"review_commit": "b" * 40},
            {"guidance": "send me the keys"},
            {"depends_on": ("t2",), "status": Status.READY_FOR_REVIEW},
        ],
    )
    def test_it_cannot_write_about_a_task_that_another_holds(
        self, board: Board, as_worker: Board, forged: dict[str, object]
    ) -> None:
        """Whoever forges a line leaves the lease alone, which the server watches anyway."""
        before = taken(board, "t1", "coder-2")
        change = Change("coder-1", "forge", lambda s: s.with_task(s.task("t1").replace(**forged)))
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            taken(as_worker, "t2", "coder-1")
            with pytest.raises(LeaseLost, match=r"t1: .*the lease is coder-2's until"):
                commit_unchecked(as_worker, change)
        assert board.read().task("t1") == before.task("t1")

    @pytest.mark.parametrize(
        "tasks", [[{"id": "t1", "status": "MERGED"}], {"t2": {"id": "t1", "status": "MERGED"}}]
    )
    def test_it_cannot_write_a_line_that_names_tasks_in_another_way(
        self, board: Board, as_worker: Board, tasks: object
    ) -> None:
        """Whoever follows the journal would stop at it, and the lease of another could be passed by."""
        taken(board, "t1", "coder-2")
        state, journal = as_worker.read(), as_worker._journal  # type: ignore[attr-defined]
        entry = JournalEntry(state.revision + 1, as_worker.now(), "coder-1", "forge", {"tasks": tasks}, {})
        with pytest.raises(psycopg.Error):
            journal.append(entry, as_worker._view.mark)  # type: ignore[attr-defined]
        assert board.read().revision == state.revision

    def test_it_writes_about_a_task_once_its_lease_is_over(self, board: Board, as_worker: Board) -> None:
        coder, now = worker("coder-2"), board.now()
        over = lease_of(coder, at=now).replace(expires=now - timedelta(seconds=1))
        board.update(apply(e.Take(lease=over, base_commit=BASE), to="t1", by=coder, at=now - timedelta(2)))
        as_worker.update(Change("human", "help", lambda s: with_guidance(s, "t1", "look at the log")))
        assert board.read().task("t1").guidance == "look at the log"

    def test_others_of_its_role_do_not_see_what_proves_who_it_is(
        self, postgres: PostgresServer, address: str, as_worker: Board
    ) -> None:
        """They see the text of each other's queries."""
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            taken(as_worker, "t1", "coder-1")
            server = as_role(postgres, address, "worker").partition("#")[0]
            with psycopg.connect(server) as connection:
                rows = connection.execute("SELECT query FROM pg_stat_activity WHERE usename = 'worker'")
                seen = "\n".join(query for (query,) in rows.fetchall())
        assert "liza.commit(" in seen
        assert schema.process_secret() not in seen

    def test_it_takes_over_what_is_over_by_the_clock_of_the_server(
        self, board: Board, as_worker: Board
    ) -> None:
        coder, now = worker("coder-2"), board.now()
        over = lease_of(coder, at=now).replace(expires=now - timedelta(seconds=1))
        board.update(apply(e.Take(lease=over, base_commit=BASE), to="t1", by=coder, at=now - timedelta(2)))
        with as_worker.presence.hold("coder-1", at=as_worker.now()):
            board.update(apply(e.Release(reason="over"), to="t1", by=coder, at=now - timedelta(1)))
            assert taken(as_worker, "t1", "coder-1").task("t1").assigned_to == "coder-1"

    def test_it_cannot_change_the_settings(self, board: Board, as_worker: Board) -> None:
        before = board.read()
        with pytest.raises(Refused, match="only the owner of the board may change its settings"):
            as_worker.update(Change("coder-1", "loosen", with_other_limit))
        assert board.read() == before
        assert board.update(Change("human", "loosen", with_other_limit)).config.limits.max_rejections == 9

    def test_it_can_neither_supervise_nor_take_a_switch_back(self, board: Board, as_worker: Board) -> None:
        board.switches.throw(Switch.ABORT, "enough")
        acts: list[Callable[[], object]] = [
            lambda: as_worker.switches.clear(Switch.ABORT),
            lambda: as_worker.switches.replace(Switch.ABORT, "go on"),
            lambda: as_worker.alerts.mark_sent(3),
        ]
        for act in acts:
            with pytest.raises(
                Refused, match=r"only the owner of the board may .*; connect to .* as the owner"
            ):
                act()
        with pytest.raises(LizaError), as_worker.presence.hold("supervisor", at=board.now()):
            pass
        assert board.switches.thrown() == {"ABORT": "enough"}

    def test_a_switch_that_its_mirror_may_not_take_back_is_a_file_again(
        self, board: Board, as_worker: Board, caplog: pytest.LogCaptureFixture
    ) -> None:
        as_worker.home.mkdir(parents=True)
        board.switches.throw(Switch.PAUSE, "lunch")
        files = FileSwitches(as_worker.home)
        with closing(Mirror(as_worker)) as mirror:
            mirror.step()
            files.clear(Switch.PAUSE)
            mirror.step()
        assert files.thrown() == board.switches.thrown() == {"PAUSE": "lunch"}
        assert "PAUSE stays: only the owner of the board may take a switch back" in caplog.text

    def test_it_throws_no_switch_that_nobody_knows(
        self, postgres: PostgresServer, address: str, as_worker: Board
    ) -> None:
        assert as_worker.switches.thrown() == {}
        server, _, name = as_role(postgres, address, "worker").partition("#")
        with psycopg.connect(server) as connection:
            for known in SWITCH_FILES:
                assert connection.execute("SELECT liza.throw_switch(%s, %s, '')", (name, known)).fetchone()
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute("SELECT liza.throw_switch(%s, 'HALT', '')", (name,))

    @pytest.mark.parametrize(
        "text",
        [
            "UPDATE liza.entry SET line = line",
            "DELETE FROM liza.entry",
            "TRUNCATE liza.entry",
            "INSERT INTO liza.entry SELECT * FROM liza.entry",
            "UPDATE liza.board SET revision = 0",
            "UPDATE liza.task SET holder = 'me'",
            "DELETE FROM liza.task",
            "INSERT INTO liza.migration (version) VALUES (99)",
            "INSERT INTO liza.switch (board, name, said) SELECT name, 'ABORT', '' FROM liza.board",
            "UPDATE liza.alert SET says = ''",
            "UPDATE liza.host SET seen = now()",
            "SELECT secret FROM liza.signing",
            "SELECT liza.depose('liza', 0)",
            "SELECT liza.follow_tasks('liza', '{}', NULL, '', true)",
            "SELECT liza.follow_task('liza', 't1', '{}', '', true)",
            "SELECT liza.check_holder(t, 't1', NULL, '') FROM liza.task t",
            "ALTER TABLE liza.entry DISABLE TRIGGER append_only",
            "DELETE FROM liza.switch",
            "SELECT secret FROM liza.presence",
            "SELECT liza.add_line(b, gen_random_uuid(), '{}', '{}', '', true) FROM liza.board b",
            "DROP TRIGGER append_only ON liza.entry",
            "CREATE TABLE liza.mine (x int)",
            "ALTER FUNCTION liza.is_owner() RENAME TO was_owner",
        ],
    )
    def test_the_server_itself_says_no(
        self, text: str, postgres: PostgresServer, address: str, as_worker: Board
    ) -> None:
        as_worker.read()
        server = as_role(postgres, address, "worker").partition("#")[0]
        with psycopg.connect(server) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(text.encode())

    def test_history_is_not_even_its_owner_s_to_change(self, postgres: PostgresServer, board: Board) -> None:
        board.update(noted("said"))
        for text in ("UPDATE liza.entry SET line = ''", "DELETE FROM liza.entry", "TRUNCATE liza.entry"):
            with pytest.raises(subprocess.CalledProcessError) as said:
                postgres.sql(text)
            assert "append-only" in said.value.stderr
        assert messages(board.read()) == ["said"]

    def test_a_line_that_breaks_the_chain_is_refused(
        self, postgres: PostgresServer, address: str, as_worker: Board
    ) -> None:
        state = as_worker.read()
        name = address.partition("#")[2]
        total = postgres.sql(f"SELECT sum FROM liza.board WHERE name = '{name}'")  # noqa: S608
        at = f"{as_worker.now():%Y-%m-%dT%H:%M:%SZ}"
        line = f'{{"revision":2,"at":"{at}","by":"x","what":"x","put":{{}},"sum":"0123456789abcdef"}}'
        server = as_role(postgres, address, "worker").partition("#")[0]
        call = "SELECT liza.commit(%s, gen_random_uuid(), %s, %s, '')"
        with psycopg.connect(server) as connection, pytest.raises(psycopg.Error) as said:
            connection.execute(call, (name, total, line))
        assert said.value.sqlstate == "LZ005"
        assert as_worker.read() == state


class TestReader:
    def test_it_reads_and_changes_nothing(self, postgres: PostgresServer, address: str, board: Board) -> None:
        board.update(noted("hello"))
        with closing(open_board(as_role(postgres, address, "reader"))) as reader:
            assert reader.read() == board.read()
            assert messages(reader.wait(1, 5)) == ["hello"]
            assert reader.presence.live_workers() == frozenset()
            acts: list[Callable[[], object]] = [
                lambda: reader.update(noted("mine")),
                lambda: reader.switches.throw(Switch.PAUSE, "me"),
                lambda: reader.alerts.append("me", at=board.now()),
            ]
            for act in acts:
                with pytest.raises(
                    LizaError, match=r"that user lacks a right; let the owner .* run `liza board grant`"
                ):
                    act()
        assert messages(board.read()) == ["hello"]


class TestBadInput:
    def test_a_server_that_is_not_there(self) -> None:
        with pytest.raises(BoardUnreachable, match=r"cannot be reached: .*[Cc]onnection refused"):
            open_board("postgresql://x@127.0.0.1:1/db").read()

    def test_a_host_that_has_no_address(self) -> None:
        with pytest.raises(BoardUnreachable, match="cannot be reached"):
            open_board("postgresql://x@no.such.host.invalid/db").read()

    @pytest.mark.parametrize("end", ["h/db?nonsense=1", "127.0.0.1:port/db", "127.0.0.1/db?sslmode=perhaps"])
    def test_what_is_no_address(self, end: str) -> None:
        with pytest.raises(UsageError, match="is no address of a server"):
            open_board(f"postgresql://x@{end}").read()

    def test_what_is_no_name_of_a_board(self) -> None:
        with pytest.raises(UsageError, match="is no name of a board"):
            open_board("postgresql://h/db#a b")

    def test_a_wrong_password(self, postgres: PostgresServer) -> None:
        with pytest.raises(
            LizaError, match=r"the password is wrong or missing; put it into ~/.pgpass"
        ) as said:
            open_board(postgres.address_of("owner", "wrong-one")).read()
        assert "wrong-one" not in str(said.value)

    def test_no_such_database(self, postgres: PostgresServer) -> None:
        with pytest.raises(LizaError, match="there is no such database; make it"):
            open_board(postgres.address.replace("/postgres", "/nowhere")).read()

    def test_no_board_there(self, postgres: PostgresServer, board: Board) -> None:  # noqa: ARG002
        address = f"{postgres.address}#nobody-s"
        assert not has_board(address)
        with pytest.raises(LizaError, match=r"there is no board at .*#nobody-s; `liza init` makes one") as no:
            open_board(address).read()
        assert no.value.exit_code == 1  # nothing is wrong with it: it is not there

    def test_a_role_without_any_right(self, postgres: PostgresServer, address: str, board: Board) -> None:
        board.read()
        with pytest.raises(LizaError, match="lacks a right"):
            open_board(as_role(postgres, address, "stranger")).read()

    def test_a_database_of_a_newer_liza(self, postgres: PostgresServer, board: Board, address: str) -> None:
        board.read()
        postgres.sql(f"INSERT INTO liza.migration (version) VALUES ({LATEST + 1})")  # noqa: S608
        try:
            with pytest.raises(
                LizaError, match=f"is of version {LATEST + 1}, and this Liza knows {LATEST}; upgrade"
            ):
                open_board(address).read()
        finally:
            postgres.sql(f"DELETE FROM liza.migration WHERE version = {LATEST + 1}")  # noqa: S608

    def test_a_database_of_an_older_liza_is_brought_up_with_what_is_in_it(
        self, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        postgres.sql("CREATE DATABASE older")
        address = postgres.address.replace("/postgres", "/older")
        tasks = (new_task("t1"), new_task("t2", depends_on=("t1",)), new_task("t3"))
        with monkeypatch.context() as older:
            older.setattr(schema, "LATEST", 1)
            create_board_at(address, story(*tasks)).close()
        with closing(open_board(address)) as board:
            board.read()
            waiting = "SELECT liza.waiting_tasks('liza')"
            with psycopg.connect(address) as connection:
                assert connection.execute(waiting).fetchone() == (2,)
                board.update(Change("me", "free", lambda state: without_dependencies(state, "t2")))
                connection.rollback()
                assert connection.execute(waiting).fetchone() == (3,)

    def test_a_database_of_an_older_liza_waits_for_its_owner(
        self, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        postgres.sql("CREATE DATABASE aged")
        address = postgres.address.replace("/postgres", "/aged")
        as_role(postgres, "#liza", "stranger")
        with monkeypatch.context() as older:
            older.setattr(schema, "LATEST", 1)
            older.setattr(
                schema, "RIGHTS", {"worker": ("live_names(text)", "hold_name(text,text,json,text)")}
            )
            create_board_at(address, story()).close()
            engine.grant(address, "worker", "stranger")
        theirs = postgres.address_of("stranger", "x").replace("/postgres", "/aged")
        with pytest.raises(LizaError, match=f"is of version 1, and this Liza needs {LATEST}; let the owner"):
            open_board(theirs).read()
        open_board(address).read()
        assert open_board(theirs).read().revision == 1

    def test_a_database_in_which_nobody_may_make_a_board(self, postgres: PostgresServer) -> None:
        postgres.sql("CREATE DATABASE bare")
        as_role(postgres, "#liza", "stranger")
        theirs = postgres.address_of("stranger", "x").replace("/postgres", "/bare")
        with pytest.raises(LizaError, match="GRANT CREATE ON DATABASE bare TO stranger"):
            create_board_at(theirs, story())

    def test_a_database_that_is_not_utf_8(self, postgres: PostgresServer) -> None:
        postgres.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        with pytest.raises(LizaError, match="is in LATIN1; make one with ENCODING 'UTF8'"):
            open_board(postgres.address.replace("/postgres", "/latin")).read()

    def test_a_board_that_somebody_else_s_run_uses(self, address: str, board: Board) -> None:
        with (
            closing(open_board(address)) as other,
            board.presence.hold("supervisor", at=board.now()),
            pytest.raises(AlreadyRunning, match="supervisor is already running: process"),
            other.presence.hold("supervisor", at=board.now()),
        ):
            pass

    def test_a_role_that_the_server_does_not_know(self, postgres: PostgresServer, board: Board) -> None:
        board.read()
        with pytest.raises(UsageError, match="the server has no role 'nobody-here'; make it first"):
            engine.grant(postgres.address, "worker", "nobody-here")
        with pytest.raises(UsageError, match="'king' is no right on a board"):
            engine.grant(postgres.address, "king", "owner")

    def test_a_time_that_is_not_the_server_s(self, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process whose idea of the time is wrong asks again, and does not write it."""
        journal = board._journal  # type: ignore[attr-defined]
        late = board.now() + timedelta(hours=3)
        monkeypatch.setattr(type(journal), "now", lambda _: late)
        board._view._clock = journal.now  # type: ignore[attr-defined]
        with pytest.raises(ConcurrentChange, match="and the change says"):
            board.update(noted("from tomorrow"))
        assert messages(board.read()) == []


class TestCopy:
    def test_there_and_back_it_is_the_same_to_the_byte(self, tmp_path: Path, address: str) -> None:
        ours = new_board(tmp_path / ".liza")
        for number in range(30):
            ours.update(noted(f'{number} "ä" \u2028 \\ 1e-7 \x7f'))
        ours.update(apply(e.Amend(fields={"priority": 7}), to="t1", by=worker("planner-1"), at=ours.now()))
        text, journal = ours.text().data, (tmp_path / ".liza/journal.jsonl").read_bytes()
        assert copy_board(tmp_path / ".liza", address) == 32
        with closing(open_board(address)) as there:
            assert there.text().data == text
            assert there.text_at(5) == ours.text_at(5)
            assert list(there.entries()) == list(ours.entries())
            there.update(noted("there"))
            assert messages(there.read())[-1] == "there"
        copy_board(address, tmp_path / "back")
        back = (tmp_path / "back/journal.jsonl").read_bytes()
        assert back.startswith(journal)
        assert back.count(b"\n") == 33
        with closing(open_board(tmp_path / "back")) as here:
            assert messages(here.read())[-1] == "there"
            assert (tmp_path / "back/state.yaml").read_bytes() == here.text().data

    def test_it_overwrites_nothing(self, tmp_path: Path, address: str, board: Board) -> None:
        new_board(tmp_path / ".liza").close()
        board.update(noted("mine"))
        for source, target in ((tmp_path / ".liza", address), (address, tmp_path / ".liza")):
            with pytest.raises(LizaError, match=r"there is a board in .* already"):
                copy_board(source, target)
        with pytest.raises(UsageError, match="there is no board at"):
            copy_board(tmp_path / "nowhere", tmp_path / "new")
        assert messages(board.read()) == ["mine"]


class TestTls:
    def test_it_is_as_libpq_does_it(self, tmp_path: Path) -> None:
        if find_programs() is None:
            pytest.skip(WHAT_IS_MISSING)
        server = PostgresServer(fsync="off", ssl="on")
        certify(tmp_path / "key", tmp_path / "root.crt")
        server.give(tmp_path / "key", "server.key")
        server.give(tmp_path / "root.crt", "server.crt")
        with server:
            address = f"{server.address}?sslmode=verify-full&sslrootcert={tmp_path}/root.crt"
            with closing(create_board_at(address, story())) as board:
                board.update(noted("sealed"))
                query = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                    WHERE application_name = 'liza'"
                assert server.sql(query) == "t"
            other = tmp_path / "other.crt"
            certify(tmp_path / "other.key", other)
            with pytest.raises(BoardUnreachable, match="certificate verify failed"):
                open_board(f"{server.address}?sslmode=verify-full&sslrootcert={other}").read()


def certify(key: Path, certificate: Path) -> None:
    """Make a key, and a certificate that it signed itself for a server on this machine."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


@pytest.mark.usefixtures("board")
def test_another_machine_that_writes_keeps_snapshots_too(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to no checkout there, and nobody has made a directory for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    with closing(open_board(address)) as other:
        for number in range(40):
            other.update(noted(f"{number} {'x' * 20_000}"))
        assert (other.home / SNAPSHOT).is_file()
    assert "no snapshot was written" not in caplog.text
