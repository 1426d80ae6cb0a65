"""The forge in a directory: Markdown issues, pull requests as files, a bare repository."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from liza.domain.issues import Issue, IssueProblem, UnfitIssue
from liza.errors import ForgeFailed, UsageError
from liza.forges.comments import NOMERGE_HEADING
from liza.forges.local import BARE
from liza.forges.protocol import (
    FORGES,
    Forge,
    ForgeProblem,
    PullRequestDraft,
    PullRequestState,
    Thread,
    ThreadKind,
    open_forge,
)
from tests.support.repos import Hand, Home

BRANCH: Final = "bug/issue-7-fix-the-crash"
ISSUE: Final = Thread(ThreadKind.ISSUE, 7)
PAGE: Final = "---\ntitle: Fix the crash\nlabels: [bug, agent]\n---\n\nIt crashes.\n"


class LocalScene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = Home(path / "home")
        self.hand = Hand(path / "forge")
        self.hand.write("issues/7.md", PAGE)
        self.commit = self.home.commit({"c.py": "C = 1\n"})

    @property
    def forge(self) -> Forge:
        return open_forge("local", {"path": "../forge"}, self.home.directory)

    def draft(self) -> PullRequestDraft:
        return PullRequestDraft(
            branch=BRANCH, commit=self.commit, base="main", title="Issue #7: Fix the crash", body="Closes #7"
        )

    def pages(self, pattern: str) -> list[str]:
        return [page.read_text() for page in sorted(self.hand.directory.glob(pattern))]


@pytest.fixture
def scene(tmp_path: Path) -> LocalScene:
    return LocalScene(tmp_path)


def test_an_issue_is_a_page_with_front_matter(scene: LocalScene) -> None:
    scene.hand.write("issues/7/ada.md", "with a test\n")
    scene.forge.comment(ISSUE, "PLAN/1", "the plan")

    found = scene.forge.issue(7)

    assert isinstance(found, Issue)
    assert (found.title, found.body, found.labels) == ("Fix the crash", "It crashes.", ("bug", "agent"))
    assert [(one.author, one.body) for one in found.comments] == [("ada", "with a test\n")]


@pytest.mark.parametrize(
    ("page", "problem", "says"),
    [
        ("---\ntitle: x\nstate: closed\n---\nwords\n", IssueProblem.CLOSED, "issue #5 is closed"),
        ("---\ntitle: x\n---\n \n", IssueProblem.EMPTY, "issue #5 has no text"),
        ("no front matter\n", IssueProblem.UNREADABLE, "begin it with ---, a title and ---"),
        ("---\ntitle: [\n---\nwords\n", IssueProblem.UNREADABLE, "line "),
        ("---\ntitel: x\n---\nwords\n", IssueProblem.UNREADABLE, "title: it is missing; add it"),
        ("---\ntitle: x\nstate: opn\n---\nwords\n", IssueProblem.UNREADABLE, "did you mean 'open'?"),
    ],
)
def test_an_issue_that_cannot_be_worked_on_is_told(
    scene: LocalScene, page: str, problem: IssueProblem, says: str
) -> None:
    scene.hand.write("issues/5.md", page)

    found = scene.forge.issue(5)

    assert isinstance(found, UnfitIssue)
    assert found.problem is problem
    assert says in str(found)


def test_a_missing_issue_and_a_missing_directory_are_told(scene: LocalScene) -> None:
    assert str(scene.forge.issue(9)) == "there is no issue #9; look at the number"
    with pytest.raises(ForgeFailed, match=r"there is no directory `issues` in it; make one"):
        open_forge("local", {"path": "nowhere"}, scene.home.directory)


def test_issues_are_found_by_their_label(scene: LocalScene) -> None:
    scene.hand.write("issues/10.md", PAGE)
    scene.hand.write("issues/9.md", "---\ntitle: y\nstate: closed\nlabels: [agent]\n---\nwords\n")
    scene.hand.write("issues/notes.md", "not an issue\n")

    assert scene.forge.numbers_with("agent") == (7, 10)
    assert scene.forge.numbers_with("agnt") == ()


def test_a_branch_gets_one_draft_which_is_published_and_made_ready(scene: LocalScene) -> None:
    first = scene.forge.ensure_draft(scene.draft())
    scene.commit = scene.home.commit({"c.py": "C = 2\n"})
    second = scene.forge.ensure_draft(scene.draft())

    assert first == second
    assert (first.number, first.is_draft, first.state) == (1, True, PullRequestState.OPEN)
    assert Hand(scene.hand.directory / BARE).git("rev-parse", BRANCH) == scene.commit
    assert scene.forge.open_pull_requests() == (first,)
    scene.forge.mark_ready(1)
    scene.forge.mark_ready(1)
    assert scene.forge.open_pull_requests() == (first.replace(is_draft=False),)
    assert scene.pages("pulls/1.md")[0].endswith("---\n\nCloses #7\n")
    scene.forge.mark_draft(1)
    scene.forge.mark_draft(1)
    assert scene.forge.open_pull_requests() == (first,)


def test_nomerge_leaves_a_draft_with_one_comment(scene: LocalScene) -> None:
    scene.forge.ensure_draft(scene.draft())

    scene.forge.mark_nomerge(1, "PLAN was forced")
    scene.forge.mark_nomerge(1, "PLAN was forced")

    assert [page.splitlines()[0] for page in scene.pages("pulls/1/*.md")] == [NOMERGE_HEADING]
    assert "draft: true" in scene.pages("pulls/1.md")[0]


def test_a_closed_pull_request_is_not_made_again(scene: LocalScene) -> None:
    scene.forge.ensure_draft(scene.draft())
    page = scene.hand.directory / "pulls" / "1.md"
    page.write_text(page.read_text().replace("state: open", "state: closed"))

    with pytest.raises(ForgeFailed, match="somebody closed its pull request #1") as caught:
        scene.forge.ensure_draft(scene.draft())
    assert caught.value.problem is ForgeProblem.CONFLICT


def test_a_thread_that_is_not_there_is_told(scene: LocalScene) -> None:
    with pytest.raises(ForgeFailed, match=r"^cannot comment on issue #8: "):
        scene.forge.comment(Thread(ThreadKind.ISSUE, 8), "PLAN/1", "the plan")
    with pytest.raises(ForgeFailed, match="it is not there"):
        scene.forge.mark_ready(3)


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.torture)])
def test_killed_before_any_step_and_run_again_it_writes_nothing_twice(scene: LocalScene, stride: int) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.forge_kills", "local"),
            *(json.dumps({"path": "../forge"}), str(scene.path), scene.commit, str(stride)),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )

    assert (done.returncode, done.stderr) == (0, "")
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) > 8 // stride
    assert {json.dumps(end) for end in ends} == {json.dumps(ends[-1])}
    assert len(ends[-1]) == 3
    assert "draft: false" in ends[-1][-1]


def test_forges_are_found_by_name_and_told_only_what_they_know(tmp_path: Path) -> None:
    assert FORGES.names() == ["github", "local"]
    with pytest.raises(
        UsageError, match=r"^there is no forge 'gitlab'; did you mean 'github'\? known: github, local$"
    ):
        open_forge("gitlab", {}, tmp_path)
    with pytest.raises(UsageError, match=r"forge\.local.*path: it is missing; add it$"):
        open_forge("local", {}, tmp_path)
    with pytest.raises(UsageError, match=r"'repo' is not a key that belongs here; did you mean"):
        open_forge("github", {"repo": "o/r"}, tmp_path)
