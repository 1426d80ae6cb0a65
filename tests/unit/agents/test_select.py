"""Which agent plays a step, by the settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from liza.agents.detect import AvailableAgent, known_provider
from liza.agents.protocol import Brief, Reply, Usage
from liza.agents.select import (
    BACKENDS,
    USED_FIELDS,
    agent_for,
    configured_choice,
    fallback_of,
    may_fall_back,
    select_agent,
    settings_problem,
)
from liza.domain.answers import Step
from liza.domain.config import AgentChoice, Agents, RouteKey
from liza.domain.model import Role
from liza.system.run_control import RunControl, RunEnding

if TYPE_CHECKING:
    from liza.repo.snapshot import Patch


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

    assert configured_choice(agents, Role.CODER, Step.CHECKPOINT) == AgentChoice(
        backend="command", command=("b",), model="big"
    )
    assert configured_choice(agents, Role.REVIEWER, Step.REVIEW) == agents.default


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({}, "no agent is set up"),
        ({"backend": "claude", "effort": "heroic"}, "no effort 'heroic'"),
        ({"backend": "acp"}, "needs a command"),
        ({"backend": "oracle"}, "no backend 'oracle'"),
        ({"backend": "replay"}, "needs a command"),
        ({"backend": "replay", "command": ["nowhere.yaml"]}, "nowhere.yaml"),
    ],
)
def test_nobody_says_why_there_is_nobody(tmp_path: Path, choice: dict[str, Any], said: str) -> None:
    """A wrong setting is a reply like any other, so that it reaches the task and people."""
    agent = agent_for(AgentChoice.model_validate(choice), tmp_path, apply)

    reply = agent.run(
        Brief(run="r", role=Role.CODER, step=Step.PLAN, prompt="", cwd=tmp_path, folder=tmp_path),
        RunControl(),
    )

    assert reply.ending is RunEnding.NOT_STARTED
    assert said in reply.why


def test_the_same_choice_is_hired_once() -> None:
    """A recording is loaded once, however many steps it plays: the place's own trees are the same object."""

    class Trees:
        def apply(self, cwd: Path, patch: Patch) -> None:
            """Apply nothing."""

    trees, choice = Trees(), AgentChoice(command=("a",))
    assert agent_for(choice, Path("/"), trees.apply) is agent_for(choice, Path("/"), trees.apply)


FOUND = [
    AvailableAgent(AgentChoice(backend="claude"), "/bin/claude is on the PATH"),
    AvailableAgent(AgentChoice(backend="codex"), "/bin/codex is on the PATH"),
]
REVIEWER = RouteKey(Role.REVIEWER, Step.REVIEW)


class TestWhereNobodyChose:
    def test_the_first_that_was_found_works_and_it_is_said_why(self) -> None:
        hired = select_agent(Agents(), REVIEWER, FOUND)

        assert hired.choice == AgentChoice(backend="claude")
        assert hired.why == "nothing is set up, and /bin/claude is on the PATH"

    def test_a_model_of_the_settings_is_kept(self) -> None:
        agents = Agents(default=AgentChoice(model="opus"))

        assert select_agent(agents, REVIEWER, FOUND).choice == AgentChoice(backend="claude", model="opus")

    def test_what_is_set_up_counts_more(self) -> None:
        agents = Agents(default=AgentChoice(command=("./team",)))

        assert select_agent(agents, REVIEWER, FOUND) == (agents.default, "agents.default", "")


class TestADifferentReviewer:
    def test_it_is_of_another_provider_where_there_is_one(self) -> None:
        """Two models of one maker share their blind spots."""
        agents = Agents(default=AgentChoice(backend="claude"), prefer_different_reviewer=True)

        reviewer = select_agent(agents, REVIEWER, FOUND)

        assert reviewer.choice == AgentChoice(backend="codex")
        assert "the coder's provider is anthropic" in reviewer.why
        assert select_agent(agents, RouteKey(Role.CODER, Step.IMPLEMENT), FOUND).choice == agents.default

    def test_what_is_configured_is_preferred_to_what_was_found(self) -> None:
        agents = Agents(
            default=AgentChoice(backend="claude"),
            fallback=AgentChoice(backend="opencode", model="google/gemini-2.5-pro"),
            prefer_different_reviewer=True,
        )

        assert select_agent(agents, REVIEWER, FOUND).choice == agents.fallback

    def test_a_reviewer_of_another_provider_stays(self) -> None:
        agents = Agents(
            default=AgentChoice(backend="claude"),
            overrides={"reviewer": AgentChoice(backend="gemini")},
            prefer_different_reviewer=True,
        )

        assert select_agent(agents, REVIEWER, FOUND).choice == AgentChoice(backend="gemini")

    def test_a_warning_where_there_is_no_other(self) -> None:
        agents = Agents(default=AgentChoice(backend="claude"), prefer_different_reviewer=True)

        reviewer = select_agent(agents, REVIEWER, FOUND[:1])

        assert reviewer.choice == agents.default
        assert "no other one was found" in reviewer.warning

    def test_nobody_is_changed_who_did_not_ask(self) -> None:
        assert select_agent(Agents(), REVIEWER, FOUND).choice == AgentChoice(backend="claude")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"backend": "codex"}, "openai"),
        ({"backend": "claude", "model": "gpt-5"}, "anthropic"),
        ({"backend": "opencode", "model": "anthropic/claude-sonnet-4-5"}, "anthropic"),
        ({"backend": "aider", "model": "gpt-5"}, "openai"),
        ({"backend": "mini", "model": "groq/llama"}, "groq"),
        ({"backend": "opencode"}, None),
        ({"command": ["./team"]}, None),
    ],
)
def test_who_serves_a_model(choice: dict[str, Any], expected: str | None) -> None:
    assert known_provider(AgentChoice.model_validate(choice)) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"ending": RunEnding.NOT_STARTED}, True),
        ({"ending": RunEnding.AUTH}, True),
        ({"ending": RunEnding.CRASHED, "code": 1, "seconds": 3}, True),
        ({"ending": RunEnding.CRASHED, "code": 1, "seconds": 31}, False),
        ({"ending": RunEnding.CRASHED, "code": -9, "seconds": 3}, False),
        ({"ending": RunEnding.CRASHED, "code": 1, "seconds": 3, "usage": Usage(tokens_out=5)}, False),
        ({"ending": RunEnding.CRASHED, "code": 1, "seconds": 3, "text": "I began"}, False),
        ({"ending": RunEnding.RATE_LIMITED, "code": 1, "seconds": 3}, False),
        ({"ending": RunEnding.DONE, "code": 0, "text": "done"}, False),
    ],
)
def test_what_did_not_start_may_be_stood_in_for(facts: dict[str, Any], expected: bool) -> None:
    """Whoever has worked is not replaced: its work would be done, and paid for, twice."""
    assert may_fall_back(Reply.model_validate({"began": "2026-01-31T12:00:00Z", **facts})) is expected


class TestStandingIn:
    """`agents.fallback`, laid over who is chosen, field by field."""

    def stands_in(self, fallback: AgentChoice, **own: Any) -> AgentChoice | None:  # noqa: ANN401 - any field
        chosen = AgentChoice.model_validate({"backend": "claude", "model": "opus", "provider": "acme", **own})
        return fallback_of(Agents(fallback=fallback), chosen)

    def test_another_model_of_the_same_program(self) -> None:
        """What it leaves out is as it was; who sells it is found anew."""
        found = self.stands_in(AgentChoice(model="haiku"), effort="high")

        assert found == AgentChoice(backend="claude", model="haiku", effort="high")

    def test_another_program_gets_nothing_that_is_meant_for_the_first(self) -> None:
        """A model of one is none of the other's."""
        found = self.stands_in(AgentChoice(backend="codex"), arguments=("--fast",), effort="high")

        assert found == AgentChoice(backend="codex", effort="high")

    def test_a_command_alone_is_a_program_of_ones_own(self) -> None:
        """It is not run as if it were the first program under another name."""
        found = self.stands_in(AgentChoice(command=("./mine",)))

        assert found == AgentChoice(backend="command", command=("./mine",))

    def test_without_one_nobody_stands_in(self) -> None:
        """Then it is waited for."""
        assert fallback_of(Agents(), AgentChoice(backend="claude")) is None


def test_it_is_known_of_every_backend_which_fields_it_uses() -> None:
    assert set(USED_FIELDS) == set(BACKENDS.names()) - set(BACKENDS.added())


@pytest.mark.parametrize(
    ("agents", "says"),
    [
        (
            {"default": {"command": ["a"], "effort": "high"}},
            "default: `effort` does nothing with the backend",
        ),
        (
            {"default": {"command": ["a"], "arguments": ["-v"], "own_home": True}},
            "`arguments` and `own_home` do",
        ),
        ({"default": {"backend": "goose", "effort": "high"}}, "`effort` does nothing with the backend goose"),
        ({"default": {"backend": "litellm", "model": "a/b", "passing": ["X"]}}, "`passing` does nothing"),
        ({"default": {"backend": "litellm"}}, "the backend litellm needs `model`; add it"),
        ({"default": {"backend": "acp"}}, "the backend acp needs `command`; add it"),
        ({"default": {"backend": "claude", "effort": "heroic"}}, "there is no effort 'heroic'"),
        (
            {"default": {"command": ["a"]}, "overrides": {"review": {"own_home": True}}},
            "overrides.review: `own_home`",
        ),
        (
            {"default": {"command": ["a"]}, "fallback": {"backend": "litellm"}},
            "agents.fallback: the backend litellm",
        ),
    ],
)
def test_a_field_that_would_do_nothing_or_is_missing_is_refused(agents: dict[str, Any], says: str) -> None:
    assert says in (settings_problem(Agents.model_validate(agents)) or "")


@pytest.mark.parametrize(
    "agents",
    [
        {},
        {"default": {"effort": "high"}},  # for whichever program is found
        {"default": {"command": ["a"], "effort": "high"}, "overrides": {"review": {"backend": "claude"}}},
        {"default": {"command": ["a"], "model": "x", "passing": ["KEY"], "provider": "x"}},
        {"default": {"backend": "litellm", "model": "a/b"}, "overrides": {"review": {"effort": "high"}}},
        {"default": {"command": ["a"]}, "fallback": {"command": ["b"]}},
        {"default": {"backend": "claude"}, "overrides": {"judge": {"model": "opus"}}},
    ],
)
def test_a_field_that_somebody_uses_is_taken(agents: dict[str, Any]) -> None:
    assert settings_problem(Agents.model_validate(agents)) is None
