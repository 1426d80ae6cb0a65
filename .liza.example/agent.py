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
# Roles of the other workflows that answer more than that: the planner of cycle, two of phased.
STEP = {"objective": "Greet", "instructions": "Add greet()", "files": [*FILES], "loc_estimate": 12}
MORE = {
    "planner": {"step": {**STEP, "risk": "low", "success_criteria": DONE_WHEN, "avoid": ["other files"]}},
    "thinker": {"handoff": {"summary": "Add greet() and its test", "files_to_create": [*FILES]}},
    "complexity_assessor": {"label": "SIMPLE"},
}

# All that there is to know is on stdin; a real agent gives that to a model.
step, role = os.environ["LIZA_STEP"], os.environ["LIZA_HAT"]
if role in {"coder", "worker", "actor"} and step == "implement":
    # The current directory is the worktree; what is not committed, Liza commits.
    for name, text in FILES.items():
        Path(name).write_text(text)
answer = ANSWERS[step] | (MORE.get(role, {}) if step in {"implement", "review"} else {})
print("```liza", json.dumps(answer), "```", sep="\n")
