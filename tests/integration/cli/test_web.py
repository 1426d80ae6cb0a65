"""The page over HTTP: what it lets through, what it does to a real board, and what it says otherwise."""

from __future__ import annotations

import re
import shutil
import time
from html import unescape
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from liza.cli.web.app import MAX_BODY, build_app
from liza.cli.web.forms import FORMS
from liza.cli.web.live import LiveFeed
from liza.cli.web.pages import PAGES
from liza.cli.web.security import HEADERS, PageAccess
from liza.cli.web.task_page import SHOWN_DIFF
from liza.domain.config import Switch
from liza.domain.lifecycle import Report
from liza.domain.model import Status
from tests.support.boards import PATIENCE, new_board
from tests.support.sample_tasks import OTHER_CODER
from tests.support.web_pages import PORT, Browser, browser_on
from tests.support.web_story import WebStory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.file import FileBoard


@pytest.fixture
def board(tmp_path: Path) -> FileBoard:
    return new_board(tmp_path / ".liza")


@pytest.fixture
def browser(board: FileBoard) -> Iterator[Browser]:
    with browser_on(board) as found:
        yield found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser_on(WebStory(tmp_path_factory.mktemp("story") / "project").board) as found:
        yield found


class TestPages:
    @pytest.mark.parametrize(
        ("path", "words"),
        [
            (
                "/",
                ["2 questions for you", "Which colour, blue or green?", "coder-2", "Pause"],
            ),
            ("/board", ["Needs you", "Coding", "waits for parse", "Add a task", "card-hostile"]),
            ("/board?q=COLOUR", ["card-colours"]),
            ("/questions", ["Ship it?", 'action="/do/reject"', 'action="/do/answer"']),
            ("/graph", ["<path", "edge open", "/tasks/config"]),
            ("/timeline", ["coder-1", "sent-back", "there is no test"]),
            ("/timeline?by=task", ["bar s-IDLE wait", "colours"]),
            ("/money", ["data-plot", "By outcome", "$0.43", "Time by status", "passed first review"]),
            ("/trouble", ["external_blocker", "it does not answer"]),
            (
                "/tasks/greet",
                ["add a test", "test_greet.py", "+import greet", "/runs/coder-1."],
            ),
            (
                "/tasks/parse",
                ["Ran 4 tests", "cli.py", "Accept", "Abandon it", 'aria-label="comment on line 2"'],
            ),
            ("/past?at=2", ["Revision 2 of", "greet", "From revision 1 to 2"]),
            ("/past?at=6&since=1", ["From revision 1 to 6", "tasks.greet.status: IDLE -&gt; "]),
            ("/runs/coder-1.20260131T120000.1", ["I look at the code.", "done after 90 s"]),
        ],
    )
    def test_a_page_shows_what_it_is_for(self, story: Browser, path: str, words: list[str]) -> None:
        shown = story.get(path)
        assert shown.status_code == 200
        assert [word for word in words if word not in shown.text] == []

    def test_while_all_are_halted_it_says_why_once_and_promises_no_end(self, tmp_path: Path) -> None:
        halted = WebStory(tmp_path / "project").board
        halted.switches.throw(Switch.CHECKPOINT, "a look at the gates")
        halted.switches.throw(Switch.PAUSE, "lunch")
        with browser_on(halted) as browser:
            shown = browser.get("/").text
        assert shown.count("lunch") == 1
        assert "<strong>CHECKPOINT</strong>: a look at the gates" in shown
        assert "of work left" in shown
        assert "done about" not in shown

    @pytest.mark.parametrize(
        "path", ["/board", "/tasks/hostile", "/graph", "/past", "/runs/coder-1.20260131T120000.1"]
    )
    def test_what_agents_wrote_is_only_text(self, story: Browser, path: str) -> None:
        """Under a policy that forbids scripts, styles and handlers in the page, none may be there at all."""
        text = story.get(path).text
        assert "&lt;img src=x" in text
        assert "<img src=x" not in text
        assert not {"\x1b", "\u202e"} & set(text)
        assert re.findall(r"<[^>]* (?:style|on\w+)=|<style|<script(?! src=)", text) == []

    @pytest.mark.parametrize(
        ("path", "sentence"),
        [
            ("/tasks/nobody", "there is no task &#x27;nobody&#x27;"),
            ("/tasks/..%2f..%2fetc%2fpasswd", "there is no task &#x27;../../etc/passwd&#x27;"),
            ("/tasks/%2fetc%2fpasswd", "there is no task"),
            ("/runs/..%2fjournal.jsonl", "there is no"),
            ("/runs/coder-9.1", "there is no task, worker or run"),
            ("/static/..%2fpages.py", "there is no"),
            ("/nowhere", "there is no page &#x27;/nowhere&#x27;"),
            ("/past?at=999", "999"),
            ("/runs/coder-1.20260131T120000.1?before=x", "is no place in a transcript"),
            ("/past?at=yesterday", "is no moment"),
        ],
    )
    def test_an_address_that_leads_nowhere_is_told(self, story: Browser, path: str, sentence: str) -> None:
        found = story.get(path)
        assert found.status_code in {400, 404}
        assert sentence in found.text

    def test_a_board_that_became_invalid_is_shown_with_what_is_wrong(self, board: FileBoard) -> None:
        with browser_on(board) as browser:
            (board.home / "state.yaml").write_text("tasks: [\n")
            deadline = time.monotonic() + PATIENCE
            while "Nothing new starts: PAUSE is thrown" not in browser.get("/").text:
                assert time.monotonic() < deadline
            assert "state.yaml was not taken" in browser.get("/").text
            assert "do t1" in browser.get("/board").text

    def test_a_very_long_diff_is_cut_and_said(self, tmp_path: Path) -> None:
        story = WebStory(tmp_path / "project")
        work = story.user.commit({"long.txt": "line\n" * 50_000})
        story.do("hostile", Report(commit=work), OTHER_CODER)
        with browser_on(story.board) as browser:
            shown = browser.get("/tasks/hostile").text
        assert re.search(r"\d+ more lines; `liza diff` shows all of them", shown)
        assert shown.count("<tr") < SHOWN_DIFF + 100

    def test_a_run_whose_folder_is_gone_is_told(self, tmp_path: Path) -> None:
        story = WebStory(tmp_path / "project")
        with browser_on(story.board) as browser:
            shutil.rmtree(story.board.home / "runs")
            assert browser.get("/runs/coder-1.20260131T120000.1").status_code == 404
            assert "No agent has run for it." in browser.get("/tasks/greet").text

    @pytest.mark.parametrize("path", ["/timeline?by=task", "/board?q=a%26b%22", "/tasks/greet"])
    def test_a_page_looks_again_at_what_it_shows(self, story: Browser, path: str) -> None:
        (address,) = re.findall(r'<main [^>]*hx-get="([^"]*)"', story.get(path).text)
        assert unescape(address) == path

    def test_a_part_of_a_page_is_only_that(self, story: Browser) -> None:
        part = story.client.get("/board", headers={"hx-request": "true"}).text
        assert "<html" not in part
        assert "card-hostile" in part

    def test_nothing_can_be_changed_from_a_page_that_only_shows(self, board: FileBoard) -> None:
        with browser_on(board, read_only=True) as browser:
            for path in PAGES:
                shown = browser.get(path.replace("{name:path}", "t1"))
                assert 'method="post"' not in shown.text
                assert "data-line" not in shown.text

    def test_the_files_of_others_come_with_their_licences(self, browser: Browser) -> None:
        assert "Zero-Clause BSD" in browser.get("/static/htmx.LICENSE.txt").text
        assert "MIT License" in browser.get("/static/uplot.LICENSE.txt").text
        assert browser.get("/static/htmx.min.js").headers["content-type"].startswith("text/javascript")


class TestComingIn:
    def test_the_token_becomes_a_cookie_and_leaves_the_address(self, board: FileBoard) -> None:
        access = PageAccess("127.0.0.1", PORT)
        client = TestClient(
            build_app(board, access, LiveFeed(board)),
            base_url=f"http://127.0.0.1:{PORT}",
            follow_redirects=False,
        )
        came = client.get(f"/?token={access.token}")
        assert (came.status_code, came.headers["location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in came.headers["set-cookie"]
        assert access.token not in came.headers["set-cookie"]

    @pytest.mark.parametrize("path", ["/", "/static/page.css", "/events", "/nowhere"])
    def test_without_it_nothing_is_shown(self, board: FileBoard, path: str) -> None:
        client = TestClient(
            build_app(board, PageAccess("127.0.0.1", PORT), LiveFeed(board)),
            base_url=f"http://127.0.0.1:{PORT}",
        )
        found = client.get(path)
        assert found.status_code == 403
        assert (
            found.text == "this browser has not shown the token; open the address that `liza web` printed\n"
        )

    def test_an_old_token_is_told_apart(self, browser: Browser) -> None:
        found = browser.get("/?token=of-yesterday")
        assert (found.status_code, "of an earlier start" in found.text) == (403, True)

    def test_the_host_of_somebody_else_is_refused(self, browser: Browser) -> None:
        found = browser.client.get("/", headers={"host": f"evil.example:{PORT}"})
        assert (found.status_code, "does not answer to the name 'evil.example:7171'" in found.text) == (
            421,
            True,
        )

    @pytest.mark.parametrize("path", ["/", "/nowhere", "/?token=old"])
    def test_every_answer_has_the_policy(self, browser: Browser, path: str) -> None:
        found = browser.get(path)
        assert {name: found.headers[name] for name in HEADERS} == HEADERS


class TestChanging:
    def test_a_change_from_another_site_does_nothing(self, browser: Browser, board: FileBoard) -> None:
        before = board.read().revision
        form = {"csrf": browser.access.csrf, "text": "hello", "about": ""}
        for headers in ({}, {"origin": "http://evil.example"}):
            assert browser.client.post("/do/note", data=form, headers=headers).status_code == 403
        assert board.read().revision == before

    def test_a_change_without_the_forms_token_does_nothing(self, browser: Browser, board: FileBoard) -> None:
        found = browser.do("note", text="hello", about="", csrf="guessed")
        assert (found.status_code, "nothing was changed" in found.text) == (403, True)
        assert board.read().human_notes == {}

    def test_read_only_shows_and_changes_nothing(self, board: FileBoard) -> None:
        with browser_on(board, read_only=True) as browser:
            assert browser.get("/").status_code == 200
            for action in FORMS:
                assert browser.do(action, text="hello").status_code == 403
        assert board.read().human_notes == {}
        assert board.switches.thrown() == {}

    def test_a_form_does_what_the_command_does(self, browser: Browser, board: FileBoard) -> None:
        assert "Noted for t1." in browser.do("note", text="hello", about="t1").text
        assert "PAUSE is thrown" in browser.do("pause", reason="lunch").text
        assert board.switches.thrown() == {"PAUSE": "lunch"}
        assert (
            "Added t9."
            in browser.do("add", id="t9", description="x", done_when="a\nb", depends_on="t1, t2").text
        )
        assert browser.do("abandon", task="t2", reason="no").status_code == 200
        state = board.read()
        assert [note.message for note in state.human_notes.values()] == ["hello"]
        assert (state.task("t9").done_when, state.task("t9").depends_on) == (("a", "b"), ("t1", "t2"))
        assert state.task("t2").status is Status.ABANDONED

    @pytest.mark.parametrize(
        ("action", "fields", "status", "sentence"),
        [
            ("note", {"text": " "}, 400, "the note is empty; say something"),
            (
                "note",
                {"text": "x", "about": "../../etc/passwd"},
                404,
                "there is no task &#x27;../../etc/passwd&#x27;",
            ),
            ("add", {"id": "a/b", "description": "x", "done_when": "y"}, 400, "is not an id"),
            ("accept", {"task": "t1", "reason": "x"}, 409, "it asks for no consent"),
            ("reject", {"task": "t1", "reason": "x", "comments": "hello"}, 400, "write FILE:LINE:TEXT"),
            ("dance", {}, 404, "there is no action &#x27;dance&#x27;"),
        ],
    )
    def test_what_a_rule_refuses_is_said(
        self, browser: Browser, action: str, fields: dict[str, str], status: int, sentence: str
    ) -> None:
        found = browser.do(action, **fields)
        assert found.status_code == status
        assert sentence in found.text

    def test_a_form_that_is_far_too_long_is_not_read(self, browser: Browser) -> None:
        assert browser.do("note", text="x" * MAX_BODY, about="").status_code == 413

    def test_the_way_back_is_ours(self, browser: Browser) -> None:
        for back, place in (("/board", "/board"), ("//evil.example", "/"), ("https://evil.example", "/")):
            form = {"csrf": browser.access.csrf, "text": "hi", "about": "", "back": back}
            origin = {"origin": f"http://127.0.0.1:{PORT}"}
            done = browser.client.post("/do/note", data=form, headers=origin, follow_redirects=False)
            assert (done.status_code, done.headers["location"]) == (303, place)
