"""Issues of a forge, walked to their pull requests by real workers with scripted agents."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.cli.views.report import gather_report, report_markdown
from liza.daemon.policy import pick
from liza.daemon.policy.recovery import reclaim_tasks
from liza.domain.changes import HUMAN
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.forges.gh import WAITS
from liza.forges.local import BARE
from liza.repo.command import git
from liza.workflow.transition import accept_task, reply
from tests.support import scripted_gh
from tests.support.local_forge import APPROVE, REJECT, SETTINGS, SIMPLE, WORK, ForgeFolder, script
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import Task

ALL: Final = ("planner-1", "coder-1", "reviewer-1")
BRANCH: Final = "agent/issue-7-write-file-7"
TRIES: Final = 1 + len(WAITS)


@pytest.fixture
def forge(tmp_path: Path) -> ForgeFolder:
    return ForgeFolder(tmp_path / "forge")


def simple(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent may be told
    return script(**{"review/complexity_assessor": SIMPLE, **more})


def team_on(directory: Path, issues: str, told: dict[str, Any] | None = None) -> ScriptedTeam:
    return ScriptedTeam(directory, told or simple(), **SETTINGS, issues=issues)


def reason(team: ScriptedTeam, number: int) -> str | None:
    return reason_of(team.state.task(f"issue-{number}"))


def reason_of(task: Task) -> str | None:
    return task.blocked_reason if task.status is Status.BLOCKED else None


def prompts(team: ScriptedTeam, step: str) -> list[str]:
    """Return what the agents of *step* were given, oldest first."""
    folders = sorted((team.home / "runs").glob(f"*.{step}"), key=lambda path: path.stat().st_mtime)
    return [(folder / "prompt.md").read_text() for folder in folders]


class TestIssues:
    """Where tasks come from: numbers or a label, in the order in which they can be done."""

    def test_an_issue_becomes_one_pull_request_that_is_ready(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7, "Write the file.")
        team = team_on(tmp_path, "7")
        team.turns(*ALL)

        task = team.state.task("issue-7")
        assert (task.status, task.description) == (
            Status.COMPLETE,
            "Issue #7: Write file 7\n\nWrite the file.",
        )
        assert forge.pulls() == {BRANCH: False}
        assert forge.bases() == {BRANCH: "main"}
        assert git("rev-parse", BRANCH, cwd=forge.path / BARE) == task.review_commit
        assert sorted(forge.headings()) == [
            "issues/7 ### Phase: PLAN — complexity_assessor (iteration 1)",
            "issues/7 ### Phase: PLAN — thinker (iteration 1)",
            *(
                f"pulls/1 ### Phase: {phase} — {role} (iteration 1)"
                for phase in ("DOCS", "IMPLEMENT")
                for role in ("judge", "reviewer", "worker")
            ),
        ]

        told = report_markdown(gather_report(team.board, utc_now()))
        assert "## Merged\n\n- nothing" in told
        assert "git merge" not in told
        assert "- **issue-7** (COMPLETE): Issue \\#7: Write file 7" in told

    def test_work_that_is_there_is_gone_on_with(self, tmp_path: Path, forge: ForgeFolder) -> None:
        forge.issue(7)
        team = team_on(tmp_path, "7")
        git("init", "--quiet", "--bare", str(forge.path / BARE), cwd=forge.path)
        old = team.user.commit({"old.txt": "old\n"})
        team.user.git("push", "--quiet", str(forge.path / BARE), f"{old}:refs/heads/bug/issue-7-of-old")
        team.turns(*ALL)

        task = team.state.task("issue-7")
        assert (task.status, task.base_commit) == (Status.COMPLETE, old)
        assert "go on with it" in task.description
        assert forge.pulls() == {"bug/issue-7-of-old": False}

    def test_what_cannot_be_worked_on_is_blocked_with_a_sentence_and_the_rest_is_not(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(1, "after #2")
        forge.issue(2, "after #1")
        forge.issue(4, state="closed")
        forge.issue(5, "")
        forge.issue(6, "Requires #9.")
        forge.issue(7, "Depends on #8.")
        forge.issue(8)
        team = team_on(tmp_path, "1-8")
        team.turn("planner-1")

        assert "#1 waits for #2" in str(reason(team, 1))
        assert "#2" in str(reason(team, 2))
        assert reason(team, 3) == "there is no issue #3; look at the number"
        assert reason(team, 4) == "issue #4 is closed; reopen it, or leave it out"
        assert reason(team, 5) == "issue #5 has no text; say in it what is to be done"
        assert "nobody works on #9; add it to the issues" in str(reason(team, 6))
        rest = [(name, task.depends_on) for name, task in team.state.tasks.items() if reason_of(task) is None]
        assert rest == [("issue-8", ()), ("issue-7", ("issue-8",))]

        forge.issue(4, "Do the fourth.")
        for name in ("issue-4", "issue-5"):
            team.board.update(reply(name, "it is mended", by=HUMAN, at=utc_now()))
        assert pick.pick_work(team.state, "coder-1") == team.state.task("issue-8")
        team.turn("planner-1")
        assert team.state.task("issue-4").description == "Issue #4: Write file 4\n\nDo the fourth."
        assert reason(team, 5) == "issue #5 has no text; say in it what is to be done"

    def test_a_label_that_nobody_has_pauses_the_run_with_a_sentence(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(1, label="other")
        team = team_on(tmp_path, "label:agent")

        team.turn("planner-1")

        said = team.board.switches.thrown()
        assert "no open issue has the label 'agent'; look at how it is spelt" in str(said)
        assert not team.state.tasks


class TestHandoffs:
    """What a phase tells the next, and that a plan has to."""

    def test_a_plan_that_hands_nothing_on_is_sent_back_before_anybody_judges_it(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7, "Write the file that nobody but a planner reads of.")
        said = {"files_to_create": ["issue-7.txt"], "implementation_steps": "none", "mood": "good"}
        plans = [
            {"answer": {"status": "done", "summary": "Write it"}},
            {"answer": {"status": "done", "summary": "Write it", "handoff": said}},
        ]
        team = team_on(tmp_path, "7", simple(**{"implement/thinker": plans}))
        team.turn("planner-1")
        team.turn("coder-1")

        task = team.state.task("issue-7")
        assert (task.status, task.rejection_reason) == (
            Status.REJECTED,
            "nothing is handed on to the next phase",
        )
        assert "add `handoff` with summary" in task.rejection_feedback[0].message
        assert not prompts(team, "review")
        team.turns(*ALL)

        assert team.status("issue-7") is Status.COMPLETE
        first, again, work, docs = prompts(team, "implement")
        told = [one.count("nobody but a planner reads") for one in (first, again, work, docs)]
        assert [bool(times) for times in told] == [True, True, False, False]
        assert "add `handoff` with summary" in again
        assert "The plan: Write it\n\nFiles to create:\n- issue-7.txt" in work
        assert "mood" not in work
        assert "Files that were changed:\n- issue-7.txt" in docs
        assert "nobody but a planner reads" in prompts(team, "review")[0]
        work_done = json.loads(team.state.task("issue-7").artifacts["work_handoff"].text)
        assert [one["message"] for one in work_done["commits"]] == ["Write it"]

    def test_who_reviews_a_plan_is_asked_otherwise_than_who_reviews_code(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        team = team_on(tmp_path, "7", script())
        team.turns(*ALL)

        assert team.status("issue-7") is Status.COMPLETE
        told = prompts(team, "review")
        assert sum("the reviewer of a plan" in one for one in told) == 1
        assert sum("the reviewer of what was done" in one for one in told) == 2
        assert sum("Your part is the judge" in one for one in told) == 3


class TestPullRequests:
    """What is shown to people, and when."""

    def test_what_the_judge_never_lets_pass_stays_a_draft_and_says_why(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        fact = {"remember": [{"type": "KEY_FACT", "text": "files end in a line"}]}
        work = {**WORK, "answer": {**WORK["answer"], **fact}}
        team = team_on(tmp_path, "7", simple(**{"review/judge": REJECT, "implement/worker": work}))
        team.turns(*ALL)

        task = team.state.task("issue-7")
        assert git("rev-parse", BRANCH, cwd=forge.path / BARE) == task.review_commit
        assert "pulls/1 ### Phase: IMPLEMENT — judge (iteration 2)" in forge.headings()
        assert task.status is Status.AWAITING_APPROVAL
        assert forge.pulls() == {BRANCH: True}
        assert ["forced:IMPLEMENT" in one for one in forge.nomerge()] == [True]
        told = prompts(team, "implement")
        assert ["Judge directives: no; more" in one for one in told] == [False, False, True, False]
        assert ["files end in a line" in one for one in told] == [False, False, True, True]
        assert "IMPLEMENT: its rounds were over, and it went on all the same" in told[3]

        team.board.update(accept_task("issue-7", "good enough", by=HUMAN, at=utc_now()))
        team.turns(*ALL)
        assert team.status("issue-7") is Status.COMPLETE
        assert forge.pulls() == {BRANCH: True}

    def test_work_that_was_forced_once_and_let_pass_later_is_accepted_by_a_person(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        team = team_on(tmp_path, "7", simple(**{"review/judge": [REJECT, REJECT, APPROVE]}))
        team.turns(*ALL)

        task = team.state.task("issue-7")
        assert (task.status, [one.mark for one in task.taints]) == (
            Status.AWAITING_APPROVAL,
            ["forced:IMPLEMENT"],
        )
        asked = "issue-7: Is it good as it is, though the rounds of IMPLEMENT were over?"
        assert task.approval_question == asked
        assert "- forced:IMPLEMENT: the rounds of IMPLEMENT were over" in forge.nomerge()[0]
        # The plan and the documentation were let pass; what went on by force was not.
        (counted,) = team.state.sprint.metrics.reviews.values()
        assert (counted.approved, counted.rejected) == (2, 2)
        team.board.update(accept_task("issue-7", "good enough", by=HUMAN, at=utc_now()))
        task = team.state.task("issue-7")
        assert (task.status, task.approved_by) == (Status.COMPLETE, HUMAN.id)

    def test_what_had_begun_when_a_worker_was_killed_is_known_and_done_once(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        team = team_on(tmp_path, "7")
        for name in ("planner-1", "coder-1", "reviewer-1"):
            team.turn(name)
        planned = team.state.task("issue-7").position
        assert planned
        assert planned.phase == "IMPLEMENT"
        (forge.path / "pulls").mkdir()
        os.mkfifo(forge.path / "pulls/9.md")  # whoever looks for pull requests now waits for ever

        with team.process("coder-1"):
            state = team.until(lambda state: state.task("issue-7").intended is not None)
        intent = state.task("issue-7").intended
        assert intent
        assert (intent.effects, intent.by) == (("ensure_draft_pr",), "coder-1")
        assert intent.commit
        (forge.path / "pulls/9.md").unlink()
        team.board.update(reclaim_tasks((), at=utc_now(), killed=True))
        task = team.state.task("issue-7")
        assert "ensure_draft_pr had begun for it" in task.history[-1].facts["reason"]
        team.turns(*ALL)

        task = team.state.task("issue-7")
        assert (task.status, task.intended) == (Status.COMPLETE, None)
        assert forge.pulls() == {BRANCH: False}

    def test_what_was_shown_as_ready_by_who_died_is_a_draft_again_where_it_is_not_wanted_any_more(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        team = team_on(tmp_path, "7", script())
        for name in ("planner-1", *("coder-1", "reviewer-1") * 2, "coder-1"):
            team.turn(name)
        here = team.state.task("issue-7").position
        assert here
        assert (here.phase, here.worked) == ("DOCS", True)
        with team.process(
            "reviewer-1", dies_at="pulls/1/liza-"
        ) as worker:  # where it comments, after the mark
            assert worker.wait(60) == -signal.SIGKILL
        assert forge.pulls() == {BRANCH: False}
        intent = team.state.task("issue-7").intended
        assert intent
        assert intent.effects == ("finalize_pr",)
        team.board.update(reclaim_tasks((), at=utc_now(), killed=True))
        team.script(script(**{"review/judge": REJECT}))
        team.turn("reviewer-1")

        task = team.state.task("issue-7")
        assert (task.status, task.intended) == (Status.REJECTED, None)
        assert task.history[-1].facts["effects"] == {"finalize_pr": "pull request #1 is a draft again"}
        assert forge.pulls() == {BRANCH: True}

        team.script(script())
        team.turns(*ALL)
        assert team.status("issue-7") is Status.COMPLETE
        assert forge.pulls() == {BRANCH: False}

    def test_a_forge_that_refuses_blocks_the_task_and_it_goes_on_once_that_is_mended(
        self, tmp_path: Path, forge: ForgeFolder
    ) -> None:
        forge.issue(7)
        forge.issue(8, "after #7")
        team = team_on(tmp_path, "7-8")
        for _ in range(2):
            team.turn("planner-1")
        (forge.path / "pulls").write_text("not a directory")
        team.turns(*ALL)

        assert "cannot" in str(reason(team, 7))
        assert "issue-7 is BLOCKED: cannot publish the work" in str(reason(team, 8))

        (forge.path / "pulls").unlink()
        team.board.update(reply("issue-7", "it is mended", by=HUMAN, at=utc_now()))
        team.turns(*ALL)
        assert team.status("issue-7") is Status.COMPLETE
        assert forge.pulls() == {BRANCH: False}


@pytest.mark.torture  # it waits as long as a run does
def test_a_forge_that_stays_out_of_order_blocks_one_task_with_one_sentence_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"title": "Write it", "body": "Do it.", "state": "OPEN", "labels": [], "comments": []}
    issues = {str(number): {**usual, "url": f"https://github.com/o/r/issues/{number}"} for number in (7, 8)}
    github = scripted_gh.install(tmp_path / "bin", issues)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    forge = {"github": {"repository": scripted_gh.REPOSITORY}}
    team = ScriptedTeam(tmp_path, simple(), workflow="phased", forge=forge, issues="7-8")
    git("init", "--quiet", "--bare", str(tmp_path / "origin.git"), cwd=tmp_path)
    team.user.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    for name in ("planner-1", "coder-1", "reviewer-1"):
        team.turn(name)
    fault = {"code": 1, "said": "HTTP 502: Bad Gateway"}
    github.write_text(json.dumps({**json.loads(github.read_text()), "faults": [fault] * TRIES}))
    team.turns(*ALL)

    ends = sorted(task.status for task in team.state.tasks.values())
    assert ends == [Status.BLOCKED, Status.COMPLETE]
    (said,) = [reason_of(task) for task in team.state.tasks.values() if reason_of(task)]
    assert f"(tried {TRIES} times)" in str(said)
    assert "502" in str(said)
    assert "\n" not in str(said)
