"""How issues end that are planned, implemented and documented: one of each way, by one run of the daemon."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.model import Position, Status
from tests.support import scripted_agent
from tests.support.daemon_run import Daemon
from tests.support.local_forge import COMPLEX, REJECT, SETTINGS, SIMPLE, WORK, ForgeFolder, script

if TYPE_CHECKING:
    from pathlib import Path

APPROVE: Final = {"answer": {"verdict": "approve", "reason": "it is there"}}
BLOCK: Final = {"answer": {"verdict": "block", "reason": "the issue contradicts itself"}}
NOTHING: Final = {"answer": {"status": "nothing_to_do", "summary": "it is there already"}}
SILENT: Final = {"print": "hm"}
KEPT: Final = {"KEY_FACT": "files end in a line", "DECISION": "one file an issue"}
OF_A_PHASE: Final = {"STEP_PENDING": "write its test", "ERROR": "no network"}
SAYS: Final = [{"type": kind, "text": text} for kind, text in (KEPT | OF_A_PHASE).items()]
REMEMBERS: Final = {**WORK, "answer": {**WORK["answer"], "remember": SAYS}}
# By issue: what is not as every other agent does it.
ISSUES: Final[dict[int, dict[str, Any]]] = {
    1: {"review/complexity_assessor": SIMPLE},
    2: {
        "review/complexity_assessor": SIMPLE,
        "review/judge": [REJECT, APPROVE],
        "implement/worker": [REMEMBERS, WORK],
    },
    3: {"review/judge": REJECT},
    4: {"review/complexity_assessor": SIMPLE, "review/judge": REJECT},
    5: {"review/judge": SILENT},
    6: {"review/judge": BLOCK},
    7: {"review/complexity_assessor": SIMPLE, "review/judge": [APPROVE, REJECT]},
    8: {"review/complexity_assessor": SILENT},
    9: {"review/complexity_assessor": SIMPLE, "implement/worker": NOTHING},
    10: {"review/complexity_assessor": SIMPLE, "implement/worker": [{"exit": 1}, WORK]},
    12: {"review/complexity_assessor": SIMPLE, "review/reviewer": REJECT, "review/judge": APPROVE},
}
WAITING: Final = 11  # for one that is blocked


def told() -> dict[str, Any]:
    special = {f"{key} issue-{number}": act for number, acts in ISSUES.items() for key, act in acts.items()}
    return script(**{"review/complexity_assessor": COMPLEX, **special})


def agents(directory: Path) -> dict[str, Any]:
    """Return a team whose judges have a program of their own; by the usual one each of them would fail."""
    usual, judges = [
        [sys.executable, "-S", scripted_agent.__file__, str(directory / name)]
        for name in ("outside/script", "judges")
    ]
    scripted_agent.save(told(), directory / "judges")
    return {
        "default": {"command": usual, "model": "usual"},
        "overrides": {"JUDGE": {"command": judges, "model": "careful"}, "PLAN_JUDGE": {"model": "strict"}},
    }


def without_judges(acts: dict[str, Any]) -> dict[str, Any]:
    others = {key: act for key, act in acts.items() if not key.startswith("review/judge")}
    return {**others, "review/judge": {"exit": 1}}


def models(daemon: Daemon) -> dict[tuple[str, str], set[str]]:
    """Return the models that were asked for a verdict, by phase and hat; not those asked again for a word."""
    found: dict[tuple[str, str], set[str]] = {}
    for folder in (daemon.home / "runs").glob("*.review"):
        brief, reply = [json.loads((folder / f"{name}.json").read_text()) for name in ("brief", "reply")]
        phase = brief["prompt"].partition("phase: ")[2].partition(",")[0]
        if not brief["is_again"]:
            found.setdefault((phase, brief["hat"]), set()).add(reply["usage"]["model"])
    return found


def position(daemon: Daemon, number: int) -> Position:
    found = daemon.state.task(f"issue-{number}").position
    assert found
    return found


@pytest.mark.torture
def test_every_way_that_an_issue_can_end(tmp_path: Path) -> None:
    forge = ForgeFolder(tmp_path / "forge")
    for number in range(1, 13):
        forge.issue(number, "Blocked by #6." if number == WAITING else "Do it.")
    daemon = Daemon(
        tmp_path,
        without_judges(told()),
        **SETTINGS,
        issues="1-12",
        workers={"coder": 2},
        agents=agents(tmp_path),
    )

    assert daemon.run() == 3

    ends = {number: daemon.state.task(f"issue-{number}").status for number in range(1, 13)}
    assert ends == {
        **dict.fromkeys((1, 2, 7, 8, 10), Status.COMPLETE),
        **dict.fromkeys((3, 4, 12), Status.AWAITING_APPROVAL),
        **dict.fromkeys((5, 6, 11), Status.BLOCKED),
        9: Status.NOTHING_TO_DO,
    }
    marks = {number: [one.mark for one in daemon.state.task(f"issue-{number}").taints] for number in ends}
    assert {number: mark for number, mark in marks.items() if mark} == {
        3: ["forced:PLAN", "forced:IMPLEMENT"],
        4: ["forced:IMPLEMENT"],
        12: ["overrode_reviewer"],
    }
    assert position(daemon, 8).path == "COMPLEX"
    assert position(daemon, 2).iterations == {"PLAN": 1, "IMPLEMENT": 2, "DOCS": 1}
    # The limits of either path; the documentation lets its last round pass, and leaves no mark.
    assert position(daemon, 3).iterations == {"PLAN": 3, "IMPLEMENT": 5, "DOCS": 3}
    assert position(daemon, 4).iterations == {"PLAN": 1, "IMPLEMENT": 2, "DOCS": 1}
    assert position(daemon, 10).iterations["IMPLEMENT"] == 2  # the crash was a round
    assert "issue-6 is BLOCKED" in str(daemon.state.task("issue-11").blocked_reason)
    pulls = forge.pulls()
    drafts = {int(branch.split("-")[1]) for branch, is_draft in pulls.items() if is_draft}
    assert {3, 4, 12} <= drafts
    assert not drafts & {1, 2, 7, 8, 10}
    assert len(forge.nomerge()) == 3
    assert [line for line, times in Counter(forge.headings()).items() if times > 1] == []
    # A simple plan is judged by nobody.
    assert not [line for line in forge.headings() if line.startswith("issues/1 ") and "judge" in line]
    # Who judges a plan has a model of its own, and the program of every judge; nobody else has either.
    assert models(daemon) == {
        ("PLAN", "complexity_assessor"): {"usual"},
        **{(phase, "reviewer"): {"usual"} for phase in ("PLAN", "IMPLEMENT", "DOCS")},
        ("PLAN", "judge"): {"strict"},
        **{(phase, "judge"): {"careful"} for phase in ("IMPLEMENT", "DOCS")},
    }
    # The next round is told all that the first wanted remembered, the next phase only what outlives a phase.
    second, docs = [prompt for prompt in daemon.prompts("implement") if KEPT["KEY_FACT"] in prompt]
    assert [words in second for words in (KEPT | OF_A_PHASE).values()] == [True, True, True, True]
    assert [words in docs for words in (KEPT | OF_A_PHASE).values()] == [True, True, False, False]


def patient_workflow() -> str:
    """Return `phased` where a judge that says nothing is asked about the next round, twice."""
    text = files("liza").joinpath("workflow/phased.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("on_none: block", "on_none: revise"),
        ("rules: [no_signal,", "rules: [{name: no_signal, count: 2, action: force_pass},"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.torture
def test_silence_that_is_tried_again_is_forced_through_at_its_limit(tmp_path: Path) -> None:
    forge = ForgeFolder(tmp_path / "forge")
    forge.issue(1)
    # Of the plan; of two rounds without a word, of which each is asked for twice; of DOCS.
    judge = [APPROVE, *[SILENT] * 4, APPROVE]
    settings = {**SETTINGS, "workflow": "ours.yaml", "issues": "1"}
    daemon = Daemon(tmp_path, script(**{"review/judge": judge}), **settings)
    (daemon.user.directory / "ours.yaml").write_text(patient_workflow())
    daemon.user.git("add", ".")
    daemon.user.git("commit", "--quiet", "-m", "a workflow of our own")

    assert daemon.run() == 3

    task = daemon.state.task("issue-1")
    assert [one.mark for one in task.taints] == ["forced:no_signal"]
    assert task.status is Status.AWAITING_APPROVAL
    # The second silence fires the rule; what is let pass by force is the work that comes after it.
    assert position(daemon, 1).iterations == {"PLAN": 1, "IMPLEMENT": 3, "DOCS": 1}
    assert list(forge.pulls().values()) == [True]
    assert len(forge.nomerge()) == 1
