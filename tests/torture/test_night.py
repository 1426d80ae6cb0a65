"""A night: hundreds of tasks for a large team without a sandbox, somebody killed every few seconds."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.alerts import ALERTS
from liza.daemon.project_sandbox import DRIFTED
from liza.daemon.supervisor import EXIT_CODES, RunEnd
from liza.domain.model import GoalStatus
from liza.system.host import host
from tests.support.daemon_run import Daemon
from tests.support.random_kills import Storm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.torture, pytest.mark.timeout(4 * 3600)]

TASKS: Final = int(os.environ.get("LIZA_NIGHT_TASKS") or 300)
SEED: Final = int(os.environ.get("LIZA_NIGHT_SEED") or 1)
TEAM: Final = {"planner": 1, "coder": 8, "reviewer": 4}
PAUSE: Final = (2.0, 6.0)  # seconds between two kills
ACCUSING: Final = ("was touched", DRIFTED)  # how people are told that somebody was where nobody should be
GATE: Final = "sh check.sh"
# Green where every file says its own name and the code is whole: a gate that is blind to code is refused.
CHECK: Final = (
    'test "$(cat src/b.py)" = "B = 1" || exit 1\n'
    'for file in t*.txt; do read -r text <"$file"; test "$text" = "${file%.txt}" || exit 1; done\n'
)


def test_a_night_ends_complete_and_accuses_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: Callable[[str, int], None]
) -> None:
    night = Daemon(tmp_path, workers=TEAM, gates={"test": GATE}, sandbox={"mode": "off"})
    night.user.commit({"check.sh": CHECK, "t0.txt": "t0\n"})
    night.user.git("update-ref", night.ref, "HEAD")
    for number in range(1, TASKS + 1):
        night.task(f"t{number}", kind="docs")
    host().adopt_orphans()  # whoever dies with its parent alive is counted with it, and its orphans with us
    began, before = time.monotonic(), _cpu()
    chance = random.Random(SEED)
    storm = Storm(night.home, chance)
    code = _weathered(night, storm, chance)
    seconds = time.monotonic() - began
    _reap()
    report = (
        f"{TASKS} tasks, {TEAM['coder']} coders, {TEAM['reviewer']} reviewers: {storm.kills.total()} kills "
        f"{dict(storm.kills)}, {seconds:.0f} seconds, {(_cpu() - before) / TASKS:.2f} CPU seconds a task, "
        f"{_events(night)['start_merge'] / TASKS:.2f} merges tried a task"
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")
    for kind, number in storm.kills.items():
        count(f"kills in a night: {kind}", number)
    state = night.state
    accused = [one for one in state.anomalies.values() if one.type == "checkout_drift"]
    assert accused == []
    alerts = (night.home / ALERTS).read_text().splitlines()
    assert [line for line in alerts if any(words in line for words in ACCUSING)] == []
    assert code == EXIT_CODES[RunEnd.COMPLETE], night.told()[-4000:]
    assert state.goal.status is GoalStatus.COMPLETE
    files = night.user.git("ls-tree", "--name-only", night.ref).split()
    assert {f"t{number}.txt" for number in range(TASKS + 1)} <= set(files)


def _weathered(night: Daemon, storm: Storm, chance: random.Random) -> int:
    """Run until it ends by itself, killing all the while; whoever kills the supervisor starts it again."""
    while True:
        with night.running("--until-idle") as run:
            while run.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    run.wait(chance.uniform(*PAUSE))
                if run.returncode is None:
                    storm.strike(run.pid)
            if (code := run.wait()) != -signal.SIGKILL:
                return code


def _reap() -> None:
    """Wait for all that died and came to us, the workers of a killed supervisor too: only then it counts."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _events(night: Daemon) -> Counter[str]:
    """Return how often each event happened to a task, by the journal."""
    found: dict[str, str] = {}
    for entry in night.board.entries():
        tasks = entry.put.get("tasks", {})
        for name, put in tasks.items() if isinstance(tasks, dict) else ():
            for item in put.get("history", ()):
                found[json.dumps([name, item["at"], item["event"], item["by"]])] = item["event"]
    return Counter(found.values())
