"""What goes wrong with a model, and what follows from it; the names are litellm's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from liza.agents.llm.faults import (
    HANDLING_BY_NAME,
    UNKNOWN_FAULT,
    FaultHandling,
    handling_of,
    reset_in_headers,
)
from liza.system.run_control import RunEnding

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("names", "message", "ending"),
    [
        (["AuthenticationError"], "invalid api key", RunEnding.AUTH),
        (["RateLimitError"], "Rate limit reached for requests per min", RunEnding.RATE_LIMITED),
        (["RateLimitError"], "You exceeded your current quota: insufficient_quota", RunEnding.AUTH),
        (["RateLimitError"], "Quota exceeded for requests per day", RunEnding.QUOTA),
        (["ContextWindowExceededError", "BadRequestError"], "anything", RunEnding.CONTEXT_FULL),
        (["BadRequestError"], "This model's maximum context length is 8192", RunEnding.CONTEXT_FULL),
        (["BadRequestError"], "Your credit balance is too low", RunEnding.AUTH),
        (["BadRequestError"], "unknown parameter", RunEnding.CRASHED),
        (["NotFoundError"], "no such model", RunEnding.NOT_STARTED),
        (["NeverSeen", "InternalServerError"], "oops", RunEnding.CRASHED),
        (["NeverSeen"], "oops", RunEnding.CRASHED),
    ],
)
def test_a_fault_means_one_ending(names: list[str], message: str, ending: RunEnding) -> None:
    """The nearest name counts, and where it has several meanings, its words."""
    assert handling_of(names, message).ending is ending


def test_only_what_may_pass_is_tried_again() -> None:
    """A bad key, a full context or a wrong request is the same the next time."""
    passing = {name for name, cure in HANDLING_BY_NAME.items() if cure.is_transient}

    assert passing == {
        *("APIConnectionError", "APIError", "APIResponseValidationError", "BadGatewayError"),
        *("InternalServerError", "ServiceUnavailableError", "Timeout"),
    }
    assert FaultHandling(RunEnding.CRASHED) == UNKNOWN_FAULT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "5"}, 5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:09 GMT"}, 9),
        ({"x-ratelimit-reset-requests": "1m30s", "x-ratelimit-reset-tokens": "6ms"}, 90),
        ({"anthropic-ratelimit-tokens-reset": "2026-01-01T13:00:00Z"}, 3600),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_a_reset_is_read_in_every_spelling(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, spans, dates of two kinds; nonsense is none."""
    assert reset_in_headers(headers, NOW) == (None if seconds is None else NOW + timedelta(seconds=seconds))
