"""Who may talk to the page: each check alone, so that none can go unnoticed."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from liza.cli.views.html import el
from liza.cli.web.security import (
    CHECKS,
    CSRF_FIELD,
    HEADERS,
    POLICY,
    UNPROTECTED,
    Ask,
    PageAccess,
    check_exposure,
    is_loopback,
    refusal_of,
)
from liza.errors import UsageError

ACCESS = PageAccess("127.0.0.1", 7171)
HOST = {"host": "127.0.0.1:7171"}
OWN = {"origin": "http://127.0.0.1:7171"}
COOKIE = {"cookie": f"other=1; liza_7171={ACCESS.session}"}
CSRF = {CSRF_FIELD: ACCESS.csrf}
CHANGE = Ask("POST", "/do/pause", {**HOST, **OWN, **COOKIE}, form=CSRF)
LOOK = Ask("GET", "/", {**HOST, **COOKIE})


def without(ask: Ask, header: str, value: str | None = None) -> Ask:
    """Return *ask* with one header away, or with another value."""
    rest = {name: one for name, one in ask.headers.items() if name != header}
    return ask._replace(headers={**rest, header: value} if value is not None else rest)


class TestChecks:
    def test_a_browser_that_showed_the_token_may_look_and_change(self) -> None:
        assert refusal_of(LOOK, ACCESS) is None
        assert refusal_of(CHANGE, ACCESS) is None

    @pytest.mark.parametrize("name", ["localhost:7171", "[::1]:7171", "LOCALHOST:7171"])
    def test_all_names_of_this_machine_are_ours(self, name: str) -> None:
        assert refusal_of(without(LOOK, "host", name), ACCESS) is None

    @pytest.mark.parametrize(
        ("check", "asks"),
        [
            ("_check_host", [without(ask, "host", name) for ask in (LOOK, CHANGE)
                             for name in ("evil.example:7171", "127.0.0.1", "127.0.0.1:80", "")]),
            ("_check_origin", [without(CHANGE, "origin"), without(CHANGE, "origin", "null"),
                               without(CHANGE, "origin", "http://evil.example"),
                               without(CHANGE, "origin", "https://127.0.0.1:7171"),
                               without(LOOK, "origin", "http://evil.example")]),
            ("_check_session", [without(LOOK, "cookie"), without(CHANGE, "cookie"),
                                without(LOOK, "cookie", f"liza_7171={ACCESS.token}"),
                                without(LOOK, "cookie", f"liza_7172={ACCESS.session}"),
                                without(LOOK, "cookie", "liza_7171=é"),
                                LOOK._replace(token=ACCESS.session), LOOK._replace(token=""),
                                CHANGE._replace(token=ACCESS.token)]),
            ("_check_csrf", [CHANGE._replace(form={}), CHANGE._replace(form={CSRF_FIELD: ACCESS.session}),
                             CHANGE._replace(form={CSRF_FIELD: PageAccess("127.0.0.1", 7171).csrf})]),
        ],
    )  # fmt: skip
    def test_only_this_check_stops_it(
        self, check: str, asks: list[Ask], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each is refused in a sentence, and would get through if the check were not there."""
        found = [refusal_of(ask, ACCESS) for ask in asks]
        assert all(one is not None and "; " in one.sentence for one in found)

        others = tuple(one for one in CHECKS if one.__name__ != check)
        monkeypatch.setattr("liza.cli.web.security.CHECKS", others)
        assert len(others) == len(CHECKS) - 1
        assert [refusal_of(ask, ACCESS) for ask in asks] == [None] * len(asks)

    def test_read_only_refuses_every_change(self) -> None:
        shown = PageAccess("127.0.0.1", 7171, read_only=True, session=ACCESS.session)
        found = refusal_of(CHANGE, shown)
        assert found is not None
        assert (found.status, "--read-only" in found.sentence) == (HTTPStatus.FORBIDDEN, True)
        assert refusal_of(LOOK, shown) is None

    def test_the_token_of_the_address_lets_in_once_by_reading(self) -> None:
        assert refusal_of(Ask("GET", "/", HOST, token=ACCESS.token), ACCESS) is None

    def test_each_start_has_secrets_of_its_own(self) -> None:
        one, other = PageAccess("127.0.0.1", 1), PageAccess("127.0.0.1", 1)
        assert len({one.token, other.token, one.session, other.session, one.csrf, other.csrf}) == 6


class TestCookie:
    def test_no_script_reads_it_and_no_other_site_sends_it(self) -> None:
        assert "HttpOnly; SameSite=Strict" in ACCESS.set_cookie
        assert "Secure" not in ACCESS.set_cookie
        assert PageAccess("a.example", 7171, "https").set_cookie.endswith("; Secure")


class TestPolicy:
    @pytest.mark.parametrize("word", ["unsafe", "*", "http:", "https:", "data:", "blob:"])
    def test_nothing_inline_and_nobody_else(self, word: str) -> None:
        assert word not in POLICY
        assert POLICY.startswith("default-src 'none'")

    @pytest.mark.parametrize("word", ["frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"])
    def test_what_no_default_covers_is_said(self, word: str) -> None:
        """A frame around the page, a form to elsewhere, an address that others count from."""
        assert word in POLICY.split("; ")

    def test_no_copy_is_kept_and_the_token_is_not_passed_on(self) -> None:
        wanted = {
            "cache-control": "no-store",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }
        assert {name: HEADERS.get(name) for name in wanted} == wanted


class TestExposure:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
    def test_this_machine_needs_nothing(self, host: str) -> None:
        assert is_loopback(host)
        check_exposure(host, has_tls=False, is_unprotected=False)

    @pytest.mark.parametrize("host", ["192.168.1.5", "fd00::5", "box.example"])
    def test_others_need_tls_or_the_word(self, host: str) -> None:
        with pytest.raises(UsageError, match=UNPROTECTED):
            check_exposure(host, has_tls=False, is_unprotected=False)
        check_exposure(host, has_tls=True, is_unprotected=False)
        check_exposure(host, has_tls=False, is_unprotected=True)

    @pytest.mark.parametrize(("host", "has_tls"), [("localhost", False), ("box.example", True)])
    def test_the_word_is_refused_where_it_would_do_nothing(self, host: str, *, has_tls: bool) -> None:
        with pytest.raises(UsageError, match=f"{UNPROTECTED} does nothing"):
            check_exposure(host, has_tls=has_tls, is_unprotected=True)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", " "])  # noqa: S104
    def test_every_address_is_no_name_that_a_browser_asks_for(self, host: str) -> None:
        with pytest.raises(UsageError, match="give the name or address by which it is reached"):
            check_exposure(host, has_tls=True, is_unprotected=True)

    def test_a_machine_with_a_name_answers_to_that_name_only(self) -> None:
        access = PageAccess("box.example", 7171, "https", session=ACCESS.session)
        assert access.names == {"box.example:7171"}
        assert refusal_of(LOOK, access) is not None


class TestMarkup:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("a\u202egpj.exe", "a\\u202egpj.exe"),
            ("\u2066isolated\u2069", "\\u2066isolated\\u2069"),
            ("'\"&", "&#x27;&quot;&amp;"),
        ],
    )
    def test_what_agents_wrote_is_text_in_elements_and_in_attributes(self, written: str, shown: str) -> None:
        assert str(el("p", written, title=written)) == f'<p title="{shown}">{shown}</p>'

    def test_elements_are_nested_and_nothing_is_nothing(self) -> None:
        inner = (el("li", number) for number in (1, 2))
        assert str(el("ul", inner, None, hidden=True, id=None)) == "<ul hidden><li>1</li><li>2</li></ul>"
        assert str(el("label", for_="a", aria_live="off")) == '<label for="a" aria-live="off"></label>'
