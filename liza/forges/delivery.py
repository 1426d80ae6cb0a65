"""What a run tells a forge about an issue, in the steps of its phases; each may be repeated after a death."""

from __future__ import annotations

from typing import Final, NamedTuple

from liza.domain.issues import Issue, branch_for, existing_branch
from liza.forges.comments import phase_comment, phase_key, pull_request_body, pull_request_title
from liza.forges.protocol import Forge, PullRequest, PullRequestDraft, PullRequestState, Thread, ThreadKind

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
        reasons = "\n".join(f"- {taint}" for taint in taints)
        forge.mark_nomerge(pull_request.number, f"This work was not let pass by everybody:\n\n{reasons}")
    else:
        forge.mark_ready(pull_request.number)
