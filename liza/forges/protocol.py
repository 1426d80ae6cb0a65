"""What Liza asks of a forge, and every forge by its name. Each write may be repeated without harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from pydantic import ValidationError

from liza.domain.issues import Issue, IssueProblem, IssueSelection, Number, UnfitIssue, issue_of_branch
from liza.domain.problems import violations_from
from liza.domain.record import Commit, NonEmptyStr, Record
from liza.errors import ForgeFailed, UsageError
from liza.system.plugins import Registry


class ForgeProblem(StrEnum):
    """What stands in the way, as far as it decides what happens next."""

    LOGIN = "login"
    FORBIDDEN = "forbidden"
    MISSING = "missing"
    INVALID = "invalid"
    LIMITED = "limited"
    UNREACHABLE = "unreachable"
    CONFLICT = "conflict"
    OTHER = "other"


TRANSIENT: Final = frozenset({ForgeProblem.UNREACHABLE, ForgeProblem.LIMITED})  # over by themselves


class ThreadKind(StrEnum):
    ISSUE = "issue"
    PULL_REQUEST = "pull_request"


class Thread(NamedTuple):
    """Where a comment goes."""

    kind: ThreadKind
    number: int

    def __str__(self) -> str:
        return f"{'issue' if self.kind is ThreadKind.ISSUE else 'pull request'} #{self.number}"


class PullRequestState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


class PullRequest(Record):
    number: Number
    branch: NonEmptyStr
    url: str = ""
    state: PullRequestState = PullRequestState.OPEN
    is_draft: bool = True


class PullRequestDraft(Record):
    """A pull request as it should be: *commit* becomes *branch*, to be merged into *base*."""

    branch: NonEmptyStr
    commit: Commit
    base: NonEmptyStr
    title: NonEmptyStr
    body: NonEmptyStr


class Forge(Protocol):
    def numbers_with(self, label: str) -> tuple[int, ...]:
        """Return the open issues with *label*, in order."""

    def issue(self, number: int) -> Issue | UnfitIssue: ...

    def open_pull_requests(self) -> tuple[PullRequest, ...]: ...

    def branches(self) -> tuple[str, ...]:
        """Return the names of the branches that are published."""

    def fetch_branch(self, branch: str) -> str:
        """Fetch a published branch, and return its commit."""

    def comment(self, thread: Thread, key: str, text: str) -> None:
        """Comment, unless Liza already did so in *thread* under *key*."""

    def ensure_draft(self, wanted: PullRequestDraft) -> PullRequest:
        """Publish the branch, and return its pull request; make a draft where there is none."""

    def mark_ready(self, number: int) -> None: ...

    def mark_draft(self, number: int) -> None:
        """Take back that pull request *number* is ready."""

    def mark_nomerge(self, number: int, reason: str) -> None:
        """Leave pull request *number* as it is, and say in it why a person has to look first."""


class ForgeType(NamedTuple):
    """A row: what the forge may be told, and the function that opens it for a checkout."""

    options: type[Record]
    open: Callable[[Any, Path], Forge]


class FetchedIssues(NamedTuple):
    issues: tuple[Issue, ...]
    unfit: tuple[UnfitIssue, ...]


def fetch_issues(forge: Forge, selection: IssueSelection) -> FetchedIssues:
    """Return the selected issues, and apart from them those that cannot be worked on."""
    numbers = selection.numbers
    if selection.label is not None:
        numbers = forge.numbers_with(selection.label)
        if not numbers:
            why = f"no open issue has the label {selection.label!r}; look at how it is spelt"
            raise ForgeFailed("fetch issues", why, ForgeProblem.MISSING)
    found = [forge.issue(number) for number in numbers]
    return FetchedIssues(
        tuple(one for one in found if isinstance(one, Issue)),
        tuple(one for one in found if isinstance(one, UnfitIssue)),
    )


def issue_from(number: int, state: str, fields: dict[str, Any]) -> Issue | UnfitIssue:
    """Return the issue that *fields* describe, or why it cannot be worked on."""
    if state.casefold() != PullRequestState.OPEN:
        return UnfitIssue(number, IssueProblem.CLOSED)
    if not str(fields.get("body") or "").strip():
        return UnfitIssue(number, IssueProblem.EMPTY)
    return Issue.model_validate({"number": number, **fields})


def adopt(found: PullRequest, wanted: PullRequestDraft) -> PullRequest:
    """Return *found* as the pull request of *wanted*; raise where it is another's or was given up."""
    doing = f"open a pull request for {wanted.branch}"
    mine, theirs = issue_of_branch(wanted.branch), issue_of_branch(found.branch)
    if mine != theirs:
        why = f"pull request #{found.number} is for issue #{theirs}, and this work is for #{mine}"
        raise ForgeFailed(doing, why, ForgeProblem.CONFLICT)
    if found.state is PullRequestState.CLOSED:
        why = f"somebody closed its pull request #{found.number}; reopen that one, or delete the branch"
        raise ForgeFailed(doing, why, ForgeProblem.CONFLICT)
    return found


# Every forge by its name.
#
# A package adds one as an entry point of the group `liza.forges` that is a `ForgeType`.

FORGES: Final[Registry[ForgeType]] = Registry(
    "liza.forges",
    "forge",
    {"github": "liza.forges.github:GITHUB", "local": "liza.forges.local:LOCAL"},
    ForgeType,
)


def open_forge(name: str, options: Mapping[str, Any], root: Path) -> Forge:
    """Return the forge *name* for the checkout at *root*; raise one sentence where *options* are wrong."""
    kind = FORGES[name]
    try:
        told = kind.options.model_validate(dict(options))
    except ValidationError as error:
        raise UsageError(str(violations_from(error, kind.options, f"forge.{name}", {})[0])) from error
    return kind.open(told, root)
