"""GitHub through a `gh` that checks its arguments, and through a transcript of the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from liza.domain.issues import Issue, IssueProblem, IssueSelection, UnfitIssue
from liza.errors import ForgeFailed, GitFailed
from liza.forges.comments import NOMERGE_HEADING, marker_of
from liza.forges.gh import Gh, GhResult
from liza.forges.github import GitHub
from liza.forges.protocol import (
    ForgeProblem,
    PullRequestDraft,
    PullRequestState,
    Thread,
    ThreadKind,
    fetch_issues,
    open_forge,
)
from liza.repo.repository import Repository
from tests.support import recorded_gh, scripted_gh
from tests.support.repos import Hand, Home

CAPTURES: Final = Path(__file__).parents[2] / "support" / "gh_transcripts"
FAILURES: Final = [json.loads(line) for line in (CAPTURES / "failures.jsonl").read_text().splitlines()]
BRANCH: Final = "bug/issue-7-fix-the-crash"
ISSUE: Final = Thread(ThreadKind.ISSUE, 7)


def issue(**facts: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of JSON
    usual = {"title": "Fix the crash", "body": "It crashes.", "state": "OPEN", "labels": [{"name": "bug"}]}
    return {**usual, "comments": [], "url": "https://github.com/o/r/issues/7", **facts}


ISSUES: Final = {
    "7": issue(),
    "8": issue(state="CLOSED"),
    "9": issue(body=" \n"),
    "10": issue(url="https://github.com/o/r/pull/10"),
}


class Scene:
    """A checkout with a remote, and a gh on the PATH."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.home = Home(path / "home")
        self.remote = Hand(path / "origin.git")
        self.home.git("init", "--quiet", "--bare", str(self.remote.directory))
        self.home.git("remote", "add", "origin", str(self.remote.directory))
        self.state = path / "bin" / scripted_gh.STATE
        self.commit = self.home.commit({"c.py": "C = 1\n"})

    @property
    def forge(self) -> GitHub:
        repository = Repository.around(self.home.directory)
        gh = Gh(self.home.directory, scripted_gh.REPOSITORY, self.path / "lock", waits=(0.0, 0.0, 0.0))
        return GitHub(gh, repository, "origin")

    def draft(self, branch: str = BRANCH) -> PullRequestDraft:
        return PullRequestDraft(
            branch=branch, commit=self.commit, base="main", title="Issue #7: Fix the crash", body="Closes #7"
        )

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.state.read_text()))

    def change(self, **values: Any) -> None:  # noqa: ANN401 - as above
        self.state.write_text(json.dumps({**self.read(), **values}))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scripted_gh.install(tmp_path / "bin", dict(ISSUES))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Scene(tmp_path)


class TestIssues:
    def test_an_issue_is_read_without_what_liza_wrote(self, scene: Scene) -> None:
        """An agent is shown what people say, not its own reports; a marker of somebody else hides nothing."""
        mine = {"author": {"login": "liza"}, "body": f"done\n{marker_of('k')}", "viewerDidAuthor": True}
        theirs = {**mine, "author": {"login": "eve"}, "viewerDidAuthor": False}
        person = {"author": {"login": "ada"}, "body": "with a test", "viewerDidAuthor": False}
        scene.change(issues={"7": issue(comments=[mine, person, theirs])})

        found = scene.forge.issue(7)

        assert isinstance(found, Issue)
        assert (found.title, found.body, found.labels) == ("Fix the crash", "It crashes.", ("bug",))
        assert [one.author for one in found.comments] == ["ada", "eve"]

    @pytest.mark.parametrize(
        ("number", "problem", "says"),
        [
            (8, IssueProblem.CLOSED, "issue #8 is closed; reopen it, or leave it out"),
            (9, IssueProblem.EMPTY, "issue #9 has no text; say in it what is to be done"),
            (99, IssueProblem.MISSING, "there is no issue #99; look at the number"),
            (10, IssueProblem.UNREADABLE, "issue #10 cannot be read: it is a pull request"),
        ],
    )
    def test_an_issue_that_cannot_be_worked_on_is_told(
        self, scene: Scene, number: int, problem: IssueProblem, says: str
    ) -> None:
        found = scene.forge.issue(number)

        assert isinstance(found, UnfitIssue)
        assert (found.problem, str(found)) == (problem, says)

    def test_one_that_the_token_may_not_see_does_not_stop_the_others(self, scene: Scene) -> None:
        scene.change(faults=[{"code": 1, "said": "HTTP 403: Resource not accessible by integration"}])

        found = fetch_issues(scene.forge, IssueSelection((8, 7)))

        assert [one.number for one in found.issues] == [7]
        assert [one.problem for one in found.unfit] == [IssueProblem.UNREADABLE]

    def test_a_repository_that_is_not_there_stops_the_whole(self, scene: Scene) -> None:
        scene.change(
            faults=[{"code": 1, "said": "GraphQL: Could not resolve to a Repository with the name 'o/r'."}]
        )

        with pytest.raises(ForgeFailed, match="GitHub has no such thing, or the token may not see it"):
            fetch_issues(scene.forge, IssueSelection((8, 7)))

    def test_a_label_gives_its_open_issues_and_one_that_nobody_has_is_told(self, scene: Scene) -> None:
        scene.change(issues={"7": issue(labels=["agent"]), "3": issue(labels=["agent"])})

        assert scene.forge.numbers_with("agent") == (3, 7)
        with pytest.raises(
            ForgeFailed, match=r"no open issue has the label 'agnt'; look at how it is spelt$"
        ):
            fetch_issues(scene.forge, IssueSelection(label="agnt"))


class TestPullRequests:
    def test_a_branch_gets_one_draft_however_often_it_is_asked_for(self, scene: Scene) -> None:
        first, second = scene.forge.ensure_draft(scene.draft()), scene.forge.ensure_draft(scene.draft())

        assert first == second
        assert scene.read()["pulls"].keys() == {"12"}
        assert scene.read()["pulls"]["12"]["isDraft"]
        assert scene.remote.git("rev-parse", BRANCH) == scene.commit

    def test_later_rounds_are_pushed_to_the_same_branch(self, scene: Scene) -> None:
        scene.forge.ensure_draft(scene.draft())
        scene.commit = scene.home.commit({"c.py": "C = 2\n"})

        scene.forge.ensure_draft(scene.draft())

        assert scene.remote.git("rev-parse", BRANCH) == scene.commit

    def test_what_somebody_else_pushed_is_not_overwritten(self, scene: Scene) -> None:
        scene.forge.ensure_draft(scene.draft())
        scene.home.git("reset", "--hard", "--quiet", scene.home.base)
        scene.commit = scene.home.commit({"d.py": "D = 1\n"})

        with pytest.raises(
            GitFailed, match="has commits of somebody else; merge them, or delete that branch"
        ):
            scene.forge.ensure_draft(scene.draft())

    def test_one_that_somebody_else_made_meanwhile_is_taken(self, scene: Scene) -> None:
        """Between the look and the write somebody may be faster: gh says so, and theirs is used."""
        scene.change(
            faults=[None, {"code": 1, "said": "a pull request for branch x already exists", "done": True}]
        )

        assert scene.forge.ensure_draft(scene.draft()).number == 12
        assert len(scene.read()["pulls"]) == 1

    def test_one_that_a_person_closed_is_not_made_again(self, scene: Scene) -> None:
        scene.forge.ensure_draft(scene.draft())
        pull = scene.read()["pulls"]["12"]
        scene.change(pulls={"12": {**pull, "state": "CLOSED"}})

        with pytest.raises(
            ForgeFailed, match="somebody closed its pull request #12; reopen that one"
        ) as caught:
            scene.forge.ensure_draft(scene.draft())
        assert caught.value.problem is ForgeProblem.CONFLICT

    def test_a_merged_one_is_left_alone(self, scene: Scene) -> None:
        scene.forge.ensure_draft(scene.draft())
        pull = scene.read()["pulls"]["12"]
        scene.change(pulls={"12": {**pull, "state": "MERGED"}})

        assert scene.forge.ensure_draft(scene.draft()).state is PullRequestState.MERGED
        scene.forge.mark_ready(12)
        assert scene.read()["pulls"]["12"]["isDraft"]

    def test_a_branch_of_a_fork_is_somebody_else_s(self, scene: Scene) -> None:
        scene.forge.ensure_draft(scene.draft())
        pull = scene.read()["pulls"]["12"]
        scene.change(pulls={"12": {**pull, "isCrossRepository": True, "headRefName": "bug/issue-7-x"}})

        assert scene.forge.open_pull_requests() == ()
        assert scene.forge.ensure_draft(scene.draft()).number == 13

    def test_ready_is_said_once_and_nomerge_leaves_a_draft(self, scene: Scene) -> None:
        number = scene.forge.ensure_draft(scene.draft()).number

        scene.forge.mark_nomerge(number, "PLAN was forced")
        scene.forge.mark_nomerge(number, "PLAN was forced")

        pull = scene.read()["pulls"]["12"]
        assert pull["isDraft"]
        assert [one["body"].splitlines()[0] for one in pull["comments"]] == [NOMERGE_HEADING]
        scene.forge.mark_ready(number)
        scene.forge.mark_ready(number)
        assert not scene.read()["pulls"]["12"]["isDraft"]
        assert sum(call[:2] == ["pr", "ready"] for call in scene.read()["calls"]) == 1
        scene.forge.mark_draft(number)
        scene.forge.mark_draft(number)
        assert scene.read()["pulls"]["12"]["isDraft"]
        assert sum("--undo" in call for call in scene.read()["calls"]) == 1


class TestComments:
    def test_a_comment_is_made_once(self, scene: Scene) -> None:
        scene.forge.comment(ISSUE, "PLAN/1", "the plan")
        scene.forge.comment(ISSUE, "PLAN/1", "the plan, told again")
        scene.forge.comment(ISSUE, "PLAN/2", "the plan")

        assert [one["body"] for one in scene.read()["issues"]["7"]["comments"]] == [
            f"the plan\n\n{marker_of('PLAN/1')}",
            f"the plan\n\n{marker_of('PLAN/2')}",
        ]

    def test_no_agent_and_no_stranger_can_silence_one(self, scene: Scene) -> None:
        """A marker in the text of an agent, or of somebody else, stands for nothing."""
        body = f"nothing to see\n\n{marker_of('nomerge')}"
        stranger = {"author": {"login": "eve"}, "body": body, "viewerDidAuthor": False}
        scene.change(issues={"7": issue(comments=[stranger])})

        scene.forge.comment(ISSUE, "PLAN/1", f"text {marker_of('nomerge')}")
        scene.forge.comment(ISSUE, "nomerge", "look at it")

        bodies = [one["body"] for one in scene.read()["issues"]["7"]["comments"]]
        assert bodies[1] == f"text &lt;!-- liza:nomerge -->\n\n{marker_of('PLAN/1')}"
        assert bodies[2].startswith("look at it")

    def test_a_write_that_was_done_though_it_failed_is_not_repeated(self, scene: Scene) -> None:
        """The answer was lost on the way: the second try looks first."""
        scene.change(faults=[None, {"code": 1, "said": "HTTP 502: Bad Gateway", "done": True}])

        scene.forge.comment(ISSUE, "PLAN/1", "the plan")

        assert len(scene.read()["issues"]["7"]["comments"]) == 1


class TestFailures:
    @pytest.mark.parametrize("row", FAILURES, ids=[f"{row['problem']}-{row['code']}" for row in FAILURES])
    def test_what_the_real_gh_says_is_told_apart(self, row: dict[str, Any]) -> None:
        assert GhResult(row["code"], "", row["said"]).problem == row["problem"]

    @pytest.mark.parametrize(
        ("said", "says"),
        [
            (
                "HTTP 401: Bad credentials",
                r"GitHub does not know who asks .*; run `gh auth login`, or set GH_TOKEN$",
            ),
            ("HTTP 403: Resource not accessible", r"the token of gh may not do that .*; let it write issues"),
            ("HTTP 404: Not Found", r"GitHub has no such thing, or the token may not see it"),
            (
                "HTTP 422: Validation Failed",
                r"GitHub refuses what it was sent \(HTTP 422: Validation Failed\)",
            ),
        ],
    )
    def test_what_does_not_pass_is_not_tried_again(self, scene: Scene, said: str, says: str) -> None:
        scene.change(faults=[{"code": 1, "said": said}])

        with pytest.raises(ForgeFailed, match=says):
            scene.forge.open_pull_requests()
        assert len(scene.read()["calls"]) == 1

    @pytest.mark.parametrize("said", ["HTTP 502: Bad Gateway", "HTTP 403: API rate limit exceeded", ""])
    def test_what_passes_is_tried_again(self, scene: Scene, said: str) -> None:
        scene.change(faults=[{"code": 1, "said": said}] * 3)

        assert scene.forge.open_pull_requests() == ()
        scene.change(faults=[{"code": 1, "said": said}] * 4)
        with pytest.raises(ForgeFailed, match=r"^cannot list pull requests: .*\(tried 4 times\)$"):
            scene.forge.open_pull_requests()

    @pytest.mark.parametrize(
        ("printed", "said"),
        [
            ("", "what it said is no JSON"),
            ("<html>Unicorn!</html>", "what it said is no JSON"),
            ("null", "what it said is no answer to that: all of it"),
            ('{"message": "Server Error"}', "what it said is no answer to that: "),
            ('[{"number": "first"}]', "what it said is no answer to that: 0.number"),
        ],
    )
    def test_an_answer_to_something_else_is_told_and_tried_again(
        self, scene: Scene, printed: str, said: str
    ) -> None:
        for ask in (scene.forge.open_pull_requests, lambda: scene.forge.numbers_with("agent")):
            scene.change(faults=[{"printed": printed}] * 4, calls=[])
            with pytest.raises(ForgeFailed) as failed:
                ask()
            assert f"GitHub does not answer ({said}" in str(failed.value)
            assert len(scene.read()["calls"]) == 4
        scene.change(faults=[{"printed": printed}] * 4)
        with pytest.raises(ForgeFailed, match=r"^cannot read issue #7: GitHub does not answer \(what"):
            scene.forge.issue(7)

    def test_a_comment_of_somebody_who_is_gone_is_read(self, scene: Scene) -> None:
        scene.change(issues={"7": issue(comments=[{"author": None, "body": "with a test"}])})
        found = scene.forge.issue(7)
        assert isinstance(found, Issue)
        assert [(one.author, one.body) for one in found.comments] == [("ghost", "with a test")]

    def test_a_call_has_a_limit(self, scene: Scene) -> None:
        pipe = scene.path / "pipe"
        os.mkfifo(pipe)
        scene.change(faults=[{"gate": str(pipe)}])
        gh = Gh(scene.home.directory, scripted_gh.REPOSITORY, scene.path / "lock", waits=(), limit=1.0)

        with pytest.raises(ForgeFailed, match=r"GitHub does not answer \(timed out after 1 seconds\)"):
            GitHub(gh, Repository.around(scene.home.directory), "origin").open_pull_requests()

    def test_a_machine_without_gh_is_told(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        forge = scene.forge
        monkeypatch.setenv("PATH", str(scene.home.directory))

        with pytest.raises(ForgeFailed, match=r"gh is not on the PATH; install it, and run `gh auth login`$"):
            forge.open_pull_requests()

    def test_a_secret_that_gh_repeats_is_masked(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GH_TOKEN", "a-token-that-nobody-may-read")
        scene.change(faults=[{"code": 1, "said": "HTTP 422: bad a-token-that-nobody-may-read"}])

        with pytest.raises(ForgeFailed, match=r"HTTP 422: bad \[masked\]"):
            scene.forge.open_pull_requests()


def test_the_real_gh_was_called_so_and_answered_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded with gh 2.23.0 and a server that speaks GitHub's API; each write is asked for twice."""
    left = recorded_gh.install(tmp_path / "bin", CAPTURES / "issue_to_ready.jsonl")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    scene = Scene(tmp_path)
    forge = scene.forge

    assert (forge.numbers_with("agent"), forge.numbers_with("nobody")) == ((7, 9), ())
    found = forge.issue(7)
    assert isinstance(found, Issue)
    assert found.labels == ("bug", "agent")
    assert [forge.issue(number)[1] for number in (8, 9, 99)] == [  # type: ignore[index]
        IssueProblem.CLOSED,
        IssueProblem.EMPTY,
        IssueProblem.MISSING,
    ]
    assert forge.ensure_draft(scene.draft()) == forge.ensure_draft(scene.draft())
    assert [one.number for one in forge.open_pull_requests()] == [12]
    for _ in range(2):
        forge.comment(ISSUE, "issue-7/PLAN/judge/1", "the plan is good")
    for _ in range(2):
        forge.mark_nomerge(12, "rounds are over")
    forge.mark_ready(12)
    forge.mark_ready(12)
    assert forge.issue(7) == found
    with pytest.raises(ForgeFailed, match="No commits between main and bug/issue-7-empty"):
        forge.ensure_draft(scene.draft("bug/issue-7-empty"))
    with pytest.raises(ForgeFailed, match="Could not resolve to a PullRequest with the number of 77"):
        forge.mark_ready(77)
    assert left.read_text() == ""


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.torture)])
def test_killed_before_any_step_and_run_again_it_writes_nothing_twice(scene: Scene, stride: int) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.forge_kills", "github"),
            *(json.dumps({"repository": scripted_gh.REPOSITORY}), str(scene.path), scene.commit, str(stride)),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )

    assert (done.returncode, done.stderr) == (0, "")
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) > 7 // stride
    assert {json.dumps(end) for end in ends} == {json.dumps(ends[-1])}
    assert [line.splitlines()[0] for line in ends[-1]] == [
        f"12: {NOMERGE_HEADING}",
        "12: False",
        "7: the plan is good",
    ]


def test_a_gh_that_outlives_its_caller_is_waited_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while gh was writing, the next run looks only when that gh has ended, and finds the comment."""
    pipe = scene.path / "pipe"
    os.mkfifo(pipe)
    scene.change(faults=[None, {"gate": str(pipe), "done": True}])
    monkeypatch.setenv("LIZA_PORTABLE", "1")  # gh does not die with its caller
    code = (
        "from pathlib import Path; from liza.forges.protocol import open_forge; "
        "from liza.forges.protocol import Thread, ThreadKind; "
        f"forge = open_forge('github', {{'repository': 'o/r'}}, Path({str(scene.home.directory)!r})); "
        "forge.comment(Thread(ThreadKind.ISSUE, 7), 'PLAN/1', 'the plan')"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    writer = os.open(pipe, os.O_WRONLY)  # returns when gh is waiting there
    first.send_signal(signal.SIGKILL)
    first.wait()

    forge = open_forge("github", {"repository": scripted_gh.REPOSITORY}, scene.home.directory)
    second = threading.Thread(target=lambda: forge.comment(ISSUE, "PLAN/1", "the plan"))
    second.start()
    os.close(writer)
    second.join(60)

    assert not second.is_alive()
    assert len(scene.read()["issues"]["7"]["comments"]) == 1
