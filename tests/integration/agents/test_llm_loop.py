"""The conversation with a model and its tools: real files and processes; the model is a script."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.agents.llm.backend import provider_variables
from liza.agents.llm.faults import Fault, FaultHandling
from liza.agents.llm.loop import (
    RETRY_DELAYS,
    Conversation,
    ConversationEnd,
    ConversationLimits,
    ModelReply,
    ToolCall,
)
from liza.agents.llm.tools import LONGEST_OUTPUT, Toolbox
from liza.domain.answers import ANSWER_TYPES, Step
from liza.domain.model import Provenance, Usage
from liza.domain.record import utc_now
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DONE: Final = '```liza\n{"status": "done", "summary": "did it"}\n```'
USED: Final = Usage(tokens_in=100, tokens_out=10, usd=0.01, provenance=Provenance.PRICED)


@dataclass
class Scripted:
    """A model that says one thing after the other; the last again and again."""

    script: list[ModelReply | Fault]
    seen: list[tuple[list[Any], bool, bool]] = field(default_factory=list)  # history, with tools, with schema

    def complete(
        self, history: Sequence[Any], tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None
    ) -> ModelReply:
        self.seen.append((list(history), bool(tools), schema is not None))
        act = self.script[min(len(self.seen), len(self.script)) - 1]
        if isinstance(act, Fault):
            raise act
        return act


@dataclass
class Talk:
    """A conversation in a directory, with what happened in it."""

    root: Path
    slept: list[float] = field(default_factory=list)
    told: list[Mapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cwd = self.root / "tree"
        self.cwd.mkdir()

    def tools(self, step: Step = Step.IMPLEMENT) -> Toolbox:
        return Toolbox(step, self.cwd, self.root / "run")

    def hold(
        self,
        *script: ModelReply | Fault,
        step: Step = Step.IMPLEMENT,
        **more: Any,  # noqa: ANN401 - bounds
    ) -> tuple[ConversationEnd, Scripted]:
        model, tools = Scripted(list(script)), self.tools(step)
        schema = ANSWER_TYPES[step].model_json_schema()
        talk = Conversation(model, tools, step, schema, self.told.append, sleep=self.slept.append, **more)
        try:
            return talk.run("do it"), model
        finally:
            tools.close()


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def call(tool: str, **arguments: object) -> ModelReply:
    return ModelReply("", (ToolCall("1", tool, json.dumps(arguments)),), USED)


def limited(seconds: float | None) -> Fault:
    reset = None if seconds is None else utc_now() + timedelta(seconds=seconds)
    return Fault(FaultHandling(RunEnding.RATE_LIMITED), "429", reset)


class TestTheLoop:
    def test_tools_until_there_is_an_answer(self, talk: Talk) -> None:
        """Edits and commands happen in the tree, and all usage is summed."""
        end, model = talk.hold(
            call("edit", path="a/b.txt", old="", new="one\n"),
            call("edit", path="a/b.txt", old="one", new="two"),
            call("shell", command="cat a/b.txt; echo out > c.txt"),
            ModelReply(DONE, usage=USED),
        )

        assert (end.ending, end.text) == (RunEnding.DONE, DONE)
        assert ((talk.cwd / "a" / "b.txt").read_text(), (talk.cwd / "c.txt").read_text()) == (
            "two\n",
            "out\n",
        )
        assert (end.usage.tokens_in, end.usage.tokens_out, end.usage.usd) == (400, 40, 0.04)
        history = model.seen[-1][0]
        assert [message["role"] for message in history] == ["system", "user", *["assistant", "tool"] * 3]
        assert history[-1]["content"] == "exit code 0\ntwo"

    def test_history_only_grows(self, talk: Talk) -> None:
        """Each call sees what the one before it saw, and more: caches of providers stay warm."""
        _, model = talk.hold(call("shell", command="true"), call("shell", command="false"), ModelReply(DONE))

        histories = [history for history, _, _ in model.seen]
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(histories))

    def test_a_missing_answer_is_asked_for_by_its_schema(self, talk: Talk) -> None:
        """A model that can answer in a form gets the form, without tools."""
        answer = json.dumps({"status": "done", "summary": "did it"})

        end, model = talk.hold(ModelReply("I am done!"), ModelReply(answer))

        assert end.ending is RunEnding.DONE
        assert end.text == f"```liza\n{answer}\n```\n"
        assert [seen[1:] for seen in model.seen] == [(True, False), (False, True)]

    def test_a_model_that_knows_no_schema_answers_in_text(self, talk: Talk) -> None:
        """The refusal of the form is no end."""
        end, _ = talk.hold(
            ModelReply("I am done!"),
            Fault(FaultHandling(RunEnding.CRASHED), "no response_format"),
            ModelReply(DONE),
        )

        assert (end.ending, end.text) == (RunEnding.DONE, DONE)

    def test_a_model_that_talks_nonsense_comes_to_an_end(self, talk: Talk) -> None:
        """What it said is the reply, and has no answer in it."""
        end, model = talk.hold(ModelReply("la la la"))

        assert (end.ending, end.text) == (RunEnding.DONE, "la la la")
        assert len(model.seen) == 5

    def test_silence_is_empty(self, talk: Talk) -> None:
        """Nothing said is not something said."""
        assert talk.hold(ModelReply(""))[0].ending is RunEnding.EMPTY

    @pytest.mark.parametrize(
        ("bounds", "said"),
        [
            (ConversationLimits(calls=3), "3 times"),
            (ConversationLimits(tokens=250), "330 tokens"),
            (ConversationLimits(usd=0.03), "cost $0.03"),
        ],
    )
    def test_a_loop_without_end_ends(self, talk: Talk, bounds: ConversationLimits, said: str) -> None:
        """Calls, tokens and money are bounded, whichever comes first."""
        end, model = talk.hold(call("shell", command="true"), bounds=bounds)

        assert end.ending is RunEnding.TIMEOUT
        assert said in end.why
        assert len(model.seen) == 3


class TestFaults:
    def test_what_may_pass_is_tried_again(self, talk: Talk) -> None:
        """Later each time, and not for ever."""
        passing_fault = Fault(FaultHandling(RunEnding.CRASHED, is_transient=True), "500")

        assert talk.hold(passing_fault, passing_fault, ModelReply(DONE))[0].ending is RunEnding.DONE
        assert talk.slept == list(RETRY_DELAYS[:2])
        assert talk.hold(passing_fault)[0].ending is RunEnding.CRASHED

    def test_a_limit_at_the_start_is_for_everybody_to_know(self, talk: Talk) -> None:
        """It ends the run, with the reset."""
        end, model = talk.hold(limited(5))

        assert (end.ending, len(model.seen)) == (RunEnding.RATE_LIMITED, 1)
        assert end.reset

    def test_a_limit_in_the_middle_is_waited_for_where_it_is_short(self, talk: Talk) -> None:
        """What was begun is not thrown away for five seconds; it is for an hour."""
        end, _ = talk.hold(call("shell", command="true"), limited(5), ModelReply(DONE))
        assert end.ending is RunEnding.DONE
        assert 4 < talk.slept[0] <= 5

        end, _ = talk.hold(call("shell", command="true"), limited(3600), ModelReply(DONE))
        assert end.ending is RunEnding.RATE_LIMITED

    def test_a_full_context_keeps_the_last_words(self, talk: Talk) -> None:
        """They are what the next one goes on from."""
        first = ModelReply("I will look first", (ToolCall("1", "shell", '{"command": "true"}'),))

        end, _ = talk.hold(first, Fault(FaultHandling(RunEnding.CONTEXT_FULL), "too long"))

        assert (end.ending, end.text) == (RunEnding.CONTEXT_FULL, "I will look first")


class TestTools:
    @pytest.mark.parametrize(
        ("tool", "arguments", "said"),
        [
            ("edit", {"path": "../x", "old": "", "new": "x"}, "not a file of the working directory"),
            ("edit", {"path": ".git/config", "old": "", "new": "x"}, "not a file of the working directory"),
            ("edit", {"path": "link/x", "old": "", "new": "x"}, "not a file of the working directory"),
            ("edit", {"path": "twice", "old": "a", "new": "b"}, "2 times"),
            ("edit", {"path": "twice", "old": "", "new": "b"}, "there already"),
            ("edit", {"path": "none", "old": "a", "new": "b"}, "No such file"),
            ("edit", {"path": 3}, "as strings"),
            ("shell", {"command": ""}, "as a string"),
            ("shell", {"command": "true", "seconds": 1e9}, "up to 900"),
            ("shell", None, "no JSON object"),
            ("browse", {}, "no tool 'browse'; use shell or edit"),
        ],
    )
    def test_nonsense_is_answered_with_a_sentence(
        self, talk: Talk, tool: str, arguments: object, said: str
    ) -> None:
        """A model mends what it is told; nothing outside of its tree is touched."""
        (talk.cwd / "twice").write_text("a a")
        (talk.cwd / "link").symlink_to(talk.root)

        assert said in talk.tools().use(tool, arguments)
        assert not (talk.root / "x").exists()

    def test_who_only_reads_cannot_write(self, talk: Talk) -> None:
        """There is no edit tool, and commands run in a copy."""
        (talk.cwd / "a").write_text("1")
        (talk.cwd / ".git").write_text("gitdir: elsewhere")
        tools = talk.tools(Step.REVIEW)

        said = tools.use("shell", {"command": "cat a; echo 2 > a; rm -f .git; ls -a"})
        refused = tools.use("edit", {"path": "a", "old": "1", "new": "3"})
        tools.close()

        assert said.startswith("exit code 0\n1")
        assert "no tool 'edit'" in refused
        assert (talk.cwd / "a").read_text() == "1"
        assert (talk.cwd / ".git").exists()

    def test_a_command_that_hangs_is_ended(self, talk: Talk) -> None:
        """The model is told, and nothing of it is left."""
        said = talk.tools().use("shell", {"command": "sleep 60 & sleep 60", "seconds": 0.3})

        assert said.startswith("timeout: it was not done after 0.3 seconds")

    def test_what_a_command_prints_is_bounded(self, talk: Talk) -> None:
        """The beginning and the end are shown: errors stand at the end."""
        said = talk.tools().use("shell", {"command": "seq 100000"})

        assert len(said) < LONGEST_OUTPUT + 200
        assert said.startswith("exit code 0\n1\n2\n")
        assert said.endswith("99999\n100000")

    def test_commands_do_not_see_the_keys(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        """The conversation needs them; what the model runs does not."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789")

        assert "planted" not in talk.tools().use("shell", {"command": "env"})
        assert os.environ["OPENAI_API_KEY"]


def test_a_provider_gets_its_own_keys_only() -> None:
    """The key of one provider is none of another's business."""
    assert "ANTHROPIC_API_KEY" in provider_variables("anthropic/claude-sonnet-5")
    assert "OPENAI_API_KEY" not in provider_variables("anthropic/claude-sonnet-5")
    assert "OPENAI_API_KEY" in provider_variables("gpt-5")
