"""The hook of the remote with a board on a server: a reader's rights are enough, and away is no."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.postgres import engine, ref_reader
from liza.board.postgres.address import own_home, parse_address
from liza.board.postgres.news import SEEN
from liza.board.postgres.ref_reader import KEEP_EVERY, KEPT, load_kept
from liza.board.protocol import create_board_at, grant_right, open_board
from liza.daemon.push_hook import check_push, install_hook
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.model import Lease
from liza.domain.shared_refs import token_digest
from liza.errors import BoardUnreachable, Refused
from liza.workflow.transition import apply
from tests.support.hosts import bare_repository
from tests.support.sample_tasks import BASE, board, new_task, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.protocol import Board
    from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.hosts
ZERO, COMMIT = "0" * 40, "a" * 40


def test_a_reader_can_tell_who_may_push(
    postgres: PostgresServer,
    tmp_path: Path,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = address.partition("#")[2]
    postgres.sql(f"CREATE ROLE \"r{name}\" LOGIN PASSWORD 'looks'")
    with closing(create_board_at(address, board(new_task("t1")))) as ours:
        grant_right(address, "reader", f"r{name}")
        coder = worker("coder-1")
        token = str(coder.token)
        lease = Lease(holder=coder.id, token=token, expires=ours.now() + timedelta(minutes=1))
        take = e.Take(lease=lease, base_commit=BASE)
        ours.update(apply(take, to="t1", by=coder, at=ours.now()))
    reader = f"{postgres.address_of(f'r{name}', 'looks')}#{name}"
    mine = f"{ZERO} {COMMIT} refs/heads/liza/t1/{token_digest(token)}"
    late = f"{ZERO} {COMMIT} refs/heads/liza/t1/{token_digest('old')}"
    check_push(reader, [mine])
    with pytest.raises(Refused, match="t1: coder-1 holds it now, so that the push comes too late"):
        check_push(reader, [mine, late])

    # As git calls it: the address without its password is in the script, the whole in the environment.
    monkeypatch.setenv("LIZA_BOARD", reader)
    hook = install_hook(bare_repository(tmp_path / "team.git").directory, reader.replace(":looks", ""))
    assert "looks" not in hook.read_text()
    assert sys.executable in hook.read_text()
    for line, code in ((mine, 0), (late, 1)):
        done = subprocess.run([hook], input=line, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, code), done
    monkeypatch.delenv("LIZA_BOARD")
    with pytest.raises(BoardUnreachable):
        check_push(f"{postgres.address_of('owner', port=1)}#{name}", [mine])


FORGED: Final = f"{ZERO} {COMMIT} refs/heads/liza/t1/{token_digest('forged')}"


@pytest.fixture
def held(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """A board with a journal of some length, on which coder-1 holds t1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with closing(create_board_at(address, board(new_task("t1"), new_task("t2")))) as ours:
        _grow(ours, KEEP_EVERY)
        coder = worker("coder-1")
        lease = Lease(holder=coder.id, token=str(coder.token), expires=ours.now() + timedelta(minutes=1))
        ours.update(apply(e.Take(lease=lease, base_commit=BASE), to="t1", by=coder, at=ours.now()))
        yield ours


def _grow(ours: Board, lines: int) -> None:
    for number in range(lines):
        change = apply(e.Amend(fields={"priority": 1 + number % 2}), to="t2", by=HUMAN, at=ours.now())
        ours.update(change)


def _push_of(token: str) -> str:
    return f"{ZERO} {COMMIT} refs/heads/liza/t1/{token_digest(token)}"


MINE: Final = _push_of(str(worker("coder-1").token))


def kept_of(address: str) -> Path:
    return own_home(parse_address(address)) / KEPT


def test_the_hook_goes_on_from_what_an_earlier_one_left(held: Board, address: str) -> None:
    """The length of the journal is no matter: lines are read once, and the latest decide."""
    check_push(address, [MINE])
    kept = load_kept(kept_of(address), parse_address(address))
    assert kept.offset == len(b"".join(engine.lines(address)))
    assert kept_of(address).stat().st_mode & 0o777 == 0o600

    coder = worker("coder-1")
    held.update(apply(e.Release(reason="gone"), to="t1", by=coder, at=held.now()))
    before = kept_of(address).read_bytes()
    with pytest.raises(Refused, match="t1: nobody holds it now"):
        check_push(address, [MINE])
    assert kept_of(address).read_bytes() == before
    _grow(held, KEEP_EVERY)
    with pytest.raises(Refused, match="t1: nobody holds it now"):
        check_push(address, [MINE])
    assert load_kept(kept_of(address), parse_address(address)).offset > kept.offset


def test_a_lease_that_ran_out_is_too_late_whatever_was_kept(held: Board, address: str) -> None:
    check_push(address, [MINE])
    coder = worker("coder-1")
    now = held.now()
    soon = now + timedelta(milliseconds=1)  # sooner than anybody can ask
    held.update(apply(e.Renew(expires=soon), to="t1", by=coder, at=now))
    with pytest.raises(Refused, match="t1: its lease ran out"):
        check_push(address, [MINE])


def _forge(path: Path, *, place: str | None = None, offset: int | None = None) -> None:
    """Let the file say that t1 is held by somebody else's token."""
    origin, plain = json.loads(path.read_bytes().partition(b"\n")[2])
    plain[4]["t1"]["lease"]["token"] = "forged"  # noqa: S105
    origin[0] = place or origin[0]
    plain[0] = offset or plain[0]
    body = json.dumps([origin, plain]).encode()
    path.write_bytes(ref_reader._digest(body) + b"\n" + body)


def _break_digest(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"coder-1", b"coder-2"))


def _let_others_write(path: Path) -> None:
    _forge(path)
    path.chmod(0o620)


def _link(path: Path) -> None:
    _forge(path)
    path.replace(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    _forge(path)
    os.chown(path, 12345, 12345)


def _name_another_board(path: Path) -> None:
    _forge(path, place="postgresql://elsewhere/db#liza")


def _name_another_place(path: Path) -> None:
    _forge(path, offset=7)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


PLANTED: Final[tuple[Callable[[Path], None], ...]] = (
    *(_break_digest, _let_others_write, _link, _give_away),
    *(_name_another_board, _name_another_place, _empty, _pipe),
)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("plant", PLANTED)
def test_what_somebody_else_wrote_lets_nothing_through(address: str, plant: Callable[[Path], None]) -> None:
    check_push(address, [MINE])
    plant(kept_of(address))
    with pytest.raises(Refused, match="t1: coder-1 holds it now"):
        check_push(address, [FORGED])
    check_push(address, [MINE])


@pytest.mark.usefixtures("held")
def test_the_hook_loads_no_model_no_psycopg_and_no_other_command(address: str, tmp_path: Path) -> None:
    code = (
        "import sys, atexit; from liza.cli.pre_receive import main; "
        "atexit.register(lambda: print([one for one in ('pydantic', 'psycopg', 'yaml', 'liza.domain.model', "
        "'liza.cli.main', 'liza.repo.command') if one in sys.modules])); main()"
    )
    for line, exit_code in ((MINE, 0), (FORGED, 1)):
        command = [sys.executable, "-c", code, address]
        done = subprocess.run(command, input=line, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout) == (exit_code, "[]\n"), done.stderr


def test_another_board_of_the_same_name_is_read_from_its_beginning(
    postgres: PostgresServer, held: Board, address: str
) -> None:
    check_push(address, [MINE])
    held.close()
    postgres.sql("DROP SCHEMA liza CASCADE")
    (held.home / SEEN).unlink()  # as on a machine that only asks
    create_board_at(address, board(new_task("t1"))).close()
    with pytest.raises(Refused, match="t1: nobody holds it now"):
        check_push(address, [MINE])
    with closing(open_board(address)) as fresh:
        assert fresh.read().revision == 1
