"""What follows a run of an agent: one table, from how the run ended to what is tried next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from liza.system.run_control import Ending

AFTER_A_KILL: Final = (0.2, 0.5, 1.0)  # seconds until a killed agent is started again: memory may be short
# How a session ends that cannot be gone on with.
BROKEN: Final = frozenset({Ending.CRASHED, Ending.EMPTY, Ending.NOT_STARTED})


class Retry(Enum):
    """What is tried after a run that gave no answer."""

    NOTHING = auto()  # there is no answer to be had, or there is one
    SAME = auto()  # the same once more: somebody killed the agent, which says nothing about it or its task
    STAND_IN = auto()  # the same by another agent
    IN_SESSION = auto()  # a better answer, in the session of the run
    ANSWER_ONLY = auto()  # the answer alone: what was done is not done again for want of a block
    WHOLE = auto()  # all of it once more, with the reason


class Tried(NamedTuple):
    """What was asked so far for one answer."""

    kills: int = 0  # of the agent, in a row
    has_stand_in: bool = False  # another agent was asked since the last start
    second: Retry = Retry.NOTHING  # how a second answer is asked for, once it is
    was_unread: bool = False  # whether the first answer could not be read at all


class RunEnd(NamedTuple):
    """How a run ended that gave no answer to be used."""

    ending: Ending
    is_unread: bool = False  # it ended by itself, and no answer can be read from what it said
    has_session: bool = False
    may_stand_in: bool = False  # the agent could not work at all, and there is another one


def retry_after(run: RunEnd, tried: Tried, again: frozenset[Ending]) -> Retry:
    """Return what to try after *run*; after the endings in *again* a second answer may be asked for."""
    return next((one for one in RETRIES[run.ending] if _MAY[one](run, tried, again)), Retry.NOTHING)


_SECOND: Final = (Retry.IN_SESSION, Retry.ANSWER_ONLY, Retry.WHOLE)
RETRIES: Final[Mapping[Ending, tuple[Retry, ...]]] = {
    Ending.DONE: _SECOND,
    Ending.KILLED: (Retry.SAME,),
    Ending.CRASHED: (Retry.STAND_IN, *_SECOND),
    Ending.EMPTY: _SECOND,
    Ending.NOT_STARTED: (Retry.STAND_IN, *_SECOND),
    Ending.AUTH: (Retry.STAND_IN,),
    Ending.QUOTA: (Retry.STAND_IN,),
    Ending.TIMEOUT: _SECOND,
    Ending.SILENT: _SECOND,
    Ending.SLOW_START: _SECOND,
    # These say when to come back, or that somebody else decides.
    Ending.RATE_LIMITED: (),
    Ending.CONTEXT_FULL: (),
    Ending.STOPPED: (),
    Ending.CAPPED: (),
}


def _is_second_due(run: RunEnd, tried: Tried, again: frozenset[Ending]) -> bool:
    """Return whether a second answer may be asked for, or one whose session broke be asked for otherwise."""
    if tried.second is Retry.NOTHING:
        return run.ending in again
    return tried.second is Retry.IN_SESSION and run.ending in BROKEN


def _may_go_on(run: RunEnd, tried: Tried, again: frozenset[Ending]) -> bool:
    is_first = tried.second is Retry.NOTHING
    return is_first and run.ending is Ending.DONE and run.has_session and run.ending in again


def _may_ask_answer(run: RunEnd, tried: Tried, again: frozenset[Ending]) -> bool:
    first = run.ending is Ending.DONE and run.is_unread
    is_unread = first if tried.second is Retry.NOTHING else tried.was_unread
    return _is_second_due(run, tried, again) and is_unread


_MAY: Final[Mapping[Retry, Callable[[RunEnd, Tried, frozenset[Ending]], bool]]] = {
    Retry.SAME: lambda _run, tried, _again: tried.kills < len(AFTER_A_KILL),
    Retry.STAND_IN: lambda run, tried, _again: run.may_stand_in and not tried.has_stand_in,
    Retry.IN_SESSION: _may_go_on,
    Retry.ANSWER_ONLY: _may_ask_answer,
    Retry.WHOLE: _is_second_due,
}
