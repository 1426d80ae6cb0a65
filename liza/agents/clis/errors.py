"""Classifies errors of providers: bad key, no quota, context full, rate limited.

One table of patterns, most specific first, each with known error texts. It is matched against error messages
only, never against an agent's answer: agents write about rate limits too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from liza.system.run_control import RunEnding


class ErrorPattern(NamedTuple):
    """A pattern, the ending of a run whose error matches it, and example texts."""

    ending: RunEnding
    pattern: str
    said: tuple[str, ...]


ERROR_PATTERNS: Final[tuple[ErrorPattern, ...]] = (
    ErrorPattern(
        RunEnding.CONTEXT_FULL,
        r"prompt is too long|context[ _-]?(?:window|length)(?!\.json)|maximum context|ran out of room"
        r"|too many tokens|input token count.{0,40}exceeds|reduce the length of (?:the messages|your prompt)",
        (
            "Prompt is too long",
            "prompt is too long: 209345 tokens > 200000 maximum",
            "Codex ran out of room in the model's context window. Start a new thread.",
            "This model's maximum context length is 128000 tokens, your messages resulted in 130001.",
            '{"error":{"code":"context_length_exceeded"}}',
            "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).",
        ),
    ),
    ErrorPattern(
        RunEnding.QUOTA,
        r"insufficient[ _](?:quota|funds|credits|balance)|credit balance is too low|billing|payment required"
        r"|exceeded your current quota|spend(?:ing)?[ _]limit|out of credits|add (?:more )?credits"
        r"|budget has been exceeded",
        (
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing",
            "You exceeded your current quota, please check your plan and billing details.",
            '{"error":{"code":"insufficient_quota"}}',
            "402 Payment Required",
            "This request requires more credits: insufficient credits",
        ),
    ),
    ErrorPattern(
        RunEnding.QUOTA,
        r"(?:usage|session|weekly|daily|monthly|\d+-hour|opus|sonnet) limit (?:reached|exceeded|hit)"
        r"|(?:hit|reached) your (?:usage |session |weekly |daily |monthly |\d+-hour |opus |sonnet )?limit"
        r"|limit (?:reached )?[·∙|]|out of (?:extra )?usage|usage_limit_reached|limit will reset at"
        r"|quota (?:exceeded|exhausted|limit reached)|exhausted your (?:daily |capacity|quota)"
        r"|(?:requests|tokens) per day|perday",
        (
            "Claude AI usage limit reached|1794820000",
            "You've hit your limit · resets 3pm (Europe/Berlin)",
            "5-hour limit reached ∙ resets 3pm",
            "Weekly limit reached ∙ resets Nov 20 at 9am",
            "You've hit your usage limit. Upgrade to Pro or try again in 3 days 4 hours 5 minutes.",
            "You've reached your weekly limit · resets Mon 12:00am",
            "Your limit will reset at 3pm",
            "Quota exceeded for quota metric 'Gemini 2.5 Pro Requests' and limit 'requests per day'",
            "You have exhausted your capacity on this model. Your quota will reset after 1h2m3s.",
            "Rate limit reached for gpt-5 on requests per day (RPD): Limit 200, Used 200.",
        ),
    ),
    ErrorPattern(
        RunEnding.AUTH,
        r"unauthori[sz]ed|authentication|failed to authenticate|invalid (?:x-)?api[ _-]?key|incorrect api key"
        r"|api key not valid|invalid_api_key|not logged in|please run /login|log ?in (?:again|first|required)"
        r"|token (?:has )?(?:expired|been revoked)|refresh token|permission[ _]denied|no auth(?:entication)? "
        r"|missing.{0,30}api.?key|api.?key.{0,20}(?:missing|not (?:set|found|provided)|is required)"
        r"|must (?:specify|set).{0,40}api_key",
        (
            "Failed to authenticate. API Error: 401 scripted 401",
            "unexpected status 401 Unauthorized: scripted 401",
            "Invalid API key · Please run /login",
            "Not logged in · Please run /login",
            "OAuth token has expired. Please obtain a new token or refresh your existing token.",
            "Incorrect API key provided: sk-…. You can find your API key at the dashboard.",
            "API key not valid. Please pass a valid API key.",
            "litellm.AuthenticationError: AuthenticationError: OpenAIException - scripted 401",
            "Please set an Auth method: when using Gemini API, you must specify the GEMINI_API_KEY",
        ),
    ),
    ErrorPattern(
        RunEnding.RATE_LIMITED,
        r"rate[ _-]?limit|ratelimit|too many requests|overloaded|resource_exhausted|high demand|slow ?down"
        r"|(?:requests|tokens) per min|throttl|retry-?after|temporarily limiting requests|at capacity",
        (
            "exceeded retry limit, last status: 429 Too Many Requests",
            "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000. Please try again in 20s.",
            '{"type":"error","error":{"type":"rate_limit_error","message":"This would exceed your limit"}}',
            "API Error: 529 Overloaded",
            "RESOURCE_EXHAUSTED: Please retry in 34.074824224s.",
            "litellm.RateLimitError: RateLimitError: OpenAIException - slow down",
            "We\u2019re currently experiencing high demand, which may cause temporary errors.",
        ),
    ),
)
# What an HTTP status means where the words say nothing better.
STATUSES: Final[dict[int, RunEnding]] = {
    401: RunEnding.AUTH,
    402: RunEnding.QUOTA,
    403: RunEnding.AUTH,
    413: RunEnding.CONTEXT_FULL,
    429: RunEnding.RATE_LIMITED,
    503: RunEnding.RATE_LIMITED,
    529: RunEnding.RATE_LIMITED,
}
# Statuses that outweigh words: a provider's 401 may talk about anything, and a 429 never means the key.
_DECISIVE_STATUSES: Final = {401, 402, 403}
# Patterns stay text until an error has to be read: to compile them is a fifth of the time to start a worker.
_STATUS: Final = (
    r"(?i:status(?:[ _]?code)?|error|code|http|rejected)\W{0,4}(4\d\d|5\d\d)\b"
    r"|\b(4\d\d|5\d\d) (?:[A-Z][a-z]+|\{)"
)


class ProviderLimit(NamedTuple):
    ending: RunEnding
    reset: datetime | None = None


def provider_limit(said: str, status: int | None, now: datetime) -> ProviderLimit | None:
    """Return the provider limit that the error *said* describes; None where it describes none."""
    status = status or _status_in(said)
    ending = STATUSES.get(status) if status in _DECISIVE_STATUSES and status else None
    if ending is None:
        signs = (sign.ending for sign in ERROR_PATTERNS if re.search(sign.pattern, said, re.IGNORECASE))
        ending = next(signs, None)
    if status == 429 and ending is RunEnding.AUTH:  # noqa: PLR2004 - as HTTP has it
        ending = RunEnding.RATE_LIMITED
    if ending is None and status is not None:
        ending = STATUSES.get(status)
    if ending is None:
        return None
    waits = ending in {RunEnding.RATE_LIMITED, RunEnding.QUOTA}
    return ProviderLimit(ending, reset_time(said, now) if waits else None)


def _status_in(said: str) -> int | None:
    found = re.search(_STATUS, said)
    return int(found.group(1) or found.group(2)) if found else None


def reset_time(said: str, now: datetime) -> datetime | None:
    """Return when the limit in the error *said* ends; a clock time is in the zone it names, or in that of
    *now*.
    """
    for pattern, read in _RESETS:
        found = re.search(pattern, said, re.IGNORECASE)
        if found and (moment := read(found, now)):
            return moment.astimezone(UTC)
    return None


_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN: Final = r"(?i)(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)[a-z]*"
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# A window is a month at most: what names a later moment is misread.
LONGEST_WINDOW: Final = timedelta(days=32)
NOON: Final = 12


def _epoch_time(found: re.Match[str], now: datetime) -> datetime | None:
    moment = datetime.fromtimestamp(int(found.group(1)[:10]), UTC)
    return moment if now - LONGEST_WINDOW < moment < now + LONGEST_WINDOW else None


def _relative_time(found: re.Match[str], now: datetime) -> datetime | None:
    text = found.group(1)
    if text.replace(".", "", 1).isdecimal():
        text += "s"
    seconds = sum(float(count) * _UNITS[unit.lower()] for count, unit in re.findall(_SPAN, text))
    return now + timedelta(seconds=seconds) if 0 < seconds < LONGEST_WINDOW.total_seconds() else None


def _iso_time(found: re.Match[str], _now: datetime) -> datetime | None:
    moment = datetime.fromisoformat(found.group(1))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _clock_time(found: re.Match[str], now: datetime) -> datetime | None:
    """Read `3pm`, `Mon 12:00am`, `Nov 20 at 9am (Europe/Berlin)`: the next such moment."""
    parts = found.groupdict()
    local = now.astimezone(_time_zone(parts["zone"])) if parts["zone"] else now
    hour = int(parts["hour"])
    if parts["half"] and hour <= NOON:
        hour = hour % NOON + (NOON if parts["half"].lower() == "pm" else 0)
    try:
        moment = local.replace(hour=hour, minute=int(parts["minute"] or 0), second=0, microsecond=0)
        if parts["month"]:
            month = _MONTHS.index(parts["month"][:3].lower()) + 1
            moment = moment.replace(month=month, day=int(parts["date"]))
            return moment if moment > local else moment.replace(year=moment.year + 1)
    except ValueError:
        return None
    if parts["day"]:
        ahead = (_DAYS.index(parts["day"][:3].lower()) - moment.weekday()) % 7
        moment += timedelta(days=ahead)
        return moment if moment > local else moment + timedelta(days=7)
    return moment if moment > local else moment + timedelta(days=1)


def _time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


_UNIT: Final = r"(?:ms|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"
_DURATION: Final = rf"((?:\d+(?:\.\d+)?\s*{_UNIT}[ ,]*(?:and )?)+|\d+(?:\.\d+)?\b)"
_CLOCK: Final = (
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (?P<date>\d{1,2})(?:st|nd|rd|th)?,?"
    r"(?: \d{4})?,?(?: at)? |(?P<day>mon|tue|wed|thu|fri|sat|sun)[a-z]*,?(?: at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>am|pm)?"
    r"(?:\s*\((?P<zone>[A-Za-z_]+(?:/[A-Za-z_+-]+)*)\))?"
)
_TimeReader = Callable[[re.Match[str], datetime], datetime | None]
_RESETS: Final[tuple[tuple[str, _TimeReader], ...]] = (
    (r"\|(\d{10})\b", _epoch_time),
    (r"resets?[_ ]?at\W{1,4}(\d{10,13})\b", _epoch_time),
    (r"reset\S*?\W{1,4}(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?)", _iso_time),
    (rf"(?:try again|retry|wait|resets?)[a-z ]{{0,20}} (?:in|after) (?:about )?{_DURATION}", _relative_time),
    (rf"retry-?(?:after|delay)(?:-ms)?\W{{1,5}}{_DURATION}", _relative_time),
    (rf"resets?_(?:in|after)_seconds\W{{1,4}}{_DURATION}", _relative_time),
    (rf"(?:resets?|try again|available)(?: again)?(?: at| on)?:? {_CLOCK}", _clock_time),
)
