"""The worst that a run can cost, before it begins: limits times the most that a run of each step has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.select import COMMAND, backend_of, select_agent
from liza.domain.answers import Step
from liza.domain.budget import cost_kind, highest_cost, never_reports_cost, spent_on, task_cap
from liza.domain.lifecycle import TERMINAL
from liza.workflow.document import routes_in, workflow_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from liza.domain.config import RouteKey
    from liza.domain.model import State
    from liza.workflow.document import Workflow

ASKS_PER_STEP: Final = 2  # runs of one step: an answer that cannot be read is asked for once more


class StepCost(NamedTuple):
    """Who is asked: how often for one task, and the most that one run has cost; None: not known."""

    who: str
    times: int
    usd: float | None

    @property
    def most(self) -> float | None:
        return None if self.usd is None else self.times * self.usd

    def __str__(self) -> str:
        runs = f"  {self.who:<12}{self.times:>4} runs"
        if self.usd is None or self.most is None:
            return f"{runs}; what one costs is not known yet"
        return f"{runs} of at most ${self.usd:.2f} = ${self.most:.2f}"


def task_step_costs(state: State) -> list[StepCost]:
    """Return what one task can take at the worst: every round used up, every answer asked for twice."""
    flow = workflow_on(state)
    asked = sorted(dict.fromkeys(routes_in(flow)), key=lambda who: who.step == Step.REPLAN)
    return [
        StepCost(
            _name(who), ASKS_PER_STEP * _rounds(state, flow, who), highest_cost(state, _kind(state, who))
        )
        for who in asked
        if who.step != Step.PLAN
    ]


def _name(who: RouteKey) -> str:
    return f"{who.hat} in {who.phase} " if who.hat else str(who.step)


def _rounds(state: State, flow: Workflow, who: RouteKey) -> int:
    """Return how often *who* can be asked: one without a limit as often as that with the most."""
    if who.phase is None:
        return 1
    limits = {name: max(phase.max_iterations.values(), default=0) for name, phase in flow.phases.items()}
    return limits[who.phase] or max(limits.values()) or state.config.limits.max_coder_iterations


def _kind(state: State, who: RouteKey) -> str:
    choice = select_agent(state.config.agents, who).choice
    return cost_kind(who.step, choice.model or backend_of(choice) or "")


def worst_case_lines(state: State) -> Iterator[str]:
    """Yield the worst case in lines, and what the caps make of it."""
    each = task_step_costs(state)
    yield "The worst case of one task, with every round used up and every answer asked for twice:"
    yield from map(str, each)
    whole = _sum([one.most for one in each])
    open_ones = [task.id for task in state.tasks.values() if task.status not in TERMINAL]
    if not (state.tasks or state.archived):
        for who in (one for one in routes_in(workflow_on(state)) if one.step == Step.PLAN):
            plan = StepCost(_name(who), ASKS_PER_STEP, highest_cost(state, _kind(state, who)))
            yield f"{plan}, once; how many tasks it makes is not known"
    budget = state.config.budget
    left = max(0.0, budget.run_usd - state.spend.total.usd)
    if whole is not None:
        yield f"Without caps: {len(open_ones)} tasks, ${whole * len(open_ones):.2f}"
    of_tasks = [max(0.0, task_cap(state, name) - spent_on(state, name).usd) for name in open_ones]
    capped = sum(one if whole is None else min(whole, one) for one in of_tasks)
    yield f"With ${budget.task_usd:.2f} a task (budget.task_usd): ${capped:.2f} for {len(open_ones)} tasks"
    # A plan that is not there yet, or a task that is replanned, can become any number of tasks.
    yield f"With ${budget.run_usd:.2f} in all (budget.run_usd): at most ${left:.2f} more"
    yield from _limits_of_the_bound(state)


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [one for one in costs if one is not None]
    return sum(known) if len(known) == len(costs) else None


def _limits_of_the_bound(state: State) -> Iterator[str]:
    """Yield whom the caps cannot hold to the cent: who tells what a run cost at its end, or not at all."""
    routes = routes_in(workflow_on(state))
    own = [who for who in routes if backend_of(select_agent(state.config.agents, who).choice) == COMMAND]
    if not own:
        return
    limits = state.config.limits
    if any(never_reports_cost(state, _kind(state, who)) for who in own):
        yield (
            "Agents of your own (backend command) do not report what they cost, so that no cap holds them; "
            f"{limits.max_coder_iterations} rounds a coder and {limits.agent_minutes:g} minutes a run do"
        )
    else:
        yield (
            "Agents of your own (backend command) that report what a run cost only at its end can pass a cap "
            "by that run; one that prints it while it works is ended in time (specs/money.md)"
        )
