"""Ideas under the real daemon: several at once, a search that goes on with the best, a run that is killed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.policy.planner import NONE_PASSED
from liza.domain.model import GoalStatus
from tests.integration.daemon.test_experiments import EXPERIMENT, SCRIPT, SWEEP, rejects
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # a real run on a busy machine

# Two begin before either may end; each adds to what it begins with.
BOTH: Final = """\
touch {outside}/$LIZA_TASK; while [ $(ls {outside} | grep -c idea) -lt 2 ]; do sleep 0.05; done
value=$(git show HEAD:value | cut -d. -f1); echo $((value + 1)).0 > value; echo $LIZA_TASK > $LIZA_TASK
"""
# In its own directory: the results have a path that is right there.
LAB: Final = "for name in value stale noisy broken; do cp ../$name . 2> /dev/null; done; . ../sweep.sh\n"
SETTINGS: Final = {
    "metrics": [{"column": "sharpe", "kind": "primary"}],
    "search": {"ideas": 2, "depth": 2},
    "review_rounds": 1,
    "converge": True,
}


def done(command: str) -> dict[str, Any]:
    return {"run": command, "answer": {"status": "done", "summary": "Change it"}}


def laboratory(
    directory: Path,
    script: dict[str, Any],
    ideas: str,
    gates: dict[str, str],
    **experiment: Any,  # noqa: ANN401 - whatever the settings are
) -> Daemon:
    script = {**SCRIPT, **script}
    daemon = Daemon(
        directory,
        script,
        workflow="experiment",
        workers={"coder": 2, "planner": 2},
        experiment={**EXPERIMENT, **experiment},
        gates=gates,
    )
    files = {"sweep.sh": SWEEP, "value": "1.0\n", "lab/test.sh": "! grep -q boom ../value\n",
             "lab/sweep.sh": LAB}  # fmt: skip
    (daemon.user.directory / "lab").mkdir()
    for name, text in files.items():
        (daemon.user.directory / name).write_text(text)
    daemon.user.git("add", ".")
    daemon.user.git("commit", "--quiet", "-m", "a laboratory")
    (daemon.user.directory / "baseline.csv").write_text("config_id,sharpe\n0,1.0\n1,1.0\n")
    (daemon.user.directory / "ideas.md").write_text("\n\n".join(ideas.split()))
    return daemon


def test_several_at_once_then_the_next_on_the_best_through_a_kill(tmp_path: Path) -> None:
    """R1, R24 to R26, R34, and 2.6: rounds, convergence, beam search with resume."""
    script = {
        "implement/coder": done(BOTH.format(outside=tmp_path / "outside")),
        "review idea-1-2": [rejects("say more"), rejects("and another thing")],
    }
    daemon = laboratory(tmp_path, script, "a b c", {}, **SETTINGS)

    with daemon.running("--until-idle", "--no-baseline") as run:
        daemon.until(lambda state: "idea-1-3" in state.tasks)
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
    with daemon.running("--until-idle", "--no-baseline") as run:
        assert run.wait(PATIENCE) == 0

    state = daemon.state
    assert state.goal.status is GoalStatus.COMPLETE
    assert state.goal.search_ended == "the depth of 2 is reached"
    assert len(state.tasks) == 3
    (parent,) = state.task("idea-1-3").depends_on
    assert state.task("idea-1-3").base_commit == state.task(parent).review_commit
    scores = {
        row["run_id"][-2:]: row["score"] for row in json.loads(daemon.shell("experiment", "--json").out)
    }
    assert scores == {"01": 1.0, "02": 2.0, "03": 3.0}
    assert "It is over: the depth of 2 is reached." in daemon.shell("experiment").out
    # Without a command there are no tests.
    told = [json.loads(path.read_text()) for path in (daemon.home / "experiments").glob("*/summary.json")]
    assert {(one["tests_exit_code"], one["sweep_exit_code"]) for one in told} == {(None, 0)}
    assert not list((daemon.home / "experiments").glob("*/tests.log"))
    assert not [name for name in state.tasks if daemon.user.worktrees.of(name)]
    (late,) = (daemon.home / "experiments").glob("*_02/*dropped*")
    assert (late.name, late.read_text()) == ("review_round_1_dropped_new_issues.txt", "and another thing\n")
    assert daemon.head() == daemon.user.base


# One idea an end, as the engine's traces have them; what a coder does is said by the number of the idea.
ENDS: Final = {
    "noisy": "echo 2.0 > value; touch noisy",
    "stale": "printf 'sharpe\\n99\\n' > results.csv; touch stale",
    "empty": "true",
    "rejected": "echo 9.0 > value",
    "silent": "echo 9.0 > value",
    "red": "echo boom > value",
    "broken": "touch broken",
}


ARTIFACTS: Final = {
    *("idea.md", "summary.json", "tests.log", "sweep.log", "meta_config_sweep_results.csv"),
    *(f"{role}_prompt.txt" for role in ("coordinator", "planner", "coder", "reviewer")),
    *("coordinator.md", "plan.md", "patch.diff", "review.md"),
}


def test_every_end_of_an_idea_in_one_run(tmp_path: Path) -> None:
    """R4 to R14, R20 to R23 and R27: each negative answer ends its idea alone, with a summary."""
    acts = [done(command) for command in ENDS.values()]
    script = {f"implement/coder idea-1-{number}": act for number, act in enumerate(acts, start=1)}
    script |= {"review idea-1-4": rejects("it cheats"), "review idea-1-5": {"print": "DO NOT APPROVE"}}
    where = {"test_directory": "lab", "sweep_directory": "lab", "keep_worktrees": True}
    daemon = laboratory(tmp_path, script, " ".join(ENDS), {"test": "sh test.sh"}, **where)

    with daemon.running("--until-idle", "--no-baseline") as run:
        assert run.wait(PATIENCE) == 0

    folders = sorted((daemon.home / "experiments").iterdir())
    found = {
        name: json.loads((path / "summary.json").read_text())
        for name, path in zip(ENDS, folders, strict=True)
    }
    ends = {
        name: (one["review_verdict"], one["tests_exit_code"], one["sweep_exit_code"], _score(one))
        for name, one in found.items()
    }
    assert ends == {
        "noisy": ("APPROVE", 0, 3, 1.0),
        "stale": ("APPROVE", 0, 0, None),
        "empty": (None, None, None, None),
        "rejected": ("REJECT", None, None, None),
        "silent": ("UNKNOWN", None, None, None),
        "red": ("APPROVE", 1, None, None),
        "broken": ("APPROVE", 0, 2, None),
    }
    assert not found["empty"]["patch_applied"]
    assert [one["plan"] for one in found.values()] == ["PLAN:\n1. change it"] * len(ENDS)
    assert {path.name for path in folders[0].iterdir()} == ARTIFACTS
    assert (folders[0] / "idea.md").read_text() == "noisy\n"
    assert (folders[0] / "sweep.log").read_text() == "it broke late\n"
    assert daemon.head() == daemon.user.base
    assert daemon.user.worktrees.of("idea-1-1")


def test_a_goal_is_over_though_no_idea_passes(tmp_path: Path) -> None:
    """What is rejected in its last round is scored and marked; a column that nobody has gives no score."""
    script = {"implement/coder": done("echo 9.0 > value"), "implement/coder idea-1-2": done("true")}
    wanted = {"column": "profit", "proceed_unapproved": True, "first": 2}
    daemon = laboratory(tmp_path, {**script, "review": rejects("it cheats")}, "forced", {}, **wanted)

    with daemon.running("--no-baseline") as run:
        daemon.eventually((daemon.home / "PAUSE").is_file)
        assert "2 ideas are asked for, and one idea can be tried" in (daemon.home / "PAUSE").read_text()
        (daemon.user.directory / "ideas.md").write_text("forced\n\nempty\n")
        assert daemon.shell("resume").code == 0
        assert run.wait(PATIENCE) == 0

    state = daemon.state
    assert (state.goal.status, state.goal.search_ended) == (GoalStatus.COMPLETE, NONE_PASSED)
    assert f"Done: 0 of 2 tasks done, 2 given up; {NONE_PASSED}" in daemon.told()
    assert [task.is_tainted for task in state.tasks.values()] == [True, False]
    forced, _ = (
        json.loads(path.read_text()) for path in sorted((daemon.home / "experiments").glob("*/summary.json"))
    )
    assert (forced["review_verdict"], forced["sweep_exit_code"], _score(forced)) == ("REJECT", 0, None)
    assert "has no column profit; it has config_id, sharpe" in forced["score"]["note"]
    table = daemon.shell("experiment").out
    assert "no score: the baseline: baseline.csv has no column profit" in table
    assert f"It is over: {NONE_PASSED}." in table
    assert f"The goal is complete: 0 of 2 tasks done, 2 given up; {NONE_PASSED}" in daemon.shell("status").out


def _score(summary: dict[str, Any]) -> float | None:
    return summary["score"]["score"] if summary["score"] else None
