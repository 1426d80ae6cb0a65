"""Registries: what comes with Liza and what packages add, found by name and imported only then."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from liza.board.protocol import open_board
from liza.errors import UsageError
from liza.system.plugins import Registry

if TYPE_CHECKING:
    from pathlib import Path

PARTS = Registry[object]("liza.tried", "part", {"one": 1, "two": "json:dumps"})


def installed(site: Path, package: str, points: str, source: str = "part = 'theirs'\n") -> None:
    """Put *package* with its entry points into *site*, as an installer would."""
    (site / f"{package}.py").write_text(source)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[liza.tried]\n{points}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_comes_with_liza_needs_no_package() -> None:
    assert PARTS["one"] == 1
    assert PARTS["two"] is __import__("json").dumps
    assert PARTS.names() == ["one", "two"]


def test_a_package_adds_a_part_that_is_imported_when_it_is_named(site: Path) -> None:
    """Whoever lists the names, or uses another, pays nothing for it."""
    installed(site, "liza_three", "three = liza_three:part")
    parts = Registry[object]("liza.tried", "part", {"one": 1})

    assert parts.names() == ["one", "three"]
    assert "three" in parts
    assert parts["one"] == 1
    assert "liza_three" not in sys.modules
    assert parts["three"] == "theirs"
    assert "liza_three" in sys.modules


def test_an_unknown_name_is_one_sentence_with_the_known_ones(site: Path) -> None:
    installed(site, "liza_four", "four = liza_four:part")

    with pytest.raises(
        UsageError, match=r"^there is no part 'fur'; did you mean 'four'\? known: one, two, four$"
    ):
        PARTS["fur"]


def test_no_package_replaces_what_comes_with_liza(site: Path) -> None:
    """What is installed for something else must not change what a gate or an agent is."""
    installed(site, "liza_one", "one = liza_one:part")

    assert Registry[object]("liza.tried", "part", {"one": 1})["one"] == 1
    assert PARTS.names() == ["one", "two"]


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    installed(site, "liza_five", "five = liza_five:part")
    installed(site, "liza_other", "five = liza_other:part")

    with pytest.raises(UsageError, match=r"liza.five and liza.other both have a part 'five'; uninstall one"):
        PARTS["five"]


@pytest.mark.parametrize(("point", "why"), [("liza_six:nothing", "nothing"), ("liza_gone:part", "liza_gone")])
def test_what_cannot_be_loaded_is_one_sentence(site: Path, point: str, why: str) -> None:
    installed(site, "liza_six", f"six = {point}")

    with pytest.raises(UsageError, match=rf"the part 'six' of liza.six cannot be loaded: .*{why}"):
        PARTS["six"]


def test_a_board_of_an_engine_that_is_not_installed_is_one_sentence() -> None:
    """A location says which engine; one that nobody has is not taken for a path."""
    with pytest.raises(UsageError, match="there is no board engine 'redis'; known: file"):
        open_board("redis://host/liza")
