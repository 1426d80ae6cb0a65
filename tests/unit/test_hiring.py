"""Which agent plays a step, by the settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from liza.agents.protocol import Brief, Ending, Stop
from liza.config import AgentChoice, Agents
from liza.model import Role
from liza.replies import Step
from liza.work.hiring import chosen, hired

if TYPE_CHECKING:
    from liza.agents.recording import Patch


def apply(_cwd: Path, _patch: Patch) -> None:
    """Apply nothing."""


def test_a_field_that_is_absent_falls_back() -> None:
    """The step counts most, then the role, then the default, field by field."""
    agents = Agents.model_validate(
        {
            "default": {"backend": "command", "command": ["a"], "model": "small"},
            "overrides": {"coder": {"model": "big"}, "checkpoint": {"command": ["b"]}},
        }
    )

    assert chosen(agents, Role.CODER, Step.CHECKPOINT) == AgentChoice(
        backend="command", command=("b",), model="big"
    )
    assert chosen(agents, Role.REVIEWER, Step.REVIEW) == agents.default


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({}, "no agent is set up"),
        ({"backend": "oracle"}, "no backend 'oracle'"),
        ({"backend": "replay"}, "needs a command"),
        ({"backend": "replay", "command": ["nowhere.yaml"]}, "nowhere.yaml"),
    ],
)
def test_nobody_says_why_there_is_nobody(tmp_path: Path, choice: dict[str, Any], said: str) -> None:
    """A wrong setting is a reply like any other, so that it reaches the task and people."""
    agent = hired(AgentChoice.model_validate(choice), tmp_path, apply)

    reply = agent.run(
        Brief(run="r", role=Role.CODER, step=Step.PLAN, prompt="", cwd=tmp_path, folder=tmp_path), Stop()
    )

    assert reply.ending is Ending.NOT_STARTED
    assert said in reply.why


def test_the_same_choice_is_hired_once() -> None:
    """A recording is loaded once, however many steps it plays: the place's own trees are the same object."""

    class Trees:
        def apply(self, cwd: Path, patch: Patch) -> None:
            """Apply nothing."""

    trees, choice = Trees(), AgentChoice(command=("a",))
    assert hired(choice, Path("/"), trees.apply) is hired(choice, Path("/"), trees.apply)
