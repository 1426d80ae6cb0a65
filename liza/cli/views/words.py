"""Amounts, lengths of time and names of events as views write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from liza.daemon.reports.words import duration_text

# The names of events as people read them, where another thing has the same name.
EVENT_WORDS: Final = {"pre_execution_checkpoint": "announced its work"}


def seconds_text(seconds: float) -> str:
    return duration_text(timedelta(seconds=seconds))


def sent_back_text(times: int) -> str:
    return "sent back once" if times == 1 else f"sent back {times} times"


def usd(amount: float) -> str:
    return f"${amount:.2f}"
