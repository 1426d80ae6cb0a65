"""The convergence rule: a review after the first may insist on what the first said, and add nothing."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from liza.domain.similarity import normalize

_CRITICAL: Final = re.compile(r"^[ \t]*(?:[-*][ \t]+)?CRITICAL_NEW:[ \t]*(\S.*)$", re.MULTILINE)


class ConvergedReview(NamedTuple):
    kept: tuple[str, ...]
    dropped: tuple[str, ...]  # issues that the first review did not have
    critical: tuple[str, ...] = ()  # flagged in the notes, for people; they decide nothing

    @property
    def is_settled(self) -> bool:
        """Return whether nothing of the first review is open any more."""
        return not self.kept


def converge(first: tuple[str, ...], later: tuple[str, ...], notes: str = "") -> ConvergedReview:
    """Hold a *later* review against the *first*; the words of an issue count, numbers and places do not."""
    known = {normalize(issue) for issue in first}
    kept = tuple(issue for issue in later if normalize(issue) in known)
    dropped = tuple(issue for issue in later if normalize(issue) not in known)
    return ConvergedReview(kept, dropped, tuple(_CRITICAL.findall(notes)))
