"""Which program is started for a phase and a hat, and in which of its conversations."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.project import create_board
from liza.daemon.workflow_in_use import workflow_of
from liza.domain.config import Config
from liza.domain.model import Status
from liza.errors import UsageError
from tests.support.repos import Home
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = ("planner-1", "coder-1", "reviewer-1")
# Claude Code as far as who is started how: it notes its words, and has one conversation a start.
CLAUDE: Final = """#!{python}
import json, os, pathlib, sys
words, prompt = sys.argv[1:], sys.stdin.read()
hat, log = os.environ["LIZA_HAT"], pathlib.Path({log!r})
count = len(log.read_text().splitlines()) if log.exists() else 0
told = {{"hat": hat, "words": words, "phase": os.environ["LIZA_PHASE"]}}
with log.open("a") as file:
    file.write(json.dumps(told) + "\\n")
if "--resume" in words and {breaks}:
    sys.exit("No conversation found with session ID")
if hat == "worker":
    with open("work.txt", "a") as file:
        file.write(f"{{count}}\\n")
no = hat == "judge" and count < {rejects}
answers = {{
    "thinker": "status: done\\nsummary: Write a file\\nhandoff: write it",
    "worker": "status: done\\nsummary: Write it",
    "complexity_assessor": "verdict: approve\\nreason: so it is\\nlabel: {path}",
    "judge": "verdict: reject\\nreason: more\\nfeedback: [{{message: more}}]" if no else "",
}}
said = answers.get(hat) or "verdict: approve\\nreason: it is there"
name = words[words.index("--resume") + 1] if "--resume" in words else f"s-{{count}}"
text = f"```liza\\n{{said}}\\n```"
print(json.dumps({{"type": "system", "subtype": "init", "session_id": name}}))
end = {{"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": name}}
print(json.dumps(end))
"""


class Started(dict[str, Any]):
    """One start of the program: who it was for, and what it was told."""

    def word(self, flag: str) -> str | None:
        words = self["words"]
        return words[words.index(flag) + 1] if flag in words else None


def play(
    directory: Path,
    *,
    path: str = "SIMPLE",
    rejects: int = 0,
    breaks: bool = False,
    **overrides: dict[str, object],
) -> tuple[ScriptedTeam, list[Started]]:
    """Walk a goal through its phases with a program that notes how it was started."""
    log, program = directory / "started.jsonl", directory / "claude"
    text = CLAUDE.format(python=sys.executable, log=str(log), path=path, rejects=rejects, breaks=breaks)
    program.write_text(text)
    program.chmod(0o755)
    default = {"backend": "claude", "command": [str(program)], "model": "sonnet", "effort": "low"}
    agents = {"default": default, "overrides": overrides}
    team = ScriptedTeam(directory, workflow="phased", agents=agents)
    team.turns(*ALL)
    return team, [Started(json.loads(line)) for line in log.read_text().splitlines()]


class TestRouting:
    """`agents.overrides` by phase and hat."""

    def test_each_field_comes_from_the_first_key_of_the_chain_that_sets_it(self, tmp_path: Path) -> None:
        team, runs = play(
            tmp_path,
            path="COMPLEX",
            JUDGE={"model": "opus"},
            PLAN_JUDGE={"effort": "max"},
            docs={"model": "haiku"},
            Implement_Review={"model": "reader"},
            review={"effort": "high"},
            worker={"effort": "medium"},
            COMPLEXITY={"model": "tiny"},
        )

        assert team.status("goal-1") is Status.COMPLETE
        assert [(one["hat"], one.word("--model"), one.word("--effort")) for one in runs] == [
            ("thinker", "sonnet", "low"),
            ("complexity_assessor", "tiny", "low"),
            ("reviewer", "sonnet", "high"),
            ("judge", "opus", "max"),
            ("worker", "sonnet", "medium"),
            ("reviewer", "reader", "high"),
            ("judge", "opus", "low"),
            ("worker", "haiku", "medium"),
            ("reviewer", "sonnet", "high"),
            ("judge", "opus", "low"),
        ]

    @pytest.mark.parametrize(
        ("workflow", "key", "said"),
        [
            ("phased", "jugde", "nobody is asked by this key in the workflow phased; did you mean 'judge'?"),
            ("phased", "coder", "use one of plan_thinker, thinker, plan, "),
            ("phased", "replan", "did you mean 'plan'?"),
            ("phased", "review_judge", "did you mean"),
            ("liza", "judge", "nobody is asked by this key in the workflow liza; "),
            ("liza", "docs", "nobody is asked by this key in the workflow liza; "),
            ("liza", "plan_", "did you mean 'plan'? Known: plan, planner, replan"),
            ("experiment", "judge", "nobody is asked by this key in the workflow experiment; "),
        ],
    )
    def test_a_key_that_nobody_is_asked_by_is_refused_with_its_line(
        self, tmp_path: Path, workflow: str, key: str, said: str
    ) -> None:
        home = Home(tmp_path / "home")
        text = f"budget: {{run_usd: 1}}\nagents:\n  overrides:\n    {key}: {{model: opus}}\n"
        (home.directory / "liza.yaml").write_text(text)

        with pytest.raises(UsageError) as refused:
            create_board(home.directory, "goal", spec=None, workflow=workflow)

        assert f"agents.overrides.{key}" in str(refused.value)
        assert "line 4" in str(refused.value)
        assert said in str(refused.value)
        assert not (home.directory / ".liza").exists()

    @pytest.mark.parametrize(
        ("workflow", "keys"),
        [
            (
                "liza",
                "code_coder CODE coder Checkpoint implement review reviewer review_reviewer replan plan",
            ),
            ("phased", "PLAN PLAN_REVIEW DOCS_REVIEWER docs_worker IMPLEMENT_JUDGE judge"),
            ("cycle", "actor ACT judge plan"),
            ("experiment", "coordinator planner coder review"),
        ],
    )
    def test_what_somebody_is_asked_by_is_taken(self, tmp_path: Path, workflow: str, keys: str) -> None:
        overrides = {key: {"model": "m"} for key in keys.split()}
        config = Config.model_validate({"workflow": workflow, "agents": {"overrides": overrides}})

        assert workflow_of(config, tmp_path).name == workflow

    def test_an_edit_of_the_board_that_names_nobody_pauses_with_a_sentence(self, tmp_path: Path) -> None:
        config = Config.model_validate({"agents": {"overrides": {"judge": {"model": "m"}}}})

        with pytest.raises(UsageError, match=r"^agents\.overrides\.judge: nobody is asked by this key"):
            workflow_of(config, tmp_path)


class TestSessions:
    """One conversation through implementing and documenting what is simple; else a new one each time."""

    def test_simple_work_goes_on_in_the_same_conversation(self, tmp_path: Path) -> None:
        team, runs = play(tmp_path, rejects=5)

        workers = [one for one in runs if one["hat"] == "worker"]
        first, *later = workers
        assert team.status("goal-1") is Status.COMPLETE
        assert [one["phase"] for one in workers] == ["IMPLEMENT", "IMPLEMENT", "DOCS"]
        assert first.word("--resume") is None  # the plan is another hat's conversation
        assert [one.word("--resume") for one in later] == [f"s-{runs.index(first)}"] * 2

    def test_other_work_starts_afresh_each_round(self, tmp_path: Path) -> None:
        team, runs = play(tmp_path, path="COMPLEX", rejects=5)

        assert team.status("goal-1") is Status.COMPLETE
        made = [one for one in runs if one["hat"] in {"thinker", "worker"}]
        assert [one["phase"] for one in made] == ["PLAN", "PLAN", "IMPLEMENT", "DOCS"]
        assert not any(one.word("--resume") for one in made)

    def test_a_conversation_that_is_broken_is_given_up_and_costs_no_round(self, tmp_path: Path) -> None:
        team, runs = play(tmp_path, breaks=True)

        workers = [one for one in runs if one["hat"] == "worker"]
        assert [(one["phase"], one.word("--resume") is not None) for one in workers] == [
            ("IMPLEMENT", False),
            ("DOCS", True),
            ("DOCS", False),
        ]
        task = team.state.task("goal-1")
        assert (task.status, task.taints) == (Status.COMPLETE, ())
        assert task.position
        assert task.position.iterations["DOCS"] == 1

    def test_another_program_is_not_given_the_conversation(self, tmp_path: Path) -> None:
        _, runs = play(tmp_path, docs={"backend": "qwen", "command": [str(tmp_path / "claude")]})

        assert not any("--resume" in one["words"] for one in runs)
