"""What a gate found, before it is a verdict with a name, a tree and a time.

A reason has the same words for the same defect, and no number that changes by itself: the rule about a
reason that comes twice compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from liza.record import printable
from liza.verdicts import LONGEST_TAIL, Evidence, Feedback, Outcome, Severity

MOST_FEEDBACK: Final = 20  # messages of one verdict: an agent mends these and then sees the rest
SHOWN: Final = 3  # names in a reason
TAIL_LINES: Final = 40  # of a command's output that whoever has to mend it is shown
GREEN_LINES: Final = 5  # of a command that passed


# What helps where only commits on the way are at fault; whoever hands work in looks for it.
ONE_COMMIT: Final = "make one commit of all of them: git reset --soft BASE && git commit"


class Finding(NamedTuple):
    """An outcome with its reason and what shows it."""

    outcome: Outcome
    reason: str
    feedback: tuple[Feedback, ...] = ()
    evidence: Evidence | None = None
    label: str | None = None


def passed(
    reason: str, feedback: Iterable[Feedback] = (), evidence: Evidence | None = None, label: str | None = None
) -> Finding:
    return Finding(Outcome.PASS, reason, tuple(feedback), evidence, label)


def revise(reason: str, feedback: Iterable[Feedback] = (), evidence: Evidence | None = None) -> Finding:
    return Finding(Outcome.REVISE, reason, tuple(feedback), evidence)


def unknown(reason: str, evidence: Evidence | None = None) -> Finding:
    """There is no verdict; what that means is for the workflow, and it is never a pass."""
    return Finding(Outcome.NONE, reason, (), evidence)


def blocker(message: str, file: str | None = None, line: int | None = None, *, mend: str = "") -> Feedback:
    return _feedback(message, file, line, mend, Severity.BLOCKER)


def concern(message: str, file: str | None = None, line: int | None = None, *, mend: str = "") -> Feedback:
    return _feedback(message, file, line, mend, Severity.CONCERN)


def _feedback(message: str, file: str | None, line: int | None, mend: str, severity: Severity) -> Feedback:
    return Feedback(
        message=clean(message),
        file=None if file is None else one_line(file),
        line=line if line and line > 0 else None,
        severity=severity,
        suggestion=clean(mend) if mend else None,
    )


def has_blocker(feedback: Iterable[Feedback]) -> bool:
    return any(one.severity is Severity.BLOCKER for one in feedback)


def blames_history(feedback: Iterable[Feedback]) -> bool:
    """Return whether commits on the way are wrong in what one commit of the same tree would not have."""
    return any(one.suggestion == ONE_COMMIT and one.severity is Severity.BLOCKER for one in feedback)


def judged(good: str, bad: str, feedback: Sequence[Feedback], evidence: Evidence | None = None) -> Finding:
    """Return what *feedback* comes to: one blocker is enough to send the work back."""
    made = revise if has_blocker(feedback) else passed
    return made(bad if has_blocker(feedback) else good, first(feedback), evidence)


def first(feedback: Sequence[Feedback]) -> tuple[Feedback, ...]:
    """Return the most important of *feedback*, and say how many more there are."""
    ordered = sorted(feedback, key=lambda one: one.severity is not Severity.BLOCKER)
    if len(ordered) <= MOST_FEEDBACK:
        return tuple(ordered)
    more = concern(f"and {len(ordered) - MOST_FEEDBACK} more of the same kind")
    return (*ordered[:MOST_FEEDBACK], more)


def clean(text: str) -> str:
    """Return *text* without what a terminal or YAML would choke on."""
    shown = printable(text)
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in shown)


def one_line(text: str) -> str:
    """Return *text* such that a reader sees every sign of it: the name of a file may have a newline."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last *lines* of an output."""
    return "\n".join(clean(text.strip()).splitlines()[-lines:])[-LONGEST_TAIL:]


def listed(names: Iterable[str]) -> str:
    """Return *names* for a sentence, sorted, and how many there are besides."""
    ordered = sorted(set(map(clean, names)))
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(ordered[:SHOWN]) + more
