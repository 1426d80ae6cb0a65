"""A `gh` for tests: it knows the calls that Liza makes, checks them, and keeps a small GitHub.

`install` puts it into a directory, with `github.json` beside it, which is all that it remembers.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

STATE: Final = "github.json"
WRONG: Final = 97  # the exit code for a call that the real gh would not take, or that Liza must not make
REPOSITORY: Final = "o/r"
FLAGS: Final = {
    ("issue", "list"): {"--state", "--label", "--limit", "--json"},
    ("issue", "view"): {"--json"},
    ("issue", "comment"): {"--body-file"},
    ("pr", "list"): {"--state", "--limit", "--json"},
    ("pr", "view"): {"--json"},
    ("pr", "comment"): {"--body-file"},
    ("pr", "create"): {"--draft", "--head", "--base", "--title", "--body-file"},
    ("pr", "ready"): set(),
}
OPTIONAL: Final = {("pr", "list"): {"--head"}, ("pr", "ready"): {"--undo"}}
SWITCHES: Final = {"--draft", "--undo"}


def install(folder: Path, issues: dict[str, dict[str, Any]]) -> Path:
    """Put a gh that knows *issues* into *folder*; return its state file."""
    folder.mkdir()
    program = folder / "gh"
    source = Path(__file__).read_text(encoding="utf-8")
    program.write_text(f"#!{sys.executable} -SE\n{source}", encoding="utf-8")
    program.chmod(0o755)
    state = folder / STATE
    state.write_text(json.dumps({"issues": issues, "pulls": {}, "faults": [], "calls": []}))
    return state


def fail(why: str, code: int = WRONG) -> None:
    sys.stderr.write(f"{why}\n")
    sys.exit(code)


def parse(words: list[str]) -> tuple[tuple[str, str], list[str], dict[str, str]]:
    command = (words[0], words[1])
    if command not in FLAGS:
        fail(f"unknown command {command}")
    rest, options, arguments = words[2:], {}, []
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            arguments.append(word)
        elif word in SWITCHES:
            options[word] = ""
        else:
            options[word] = rest.pop(0)
    if options.pop("--repo", None) != REPOSITORY:
        fail("the repository is not named")
    wanted = FLAGS[command]
    if not wanted <= set(options) <= wanted | OPTIONAL.get(command, set()):
        fail(f"unknown or missing flags: {sorted(options)}")
    return command, arguments, options


def check_surroundings() -> None:
    for name in ("GH_PROMPT_DISABLED", "GH_NO_UPDATE_NOTIFIER", "NO_COLOR"):
        if not os.environ.get(name):
            fail(f"{name} is not set")
    for name in ("GH_DEBUG", "GH_FORCE_TTY", "GIT_DIR", "GH_REPO"):
        if name in os.environ:
            fail(f"{name} is set")
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        fail("stdin is not a pipe")


def answer(state: dict[str, Any], words: list[str], stdin: str) -> str:  # noqa: C901 - one branch a command
    command, arguments, options = parse(words)
    kind = "issues" if command[0] == "issue" else "pulls"
    match command:
        case ("issue", "list"):
            found = [
                number
                for number, issue in state["issues"].items()
                if issue["state"] == "OPEN" and options["--label"] in issue["labels"]
            ]
            return json.dumps([{"number": int(number)} for number in found])
        case ("pr", "list"):
            pulls = [{**pull, "number": int(number)} for number, pull in state["pulls"].items()]
            if options["--state"] != "all":
                pulls = [pull for pull in pulls if pull["state"] == "OPEN"]
            wanted = options.get("--head")
            return shown([pull for pull in pulls if wanted in {None, pull["headRefName"]}], options["--json"])
        case (_, "view"):
            if arguments[0] not in state[kind]:
                fail(
                    f"GraphQL: Could not resolve to an issue or pull request with the number {arguments[0]}.",
                    1,
                )
            return shown({**state[kind][arguments[0]], "number": int(arguments[0])}, options["--json"])
        case (_, "comment"):
            comment = {"author": {"login": "liza"}, "body": stdin, "viewerDidAuthor": True}
            state[kind][arguments[0]]["comments"].append(comment)
            return "https://github.com/o/r/issues/1#issuecomment-1\n"
        case ("pr", "create"):
            return create(state, options, stdin)
        case ("pr", "ready"):
            state["pulls"][arguments[0]]["isDraft"] = "--undo" in options
    return ""


def create(state: dict[str, Any], options: dict[str, str], body: str) -> str:
    if any(pull["headRefName"] == options["--head"] for pull in state["pulls"].values()):
        fail(f'a pull request for branch "{options["--head"]}" into branch "main" already exists', 1)
    number = 12 + len(state["pulls"])
    state["pulls"][str(number)] = {
        "headRefName": options["--head"],
        "url": f"https://github.com/o/r/pull/{number}",
        "state": "OPEN",
        "isDraft": "--draft" in options,
        "isCrossRepository": False,
        "comments": [],
        "title": options["--title"],
        "body": body,
    }
    return f"https://github.com/o/r/pull/{number}\n"


def shown(found: Any, fields: str) -> str:  # noqa: ANN401 - a record or a list of them
    if isinstance(found, list):
        return json.dumps([{name: one[name] for name in fields.split(",")} for one in found])
    return json.dumps({name: found[name] for name in fields.split(",")})


def main() -> None:
    check_surroundings()
    stdin = sys.stdin.read()
    path = Path(__file__).with_name(STATE)
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        state["calls"].append(sys.argv[1:])
        fault = state["faults"].pop(0) if state["faults"] else None
        printed = fault.get("printed", "") if fault else ""
        if not fault or fault.get("done"):
            printed = answer(state, sys.argv[1:], stdin)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(state))
        draft.replace(path)
    if fault and "gate" in fault:
        Path(fault["gate"]).read_text()  # a pipe: it waits until somebody writes
    if fault and "code" in fault:
        fail(fault["said"], fault["code"])
    sys.stdout.write(printed)


if __name__ == "__main__":
    main()
