"""An agent that mends what is planted in a real project, breaks it, or says yes, as its script has it.

`python agent.py SCRIPT`: the script is JSON, for each task the files to write and the texts to replace.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Script = dict[str, dict[str, Any]]


def plan(script: Script, _: str) -> dict[str, Any]:
    tasks = [
        {
            "id": name,
            "description": about["says"],
            "done_when": [about["done_when"]],
            "scope": {"in": [*about["write"], *(edit[0] for edit in about["replace"])]},
        }
        for name, about in script.items()
    ]
    return {"tasks": tasks}


def replan(_: Script, __: str) -> dict[str, Any]:
    return {"questions": ["What now?"]}


def checkpoint(script: Script, task: str) -> dict[str, Any]:
    about = script[task]
    files = [*about["write"], *(edit[0] for edit in about["replace"])]
    return {"intent": about["says"], "risks": "none", "files_to_modify": files}


def implement(script: Script, task: str) -> dict[str, Any]:
    about = script[task]
    for name, text in about["write"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    for name, old, new in about["replace"]:
        path = Path(name)
        path.write_text(path.read_text().replace(old, new))
    return {"status": "done", "summary": about["says"]}


def review(_: Script, __: str) -> dict[str, Any]:
    """Say yes to everything: it is the machines that are tried here."""
    return {"verdict": "approve", "reason": "it looks right", "feedback": [], "confidence": 9}


STEPS = {
    "plan": plan,
    "replan": replan,
    "checkpoint": checkpoint,
    "implement": implement,
    "review": review,
}

if __name__ == "__main__":
    sys.stdin.read()
    told = json.loads(Path(sys.argv[1]).read_text())
    answer = STEPS[os.environ["LIZA_STEP"]](told, os.environ.get("LIZA_TASK", ""))
    sys.stdout.write(f"```liza\n{json.dumps(answer)}\n```\n")
