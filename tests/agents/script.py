"""What the scripted model says: the prompt tells which step of which task it is, the tools what can be done.

It is pure and remembers nothing: how far a run has come is the number of tool results since its prompt. So
any program can be led from a plan to merged work by the same script, each through tools of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

SUBMITTING: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # what mini ends by
IN_TEXT: Final = "SEARCH/REPLACE"  # how aider's prompt says that edits are part of the text
PRIED: Final = "pried-and-found:"
# What a person says to an assistant that has `liza mcp`, and what the script then does about it.
STEERING: Final = "Look how Liza stands, and tell its agents to be brief."
NOTE: Final = "be brief"
TOLD: Final = ('"headline"', "Noted.")  # in what the tools `status` and `note` say
MOST_WAITS: Final = 9  # for servers that are slow to start
STEERED: Final = "Liza stands well, and its agents know."
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
README: Final = "# Greeter\n\n`hello(name)` greets somebody by name.\n"
GATE: Final = "python3 -m unittest -q"
_STEP_OF_A_LOOP: Final = {
    "objective": "Greet somebody by name",
    "instructions": "write hello.py, and its test in test_hello.py",
    "files": list(FILES),
    "loc_estimate": 10,
    "risk": "low",
    "success_criteria": ["the tests are green"],
    "avoid": ["other files"],
}
_THOUGHT: Final = {"status": "done", "summary": "write hello.py and test_hello.py", "risk": "low"}
# By step, and by `step/PHASE` or `step/hat` where one answers otherwise than the step does elsewhere.
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
    "implement/DOCS": {"status": "done", "summary": "said in README.md what hello does"},
    "implement/thinker": {**_THOUGHT, "handoff": {"files_to_create": list(FILES)}},
    "implement/coordinator": _THOUGHT,
    "implement/planner": {**_THOUGHT, "confidence": 9, "step": _STEP_OF_A_LOOP},
    "review": {"verdict": "approve", "reason": "it greets by name, and a test shows it", "confidence": 9},
    "review/complexity_assessor": {"verdict": "approve", "reason": "one function", "label": "SIMPLE"},
}


class Tool(NamedTuple):
    name: str
    properties: Mapping[str, Any] = {}
    is_freeform: bool = False  # it takes a text, and no arguments


class Call(NamedTuple):
    tool: Tool
    arguments: Any  # a mapping, or a text for a freeform tool
    number: int = 0  # of the call in its conversation, where the same is called twice


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
    phase: str | None  # of the workflow, and who is played in it
    hat: str | None
    cwd: str
    root: str

    def row(self, table: Iterable[str]) -> str:
        """Return the most exact key of *table* for it."""
        exact = (f"{self.step}/{self.phase}", f"{self.step}/{self.hat}")
        return next((key for key in exact if key in table), self.step)


_PLACE: Final = re.compile(
    r"role: \w+, step: (\w+)\ntask: [^\n]*\n(?:phase: (\w+), hat: (\w+)\n)?"
    r"working directory: ([^\n]+)\nproject root: ([^\n]+?) \("
)
_READERS: Final = ("read", "read_file", "view")
_WRITERS: Final = ("write", "write_file", "create_file", "edit", "text_editor")
_SHELLS: Final = (
    *("exec_command", "shell_command", "local_shell", "shell", "bash", "run_shell_command"),
    *("execute_command", "terminal"),
)
_PATHS: Final = ("file_path", "filePath", "absolute_path", "path")
_BODIES: Final = ("content", "contents", "file_text", "new")


def block(place: Place) -> str:
    return f"Here it is.\n\n```liza\n{json.dumps(ANSWERS[place.row(ANSWERS)])}\n```\n"


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
        return _steer(parts, tools, results)
    if not tools:
        return Said(_edits(parts, place.step) + block(place))
    calls = [call for move in _MOVES[place.row(_MOVES)] if (call := move(place, tools))]
    if len(results) < len(calls):
        # A conversation that goes on in another phase may call the same again.
        return Said("", calls[len(results)]._replace(number=sum(len(part.results) for part in parts)))
    submits = any(SUBMITTING in part.text for part in parts)
    return Said(block(place), _shell(tools, f"echo {SUBMITTING}") if submits else None)


def _steer(parts: Sequence[Part], tools: Sequence[Tool], results: Sequence[str]) -> Said:
    """Return what an assistant does whose user wants something of Liza; whoever else asks wants a title."""
    if not tools or not any(STEERING in part.text for part in parts):
        return Said("a title")
    offered = [_offered(tools, (f"liza__{name}",)) for name in ("status", "note")]
    calls = [Call(tool, {"text": NOTE} if "text" in tool.properties else {}) for tool in offered if tool]
    wait = _offered(tools, ("waitformcpservers",))
    if not calls and wait and len(results) < MOST_WAITS:
        return Said("", Call(wait, {}, len(results)))
    done = sum(any(told in result for told in TOLD) for result in results)
    return Said("", calls[done]._replace(number=len(results))) if done < len(calls) else Said(STEERED)


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


_THINKING: Final = (_look("README.md"),)
_MOVES: Final[dict[str, tuple[Move, ...]]] = {
    "plan": _THINKING,
    "replan": (),
    "checkpoint": _THINKING,
    "implement": (*(_write(name, text) for name, text in FILES.items()), _pry, _commit),
    "implement/DOCS": (_look("README.md"), _write("README.md", README), _commit),
    **dict.fromkeys(("implement/thinker", "implement/coordinator", "implement/planner"), _THINKING),
    "review": (_look("hello.py"),),
    "review/complexity_assessor": _THINKING,
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
