"""Who may talk to the page: one table of checks that every request passes before anything else sees it.

A browser on this machine also runs the scripts of other sites, and those can send requests here. So a name
that is not ours is refused (DNS rebinding), a change needs the origin and a token that no other site can
know, and whatever agents wrote is shown under a policy that runs no script but our own files.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
READING: Final = frozenset({"GET", "HEAD"})
CSRF_FIELD: Final = "csrf"
UNPROTECTED: Final = "--without-tls-anybody-on-the-network-can-read-and-act"

# No inline script or style, no other host, no frame, no form to elsewhere.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the address has the token once
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class PageAccess:
    """Where the page is, and the secrets of this one start of it."""

    host: str
    port: int
    scheme: str = "http"
    read_only: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers share cookies between the ports of a host."""
        return f"liza_{self.port}"

    @property
    def csrf(self) -> str:
        return hmac.new(self.session.encode(), b"csrf", sha256).hexdigest()

    @property
    def names(self) -> frozenset[str]:
        """What a browser may call us in the header `Host`."""
        own = {self.host, f"[{self.host}]"} if ":" in self.host else {self.host}
        return frozenset(f"{name}:{self.port}" for name in {*own, *(LOOPBACK if self.is_local else ())})

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/?token={self.token}"

    @property
    def set_cookie(self) -> str:
        secure = "; Secure" if self.scheme == "https" else ""
        return f"{self.cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/{secure}"


class Ask(NamedTuple):
    """A request as far as the checks look at it; names of headers are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    token: str | None = None  # from the address
    form: Mapping[str, str] = {}


class PageRefusal(NamedTuple):
    status: HTTPStatus
    sentence: str


def _check_host(ask: Ask, access: PageAccess) -> PageRefusal | None:
    host = ask.headers.get("host", "")
    if host.lower() in access.names:
        return None
    own = access.address.partition("/?")[0]
    return PageRefusal(
        HTTPStatus.MISDIRECTED_REQUEST,
        f"this page does not answer to the name {host!r}; open {own} with the token that `liza web` printed",
    )


def _check_origin(ask: Ask, access: PageAccess) -> PageRefusal | None:
    """Refuse another site's script; a browser that changes something always says where it comes from."""
    origin = ask.headers.get("origin")
    if origin is None and ask.method in READING:
        return None
    if origin is not None and origin.lower() in {f"{access.scheme}://{name}" for name in access.names}:
        return None
    return PageRefusal(
        HTTPStatus.FORBIDDEN,
        f"a request from {origin or 'nowhere'} may not reach this page; use its own buttons",
    )


def _check_session(ask: Ask, access: PageAccess) -> PageRefusal | None:
    if ask.token is not None:
        if ask.method in READING and _is_same(ask.token, access.token):
            return None
        sentence = (
            "the token in this address is of an earlier start; open the address that `liza web` printed"
        )
        return PageRefusal(HTTPStatus.FORBIDDEN, sentence)
    if _is_same(cookie_of(ask, access.cookie), access.session):
        return None
    sentence = "this browser has not shown the token; open the address that `liza web` printed"
    return PageRefusal(HTTPStatus.FORBIDDEN, sentence)


def _check_writing(ask: Ask, access: PageAccess) -> PageRefusal | None:
    if ask.method in READING or not access.read_only:
        return None
    sentence = "this page only shows, because it was started with --read-only; use a terminal to change it"
    return PageRefusal(HTTPStatus.FORBIDDEN, sentence)


def _check_csrf(ask: Ask, access: PageAccess) -> PageRefusal | None:
    if ask.method in READING or _is_same(ask.form.get(CSRF_FIELD, ""), access.csrf):
        return None
    sentence = "the form has no valid token, so nothing was changed; load the page again and repeat it"
    return PageRefusal(HTTPStatus.FORBIDDEN, sentence)


# In this order: who we are called, who asks, whether they may at all.
CHECKS: Final[tuple[Callable[[Ask, PageAccess], PageRefusal | None], ...]] = (
    _check_host,
    _check_origin,
    _check_session,
    _check_writing,
    _check_csrf,
)


def refusal_of(ask: Ask, access: PageAccess) -> PageRefusal | None:
    """Return why *ask* is not answered, or None where it is."""
    return next((found for check in CHECKS if (found := check(ask, access))), None)


def cookie_of(ask: Ask, name: str) -> str:
    try:
        found = SimpleCookie(ask.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_unspecified(host: str) -> bool:
    """Return whether *host* stands for every address: then no `Host` could be told from a foreign one."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host.strip()


def check_exposure(host: str, *, has_tls: bool, is_unprotected: bool) -> None:
    """Refuse to listen where others can reach it in the clear, unless that was said in so many words."""
    if is_unspecified(host):
        raise UsageError(f"no browser asks for {host!r}; give the name or address by which it is reached")
    if is_unprotected and (has_tls or is_loopback(host)):
        why = "with --tls" if has_tls else f"on {host}, which only this machine can reach"
        raise UsageError(f"{UNPROTECTED} does nothing {why}; leave it out")
    if is_loopback(host) or has_tls or is_unprotected:
        return
    raise UsageError(
        f"{host} can be reached from other machines, and without TLS all of them could read the token; "
        f"give --tls CERT KEY, or say {UNPROTECTED}"
    )
