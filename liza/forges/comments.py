"""What Liza tells a forge about an issue, and the marker by which it finds its own comments again.

Agents choose most of the text. None of it can forge a marker, and known secrets are masked.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from liza.domain.issues import Issue, branch_for, existing_branch
from liza.domain.model import taint_meaning
from liza.forges.protocol import Forge, PullRequest, PullRequestDraft, PullRequestState, Thread, ThreadKind
from liza.system.files import environment_mask

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


# What a run tells a forge about an issue, in the steps of its phases; each may be repeated after a death.

PHASES_ON_ISSUE: Final = frozenset(
    {"PLAN"}
)  # what is said in them goes to the issue even where there is more


class PhaseReport(NamedTuple):
    """What one role said in one round of a phase."""

    task: str
    phase: str
    role: str
    iteration: int
    text: str


def choose_branch(forge: Forge, issue: Issue, remote_branches: tuple[str, ...] = ()) -> str:
    """Return the branch for *issue*: that of its open pull request, else one that is there, else new."""
    heads = (one.branch for one in forge.open_pull_requests())
    found = existing_branch(issue.number, heads) or existing_branch(issue.number, remote_branches)
    return found or branch_for(issue)


def report_phase(forge: Forge, report: PhaseReport, issue: int, pull_request: int | None) -> Thread:
    """Comment what was said, once: a plan on the issue, all else on the pull request where there is one."""
    on_issue = pull_request is None or report.phase in PHASES_ON_ISSUE
    thread = (
        Thread(ThreadKind.ISSUE, issue) if on_issue else Thread(ThreadKind.PULL_REQUEST, pull_request or 0)
    )
    key = phase_key(report.task, report.phase, report.role, report.iteration)
    forge.comment(thread, key, phase_comment(report.phase, report.role, report.iteration, report.text))
    return thread


def ensure_pull_request(forge: Forge, issue: Issue, *, branch: str, commit: str, base: str) -> PullRequest:
    """Publish *commit* as *branch*, and return its one pull request, a draft if it is new."""
    return forge.ensure_draft(
        PullRequestDraft(
            branch=branch,
            commit=commit,
            base=base,
            title=pull_request_title(issue),
            body=pull_request_body(issue),
        )
    )


def finalize_pull_request(forge: Forge, pull_request: PullRequest, taints: tuple[str, ...]) -> None:
    """Mark a pull request as ready; where the work is tainted, say in it why a person has to look instead."""
    if pull_request.state is not PullRequestState.OPEN:
        return
    if taints:
        reasons = "\n".join(f"- {taint}: {taint_meaning(taint)}" for taint in taints)
        forge.mark_nomerge(pull_request.number, f"This work was not let pass by everybody:\n\n{reasons}")
    else:
        forge.mark_ready(pull_request.number)
