"""Ideas under the real daemon: several at once, a search that goes on with the best, a run that is killed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.model import GoalStatus
from tests.integration.daemon.test_experiments import EXPERIMENT, SCRIPT, SWEEP, rejects
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # a real run on a busy machine

# Two begin before either may end; each adds to what it begins with.
BOTH: Final = """\
touch {yard}/$LIZA_TASK; while [ $(ls {yard} | grep -c idea) -lt 2 ]; do sleep 0.05; done
value=$(git show HEAD:value | cut -d. -f1); echo $((value + 1)).0 > value; echo $LIZA_TASK > $LIZA_TASK
"""
SETTINGS: Final = {
    "metrics": [{"column": "sharpe", "kind": "primary"}],
    "search": {"ideas": 2, "depth": 2},
    "review_rounds": 1,
    "converge": True,
}


def laboratory(directory: Path, **experiment: Any) -> Daemon:  # noqa: ANN401 - whatever the settings are
    code = {"run": BOTH.format(yard=directory / "yard"), "answer": {"status": "done", "summary": "Add one"}}
    script = {
        **SCRIPT,
        "implement/coder": code,
        "review idea-1-2": [rejects("say more"), rejects("and another thing")],
    }
    daemon = Daemon(
        directory,
        script,
        workflow="experiment",
        workers={"coder": 2, "planner": 2},
        experiment={**EXPERIMENT, **experiment},
    )
    files = {"sweep.sh": SWEEP, "value": "1.0\n"}
    for name, text in files.items():
        (daemon.user.directory / name).write_text(text)
    daemon.user.git("add", ".")
    daemon.user.git("commit", "--quiet", "-m", "a laboratory")
    (daemon.user.directory / "baseline.csv").write_text("config_id,sharpe\n0,1.0\n1,1.0\n")
    (daemon.user.directory / "ideas.md").write_text("a\n\nb\n\nc\n")
    return daemon


def test_several_at_once_then_the_next_on_the_best_through_a_kill(tmp_path: Path) -> None:
    """R1, R24 to R26, R34, and 2.6: rounds, convergence, beam search with resume."""
    daemon = laboratory(tmp_path, **SETTINGS)

    with daemon.running("--until-idle") as run:
        daemon.until(lambda state: "idea-1-3" in state.tasks)
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
    assert daemon.run() == 0

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
    assert "The search is over: the depth of 2 is reached." in daemon.shell("experiment").out
    (late,) = (daemon.home / "experiments").glob("*_02/*dropped*")
    assert (late.name, late.read_text()) == ("review_round_1_dropped_new_issues.txt", "and another thing\n")
    assert daemon.head() == daemon.user.base
