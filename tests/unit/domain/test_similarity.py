"""Whether two reasons say the same, whatever their numbers, places and order."""

from __future__ import annotations

from typing import Final

import pytest

from liza.domain.similarity import SIMILARITY, are_similar, normalize

SAME: Final = [
    ("The name lies.", "the  NAME lies"),
    ("Test missing in src/app.py:12", "test missing in src/app.py:97"),
    ("Line 12: unused import", "line 48: unused import"),
    ("3 tests fail", "5 tests fail"),
    ("1 test fails", "2 tests fail"),
    ("Commit 4f2a9c1 breaks the build", "commit 9b8e7d6a breaks the build!"),
    ("Missing test for empty input", "The test for the empty input is missing"),
    ("'src/app.py:3' is not covered", '"src/app.py:44" is not covered'),
    ("no test for the empty input", "there is still no test for empty input, please"),
    ("took 1.5s, too slow", "took 2.75s - too slow"),
]
OTHERS: Final = [
    ("missing tests for the parser", "missing tests for the lexer"),
    ("the name lies", "the loop is slow"),
    ("tests pass", "tests do not pass"),
    ("test_1 fails", "test_2 fails"),
    ("", ""),
    (None, None),
    (None, "x"),
    ("1", "2"),
]


class TestReasons:
    @pytest.mark.parametrize(("one", "other"), SAME)
    def test_the_same_in_other_words(self, one: str, other: str) -> None:
        assert are_similar(one, other)
        assert are_similar(other, one)

    @pytest.mark.parametrize(("one", "other"), OTHERS)
    def test_another(self, one: str | None, other: str | None) -> None:
        assert not are_similar(one, other)

    def test_marks_alone_are_the_same_only_if_they_are(self) -> None:
        assert are_similar("???", " ??? ")
        assert not are_similar("???", "!!!")

    def test_what_is_left_is_what_it_says(self) -> None:
        assert normalize("Line 12: Foo, at `a.py:7` (0xFF) — 3 TIMES") == "foo at a py times"

    def test_the_threshold_lets_one_word_in_four_differ(self) -> None:
        assert SIMILARITY == 0.75
        assert are_similar("alpha beta gamma", "alpha beta gamma delta")
        assert not are_similar("alpha beta gamma epsilon", "alpha beta gamma delta")
