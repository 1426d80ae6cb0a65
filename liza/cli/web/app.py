"""The page as an application: each address is a row, each change goes through `liza.cli.actions`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from liza.cli.web.live import LiveFeed
from liza.cli.web.pages import PAGES, Site, error_page
from liza.cli.web.security import HEADERS, READING, Ask, PageAccess, PageRefusal, refusal_of
from liza.domain.printed_text import escape_unsafe
from liza.errors import InvalidBoard, LizaError, NotThere, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from liza.board.protocol import Board

    Endpoint = Callable[[Request], Awaitable[Response]]

MAX_BODY: Final = 256 * 1024  # bytes of a form; what people type is far below
TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}

# What went wrong, from the most special to the most general.
STATUSES: Final[tuple[tuple[type[LizaError], HTTPStatus], ...]] = (
    (NotThere, HTTPStatus.NOT_FOUND),
    (UsageError, HTTPStatus.BAD_REQUEST),
    (InvalidBoard, HTTPStatus.SERVICE_UNAVAILABLE),
    (LizaError, HTTPStatus.CONFLICT),
)


def build_app(board: Board, access: PageAccess, feed: LiveFeed) -> Starlette:
    """Return the application that shows *board*, and what *feed* tells of it, to whoever *access* lets in."""
    site = Site(board, access, feed)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        feed.start()
        try:
            yield
        finally:
            await run_in_threadpool(feed.stop)

    routes = [
        *(Route(path, _page(site, path)) for path in PAGES),
        Route("/do/{action}", _action(site), methods=["POST"]),
        Route("/events", _events(feed)),
        Route("/static/{name}", _static),
        Route("/{rest:path}", _nowhere(site)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(Gatekeeper, access=access)
    return app


def _page(site: Site, path: str) -> Endpoint:
    async def show(request: Request) -> Response:
        asked = {**request.query_params, **request.path_params}
        address = f"{request.url.path}?{request.url.query}".rstrip("?")
        is_part = request.headers.get("hx-request") == "true"
        try:
            shown = await run_in_threadpool(site.render, path, address, asked, is_part=is_part)
        except LizaError as error:
            return HTMLResponse(str(error_page(site, str(error), is_part=is_part)), _status_of(error))
        return HTMLResponse(shown)

    return show


def _status_of(error: LizaError) -> HTTPStatus:
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def _action(site: Site) -> Endpoint:
    async def act(request: Request) -> Response:
        # Whoever changes something needs much that nobody needs who looks on: a cold start goes without it.
        from liza.cli.web.forms import perform_form  # noqa: PLC0415

        form: Mapping[str, str] = request.state.form
        status = HTTPStatus.OK
        try:
            said = await run_in_threadpool(perform_form, site.board, request.path_params["action"], form)
        except LizaError as error:
            said, status = str(error), _status_of(error)
        if request.headers.get("hx-request") == "true":
            return HTMLResponse(str(site.toast(said, is_error=status is not HTTPStatus.OK)), status)
        if status is not HTTPStatus.OK:
            return HTMLResponse(str(error_page(site, said, is_part=False)), status)
        site.flash(said)
        return RedirectResponse(_way_back(form), HTTPStatus.SEE_OTHER)

    return act


def _way_back(form: Mapping[str, str]) -> str:
    """Return the page that the form was on: a path of ours, never another host."""
    back = form.get("back", "/")
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"


def _events(feed: LiveFeed) -> Endpoint:
    async def tell(_: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            async for stamp in feed.stamps():
                yield (
                    f"event: change\ndata: {escape_unsafe(stamp).splitlines()[0]}\n\n"
                    if stamp
                    else ": still here\n\n"
                )

        return StreamingResponse(stream(), media_type="text/event-stream")

    return tell


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    known = {file.name: file for file in files("liza.cli.web").joinpath("static").iterdir()}
    if name not in known:
        return PlainTextResponse("there is no such file\n", HTTPStatus.NOT_FOUND)
    kind = TYPES.get(name.rpartition(".")[2], "text/plain")
    return Response(known[name].read_bytes(), media_type=kind)


def _nowhere(site: Site) -> Endpoint:
    async def miss(request: Request) -> Response:
        sentence = f"there is no page {request.url.path!r}; the menu has all that there are"
        return HTMLResponse(str(error_page(site, sentence, is_part=False)), HTTPStatus.NOT_FOUND)

    return miss


class Gatekeeper:
    """Lets a request through once every check passed, and sends the same headers with every answer."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_headers(message.get("headers", []))
            await send(message)

        asked = await _ask(scope, receive)
        found = asked if isinstance(asked, PageRefusal) else refusal_of(asked, self._access)
        if found is not None:
            await PlainTextResponse(f"{found.sentence}\n", found.status)(scope, receive, send_with_headers)
        elif isinstance(asked, Ask) and asked.token is not None:
            come_in = RedirectResponse(
                asked.path, HTTPStatus.SEE_OTHER, {"set-cookie": self._access.set_cookie}
            )
            await come_in(scope, receive, send_with_headers)
        else:
            scope.setdefault("state", {})["form"] = asked.form if isinstance(asked, Ask) else {}
            await self._app(scope, receive, send_with_headers)


def _with_headers(given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    return [*((name, value) for name, value in given if name.decode().lower() not in HEADERS), *own]


async def _ask(scope: Scope, receive: Receive) -> Ask | PageRefusal:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    query = parse_qs(scope["query_string"].decode("latin-1"))
    token = query.get("token", [None])[0]
    if scope["method"] in READING:
        return Ask(scope["method"], scope["path"], headers, token)
    body = await _body(receive)
    if body is None:
        return PageRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the form is too long; say it in fewer words")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True)
    except UnicodeDecodeError:
        return PageRefusal(HTTPStatus.BAD_REQUEST, "the form is not UTF-8 text; write it in another way")
    return Ask(scope["method"], scope["path"], headers, token, {name: one[0] for name, one in fields.items()})


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body, or None where it is longer than a form can be."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body"):
            return bytes(body)
