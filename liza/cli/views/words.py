"""Amounts and lengths of time as views write them."""

from __future__ import annotations

from datetime import timedelta

from liza.daemon.reports.words import duration_text


def seconds_text(seconds: float) -> str:
    return duration_text(timedelta(seconds=seconds))


def sent_back_text(times: int) -> str:
    return "sent back once" if times == 1 else f"sent back {times} times"


def usd(amount: float) -> str:
    return f"${amount:.2f}"
