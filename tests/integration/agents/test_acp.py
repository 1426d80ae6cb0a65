"""An agent that speaks the Agent Client Protocol: a real one, through the real package, on both sides."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from liza.agents.acp import acp_cli
from liza.agents.clis.agent import CliAgent
from liza.agents.protocol import Brief, Reply, Session
from liza.domain.answers import Step
from liza.domain.config import AgentChoice
from liza.domain.model import Role
from liza.errors import UsageError
from liza.system.process import sweep
from liza.system.run_control import RunControl, RunEnding, RunLimits
from tests.support.supervisor_process import is_alive

AGENT = Path(__file__).parents[2] / "support" / "acp_agent.py"


def run(place: Path, *deeds: tuple[str, str], step: Step = Step.IMPLEMENT, flags: tuple[str, ...] = (),
        total: float = 120, session: Session | None = None) -> Reply:  # fmt: skip
    choice = AgentChoice(backend="acp", command=(sys.executable, str(AGENT), *flags))
    environment = {"PATH": os.environ["PATH"], "HOME": str(place)}
    agent = CliAgent(acp_cli(choice), choice.replace(command=None), place / "homes", environment=environment)
    cwd = place / "worktree"
    cwd.mkdir(exist_ok=True)
    brief = Brief(
        run="coder-1.1", role=Role.CODER, step=step, prompt=json.dumps(deeds), cwd=cwd,
        folder=place / "run", limits=RunLimits(total=total), session=session,
    )  # fmt: skip
    return agent.run(brief, RunControl())


def test_it_works_answers_and_tells_what_it_used(tmp_path: Path) -> None:
    """What it says comes in pieces; what it does in between is not its word."""
    reply = run(tmp_path, ("say", "I write"), ("write", "a"), ("say", "I wrote"))

    assert reply.ending is RunEnding.DONE
    assert reply.text == "I write\n\nI wrote"
    assert (tmp_path / "worktree/a").read_text() == "written\n"
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (1200, 34)
    # Permission is given once and never for ever: `allow_always` lets some agents ask no more.
    transcript = (tmp_path / "run/stdout").read_text()
    assert "write a: allow_once" in transcript
    assert "write a: allow_always" not in transcript


def test_a_session_is_gone_on_with_and_what_was_said_in_it_is_no_news(tmp_path: Path) -> None:
    """An agent that loads a session tells all of it again."""
    session = run(tmp_path, ("say", "I write")).session
    assert session
    assert session.id == "s-1"

    reply = run(tmp_path, ("say", "done"), session=session)

    assert (reply.ending, reply.text) == (RunEnding.DONE, "done")
    assert reply.session == session


@pytest.mark.parametrize(
    "step",
    [
        Step.REVIEW,
        *(
            pytest.param(step, marks=pytest.mark.torture)
            for step in Step
            if step not in {Step.IMPLEMENT, Step.REVIEW}
        ),
    ],
)
def test_a_step_that_only_reads_denies_writing(tmp_path: Path, step: Step) -> None:
    """The question comes before the deed."""
    reply = run(tmp_path, ("write", "a"), ("say", "done"), step=step)

    assert not (tmp_path / "worktree/a").exists()
    assert reply.ending is RunEnding.DONE
    assert "write a" in reply.why


def test_an_agent_with_a_reading_mode_is_put_into_it(tmp_path: Path) -> None:
    assert run(tmp_path, ("say", "in MODE"), step=Step.REVIEW, flags=("--modes",)).text == "in plan"
    assert run(tmp_path, ("say", "in MODE"), flags=("--modes",)).text == "in default"


def test_an_agent_that_is_not_logged_in_says_so(tmp_path: Path) -> None:
    reply = run(tmp_path, ("say", "done"), flags=("--locked",))

    assert reply.ending is RunEnding.AUTH
    assert "Authentication required" in reply.why


def test_an_agent_that_hangs_is_ended(tmp_path: Path) -> None:
    reply = run(tmp_path, ("hang", ""), total=3)

    assert reply.ending is RunEnding.TIMEOUT
    assert reply.survivors == ()


def test_nothing_that_it_started_is_left(tmp_path: Path) -> None:
    """Also not what left its session and ignores SIGTERM."""
    reply = run(tmp_path, ("linger", "pid"), ("say", "done"))

    assert reply.ending is RunEnding.DONE
    assert not is_alive(int((tmp_path / "worktree/pid").read_text()))
    assert sweep(tmp_path / "run") == ((), ())


def test_an_agent_that_does_not_speak_the_protocol_has_failed(tmp_path: Path) -> None:
    choice = AgentChoice(backend="acp", command=("false",))
    agent = CliAgent(
        acp_cli(choice), choice.replace(command=None), tmp_path / "homes", environment=dict(os.environ)
    )
    brief = Brief(
        run="r", role=Role.CODER, step=Step.PLAN, prompt="", cwd=tmp_path, folder=tmp_path / "run",
        limits=RunLimits(total=20),
    )  # fmt: skip

    assert agent.run(brief, RunControl()).ending is RunEnding.CRASHED


def test_a_command_is_needed() -> None:
    with pytest.raises(UsageError, match=r"such as \[gemini, --acp\]"):
        acp_cli(AgentChoice(backend="acp"))


def test_a_program_of_the_table_brings_its_login(tmp_path: Path) -> None:
    """`gemini --acp` is logged in as gemini is, and `codex-acp` as codex."""
    assert acp_cli(AgentChoice(command=("gemini", "--acp"))).keys == ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    assert acp_cli(AgentChoice(command=(str(tmp_path / "codex-acp"),))).provider == "openai"
