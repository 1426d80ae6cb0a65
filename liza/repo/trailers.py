"""What a merge commit says about itself, in lines that git and people both read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

LONGEST_VALUE: Final = 500  # characters; a trailer is a fact, not a report
LONGEST_SUBJECT: Final = 72  # characters; where git log and forges cut it

_LINE: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*): (?P<value>.*)")
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class Trailer(StrEnum):
    """The facts that `liza verify` rechecks, and those that people look for."""

    TASK = "Liza-Task"
    REVIEWED_COMMIT = "Liza-Reviewed-Commit"
    VERDICT = "Liza-Verdict"
    APPROVED_BY = "Liza-Approved-By"
    GATES = "Liza-Gates"
    AGENT = "Liza-Agent"
    COST = "Liza-Cost"
    TAINTS = "Liza-Taints"
    RESOLVED = "Liza-Resolved"
    SQUASHED = "Liza-Squashed"
    SIGNATURE = "Liza-Signature"


def single_line(text: str) -> str:
    """Return *text* as a single printable line, so that no value can pretend to be another trailer."""
    return _INVISIBLE.sub(" ", text).strip()


def message_with_trailers(subject: str, body: str, trailers: Mapping[Trailer, str]) -> str:
    """Return a commit message; *subject* and *body* cannot add a trailer, whatever they say."""
    lines = "\n".join(f"{key}: {_value(key, value)}" for key, value in trailers.items())
    paragraphs = [shorten_subject(single_line(subject)) or "-", body.strip(), lines]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _value(key: Trailer, value: str) -> str:
    limit = None if key is Trailer.RESOLVED else LONGEST_VALUE  # a list of paths is worth nothing in part
    return single_line(value)[:limit] or "-"


def shorten_subject(subject: str) -> str:
    return subject if len(subject) <= LONGEST_SUBJECT else f"{subject[: LONGEST_SUBJECT - 1].rstrip()}…"


def parse_trailers(message: str) -> dict[str, str]:
    """Return the trailers of *message*: its last paragraph, if all of it is trailers, and not its first."""
    paragraphs = re.split(r"\n\s*\n", message.strip())
    lines = [_LINE.fullmatch(line) for line in paragraphs[-1].splitlines()]
    if len(paragraphs) == 1 or not all(lines):
        return {}
    return {line["key"]: line["value"] for line in lines if line}
