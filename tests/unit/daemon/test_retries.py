"""What follows a run without an answer: every ending, from every point of the way to one."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from liza.daemon.policy.retries import AFTER_A_KILL, BROKEN, RETRIES, FailedRun, RetryKind, Tried, retry_after
from liza.system.run_control import RunEnding

ONCE: Final = frozenset({RunEnding.DONE})  # a coder is asked again only for want of a block
LENIENT: Final = frozenset(
    {RunEnding.DONE, RunEnding.TIMEOUT, RunEnding.SILENT, RunEnding.CRASHED, RunEnding.EMPTY}
)
SECONDS: Final = (RetryKind.IN_SESSION, RetryKind.ANSWER_ONLY, RetryKind.WHOLE)


def test_every_ending_has_its_row() -> None:
    assert set(RETRIES) == set(RunEnding)


@pytest.mark.parametrize(
    ("run", "retry"),
    [
        (FailedRun(RunEnding.DONE, has_session=True), RetryKind.IN_SESSION),
        (FailedRun(RunEnding.DONE, is_unread=True, has_session=True), RetryKind.IN_SESSION),
        (FailedRun(RunEnding.DONE, is_unread=True), RetryKind.ANSWER_ONLY),
        (FailedRun(RunEnding.DONE), RetryKind.WHOLE),
        (FailedRun(RunEnding.KILLED), RetryKind.SAME),
        (FailedRun(RunEnding.QUOTA, may_stand_in=True), RetryKind.STAND_IN),
        (FailedRun(RunEnding.QUOTA), RetryKind.NOTHING),
        (FailedRun(RunEnding.CRASHED, may_stand_in=True), RetryKind.STAND_IN),
        (FailedRun(RunEnding.CRASHED, has_session=True), RetryKind.WHOLE),
        (FailedRun(RunEnding.CRASHED, is_session_broken=True, may_stand_in=True), RetryKind.ANEW),
        (FailedRun(RunEnding.EMPTY, is_session_broken=True), RetryKind.ANEW),
        (FailedRun(RunEnding.EMPTY, is_unread=True), RetryKind.WHOLE),
        (FailedRun(RunEnding.STOPPED, has_session=True, may_stand_in=True), RetryKind.NOTHING),
        (FailedRun(RunEnding.CONTEXT_FULL), RetryKind.NOTHING),
        (FailedRun(RunEnding.RATE_LIMITED), RetryKind.NOTHING),
    ],
    ids=str,
)
def test_what_follows_the_first_run(run: FailedRun, retry: RetryKind) -> None:
    assert retry_after(run, Tried(), LENIENT) is retry


@pytest.mark.parametrize("ending", sorted(set(RunEnding) - {RunEnding.DONE, RunEnding.KILLED}))
def test_work_is_not_done_again_for_how_it_ended(ending: RunEnding) -> None:
    """Whoever may only be asked for a better answer is asked nothing after a crash or a timeout."""
    assert retry_after(FailedRun(ending), Tried(), ONCE) is RetryKind.NOTHING


@pytest.mark.parametrize("ending", RunEnding)
def test_a_second_answer_is_the_last(ending: RunEnding) -> None:
    for second, unread in product((RetryKind.ANSWER_ONLY, RetryKind.WHOLE), (True, False)):
        tried = Tried(second=second, was_unread=unread, has_stand_in=True, kills=len(AFTER_A_KILL))

        assert retry_after(FailedRun(ending, unread, has_session=True), tried, LENIENT) is RetryKind.NOTHING


@pytest.mark.parametrize("ending", RunEnding)
def test_a_broken_session_is_left_and_the_answer_asked_for_without_it(ending: RunEnding) -> None:
    found = [
        retry_after(
            FailedRun(ending), Tried(second=RetryKind.IN_SESSION, was_unread=unread, kills=9), LENIENT
        )
        for unread in (True, False)
    ]

    expected = (
        [RetryKind.ANSWER_ONLY, RetryKind.WHOLE]
        if ending in BROKEN
        else [RetryKind.NOTHING, RetryKind.NOTHING]
    )
    assert found == expected


def test_every_way_comes_to_an_end() -> None:
    """Whatever runs come to, no more are started than the table can tell."""
    both = (True, False)
    runs = [FailedRun(*flags) for flags in product(RunEnding, both, both, both, both)]
    left = [Tried()]
    seen = set[Tried]()
    while left:
        tried = left.pop()
        if tried in seen:
            continue
        seen.add(tried)
        for run in runs:
            match retry_after(run, tried, LENIENT):
                case RetryKind.NOTHING:
                    continue
                case RetryKind.SAME:
                    after = tried._replace(kills=tried.kills + 1, has_stand_in=False)
                case RetryKind.ANEW:
                    after = tried._replace(is_anew=True)
                case RetryKind.STAND_IN:
                    after = tried._replace(has_stand_in=True)
                case second:
                    after = Tried(second=second, was_unread=run.is_unread)
            left.append(after)
    assert len(seen) < 100
    assert {one.second for one in seen} == {RetryKind.NOTHING, *SECONDS}
