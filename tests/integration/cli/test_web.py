"""The page over HTTP: what it lets through, what it does to a real board, and what it says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from liza.cli.web.app import MAX_BODY, build_app
from liza.cli.web.forms import FORMS
from liza.cli.web.live import LiveFeed
from liza.cli.web.security import HEADERS, Access
from liza.domain.model import Status
from tests.support.boards import new_board
from tests.support.web_pages import PORT, Browser, browser_on

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


class TestComingIn:
    def test_the_token_becomes_a_cookie_and_leaves_the_address(self, board: FileBoard) -> None:
        access = Access("127.0.0.1", PORT)
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
            build_app(board, Access("127.0.0.1", PORT), LiveFeed(board)), base_url=f"http://127.0.0.1:{PORT}"
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
