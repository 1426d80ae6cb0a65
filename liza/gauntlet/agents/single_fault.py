"""Coders whose one fault a single gate can see: everything else about the work is in order."""

from __future__ import annotations

import time
from typing import Final

from liza.gauntlet.agents.acting import (
    Act,
    Answer,
    approval,
    checkpointed,
    commit,
    deed,
    done,
    good,
    implement,
    planned,
)
from liza.gauntlet.fixtures import CODE, NAMES, RATES, TASK, WORK

SEEN: Final = "`python3 -c 'from shop.discount import __doc__ as d; print(d)'` prints Prices for friends"
SLOW: Final = 1.5  # seconds in which the coder takes the next task, before this one is merged


@deed("no_tests_and_no_command")
def no_tests_and_no_command(_act: Act) -> Answer:
    return good({"shop/discount.py": CODE})


@deed("breaks_the_setup")
def breaks_the_setup(_act: Act) -> Answer:
    """Add a module that nobody imports and no machine can compile."""
    return good({**WORK, "shop/later.py": "def later(:\n"})


@deed("breaks_the_setup", "checkpoint", until=99)
def promises_nothing(_act: Act) -> Answer:
    return checkpointed(validation=None)


@deed("ignores_done_when", "plan", until=99)
def plans_a_line_to_run(_act: Act) -> Answer:
    return {"tasks": [planned(done_when=["discounted(200, 10) is 180", SEEN])]}


@deed("ignores_done_when")
def ignores_done_when(_act: Act) -> Answer:
    return good({**WORK, "shop/discount.py": CODE.replace('"""Prices for friends."""', '"""Prices."""')})


@deed("cites_what_is_not_there")
def cites_what_is_not_there(_act: Act) -> Answer:
    good()
    return done("Discounts are there; they build on shop/taxes.py:12, which rounds already")


@deed("learns_slowly", until=8)
def learns_slowly(_act: Act) -> Answer:
    commit("Think about discounts")
    return done()


@deed("spoils_the_data", "plan", until=99)
def plans_data(_act: Act) -> Answer:
    rates = planned(
        description="Say what friends get",
        done_when=["shop/rates.json has a rate for friends"],
        scope={"in": list(RATES)},
        kind="config",
        validation=None,
    )
    return {"tasks": [rates]}


@deed("spoils_the_data", "checkpoint", until=99)
def announces_data(_act: Act) -> Answer:
    return checkpointed(intent="Add a rate", validation=None, files_to_modify=list(RATES))


@deed("spoils_the_data", until=99)
def spoils_the_data(act: Act) -> Answer:
    return good({"shop/rates.json": '{"friends": 1000}\n'} if act.iteration == 1 else RATES)


@deed("breaks_what_is_merged", "plan", until=99)
def plans_two(_act: Act) -> Answer:
    names = planned(
        id="names",
        description="Name what is sold",
        done_when=["NAMES is sorted"],
        scope={"in": list(NAMES)},
        validation=None,
    )
    return {"tasks": [planned(), names]}


@deed("breaks_what_is_merged", "checkpoint", until=99)
def announces_either(act: Act) -> Answer:
    files = WORK if act.task == TASK else NAMES
    return checkpointed(validation=None, files_to_modify=list(files))


@deed("breaks_what_is_merged", until=99)
def breaks_what_is_merged(act: Act) -> Answer:
    """Claim in a test that there is nothing beside it: true until the other task is merged."""
    if act.task == TASK:
        return implement(act)
    claim = (
        "\n    def test_nothing_else_is_sold(self) -> None:\n"
        "        self.assertIsNone(importlib.util.find_spec('shop.discount'))\n"
    )
    tests = f"import importlib.util\n{NAMES['tests/test_names.py']}{claim}"
    return good({**NAMES, "tests/test_names.py": tests} if act.iteration == 1 else NAMES)


@deed("breaks_what_is_merged", "review", until=99)
def reviews_slowly(act: Act) -> Answer:
    if act.task == TASK:
        time.sleep(SLOW)
    return approval()
