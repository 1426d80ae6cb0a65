"""The page in a real browser: everything that people do there, on a real board and a server of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from liza.domain.changes import HUMAN
from liza.domain.lifecycle import Abandon
from liza.domain.model import Feedback, Status
from tests.support.boards import noted
from tests.support.web_server import page_of
from tests.support.web_story import WebStory
from tests.web.browser import WebBrowser, window

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.web

PAGES: Final = ["/", "/board", "/questions", "/graph", "/timeline", "/timeline?by=task", "/money", "/trouble",
                "/past", "/tasks/parse", "/tasks/greet", "/runs/coder-1.20260131T120000.1"]  # fmt: skip
WIDTHS: Final = {390: 844, 1400: 900}
MOST_MEMORY: Final = 150 << 10  # KB of the server, whatever it shows
SHOTS: Final = os.environ.get("LIZA_SCREENSHOTS")


@pytest.fixture
def story(tmp_path: Path) -> WebStory:
    return WebStory(tmp_path / "project")


@pytest.fixture(params=list(WIDTHS))
def browser(story: WebStory, request: pytest.FixtureRequest) -> Iterator[WebBrowser]:
    with (
        page_of(story.user.directory) as (_, host, port, token),
        window(f"http://{host}:{port}", request.param, WIDTHS[request.param]) as found,
    ):
        found.open(f"/?token={token}")
        yield found


def test_a_question_is_answered(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/questions")
    browser.fill("#question-blocked-colours form", text="blue")
    browser.wait_for("Answered; colours is IDLE again")
    browser.wait_without("Which colour, blue or green?")
    task = story.board.read().task("colours")
    assert (task.status, task.guidance) == (Status.IDLE, "blue")


def test_boxes_and_buttons_stand_in_one_line_and_the_menu_shows_where_one_is(browser: WebBrowser) -> None:
    browser.open("/")
    edges = """return [...document.querySelectorAll('.question')].map(one => [...one.querySelectorAll(
        "form[action='/do/accept'] button, form[action='/do/reject'] button, textarea, h3"
    )].map(part => Math.round(part.getBoundingClientRect().left)))"""
    assert [len(set(found)) for found in browser.driver.execute_script(edges)] == [1, 1]
    browser.open("/past")
    seen = """const item = document.querySelector('nav [aria-current]').getBoundingClientRect();
        return [item.left, item.right, innerWidth]"""
    left, right, width = browser.driver.execute_script(seen)
    assert 0 <= left < right <= width


def test_work_is_accepted(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/")
    browser.fill("#question-approval-parse form[action='/do/accept']")
    browser.wait_for("Accepted parse.")
    browser.wait_without("Ship it?")
    assert story.board.read().task("parse").status is Status.APPROVED


def test_work_is_rejected_with_a_reason(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/tasks/parse")
    browser.wait_for("cli.py")
    browser.fill("#question-approval-parse form[action='/do/reject']", reason="no help text")
    browser.wait_for("Rejected parse.")
    task = story.board.read().task("parse")
    assert (task.status, task.rejection_reason) == (Status.REJECTED, "no help text")
    browser.wait_for("rejected")


def test_comments_on_lines_go_back_as_one_round(browser: WebBrowser, story: WebStory) -> None:
    """By the keyboard alone: to the number of a line, down to the next one, and into the box."""
    browser.open("/tasks/parse")
    press = browser.driver.find_elements(By.CSS_SELECTOR, "[data-comments='cli.py'] button")
    assert [one.text for one in press] == ["1", "2"]
    browser.driver.execute_script("arguments[0].focus()", press[0])
    for said in ("say why", "and check it"):
        browser.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        assert browser.driver.switch_to.active_element.get_attribute("aria-label") == "comment on line 2"
        browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        assert "A comment on cli.py, line 2" in browser.find("dialog").text
        browser.driver.switch_to.active_element.send_keys(said)
        browser.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
        browser.wait_for(f"you: {said}")
    assert browser.barriers() == []

    story.board.update(noted("something else changes"))  # and the page looks again
    browser.driver.execute_script("document.body.dispatchEvent(new CustomEvent('board-changed'))")
    browser.until(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, "tr.said")) == 2, "they are gone")
    browser.fill("#question-approval-parse form[action='/do/accept']")
    browser.wait_for("Your comments would be lost")
    assert story.board.read().task("parse").status is Status.AWAITING_APPROVAL

    browser.fill("#question-approval-parse form[action='/do/reject']", reason="it crashes without a name")
    browser.wait_for("Rejected parse.")
    assert story.board.read().task("parse").rejection_feedback == (
        Feedback(message="it crashes without a name"),
        Feedback(message="say why", file="cli.py", line=2),
        Feedback(message="and check it", file="cli.py", line=2),
    )
    browser.wait_for("cli.py:2 and check it")


def test_a_note_and_a_task_are_added(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/board")
    browser.driver.execute_script("window.stayed = true")
    browser.click("details > summary")
    browser.fill("form[action='/do/add']", id="docs", description="Write the manual", done_when="it is there")
    browser.wait_for("Write the manual")
    assert browser.driver.execute_script("return window.stayed") is True
    browser.open("/")
    browser.fill("form[action='/do/note']", text="be brief", about="docs")
    browser.wait_for("Noted for docs.")
    state = story.board.read()
    assert [(note.message, note.about) for note in state.human_notes.values()] == [("be brief", "docs")]
    assert state.task("docs").created_by == "human"


def test_a_run_is_paused_and_resumed(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/")
    browser.fill("form[action='/do/pause']")
    browser.wait_for("Nothing new starts: PAUSE is thrown")
    assert story.board.switches.thrown() == {"PAUSE": "from the page"}
    browser.fill("form[action='/do/resume']")
    browser.wait_for("Took back PAUSE.")
    browser.wait_without("Nothing new starts")
    assert story.board.switches.thrown() == {}


def test_what_a_rule_refuses_is_said_and_keeps_what_was_typed(browser: WebBrowser) -> None:
    browser.open("/")
    browser.fill("form[action='/do/note']", text="hello", about="nobody")
    browser.wait_for("there is no task 'nobody'")
    assert browser.find("form[action='/do/note'] textarea").get_attribute("value") == "hello"


def test_a_slider_leads_to_a_past_revision(browser: WebBrowser) -> None:
    browser.open("/past?at=10")
    slider = browser.find("input[name=at]")
    for _ in range(3):
        slider.send_keys(Keys.ARROW_LEFT)
    browser.wait_for("Revision 7 of 19")
    assert "at=7" in browser.driver.current_url
    browser.wait_for("The board at revision 7")
    browser.find("input[name=since]").send_keys(Keys.HOME)
    browser.wait_for("From revision 1 to 7")
    assert "tasks.greet.status: IDLE" in browser.text()


def test_a_change_arrives_without_loading_again(browser: WebBrowser, story: WebStory) -> None:
    browser.open("/trouble")
    browser.open("/")
    browser.driver.execute_script("window.stayed = true")
    box = browser.find("form[action='/do/note'] textarea")
    box.send_keys("half a thought")
    story.board.update(noted("x"))
    story.do("usage", Abandon(reason="nobody reads it"), HUMAN)
    browser.wait_for("usage: abandon")
    assert browser.driver.execute_script("return window.stayed") is True
    assert box.get_attribute("value") == "half a thought"


def test_what_an_agent_prints_is_read_along(browser: WebBrowser, story: WebStory) -> None:
    """It changes nothing on the board, so that no change tells of it."""
    run = "coder-1.20260131T120000.1"
    browser.open(f"/runs/{run}")
    browser.wait_for("I look at the code.")
    with (story.board.home / "runs" / run / "stdout").open("a") as stdout:
        stdout.write("I found it.\n")
    browser.wait_for("I found it.")


def test_a_second_page_and_a_second_server_keep_to_themselves(story: WebStory) -> None:
    """What is done on one page is seen on the other, and each start of the server has its own cookie."""
    with (
        page_of(story.user.directory) as (_, host, port, token),
        page_of(story.user.directory) as (_, _, other, second),
        window(f"http://{host}:{port}", 1400, 900) as browser,
    ):
        browser.open(f"/?token={token}")
        first = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        browser.driver.get(f"http://{host}:{other}/?token={second}")
        browser.fill("form[action='/do/pause']")
        browser.wait_for("Nothing new starts: PAUSE is thrown")
        browser.driver.switch_to.window(first)
        browser.wait_for("Nothing new starts: PAUSE is thrown")
        browser.fill("form[action='/do/resume']")
        browser.wait_for("Took back PAUSE.")
        browser.driver.get(f"http://{host}:{other}/?token={token}")
        browser.wait_for("the token in this address is of an earlier start")


def test_half_a_gigabyte_of_transcript_is_read_from_its_end_and_backwards(story: WebStory) -> None:
    run = "coder-1.20260131T120000.1"
    with (story.board.home / "runs" / run / "stdout").open("r+b") as stdout:
        stdout.seek(500 << 20)
        stdout.write(b"\n" + b"".join(b"line %d\n" % number for number in range(1000)))
    with (
        page_of(story.user.directory) as (server, host, port, token),
        window(f"http://{host}:{port}", 1400, 900) as browser,
    ):
        browser.open(f"/?token={token}")
        browser.open(f"/runs/{run}")
        browser.wait_for("line 999")
        assert "line 599\n" not in browser.text()
        for first, last in ((200, 599), (0, 199)):
            browser.driver.find_element(By.LINK_TEXT, "Earlier").click()
            browser.wait_for(f"line {last}\n")
            assert f"line {first}\n" in browser.text()
        browser.driver.find_element(By.LINK_TEXT, "Earlier").click()
        browser.wait_for("- a line of 524,287,")
        browser.driver.find_element(By.LINK_TEXT, "Latest").click()
        browser.wait_for("line 999")
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
        assert peak
        assert int(peak[1]) < MOST_MEMORY


@pytest.fixture(scope="module", params=list(WIDTHS))
def reader(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[WebBrowser]:
    """Give a browser that only looks, and is shared by those who do."""
    story = WebStory(tmp_path_factory.mktemp("story") / "project")
    with (
        page_of(story.user.directory) as (_, host, port, token),
        window(f"http://{host}:{port}", request.param, WIDTHS[request.param]) as found,
    ):
        found.open(f"/?token={token}")
        yield found


@pytest.mark.parametrize("page", PAGES)
def test_every_page_fits_obeys_the_policy_and_keeps_nobody_out(reader: WebBrowser, page: str) -> None:
    browser = reader
    browser.open(page)
    browser.until(lambda: browser.find("#live").text == "live", "it is not live")
    assert browser.overflow() <= 0
    assert browser.complaints() == []
    assert browser.barriers() == []
    assert [url for url in browser.requests() if not url.startswith(browser.base)] == []


def test_the_keyboard_reaches_the_menu_and_the_content(browser: WebBrowser) -> None:
    browser.open("/")
    browser.find("body").send_keys(Keys.TAB)
    assert browser.driver.switch_to.active_element.text == "Skip to the content"
    names = []
    for _ in range(12):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        names.append(browser.driver.switch_to.active_element.text)
    assert {"Overview", "Board", "Timeline", "Time travel"} <= {name.split("\n")[-1] for name in names}
    assert browser.driver.find_elements(By.CSS_SELECTOR, "[tabindex]:not([tabindex='0'])") == []


@pytest.mark.skipif(not SHOTS, reason="LIZA_SCREENSHOTS does not name a folder for them")
@pytest.mark.parametrize("dark", [False, True])
def test_screenshots(story: WebStory, dark: bool) -> None:
    with page_of(story.user.directory) as (_, host, port, token):
        for width, height in WIDTHS.items():
            with window(f"http://{host}:{port}", width, height, dark=dark) as browser:
                browser.open(f"/?token={token}")
                for page in ("/", "/board", "/timeline?by=task", "/tasks/parse", "/past?at=12"):
                    browser.open(page)
                    browser.until(lambda: browser.find("#live").text == "live", "it is not live")
                    name = page.split("?")[0].strip("/").replace("/", "-") or "overview"
                    browser.save(Path(str(SHOTS)) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
