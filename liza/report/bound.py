"""The worst that a run can cost, before it begins: limits times what a run of each step costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.lifecycle import TERMINAL
from liza.money import cap_of, estimate, kind_of, spent_on
from liza.replies import ROLES, Step
from liza.work.hiring import backend_of, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.model import State

ASKED: Final = 2  # runs of one step: an answer that cannot be read is asked for once more


class Line(NamedTuple):
    """One step: how often it can run for one task, and what one run costs."""

    step: Step
    times: int
    usd: float

    @property
    def most(self) -> float:
        return self.times * self.usd


def steps_of_a_task(state: State) -> list[Line]:
    """Return what one task can take at the worst: every round used up, every answer asked for twice."""
    rounds = state.config.limits.max_coder_iterations
    times = {Step.CHECKPOINT: rounds, Step.IMPLEMENT: rounds, Step.REVIEW: rounds, Step.REPLAN: 1}
    return [Line(step, ASKED * count, _price(state, step)) for step, count in times.items()]


def _price(state: State, step: Step) -> float:
    choice = chosen(state.config.agents, ROLES[step], step)
    return estimate(state, kind_of(step, choice.model or backend_of(choice) or ""))


def bound(state: State) -> Iterator[str]:
    """Yield the worst case in lines, and what the caps make of it."""
    each = steps_of_a_task(state)
    yield "The worst case of one task, with every round used up and every answer asked for twice:"
    yield from (f"  {one.step:<12}{one.times:>4} runs of ${one.usd:.2f} = ${one.most:.2f}" for one in each)
    whole = sum(one.most for one in each)
    open_ones = [task.id for task in state.tasks.values() if task.status not in TERMINAL]
    plan = 0.0 if state.tasks or state.archived else ASKED * _price(state, Step.PLAN)
    if plan:
        yield f"  {Step.PLAN:<12}{ASKED:>4} runs, once = ${plan:.2f}; how many tasks it makes is not known"
    capped = sum(min(whole, max(0.0, cap_of(state, name) - spent_on(state, name).usd)) for name in open_ones)
    yield f"Without caps: {len(open_ones)} tasks, ${plan + whole * len(open_ones):.2f}"
    yield f"With ${state.config.budget.task_usd:.2f} a task (budget.task_usd): ${plan + capped:.2f}"
    left = max(0.0, state.config.budget.run_usd - state.spend.total.usd)
    # A plan that is not there yet, or a task that is replanned, can become any number of tasks.
    yield f"With ${state.config.budget.run_usd:.2f} in all (budget.run_usd): at most ${left:.2f} more"
