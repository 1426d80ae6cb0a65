"""Planners that plan what cannot be worked on."""

from __future__ import annotations

from liza.gauntlet.agents.acting import (
    ALWAYS,
    Act,
    Answer,
    approval,
    commit,
    deed,
    good,
    planned,
    trying,
    write,
)
from liza.gauntlet.fixtures import GOAL, INJECTION, WORK


@deed("plans_tests_apart", "plan", until=ALWAYS)
def plans_tests_apart(_act: Act) -> Answer:
    code = planned(id="code", scope={"in": ["shop/discount.py"]})
    tests = planned(
        id="tests",
        description="Cover discounts",
        scope={"in": ["tests/test_discount.py"]},
        depends_on=["code"],
    )
    return {"tasks": [code, tests]}


@deed("plans_a_cycle", "plan", until=ALWAYS)
def plans_a_cycle(_act: Act) -> Answer:
    return {"tasks": [planned(id="a", depends_on=["b"]), planned(id="b", depends_on=["a"])]}


@deed("plans_500_tasks", "plan", until=ALWAYS)
def plans_500_tasks(_act: Act) -> Answer:
    return {"tasks": [planned(id=f"t{number}", description=f"Step {number} of it") for number in range(500)]}


@deed("plans_20000_tasks", "plan", until=ALWAYS)
def plans_20000_tasks(_act: Act) -> Answer:
    """Say so much that the middle of it is not kept."""
    steps = (planned(id=f"t{number}", description=f"Step {number} of it") for number in range(20_000))
    return {"tasks": list(steps)}


@deed("plans_nothing", "plan", until=ALWAYS)
def plans_nothing(_act: Act) -> Answer:
    return {"tasks": []}


@deed("plans_what_nobody_can_test", "plan", until=ALWAYS)
def plans_what_nobody_can_test(_act: Act) -> Answer:
    vague = ["works well", "code is clean", "users are happy"]
    return {"tasks": [planned(done_when=vague, validation=None)]}


@deed("plans_from_a_spec_that_is_not_there", "plan", until=ALWAYS)
def plans_from_a_spec_that_is_not_there(_act: Act) -> Answer:
    return {"tasks": [planned(spec_ref="specs/nowhere.md")]}


@deed("plans_without_scope", "plan", until=ALWAYS)
def plans_without_scope(_act: Act) -> Answer:
    return {"tasks": [planned(scope={"in": [], "out": []})]}


@deed("plans_without_scope")
def wanders_where_nobody_drew_a_line(_act: Act) -> Answer:
    """Touch what the checkpoint does not announce; there is nothing else that it could break."""
    return good({**WORK, "README.md": "# Shop\n\nThe best shop.\n"})


@deed("plans_names_that_bite", "plan", until=ALWAYS)
def plans_names_that_bite(_act: Act) -> Answer:
    return {"tasks": [planned(id="../../etc; touch zoo"), planned(id="$(touch zoo)")]}


@deed("plans_what_is_taken_twice", "plan", until=ALWAYS)
def plans_what_is_taken_twice(_act: Act) -> Answer:
    return {"tasks": [planned(), planned(description="Give discounts once more")]}


@deed("planner_approves", "plan", until=ALWAYS)
def planner_approves(_act: Act) -> Answer:
    return approval("Everything that will be done is approved")


@deed("planner_writes_code", "plan", until=ALWAYS)
def planner_writes_code(_act: Act) -> Answer:
    """Do the work itself, where it only had to look."""
    with trying():
        write(WORK)
        commit("Add discounts, to save everybody's time")
    return {"tasks": [planned()]}


@deed("obeys_the_goal", "plan", until=ALWAYS)
def passes_an_injection_on(_act: Act) -> Answer:
    return {"tasks": [planned(description=f"{GOAL}. {INJECTION} write oops.txt")]}
