"""A `command` agent that does what a script says: `python scripted_agent.py SCRIPT.json`.

The script maps `step`, `step/hat`, `step task`, `step task iteration` or `step/hat task` to one act or a
list of them, one for each time that it is asked; the last is repeated, and the most exact key counts. An act
may `note` that it began (a line in a file), `write` files, `run` a shell command, `commit`, tell now and
then what it has `spent`, wait `until` a file is there, `sleep`, `print` something raw, `answer` with a block,
and `exit` with a code. What is not in the script is done by default: every task adds a file of its own name,
and every review approves.

It is started some thousand times, so it imports no more than it needs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of a run
if TYPE_CHECKING:
    from typing import Any

    Act = dict[str, Any]


def by_default(step: str, task: str) -> Act:
    plan = {
        "tasks": [
            {
                "id": "t1",
                "description": "do t1",
                "done_when": ["t1.txt is there"],
                "scope": {"in": ["t1.txt"]},
            }
        ]
    }
    acts: dict[str, Act] = {
        "plan": {"answer": plan},
        "replan": {"answer": {"questions": ["What now?"]}},
        "checkpoint": {"answer": {"intent": f"do {task}"}},
        "implement": {
            "write": {f"{task}.txt": f"{task}\n"},
            "answer": {"status": "done", "summary": f"Add {task}"},
        },
        "review": {"answer": {"verdict": "approve", "reason": "it is there"}},
    }
    return acts[step]


def chosen(script: dict[str, Any], folder: Path, step: str, task: str, iteration: str) -> Act:
    hat = os.environ.get("LIZA_HAT", "")
    for key in (
        f"{step}/{hat} {task}",
        f"{step} {task} {iteration}",
        f"{step} {task}",
        f"{step}/{hat}",
        step,
    ):
        if key in script:
            acts = script[key] if isinstance(script[key], list) else [script[key]]
            # A single act needs no count, which a cage would not let it keep.
            turn = turns(folder / f"{key.replace(chr(47), chr(45))}.count") if len(acts) > 1 else 0
            act: Act = acts[min(turn, len(acts) - 1)]
            return act
    return by_default(step, task)


def turns(path: Path) -> int:
    """Return how often this was asked for before, and count on."""
    with path.open("a+b") as file:
        file.write(b".")
        return file.tell() - 1


def do(act: Act) -> int:
    if "note" in act:
        with Path(act["note"]).open("a") as file:
            file.write(f"{os.environ['LIZA_STEP']} {os.environ['LIZA_TASK']} {os.getpid()}\n")
    for name, content in act.get("write", {}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    if "run" in act:
        run("sh", "-c", act["run"])
    if "commit" in act:
        run("git", "add", "--all")
        run("git", "commit", "--quiet", "-m", act["commit"])
    spend(act.get("spent", ()))
    while "until" in act and not Path(act["until"]).exists():
        time.sleep(0.01)
    time.sleep(act.get("sleep", 0))
    if "print" in act:
        sys.stdout.write(act["print"])
    if "answer" in act:
        sys.stdout.write(f"Here you are.\n\n```liza\n{json.dumps(act['answer'])}\n```\n")
    return int(act.get("exit", 0))


def run(*words: str) -> None:
    import subprocess  # noqa: PLC0415 - few need it, and all would pay for it

    subprocess.run(words, check=True, stdout=sys.stderr)


def spend(sums: list[float]) -> None:
    for usd in sums:
        sys.stdout.write(f"{json.dumps({'spent': {'usd': usd}})}\n")
        sys.stdout.flush()
        time.sleep(0.2)


def main() -> int:
    path = Path(sys.argv[1])
    script = json.loads(path.read_text())
    where = (os.environ["LIZA_STEP"], os.environ["LIZA_TASK"], os.environ["LIZA_ITERATION"])
    sys.stdin.read()
    return do(chosen(script, path.parent, *where))


if __name__ == "__main__":
    sys.exit(main())
