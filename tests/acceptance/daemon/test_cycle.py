"""A cycle under the real daemon: a goal in three loops, which a person steers by editing the cycle file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.cycle_archive import ARCHIVE, PAGE
from liza.domain.model import GoalStatus, Status
from tests.support.cycle_script import INSUFFICIENT, PASS, cycle_script
from tests.support.daemon_run import PATIENCE, Daemon

if TYPE_CHECKING:
    from pathlib import Path

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
        with page.open("a") as file:
            file.write(MORE)
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
    assert [told.count(f"- Result: {word}\n") for word in ("INSUFFICIENT", "APPROVED", "SUCCESS")] == [
        1,
        2,
        3,
    ]
    assert told == page.read_text()
    assert "unless it was you" not in daemon.told()
