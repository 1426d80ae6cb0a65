"""A cycle under the real daemon: a goal in three loops, which a person steers by editing the cycle file."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.cycle_archive import ARCHIVE, PAGE, PAUSED
from liza.domain.cycle_archive import INSUFFICIENT as INSUFFICIENT_WORD
from liza.domain.dialects import SIGNAL_PATTERN, SIGNAL_RESULTS
from liza.domain.model import GoalStatus, Status
from tests.support.cycle_script import INSUFFICIENT, PASS, PLAN, STEP, cycle_script
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import Task

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # a real run on a busy machine

MORE: Final = """
One more line, please.

### SIGNAL BLOCK

- Agent: Human
- Result: APPROVED
- Next: Planner
"""


def test_a_goal_in_three_loops_is_approved_in_the_page(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, cycle_script(judge=[INSUFFICIENT, PASS, PASS]), workflow="cycle")
    page = daemon.user.directory / PAGE

    def is_asked(loop: int) -> bool:
        """Return whether the judge has let a loop pass, and the page says so."""
        return page.is_file() and page.read_text().endswith(f"**Signature**: 1:{loop}:3\n\n---\n")

    with daemon.running() as run:
        daemon.eventually(lambda: is_asked(2))
        before = page.read_text()
        page.write_text(f"{before}\nLGTM\n")
        daemon.eventually(lambda: f"{PAGE}: this is neither yes nor no; add `Approved" in daemon.told())
        page.write_text(f"{before}{MORE}")
        daemon.eventually(lambda: is_asked(3))
        assert daemon.status("goal-1") is Status.AWAITING_APPROVAL
        with page.open("a") as file:
            file.write("Approved, commit and push\n")
        assert run.wait(PATIENCE) == 0

    state = daemon.state
    assert (daemon.status("goal-1"), state.goal.status) == (Status.MERGED, GoalStatus.COMPLETE)
    assert len(daemon.merged("goal-1.txt").splitlines()) == 3
    (archive,) = (daemon.user.directory / ARCHIVE).iterdir()
    assert archive.name == f"{state.goal.created:%Y-%m-%d}_cycle-001.md"
    told = archive.read_text()
    has_its_schema(told, f"{state.goal.created:%Y-%m-%d}-001")
    assert [told.count(f"- Result: {word}\n") for word in ("INSUFFICIENT", "APPROVED", "SUCCESS")] == [
        1,
        2,
        3,
    ]
    assert told == page.read_text()
    signed = re.findall(r"Signature\*\*: (.*)", told)
    assert [one for one in signed if not one.startswith("1:0:1")][:5] == [
        *("1:0:0", "1:1:1", "1:1:2", "1:1:3", "1:2:1"),
    ]
    assert "unless it was you" not in daemon.told()


def has_its_schema(page: str, name: str) -> None:
    """The head names the goal; every output is followed by the block of its author, signed, and a rule."""
    head, *entries = page.split("\n---\n")
    assert head == (
        f"# Cycle: {name}\n\n## Goal\n\nmake files\n\n## Current State\n\n- (none)\n\n"
        "## Context Docs\n\n- (none)\n"
    )
    assert entries.pop() == ""
    for entry in entries:
        (who,) = re.findall(r"^### (\w+) Output$", entry, re.MULTILINE)
        ((agent, result, _, _, following),) = SIGNAL_PATTERN.findall(entry)
        assert (agent, result in SIGNAL_RESULTS[who.casefold()]) == (who, True)
        assert re.search(rf"- Next: {following}\n(?:- Checks: .*\n)?\n\*\*Signature\*\*: 1:\d:\d\n$", entry)
    assert [entry for entry in entries if "    +++ b/goal-1.txt" in entry and "Actor Output" in entry]


FILES: Final = ["goal-1.txt", "broken", "guard.py"]


def planned(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of an answer or of its step
    """Return the answer of a planner that says something else, of its step or beside it."""
    beside = {key: changes.pop(key) for key in ("summary", "confidence") if key in changes}
    return {"answer": {**PLAN, **beside, "step": {**STEP, "files": FILES, **changes}}}


def judged(result: str, summary: str, following: str, confidence: int = 9, more: str = "") -> dict[str, Any]:
    """Return the act of a judge who speaks in SIGNAL BLOCKs."""
    return {
        "print": f"I looked.\n\n### SIGNAL BLOCK\n\n- Agent: Judge\n- Result: {result}\n"
        f"- Loop Summary: {summary}\n- Confidence: {confidence}\n- Next: {following}\n{more}"
    }


def acted(command: str) -> dict[str, Any]:
    return {"run": command, "answer": {"status": "done", "summary": "Do it"}}


BLOCKED: Final = {
    "status": "blocked",
    "blocked_reason": "the file is generated",
    "blocked_questions": ["By what?"],
}
ASKS: Final = {"status": "blocked", "blocked_reason": "unclear", "blocked_questions": ["Which name?"]}
TEST: Final = "test ! -e broken"
LINT: Final = "! grep -q ugly goal-1.txt"
LINE: Final = "date +%s%N >> goal-1.txt"
LEAK: Final = 'KEY = "AKIAIOSFODNN7EXAMPL3"'
BYPASS: Final = "SKIP_AUTH = True"
DOCS: Final = ("docs/a.md", "docs/b.md", "docs/c.md")
PLANNER: Final = [
    {"answer": ASKS},
    planned(loc_estimate=151, files=["a", "b", "c"]),
    planned(summary=f"see {', '.join(f'{one}:1' for one in DOCS)} and none.py:7"),
    planned(confidence=4),
    planned(instructions="tidy\nrm -rf /"),
    planned(),
]
ACTOR: Final = [
    {"answer": BLOCKED},
    acted("for name in goal-1.txt b c; do seq 60 > $name; done"),
    acted(f"{LINE}; echo ugly >> goal-1.txt; echo '{LEAK}' >> goal-1.txt; echo '{BYPASS}' > guard.py"),
    acted(f"sed -i '/ugly/d; /KEY/d' goal-1.txt; rm guard.py; {LINE}; touch broken"),
    acted(f"{LINE}; rm broken"),
    acted(LINE),
]
# A word that nobody knows is asked for again; the two after it are as lenient as linter and tests are not.
JUDGE: Final = [
    judged("LOOKS_FINE", "it is there", "Human"),
    *[judged("PASS", "it is there", "Human")] * 2,
    judged("INSUFFICIENT", "a line is missing", "Planner", more="\n**Signature**: 9:9:9\n"),
    judged("PASS", "it is there", "Human"),
    judged("PASS", "it is there", "Human", confidence=4),
]
# What a person is asked, in this order, and what they do.
WAITS: Final = (
    ("answers", ("answer", "goal-1", "Greet")),
    ("low_confidence", ("answer", "goal-1", "It is right")),
    ("risk", ("task", "reject", "goal-1", "--reason", "not that")),
    ("human_ok", ("task", "reject", "goal-1", "--reason", "shorter")),
    ("human_ok", ("task", "accept", "goal-1", "--squash")),
)


def waits_for(task: Task | None) -> str | None:
    """Return what a person is waited for: the gate, or the rule that asks."""
    if task is None or task.status not in {Status.AWAITING_APPROVAL, Status.BLOCKED}:
        return None
    return (task.position and task.position.waiting) or task.blocked_rule


def waits_since(daemon: Daemon, since: datetime) -> bool:
    task = daemon.board.read().tasks.get("goal-1")
    return waits_for(task) is not None and task is not None and task.history[-1].at > since


def is_told_what_was_wrong(daemon: Daemon) -> None:
    prompts = "\n".join(daemon.prompts("implement"))
    told = (
        *("151 lines are changed, and 150 may be; split the step", "180 lines are changed", "a secret ("),
        *("more documents are cited than the 2", "none.py:7: this file is cited", "a switch that skips"),
        "blocked: the file is generated",
    )
    # A judge that is lenient raises nothing: the linter, then the tests, send the step back, and say so.
    wrong = [f"`{command}` ended with exit code 1" for command in (LINT, TEST)]
    assert [words for words in (*told, *wrong, "a line is missing", "shorter") if words not in prompts] == []
    counted = daemon.state.sprint.metrics.gates
    assert [counted[gate].get("revise") for gate in ("lint", "suite", "judge")] == [1, 1, 1]
    # What leaked was found, also once it was only in an earlier commit; then Liza made one commit of them.
    assert counted["security"] == {"revise": 2, "pass": 3}
    assert counted["size"] == {"pass": 5}


def test_every_turn_that_a_cycle_can_take_in_one_run(tmp_path: Path) -> None:
    """The stories of the engine's traces, by the real daemon: who asks, who sends back, what is counted."""
    script = cycle_script(planner=PLANNER, actor=ACTOR, judge=JUDGE)
    daemon = Daemon(tmp_path, script, workflow="ours.yaml", gates={"test": TEST, "lint": LINT})
    own_cycle(daemon.user.directory, "prompt: judge.md", "prompt: judge.md, dialect: signal_block")
    for name in DOCS:
        (daemon.user.directory / name).parent.mkdir(exist_ok=True)
        (daemon.user.directory / name).write_text("words\n")
    daemon.user.git("add", ".")
    daemon.user.git("commit", "--quiet", "-m", "documents")

    since = daemon.state.goal.created
    with daemon.running("--no-baseline") as run:
        for gate, words in WAITS:
            daemon.eventually(partial(waits_since, daemon, since))
            task = daemon.state.task("goal-1")
            assert waits_for(task) == gate, daemon.told()
            since = task.history[-1].at
            assert daemon.shell(*words).code == 0
        assert run.wait(PATIENCE) == 0

    state, task = daemon.state, daemon.state.task("goal-1")
    assert (task.status, state.goal.status) == (Status.MERGED, GoalStatus.COMPLETE)
    fired = [trip.rule for trip in state.circuit_breaker.trips]
    assert (fired.count("stuck_cycle"), fired.count("high_risk_unapproved")) == (1, 1)
    is_told_what_was_wrong(daemon)
    page = (daemon.user.directory / PAGE).read_text()
    # The linter is red and the tests are green: both are said.
    assert "- Checks: limit pass, suite pass, lint revise, security revise, size pass\n" in page
    assert [page.count(f"- Result: {word}\n") for word in ("CLARIFICATION_NEEDED", "FAIL")] == [1, 2]
    (archive,) = (daemon.user.directory / ARCHIVE).iterdir()
    assert archive.read_text() == page
    assert len(daemon.user.git("log", "--format=%s", f"{daemon.user.base}..{daemon.ref}").splitlines()) == 2
    signal_blocks_are_looked_through(daemon)


def signal_blocks_are_looked_through(daemon: Daemon) -> None:
    """An unknown word is asked for again; what else is wrong with a block is in the log."""
    refusal = daemon.state.agents["reviewer-1"].refusal
    assert refusal
    assert refusal.why.startswith("'LOOKS_FINE' is no result of the judge; use one of PASS, ")
    log = (daemon.home / "workers/reviewer-1.log").read_text()
    assert "the block tells the planner nothing of: diagnosis, root cause, recommended changes" in log
    assert "the signature is 9:9:9, and 1:" in log


def wrote(sizes: str, ending: str = "sh") -> dict[str, Any]:
    """Return the act of who writes files of such *sizes* in lines, and undoes what was too large before."""
    each = (f"seq -f $(date +%N).%g {size} >> {size}.{ending}" for size in sizes.split())
    return acted("; ".join(["rm -f 148.sh 162.md 3.*", *each]))


# One of 150 lines and 2 files is enough; text alone may be 164 lines long.
SIZES: Final = [
    *(wrote("150 1"), wrote("147 2 1"), wrote("161 2 1", "md"), wrote("1")),
    *(wrote("148 2 1"), wrote("162 2 1", "md")),  # these go back before anybody judges them
    *[wrote("1")] * 6,
]
MORE_TO_COME: Final = {"answer": {**PASS["answer"], "label": "progressing"}}
REACHED: Final = {"answer": {**PASS["answer"], "label": "sufficient"}}
JUDGED: Final = [*[INSUFFICIENT] * 3, MORE_TO_COME, *[INSUFFICIENT] * 5, REACHED]


def own_cycle(root: Path, row: str, own: str) -> None:
    """Write a cycle of one's own, in which *row* is another."""
    text = files("liza.workflow").joinpath("cycle.yaml").read_text(encoding="utf-8")
    assert row in text
    (root / "ours.yaml").write_text(text.replace(row, own))


def edit_an_earlier_part(daemon: Daemon, page: Path) -> None:
    """Change what is in the page already; everybody pauses until it is put back."""
    before = page.read_text()
    page.write_text(before.replace("make files", "make gold"))
    daemon.eventually((daemon.home / "PAUSE").is_file)
    assert "line 5 was 'make files' and is 'make gold'" in (daemon.home / "PAUSE").read_text()
    page.write_text(before)
    assert daemon.shell("resume").code == 0


def is_summed_up(paused: str) -> None:
    """The summary is of the loops that were counted, not of those before the last pass."""
    loops = "".join(f"- Loop {loop}: a line is missing\n" for loop in (7, 8, 9, 10, 11))
    assert f"## PAUSE SUMMARY\n\n{PAUSED.format(count=5, word=INSUFFICIENT_WORD)}\n\n{loops}" in paused
    assert "Main blockers:\n- add it\n\nRoot cause: the same came back 5 times: a line is missing\n" in paused


@pytest.mark.torture
def test_sizes_pauses_and_an_edited_page_in_one_run(tmp_path: Path) -> None:
    """The rest of the traces: what is counted, what is reset, what a person may not touch."""
    planner = [{"print": "no answer", "exit": 1}, planned(files=["*.sh", "*.md"])]
    script = cycle_script(planner=planner, actor=SIZES, judge=JUDGED)
    daemon = Daemon(tmp_path, script, workflow="ours.yaml")
    # It asks a person only when the goal is reached.
    row = "    next: APPROVE\n"
    own_cycle(daemon.user.directory, row, f"      pass/progressing: PLAN\n{row}")
    page = daemon.user.directory / PAGE

    with daemon.running("--no-baseline") as run:
        daemon.until(lambda state: waits_for(state.tasks.get("goal-1")) is not None)
        daemon.eventually(lambda: list((daemon.user.directory / ARCHIVE).glob("*")))
        assert daemon.state.task("goal-1").blocked_rule == "five_loop_pause", daemon.told()
        edit_an_earlier_part(daemon, page)
        with page.open("a") as file:
            file.write("\nOne line at a time\n")
        daemon.until(lambda state: state.task("goal-1").status is Status.AWAITING_APPROVAL)
        assert daemon.shell("task", "accept", "goal-1").code == 0
        assert run.wait(PATIENCE) == 0

    state = daemon.state
    assert (state.goal.status, state.task("goal-1").status) == (GoalStatus.COMPLETE, Status.MERGED)
    fired = [trip.rule for trip in state.circuit_breaker.trips]
    assert fired == ["stuck_cycle"] * 2  # once a streak
    counted = state.sprint.metrics.gates
    assert (counted["limit"], counted["size"]) == ({"pass": 10, "revise": 2}, {"pass": 10})
    assert counted["judge"] == {"revise": 8, "pass": 2}
    assert daemon.events("goal-1").count("ask_human") == 1  # a step that only leads on asks nobody
    day = f"{state.goal.created:%Y-%m-%d}"
    archives = sorted(path.name for path in (daemon.user.directory / ARCHIVE).iterdir())
    assert archives == [f"{day}_cycle-001.md", f"{day}_cycle-001_incomplete.md"]
    is_summed_up((daemon.user.directory / ARCHIVE / archives[1]).read_text())
