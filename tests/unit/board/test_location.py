"""Where the board of a checkout is: in its files, or at the address that team or environment name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.board.location import (
    ADDRESS,
    JOURNAL,
    TEAM_FILE,
    address_in,
    home_from,
    note_address,
    without_password,
)
from liza.errors import UsageError
from liza.system.sandbox.bubblewrap import allowed_environment

if TYPE_CHECKING:
    from pathlib import Path

HOST = "postgresql://liza@db.example/team#build"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (HOST, HOST),
        ("postgresql://liza:p%40ss@db.example/team", "postgresql://liza@db.example/team"),
        ("postgresql://liza:a:b@db.example:1/x#y", "postgresql://liza@db.example:1/x#y"),
        ("postgresql://db/team?password=x&sslmode=require", "postgresql://db/team?sslmode=require"),
        ("postgresql://db/team?sslmode=require&password=x#b", "postgresql://db/team?sslmode=require&#b"),
        ("postgresql://db/team?sslkey=/k&sslpassword=x", "postgresql://db/team?sslkey=/k&"),
        ("postgresql://db/team", "postgresql://db/team"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert without_password(address) == shown


@pytest.mark.parametrize(
    "line", [f"board: {HOST}", f"board: '{HOST}'", f'board: "{HOST}"  # ours', f"a: 1\nboard:   {HOST}\nb: 2"]
)
def test_a_clone_joins_the_board_that_the_team_s_file_names(line: str, root: Path) -> None:
    (root / TEAM_FILE).write_text(f"{line}\n")
    (root / "src").mkdir()
    assert home_from(root / "src") == root / ".liza"
    assert address_in(root / ".liza") == HOST
    assert (root / ".liza/.gitignore").read_text() == "*\n"


def test_a_password_of_the_environment_is_used_and_not_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = HOST.replace("liza@", "liza:hush@")
    monkeypatch.setenv("LIZA_BOARD", secret)
    home = home_from(root)
    assert (home / ADDRESS).read_text() == f"{HOST}\n"
    assert address_in(home) == secret
    monkeypatch.delenv("LIZA_BOARD")
    assert address_in(home) == HOST


def test_without_an_address_the_board_is_in_files(root: Path) -> None:
    (root / TEAM_FILE).write_text("# board: postgresql://x/y\ngates: {test: make}\n")
    assert note_address(root / ".liza") is None
    with pytest.raises(UsageError, match="there is no board in"):
        home_from(root)
    assert not (root / ".liza").exists()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (HOST.replace("liza@", "liza:hush@"), "holds a password, which agents could read; take it out"),
        ("db.example", r"the board 'db.example' of liza.yaml is no address; give one as postgresql://"),
        ("", "the board '' of liza.yaml is no address"),
    ],
)
def test_a_wrong_address_is_one_sentence(said: str, sentence: str, root: Path) -> None:
    (root / TEAM_FILE).write_text(f"board: {said}\n")
    with pytest.raises(UsageError, match=sentence) as raised:
        home_from(root)
    assert "hush" not in str(raised.value)


def test_two_boards_for_one_checkout_are_refused(root: Path) -> None:
    home = root / ".liza"
    home.mkdir()
    (home / JOURNAL).touch()
    (root / TEAM_FILE).write_text(f"board: {HOST}\n")
    with pytest.raises(UsageError, match=r"names the board .*, and there is one in .*`liza board copy"):
        home_from(root)
    (home / JOURNAL).unlink()
    home_from(root)
    (home / "runs").mkdir()
    (root / TEAM_FILE).write_text(f"board: {HOST}-2\n")
    with pytest.raises(UsageError, match=r"names the board .*-2, and this checkout works on .*#build; make"):
        home_from(root)


def test_an_address_that_was_mistyped_is_mended_where_it_is_written(root: Path) -> None:
    """Nothing was done with that board yet, so that there is nothing to protect."""
    (root / TEAM_FILE).write_text("board: postgresql://db.exmaple/team#build\n")
    home_from(root)
    (root / TEAM_FILE).write_text(f"board: {HOST}\n")

    assert home_from(root) == root / ".liza"
    assert address_in(root / ".liza") == HOST


def test_agents_never_see_where_the_board_is() -> None:
    ours = {"LIZA_BOARD": HOST, "PGPASSWORD": "x", "PGHOST": "h", "PGPASSFILE": "f", "PGSERVICE": "s"}
    assert allowed_environment(ours) == {}
    assert allowed_environment(ours, ["LIZA_BOARD", "PGHOST"]) == {"PGHOST": "h"}
