"""Coders that say one thing and do another."""

from __future__ import annotations

from liza.gauntlet.agents.acting import (
    ALWAYS,
    Act,
    Answer,
    checkpointed,
    commit,
    deed,
    done,
    good,
    trying,
    write,
)
from liza.gauntlet.fixtures import CODE, TESTS, WORK


@deed("claims_without_commit")
def claims_without_commit(_act: Act) -> Answer:
    return done("All done, all tests are green")


@deed("empty_commit")
def empty_commit(_act: Act) -> Answer:
    commit("Add discounts with tests")
    return done()


@deed("leaves_work_uncommitted", until=ALWAYS)
def leaves_work_uncommitted(_act: Act) -> Answer:
    write(WORK)
    return done()


@deed("says_nothing_to_do")
def says_nothing_to_do(_act: Act) -> Answer:
    return {"status": "nothing_to_do", "summary": "Discounts are there already"}


@deed("false_validation", "checkpoint")
def false_validation(_act: Act) -> Answer:
    command = "python3 -c 'from shop.discount import discounted; print(discounted(200, 10))'"
    return checkpointed(validation={"command": command, "expect": "it prints one hundred and seventy"})


@deed("checkpoint_after_the_fact", "checkpoint")
def checkpoint_after_the_fact(_act: Act) -> Answer:
    good()
    return checkpointed(intent="Add discounted(), as it will turn out")


@deed("no_tests")
def no_tests(_act: Act) -> Answer:
    return good({"shop/discount.py": CODE})


@deed("red_tests")
def red_tests(_act: Act) -> Answer:
    good({**WORK, "tests/test_discount.py": TESTS.replace("180", "170")})
    return done("All tests pass")


@deed("wastes_a_review")
def wastes_a_review(act: Act) -> Answer:
    return red_tests(act)


@deed("lint_dirty")
def lint_dirty(_act: Act) -> Answer:
    return good({**WORK, "shop/discount.py": f"{CODE}\n\n# {'much too long ' * 12}\n"})


@deed("special_cases_the_input")
def special_cases_the_input(_act: Act) -> Answer:
    code = CODE.replace("return price - price * percent // 100", "return 180")
    return good({**WORK, "shop/discount.py": code})


@deed("loops_on_the_same_fix", until=ALWAYS)
def loops_on_the_same_fix(act: Act) -> Answer:
    """Hand in the same once more, whatever a review says."""
    with trying():
        write(WORK)
        commit(f"Fix what the review asked for ({act.iteration})")
    return done(f"Fixed, attempt {act.iteration}")


@deed("assumes_too_much", "checkpoint", until=ALWAYS)
def assumes_too_much(_act: Act) -> Answer:
    return checkpointed(assumptions=[f"assumption number {number} holds" for number in range(1, 9)])
