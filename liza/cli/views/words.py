"""Amounts, lengths of time and names of events as views write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from liza.domain.report_words import duration_text

# The events of a task's history, as people read them behind the name of who did it.
EVENT_WORDS: Final = {
    "added": "added",
    "ready": "made ready",
    "claim": "claimed",
    "pre_execution_checkpoint": "announced its work",
    "submit": "handed in",
    "find_nothing": "found nothing to do",
    "revise": "sent back by the checks",
    "take_review": "began the review",
    "approve": "approved",
    "pass": "passed a check",
    "reject": "rejected",
    "confirm": "confirmed that there is nothing to do",
    "ask_human": "left to a person",
    "force_pass": "forced through by a rule",
    "accept_taint": "accepted although it was forced through",
    "proceed": "moved on to the next phase",
    "complete": "completed",
    "start_merge": "began the merge",
    "merge": "merged",
    "fail_integration": "could not be merged",
    "retry_merge": "sent to the merge again",
    "renew": "renewed the lease",
    "release": "given back",
    "fail": "given up by this worker",
    "reclaim": "taken back from a worker that is gone",
    "lose": "to be done again, since the disk lost it",
    "block": "blocked",
    "defer": "left the question to people",
    "unblock": "answered by the planner",
    "retry": "let go on",
    "supersede": "replaced by other tasks",
    "abandon": "abandoned",
    "amend": "changed",
    "waive": "freed from the limits",
}


def seconds_text(seconds: float) -> str:
    return duration_text(timedelta(seconds=seconds))


def sent_back_text(times: int) -> str:
    return "sent back once" if times == 1 else f"sent back {times} times"


def rounds_text(used: int, most: int | None, of: str = " of ") -> str:
    """Return how many rounds were begun, and of how many where something limits them."""
    return f"{used}{of}{most}" if most else str(used)


def usd(amount: float) -> str:
    return f"${amount:.2f}"
