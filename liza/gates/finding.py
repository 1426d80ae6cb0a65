"""What a gate found, before it becomes a verdict with a gate, a tree and a time.

Equal defects get equal reasons, without numbers that vary: the rule about repeated reasons compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from liza.domain.record import printable
from liza.domain.verdicts import LONGEST_TAIL, Evidence, Feedback, Outcome, Severity

MOST_FEEDBACK: Final = 20  # messages of one verdict: an agent mends these and then sees the rest
NAMES_SHOWN: Final = 3  # names in a reason
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
        message=escape_unprintable(message),
        file=None if file is None else escape_to_line(file),
        line=line if line and line > 0 else None,
        severity=severity,
        suggestion=escape_unprintable(mend) if mend else None,
    )


def has_blocker(feedback: Iterable[Feedback]) -> bool:
    return any(one.severity is Severity.BLOCKER for one in feedback)


def blames_history(feedback: Iterable[Feedback]) -> bool:
    """Return whether commits on the way are wrong in what one commit of the same tree would not have."""
    return any(one.suggestion == ONE_COMMIT and one.severity is Severity.BLOCKER for one in feedback)


def finding_from(
    good: str, bad: str, feedback: Sequence[Feedback], evidence: Evidence | None = None
) -> Finding:
    """Return the finding that *feedback* amounts to: REVISE if it has a blocker, else PASS."""
    made = revise if has_blocker(feedback) else passed
    return made(bad if has_blocker(feedback) else good, most_important(feedback), evidence)


def most_important(feedback: Sequence[Feedback]) -> tuple[Feedback, ...]:
    """Return the most important of *feedback*, and say how many more there are."""
    ordered = sorted(feedback, key=lambda one: one.severity is not Severity.BLOCKER)
    if len(ordered) <= MOST_FEEDBACK:
        return tuple(ordered)
    more = concern(f"and {len(ordered) - MOST_FEEDBACK} more of the same kind")
    return (*ordered[:MOST_FEEDBACK], more)


def escape_unprintable(text: str) -> str:
    """Return *text* without what a terminal or YAML would choke on."""
    shown = printable(text)
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in shown)


def escape_to_line(text: str) -> str:
    """Return *text* such that a reader sees every sign of it: the name of a file may have a newline."""
    return escape_unprintable(text).replace("\n", "\\n").replace("\t", "\\t")


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last *lines* of an output."""
    return "\n".join(escape_unprintable(text.strip()).splitlines()[-lines:])[-LONGEST_TAIL:]


def summarize_names(names: Iterable[str]) -> str:
    """Return *names* for a sentence, sorted, and how many there are besides."""
    ordered = sorted(set(map(escape_unprintable, names)))
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return ", ".join(ordered[:NAMES_SHOWN]) + more
