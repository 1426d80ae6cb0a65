"""What goes wrong between us and a model: which of it is worth another try, and what the rest means.

The names are those of litellm's exceptions; nothing of it is imported here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.system.run_control import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cure(NamedTuple):
    """What to do about a fault: how the run ends by it, and whether it is tried again before."""

    ending: Ending
    is_passing: bool = False


FAULTS: Final[dict[str, Cure]] = {
    "AuthenticationError": Cure(Ending.AUTH),
    "PermissionDeniedError": Cure(Ending.AUTH),
    "PaymentRequiredError": Cure(Ending.AUTH),
    "RateLimitError": Cure(Ending.RATE_LIMITED),
    "BudgetExceededError": Cure(Ending.QUOTA),
    "ContextWindowExceededError": Cure(Ending.CONTEXT_FULL),
    "NotFoundError": Cure(Ending.NOT_STARTED),  # there is no such model: the settings are wrong
    "LiteLLMUnknownProvider": Cure(Ending.NOT_STARTED),
    "UnsupportedParamsError": Cure(Ending.CRASHED),
    "ContentPolicyViolationError": Cure(Ending.CRASHED),
    "BadRequestError": Cure(Ending.CRASHED),
    "UnprocessableEntityError": Cure(Ending.CRASHED),
    # An overloaded provider is no fault of the task: after the tries everybody leaves it alone for a while.
    "ServiceUnavailableError": Cure(Ending.RATE_LIMITED, is_passing=True),
    "Timeout": Cure(Ending.CRASHED, is_passing=True),
    "APIConnectionError": Cure(Ending.CRASHED, is_passing=True),
    "BadGatewayError": Cure(Ending.CRASHED, is_passing=True),
    "InternalServerError": Cure(Ending.CRASHED, is_passing=True),
    "APIResponseValidationError": Cure(Ending.CRASHED, is_passing=True),
    "APIError": Cure(Ending.CRASHED, is_passing=True),
}
UNKNOWN: Final = Cure(Ending.CRASHED)

# One exception has several meanings, and only its words tell them apart; the first that is found counts.
WORDS: Final[dict[str, tuple[tuple[re.Pattern[str], Ending], ...]]] = {
    name: tuple((re.compile(pattern, re.IGNORECASE), ending) for pattern, ending in rows)
    for name, rows in {
        "RateLimitError": (
            (r"insufficient.quota|billing|credit balance|payment", Ending.AUTH),
            (r"quota|usage limit|per (?:day|week|month)|daily|weekly|monthly", Ending.QUOTA),
        ),
        "BadRequestError": (
            (r"context.?(?:length|window|size)|maximum context|too many tokens", Ending.CONTEXT_FULL),
            (r"prompt is too long|input is too long", Ending.CONTEXT_FULL),
            (r"credit balance|billing", Ending.AUTH),
            (r"api.?key (?:not valid|is invalid)|invalid api.?key", Ending.AUTH),
        ),
    }.items()
}  # fmt: skip

_SPAN: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_SOONEST: Final = ("retry-after-ms", "retry-after")
_RESETS: Final = re.compile(r"ratelimit.*-reset", re.IGNORECASE)


class Fault(Exception):
    """A model could not be asked; *cure* says what follows."""

    def __init__(self, cure: Cure, why: str, reset: datetime | None = None) -> None:
        super().__init__(why)
        self.cure = cure
        self.reset = reset


def judged(names: Sequence[str], message: str) -> Cure:
    """Return what to do about an exception whose class and bases have these *names*, nearest first."""
    for name in names:
        for pattern, ending in WORDS.get(name, ()):
            if pattern.search(message):
                return Cure(ending)
        if name in FAULTS:
            return FAULTS[name]
    return UNKNOWN


def reset_of(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when a limit ends as the provider announced it, the latest where it named several."""
    told = {name.casefold(): value.strip() for name, value in headers.items()}
    for name in _SOONEST:
        if name in told and (found := _moment(told[name], now, millis=name.endswith("-ms"))):
            return found
    resets = [_moment(value, now) for name, value in told.items() if _RESETS.search(name)]
    return max(filter(None, resets), default=None)


def _moment(text: str, now: datetime, *, millis: bool = False) -> datetime | None:
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
