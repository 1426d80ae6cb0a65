"""An agent for every step, as a program of the `command` backend: it plans a few files and writes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("one", "two", "three")  # the last waits for the first
TASK = os.environ.get("LIZA_TASK", "")


def plan() -> dict[str, object]:
    tasks = [
        {
            "id": name,
            "description": f"write {name}.txt",
            "done_when": [f"{name}.txt is there"],
            "scope": {"in": [f"{name}.txt"]},
            "kind": "docs",
            "depends_on": [NAMES[0]] if name == NAMES[-1] else [],
        }
        for name in NAMES
    ]
    return {"tasks": tasks}


def checkpoint() -> dict[str, object]:
    return {"intent": f"write {TASK}.txt", "risks": "none", "files_to_modify": [f"{TASK}.txt"]}


def implement() -> dict[str, object]:
    time.sleep(float(os.environ.get("LIZA_TEST_PACE", "0.1")))
    Path(f"{TASK}.txt").write_text(f"{TASK}\n")
    subprocess.run(["git", "add", "."], check=True)
    words = ["-c", "user.name=agent", "-c", "user.email=agent@localhost", "commit", "-q", "--allow-empty"]
    subprocess.run(["git", *words, "-m", f"Write {TASK}"], check=True)
    return {"status": "done", "summary": f"wrote {TASK}.txt"}


def review() -> dict[str, object]:
    return {"verdict": "approve", "reason": "it is there", "feedback": [], "confidence": 9}


if __name__ == "__main__":
    sys.stdin.read()
    answer = {"plan": plan, "checkpoint": checkpoint, "implement": implement, "review": review}
    sys.stdout.write(f"```liza\n{json.dumps(answer[os.environ['LIZA_STEP']]())}\n```\n")
