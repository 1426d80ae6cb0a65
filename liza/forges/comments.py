"""What Liza writes into a forge, and the marker by which it finds its own comments again.

Agents choose most of the text. None of it can forge a marker, and known secrets are masked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.system.masking import environment_mask

if TYPE_CHECKING:
    from liza.domain.issues import Issue

MOST_LINES: Final = 250  # of a comment; the middle is left out
MOST_CHARACTERS: Final = 60_000  # GitHub takes 65,536
NOMERGE_KEY: Final = "nomerge"
NOMERGE_HEADING: Final = "## NOMERGE \N{EN DASH} Human Review Required"
_MARKER: Final = re.compile(r"<!-- liza:[^\n]* -->\s*\Z")


def marker_of(key: str) -> str:
    return f"<!-- liza:{re.sub(r'[^A-Za-z0-9._/:-]', '-', key)} -->"


def with_marker(text: str, key: str) -> str:
    """Return *text* as a comment that is found again by *key*."""
    # A marker that an agent writes into its text would keep a later comment from being made.
    plain = environment_mask().text(text).replace("<!--", "&lt;!--")
    return f"{_shorten(plain)}\n\n{marker_of(key)}"


def has_marker(body: str, key: str) -> bool:
    return body.rstrip().endswith(marker_of(key))


def is_marked(body: str) -> bool:
    """Return whether *body* ends with any marker."""
    return _MARKER.search(body) is not None


def _shorten(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        left_out = f"… {len(lines) - 2 * half} lines are left out …"
        lines = [*lines[:half], "", left_out, "", *lines[-half:]]
    short = "\n".join(lines)
    if len(short) <= MOST_CHARACTERS:
        return short
    half = MOST_CHARACTERS // 2
    return f"{short[:half]}\n\n… {len(short) - 2 * half} characters are left out …\n\n{short[-half:]}"


def phase_comment(phase: str, role: str, iteration: int, text: str) -> str:
    return f"### Phase: {phase} — {role} (iteration {iteration})\n\n{text.strip()}"


def phase_key(task: str, phase: str, role: str, iteration: int) -> str:
    return f"{task}/{phase}/{role}/{iteration}"


def nomerge_comment(reason: str) -> str:
    return (
        f"{NOMERGE_HEADING}\n\n{reason.strip()}\n\n"
        "Liza leaves this pull request a draft. Look at it, and mark it as ready yourself if it is good."
    )


def pull_request_title(issue: Issue) -> str:
    return f"Issue #{issue.number}: {issue.title}"


def pull_request_body(issue: Issue) -> str:
    return (
        f"Closes #{issue.number}\n\n"
        "- [x] planned\n- [ ] implemented and reviewed\n- [ ] documented\n\n"
        f"{marker_of(f'pull-request/{issue.number}')}"
    )
