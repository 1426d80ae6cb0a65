"""The report in a real browser, opened as a file: pictures are drawn, and nobody is asked for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.cli.views.report import gather_report
from liza.cli.views.report_html import report_html
from liza.domain.record import utc_now
from tests.support.sample_tasks import board as sample_board
from tests.support.sample_tasks import new_task
from tests.support.web_story import WebStory
from tests.web.browser import window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.protocol import Board

pytestmark = pytest.mark.web


def afternoon(directory: Path) -> Board:
    return WebStory(directory / "project").board


def many_tasks(directory: Path) -> Board:
    tasks = [new_task(f"t{number}") for number in range(1000)]
    return FileBoard.create(directory / ".liza", sample_board(*tasks))


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("make", [afternoon, many_tasks])
def test_it_opens_anywhere_without_a_network(
    make: Callable[[Path], Board], width: int, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_html(gather_report(make(tmp_path), utc_now())), encoding="utf-8")
    with window(f"file://{path}", width, 900) as browser:
        browser.open("")
        assert browser.requests() == [f"file://{path}"]
        assert browser.complaints() == []
        assert browser.overflow() <= 0
        widths = "return [...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect().width)"
        assert min(browser.driver.execute_script(widths)) > 50
        bars = "return document.querySelectorAll('svg.timeline rect').length"
        assert browser.driver.execute_script(bars) > 5
        assert browser.barriers() == []
