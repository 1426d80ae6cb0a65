"""What the machine gates found, as text for whoever reviews: facts that no reviewer can raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from liza.domain.verdicts import Evidence, Feedback, Verdict

NOTHING = "No check was run."


def gate_report(verdicts: Iterable[Verdict]) -> str:
    """Return what was run, how it ended and what it printed."""
    return "\n\n".join("\n".join(_verdict_lines(verdict)) for verdict in verdicts) or NOTHING


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield f"{verdict.gate}: {verdict.outcome}" + (f" - {verdict.reason}" if verdict.reason else "")
    yield from (f"  {_feedback_line(one)}" for one in verdict.feedback)
    if verdict.evidence:
        yield from _evidence_lines(verdict.evidence)


def _feedback_line(feedback: Feedback) -> str:
    place = feedback.file or ""
    place += f":{feedback.line}" if feedback.file and feedback.line else ""
    return f"{feedback.severity}: {f'{place}: ' if place else ''}{feedback.message}"


def _evidence_lines(evidence: Evidence) -> Iterator[str]:
    if evidence.command is None:
        return
    ended = "did not end by itself" if evidence.code is None else f"exit code {evidence.code}"
    yield f"  ran: {evidence.command} ({ended}, {evidence.seconds:.1f} s)"
    if evidence.tail:
        yield "  its output ends with:"
        yield from (f"    {line}" for line in evidence.tail.splitlines())
