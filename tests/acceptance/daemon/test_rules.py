"""Every row of the table of rules fires in a run of `liza`; in one run agents break many of them."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.config import Switch
from liza.domain.record import utc_now
from liza.domain.rules import GROUPS, RULE_BY_NAME
from tests.support.liza_process import LizaProcess
from tests.support.scripted_team import PATIENCE, ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

FLOW: Final = "flow.yaml"


def chosen(rules: str) -> frozenset[str]:
    """Return the names that *rules* of a document has."""
    return frozenset(re.findall(r"(?:- |name: )(\w+)", rules)) - {"anomaly_patterns"}


ANOMALIES: Final = (
    {"type": "retry_loop", "error_pattern": "no answer from db", "count": 2},
    {"type": "debt_created", "what": "a copy", "why": "time"},
    {"type": "assumption_violated", "assumption": "ids are numbers", "reality": "they are words"},
    {"type": "workaround", "what": "a retry", "root_cause": "the parser drops lines"},
    {"type": "spec_gap", "spec_ref": "specs/vision.md:3", "missing": "the limit"},
    {"type": "external_blocker", "service": "registry", "symptom": "502"},
    {"type": "hypothesis_exhaustion", "tried": ["caching"]},
)
JUDGED: Final = """
  - warn_iterations
  - {name: warn_rejections, count: 1}
  - {name: stuck_cycle, phase: REVIEW, count: 1}
  - {name: rejected_3x, phase: CODE, count: 2}
  - {name: same_reason_twice, phase: CODE}
  - max_review_cycles
  - assumption_budget
  - {name: no_signal, count: 1}
  - {name: test_failures, count: 1}
  - low_confidence
  - high_risk_unapproved
  - dep_blocked
  - {name: anomaly_patterns, count: 1, action: alert}
  - {name: cycle_duration, minutes: 0.001}
  - {name: session_duration, minutes: 0.001, action: alert}
"""
# What fires in which run; `chosen` are those that the workflow of the run names.
PATTERNS: Final = GROUPS["anomaly_patterns"]
JUDGED_ROWS: Final = chosen(JUDGED) | {"review_deadlock", "hypothesis_exhaustion", *PATTERNS}
CRASHES: Final = """
  - {name: five_loop_pause, phase: REVIEW, count: 1}
  - {name: actor_fail_pause, phase: CODE, count: 1}
  - {name: no_progress, count: 2}
"""
CRASH_ROWS: Final = chosen(CRASHES) | {"crash_loop", "fruitless_attempts"}
ALONE: Final = {"checkout_drift", "gate_broken", "rejected_edit", "stale_checkpoint"}
LONG: Final = {"agents_killed", "equal_failures", "rubber_stamp"}


def done(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an answer may say
    return {"status": "done", "summary": "it is there", **more}


def rejected(why: str) -> dict[str, Any]:
    return {"answer": {"verdict": "reject", "reason": why, "feedback": [{"message": why}]}}


def team_under(tmp_path: Path, rules: str, script: dict[str, Any], **settings: Any) -> ScriptedTeam:  # noqa: ANN401
    """Return a team whose workflow is the usual one with other *rules*; a silent reviewer sends work back."""
    text = files("liza").joinpath("workflow/liza.yaml").read_text()
    text = text[: text.index("\nrules:")].replace("on_none: block", "on_none: revise")
    team = ScriptedTeam(tmp_path, script, workflow=FLOW, **settings)
    team.user.commit({FLOW: f"{text}\nrules:{rules}"})
    team.user.git("update-ref", team.ref, "HEAD")
    return team


def started(team: ScriptedTeam, *words: str) -> LizaProcess:
    return LizaProcess("run", *words, cwd=team.user.directory)


def run(team: ScriptedTeam, *words: str) -> None:
    """Let `liza run` go on until only people can make progress."""
    with started(team, "--until-idle", *words) as process:
        process.wait(PATIENCE)


def fired(team: ScriptedTeam) -> set[str]:
    """Return the rules that fired: those of trips, and those that blocked a task."""
    state = team.state
    blocked = {str(task.blocked_rule) for task in state.tasks.values() if task.blocked_rule}
    return blocked | {trip.rule for trip in state.circuit_breaker.trips}


def test_rules_about_what_agents_do_and_say(tmp_path: Path) -> None:
    script = {
        "implement same": {"write": {"other.txt": "x\n"}, "answer": done()},
        "implement thrice 1": {
            "write": {"thrice.txt": "x\n"},
            "answer": done(summary="as nothere.py:3 says"),
        },
        "implement thrice 2": {"write": {"other.txt": "x\n"}, "answer": done()},
        "implement cycles 2": {"write": {"cycles.txt": "better\n"}, "answer": done()},
        "review cycles 1": rejected("no test covers the empty file"),
        "review cycles 2": rejected("the name lies"),
        "checkpoint assume": {"answer": {"intent": "write it", "assumptions": list("abcdef")}},
        "review silent": {"print": "hm"},
        "implement tests": {"write": {"tests.txt": "x\n"}, "answer": done(tests_ended="failed")},
        "review unsure": {"answer": {"verdict": "approve", "reason": "perhaps", "confidence": 3}},
        "checkpoint risky": {"answer": {"intent": "write it", "risk_level": "high"}},
        "implement risky": {"write": {"risky.txt": "x\n"}, "answer": done(anomalies=list(ANOMALIES))},
    }
    limits = {"max_review_cycles": 2, "max_coder_iterations": 3}
    team = team_under(tmp_path, JUDGED, script, limits=limits, workers={"coder": 2})
    for name in ("same", "thrice", "cycles", "assume", "silent", "tests", "unsure", "risky"):
        team.task(name, scope={"in": [f"{name}.txt"]})
    team.task("waits", depends_on=("assume",))

    run(team)

    assert fired(team) == JUDGED_ROWS


def test_rules_about_processes_that_die_and_work_that_is_sent_back(tmp_path: Path) -> None:
    script = {
        "review judged": rejected("the name lies"),
        "implement acted": {"write": {"other.txt": "x\n"}, "answer": done()},
        # The agent ends the worker that started it.
        **{f"checkpoint c{number}": {"run": "kill -SEGV $(ps -o ppid= -p $PPID)"} for number in (1, 2, 3)},
    }
    team = team_under(tmp_path, CRASHES, script, limits={"attempts_without_progress": 3})
    for name in ("judged", "acted"):
        team.task(name, scope={"in": [f"{name}.txt"]}, priority=1)
    for number in (1, 2, 3):
        team.task(f"c{number}")

    run(team)

    assert fired(team) == CRASH_ROWS


def test_a_rule_about_what_is_yours(tmp_path: Path) -> None:
    deed = "git update-ref refs/heads/liza/integration $(git commit-tree -m x HEAD^{tree})"
    team = team_under(tmp_path, " []", {"implement": {"run": deed, "answer": done()}})
    team.task("t1")

    run(team)

    assert fired(team) == {"checkout_drift"}


def test_a_rule_about_a_gate_that_cannot_run(tmp_path: Path) -> None:
    team = team_under(tmp_path, " []", {}, gates={"test": "no-such-program"})
    team.task("t1")

    run(team, "--no-baseline")

    assert fired(team) == {"gate_broken"}


def test_a_rule_about_the_length_of_a_session(tmp_path: Path) -> None:
    team = team_under(tmp_path, "\n  - {name: session_duration, minutes: 0.001}\n", {})
    team.task("t1")

    with started(team) as process:
        team.until(lambda state: len(state.circuit_breaker.trips) == 1)
        team.until(lambda _: Switch.CHECKPOINT.name in team.board.switches.thrown())
        process.terminate()

    assert fired(team) == {"session_duration"}


def test_rules_about_what_people_left(tmp_path: Path) -> None:
    team = team_under(tmp_path, " []", {})
    team.task("t1")
    team.board.switches.throw(Switch.CHECKPOINT, "look")
    long_ago = (utc_now() - timedelta(hours=9)).timestamp()
    os.utime(team.home / "CHECKPOINT", (long_ago, long_ago))
    state = team.home / "state.yaml"
    state.write_text(state.read_text().replace("status: IDLE", "status: MERGED"))

    run(team)  # refuses the edit, and ends
    with started(team) as process:
        team.until(lambda state: len(state.circuit_breaker.trips) == 2)
        process.terminate()

    assert fired(team) == {"rejected_edit", "stale_checkpoint"}


@pytest.mark.torture
def test_a_rule_about_gates_that_fail_alike(tmp_path: Path) -> None:
    limits = {"max_coder_iterations": 20}
    team = team_under(
        tmp_path, " []", {"implement": {"write": {"other.txt": "x\n"}, "answer": done()}}, limits=limits
    )
    team.task("t1", scope={"in": ["t1.txt"]})

    run(team)

    assert fired(team) == {"equal_failures"}


@pytest.mark.torture
def test_a_rule_about_a_reviewer_that_approves_everything(tmp_path: Path) -> None:
    team = team_under(tmp_path, " []", {})
    for number in range(10):
        team.task(f"t{number}")

    run(team)

    assert fired(team) == {"rubber_stamp"}


@pytest.mark.torture
def test_a_rule_about_agents_that_are_killed(tmp_path: Path) -> None:
    script = {"checkpoint": {"run": "kill -KILL $PPID"}}
    team = team_under(tmp_path, " []", script, limits={"attempts_without_progress": 1})
    for number in range(3):
        team.task(f"t{number}")

    run(team)

    assert fired(team) == {"agents_killed"}


def test_every_row_fires_in_one_of_these_runs() -> None:
    assert set(RULE_BY_NAME) == JUDGED_ROWS | CRASH_ROWS | ALONE | LONG
