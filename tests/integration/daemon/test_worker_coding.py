"""Coders and reviewers at work: real git, a real board, real agent processes that follow a script."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board.file import FileBoard
from liza.daemon.turn import AfterTurn
from liza.domain.anomalies import CheckoutDrift, MergeConflict, Workaround
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.config import Gates
from liza.domain.lifecycle import Intend, Reclaim
from liza.domain.model import ProviderState, Status
from liza.domain.record import utc_now
from liza.repo import salvage
from liza.workflow.transition import apply
from tests.support.boards import PATIENCE, PROCESSES, ended_well
from tests.support.child_processes import claim_in_rounds
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

DONE: Final = {"status": "done", "summary": "Change it"}


def reject(reason: str = "it is empty") -> dict[str, Any]:
    feedback = [{"file": "t1.txt", "line": 1, "message": "say more"}]
    return {"answer": {"verdict": "reject", "reason": reason, "feedback": feedback}}


class TestTheWayToMerged:
    def test_a_task_goes_from_idle_to_merged(self, tmp_path: Path) -> None:
        """A coder implements, a reviewer approves and merges; the user's checkout is as it was."""
        team = ScriptedTeam(tmp_path, gates={"test": "test -f t1.txt"})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.merged("t1.txt") == "t1"
        assert team.events() == [
            *("added", "claim", "pre_execution_checkpoint", "submit"),
            *("take_review", "approve", "start_merge", "merge"),
        ]
        assert team.user.git("status", "--porcelain") == ""
        assert not (team.user.directory / "t1.txt").exists()

    def test_a_rejected_task_goes_back_to_its_coder_and_is_mended(self, tmp_path: Path) -> None:
        """The same coder works on in the same worktree, and its agent is told what the review asked for."""
        script = {
            "implement t1 1": {"write": {"t1.txt": ""}, "commit": "begin", "answer": DONE},
            "implement t1 2": {"run": "test -f t1.txt", "write": {"t1.txt": "more\n"}, "answer": DONE},
            "review t1 1": reject(),
        }
        team = ScriptedTeam(tmp_path, script)
        team.task()

        team.turns("coder-1", "reviewer-1")

        task = team.state.task("t1")
        assert (task.status, task.iteration, task.review_cycles_total) == (Status.MERGED, 2, 1)
        assert team.merged("t1.txt") == "more"
        prompts = sorted(path.read_text() for path in (team.home / "runs").glob("*implement/prompt.md"))
        assert ["say more" in text for text in prompts].count(True) == 1

    def test_a_task_that_never_passes_comes_to_an_end(self, tmp_path: Path) -> None:
        """The rounds of a task are limited, and then people are asked."""
        team = ScriptedTeam(tmp_path, {"review": reject()}, limits={"max_coder_iterations": 2})
        team.task()

        team.turns("coder-1", "reviewer-1")

        task = team.state.task("t1")
        assert task.status is Status.BLOCKED
        assert task.blocked_reason == "Max iterations (2) reached without approval"

    def test_a_run_can_be_played_again(self, tmp_path: Path) -> None:
        """Every run is recorded with what it changed, so that the same tasks come to the same tree."""
        script = {
            "implement t1 1": {
                "run": "rm a.txt",
                "write": {"t1.txt": "1"},
                "commit": "one",
                "answer": DONE,
            },
            "implement t1 2": {"write": {"t1.txt": "2\n", "new": "\u00e4"}, "answer": DONE},
            "review t1 1": reject(),
        }
        (tmp_path / "first").mkdir()
        (tmp_path / "again").mkdir()
        first = ScriptedTeam(tmp_path / "first", script)
        first.task()
        first.turns("coder-1", "reviewer-1")
        recording = [str(first.home / "runs"), "0"]

        again = ScriptedTeam(
            tmp_path / "again", agents={"default": {"backend": "replay", "command": recording}}
        )
        again.task()
        again.turns("coder-1", "reviewer-1")

        assert again.status() is Status.MERGED
        assert again.user.git("rev-parse", f"{again.ref}^{{tree}}") == first.user.git(
            "rev-parse", f"{first.ref}^{{tree}}"
        )
        assert "one" in again.user.git("log", "--format=%s", again.ref)

    def test_dependants_wait_until_what_they_need_is_merged(self, tmp_path: Path) -> None:
        """A task begins on a base that has all that it depends on."""
        team = ScriptedTeam(tmp_path, {"implement t2": {"run": "cat t1.txt > t2.txt", "answer": DONE}})
        team.task("t1")
        team.task("t2", depends_on=("t1",), priority=9)

        team.turns("coder-1", "reviewer-1")

        assert team.merged("t2.txt") == "t1"

    def test_nothing_to_do_is_confirmed_by_a_reviewer(self, tmp_path: Path) -> None:
        """A claim that nothing is needed merges nothing, and is judged like any work."""
        answer = {"status": "nothing_to_do", "summary": "it is there"}
        team = ScriptedTeam(tmp_path, {"implement": {"answer": answer}})
        team.task()
        before = team.head()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.NOTHING_TO_DO
        assert team.head() == before

    def test_nothing_to_do_is_not_believed_where_a_command_says_otherwise(self, tmp_path: Path) -> None:
        """What shows that a task is done also shows that it is not."""
        answer = {"status": "nothing_to_do", "summary": "it is there"}
        team = ScriptedTeam(tmp_path, {"implement": {"answer": answer}})
        team.task(done_when=("`test -f wonder.txt` succeeds",))

        team.turns("coder-1")

        task = team.board.read().task("t1")
        assert task.status is Status.BLOCKED
        assert {one.reason for one in task.decisions} == {
            "there is something to do: a done_when line is not met"
        }

    @pytest.mark.parametrize(
        "misdeed",
        ["git checkout -q --detach; echo a > a; git add a; git commit -qm a",
         "echo a > a; git add a; git commit -q --amend -m 'another beginning'"],
        ids=["no branch", "another beginning"],
    )  # fmt: skip
    def test_a_coder_can_mend_what_its_agent_did_to_git(self, tmp_path: Path, misdeed: str) -> None:
        """The next attempt begins on the branch of the task, whatever the last one left."""
        good = {"write": {"x": "x"}, "answer": DONE}
        team = ScriptedTeam(tmp_path, {"implement": [{"run": misdeed, "answer": DONE}, good]})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.merged("x") == "x"

    def test_an_agent_is_not_told_the_token_of_its_task(self, tmp_path: Path) -> None:
        """Who has it can speak for the worker."""
        team = ScriptedTeam(tmp_path, {"implement": {"write": {"x": "x"}, "answer": DONE}})
        team.task()

        team.turns("coder-1")

        briefs = [path.read_text() for path in (team.home / "runs").glob("*/brief.json")]
        assert briefs
        assert not [brief for brief in briefs if "token" in brief]

    def test_what_an_agent_reports_is_on_the_board(self, tmp_path: Path) -> None:
        """Anomalies and discoveries come with the outcome, in one update."""
        answer = {
            **DONE,
            "anomalies": [{"type": "workaround", "what": "a sleep", "root_cause": "a race"}],
            "discovered": [{"description": "the parser is slow", "urgency": "immediate"}],
        }
        team = ScriptedTeam(tmp_path, {"implement": {"write": {"x": "x"}, "answer": answer}})
        team.task()

        team.turn("coder-1")

        state = team.state
        assert state.anomalies["anomaly-1"].details == Workaround(what="a sleep", root_cause="a race")
        assert state.discovered["discovery-1"].task_id == "t1"


class TestWhatAgentsDoWrong:
    @pytest.mark.parametrize(
        ("act", "status", "said"),
        [
            ({"answer": DONE}, Status.IDLE, "nothing was committed"),
            ({"print": "I am done!"}, Status.IDLE, "no answer to the implement step"),
            ({"answer": {"verdict": "approve", "reason": "fine"}}, Status.IDLE, "answer to the review step"),
            ({"exit": 3}, Status.IDLE, "exit code 3"),
            ({}, Status.IDLE, "printed nothing"),
            ({"run": 'rm -rf "$PWD"', "answer": DONE}, Status.IDLE, "is gone"),
            ({"run": "rm .git; echo x > .git", "answer": DONE}, Status.IDLE, "nothing was committed"),
            (
                {"run": "git checkout -q --detach", "write": {"x": "x"}, "answer": DONE},
                Status.IDLE,
                "on no branch",
            ),
        ],
    )
    def test_work_that_is_none_fails_with_a_sentence(
        self, tmp_path: Path, act: dict[str, Any], status: Status, said: str
    ) -> None:
        """Whatever an agent says, the outcome comes from what it did."""
        team = ScriptedTeam(tmp_path, {"implement": act}, workers={"coder": 2})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.failed_by) == (status, ("coder-1",))
        assert said in task.history[-1].facts["reason"]

    def test_who_kills_agents_and_gates_says_nothing_about_the_task(self, tmp_path: Path) -> None:
        """Issue: killed as they started, two coders were used up and the task was BLOCKED."""
        flag = tmp_path / "killed"
        once = f"test -e {flag} || {{ touch {flag}; kill -KILL $$; }}; test -f t1.txt"
        killed = {"run": "kill -KILL $PPID; sleep 60"}
        script = {"implement": [killed, {"exit": 137}, killed]}
        team = ScriptedTeam(tmp_path, script, gates={"test": once}, workers={"coder": 2})
        team.task()

        team.turn("coder-1")
        task = team.state.task("t1")
        assert (task.status, task.failed_by, task.history[-1].event) == (Status.IDLE, (), "release")
        assert task.history[-1].facts["killed"] is True
        told = (team.home / "alerts.log").read_text()
        assert told.count("t1: the agent was killed 4 times in a row; it was killed (SIGKILL) after 0.") == 1

        team.script({"checkpoint": [killed, {"answer": {"intent": "do t1"}}]})
        team.turn("coder-1")
        assert team.status() is Status.READY_FOR_REVIEW
        assert flag.exists()

    @pytest.mark.parametrize(
        ("limit", "said"), [("agent_minutes", "in all"), ("silence_minutes", "no output")]
    )
    def test_an_agent_that_hangs_is_ended_and_the_limit_named(
        self, tmp_path: Path, limit: str, said: str
    ) -> None:
        """Nobody waits for ever, and the record says which limit it was."""
        script = {"implement": {"until": str(tmp_path / "never")}}
        team = ScriptedTeam(tmp_path, script, limits={limit: 0.015}, workers={"coder": 2})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert task.failed_by == ("coder-1",)
        assert said in task.history[-1].facts["reason"]

    def test_an_unreadable_answer_is_asked_for_once_more(self, tmp_path: Path) -> None:
        """The second try sees what was wrong with the first, and counts."""
        team = ScriptedTeam(
            tmp_path,
            {
                "implement": [
                    {"write": {"x": "x"}, "print": "```liza\nstatus: perhaps\n```\n"},
                    {"answer": DONE},
                ]
            },
        )
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.READY_FOR_REVIEW
        again = [
            path
            for path in (team.home / "runs").glob("*implement/prompt.md")
            if "perhaps" in path.read_text()
        ]
        assert len(again) == 1

    def test_a_checkpoint_that_changes_the_worktree_is_put_back(self, tmp_path: Path) -> None:
        """Nothing is implemented before it was said what will be; what was done is saved."""
        early = {
            "write": {"early.txt": "x"},
            "run": "rm a.txt",
            "commit": "early",
            "answer": {"intent": "write it"},
        }
        team = ScriptedTeam(tmp_path, {"checkpoint": [early, {"answer": {"intent": "write it"}}]})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.user.git("ls-tree", "--name-only", team.ref).split() == [
            ".gitignore",
            "a.txt",
            "src",
            "t1.txt",
        ]
        saved = salvage.list_salvages(team.user.repository, "t1")
        assert len(saved) == 1

    def test_a_command_that_does_not_exist_blocks_the_task(self, tmp_path: Path) -> None:
        """A wrong setting is for a person: no coder is to blame."""
        team = ScriptedTeam(tmp_path, agents={"default": {"command": ["no-such-agent"]}})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert task.status is Status.BLOCKED
        assert "no-such-agent" in str(task.blocked_reason)

    def test_an_agent_that_reaches_into_the_users_repository_stops_everybody(self, tmp_path: Path) -> None:
        """Drift is an anomaly with what moved, a PAUSE that says so, and a blocked task."""
        team = ScriptedTeam(tmp_path)
        hook = "mkdir ../../.git/hooks; touch ../../.git/hooks/pre-push"
        team.script({"implement": {"run": hook, "write": {"t1.txt": "1"}, "answer": DONE}})
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.BLOCKED
        details = team.state.anomalies["anomaly-1"].details
        assert isinstance(details, CheckoutDrift)
        assert "pre-push" in details.moved[0]
        assert "pre-push" in (team.home / "PAUSE").read_text()

    def test_a_task_that_nobody_can_do_is_not_tried_for_ever(self, tmp_path: Path) -> None:
        """Two coders, or two rounds of the only one, are enough; then somebody has to think."""
        team = ScriptedTeam(tmp_path, {"implement": {"exit": 1}})
        team.task()

        team.turns("coder-1")
        team.turns("planner-1")

        task = team.state.task("t1")
        assert (task.status, task.iteration) == (Status.BLOCKED, 2)
        assert task.asked is not None


class TestIntegration:
    def both_change_the_same_line(self, tmp_path: Path, mended: dict[str, Any]) -> ScriptedTeam:
        script = {
            "implement t1": {"write": {"a.txt": "one\nT1\nthree\n"}, "answer": DONE},
            "implement t2 1": {"write": {"a.txt": "one\nT2\nthree\n"}, "answer": DONE},
            "implement t2 2": mended,
        }
        team = ScriptedTeam(tmp_path, script)
        team.task("t1")
        team.task("t2")
        team.turn("coder-1")
        team.turn("coder-1")
        team.turn("reviewer-1")
        return team

    def test_a_conflict_goes_back_to_the_coder_who_resolves_it(self, tmp_path: Path) -> None:
        """The work is laid over the new base with marks, and no commit with marks is ever merged."""
        command = "grep -q '<<<<<<<' a.txt && printf 'one\\nT1 T2\\nthree\\n' > a.txt"
        mended = {"run": command, "answer": DONE}
        team = self.both_change_the_same_line(tmp_path, mended)

        team.turn("reviewer-1")
        failed = team.state.task("t2")
        assert (failed.status, failed.integration_failure and failed.integration_failure.paths) == (
            Status.INTEGRATION_FAILED,
            ("a.txt",),
        )
        team.turns("coder-1", "reviewer-1")

        assert team.status("t2") is Status.MERGED
        assert team.merged("a.txt") == "one\nT1 T2\nthree"
        assert "<<<<<<<" not in team.user.git("log", "-p", team.ref)

    def test_names_and_output_that_are_no_text_do_no_harm(self, tmp_path: Path) -> None:
        """Whatever bytes a file, its name or a test's output has, they can be shown and kept."""
        name = "$(printf 'n\\344me')"
        script = {
            "implement t1 1": {"run": f"printf '\\344\\377\\n' > {name}; printf '\\344' > x", "answer": DONE},
            "implement t1 2": {"run": f"rm {name}", "answer": DONE},
        }
        noise = "printf '\\033[31mred\\000\\377\\n'; test ! -f x"
        team = ScriptedTeam(tmp_path, script, gates={"test": noise})
        team.task("t1")
        team.turn("coder-1")
        assert team.status("t1") is Status.REJECTED
        assert [item.file for item in team.state.task("t1").rejection_feedback] == ["n\\xe4me"]
        team.turn("coder-1")
        assert "red" in str(team.state.task("t1").verdicts[-1])

        team.board.update(self.without_gates())
        team.turns("coder-1", "reviewer-1")

        assert team.status("t1") is Status.MERGED
        assert FileBoard(team.home).read() == team.state

    def without_gates(self) -> Change:
        return Change(
            "human", "no gates", lambda state: state.replace(config=state.config.replace(gates=Gates()))
        )

    def test_marks_of_a_conflict_are_never_handed_in(self, tmp_path: Path) -> None:
        """A coder that only says that it resolved the conflict has failed."""
        team = self.both_change_the_same_line(tmp_path, {"answer": DONE})
        team.turn("reviewer-1")

        team.turn("coder-1")

        task = team.state.task("t2")
        assert (task.status, task.failed_by) == (Status.IDLE, ("coder-1",))
        assert "conflict marks are left in a.txt" in task.history[-1].facts["reason"]

    def test_a_conflict_that_stays_one_asks_people_who_resolve_it(self, tmp_path: Path) -> None:
        """An anomaly, a question, and their note lets the merge be tried again."""
        team = ScriptedTeam(tmp_path)
        team.task("t2")
        script = {"implement t2": {"write": {"a.txt": "one\nT2\nthree\n"}, "answer": DONE}}
        for number in range(3):
            team.script(script)
            team.turn("coder-1")
            self.people_merge(team, f"one\nP{number}\nthree\n")
            team.turn("reviewer-1")

        assert team.status("t2") is Status.BLOCKED
        assert team.state.anomalies["anomaly-1"].details == MergeConflict(paths=("a.txt",))

        self.people_resolve(team)
        team.note("Conflict resolved for t2")
        team.turns("reviewer-1")
        assert team.status("t2") is Status.MERGED
        assert team.merged("a.txt") == "one\nP2 and T2\nthree"

    def people_merge(self, team: ScriptedTeam, text: str) -> None:
        blob = team.user.write("../outside/blob", text)
        name = team.user.git("hash-object", "-w", str(blob))
        self.commit(team, name, team.head())

    def commit(self, team: ScriptedTeam, blob: str, *parents: str) -> None:
        index = {"GIT_INDEX_FILE": str(team.outside / "index")}
        team.user.git("read-tree", parents[0], **index)
        team.user.git("update-index", "--cacheinfo", f"100644,{blob},a.txt", **index)
        tree = team.user.git("write-tree", **index)
        words = [word for parent in parents for word in ("-p", parent)]
        made = team.user.git("commit-tree", *words, "-m", "by hand", tree)
        team.user.git("update-ref", team.ref, made)

    def people_resolve(self, team: ScriptedTeam) -> None:
        blob = team.user.write("../outside/blob", "one\nP2 and T2\nthree\n")
        name = team.user.git("hash-object", "-w", str(blob))
        self.commit(team, name, team.head(), "task/t2")

    def test_a_red_gate_leaves_the_branch_where_it_was(self, tmp_path: Path) -> None:
        """Each is green alone, and they are red together: the tree that would be merged is tested first."""
        script = {
            "implement t2 1": {
                "run": "for n in 1 2 3; do touch $n; git add -A; git commit -qm $n; done",
                "answer": DONE,
            },
            "implement t2 2": {"write": {"green": ""}, "answer": DONE},
        }
        red_together = "ls; echo it is red; ! test -f 3 || ! test -f t1.txt || test -f green"
        team = ScriptedTeam(tmp_path, script, gates={"test": red_together})
        team.task("t1")
        team.task("t2")
        team.turn("coder-1")
        team.turn("coder-1")
        team.turn("reviewer-1")
        before = team.head()

        team.turn("reviewer-1")

        task = team.state.task("t2")
        assert (task.status, team.head()) == (Status.INTEGRATION_FAILED, before)
        assert "it is red" in str(task.integration_failure)
        team.turns("coder-1", "reviewer-1")
        assert team.status("t2") is Status.MERGED
        assert team.merged("3") == ""

    def test_work_that_is_red_by_itself_never_reaches_a_reviewer(self, tmp_path: Path) -> None:
        """The coder gets it back with the output, and no reviewer's agent is spent on it."""
        script = {"implement t1 2": {"write": {"green": ""}, "answer": DONE}}
        team = ScriptedTeam(
            tmp_path, script, gates={"test": "echo it is red; test ! -f t1.txt || test -f green"}
        )
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.review_cycles_total) == (Status.REJECTED, 0)
        assert task.verdicts[-1].gate == "test"
        assert "it is red" in str(task.verdicts[-1].evidence)
        team.turns("coder-1", "reviewer-1")
        assert team.status() is Status.MERGED

    def moved_but_not_recorded(self, tmp_path: Path) -> ScriptedTeam:
        """Return a team whose reviewer died right after it moved the ref."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        place = team.worker("reviewer-1")

        class Dying:
            def __getattr__(self, name: str) -> object:
                return getattr(team.board, name)

            def update(self, change: Any) -> object:  # noqa: ANN401 - as a board's
                if change(team.board.read()).task("t1").status is Status.MERGED:
                    raise RuntimeError("power cut")
                return team.board.update(change)

        place.board = Dying()  # type: ignore[assignment]
        with pytest.raises(RuntimeError):
            team.turn("reviewer-1")
        team.board.update(apply(Reclaim(reason="it died"), to="t1", by=SUPERVISOR, at=utc_now()))
        return team

    def test_a_reviewer_that_died_after_the_ref_moved_is_made_up_for(self, tmp_path: Path) -> None:
        """What is on the branch becomes MERGED, and is not merged again."""
        team = self.moved_but_not_recorded(tmp_path)
        moved = team.head()

        team.turns("reviewer-2")

        assert (team.status(), team.head()) == (Status.MERGED, moved)

    def test_a_late_reviewers_merge_is_not_made_twice(self, tmp_path: Path) -> None:
        """The branch is the truth, even where the board says that somebody else began another merge."""
        team = self.moved_but_not_recorded(tmp_path)
        moved = team.head()
        other = team.user.git("commit-tree", "-p", team.user.base, "-m", "x", f"{moved}^{{tree}}")
        began = Intend(onto=team.user.base, commit=other)
        team.board.update(apply(began, to="t1", by=SUPERVISOR, at=utc_now()))

        team.turns("reviewer-2")

        assert (team.status(), team.head()) == (Status.MERGED, moved)
        assert team.state.task("t1").merge_commit == moved


class TestReviewing:
    def test_two_reviewers_never_take_one_review(self, tmp_path: Path) -> None:
        """Whoever takes it has a lease that the other sees."""
        team = ScriptedTeam(
            tmp_path, {"review": {"note": str(tmp_path / "note"), "until": str(tmp_path / "go")}}
        )
        team.task()
        team.turn("coder-1")

        with team.process("reviewer-1"):
            state = team.until(lambda state: state.task("t1").lease is not None)
            assert team.turn("reviewer-2") is AfterTurn.WAIT
            assert state.task("t1").lease is not None

    def test_no_verdict_twice_is_no_pass(self, tmp_path: Path) -> None:
        """A missing verdict asks people."""
        team = ScriptedTeam(tmp_path, {"review": {"print": "Looks good to me, I approve!"}})
        team.task()

        team.turns("coder-1", "reviewer-1")

        task = team.state.task("t1")
        assert task.status is Status.BLOCKED
        assert "no verdict twice" in str(task.blocked_reason)

    def test_no_verdict_twice_sends_it_back_where_the_workflow_says_so(self, tmp_path: Path) -> None:
        team = ScriptedTeam(
            tmp_path, {"review": {"print": "Looks good to me, I approve!"}}, workflow="flows/ours.yaml"
        )
        text = files("liza.workflow").joinpath("liza.yaml").read_text(encoding="utf-8")
        (team.user.directory / "flows").mkdir()
        (team.user.directory / "flows/ours.yaml").write_text(
            text.replace("on_none: block", "on_none: revise")
        )
        team.task()

        team.turn("coder-1")
        team.turn("reviewer-1")

        task = team.state.task("t1")
        assert task.status is Status.REJECTED
        assert "no verdict twice" in str(task.rejection_reason)

    def test_a_reviewer_that_destroys_its_checkout_gives_no_verdict(self, tmp_path: Path) -> None:
        """Whatever it says, there is nothing left that it could have judged."""
        act = {"run": 'rm -rf "$PWD"', "answer": {"verdict": "approve", "reason": "gone is good"}}
        team = ScriptedTeam(tmp_path, {"review": act})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.BLOCKED

    def test_what_tests_leave_behind_is_no_edit(self, tmp_path: Path) -> None:
        """A reviewer runs the tests, and those make files."""
        act = {"write": {"cache/x": "x"}, "answer": {"verdict": "approve", "reason": "green"}}
        team = ScriptedTeam(tmp_path, {"review": act})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.user.git("ls-tree", "--name-only", team.ref, "cache") == ""

    def test_a_reviewer_that_edits_gives_no_verdict(self, tmp_path: Path) -> None:
        """A verdict on a tree that the reviewer changed is void."""
        act = {"write": {"t1.txt": "better"}, "answer": {"verdict": "approve", "reason": "I mended it"}}
        team = ScriptedTeam(tmp_path, {"review": act})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.BLOCKED


class TestWhatIsNobodysFault:
    def replayed(self, tmp_path: Path, *runs: dict[str, Any]) -> ScriptedTeam:
        """Return a team whose agents are played from a recording."""
        recording = tmp_path / "recording.yaml"
        team = ScriptedTeam(
            tmp_path, agents={"default": {"backend": "replay", "command": [str(recording), "0"]}}
        )
        first = {"role": "coder", "step": "checkpoint", "reply": '```liza\n{"intent": "write it"}\n```'}
        recording.write_text(json.dumps({"runs": [{"task": "t1", **run} for run in (first, *runs)]}))
        team.task()
        return team

    def test_a_full_context_hands_over_and_starts_afresh(self, tmp_path: Path) -> None:
        """What was done is committed, the last words reach the next run, and nobody failed."""
        run = {"role": "coder", "step": "implement", "files": {"t1.txt": "half\n"}}
        done = {**run, "files": {"t1.txt": "whole\n"}, "reply": f"```liza\n{json.dumps(DONE)}\n```"}
        full = {**run, "reply": "I was about to write the rest", "ending": "context_full"}
        team = self.replayed(tmp_path, full, done)

        assert team.turn("coder-1") is AfterTurn.RESTART
        task = team.state.task("t1")
        assert (task.status, task.failed_by) == (Status.IDLE, ())
        assert team.state.handoff["t1"].summary == "I was about to write the rest"
        assert team.user.git("show", "task/t1:t1.txt") == "half"

        team.turn("coder-1")
        task = team.state.task("t1")
        assert (task.status, task.iteration, task.attempt) == (Status.READY_FOR_REVIEW, 1, 2)
        assert "t1" not in team.state.handoff
        prompts = [path.read_text() for path in (team.home / "runs").glob("*implement/prompt.md")]
        assert ["about to write the rest" in text for text in prompts].count(True) == 1

    def test_a_rate_limit_is_nobodys_failure(self, tmp_path: Path) -> None:
        """The task is free at once, and the board says until when its provider is left alone."""
        limited = {"role": "coder", "step": "implement", "reply": "", "ending": "rate_limited", "why": "429"}
        team = self.replayed(tmp_path, limited)

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.failed_by, task.history[-1].event) == (Status.IDLE, (), "release")
        assert team.state.providers["replay"].state is ProviderState.LIMITED
        assert team.turn("coder-1") is AfterTurn.WAIT


class TestTheRepository:
    def test_a_vanished_integration_branch_pauses_everybody(self, tmp_path: Path) -> None:
        """Nothing is guessed: people put it back, and the work goes on."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        head = team.head()
        team.user.git("update-ref", "-d", team.ref)

        team.turn("reviewer-1")

        assert team.status() is Status.APPROVED
        assert "is gone" in (team.home / "PAUSE").read_text()
        (team.home / "PAUSE").unlink()
        team.user.git("update-ref", team.ref, head)
        team.turns("reviewer-1")
        assert team.status() is Status.MERGED

    def test_a_branch_that_the_user_checked_out_is_not_moved_under_their_feet(self, tmp_path: Path) -> None:
        """The sentence says what to do; nothing of theirs changes."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        team.user.git("checkout", "--quiet", team.ref.removeprefix("refs/heads/"))

        team.turn("reviewer-1")

        assert team.user.git("status", "--porcelain") == ""
        assert team.status() is Status.APPROVED
        assert "checked out" in (team.home / "PAUSE").read_text()

    def test_a_deleted_worktree_is_made_again(self, tmp_path: Path) -> None:
        """What was committed is on the branch, and the coder goes on from there."""
        first = {"write": {"t1.txt": "1"}, "commit": "first", "answer": DONE}
        script = {"review t1 1": reject(), "implement t1 1": first}
        team = ScriptedTeam(tmp_path, script)
        team.task()
        team.turn("coder-1")
        team.turn("reviewer-1")
        shutil.rmtree(team.user.worktrees.path_of("t1"))

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert "first" in team.user.git("log", "--format=%s", team.ref)


ROUNDS: Final = 100


def test_one_of_four_coders_wins(tmp_path: Path) -> None:
    """Pains B: four coders claimed one task and broke the board in 20 of 20 rounds; here one wins in each."""
    team = ScriptedTeam(tmp_path, workers={"coder": 4}, limits={"max_unmerged": ROUNDS})
    names = [f"coder-{number}" for number in range(1, 5)]
    start = PROCESSES.Barrier(len(names) + 1)
    pipes = {name: PROCESSES.Pipe(duplex=False) for name in names}
    coders = [
        PROCESSES.Process(target=claim_in_rounds, args=(team.home, name, ROUNDS, start, pipes[name][1]))
        for name in names
    ]
    for coder in coders:
        coder.start()
    winners = []
    for number in range(ROUNDS):
        team.task(f"t{number}")
        start.wait(PATIENCE)
        said = {name: pipe.recv() for name, (pipe, _) in pipes.items()}
        won = [name for name, task in said.items() if task == f"t{number}"]
        assert len(won) == 1, said
        assert [task for task in said.values() if task] == [f"t{number}"]
        assert team.state.task(f"t{number}").assigned_to == won[0]
        winners += won
    ended_well(coders)
    assert len(winners) == ROUNDS
    assert [entry.what for entry in team.board.entries() if entry.what.startswith("claim")] == [
        f"claim t{number}" for number in range(ROUNDS)
    ]
