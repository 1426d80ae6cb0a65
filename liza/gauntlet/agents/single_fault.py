"""Coders whose one fault a single gate can see: everything else about the work is in order."""

from __future__ import annotations

import time
from typing import Final

from liza.gauntlet.agents.behaviour import (
    Answer,
    Run,
    approval,
    checkpoint_answer,
    commit_everything,
    commit_work,
    done_answer,
    honest_implement,
    misbehaviour,
    planned_task,
)
from liza.gauntlet.fixtures import CODE, NAMES, RATES, TASK, WORK

SEEN: Final = "`python3 -c 'from shop.discount import __doc__ as d; print(d)'` prints Prices for friends"
SLOW: Final = 1.5  # seconds in which the coder takes the next task, before this one is merged


@misbehaviour("no_tests_and_no_command")
def no_tests_and_no_command(_act: Run) -> Answer:
    return commit_work({"shop/discount.py": CODE})


@misbehaviour("breaks_the_setup")
def breaks_the_setup(_act: Run) -> Answer:
    """Add a module that nobody imports and no machine can compile."""
    return commit_work({**WORK, "shop/later.py": "def later(:\n"})


@misbehaviour("breaks_the_setup", "checkpoint", until=99)
def promises_nothing(_act: Run) -> Answer:
    return checkpoint_answer(validation=None)


@misbehaviour("ignores_done_when", "plan", until=99)
def plans_a_line_to_run(_act: Run) -> Answer:
    return {"tasks": [planned_task(done_when=["discounted(200, 10) is 180", SEEN])]}


@misbehaviour("ignores_done_when")
def ignores_done_when(_act: Run) -> Answer:
    return commit_work(
        {**WORK, "shop/discount.py": CODE.replace('"""Prices for friends."""', '"""Prices."""')}
    )


@misbehaviour("cites_what_is_not_there")
def cites_what_is_not_there(_act: Run) -> Answer:
    commit_work()
    return done_answer("Discounts are there; they build on shop/taxes.py:12, which rounds already")


@misbehaviour("learns_slowly", until=8)
def learns_slowly(_act: Run) -> Answer:
    commit_everything("Think about discounts")
    return done_answer()


@misbehaviour("spoils_the_data", "plan", until=99)
def plans_data(_act: Run) -> Answer:
    rates = planned_task(
        description="Say what friends get",
        done_when=["shop/rates.json has a rate for friends"],
        scope={"in": list(RATES)},
        kind="config",
        validation=None,
    )
    return {"tasks": [rates]}


@misbehaviour("spoils_the_data", "checkpoint", until=99)
def announces_data(_act: Run) -> Answer:
    return checkpoint_answer(intent="Add a rate", validation=None, files_to_modify=list(RATES))


@misbehaviour("spoils_the_data", until=99)
def spoils_the_data(act: Run) -> Answer:
    return commit_work({"shop/rates.json": '{"friends": 1000}\n'} if act.iteration == 1 else RATES)


@misbehaviour("breaks_what_is_merged", "plan", until=99)
def plans_two(_act: Run) -> Answer:
    names = planned_task(
        id="names",
        description="Name what is sold",
        done_when=["NAMES is sorted"],
        scope={"in": list(NAMES)},
        validation=None,
    )
    return {"tasks": [planned_task(), names]}


@misbehaviour("breaks_what_is_merged", "checkpoint", until=99)
def announces_either(act: Run) -> Answer:
    files = WORK if act.task == TASK else NAMES
    return checkpoint_answer(validation=None, files_to_modify=list(files))


@misbehaviour("breaks_what_is_merged", until=99)
def breaks_what_is_merged(act: Run) -> Answer:
    """Claim in a test that there is nothing beside it: true until the other task is merged."""
    if act.task == TASK:
        return honest_implement(act)
    claim = (
        "\n    def test_nothing_else_is_sold(self) -> None:\n"
        "        self.assertIsNone(importlib.util.find_spec('shop.discount'))\n"
    )
    tests = f"import importlib.util\n{NAMES['tests/test_names.py']}{claim}"
    return commit_work({**NAMES, "tests/test_names.py": tests} if act.iteration == 1 else NAMES)


@misbehaviour("breaks_what_is_merged", "review", until=99)
def reviews_slowly(act: Run) -> Answer:
    if act.task == TASK:
        time.sleep(SLOW)
    return approval()
