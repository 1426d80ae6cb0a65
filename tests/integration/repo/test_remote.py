"""Branches of another repository: published, listed and fetched, and nothing of anybody's is lost."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from liza.errors import GitFailed
from liza.repo.remote import fetch_branch, push_branch, remote_branches
from liza.repo.shared_remote import SharedRemote
from tests.support.repos import Hand, Home

if TYPE_CHECKING:
    from pathlib import Path

BRANCH = "bug/issue-7-x"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.git("init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    home.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    return home


def test_what_is_published_is_listed_and_fetched(home: Home, tmp_path: Path) -> None:
    push_branch(home.repository, "origin", BRANCH, home.base)
    push_branch(home.repository, "origin", BRANCH, home.base)
    other = Home(tmp_path / "other")
    refs = other.git("for-each-ref", "refs/heads")

    assert remote_branches(home.repository, "origin") == (BRANCH,)
    assert fetch_branch(other.repository, str(tmp_path / "origin.git"), BRANCH) == home.base
    assert other.git("for-each-ref", "refs/heads") == refs


def test_a_path_of_a_named_remote_is_one_from_the_checkout(home: Home) -> None:
    """As for git itself, which runs there."""
    home.git("remote", "set-url", "origin", "../origin.git")
    push_branch(home.repository, "origin", BRANCH, home.base)

    assert remote_branches(home.repository, "origin") == (BRANCH,)
    assert fetch_branch(home.repository, "origin", BRANCH) == home.base
    assert SharedRemote(home.repository, "origin", BRANCH).fetch() == home.base


def test_a_branch_that_somebody_moved_is_not_overwritten_and_fetched_anew(home: Home) -> None:
    theirs = home.commit({"c.py": "C = 1\n"})
    push_branch(home.repository, "origin", BRANCH, theirs)
    home.git("reset", "--hard", "--quiet", home.base)
    ours = home.commit({"d.py": "D = 1\n"})

    with pytest.raises(
        GitFailed, match=rf"^git push failed: {BRANCH} at origin has commits of somebody else; merge"
    ):
        push_branch(home.repository, "origin", BRANCH, ours)
    assert fetch_branch(home.repository, "origin", BRANCH) == theirs
    Hand(home.directory.parent / "origin.git").git("update-ref", f"refs/heads/{BRANCH}", home.base)
    assert fetch_branch(home.repository, "origin", BRANCH) == home.base


def test_what_is_not_there_is_one_sentence(home: Home) -> None:
    with pytest.raises(GitFailed, match=r"^git fetch failed: "):
        fetch_branch(home.repository, "origin", "none")
    with pytest.raises(GitFailed, match=r"^git ls-remote failed: "):
        remote_branches(home.repository, "nowhere")
    with pytest.raises(GitFailed, match=r"^git push failed: "):
        push_branch(home.repository, "nowhere", BRANCH, home.base)


class _Locked(BaseHTTPRequestHandler):
    """A server that lets nobody in."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_the_program_for_a_login_is_the_one_that_is_asked(home: Home, tmp_path: Path) -> None:
    """Liza's git asks nobody; for a forge it asks the program that has its login."""
    asked = tmp_path / "asked"
    helper = f"!f() {{ echo $1 >> {asked}; echo username=u; echo password=p; }}; f"
    with HTTPServer(("127.0.0.1", 0), _Locked) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/x.git"

        with pytest.raises(GitFailed, match=r"^git push failed: "):
            push_branch(home.repository, address, BRANCH, home.base)
        assert not asked.exists()
        with pytest.raises(GitFailed, match=r"^git push failed: .*Authentication failed"):
            push_branch(home.repository, address, BRANCH, home.base, helper)
        server.shutdown()

    assert asked.read_text().split() == ["get", "erase"]
