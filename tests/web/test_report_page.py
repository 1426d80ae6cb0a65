"""The report in a real browser, opened as a file: pictures are drawn, and nobody is asked for anything."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.cli.views.report import gather_report, report_html
from liza.domain.record import utc_now
from tests.support.eventful_run import eventful_run
from tests.support.sample_tasks import board as sample_board
from tests.support.sample_tasks import new_task
from tests.support.shell import ROOT
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


def demo(directory: Path) -> Path:
    """Let the demo go; it leaves its report beside the board."""
    words = [sys.executable, "-m", "liza", "demo", str(directory / "demo")]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory / "demo" / ".liza" / "report.html"


def tripped(directory: Path) -> Path:
    """Let a run go that ends because a rule fired, with rejections and a question."""
    return eventful_run(directory).home / "report.html"


def of_board(make: Callable[[Path], Board]) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        path = directory / "report.html"
        path.write_text(report_html(gather_report(make(directory), utc_now())), encoding="utf-8")
        return path

    return write


MAKERS: Final[dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]]] = {
    "afternoon": (of_board(afternoon), ("Ship it?", "Which colour, blue or green?")),
    "thousand": (of_board(many_tasks), ("Not done, and why",)),
    "demo": (demo, ("git merge liza/integration", "Waste by cause", "rejected")),
    "tripped": (tripped, ("the rule spec_gap_cluster fired", "Blue or green?", "missing the limit", "parse")),
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_it_opens_anywhere_without_a_network(name: str, tmp_path: Path) -> None:
    make, words = MAKERS[name]
    path = make(tmp_path)
    for width in (390, 1400):
        with window(f"file://{path}", width, 900) as browser:
            browser.open("")
            assert [word for word in words if word not in browser.text()] == []
            assert browser.requests() == [f"file://{path}"]
            assert browser.complaints() == []
            assert browser.overflow() <= 0
            widths = (
                "return [...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect().width)"
            )
            assert min(browser.driver.execute_script(widths)) > 50
            bars = "return document.querySelectorAll('svg.timeline rect').length"
            assert browser.driver.execute_script(bars) > 5
            lines = "return document.querySelectorAll('svg.chart path').length"
            assert browser.driver.execute_script(lines) > 0
            assert browser.barriers() == []
