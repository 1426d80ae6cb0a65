"""`liza demo --hosts`: several machines in small, or what is missing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.cli.demo import find_server
from liza.errors import LizaError
from tests.support.postgres_server import WHAT_IS_MISSING, find_programs
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.hosts
@pytest.mark.timeout(400)
def test_three_hosts_reach_the_goal_though_one_is_killed(tmp_path: Path) -> None:
    if find_programs() is None:
        pytest.skip(WHAT_IS_MISSING)
    done = Shell(tmp_path)("demo", "--hosts", "3", "shown")
    assert done.code == 0, done.out + done.err
    for said in ("The host c is killed", "PostgreSQL is killed", "liza verify: VERIFIED: 5 merges"):
        assert said in done.out, done.out
    first = Shell(tmp_path / "shown" / "a")
    assert "5 MERGED" in first.ok("status")
    assert first.ok("verify") == "VERIFIED: 5 merges\n"


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PG_BIN", raising=False)
    with pytest.raises(LizaError, match=r"there is no PostgreSQL here .*; install one .* PG_BIN$"):
        find_server(tmp_path)


def test_a_number_that_is_none(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for words, said in {
        ("--hosts", "1"): "--hosts 1: give between 2 and 8",
        ("--hosts", "3", "--workflow", "cycle"): "--hosts shows the default workflow",
    }.items():
        done = shell("demo", *words)
        assert (done.code, said in done.err, done.err.count("\n")) == (2, True, 1), done
    assert not list(tmp_path.iterdir())
