"""Issues to pull requests by `liza run`, killed in the middle: nothing is published twice."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Final

from liza.domain.model import Status
from tests.support.daemon_run import PATIENCE, Daemon
from tests.support.local_forge import COMPLEX, REJECT, SETTINGS, SIMPLE, ForgeFolder, script

if TYPE_CHECKING:
    from pathlib import Path

FORCED: Final = 4  # the issue whose judge never says yes
SCRIPT: Final = script(
    **{"review/complexity_assessor": SIMPLE, "review/complexity_assessor issue-2": COMPLEX},
    **{f"review/judge issue-{FORCED}": REJECT},
)


def test_five_issues_become_four_ready_pull_requests_and_a_draft_though_the_run_is_killed(
    tmp_path: Path,
) -> None:
    forge = ForgeFolder(tmp_path / "forge")
    for number, body in enumerate(("One.", "Two.", "Blocked by #1.", "Four.", "Five."), start=1):
        forge.issue(number, body)
    daemon = Daemon(tmp_path, SCRIPT, **SETTINGS, issues="1-5", workers={"coder": 2})

    with daemon.running("--until-idle") as run:
        # A draft is there, and whoever made it may not have written that down yet.
        daemon.eventually(lambda: len(forge.pulls()) > 1)
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
    daemon.run()

    statuses = {task.id: task.status for task in daemon.state.tasks.values()}
    assert statuses.pop(f"issue-{FORCED}") is Status.AWAITING_APPROVAL
    assert set(statuses.values()) == {Status.COMPLETE}
    drafts = Counter(forge.pulls().values())
    assert (drafts[False], drafts[True], len(forge.nomerge())) == (4, 1, 1)
    assert forge.pulls()[f"agent/issue-{FORCED}-write-file-{FORCED}"]
    assert forge.bases()["agent/issue-3-write-file-3"] == "agent/issue-1-write-file-1"
    child, parent = daemon.state.task("issue-3"), daemon.state.task("issue-1")
    assert (child.depends_on, child.base_commit) == (("issue-1",), parent.review_commit)
    assert [line for line, times in Counter(forge.headings()).items() if times > 1] == []
    assert daemon.head() == daemon.user.base
