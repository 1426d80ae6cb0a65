"""Nothing that an agent chose acts on the terminal of whoever looks at it."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.alerts import append_alert
from liza.board.file import FileBoard
from liza.cli.views.screen import LiveView
from liza.domain.changes import HUMAN, add_note
from liza.domain.lifecycle import Block
from liza.domain.printed_text import escape_unsafe
from liza.domain.record import utc_now
from liza.workflow.transition import apply
from tests.support.repos import Home
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

# Clear the screen, set the title, a C1 control, text that turns, a carriage return, an unseen tag.
EVIL: Final = "a\x1b[2Jb\x1b]0;title\x07c\x9b31md\u202eevil\u2066e\rf\U000e0041g"
SHOWN: Final = "a\\x1b[2Jb\\x1b]0;title\\x07c\\x9b31md\\u202eevil\\u2066e\\x0df\\U000e0041g"
ACTS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def test_what_acts_is_written_out_and_all_else_stays() -> None:
    assert escape_unsafe(EVIL) == SHOWN
    assert escape_unsafe("Grüße, 漢字, 👩‍💻\n\tЖ") == "Grüße, 漢字, 👩‍💻\n\tЖ"
    assert escape_unsafe("half \udc80") == "half \\udc80"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(Home(tmp_path / "home").directory)
    shell.ok("init", f"goal {EVIL}")
    shell.ok("task", "add", "--id", "t1", "--description", f"do {EVIL}", "--done-when", f"seen {EVIL}")
    board, now = FileBoard(shell.home), utc_now()
    board.update(apply(Block(reason=f"why {EVIL}", questions=(f"what {EVIL}?",)), to="t1", by=HUMAN, at=now))
    board.update(add_note(f"note {EVIL}", about=None, by=HUMAN, at=now))
    append_alert(shell.home, now, f"told {EVIL}")
    return shell


def test_no_view_lets_it_through(shell: Shell) -> None:
    """Every command that shows what is on the board."""
    views = (
        *(("status",), ("explain", "t1"), ("explain", "run"), ("task", "show", "t1"), ("log",), ("metrics",)),
        *(("cost",), ("board", "--at", "2"), ("board", "diff", "1", "3"), ("validate",), ("breaker",)),
    )
    for words in views:
        done = shell(*words)
        assert not ACTS.search(done.out + done.err), words
    assert "why a\\x1b[2Jb" in shell.ok("status")
    assert not ACTS.search((shell.home / "alerts.log").read_text())


def test_the_live_view_draws_and_lets_nothing_else_draw(shell: Shell) -> None:
    stream = io.StringIO()
    live = LiveView(stream)
    live.say(f"said {EVIL}")
    live.show(FileBoard(shell.home).read(), {"PAUSE": EVIL})

    left = stream.getvalue().replace("\x1b[J", "")
    assert "said a\\x1b[2Jb" in left
    assert not ACTS.search(left)
