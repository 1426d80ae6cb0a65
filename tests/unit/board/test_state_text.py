"""The text of a board that follows its journal: the same as one that is made anew."""

from __future__ import annotations

import pytest

from liza.board.journal import diff_states, journal_fields, json_of_changes, with_trimmed_history
from liza.board.protocol import JournalEntry
from liza.board.statefile import StateDocument, render_state
from liza.domain.changes import HUMAN, Change
from liza.domain.lifecycle import Amend
from liza.domain.model import SHOWN_EVENTS, State
from liza.domain.record import utc_now
from liza.workflow.transition import apply
from tests.support.sample_tasks import board, new_task

STAMP = "0" * 16
# Lines that look like a field, an entry of a history or the end of a record, where they are part of a text.
WORDS = (
    "plain",
    "two: words",
    "one\n  status: DRAFT\n- id: t2\nhistory:\n  - at: never",
    "  begins with a space\n\n\nends with lines\n\n",
    "- id: x",
)


def follow(document: StateDocument, old: State, new: State) -> State:
    """Let *document* follow one step, and return the board that it shows then."""
    diff = diff_states(old, new.replace(revision=old.revision + 1))
    shown = diff._replace(new=with_trimmed_history(diff))
    put = journal_fields(diff, json_of_changes(shown))
    document.follow(shown.new, [JournalEntry(shown.new.revision, utc_now(), "human", "try", put, {})])
    return shown.new


@pytest.mark.parametrize("words", WORDS)
def test_a_text_that_follows_is_the_same_as_one_made_anew(words: str) -> None:
    state = board(new_task("t1"), new_task("t2"))
    document = StateDocument(state)
    for number in range(SHOWN_EVENTS + 3):
        change = amend(done_when=(words, f"{number}"), description=words)
        state = follow(document, state, change(state))
        if number % 3 == 0:  # else the text is made after several steps at once
            assert document.bytes(STAMP) == render_state(state, STAMP)
    state = follow(document, state, amend(done_when=())(state))

    assert document.bytes(STAMP) == render_state(state, STAMP)


def amend(**fields: object) -> Change:
    return apply(Amend(fields=fields), to="t1", by=HUMAN, at=utc_now())
