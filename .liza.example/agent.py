"""A whole agent, to copy beside liza.yaml: `agents: {default: {command: [python3, agent.py]}}`."""

import json
import os
from pathlib import Path

FILES = {
    "greet.py": 'def greet(name):\n    return f"Hello, {name}"\n',
    "test_greet.py": "import unittest\nfrom greet import greet\n\n\nclass Greeting(unittest.TestCase):\n"
    "    def test_it_greets(self):\n        self.assertEqual(greet('you'), 'Hello, you')\n",
}
DONE_WHEN = ["greet('you') returns Hello, you"]
ANSWERS = {
    "plan": {
        "tasks": [{"id": "greet", "description": "Greet", "done_when": DONE_WHEN, "scope": {"in": [*FILES]}}]
    },
    "replan": {"questions": ["What should become of it?"]},
    "checkpoint": {"intent": "greet() with a test", "files_to_modify": [*FILES]},
    "implement": {"status": "done", "summary": "Add greet() and its test"},
    "review": {"verdict": "approve", "reason": "greet() is there, and its test shows it"},
}

step = os.environ["LIZA_STEP"]  # all that there is to know is on stdin; a real agent gives that to a model
if step == "implement":  # the current directory is the worktree; what is not committed, Liza commits
    for name, text in FILES.items():
        Path(name).write_text(text)
print("```liza", json.dumps(ANSWERS[step]), "```", sep="\n")
