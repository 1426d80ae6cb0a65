"""A moment as people write it: a revision, a time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from liza.errors import UsageError

_AGO: Final = re.compile(r"(\d+)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time(text: str, now: datetime) -> datetime:
    """Return the past time that *text* means, which is an age or a time."""
    found = parse_moment(text, now)
    if isinstance(found, int):
        raise UsageError(f"{text!r} is a revision; give an age (8h) or a time (2026-11-16T09:30:00Z)")
    if found.replace(microsecond=0) > now:
        raise UsageError(f"{text!r} is still to come; give an age (8h) or a time that is past")
    return found


def parse_moment(text: str, now: datetime) -> int | datetime:
    """Return the revision or time that *text* means; a time to the second means the whole of it."""
    if text.isdecimal():
        return int(text)
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # an age may be longer than there were years
        known = "a revision (12), a time (2026-11-16T09:30:00Z) or an age (10m, 2h)"
        raise UsageError(f"{text!r} is no moment: give {known}") from None
    # People copy times to the second from `liza log`; they mean what happened in that second too.
    return time if time.microsecond else time.replace(microsecond=999_999)
