"""A `command` agent that does what a script says: `python scripted_agent.py SCRIPT`, as `save` wrote it.

The script maps `step`, `step/hat`, `step task`, `step task iteration` or `step/hat task` to one act or a
list of them, one for each time that it is asked; the last is repeated, and the most exact key counts. An act
may `note` that it began (a line in a file), `write` files, `run` a shell command, `commit`, tell now and
then what it has `spent`, wait `until` a file is there, `sleep`, `print` something raw, `answer` with a block,
and `exit` with a code. What is not in the script is done by default: every task adds a file of its own name,
and every review approves.

It is started some thousand times, so it imports no more than it needs: `json` and `pathlib` would be two
thirds of a run.
"""

from __future__ import annotations

import marshal
import os
import sys
import time

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of a run
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    Act = dict[str, Any]


def save(script: dict[str, Any], path: Path) -> None:
    """Write *script* where an agent is to find it, in the one format that needs no import to be read."""
    import json  # noqa: PLC0415 - only who writes scripts needs it

    path.write_bytes(marshal.dumps(json.loads(json.dumps(script))))


def planned(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a task may have
    """Return a task of a plan: add the file of its name."""
    return {
        "id": name,
        "description": f"do {name}",
        "done_when": [f"{name}.txt is there"],
        "scope": {"in": [f"{name}.txt"]},
        **fields,
    }


def plan(*tasks: dict[str, Any]) -> Act:
    """Return the act of a planner who answers with *tasks*."""
    return {"answer": {"tasks": list(tasks)}}


def by_default(step: str, task: str) -> Act:
    acts: dict[str, Act] = {
        "plan": plan(planned("t1")),
        "replan": {"answer": {"questions": ["What now?"]}},
        "checkpoint": {"answer": {"intent": f"do {task}"}},
        "implement": {
            "write": {f"{task}.txt": f"{task}\n"},
            "answer": {"status": "done", "summary": f"Add {task}"},
        },
        "review": {"answer": {"verdict": "approve", "reason": "it is there"}},
    }
    return acts[step]


def chosen(script: dict[str, Any], folder: str, step: str, task: str, iteration: str) -> Act:
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
            # A single act needs no count, which a sandbox would not let it keep.
            turn = turns(f"{folder}/{key.replace('/', '-')}.count") if len(acts) > 1 else 0
            act: Act = acts[min(turn, len(acts) - 1)]
            return act
    return by_default(step, task)


def turns(path: str) -> int:
    """Return how often this was asked for before, and count on."""
    with open(path, "a+b") as file:
        file.write(b".")
        return file.tell() - 1


def do(act: Act) -> int:
    if "note" in act:
        note(act["note"], f"{os.environ['LIZA_STEP']} {os.environ['LIZA_TASK']} {os.getpid()}\n")
    for name, content in act.get("write", {}).items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w") as file:
            file.write(content)
    if "run" in act:
        run("sh", "-c", act["run"])
    if "commit" in act:
        run("git", "add", "--all")
        run("git", "commit", "--quiet", "-m", act["commit"])
    spend(act.get("spent", ()))
    while "until" in act and not os.path.exists(act["until"]):
        time.sleep(0.01)
    time.sleep(act.get("sleep", 0))
    if "print" in act:
        sys.stdout.write(act["print"])
    if "answer" in act:
        sys.stdout.write(f"Here you are.\n\n```liza\n{as_json(act['answer'])}\n```\n")
    return int(act.get("exit", 0))


def note(path: str, line: str) -> None:
    """Append *line*. The file is never there without it: a test may kill us once it sees the file."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w") as file:
        file.write(line)
    try:
        os.link(draft, path)
    except FileExistsError:
        with open(path, "a") as file:
            file.write(line)
    os.unlink(draft)


def as_json(value: object) -> str:
    """Encode *value*; only what is out of the ordinary pays for the import of `json`."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_json(key)}: {as_json(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_json(one) for one in value)}]"
    if isinstance(value, str) and value.isascii() and value.isprintable() and not {'"', "\\"} & set(value):
        return f'"{value}"'
    import json  # noqa: PLC0415 - few need it, and all would pay for it

    return json.dumps(value)


def run(*words: str) -> None:
    child = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{words[0]} ended with {code}")


def spend(sums: list[float]) -> None:
    for usd in sums:
        sys.stdout.write(f"{as_json({'spent': {'usd': usd}})}\n")
        sys.stdout.flush()
        time.sleep(0.2)


def main() -> int:
    with open(sys.argv[1], "rb") as file:
        script = marshal.load(file)  # noqa: S302 - the tests wrote it
    where = (os.environ["LIZA_STEP"], os.environ["LIZA_TASK"], os.environ["LIZA_ITERATION"])
    sys.stdin.read()
    return do(chosen(script, os.path.dirname(sys.argv[1]), *where))


if __name__ == "__main__":
    sys.exit(main())
