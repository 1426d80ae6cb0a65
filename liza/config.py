"""What a run may be told: the `config` section of the board and, with the same shape, `liza.yaml`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from liza import routing
from liza.record import Line, Record

Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
# No infinities: JSON, and so the journal, cannot say them.
Minutes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]

INTEGRATION_BRANCH: Final = "liza/integration"


class Workers(Record):
    planner: AtLeastOne = 1
    coder: AtLeastOne = 2
    reviewer: AtLeastOne = 1


class AgentChoice(Record):
    """Which agent plays a role; a field that is absent falls back to the next key of the chain."""

    backend: Line | None = None
    command: tuple[Line, ...] | None = None
    model: Line | None = None
    effort: Line | None = None
    arguments: tuple[Line, ...] | None = None  # further words for a coding program
    passing: tuple[Line, ...] | None = None  # names of variables that it may see beside the usual ones
    own_home: bool | None = None  # it works in your home, with your settings, hooks and servers


class Agents(Record):
    default: AgentChoice = AgentChoice()
    overrides: Annotated[dict[str, AgentChoice], AfterValidator(routing.checked)] = Field(
        default_factory=dict
    )
    fallback: AgentChoice | None = None  # tried once where the chosen agent cannot be started
    prefer_different_reviewer: bool = False  # a reviewer of another provider than the coder's


class Gates(Record):
    """The project's own commands; an absent one is not run."""

    setup: Line | None = None
    test: Line | None = None
    lint: Line | None = None


class Limits(Record):
    max_coder_iterations: AtLeastOne = 10
    max_review_cycles: AtLeastOne = 5
    max_rejections: AtLeastOne = 3
    max_same_reason: AtLeastOne = 2
    assumption_budget: Count = 5
    agent_minutes: Minutes = 30
    silence_minutes: Minutes = 10
    lease_seconds: Seconds = 60
    finished_on_board: Count = 100


class Budget(Record):
    run_usd: Usd = 20
    task_usd: Usd = 5


class Notify(Record):
    command: tuple[Line, ...] | None = None
    webhook: Line | None = None


class Config(Record):
    spec: Line | None = None
    workflow: Line = "liza"
    integration_branch: Line = INTEGRATION_BRANCH
    workers: Workers = Workers()
    agents: Agents = Agents()
    gates: Gates = Gates()
    limits: Limits = Limits()
    budget: Budget = Budget()
    notify: Notify = Notify()
