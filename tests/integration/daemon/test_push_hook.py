"""The hook of the remote with a board on a server: a reader's rights are enough, and away is no."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from liza.board.protocol import create_board_at, grant_right
from liza.daemon.push_hook import check_push, install_hook
from liza.domain import lifecycle as e
from liza.domain.model import Lease
from liza.domain.shared_refs import token_digest
from liza.errors import BoardUnreachable, Refused
from liza.workflow.transition import apply
from tests.support.hosts import bare_repository
from tests.support.sample_tasks import BASE, board, new_task, worker

if TYPE_CHECKING:
    from pathlib import Path

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
