"""A coding program as an agent, with a script in its place: what it is given, may see, and what is kept."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from liza.agents.clis.agent import CliAgent
from liza.agents.clis.table import CLIS
from liza.agents.protocol import Brief, Reply, Session
from liza.domain.answers import Step
from liza.domain.config import AgentChoice
from liza.domain.model import Role
from liza.system.run_control import RunControl, RunEnding, RunLimits

KEY = "sk-test-planted-value"
LOGIN = "oauth-token-that-nobody-may-see"
DONE = '{"type":"result","subtype":"success","is_error":false,"result":"fine"}'
TURN = (
    '{"type":"thread.started","thread_id":"t-1"}\n'
    '{"type":"item.completed","item":{"type":"agent_message","text":"fine"}}\n'
    '{"type":"turn.completed","usage":{"input_tokens":4800,"output_tokens":136}}'
)


class Desk:
    """A user's home, a worktree, and a script that stands on the PATH under a program's name."""

    def __init__(self, place: Path) -> None:
        self.user = place / "user"
        self.cwd = place / "worktree"
        self.runs = place / "runs"
        self.homes = place / "homes"
        self.programs = place / "bin"
        for folder in (self.user, self.cwd, self.programs):
            folder.mkdir()

    def run(
        self,
        script: str,
        *,
        name: str = "claude",
        step: Step = Step.IMPLEMENT,
        session: Session | None = None,
        limits: RunLimits | None = None,
        choice: AgentChoice | None = None,
        run: str = "coder-1.7",
        stop: RunControl | None = None,
        **environment: str,
    ) -> Reply:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        user = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.user), **environment}
        agent = CliAgent(CLIS[name], choice or AgentChoice(), self.homes, environment=user)
        brief = Brief(
            run=run, role=Role.CODER, step=step, prompt="Greet the world.\n", cwd=self.cwd,
            folder=self.runs / run, limits=limits or RunLimits(total=20), session=session,
        )  # fmt: skip
        return agent.run(brief, stop or RunControl())

    def noted(self, name: str) -> str:
        return (self.cwd / name).read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_it_has_cost_is_known_while_it_runs(desk: Desk) -> None:
    """So that it can be ended at a cap: the program itself tells only at the very end."""
    usage = {"input_tokens": 900_000, "cache_read_input_tokens": 100_000, "output_tokens": 100_000}
    message = {"id": "m1", "model": "claude-opus-4-8", "content": [], "usage": usage}
    said, stop = json.dumps({"type": "assistant", "message": message}), RunControl()
    ender = threading.Thread(target=_end_when_dear, args=(stop,))
    ender.start()

    reply = desk.run(f"echo '{said}'; exec sleep 20", stop=stop)

    ender.join()
    assert reply.ending is RunEnding.STOPPED
    assert stop.usd > 1
    assert (reply.usage.tokens_in, reply.usage.model) == (1_000_000, "claude-opus-4-8")


def _end_when_dear(stop: RunControl) -> None:
    deadline = time.monotonic() + 15
    while stop.usd < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.ask()


class TestWhatAProgramIsGiven:
    def test_the_prompt_on_stdin_and_the_facts_in_the_environment(self, desk: Desk) -> None:
        """As every program that works for Liza."""
        reply = desk.run(f"cat > prompt; env > env; echo '{DONE}'")

        assert reply.ending is RunEnding.DONE
        assert reply.text == "fine"
        assert desk.noted("prompt").startswith("Greet the world.\n")
        assert "LIZA_STEP=implement" in desk.noted("env").splitlines()

    def test_a_prompt_of_any_size(self, desk: Desk) -> None:
        """mini takes its task from a YAML file, aider from a text file: neither from an argument."""
        seen = 'for word in "$@"; do last=$word; done; cat "$last" > prompt'
        report = json.dumps({"messages": [{"role": "assistant", "content": "fine"}]})

        mini = desk.run(f"{seen}; echo '{report}' > \"$HOME/trajectory.json\"", name="mini")
        task = json.loads(desk.noted("prompt"))["run"]["task"]
        desk.run(seen, name="aider")

        assert mini.text == "fine"
        assert task.startswith("Greet the world.\n")
        assert "last message" in task
        assert desk.noted("prompt") == "Greet the world.\n"

    def test_only_its_own_keys(self, desk: Desk) -> None:
        """A key of another provider and a password are none of its business; what the settings name is."""
        choice = AgentChoice(passing=("MY_GATEWAY",))

        desk.run(
            f"env > env; echo '{DONE}'", choice=choice,
            ANTHROPIC_API_KEY=KEY, OPENAI_API_KEY="other", DATABASE_URL="p", MY_GATEWAY="g",
        )  # fmt: skip

        names = {line.partition("=")[0] for line in desk.noted("env").splitlines()}
        assert {"ANTHROPIC_API_KEY", "MY_GATEWAY"} <= names
        assert names.isdisjoint({"OPENAI_API_KEY", "DATABASE_URL"})

    def test_the_way_of_its_step(self, desk: Desk) -> None:
        """Read-only in a review, writing in an implementation."""
        for step, expected in ((Step.REVIEW, "dontAsk"), (Step.IMPLEMENT, "acceptEdits")):
            desk.run(f"echo \"$@\" > words; echo '{DONE}'", step=step)
            assert f"--permission-mode {expected}" in desk.noted("words")

    def test_a_program_that_is_not_there_is_a_reply(self, desk: Desk) -> None:
        agent = CliAgent(CLIS["gemini"], AgentChoice(), desk.homes, environment={"PATH": str(desk.programs)})
        brief = Brief(
            run="r", role=Role.CODER, step=Step.PLAN, prompt="", cwd=desk.cwd, folder=desk.runs / "r"
        )

        reply = agent.run(brief, RunControl())

        assert reply.ending is RunEnding.NOT_STARTED
        assert "no program 'gemini' on the PATH" in reply.why


class TestItsHome:
    def test_it_is_not_the_users(self, desk: Desk) -> None:
        """The user's settings, hooks and servers do not leak in, but toolchains and git's identity do."""
        (desk.user / ".claude").mkdir()
        (desk.user / ".claude/settings.json").write_text("{}")
        (desk.user / ".gitconfig").write_text("[user]\n")
        (desk.user / ".cargo").mkdir()

        desk.run(f"env > env; ls -A \"$HOME\" > home; echo '{DONE}'", XDG_CONFIG_HOME=str(desk.user / "x"))

        env = dict(line.split("=", 1) for line in desk.noted("env").splitlines() if "=" in line)
        assert env["HOME"] == str(desk.homes / "coder-1")
        assert env["XDG_CONFIG_HOME"].startswith(env["HOME"])
        assert env["GIT_CONFIG_GLOBAL"] == str(desk.user / ".gitconfig")
        assert env["CARGO_HOME"] == str(desk.user / ".cargo")
        assert desk.noted("home") == ""

    def test_a_login_is_lent_and_taken_back(self, desk: Desk) -> None:
        """Whoever logged in with the program needs no key; the copy goes, the original is not touched."""
        (desk.user / ".claude").mkdir()
        mine = desk.user / ".claude/.credentials.json"
        mine.write_text(json.dumps({"claudeAiOauth": {"accessToken": LOGIN}}))
        lent = '"$HOME/.claude/.credentials.json"'

        reply = desk.run(f"cat {lent} > seen; cat {lent}; echo changed > {lent}; echo; echo '{DONE}'")

        assert reply.ending is RunEnding.DONE
        assert LOGIN in desk.noted("seen")
        assert LOGIN in mine.read_text()
        assert not (desk.homes / "coder-1/.claude/.credentials.json").exists()
        assert LOGIN not in (desk.runs / "coder-1.7/stdout").read_text()

    def test_a_key_makes_the_login_unnecessary(self, desk: Desk) -> None:
        (desk.user / ".claude").mkdir()
        (desk.user / ".claude/.credentials.json").write_text("{}")

        desk.run(f"ls -A \"$HOME\" > home; echo '{DONE}'", ANTHROPIC_API_KEY=KEY)

        assert desk.noted("home") == ""

    def test_what_an_agent_planted_is_gone_in_the_next_run(self, desk: Desk) -> None:
        """A hook in the home of its program would run in everybody's next step."""
        desk.run(f"touch \"$HOME/hook\"; echo '{DONE}'")
        desk.run(f"ls -A \"$HOME\" > home; echo '{DONE}'")

        assert desk.noted("home") == ""

    def test_the_users_own_where_the_settings_say_so(self, desk: Desk) -> None:
        desk.run(f"env > env; echo '{DONE}'", choice=AgentChoice(own_home=True))

        assert f"HOME={desk.user}" in desk.noted("env").splitlines()

    def test_settings_that_a_program_needs_are_there(self, desk: Desk) -> None:
        """gemini ends with 41 where it is not told how it is logged in; codex needs its folder to exist."""
        desk.run('cat "$HOME/.gemini/settings.json" > how', name="gemini", GEMINI_API_KEY=KEY)
        how = json.loads(desk.noted("how"))
        desk.run('cat "$HOME/.gemini/settings.json" > how', name="gemini")
        desk.run('test -d "$CODEX_HOME" && echo "$CODEX_API_KEY" > key', name="codex", OPENAI_API_KEY=KEY)

        assert how == {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        assert "oauth-personal" in desk.noted("how")
        assert desk.noted("key").strip() == KEY

    def test_the_repository_has_no_say_in_a_review(self, desk: Desk) -> None:
        """gemini obeys settings in the worktree, which a coder may have left; the system's outweigh them."""
        desk.run('cat "$GEMINI_CLI_SYSTEM_SETTINGS_PATH" > system', name="gemini", step=Step.REVIEW)

        system = json.loads(desk.noted("system"))
        assert "write_file" in system["tools"]["exclude"]
        assert system["hooksConfig"] == {"enabled": False}


class TestWhatIsKept:
    def test_a_key_that_it_prints_is_masked(self, desk: Desk) -> None:
        """In the transcript and in the reply."""
        said = '{"type":"result","result":"'
        script = f"printf '%s' '{said}'; printf '%s' \"$ANTHROPIC_API_KEY\"; echo '\"}}'"

        reply = desk.run(script, ANTHROPIC_API_KEY=KEY)

        assert "[masked]" in reply.text
        assert KEY not in (desk.runs / "coder-1.7/stdout").read_text()

    def test_a_report_is_masked_too(self, desk: Desk) -> None:
        script = (
            'printf "LLM RESPONSE x\\nASSISTANT the key is %s\\n" "$OPENAI_API_KEY" > "$HOME/llm.history"'
        )

        reply = desk.run(script, name="aider", OPENAI_API_KEY=KEY)

        assert reply.text == "the key is [masked]"

    def test_a_resumed_thread_costs_what_it_used_since(self, desk: Desk) -> None:
        """codex reports the usage of the whole thread; its home is kept for it."""
        first = desk.run(f"touch \"$HOME/thread\"; echo '{TURN}'", name="codex")
        before = Session(id="t-1", tokens_in=2400, tokens_out=68)

        second = desk.run(f"ls -A \"$HOME\" > home; echo '{TURN}'", name="codex", session=before)

        assert first.session == Session(id="t-1", tokens_in=4800, tokens_out=136)
        assert (second.usage.tokens_in, second.usage.tokens_out) == (2400, 68)
        assert second.session == first.session
        assert "thread" in desk.noted("home")

    def test_a_session_that_was_interrupted_is_gone_on_with(self, desk: Desk) -> None:
        """Nobody wrote down that it ended; what it printed so far names its session, and its home is kept."""
        first = "coder-1.20261116T120000.1-aaaaaa.implement"
        begun = '{"type":"system","subtype":"init","session_id":"s-1"}'
        desk.run(f"touch \"$HOME/thread\"; echo '{begun}'; kill -9 $$", run=first)
        second = first.replace("120000.1-aaaaaa", "120000.10-bbbbbb")

        reply = desk.run(
            f'echo "$@" > words; cat > prompt; ls -A "$HOME" > home; echo \'{DONE}\'', run=second
        )

        assert reply.ending is RunEnding.DONE
        assert "--resume s-1" in desk.noted("words")
        assert desk.noted("prompt").startswith("You were interrupted")
        assert "Greet the world." in desk.noted("prompt")
        assert "thread" in desk.noted("home")

    def test_a_session_that_came_to_its_end_or_is_of_another_step_is_left_alone(self, desk: Desk) -> None:
        begun = '{"type":"system","subtype":"init","session_id":"s-1"}'
        crash = f"echo '{begun}'; kill -9 $$"
        desk.run(crash, run="coder-1.20261116T120000.1-aaaaaa.checkpoint", step=Step.CHECKPOINT)
        words = f"echo \"$@\" >> words; echo '{DONE}'"

        desk.run(words, run="coder-1.20261116T120001.2-aaaaaa.implement")

        assert "--resume" not in desk.noted("words")

    def test_a_session_that_is_broken_is_begun_anew_and_never_tried_again(self, desk: Desk) -> None:
        begun = '{"type":"system","subtype":"init","session_id":"s-1"}'
        desk.run(f"echo '{begun}'; kill -9 $$", run="coder-1.20261116T120000.1-aaaaaa.implement")
        script = f"""echo "$@" >> words
case "$*" in *--resume*) echo "No conversation found with session ID s-1" >&2; exit 1;; esac
echo '{DONE}'"""

        reply = desk.run(script, run="coder-1.20261116T120001.2-aaaaaa.implement")

        assert reply.text == "fine"
        assert [("--resume" in line) for line in desk.noted("words").splitlines()] == [True, False]

    def test_a_provider_that_says_no_counts_more_than_a_limit_of_ours(self, desk: Desk) -> None:
        """A program that tries a bad key for ever has a bad key, and no slow day."""
        retry = '{"type":"system","subtype":"api_retry","error_status":401,"error":"authentication_failed"}'

        reply = desk.run(f"echo '{retry}'; exec sleep 30", limits=RunLimits(total=0.5))

        assert reply.ending is RunEnding.AUTH
        assert "not done after 0.5 seconds" in reply.why

    def test_a_limit_of_ours_is_one_where_nobody_said_no(self, desk: Desk) -> None:
        assert desk.run("exec sleep 30", limits=RunLimits(total=0.5)).ending is RunEnding.TIMEOUT

    def test_a_reset_reaches_the_reply(self, desk: Desk) -> None:
        said = '{"type":"result","is_error":true,"result":"5-hour limit reached, try again in 20 minutes"}'

        reply = desk.run(f"echo '{said}'; exit 1")

        assert reply.ending is RunEnding.QUOTA
        assert reply.reset is not None
        assert 1195 < (reply.reset - reply.began).total_seconds() < 1260
