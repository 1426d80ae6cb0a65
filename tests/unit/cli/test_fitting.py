"""Lines that fit a terminal: the cause is cut, and the command at the end is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from io import StringIO

import pytest

from liza.cli.views.fitting import fit_line, fit_text, fold_text, terminal_width


@pytest.mark.parametrize(
    ("line", "width", "shown"),
    [
        ("short", 20, "short"),
        ("a cause that is too long", 12, "a cause tha…"),
        ("its cause is a long story (`liza answer t1`)", 40, "its cause is a long… (`liza answer t1`)"),
        ("a long story. Next: `liza resume and more`.", 30, "a long story. Next: `liza res…"),
        ("日本語の説明", 7, "日本語…"),
        ("e\u0301" * 6, 4, "e\u0301" * 3 + "…"),
    ],
)
def test_a_line_that_is_too_long_is_cut(line: str, width: int, shown: str) -> None:
    assert fit_line(line, width) == shown


def test_nothing_is_cut_where_there_is_no_terminal() -> None:
    assert terminal_width(StringIO()) is None
    assert fit_text("x" * 500, None) == "x" * 500
    assert fold_text("x " * 500, None) == "x " * 500


def test_all_of_an_explanation_is_shown_and_its_command_stays_whole() -> None:
    told = (
        "t1 is BLOCKED: nobody said which colour it is to be.\n"
        "  asks   blue or green, or none\n"
        "  then   liza answer t1 x"
    )
    assert fold_text(told, 20).splitlines() == [
        "t1 is BLOCKED:",
        "  nobody said which",
        "  colour it is to",
        "  be.",
        "  asks   blue or",
        "         green, or",
        "         none",
        "  then   liza answer t1 x",
    ]


def test_the_columns_are_those_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 63, 0, 0))
        assert terminal_width(stream) == 63
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 0, 0, 0))
        assert terminal_width(stream) is None
    os.close(ours)
