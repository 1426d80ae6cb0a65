"""The workflow that docs/own-workflow.md builds, from that very file, under the real daemon to its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.model import GoalStatus, Status
from tests.support.daemon_run import PATIENCE, Daemon
from tests.support.scripted_team import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(4 * PATIENCE)  # a real run on a busy machine

EXAMPLE: Final = (ROOT / ".liza.example/own-workflow.yaml").read_text()
PAGE: Final = (ROOT / "docs/own-workflow.md").read_text()
UNSAFE: Final = {
    "answer": {
        "verdict": "reject",
        "reason": "the name is not checked",
        "feedback": [{"message": "check the name"}],
    }
}
SAFE: Final = {"answer": {"verdict": "approve", "reason": "nothing comes from outside"}}


def test_two_reviewers_and_a_person_let_it_pass(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, {"review/security": [UNSAFE, SAFE]}, workflow="flows/own-workflow.yaml")
    (daemon.user.directory / "flows").mkdir()
    (daemon.user.directory / "flows/own-workflow.yaml").write_text(EXAMPLE)

    assert daemon.run() == 3  # only a person can go on
    assert daemon.status() is Status.AWAITING_APPROVAL
    assert "Two reviewers let it pass. May it be merged?" in daemon.told()
    events = daemon.events()
    assert [one for one in events if one in {"submit", "reject", "ask_human"}] == [
        *("submit", "reject", "submit", "ask_human")
    ]
    asked = daemon.prompts("review")
    is_security = ["Your part is the security review" in text for text in asked]
    assert (is_security[:3], is_security[-1]) == ([False, True, False], True)
    assert any("check the name" in text for text in daemon.prompts("implement"))

    assert daemon.shell("task", "accept", "t1").code == 0
    assert daemon.run() == 0
    assert (daemon.status(), daemon.state.goal.status) == (Status.MERGED, GoalStatus.COMPLETE)
    assert daemon.merged("t1.txt") == "t1"


def test_the_page_shows_what_the_file_says() -> None:
    shown = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert len(shown) == 4
    assert all(text in EXAMPLE for text in shown)
