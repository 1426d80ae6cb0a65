"""GitHub, through `gh`: issues in, comments and one pull request a branch out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from liza.domain.issues import Issue, IssueProblem, UnfitIssue
from liza.domain.record import NonEmptyStr, Record
from liza.errors import ForgeFailed
from liza.forges.comments import NOMERGE_KEY, has_marker, is_marked, nomerge_comment, with_marker
from liza.forges.gh import CREDENTIALS, Gh, GhWriter, require_success
from liza.forges.protocol import (
    ForgeProblem,
    ForgeType,
    PullRequest,
    PullRequestDraft,
    PullRequestState,
    Thread,
    ThreadKind,
    adopt,
    issue_from,
)
from liza.repo.remote import fetch_branch, push_branch, remote_branches
from liza.repo.repository import Repository

LOCK: Final = "liza-forge.lock"  # in the git directory that all checkouts of a repository share
MOST_LISTED: Final = 200  # issues of a label, or pull requests, that are asked for
_ISSUE_FIELDS: Final = "number,title,body,state,labels,comments,url"
_PULL_FIELDS: Final = "number,headRefName,url,state,isDraft,isCrossRepository"
_COMMANDS: Final = {ThreadKind.ISSUE: "issue", ThreadKind.PULL_REQUEST: "pr"}
_ABOUT_ONE_ISSUE: Final = frozenset({ForgeProblem.FORBIDDEN, ForgeProblem.INVALID, ForgeProblem.OTHER})


# What gh answers, as far as it is asked for; what else it says is not looked at.


class _Number(BaseModel):
    number: Annotated[int, Field(ge=1)]


class _Named(BaseModel):
    name: str


class _Author(BaseModel):
    login: str = "ghost"  # as GitHub calls whoever is gone


class _Comment(BaseModel):
    body: str
    author: Annotated[_Author, BeforeValidator(lambda given: given or {})] = _Author()
    # Whether gh's user wrote it: a marker of somebody else silences nobody.
    is_own: bool = Field(default=True, alias="viewerDidAuthor")


class _Comments(BaseModel):
    comments: list[_Comment] | None


class _Issue(_Comments):
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    body: str | None
    state: Literal["OPEN", "CLOSED"]
    labels: list[_Named]
    url: str


class _PullState(BaseModel):
    state: Literal["OPEN", "CLOSED", "MERGED"]
    is_draft: bool = Field(alias="isDraft")


class _Pull(_PullState, _Number):
    branch: Annotated[str, Field(alias="headRefName", min_length=1)]
    url: str
    is_of_fork: bool = Field(alias="isCrossRepository")


class GitHubOptions(Record):
    # Without it, the repository that gh finds among the remotes of the checkout.
    repository: Annotated[str, StringConstraints(pattern=r"^([\w.-]+/)?[\w.-]+/[\w.-]+$")] | None = None
    remote: NonEmptyStr = "origin"  # where branches are pushed


@dataclass(frozen=True)
class GitHub:
    gh: Gh
    repository: Repository
    remote: str

    def numbers_with(self, label: str) -> tuple[int, ...]:
        words = ("issue", "list", "--state", "open", "--label", label, "--limit", str(MOST_LISTED))
        found = self.gh.read(f"list issues with the label {label}", list[_Number], *words, "--json", "number")
        return tuple(sorted(one.number for one in found))

    def issue(self, number: int) -> Issue | UnfitIssue:
        doing = f"read issue #{number}"
        try:
            found = self.gh.read(doing, _Issue, "issue", "view", str(number), "--json", _ISSUE_FIELDS)
        except ForgeFailed as error:
            if error.problem is ForgeProblem.MISSING and "to a repository" not in str(error).casefold():
                return UnfitIssue(number, IssueProblem.MISSING)
            if error.problem in _ABOUT_ONE_ISSUE:
                return UnfitIssue(number, IssueProblem.UNREADABLE, str(error))
            raise
        if "/pull/" in found.url:
            return UnfitIssue(number, IssueProblem.UNREADABLE, "it is a pull request")
        return issue_from(number, found.state, _issue_values(found))

    def open_pull_requests(self) -> tuple[PullRequest, ...]:
        words = ("pr", "list", "--state", "open", "--limit", str(MOST_LISTED), "--json", _PULL_FIELDS)
        return _own_pull_requests(self.gh.read("list pull requests", list[_Pull], *words))

    def branches(self) -> tuple[str, ...]:
        return remote_branches(self.repository, self.remote, CREDENTIALS)

    def fetch_branch(self, branch: str) -> str:
        return fetch_branch(self.repository, self.remote, branch, CREDENTIALS)

    def comment(self, thread: Thread, key: str, text: str) -> None:
        words = (_COMMANDS[thread.kind], str(thread.number))
        self.gh.write(f"comment on {thread}", lambda writer: _comment_once(writer, words, key, text))

    def ensure_draft(self, wanted: PullRequestDraft) -> PullRequest:
        push_branch(self.repository, self.remote, wanted.branch, wanted.commit, CREDENTIALS)
        doing = f"open a pull request for {wanted.branch}"
        return self.gh.write(doing, lambda writer: _create_once(writer, wanted))

    def mark_ready(self, number: int) -> None:
        self.gh.write(f"mark pull request #{number} as ready", lambda writer: _ready_once(writer, number))

    def mark_draft(self, number: int) -> None:
        doing = f"mark pull request #{number} as a draft"
        self.gh.write(doing, lambda writer: _draft_once(writer, number))

    def mark_nomerge(self, number: int, reason: str) -> None:
        self.comment(Thread(ThreadKind.PULL_REQUEST, number), NOMERGE_KEY, nomerge_comment(reason))


def _issue_values(found: _Issue) -> dict[str, Any]:
    comments = [one for one in found.comments or [] if not (is_marked(one.body) and one.is_own)]
    return {
        "title": found.title,
        "body": found.body,
        "labels": [label.name for label in found.labels],
        "comments": [{"author": one.author.login, "body": one.body} for one in comments],
    }


def _comment_once(writer: GhWriter, words: tuple[str, str], key: str, text: str) -> None:
    kind, number = words
    there = writer.read(_Comments, kind, "view", number, "--json", "comments").comments or []
    if not any(has_marker(one.body, key) and one.is_own for one in there):
        writer.do(kind, "comment", number, "--body-file", "-", stdin=with_marker(text, key))


def _create_once(writer: GhWriter, wanted: PullRequestDraft) -> PullRequest:
    if found := _pull_request_of(writer, wanted.branch):
        return adopt(found, wanted)
    words = ("--draft", "--head", wanted.branch, "--base", wanted.base, "--title", wanted.title)
    made = writer.run("pr", "create", *words, "--body-file", "-", stdin=wanted.body)
    if made.problem is not None:
        # Somebody else may have been faster.
        if "already exists" in made.said and (found := _pull_request_of(writer, wanted.branch)):
            return adopt(found, wanted)
        require_success(writer.doing, made)
    address = re.search(r"\S+/pull/(\d+)", made.output)
    if address is None:
        raise ForgeFailed(
            writer.doing, "gh did not say which one it made; try again", ForgeProblem.UNREACHABLE
        )
    return PullRequest(number=int(address[1]), branch=wanted.branch, url=address[0])


def _pull_request_of(writer: GhWriter, branch: str) -> PullRequest | None:
    """Return the pull request of *branch*: an open one before a merged one before a closed one."""
    words = ("pr", "list", "--state", "all", "--head", branch, "--limit", str(MOST_LISTED))
    found = _own_pull_requests(writer.read(list[_Pull], *words, "--json", _PULL_FIELDS))
    order = [PullRequestState.OPEN, PullRequestState.MERGED, PullRequestState.CLOSED]
    return min(
        (one for one in found if one.branch == branch), key=lambda one: order.index(one.state), default=None
    )


def _own_pull_requests(found: list[_Pull]) -> tuple[PullRequest, ...]:
    """Return those whose branch is in the repository itself: a fork may have a branch of the same name."""
    return tuple(
        PullRequest(
            number=one.number,
            branch=one.branch,
            url=one.url,
            state=PullRequestState(one.state.casefold()),
            is_draft=one.is_draft,
        )
        for one in found
        if not one.is_of_fork
    )


def _ready_once(writer: GhWriter, number: int) -> None:
    found = writer.read(_PullState, "pr", "view", str(number), "--json", "state,isDraft")
    if found.state == "OPEN" and found.is_draft:
        writer.do("pr", "ready", str(number))


def _draft_once(writer: GhWriter, number: int) -> None:
    found = writer.read(_PullState, "pr", "view", str(number), "--json", "state,isDraft")
    if found.state == "OPEN" and not found.is_draft:
        writer.do("pr", "ready", str(number), "--undo")


def open_github(options: GitHubOptions, root: Path) -> GitHub:
    repository = Repository.around(root)
    return GitHub(Gh(root, options.repository, repository.common / LOCK), repository, options.remote)


GITHUB: Final = ForgeType(GitHubOptions, open_github)
