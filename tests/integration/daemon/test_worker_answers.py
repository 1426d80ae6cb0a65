"""What becomes of answers that cannot be used, and of work whose answer cannot be read."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from liza.cli.views import costs, progress
from liza.cli.views.past import BoardPast
from liza.cli.views.runs import RunFolder
from liza.daemon.reports.metrics import figures_table, of_sprint
from liza.domain.changes import Change
from liza.domain.config import Config
from liza.domain.model import Status
from liza.domain.record import utc_now
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

# Claude Code as far as a session goes: it notes whether its home was kept, and forgets the block at first.
CLAUDE = """#!{python}
import json, pathlib, sys
kept = pathlib.Path.home() / "session"
words, prompt = sys.argv[1:], sys.stdin.read()
with open({log!r}, "a") as log:
    log.write(json.dumps({{"words": words, "prompt": prompt, "was_kept": kept.exists()}}) + "\\n")
kept.touch()
pathlib.Path("t1.txt").write_text("t1\\n")
if {breaks} and "--resume" in words:
    sys.exit("No conversation found with session ID s-1")
asked = "answer" in prompt and "Only the answer" in prompt
said = "```liza\\nstatus: done\\nsummary: Add t1\\n```" if asked else "I did it."
end = {{"type": "result", "subtype": "success", "is_error": False, "result": said, "session_id": "s-1"}}
print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s-1"}}))
print(json.dumps(end))
"""
DONE = {"status": "done", "summary": "Add t1"}
APPROVED = {"verdict": "approve", "reason": "it is there"}


def briefs(team: ScriptedTeam, step: str) -> list[dict[str, Any]]:
    """Return what was asked in *step*, in order."""
    found = [json.loads(path.read_text()) for path in (team.home / "runs").glob(f"*.{step}/brief.json")]
    return sorted(found, key=lambda brief: int(brief["run"].split(".")[2].partition("-")[0]))


class TestSecondTries:
    def test_only_the_block_is_asked_for_and_people_see_it(self, tmp_path: Path) -> None:
        """A short prompt with the reply, not the task again; counted, told, and its own line of the bill."""
        slip = {"write": {"t1.txt": "t1\n"}, "print": "All of it is there. I am at ease.\n"}
        team = ScriptedTeam(tmp_path, {"implement": [slip, {"answer": DONE}]})
        team.task()
        before = team.state

        team.turn("coder-1")

        assert team.status() is Status.READY_FOR_REVIEW
        first, second = briefs(team, "implement")
        assert len(second["prompt"]) < len(first["prompt"]) / 2
        assert "| All of it is there." in second["prompt"]
        assert "t1.txt is there" not in second["prompt"]
        assert (second["is_again"], second["only_answer"]) == (True, True)

        told = [str(one) for one in progress.news_between(before, team.state)]
        assert [one for one in told if "t1: answer to implement refused (the reply has no answer" in one]
        assert [entry for entry in team.board.entries() if entry.what == "refuse_answer t1"]
        assert "refused answers         1 implement\n" in figures_table(of_sprint(team.state, utc_now()))
        moves = BoardPast().extend(team.board.entries()).moves
        paid = costs.run_costs(RunFolder(team.home).records(), team.state, moves)
        assert [
            line
            for line in costs.cost_lines(paid, team.state)
            if line.startswith("Second tries               1 runs")
        ]
        assert costs.costs_json(paid, team.state)["second_tries"]["runs"] == 1
        kinds = {one.kind.partition(" ")[0] for one in team.state.spend.kinds}
        assert kinds == {"checkpoint", "implement", "answer"}

    def test_an_answer_that_is_thought_wrong_is_thought_about_again(self, tmp_path: Path) -> None:
        """A plan that cannot be taken is no slip of the pen: who has no memory sees the whole task again."""
        circle = {
            "id": "t1",
            "description": "do t1",
            "done_when": ["it is good"],
            "scope": {"in": ["t1.txt"]},
        }
        team = ScriptedTeam(
            tmp_path, {"plan": [{"answer": {"tasks": [circle]}}, {"answer": {"questions": ["Which?"]}}]}
        )

        team.turn("planner-1")

        first, second = briefs(team, "plan")
        assert second["prompt"].startswith(first["prompt"].split("<<<")[0][:200])
        assert (second["is_again"], second["only_answer"]) == (True, False)
        assert team.state.goal.questions == ("Which?",)

    @pytest.mark.parametrize("breaks", [False, True])
    def test_a_program_with_a_memory_is_asked_in_its_own_session(self, tmp_path: Path, breaks: bool) -> None:
        """It gets no tools and a few lines; a session that is broken is dropped for the end of the reply."""
        log = tmp_path / "asked.jsonl"
        program = tmp_path / "claude"
        program.write_text(CLAUDE.format(python=sys.executable, log=str(log), breaks=breaks))
        program.chmod(0o755)
        team = ScriptedTeam(tmp_path)
        settings = {"overrides": {"implement": {"backend": "claude", "command": [str(program)]}}}
        agents = team.state.config.agents.model_dump(exclude_defaults=True) | settings
        config = team.state.config.model_dump(exclude_defaults=True) | {"agents": agents}
        team.board.update(
            Change("human", "settings", lambda state: state.replace(config=Config.model_validate(config)))
        )
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.READY_FOR_REVIEW
        asked = [json.loads(line) for line in log.read_text().splitlines()]
        assert asked[1]["words"][:3] == ["-p", "--resume", "s-1"]
        assert asked[1]["words"][asked[1]["words"].index("--tools") + 1] == ""
        assert len(asked[1]["prompt"]) < 900
        assert asked[1]["was_kept"]
        assert len(asked) == (3 if breaks else 2)
        if breaks:
            assert "--resume" not in asked[2]["words"]
            assert "| I did it." in asked[2]["prompt"]


class TestWorkWithoutAnAnswer:
    def test_a_commit_speaks_for_itself(self, tmp_path: Path) -> None:
        """Machines and a reviewer judge what was done; nothing is done twice for want of a block."""
        said = {"write": {"t1.txt": "t1\n"}, "commit": "Add t1", "print": "There you are.\n"}
        team = ScriptedTeam(tmp_path, {"implement": said})
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert len(briefs(team, "implement")) == 1
        assert team.merged("t1.txt") == "t1"

    def test_silence_behind_a_commit_is_no_failure(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, {"implement": {"write": {"t1.txt": "t1\n"}, "commit": "Add t1"}})
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.READY_FOR_REVIEW

    def test_whoever_speaks_of_being_blocked_is_asked(self, tmp_path: Path) -> None:
        """A commit of half of the work must not hide a question."""
        stuck = {
            "write": {"t1.txt": "half\n"},
            "commit": "Begin",
            "print": "```liza\nstatus: blocked\n```\n",
        }
        asks = {"answer": {"status": "blocked", "blocked_reason": "no name", "blocked_questions": ["Which?"]}}
        team = ScriptedTeam(tmp_path, {"implement": [stuck, asks]})
        team.task()

        team.turn("coder-1")

        assert team.state.task("t1").blocked_questions == ("Which?",)

    def test_what_was_committed_in_an_earlier_round_proves_nothing_about_this_one(
        self, tmp_path: Path
    ) -> None:
        work = {"write": {"t1.txt": "t1\n"}, "commit": "Add t1", "answer": DONE}
        wrong = {"verdict": "reject", "reason": "the greeting is wrong there"}
        team = ScriptedTeam(tmp_path, {"implement": [work, {"print": "Hm."}], "review": {"answer": wrong}})
        team.task()
        team.turn("coder-1")
        team.turn("reviewer-1")

        team.turn("coder-1")

        assert team.events()[-1] == "fail"


class TestCheckpoints:
    def test_a_checkpoint_that_says_nothing_is_sent_back_once(self, tmp_path: Path) -> None:
        empty = {"answer": {"intent": "do it"}}
        team = ScriptedTeam(tmp_path, {"checkpoint": [empty, {"answer": {"intent": "write t1.txt"}}]})
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.READY_FOR_REVIEW
        assert "says nothing about the work" in briefs(team, "checkpoint")[1]["prompt"]

    def test_one_that_goes_on_saying_nothing_is_no_answer(self, tmp_path: Path) -> None:
        team = ScriptedTeam(
            tmp_path, {"checkpoint": {"answer": {"intent": "Implement the task as described."}}}
        )
        team.task()

        team.turn("coder-1")

        assert team.events()[-1] == "fail"
        assert briefs(team, "implement") == []

    def test_a_coder_may_ask_before_it_begins(self, tmp_path: Path) -> None:
        asks = {"status": "blocked", "blocked_reason": "no name", "blocked_questions": ["How is it called?"]}
        team = ScriptedTeam(tmp_path, {"checkpoint": {"answer": asks}})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.blocked_reason) == (Status.BLOCKED, "no name")
        assert task.blocked_questions == ("How is it called?",)
        assert briefs(team, "implement") == []


def test_planners_coders_and_reviewers_report_anomalies(tmp_path: Path) -> None:
    """One of an unknown type is kept as it was said, and costs nobody their work."""
    task = {"id": "t1", "description": "do t1", "done_when": ["t1.txt is there"], "scope": {"in": ["t1.txt"]}}
    gap = {"type": "spec_gap", "spec_ref": "spec.md", "missing": "rain"}
    team = ScriptedTeam(
        tmp_path,
        {
            "plan": {"answer": {"tasks": [task], "anomalies": [gap]}},
            "checkpoint": {"answer": {"intent": "write t1.txt", "anomalies": ["the spec is silent"]}},
            "implement": {
                "write": {"t1.txt": "t1\n"},
                "answer": {**DONE, "anomalies": [{"type": "system_ambiguity", "details": "Who resets it?"}]},
            },
            "review": {"answer": {**APPROVED, "anomalies": [{"type": "bad_weather", "what": "rain"}]}},
        },
    )

    team.turns("planner-1", "coder-1", "reviewer-1")

    assert team.status() is Status.MERGED
    seen = [(one.logged_by, one.task_id, one.type) for one in team.state.anomalies.values()]
    assert seen == [
        ("planner-1", None, "spec_gap"),
        ("coder-1", "t1", "other"),
        ("coder-1", "t1", "other"),
        ("reviewer-1", "t1", "other"),
    ]
