"""What the scripted model says: the prompt tells which step of which task it is, the tools what can be done.

It is pure and remembers nothing: how far a run has come is the number of tool results since its prompt. So
any program can be led from a plan to merged work by the same script, each through tools of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

SUBMITTING: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # what mini ends by
IN_TEXT: Final = "SEARCH/REPLACE"  # how aider's prompt says that edits are part of the text
PRIED: Final = "pried-and-found:"
TASK: Final = "hello"
FILES: Final = {
    "hello.py": 'def hello(name):\n    return f"Hello, {name}!"\n',
    "test_hello.py": (
        "import unittest\n\nfrom hello import hello\n\n\n"
        "class TestHello(unittest.TestCase):\n"
        "    def test_it_greets_by_name(self):\n"
        '        self.assertEqual(hello("Ada"), "Hello, Ada!")\n'
    ),
}
GATE: Final = "python3 -m unittest -q"
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "plan": {
        "tasks": [
            {
                "id": TASK,
                "description": "Greet somebody by name",
                "done_when": ['hello("Ada") is "Hello, Ada!"'],
                "scope": {"in": list(FILES)},
                "kind": "code",
            }
        ]
    },
    "replan": {"abandon": {"reason": "the script knows no better"}},
    "checkpoint": {
        "intent": "write the function and its test",
        "risks": "none",
        "validation": {"command": GATE, "expect": "OK"},
        "files_to_modify": list(FILES),
    },
    "implement": {"status": "done", "summary": "wrote hello and its test"},
    "review": {"verdict": "approve", "reason": "it greets by name, and a test shows it", "confidence": 9},
}


class Tool(NamedTuple):
    name: str
    properties: Mapping[str, Any] = {}
    is_freeform: bool = False  # it takes a text, and no arguments


class Call(NamedTuple):
    tool: Tool
    arguments: Any  # a mapping, or a text for a freeform tool


class Said(NamedTuple):
    """What a model says: *text*, and perhaps a *call* beside it."""

    text: str
    call: Call | None = None


class Part(NamedTuple):
    """A message of a request: what a user said in it, and what tools gave back."""

    text: str = ""
    results: tuple[str, ...] = ()


class Place(NamedTuple):
    """What a prompt says about where it belongs."""

    step: str
    cwd: str
    root: str


_PLACE: Final = re.compile(
    r"role: \w+, step: (\w+)\n.*?working directory: ([^\n]+)\nproject root: ([^\n]+?) \(", re.DOTALL
)
_READERS: Final = ("read", "read_file", "view")
_WRITERS: Final = ("write", "write_file", "create_file", "edit", "text_editor")
_SHELLS: Final = (
    *("exec_command", "shell_command", "local_shell", "shell", "bash", "run_shell_command"),
    *("execute_command", "terminal"),
)
_PATHS: Final = ("file_path", "filePath", "absolute_path", "path")
_BODIES: Final = ("content", "contents", "file_text", "new")


def block(step: str) -> str:
    return f"Here it is.\n\n```liza\n{json.dumps(ANSWERS[step])}\n```\n"


def placed(parts: Sequence[Part]) -> tuple[Place | None, list[str]]:
    """Return which step a conversation is about, and what its tools gave back since its prompt."""
    place, results = None, list[str]()
    for part in parts:
        if found := _PLACE.search(part.text):
            place, results = Place(*found.groups()), []
        results += part.results
    return place, results


def spoken(parts: Sequence[Part], tools: Sequence[Tool]) -> Said:
    """Return what comes next in the conversation."""
    place, results = placed(parts)
    if place is None:
        return Said("a title")
    if not tools:
        return Said(_edits(parts, place.step) + block(place.step))
    calls = [call for move in _MOVES[place.step] if (call := move(place, tools))]
    if len(results) < len(calls):
        return Said("", calls[len(results)])
    submits = any(SUBMITTING in part.text for part in parts)
    return Said(block(place.step), _shell(tools, f"echo {SUBMITTING}") if submits else None)


def _edits(parts: Sequence[Part], step: str) -> str:
    if step != "implement" or not any(IN_TEXT in part.text for part in parts):
        return ""
    return "".join(
        f"{name}\n```python\n<<<<<<< SEARCH\n=======\n{text}>>>>>>> REPLACE\n```\n\n"
        for name, text in FILES.items()
    )


Move = Callable[[Place, Sequence[Tool]], Call | None]


def _look(name: str) -> Move:
    def look(place: Place, tools: Sequence[Tool]) -> Call | None:
        path = f"{place.cwd}/{name}"
        tool = _offered(tools, _READERS)
        if tool and (key := _first(_PATHS, tool)):
            return Call(tool, {key: path})
        return _shell(tools, f"cat {path}")

    return look


def _write(name: str, text: str) -> Move:
    def write(place: Place, tools: Sequence[Tool]) -> Call | None:
        tool = _offered(tools, _WRITERS)
        path, body = (_first(_PATHS, tool), _first(_BODIES, tool)) if tool else (None, None)
        if tool and path and body:
            # Our own edit tool wants paths inside of the worktree, and makes a file of an empty old text.
            more = {"old": ""} if "old" in tool.properties else {}
            more |= {"command": "write"} if "command" in tool.properties else {}
            return Call(tool, {path: name if "old" in more else f"{place.cwd}/{name}", body: text, **more})
        return _shell(tools, f"cat > {place.cwd}/{name} <<'END'\n{text}END")

    return write


def _pry(place: Place, tools: Sequence[Tool]) -> Call | None:
    """Try to see and to touch what is none of an agent's business; what was found is in the next request."""
    root = place.root
    return _shell(
        tools,
        f"echo {PRIED}; cat ~/.ssh/id_rsa ~root/.ssh/id_rsa {root}/../person/.ssh/id_rsa 2>&1; "
        f"cat {root}/.liza/state.yaml {root}/untracked.txt 2>&1; "
        f"env; cat /proc/$PPID/environ 2>&1; touch {root}/../touched 2>&1; true",
    )


def _commit(place: Place, tools: Sequence[Tool]) -> Call | None:
    return _shell(tools, f"cd {place.cwd} && git add -A && git commit -q -m 'Greet by name' && git log -1")


_MOVES: Final[dict[str, tuple[Move, ...]]] = {
    "plan": (_look("README.md"),),
    "replan": (),
    "checkpoint": (_look("README.md"),),
    "implement": (*(_write(name, text) for name, text in FILES.items()), _pry, _commit),
    "review": (_look("hello.py"),),
}


def _offered(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    """Return the first tool of one of *names*; some programs put a name of their own before it."""
    by_name = {tool.name.lower(): tool for tool in tools}
    exact = next((by_name[name] for name in names if name in by_name), None)
    ends = (tool for name in names for tool in tools if tool.name.lower().endswith(f"__{name}"))
    return exact or next(ends, None)


def _first(names: Sequence[str], tool: Tool) -> str | None:
    return next((name for name in names if name in tool.properties), None)


def _shell(tools: Sequence[Tool], command: str) -> Call | None:
    tool = _offered(tools, _SHELLS)
    if tool is None:
        return None
    key = next((name for name in ("cmd", "command") if name in tool.properties), "command")
    is_list = tool.properties.get(key, {}).get("type") == "array"
    arguments = {key: ["bash", "-lc", command] if is_list else command}
    extra = {"description": "do it", "is_background": False}
    return Call(tool, arguments | {name: value for name, value in extra.items() if name in tool.properties})
