"""From an issue to its pull request, on the forge in a directory; and a forge that a package adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.domain.issues import Issue, parse_selection, queue_issues
from liza.forges.comments import (
    NOMERGE_HEADING,
    PhaseReport,
    choose_branch,
    ensure_pull_request,
    finalize_pull_request,
    report_phase,
)
from liza.forges.protocol import FORGES, Forge, PullRequestState, Thread, ThreadKind, fetch_issues, open_forge
from tests.support.repos import Hand, Home

SITE = Path(__file__).parents[2] / "sample_package"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    hand = Hand(tmp_path / "forge")
    for number, body in ((1, "first"), (2, "after #1"), (3, "after #4"), (5, "")):
        hand.write(f"issues/{number}.md", f"---\ntitle: Issue {number}\nlabels: [agent]\n---\n{body}\n")
    return Home(tmp_path / "home")


@pytest.fixture
def forge(home: Home) -> Forge:
    return open_forge("local", {"path": "../forge"}, home.directory)


def test_issues_become_a_queue_and_what_cannot_be_done_is_told(forge: Forge) -> None:
    fetched = fetch_issues(forge, parse_selection("1-5"))

    queue = queue_issues(fetched.issues, unfit=fetched.unfit)

    assert queue.order == (1, 2)
    assert queue.blocked == {3: "issue #3 waits for #4: there is no issue #4; look at the number"}
    assert [str(one) for one in fetched.unfit] == [
        "there is no issue #4; look at the number",
        "issue #5 has no text; say in it what is to be done",
    ]


def test_work_without_a_mark_is_ready_and_other_work_stays_a_draft(home: Home, forge: Forge) -> None:
    issue = forge.issue(1)
    assert isinstance(issue, Issue)
    branch = choose_branch(forge, issue)
    assert branch == "agent/issue-1-issue-1"
    assert choose_branch(forge, issue, ("main", "old/issue-1-begun")) == "old/issue-1-begun"

    pull = ensure_pull_request(forge, issue, branch=branch, commit=home.base, base="main")
    assert choose_branch(forge, issue, ("old/issue-1-begun",)) == branch
    finalize_pull_request(forge, pull, ("forced:PLAN",))
    finalize_pull_request(forge, pull.replace(state=PullRequestState.MERGED), ())
    (found,) = forge.open_pull_requests()
    assert found.is_draft
    (comment,) = (home.directory.parent / "forge" / "pulls" / "1").iterdir()
    assert comment.read_text().startswith(
        f"{NOMERGE_HEADING}\n\nThis work was not let pass by everybody:\n\n- forced:PLAN"
    )

    finalize_pull_request(forge, pull, ())
    assert not forge.open_pull_requests()[0].is_draft


@pytest.mark.parametrize(
    ("phase", "pull_request", "thread"),
    [
        ("PLAN", None, Thread(ThreadKind.ISSUE, 1)),
        ("PLAN", 1, Thread(ThreadKind.ISSUE, 1)),
        ("IMPLEMENT", None, Thread(ThreadKind.ISSUE, 1)),
        ("IMPLEMENT", 1, Thread(ThreadKind.PULL_REQUEST, 1)),
        ("DOCS", 1, Thread(ThreadKind.PULL_REQUEST, 1)),
    ],
)
def test_what_is_said_goes_where_people_look_for_it(
    home: Home, forge: Forge, phase: str, pull_request: int | None, thread: Thread
) -> None:
    issue = forge.issue(1)
    assert isinstance(issue, Issue)
    ensure_pull_request(forge, issue, branch="agent/issue-1-x", commit=home.base, base="main")

    assert report_phase(forge, PhaseReport("issue-1", phase, "Judge", 1, "good"), 1, pull_request) == thread
    assert report_phase(forge, PhaseReport("issue-1", phase, "Judge", 1, "good"), 1, pull_request) == thread
    pages = list((home.directory.parent / "forge").glob("*/1/*.md"))
    assert [page.read_text().splitlines()[0] for page in pages] == [
        f"### Phase: {phase} — Judge (iteration 1)"
    ]


def work_off(home: Home, forge: Forge, tainted: int) -> None:
    """Do with the issues what a run does, with a commit in place of agents; it may be done again."""
    fetched = fetch_issues(forge, parse_selection("label:agent"))
    queue = queue_issues(fetched.issues, unfit=fetched.unfit)
    issues = {issue.number: issue for issue in fetched.issues}
    finished: dict[int, str] = {}
    for number in queue.order:
        branch = choose_branch(forge, issues[number])
        base = next((finished[one] for one in reversed(queue.waits_for[number]) if one in finished), None)
        _, agent = home.task(f"issue-{number}", home.git("rev-parse", f"work/{base}") if base else home.base)
        if not (agent.directory / f"{number}.txt").exists():
            agent.commit({f"{number}.txt": "done\n"})
        home.git("branch", "--force", f"work/{branch}", agent.git("rev-parse", "HEAD"))
        commit = home.git("rev-parse", f"work/{branch}")
        pull = ensure_pull_request(forge, issues[number], branch=branch, commit=commit, base=base or "main")
        report_phase(
            forge, PhaseReport(f"issue-{number}", "IMPLEMENT", "Judge", 1, "good"), number, pull.number
        )
        finalize_pull_request(forge, pull, ("forced:IMPLEMENT",) if number == tainted else ())
        finished[number] = branch


def test_five_issues_end_as_four_that_are_ready_and_a_draft(home: Home, forge: Forge) -> None:
    """Run a second time, as after a death at the very end, it adds nothing."""
    hand = Hand(home.directory.parent / "forge")
    for number, body in ((3, "third"), (4, "fourth"), (5, "after #2 and #3")):
        hand.write(f"issues/{number}.md", f"---\ntitle: Issue {number}\nlabels: [agent]\n---\n{body}\n")

    work_off(home, forge, tainted=4)
    pages = sorted(path for path in hand.directory.glob("pulls/**/*.md"))
    work_off(home, forge, tainted=4)

    assert sorted(path for path in hand.directory.glob("pulls/**/*.md")) == pages
    found = forge.open_pull_requests()
    assert [(one.branch, one.is_draft) for one in found] == [
        (f"agent/issue-{number}-issue-{number}", number == 4) for number in (1, 2, 3, 4, 5)
    ]
    bare = Hand(hand.directory / "repository.git")
    last = bare.git("ls-tree", "--name-only", "agent/issue-5-issue-5").split()
    assert {"1.txt", "2.txt", "3.txt", "5.txt"} <= set(last)
    assert "4.txt" not in last


def test_a_package_adds_a_forge(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)

    assert FORGES.names() == ["github", "local", "sample"]
    assert open_forge("sample", {"folder": "../forge"}, home.directory).numbers_with("agent") == (1, 2, 3, 5)
