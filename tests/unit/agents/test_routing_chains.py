"""Which settings count for whom: chains of keys, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from liza.domain import config
from liza.domain.config import AgentChoice, Agents, RouteKey, override_keys, resolve_route


def route(overrides: dict[str, Any], default: dict[str, Any], who: RouteKey) -> config.Route:
    choices = {key: AgentChoice.model_validate(fields) for key, fields in overrides.items()}
    return resolve_route(choices, AgentChoice.model_validate(default), override_keys(who))


PLAN_JUDGE = RouteKey("reviewer", "review", phase="plan", hat="judge")


class TestChains:
    @pytest.mark.parametrize(
        ("who", "keys"),
        [
            (RouteKey("coder", "implement"), ["IMPLEMENT", "CODER"]),
            (RouteKey("planner", "plan"), ["PLAN", "PLANNER"]),
            (RouteKey("reviewer", "review"), ["REVIEW", "REVIEWER"]),
            (
                RouteKey("reviewer", "review", "docs"),
                ["DOCS_REVIEWER", "DOCS_REVIEW", "REVIEW", "REVIEWER"],
            ),
            (RouteKey("coder", "implement", "docs"), ["DOCS_CODER", "IMPLEMENT", "CODER", "DOCS"]),
            (PLAN_JUDGE, ["PLAN_JUDGE", "JUDGE"]),
            (
                RouteKey("reviewer", "review", "implement", name="correctness"),
                [
                    *("IMPLEMENT_REVIEWER_CORRECTNESS", "IMPLEMENT_REVIEW_CORRECTNESS"),
                    *("IMPLEMENT_REVIEWER", "IMPLEMENT_REVIEW", "REVIEW", "REVIEWER"),
                ],
            ),
            (RouteKey("coder", "implement", "docs", hat="worker"), ["DOCS_WORKER", "WORKER", "DOCS"]),
            (RouteKey("coder", "implement", "act", hat="actor"), ["ACT_ACTOR", "ACTOR", "ACT"]),
            (
                RouteKey("reviewer", "review", "plan", hat="complexity_assessor"),
                ["PLAN_COMPLEXITY_ASSESSOR", "PLAN_COMPLEXITY", "COMPLEXITY_ASSESSOR", "COMPLEXITY"],
            ),
            (
                RouteKey("planner", "plan", "plan", hat="assessor"),
                ["PLAN_ASSESSOR", "PLAN_COMPLEXITY", "ASSESSOR", "COMPLEXITY"],
            ),
        ],
    )
    def test_the_most_particular_key_comes_first(self, who: RouteKey, keys: list[str]) -> None:
        assert override_keys(who) == keys


class TestFields:
    def test_the_middle_key_counts_although_there_is_a_default(self) -> None:
        """PLAN_JUDGE, then JUDGE, then default, with default present."""
        overrides = {"JUDGE": {"model": "opus"}, "PLAN_JUDGE": {"effort": "max"}}

        found = route(overrides, {"backend": "claude", "model": "haiku", "effort": "low"}, PLAN_JUDGE)

        assert found.fields == {"backend": "claude", "model": "opus", "effort": "max"}
        assert found.origin == {"backend": "default", "model": "JUDGE", "effort": "PLAN_JUDGE"}

    def test_case_does_not_matter(self) -> None:
        assert route({"Plan_Judge": {"model": "m"}}, {}, PLAN_JUDGE).fields == {"model": "m"}

    def test_a_backend_does_not_inherit_what_is_meant_for_another(self) -> None:
        """A script of the default is no claude, and a model of claude's is none of codex's; an effort is."""
        script = {"backend": "command", "command": ["python3", "team.py"]}
        bare = {"command": ["python3", "team.py"]}
        claude = {"backend": "claude", "model": "opus", "effort": "high"}
        reviewer = RouteKey("reviewer", "review")

        for default in (script, bare):
            assert route({"reviewer": {"backend": "claude"}}, default, reviewer).fields == {
                "backend": "claude"
            }
        found = route({"reviewer": {"backend": "codex"}}, claude, reviewer)
        assert found.fields == {"backend": "codex", "effort": "high"}

    def test_a_program_may_be_named_for_a_backend_of_the_default(self) -> None:
        found = route(
            {"coder": {"command": ["npx", "claude"]}}, {"backend": "claude"}, RouteKey("coder", "implement")
        )

        assert found.fields == {"backend": "claude", "command": ["npx", "claude"]}


class TestKeys:
    def test_a_key_in_two_cases_is_an_error(self) -> None:
        with pytest.raises(ValidationError, match="the same key"):
            Agents(overrides={"coder": AgentChoice(), "CODER": AgentChoice()})


BACKENDS = st.sampled_from(["claude", "codex", "aider", None])
CHOICES = st.fixed_dictionaries({"backend": BACKENDS, "model": st.sampled_from(["small", "large", None])})


@given(st.dictionaries(st.sampled_from(["plan_judge", "judge", "plan", "review"]), CHOICES), CHOICES)
def test_each_field_comes_from_the_first_key_that_sets_it(
    overrides: dict[str, dict[str, str | None]], default: dict[str, str | None]
) -> None:
    """`PLAN_JUDGE → JUDGE → default`: a default hides no key between, and a phase is nobody who judges."""
    found = route(overrides, default, PLAN_JUDGE)

    chain = [
        *((key, overrides[key]) for key in ("plan_judge", "judge") if key in overrides),
        ("default", default),
    ]
    backend = next((key for key, choice in chain if choice["backend"]), None)
    assert found.origin.get("backend") == backend
    fits = [
        (key, choice)
        for position, (key, choice) in enumerate(chain)
        if choice["backend"] is None
        or backend is None
        or position <= [name for name, _ in chain].index(backend)
        or choice["backend"] == dict(chain)[backend]["backend"]
    ]
    assert found.origin.get("model") == next((key for key, choice in fits if choice["model"]), None)
