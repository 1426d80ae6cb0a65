"""Work of one coder after another on a branch that is published: nothing is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.domain.record import utc_now
from liza.repo.remote import publishable
from tests.support.repos import Home

if TYPE_CHECKING:
    from pathlib import Path

BRANCH = "bug/issue-7-x"


def test_the_work_of_another_coder_goes_on_from_what_was_published(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    base, at = home.base, utc_now()
    first = home.commit({"a.py": "A = 1\n"})
    home.git("reset", "--quiet", "--hard", base)
    second = home.commit({"b.py": "B = 1\n"})
    third = home.commit({"b.py": "B = 2\n"})

    assert publishable(home.repository, BRANCH, first, at=at) == first
    joined = publishable(home.repository, BRANCH, second, at=at)
    assert publishable(home.repository, BRANCH, second, at=at) == joined
    last = publishable(home.repository, BRANCH, third, at=at)

    assert home.git("rev-list", "--parents", "-1", joined).split() == [joined, first, second]
    assert home.git("rev-list", "--parents", "-1", last).split() == [last, joined, third]
    assert home.repository.tree_of(last) == home.repository.tree_of(third)


def test_work_that_goes_on_is_published_as_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first = home.commit({"a.py": "A = 1\n"})
    second = home.commit({"a.py": "A = 2\n"})

    assert [publishable(home.repository, BRANCH, one, at=utc_now()) for one in (first, second)] == [
        first,
        second,
    ]
