"""What follows a run of an agent: one table, from how the run ended to what is tried next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from liza.system.run_control import RunEnding

AFTER_A_KILL: Final = (0.2, 0.5, 1.0)  # seconds until a killed agent is started again: memory may be short
# How a session ends that cannot be gone on with.
BROKEN: Final = frozenset({RunEnding.CRASHED, RunEnding.EMPTY, RunEnding.NOT_STARTED})
# After these a second try may give what the first did not; all others say when to come back.
RETRY_ENDINGS: Final = frozenset(
    {
        RunEnding.DONE,
        RunEnding.TIMEOUT,
        RunEnding.SILENT,
        RunEnding.SLOW_START,
        RunEnding.CRASHED,
        RunEnding.EMPTY,
    }
)
RELEASE_ENDINGS: Final = frozenset(
    {
        *(RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH),
        *(RunEnding.CONTEXT_FULL, RunEnding.STOPPED, RunEnding.CAPPED, RunEnding.KILLED),
    }
)


class RetryKind(Enum):
    """What is tried after a run that gave no answer."""

    NOTHING = auto()  # there is no answer to be had, or there is one
    SAME = auto()  # the same once more: somebody killed the agent, which says nothing about it or its task
    ANEW = auto()  # the same in a session of its own: the one that was to go on is broken
    STAND_IN = auto()  # the same by another agent
    IN_SESSION = auto()  # a better answer, in the session of the run
    ANSWER_ONLY = auto()  # the answer alone: what was done is not done again for want of a block
    WHOLE = auto()  # all of it once more, with the reason


class Tried(NamedTuple):
    """What was asked so far for one answer."""

    kills: int = 0  # of the agent, in a row
    is_anew: bool = False  # the session that was to go on was given up
    has_stand_in: bool = False  # another agent was asked since the last start
    second: RetryKind = RetryKind.NOTHING  # how a second answer is asked for, once it is
    was_unread: bool = False  # whether the first answer could not be read at all


class FailedRun(NamedTuple):
    """How a run ended that gave no answer to be used."""

    ending: RunEnding
    is_unread: bool = False  # it ended by itself, and no answer can be read from what it said
    has_session: bool = False
    is_session_broken: bool = False  # it went on in a session, and said nothing in it
    may_stand_in: bool = False  # the agent could not work at all, and there is another one


def retry_after(run: FailedRun, tried: Tried, again: frozenset[RunEnding]) -> RetryKind:
    """Return what to try after *run*; after the endings in *again* a second answer may be asked for."""
    return next((one for one in RETRIES[run.ending] if _MAY[one](run, tried, again)), RetryKind.NOTHING)


_SECOND: Final = (RetryKind.IN_SESSION, RetryKind.ANSWER_ONLY, RetryKind.WHOLE)
RETRIES: Final[Mapping[RunEnding, tuple[RetryKind, ...]]] = {
    RunEnding.DONE: _SECOND,
    RunEnding.KILLED: (RetryKind.SAME,),
    RunEnding.CRASHED: (RetryKind.ANEW, RetryKind.STAND_IN, *_SECOND),
    RunEnding.EMPTY: (RetryKind.ANEW, *_SECOND),
    RunEnding.NOT_STARTED: (RetryKind.STAND_IN, *_SECOND),
    RunEnding.AUTH: (RetryKind.STAND_IN,),
    RunEnding.QUOTA: (RetryKind.STAND_IN,),
    RunEnding.TIMEOUT: _SECOND,
    RunEnding.SILENT: _SECOND,
    RunEnding.SLOW_START: _SECOND,
    # These say when to come back, or that somebody else decides.
    RunEnding.RATE_LIMITED: (),
    RunEnding.CONTEXT_FULL: (),
    RunEnding.STOPPED: (),
    RunEnding.CAPPED: (),
}


def _is_second_due(run: FailedRun, tried: Tried, again: frozenset[RunEnding]) -> bool:
    """Return whether a second answer may be asked for, or one whose session broke be asked for otherwise."""
    if tried.second is RetryKind.NOTHING:
        return run.ending in again
    return tried.second is RetryKind.IN_SESSION and run.ending in BROKEN


def _may_begin_anew(run: FailedRun, tried: Tried, _again: frozenset[RunEnding]) -> bool:
    return run.is_session_broken and not tried.is_anew and tried.second is RetryKind.NOTHING


def _may_go_on(run: FailedRun, tried: Tried, again: frozenset[RunEnding]) -> bool:
    is_first = tried.second is RetryKind.NOTHING
    return is_first and run.ending is RunEnding.DONE and run.has_session and run.ending in again


def _may_ask_answer(run: FailedRun, tried: Tried, again: frozenset[RunEnding]) -> bool:
    first = run.ending is RunEnding.DONE and run.is_unread
    is_unread = first if tried.second is RetryKind.NOTHING else tried.was_unread
    return _is_second_due(run, tried, again) and is_unread


_MAY: Final[Mapping[RetryKind, Callable[[FailedRun, Tried, frozenset[RunEnding]], bool]]] = {
    RetryKind.SAME: lambda _run, tried, _again: tried.kills < len(AFTER_A_KILL),
    RetryKind.ANEW: _may_begin_anew,
    RetryKind.STAND_IN: lambda run, tried, _again: run.may_stand_in and not tried.has_stand_in,
    RetryKind.IN_SESSION: _may_go_on,
    RetryKind.ANSWER_ONLY: _may_ask_answer,
    RetryKind.WHOLE: _is_second_due,
}
