"""A forge in a directory, without a network: Markdown files for issues and pull requests, a bare repository.

issues/7.md              front matter with title, state and labels; then the text
issues/7/NAME.md         a comment
pulls/1.md               front matter with title, branch, base, state and draft; then the text
pulls/1/NAME.md          a comment
repository.git           where branches are pushed
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.issues import Issue, IssueProblem, UnfitIssue
from liza.domain.problems import violations_from
from liza.domain.record import Json, NonEmptyStr, Record, section_text
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import DiskTrouble, ForgeFailed
from liza.forges.comments import NOMERGE_KEY, is_marked, nomerge_comment, with_marker
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
from liza.repo.command import git
from liza.repo.remote import fetch_branch, push_branch, remote_branches
from liza.repo.repository import Repository
from liza.system.files import hold_lock, overwrite, write_new

BARE: Final = "repository.git"
_FOLDERS: Final = {ThreadKind.ISSUE: "issues", ThreadKind.PULL_REQUEST: "pulls"}
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)\Z", re.DOTALL)


class LocalOptions(Record):
    path: NonEmptyStr


class IssueHead(Record):
    """The front matter of an issue."""

    title: NonEmptyStr
    state: PullRequestState = PullRequestState.OPEN
    labels: tuple[NonEmptyStr, ...] = ()


class PullRequestHead(Record):
    """The front matter of a pull request."""

    title: NonEmptyStr
    branch: NonEmptyStr
    base: NonEmptyStr
    state: PullRequestState = PullRequestState.OPEN
    draft: bool = True


class _Page(NamedTuple):
    head: dict[str, Json]
    body: str


@dataclass(frozen=True)
class LocalForge:
    path: Path
    repository: Repository

    def numbers_with(self, label: str) -> tuple[int, ...]:
        return tuple(number for number in self._numbers(ThreadKind.ISSUE) if label in self._labels(number))

    def _labels(self, number: int) -> tuple[str, ...]:
        """Return the labels of an open issue; what cannot be read has none."""
        path = self._page(Thread(ThreadKind.ISSUE, number))
        try:
            head = _head(IssueHead, _read_page(path), path)
        except (FileNotFoundError, ForgeFailed):
            return ()
        return tuple(head.labels) if head.state is PullRequestState.OPEN else ()

    def issue(self, number: int) -> Issue | UnfitIssue:
        path = self._page(Thread(ThreadKind.ISSUE, number))
        try:
            page = _read_page(path)
            head = _head(IssueHead, page, path)
        except FileNotFoundError:
            return UnfitIssue(number, IssueProblem.MISSING)
        except ForgeFailed as error:
            return UnfitIssue(number, IssueProblem.UNREADABLE, str(error))
        comments = self._comments(Thread(ThreadKind.ISSUE, number))
        values = {"title": head.title, "body": page.body, "labels": head.labels, "comments": comments}
        return issue_from(number, head.state, values)

    def open_pull_requests(self) -> tuple[PullRequest, ...]:
        return tuple(one for one in self._pull_requests() if one.state is PullRequestState.OPEN)

    def branches(self) -> tuple[str, ...]:
        return remote_branches(self.repository, str(self._bare()))

    def fetch_branch(self, branch: str) -> str:
        return fetch_branch(self.repository, str(self._bare()), branch)

    def comment(self, thread: Thread, key: str, text: str) -> None:
        if not self._page(thread).exists():
            raise ForgeFailed(
                f"comment on {thread}", f"{self._page(thread)} is not there", ForgeProblem.MISSING
            )
        folder = self._page(thread).with_suffix("")
        # The name is made of the key: a second comment under it finds the name taken.
        name = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
        try:
            folder.mkdir(exist_ok=True)
            write_new(folder / f"liza-{name}.md", with_marker(text, key) + "\n")
        except OSError as error:
            raise DiskTrouble(f"comment in {folder}", error) from error

    def ensure_draft(self, wanted: PullRequestDraft) -> PullRequest:
        with self._hold_lock():
            push_branch(self.repository, str(self._bare()), wanted.branch, wanted.commit)
            found = next((one for one in self._pull_requests() if one.branch == wanted.branch), None)
            return adopt(found, wanted) if found else self._create(wanted)

    def mark_ready(self, number: int) -> None:
        self._set_draft(number, is_draft=False)

    def mark_draft(self, number: int) -> None:
        self._set_draft(number, is_draft=True)

    def _set_draft(self, number: int, *, is_draft: bool) -> None:
        path = self._page(Thread(ThreadKind.PULL_REQUEST, number))
        with self._hold_lock():
            page = _read_pull_page(path)
            head = _head(PullRequestHead, page, path)
            if head.draft is not is_draft and head.state is PullRequestState.OPEN:
                _write_page(path, head.replace(draft=is_draft), page.body)

    def mark_nomerge(self, number: int, reason: str) -> None:
        self.comment(Thread(ThreadKind.PULL_REQUEST, number), NOMERGE_KEY, nomerge_comment(reason))

    def _create(self, wanted: PullRequestDraft) -> PullRequest:
        number = max(self._numbers(ThreadKind.PULL_REQUEST), default=0) + 1
        path = self._page(Thread(ThreadKind.PULL_REQUEST, number))
        head = PullRequestHead(title=wanted.title, branch=wanted.branch, base=wanted.base)
        _write_page(path, head, wanted.body)
        return PullRequest(number=number, branch=wanted.branch, url=str(path))

    def _pull_requests(self) -> Iterator[PullRequest]:
        for number in self._numbers(ThreadKind.PULL_REQUEST):
            path = self._page(Thread(ThreadKind.PULL_REQUEST, number))
            head = _head(PullRequestHead, _read_pull_page(path), path)
            yield PullRequest(
                number=number, branch=head.branch, url=str(path), state=head.state, is_draft=head.draft
            )

    def _page(self, thread: Thread) -> Path:
        return self.path / _FOLDERS[thread.kind] / f"{thread.number}.md"

    def _numbers(self, kind: ThreadKind) -> list[int]:
        pages = (self.path / _FOLDERS[kind]).glob("*.md")
        return sorted(int(page.stem) for page in pages if re.fullmatch(r"[1-9]\d{0,8}", page.stem))

    def _comments(self, thread: Thread) -> list[dict[str, str]]:
        pages = sorted(self._page(thread).with_suffix("").glob("*.md"))
        bodies = ((page.stem, page.read_text(errors="replace")) for page in pages)
        return [{"author": name, "body": body} for name, body in bodies if not is_marked(body)]

    def _bare(self) -> Path:
        path = self.path / BARE
        git("init", "--quiet", "--bare", str(path), cwd=self.path)  # again, it changes nothing
        return path

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        with hold_lock(self.path / ".lock"):
            yield


def _read_page(path: Path) -> _Page:
    try:
        text = path.read_text(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    found = _FRONT_MATTER.match(text)
    if found is None:
        raise _unreadable(path, "it has no front matter; begin it with ---, a title and ---")
    try:
        return _Page(dict(parse_yaml(found[1]).data), found[2].strip())
    except BadYaml as error:
        raise _unreadable(path, f"line {error.line + 1}: {error.problem}") from error


def _read_pull_page(path: Path) -> _Page:
    try:
        return _read_page(path)
    except FileNotFoundError as error:
        raise _unreadable(path, "it is not there") from error


def _head(kind: type[Any], page: _Page, path: Path) -> Any:  # noqa: ANN401 - a record of *kind*
    try:
        return kind.model_validate(page.head)
    except ValidationError as error:
        raise _unreadable(path, str(violations_from(error, kind, "", {})[0])) from error


def _unreadable(path: Path, why: str) -> ForgeFailed:
    return ForgeFailed(f"read {path}", why, ForgeProblem.INVALID)


def _write_page(path: Path, head: Record, body: str) -> None:
    front: Mapping[str, Json] = head.model_dump(mode="json")
    lines = "".join(section_text(key, value) for key, value in front.items())
    try:
        path.parent.mkdir(exist_ok=True)
        overwrite(path, f"---\n{lines}---\n\n{body.strip()}\n")
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def open_local(options: LocalOptions, root: Path) -> LocalForge:
    """Open the directory that *options* name, relative to the checkout."""
    path = root / options.path
    if not (path / "issues").is_dir():
        why = "there is no directory `issues` in it; make one, with a file such as `1.md` for each issue"
        raise ForgeFailed(f"use {path} as a forge", why, ForgeProblem.MISSING)
    return LocalForge(path, Repository.around(root))


LOCAL: Final = ForgeType(LocalOptions, open_local)
