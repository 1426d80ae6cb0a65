"""A board that another Liza wrote: every command says so in one sentence, and changes nothing."""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.cli.main import main, parser
from liza.cli.registry import COMMANDS
from liza.errors import InvalidBoard
from tests.support.repos import Home
from tests.support.sample_tasks import board

if TYPE_CHECKING:
    from collections.abc import Iterator

# What makes a board of its own, takes from git what it saved, is told a recording, or asks no board.
WITHOUT: Final = {"init", "demo", "gauntlet", "salvage list", "salvage restore", "replay", "completion"}
VALUES: Final = {"prompt": "plan", "board copy": ".liza", "hook pre-receive": ".liza"}


def words_for(name: str) -> Iterator[str]:
    """Yield the least that the command *name* can be called with."""
    here: argparse.ArgumentParser = parser()
    for word in name.split():
        yield word
        below = next(one for one in here._actions if isinstance(one, argparse._SubParsersAction))
        here = below.choices[word]
    for one in here._actions:
        is_needed = one.required and not isinstance(one, argparse._SubParsersAction)
        if is_needed and one.nargs not in {"?", "*", argparse.REMAINDER}:
            value = next(iter(one.choices)) if one.choices else VALUES.get(name, "1")
            yield from (*one.option_strings[-1:], str(value))


def aged(home: Path) -> None:
    """Make the board in *home* one of version 1, which said nothing of its version."""
    path = home / "journal.jsonl"
    path.write_bytes(re.sub(rb'^(\{"revision":1),"version":\d+', rb"\1", path.read_bytes()))
    (home / "state.yaml").write_text((home / "state.yaml").read_text().replace("version: 2", "version: 1"))


def contents(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(home)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in home.rglob("*")
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def logging_is_put_back() -> Iterator[None]:
    """What `worker` configures for its own process would log every later test to a stream that is closed."""
    root = logging.getLogger()
    handlers, level, converter = root.handlers[:], root.level, logging.Formatter.converter
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.Formatter.converter = converter


@pytest.fixture
def old(tmp_path: Path) -> Path:
    user = Home(tmp_path / "project")
    FileBoard.create(user.directory / ".liza", board()).close()
    aged(user.directory / ".liza")
    return user.directory


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT))
def test_every_command_says_what_to_do_and_changes_nothing(
    name: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(old / ".liza")

    with pytest.raises(SystemExit) as ended:
        main(["-C", str(old), *words_for(name)])

    said = capsys.readouterr()
    assert ended.value.code == 5
    assert said.out == ""
    assert re.fullmatch(
        r"liza: the board in \S+ is of version 1, and this Liza reads version 2; finish it with the Liza "
        r"that wrote it, or move it away and begin anew \(`liza init \"what to build\"`\)\n",
        said.err,
    )
    assert contents(old / ".liza") == before


def test_whoever_opens_it_by_its_path_is_told_as_well(old: Path) -> None:
    with pytest.raises(InvalidBoard, match="of version 1, and this Liza reads version 2"):
        FileBoard(old / ".liza")


def test_a_board_of_today_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = Home(tmp_path / "project")
    FileBoard.create(user.directory / ".liza", board()).close()

    with pytest.raises(SystemExit) as ended:
        main(["-C", str(user.directory), "status"])

    assert not ended.value.code
    assert "version" not in capsys.readouterr().err
