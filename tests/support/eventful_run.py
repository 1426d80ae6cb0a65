"""A whole run of `liza` with everything that people must look at: rejections, questions, and a trip."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from tests.support.scripted_team import PATIENCE, ROOT, ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

_USAGE: Final = {"usage": {"usd": 0.4}}
_TROUBLE: Final = (
    {"type": "spec_gap", "spec_ref": "specs/vision.md:3", "missing": "the limit"},
    {"type": "spec_gap", "spec_ref": "specs/vision.md:3", "missing": "what an empty file means"},
    {"type": "spec_gap", "spec_ref": "specs/vision.md:3", "missing": "who may read it"},
    {"type": "external_blocker", "service": "registry", "symptom": "it answers 502"},
)


def _done(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an answer may say
    return {"status": "done", "summary": "it is there", **_USAGE, **more}


SCRIPT: Final[dict[str, Any]] = {
    "implement greet": {"write": {"greet.txt": "hello\n"}, "answer": _done()},
    "implement parse": {"write": {"parse.txt": "names\n"}, "answer": _done()},
    "implement parse 2": {"write": {"parse.txt": "names and a test\n"}, "answer": _done()},
    "review parse 1": {
        "answer": {
            "verdict": "reject",
            "reason": "there is no test",
            "feedback": [{"message": "add one", "file": "parse.txt", "line": 1}],
            **_USAGE,
        }
    },
    "implement colours": {
        "answer": {
            "status": "blocked",
            "blocked_reason": "the goal does not say which colour",
            "blocked_questions": ["Blue or green?"],
        }
    },
    "implement limits": {
        "write": {"limits.txt": "10\n"},
        "answer": _done(anomalies=list(_TROUBLE)),
    },
}


def eventful_run(directory: Path) -> ScriptedTeam:
    """Return a team whose run has ended, because a rule halted it."""
    team = ScriptedTeam(directory, SCRIPT)
    for name, priority in {"greet": 9, "parse": 8, "colours": 7, "limits": 0}.items():
        team.task(name, scope={"in": [f"{name}.txt"]}, priority=priority)
    subprocess.run(
        [sys.executable, "-m", "liza", "run", "--until-idle"],
        cwd=team.user.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    return team
