"""An agent for every step of a goal of six tasks, two of which get into each other's way.

`python six_tasks_agent.py YARD PACE`: commits are noted in YARD, and the two meet there, so that both begin
at the same base; PACE is how many seconds writing a part takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

NEEDS = {
    "left": (),
    "right": (),
    "north": (),
    "south": ("north",),
    "east": (),
    "all": ("left", "right", "south"),
}
RIVALS = ("left", "right")  # both change the one line of owners.txt
SEEDS = {
    "owners.txt": "owners: nobody\n",
    # Green: every part says its name, all that it needs is there, and no conflict was left unresolved.
    "check.sh": """set -e
test "$(wc -l < owners.txt)" -eq 1
grep -q '^owners: ' owners.txt
for part in parts/*; do
    test -e "$part" || continue
    test "$(head -n 1 "$part")" = "$(basename "$part")"
    for need in $(tail -n +2 "$part"); do test -e "parts/$need"; done
done
""",
}
GATE = "sh check.sh"
MEETING = 30.0  # seconds that one of the two waits for the other
TASK = os.environ.get("LIZA_TASK", "")


def words(outside: Path, pace: str = "0") -> tuple[str, ...]:
    """Return the command line of the agent."""
    return (sys.executable, "-S", __file__, str(outside), pace)


def plan(_: Path) -> dict[str, object]:
    tasks = [
        {
            "id": name,
            "description": f"write part {name}",
            "done_when": [f"parts/{name} is there"],
            "kind": "docs",
            "depends_on": list(needs),
        }
        for name, needs in NEEDS.items()
    ]
    return {"tasks": tasks}


def checkpoint(_: Path) -> dict[str, object]:
    files = [f"parts/{TASK}", *(["owners.txt"] if TASK in RIVALS else [])]
    return {"intent": f"write part {TASK}", "risks": "none", "files_to_modify": files}


def implement(outside: Path) -> dict[str, object]:
    time.sleep(float(sys.argv[2]))
    Path("parts").mkdir(exist_ok=True)
    Path("parts", TASK).write_text("\n".join([TASK, *NEEDS[TASK]]) + "\n")
    if TASK in RIVALS:
        own(outside)
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "-m", f"Write {TASK}")
    with (outside / "commits").open("a") as file:
        file.write(git("rev-parse", "HEAD"))
    return {"status": "done", "summary": f"wrote part {TASK}"}


def own(outside: Path) -> None:
    """Put the name into the one line that the other changes, too; both stay where the other was first.

    That is a conflict, or what it starts from, for who was killed too early and begins anew.
    """
    owners = Path("owners.txt")
    before = owners.read_text()
    owners.write_text(f"owners: {' '.join(name for name in RIVALS if name == TASK or name in before)}\n")
    (outside / f"met-{TASK}").touch()
    deadline = time.monotonic() + MEETING
    while not all((outside / f"met-{name}").exists() for name in RIVALS) and time.monotonic() < deadline:
        time.sleep(0.02)


def git(*words: str) -> str:
    identity = ("-c", "user.name=agent", "-c", "user.email=agent@localhost")
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout


def review(_: Path) -> dict[str, object]:
    return {"verdict": "approve", "reason": "it is there", "feedback": [], "confidence": 9}


if __name__ == "__main__":
    sys.stdin.read()
    steps = {"plan": plan, "checkpoint": checkpoint, "implement": implement, "review": review}
    answer = steps[os.environ["LIZA_STEP"]](Path(sys.argv[1]))
    sys.stdout.write(f"```liza\n{json.dumps(answer)}\n```\n")
