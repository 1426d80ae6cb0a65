"""The convergence rule: a review after the first may insist on what the first said, and add nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from liza.domain.model import Artifact, Outcome, Verdict
from liza.domain.similarity import normalize

FIRST_REVIEW: Final = "first_review"  # the artifact with the points that every later review is held to
DROPPED: Final = "dropped_new_issues_round_"  # and those with what came too late, by round
SETTLED: Final = "what the first review asked for is settled; new points came too late: {}"
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


class HeldVerdict(NamedTuple):
    """A verdict as it counts, what the task keeps of the review, and what people have to look at."""

    verdict: Verdict
    artifacts: Mapping[str, str] = {}
    critical: tuple[str, ...] = ()


def hold_to_first(verdict: Verdict, kept: Mapping[str, Artifact], number: int) -> HeldVerdict:
    """Hold the *verdict* of round *number* to the review that rejected first, whose points were *kept*."""
    if verdict.outcome is not Outcome.REVISE:
        return HeldVerdict(verdict)
    points = tuple(one.message for one in verdict.feedback)
    if FIRST_REVIEW not in kept:
        return HeldVerdict(verdict, {FIRST_REVIEW: json.dumps(points)})
    found = converge(tuple(json.loads(kept[FIRST_REVIEW].text)), points, verdict.reason or "")
    late = {f"{DROPPED}{number}": "\n".join(found.dropped)} if found.dropped else {}
    if found.is_settled:
        reason = SETTLED.format("; ".join(found.dropped))
        verdict = verdict.replace(outcome=Outcome.PASS, reason=reason, feedback=())
    else:
        left = tuple(one for one in verdict.feedback if one.message in found.kept)
        verdict = verdict.replace(feedback=left)
    return HeldVerdict(verdict, late, found.critical)
