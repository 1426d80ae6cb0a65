"""How issues end that are planned, implemented and documented: one of each way, by one run of the daemon."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.model import Status
from liza.domain.position import Position
from tests.support.daemon_run import Daemon
from tests.support.local_forge import COMPLEX, REJECT, SETTINGS, SIMPLE, WORK, ForgeFolder, script

if TYPE_CHECKING:
    from pathlib import Path

APPROVE: Final = {"answer": {"verdict": "approve", "reason": "it is there"}}
BLOCK: Final = {"answer": {"verdict": "block", "reason": "the issue contradicts itself"}}
NOTHING: Final = {"answer": {"status": "nothing_to_do", "summary": "it is there already"}}
SILENT: Final = {"print": "hm"}
# By issue: what is not as every other agent does it.
ISSUES: Final[dict[int, dict[str, Any]]] = {
    1: {"review/complexity_assessor": SIMPLE},
    2: {"review/complexity_assessor": SIMPLE, "review/judge": [REJECT, APPROVE]},
    3: {"review/judge": [APPROVE, *[REJECT] * 5, APPROVE]},
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


def position(daemon: Daemon, number: int) -> Position:
    found = daemon.state.task(f"issue-{number}").position
    assert found
    return found


@pytest.mark.torture
def test_every_way_that_an_issue_can_end(tmp_path: Path) -> None:
    forge = ForgeFolder(tmp_path / "forge")
    for number in range(1, 13):
        forge.issue(number, "Blocked by #6." if number == WAITING else "Do it.")
    daemon = Daemon(tmp_path, told(), **SETTINGS, issues="1-12", workers={"coder": 2})

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
        3: ["forced:IMPLEMENT"],
        4: ["forced:IMPLEMENT"],
        12: ["overrode_reviewer"],
    }
    assert position(daemon, 8).path == "COMPLEX"
    assert position(daemon, 2).iterations == {"PLAN": 1, "IMPLEMENT": 2, "DOCS": 1}
    assert position(daemon, 3).iterations["IMPLEMENT"] == 5
    assert position(daemon, 4).iterations["IMPLEMENT"] == 2
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
