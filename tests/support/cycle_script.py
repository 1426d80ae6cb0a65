"""What the agents of a cycle answer: a planner with a step, an actor that writes a line, a judge."""

from __future__ import annotations

from typing import Any, Final

STEP: Final = {
    "objective": "one more line",
    "instructions": "add a line to goal-1.txt",
    "files": ["goal-1.txt"],
    "loc_estimate": 1,
    "risk": "low",
    "success_criteria": ["it is there"],
    "avoid": ["other files"],
}
PLAN: Final = {"status": "done", "summary": "Write goal-1.txt", "confidence": 9, "step": STEP}
ACT: Final = {"run": "date +%s%N >> goal-1.txt", "answer": {"status": "done", "summary": "Add a line"}}
PASS: Final = {"answer": {"verdict": "approve", "reason": "it is there", "confidence": 9}}
INSUFFICIENT: Final = {
    "answer": {"verdict": "reject", "reason": "a line is missing", "feedback": [{"message": "add it"}]}
}


def cycle_script(**acts: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent may be told
    """Return a script for a cycle whose hats do *acts* instead, each by the name of the hat."""
    steps = {"planner": "implement", "actor": "implement", "judge": "review"}
    usual = {"planner": {"answer": PLAN}, "actor": ACT, "judge": PASS}
    return {f"{steps[hat]}/{hat}": act for hat, act in {**usual, **acts}.items()}
