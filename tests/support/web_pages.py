"""The page of a real board, asked as a browser asks it, without a socket."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.testclient import TestClient

from liza.cli.web.app import build_app
from liza.cli.web.live import LiveFeed
from liza.cli.web.security import CSRF_FIELD, PageAccess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from httpx2 import Response

    from liza.board.protocol import Board

PORT = 7171


class Browser:
    """A browser that came by the printed address."""

    def __init__(self, client: TestClient, access: PageAccess) -> None:
        self.client = client
        self.access = access

    def get(self, path: str) -> Response:
        return self.client.get(path)

    def do(self, action: str, **fields: str) -> Response:
        form = {CSRF_FIELD: self.access.csrf, **fields}
        headers = {"origin": f"http://127.0.0.1:{PORT}", "hx-request": "true"}
        return self.client.post(f"/do/{action}", data=form, headers=headers)


@contextmanager
def browser_on(board: Board, *, read_only: bool = False) -> Iterator[Browser]:
    access = PageAccess("127.0.0.1", PORT, read_only=read_only)
    with TestClient(build_app(board, access, LiveFeed(board)), base_url=f"http://127.0.0.1:{PORT}") as client:
        assert client.get(f"/?token={access.token}").status_code == 200
        yield Browser(client, access)
