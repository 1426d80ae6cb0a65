"""What Liza writes into a forge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.issues import Issue
from liza.forges.comments import (
    MOST_CHARACTERS,
    MOST_LINES,
    has_marker,
    is_marked,
    phase_comment,
    pull_request_body,
    pull_request_title,
    with_marker,
)


@given(st.text(), st.text(max_size=40), st.text(max_size=40))
def test_a_comment_is_found_by_its_own_key_alone(text: str, key: str, other: str) -> None:
    comment = with_marker(text, key)

    assert has_marker(comment, key)
    assert is_marked(comment)
    assert not is_marked(with_marker(text, key).rsplit("\n\n", 1)[0])
    assert has_marker(comment, other) == has_marker(with_marker("", key), other)


def test_a_long_comment_keeps_its_ends() -> None:
    lines = [f"line {number}" for number in range(1000)]

    comment = with_marker("\n".join(lines), "k")

    assert comment.startswith("line 0\n")
    assert "… 750 lines are left out …" in comment
    assert "line 999\n\n<!-- liza:k -->" in comment
    assert len(comment.splitlines()) <= MOST_LINES + 6
    assert len(with_marker("x" * 200_000, "k")) < MOST_CHARACTERS + 200


def test_a_secret_of_the_environment_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2-hunter2")

    assert with_marker("it is hunter2-hunter2-hunter2", "k").startswith("it is [masked]")


def test_a_phase_and_a_pull_request_say_what_they_are_about() -> None:
    issue = Issue(number=7, title="Fix the crash", body="It crashes.")

    assert phase_comment("PLAN", "Judge", 2, "good\n") == "### Phase: PLAN — Judge (iteration 2)\n\ngood"
    assert pull_request_title(issue) == "Issue #7: Fix the crash"
    assert pull_request_body(issue).startswith("Closes #7\n\n- [x] planned\n")
