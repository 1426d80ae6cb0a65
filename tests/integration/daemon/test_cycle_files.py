"""The cycle file on disk: written whole, archived under a free name, and no save of a person's is lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from liza.daemon.cycle_page import archive_page, publish_page, read_page
from liza.domain.cycle_archive import ArchiveNaming, CycleEnd, CycleName
from liza.system import linux
from liza.system.host import host

NAME: Final = CycleName("2026-01-31-001", datetime(2026, 1, 31, 12, tzinfo=UTC), "Fix the crash")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "docs" / "context" / "current_cycle.md"


def test_a_page_is_written_where_there_is_none_and_then_replaced(page: Path) -> None:
    assert read_page(page) is None
    assert publish_page(page, "one\n", None) is None
    assert publish_page(page, "one\ntwo\n", "one\n") is None
    assert page.read_text() == "one\ntwo\n"
    assert f"{page.stat().st_mode & 0o777:o}" == "644"
    assert [path.name for path in page.parent.iterdir()] == [page.name]


def test_what_a_person_saved_before_is_returned_and_left_there(page: Path) -> None:
    publish_page(page, "one\n", None)
    page.write_text("one\nApproved\n")

    assert publish_page(page, "one\ntwo\n", "one\n") == "one\nApproved\n"
    assert page.read_text() == "one\nApproved\n"


@pytest.mark.linux
def test_what_a_person_saves_in_that_very_moment_is_put_back(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_page(page, "one\n", None)
    exchange = linux.exchange_names

    def save_and_exchange(one: Path, other: Path) -> bool:
        if other.read_text() == "one\n":
            theirs = page.with_name("editor")
            theirs.write_text("one\nApproved\n")
            theirs.rename(page)
        return exchange(one, other)

    monkeypatch.setattr(host(), "exchange_names", save_and_exchange)

    assert publish_page(page, "one\ntwo\n", "one\n") == "one\nApproved\n"
    assert page.read_text() == "one\nApproved\n"


def test_a_page_that_somebody_removed_is_written_again(page: Path) -> None:
    publish_page(page, "one\n", None)
    page.unlink()

    assert publish_page(page, "one\ntwo\n", "one\n") is None
    assert page.read_text() == "one\ntwo\n"


def test_an_archive_overwrites_nothing_and_is_written_once(tmp_path: Path) -> None:
    first = archive_page(tmp_path, "one\n", NAME, ArchiveNaming.NUMBER, CycleEnd.INCOMPLETE)
    again = archive_page(tmp_path, "one\n", NAME, ArchiveNaming.NUMBER, CycleEnd.INCOMPLETE)
    other = archive_page(tmp_path, "two\n", NAME, ArchiveNaming.NUMBER, CycleEnd.INCOMPLETE)

    assert first == again == tmp_path / "docs/context/archive/2026-01-31_cycle-001_incomplete.md"
    assert other.name == "2026-01-31_cycle-001_incomplete-2.md"
    assert (first.read_text(), other.read_text()) == ("one\n", "two\n")
    assert [f"{path.stat().st_mode & 0o777:o}" for path in first.parent.iterdir()] == ["644"] * 2
