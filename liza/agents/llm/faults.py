"""What goes wrong between us and a model: which of it is worth another try, and what the rest means.

The names are those of litellm's exceptions; nothing of it is imported here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class FaultHandling(NamedTuple):
    """How a run ends by a fault, and whether the call is retried first."""

    ending: RunEnding
    is_transient: bool = False


HANDLING_BY_NAME: Final[dict[str, FaultHandling]] = {
    "AuthenticationError": FaultHandling(RunEnding.AUTH),
    "PermissionDeniedError": FaultHandling(RunEnding.AUTH),
    "PaymentRequiredError": FaultHandling(RunEnding.AUTH),
    "RateLimitError": FaultHandling(RunEnding.RATE_LIMITED),
    "BudgetExceededError": FaultHandling(RunEnding.QUOTA),
    "ContextWindowExceededError": FaultHandling(RunEnding.CONTEXT_FULL),
    "NotFoundError": FaultHandling(RunEnding.NOT_STARTED),  # there is no such model: the settings are wrong
    "LiteLLMUnknownProvider": FaultHandling(RunEnding.NOT_STARTED),
    "UnsupportedParamsError": FaultHandling(RunEnding.CRASHED),
    "ContentPolicyViolationError": FaultHandling(RunEnding.CRASHED),
    "BadRequestError": FaultHandling(RunEnding.CRASHED),
    "UnprocessableEntityError": FaultHandling(RunEnding.CRASHED),
    # An overloaded provider is no fault of the task: after the tries everybody leaves it alone for a while.
    "ServiceUnavailableError": FaultHandling(RunEnding.RATE_LIMITED, is_transient=True),
    "Timeout": FaultHandling(RunEnding.CRASHED, is_transient=True),
    "APIConnectionError": FaultHandling(RunEnding.CRASHED, is_transient=True),
    "BadGatewayError": FaultHandling(RunEnding.CRASHED, is_transient=True),
    "InternalServerError": FaultHandling(RunEnding.CRASHED, is_transient=True),
    "APIResponseValidationError": FaultHandling(RunEnding.CRASHED, is_transient=True),
    "APIError": FaultHandling(RunEnding.CRASHED, is_transient=True),
}
UNKNOWN_FAULT: Final = FaultHandling(RunEnding.CRASHED)

# One exception has several meanings, and only its words tell them apart; the first that is found counts.
ENDING_BY_MESSAGE: Final[dict[str, tuple[tuple[re.Pattern[str], RunEnding], ...]]] = {
    name: tuple((re.compile(pattern, re.IGNORECASE), ending) for pattern, ending in rows)
    for name, rows in {
        "RateLimitError": (
            (r"insufficient.quota|billing|credit balance|payment", RunEnding.AUTH),
            (r"quota|usage limit|per (?:day|week|month)|daily|weekly|monthly", RunEnding.QUOTA),
        ),
        "BadRequestError": (
            (r"context.?(?:length|window|size)|maximum context|too many tokens", RunEnding.CONTEXT_FULL),
            (r"prompt is too long|input is too long", RunEnding.CONTEXT_FULL),
            (r"credit balance|billing", RunEnding.AUTH),
            (r"api.?key (?:not valid|is invalid)|invalid api.?key", RunEnding.AUTH),
        ),
    }.items()
}  # fmt: skip

_SPAN: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_SOONEST: Final = ("retry-after-ms", "retry-after")
_RESETS: Final = re.compile(r"ratelimit.*-reset", re.IGNORECASE)


class Fault(Exception):
    """A model could not be asked; *cure* says what follows."""

    def __init__(self, cure: FaultHandling, why: str, reset: datetime | None = None) -> None:
        super().__init__(why)
        self.handling = cure
        self.reset = reset


def handling_of(names: Sequence[str], message: str) -> FaultHandling:
    """Return how to handle an exception whose class and bases have these *names*, nearest first."""
    for name in names:
        for pattern, ending in ENDING_BY_MESSAGE.get(name, ()):
            if pattern.search(message):
                return FaultHandling(ending)
        if name in HANDLING_BY_NAME:
            return HANDLING_BY_NAME[name]
    return UNKNOWN_FAULT


def reset_in_headers(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when a limit ends as the provider announced it, the latest where it named several."""
    told = {name.casefold(): value.strip() for name, value in headers.items()}
    for name in _SOONEST:
        if name in told and (found := _parse_time(told[name], now, millis=name.endswith("-ms"))):
            return found
    resets = [_parse_time(value, now) for name, value in told.items() if _RESETS.search(name)]
    return max(filter(None, resets), default=None)


def _parse_time(text: str, now: datetime, *, millis: bool = False) -> datetime | None:
    try:
        return now + timedelta(seconds=float(text) / (1000 if millis else 1))
    except (ValueError, OverflowError):
        pass
    span = _SPAN.fullmatch(text)
    if span and any(span.groups()):
        hours, minutes, seconds, thousandths = (float(part or 0) for part in span.groups())
        return now + timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=thousandths)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
