"""What follows a run without an answer: every ending, from every point of the way to one."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from liza.daemon.policy.retries import AFTER_A_KILL, BROKEN, RETRIES, Retry, RunEnd, Tried, retry_after
from liza.system.run_control import Ending

ONCE: Final = frozenset({Ending.DONE})  # a coder is asked again only for want of a block
LENIENT: Final = frozenset({Ending.DONE, Ending.TIMEOUT, Ending.SILENT, Ending.CRASHED, Ending.EMPTY})
SECONDS: Final = (Retry.IN_SESSION, Retry.ANSWER_ONLY, Retry.WHOLE)


def test_every_ending_has_its_row() -> None:
    assert set(RETRIES) == set(Ending)


@pytest.mark.parametrize(
    ("run", "retry"),
    [
        (RunEnd(Ending.DONE, has_session=True), Retry.IN_SESSION),
        (RunEnd(Ending.DONE, is_unread=True, has_session=True), Retry.IN_SESSION),
        (RunEnd(Ending.DONE, is_unread=True), Retry.ANSWER_ONLY),
        (RunEnd(Ending.DONE), Retry.WHOLE),
        (RunEnd(Ending.KILLED), Retry.SAME),
        (RunEnd(Ending.QUOTA, may_stand_in=True), Retry.STAND_IN),
        (RunEnd(Ending.QUOTA), Retry.NOTHING),
        (RunEnd(Ending.CRASHED, may_stand_in=True), Retry.STAND_IN),
        (RunEnd(Ending.CRASHED, has_session=True), Retry.WHOLE),
        (RunEnd(Ending.EMPTY, is_unread=True), Retry.WHOLE),
        (RunEnd(Ending.STOPPED, has_session=True, may_stand_in=True), Retry.NOTHING),
        (RunEnd(Ending.CONTEXT_FULL), Retry.NOTHING),
        (RunEnd(Ending.RATE_LIMITED), Retry.NOTHING),
    ],
    ids=str,
)
def test_what_follows_the_first_run(run: RunEnd, retry: Retry) -> None:
    assert retry_after(run, Tried(), LENIENT) is retry


@pytest.mark.parametrize("ending", sorted(set(Ending) - {Ending.DONE, Ending.KILLED}))
def test_work_is_not_done_again_for_how_it_ended(ending: Ending) -> None:
    """Whoever may only be asked for a better answer is asked nothing after a crash or a timeout."""
    assert retry_after(RunEnd(ending), Tried(), ONCE) is Retry.NOTHING


@pytest.mark.parametrize("ending", Ending)
def test_a_second_answer_is_the_last(ending: Ending) -> None:
    for second, unread in product((Retry.ANSWER_ONLY, Retry.WHOLE), (True, False)):
        tried = Tried(second=second, was_unread=unread, has_stand_in=True, kills=len(AFTER_A_KILL))

        assert retry_after(RunEnd(ending, unread, has_session=True), tried, LENIENT) is Retry.NOTHING


@pytest.mark.parametrize("ending", Ending)
def test_a_broken_session_is_left_and_the_answer_asked_for_without_it(ending: Ending) -> None:
    found = [
        retry_after(RunEnd(ending), Tried(second=Retry.IN_SESSION, was_unread=unread, kills=9), LENIENT)
        for unread in (True, False)
    ]

    expected = [Retry.ANSWER_ONLY, Retry.WHOLE] if ending in BROKEN else [Retry.NOTHING, Retry.NOTHING]
    assert found == expected


def test_every_way_comes_to_an_end() -> None:
    """Whatever runs come to, no more are started than the table can tell."""
    runs = [RunEnd(*flags) for flags in product(Ending, (True, False), (True, False), (True, False))]
    left = [Tried()]
    seen = set[Tried]()
    while left:
        tried = left.pop()
        if tried in seen:
            continue
        seen.add(tried)
        for run in runs:
            match retry_after(run, tried, LENIENT):
                case Retry.NOTHING:
                    continue
                case Retry.SAME:
                    after = tried._replace(kills=tried.kills + 1, has_stand_in=False)
                case Retry.STAND_IN:
                    after = tried._replace(has_stand_in=True)
                case second:
                    after = Tried(second=second, was_unread=run.is_unread)
            left.append(after)
    assert len(seen) < 100
    assert {one.second for one in seen} == {Retry.NOTHING, *SECONDS}
