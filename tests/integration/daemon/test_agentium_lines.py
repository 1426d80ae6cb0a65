"""Agents that speak in AGENTIUM_ lines, in a workflow that tries silence again, from an issue to its end."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from liza.domain.memory import BUDGET
from liza.domain.model import Status
from tests.support.local_forge import SETTINGS, ForgeFolder, script
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = ("planner-1", "coder-1", "reviewer-1")
ADVANCE: Final = {"print": "All is there.\nAGENTIUM_EVAL: ADVANCE it is good\n"}
ITERATE: Final = {"print": "`AGENTIUM_EVAL: ITERATE add a test`\n"}
SILENT: Final = {"print": "Let me think about it.\n"}
TEST: Final = "test ! -e broken"
LINES: Final = (
    f"AGENTIUM_MEMORY: KEY_FACT {'much ' * BUDGET}",
    "AGENTIUM_MEMORY: KEY_FACT files end in a line",
    "AGENTIUM_MEMORY: DECISION one file an issue",
    "AGENTIUM_MEMORY: STEP_PENDING write the file",
    "AGENTIUM_MEMORY: STEP_PENDING write its test",
    "AGENTIUM_MEMORY: STEP_DONE write the file",
    "AGENTIUM_MEMORY: FILE_MODIFIED issue-7.txt",
    "AGENTIUM_MEMORY: ERROR no network",
    "AGENTIUM_STATUS: TESTS_PASSED",
)


def works(*lines: str, also: str = "rm -f broken") -> dict[str, Any]:
    return {"run": f'date +%s%N >> "$LIZA_TASK.txt"; {also}', "print": "\n".join(("Wrote it.", *lines, ""))}


def own_workflow() -> str:
    """Return `phased` where silence is tried again, and no reviewer is asked in the last round."""
    text = files("liza").joinpath("workflow/phased.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("prompt: worker.md", "prompt: worker.md, dialect: agentium"),
        ("prompt: judge.md", "prompt: judge.md, dialect: agentium"),
        ("on_none: block", "on_none: revise"),
        ("prompt: code_reviewer.md", "prompt: code_reviewer.md\n        skip_if: final_iteration"),
        ("rules: [no_signal,", "rules: [{name: no_signal, count: 2, action: force_pass},"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def each_is_asked_in_its_dialect(team: ScriptedTeam, worker: str) -> None:
    """Who speaks in lines is asked for lines, and for nothing else; who has no dialect, for our own block."""
    assert ("AGENTIUM_STATUS: <word>" in worker, "```liza" in worker) == (True, False)
    judges = [path.read_text() for path in (team.home / "runs").glob("*.review/prompt.md")]
    asked = {("AGENTIUM_EVAL: <word>" in text, "```liza" in text) for text in judges}
    assert asked == {(True, False), (False, True)}


def test_verdicts_memory_silence_and_the_last_round(tmp_path: Path) -> None:
    forge = ForgeFolder(tmp_path / "forge")
    forge.issue(7)
    told = {
        "implement/worker": [works(*LINES, also="touch broken"), works()],
        # PLAN; IMPLEMENT, where it says nothing twice (and is asked again each time); DOCS to its last round.
        "review/judge": [ADVANCE, ITERATE, SILENT, SILENT, SILENT, SILENT, ITERATE, ITERATE, ADVANCE],
    }
    settings = {**SETTINGS, "workflow": "flows/ours.yaml"}
    team = ScriptedTeam(tmp_path, script(**told), **settings, issues="7", gates={"test": TEST})
    (team.user.directory / "flows").mkdir()
    (team.user.directory / "flows/ours.yaml").write_text(own_workflow())
    team.adopt()
    team.turns(*ALL)

    task = team.state.task("issue-7")
    assert [one.mark for one in task.taints] == ["forced:no_signal"]
    assert task.status is Status.AWAITING_APPROVAL
    assert task.position
    # The rule fired with the second silence; what is let pass by force is the work that came after it.
    assert task.position.iterations == {"PLAN": 1, "IMPLEMENT": 5, "DOCS": 3}
    # Work whose tests fail goes back before anybody judges it. Later the worker is told what the judge said,
    # and what the first round wanted remembered, within the budget…
    folders = sorted((team.home / "runs").glob("*.implement"), key=lambda path: path.stat().st_mtime)
    red, second, docs = [(folders[number] / "prompt.md").read_text() for number in (2, 3, 6)]
    assert TEST in red
    each_is_asked_in_its_dialect(team, red)
    assert "add a test" not in red
    assert "add a test" in second
    kept = ("files end in a line", "one file an issue", "write its test", "issue-7.txt", "no network")
    assert [words for words in kept if words not in second] == []
    assert "### Pending steps\n- write its test\n###" in second
    assert second.count("much ") * len("much ") <= BUDGET
    # …and the next phase only what outlives a phase.
    assert [words in docs for words in (*kept, "add a test")] == [True, True, False, True, False, False]
    headings = forge.headings()
    rounds = [
        number
        for number in (1, 2, 3)
        if f"pulls/1 ### Phase: DOCS — reviewer (iteration {number})" in headings
    ]
    assert rounds == [1, 2]
