"""The litellm backend with the real library, against a scripted model on loopback."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.agents.llm.backend import LlmAgent
from liza.agents.protocol import Brief, PricingAgent, Reply
from liza.domain.answers import ROLE_OF_STEP, Step
from liza.domain.model import Provenance, ProviderState, Status
from liza.domain.record import utc_now
from liza.system.run_control import RunControl, RunEnding, RunLimits
from tests.support.llm_server import Act, Endpoint, endpoint
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed: pip install '.[llm]'"),
]

KEY: Final = "sk-planted-0123456789abcdef"
DONE: Final = {"text": '```liza\n{"status": "done", "summary": "did it"}\n```'}


def environment(server: Endpoint) -> dict[str, str]:
    return {
        **os.environ,
        "OPENAI_API_KEY": KEY,
        "OPENAI_API_BASE": server.address,
        "ANTHROPIC_API_KEY": "other",
    }


def asked(root: Path, server: Endpoint, step: Step = Step.IMPLEMENT, model: str = "openai/gpt-4o") -> Reply:
    cwd = root / "tree"
    cwd.mkdir(exist_ok=True)
    brief = Brief(
        run="r1",
        role=ROLE_OF_STEP[step],
        step=step,
        prompt="do it",
        cwd=cwd,
        folder=root / "runs" / "r1",
        limits=RunLimits(total=60),
    )
    return PricingAgent(LlmAgent(model, environment=environment(server)), model).run(brief, RunControl())


class TestOneRun:
    def test_a_model_edits_and_answers(self, tmp_path: Path) -> None:
        """Tool calls reach the tree; tokens are the provider's, the price is marked."""
        edit = {"calls": [["edit", {"path": "a.txt", "old": "", "new": "hi\n"}]]}
        look = {"calls": [["shell", {"command": "cat a.txt; env"}]]}
        with endpoint(edit, look, DONE) as server:
            reply = asked(tmp_path, server)

        assert (reply.ending, reply.why) == (RunEnding.DONE, "")
        assert (tmp_path / "tree" / "a.txt").read_text() == "hi\n"
        assert (reply.usage.tokens_in, reply.usage.tokens_out) == (3000, 150)
        assert reply.usage.provenance is Provenance.PRICED
        assert reply.usage.usd == pytest.approx(3000 * 2.5e-6 + 150 * 10e-6)
        assert server.keys[0] == f"Bearer {KEY}"
        written = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
        assert not any(KEY.encode() in data for data in written)

    def test_an_unknown_model_is_priced_as_a_guess(self, tmp_path: Path) -> None:
        """Its tokens are known, its price is not."""
        with endpoint(DONE) as server:
            usage = asked(tmp_path, server, model="openai/home-made").usage

        assert (usage.tokens_in, usage.provenance) == (1000, Provenance.ESTIMATED)
        assert usage.usd

    @pytest.mark.parametrize(
        ("act", "ending", "calls"),
        [
            ({"status": 401, "message": "Incorrect API key provided"}, RunEnding.AUTH, 1),
            (
                {"status": 429, "message": "slow down", "headers": {"retry-after": "5"}},
                RunEnding.RATE_LIMITED,
                1,
            ),
            ({"status": 429, "message": "quota: requests per day"}, RunEnding.QUOTA, 1),
            ({"status": 429, "message": "insufficient_quota, check your billing"}, RunEnding.AUTH, 1),
            (
                {"status": 400, "message": "This model's maximum context length is 8192 tokens"},
                RunEnding.CONTEXT_FULL,
                1,
            ),
            ({"status": 404, "message": "The model does not exist"}, RunEnding.NOT_STARTED, 1),
        ],
    )
    def test_faults_are_told_apart(self, tmp_path: Path, act: Act, ending: RunEnding, calls: int) -> None:
        """None of these is tried again, and each ends in its own way."""
        began = utc_now()
        with endpoint(act) as server:
            reply = asked(tmp_path, server)

        assert (reply.ending, len(server.requests)) == (ending, calls), reply.why
        if act.get("headers"):
            assert reply.reset
            assert 0 < (reply.reset - began).total_seconds() < 30

    @pytest.mark.parametrize("act", [{"status": 500}, {"cut": True}, {"raw": "<html>nonsense"}])
    def test_what_passes_is_waited_out(self, tmp_path: Path, act: Act) -> None:
        """One bad answer is not the end."""
        with endpoint(act, DONE) as server:
            reply = asked(tmp_path, server)

        assert (reply.ending, len(server.requests)) == (RunEnding.DONE, 2), reply.why

    def test_nobody_there_is_a_crash(self, tmp_path: Path) -> None:
        """After the tries, in words."""
        with endpoint(DONE) as server:
            pass
        reply = asked(tmp_path, server)

        assert reply.ending is RunEnding.CRASHED
        assert reply.why

    def test_an_answer_by_schema(self, tmp_path: Path) -> None:
        """A model that only chats is asked for the form, and gives it."""
        review = {"verdict": "approve", "reason": "it is there"}
        with endpoint({"text": "Looks fine to me."}, {"json": review}) as server:
            reply = asked(tmp_path, server, Step.REVIEW)

        assert reply.text == f"```liza\n{json.dumps(review)}\n```\n"
        assert server.requests[1]["response_format"]["type"] == "json_schema"
        assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["shell"]


class TestWholeTasks:
    def team(self, tmp_path: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> ScriptedTeam:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        return ScriptedTeam(tmp_path, agents={"default": {"backend": "litellm", "model": "openai/gpt-4o"}})

    def test_a_task_is_merged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Checkpoint, implementation and review by a model, and all that it cost."""
        script: list[dict[str, Any]] = [
            {"text": '```liza\n{"intent": "write it", "files_to_modify": ["t1.txt"]}\n```'},
            {"calls": [["edit", {"path": "t1.txt", "old": "", "new": "hi\n"}]]},
            DONE,
            {"calls": [["shell", {"command": "cat t1.txt"}]]},
            {"text": '```liza\n{"verdict": "approve", "reason": "it says hi"}\n```'},
        ]
        with endpoint(*script) as server:
            team = self.team(tmp_path, server, monkeypatch)
            team.task()
            team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.merged("t1.txt") == "hi"
        assert len(server.requests) == 5
        assert team.state.spend.total.priced > 0
        assert KEY not in (team.home / "journal.jsonl").read_text()

    def test_a_bad_key_refuses_its_provider(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The board says which provider, and nobody asks it again."""
        with endpoint({"status": 401, "message": "Incorrect API key"}) as server:
            team = self.team(tmp_path, server, monkeypatch)
            team.task()
            for _ in range(3):
                team.turn("coder-1")

        assert team.state.providers["openai"].state is ProviderState.REFUSED
        assert len(server.requests) == 1
        assert team.state.task("t1").failed_by == ()

    def test_a_model_that_talks_nonsense_does_no_harm(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The task ends with a reason, and nothing is merged."""
        with endpoint({"text": "bananas bananas"}) as server:
            team = self.team(tmp_path, server, monkeypatch)
            before = team.head()
            team.task()
            team.turns("coder-1", "planner-1")

        task = team.state.task("t1")
        assert task.status is Status.BLOCKED
        assert "no answer" in str(task.blocked_reason)
        assert team.head() == before


def test_the_resident_worker_does_not_load_it() -> None:
    """A child process does: its memory is given back after each run."""
    assert "liza.agents.llm.backend" in sys.modules
    assert "litellm" not in sys.modules
