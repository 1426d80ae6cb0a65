"""The report: what it says of a run, that it fits a pull request, and that it needs no network."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from liza.cli.views.report import gather_report, markdown, report_html, report_markdown, takeover_commands
from liza.domain.record import utc_now
from tests.support.boards import new_board
from tests.support.shell import Shell
from tests.support.web_story import WebStory

if TYPE_CHECKING:
    from pathlib import Path

    from liza.cli.views.report import RunReport


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> WebStory:
    return WebStory(tmp_path_factory.mktemp("story") / "project")


@pytest.fixture(scope="module")
def report(story: WebStory) -> RunReport:
    return gather_report(story.board, utc_now())


def test_it_says_what_was_merged_what_was_not_and_why(report: RunReport) -> None:
    text = report_markdown(report)
    (merged,) = report.merged
    assert f"**greet**: Greet people by their name (`git show {str(merged.commit)[:12]}`)" in text
    assert "git merge liza/integration" in takeover_commands(report)
    assert r"**colours** (BLOCKED): the goal is not clear" in text
    assert "**usage** (IDLE): waits for parse" in text
    assert '`liza answer colours "…"`' in text
    assert "- $0.85 for 3 runs" in text
    assert "external\\_blocker of hostile by coder-2" in text
    assert "reviewer-1 approved" in text
    assert "- $0.43 came to nothing: rejected $0.43" in text


def test_only_what_happened_since_then(story: WebStory) -> None:
    now = utc_now()
    latest = gather_report(story.board, now, now - timedelta(minutes=45))
    assert latest.merged == ()
    assert latest.history.cost.runs == 1
    assert "## Merged\n\n- nothing" in report_markdown(latest)
    assert len(latest.unmerged) == 5


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("![x](http://evil.example/a.png)", r"\!\[x\](http://evil.example/a.png)"),
        ("<img src=x>", r"\<img src=x\>"),
        ("@somebody `rm`", r"&#64;somebody \`rm\`"),
        ("a | b\n# c", r"a \| b \# c"),
        ("\u202etxt", r"\\u202etxt"),
    ],
)
def test_what_agents_wrote_is_no_markup_in_a_pull_request(written: str, shown: str) -> None:
    assert markdown(written) == shown


def test_the_page_is_one_file_without_script_or_request(report: RunReport) -> None:
    text = report_html(report)
    assert "default-src &#x27;none&#x27;" in text
    assert (
        re.findall(r"<script|<link|<img|src=|url\((?!#)|@import|https?://", text.replace("&lt;img src=x", ""))
        == []
    )
    wanted = ("Timeline", "Burn-up", "Time by status", "Waste by cause", "agreement", "git merge")
    assert [title for title in wanted if title not in text] == []
    assert text.count("<svg") > 3


def test_an_empty_board_has_a_report_too(tmp_path: Path) -> None:
    found = gather_report(new_board(tmp_path / ".liza"), utc_now())
    assert "nothing" in report_markdown(found)
    assert "Not done, and why" in report_html(found)


class TestCommand:
    def test_markdown_is_printed_and_a_page_on_demand(self, story: WebStory) -> None:
        liza = Shell(story.user.directory)
        assert liza.ok("report").startswith("# A greeter that people like\n")
        assert liza.ok("report", "--html").startswith("<!doctype html>")
        assert liza.ok("report", "--since", "8h", "--markdown").count("## Merged") == 1

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--html", "--markdown"), "ask for one at a time"),
            (("--since", "12"), "'12' is a revision"),
            (("--since", "breakfast"), "'breakfast' is no moment"),
        ],
    )
    def test_what_cannot_be_meant_is_one_sentence(
        self, story: WebStory, words: tuple[str, ...], sentence: str
    ) -> None:
        done = Shell(story.user.directory)("report", *words)
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert sentence in done.err
