"""Any executable as an agent: what it is given, what it gives back, and what is said where it fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from liza.agents.command import CommandAgent
from liza.agents.protocol import Brief, Provenance, Reply
from liza.domain.answer_parsing import ParsedAnswer, parse_answer
from liza.domain.answers import Implement, Step
from liza.domain.model import Role
from liza.system.process import sweep
from liza.system.run_control import RunControl, RunEnding, RunLimits

SECRET = "hunter2-hunter2"  # noqa: S105 - the test is that it does not get out
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nowhere",
    "DATABASE_PASSWORD": SECRET,
    "LC_ALL": "C.UTF-8",
}


class Desk:
    """A worktree with a script in it, and a brief to run it with."""

    def __init__(self, home: Path) -> None:
        self.cwd = home / "worktree"
        self.cwd.mkdir()
        self.runs = home / "runs"

    def brief(self, **changes: object) -> Brief:
        return Brief.model_validate(
            {
                "run": "coder-1.7",
                "role": Role.CODER,
                "step": Step.IMPLEMENT,
                "task": "greet",
                "iteration": 2,
                "prompt": "Greet the world.\n",
                "cwd": self.cwd,
                "folder": self.runs / "coder-1.7",
                "limits": RunLimits(total=20),
                "facts": {"done_when": ["it greets"]},
                **changes,
            }
        )

    def script(self, text: str, mode: int = 0o755) -> str:
        path = self.cwd / "agent"
        path.write_text(text)
        path.chmod(mode)
        return "./agent"

    def run(self, script: str, brief: Brief | None = None, stop: RunControl | None = None) -> Reply:
        name = self.script(f"#!/bin/sh\n{script}\n")
        return CommandAgent([name], environment=ENVIRONMENT).run(brief or self.brief(), stop or RunControl())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


class TestTheContract:
    def test_an_agent_gets_its_prompt_its_place_and_its_facts(self, desk: Desk) -> None:
        """The design's paragraph on the `command` backend, word by word."""
        reply = desk.run("cat; pwd; env | grep ^LIZA_ | sort")
        folder = desk.runs / "coder-1.7"

        assert reply.ending is RunEnding.DONE
        assert reply.text.splitlines() == [
            "Greet the world.",
            str(desk.cwd),
            "LIZA_AGAIN=",
            f"LIZA_BRIEF={folder / 'brief.json'}",
            "LIZA_HAT=coder",
            "LIZA_ITERATION=2",
            "LIZA_PHASE=",
            "LIZA_ROLE=coder",
            f"LIZA_RUN={folder}",
            "LIZA_STEP=implement",
            "LIZA_TASK=greet",
        ]
        assert (folder / "prompt.md").read_text() == "Greet the world.\n"
        assert (reply.code, reply.usage.provenance, reply.transcript) == (
            0,
            Provenance.UNKNOWN,
            folder / "stdout",
        )

    def test_the_brief_has_all_of_it_but_the_environment(self, desk: Desk) -> None:
        """A key that is passed to an agent is in no file."""
        reply = desk.run("cat $LIZA_BRIEF; echo $KEY >&2", desk.brief(environment={"KEY": "not-in-a-file"}))
        brief = json.loads(reply.text)

        assert {name: brief[name] for name in ("role", "step", "task", "iteration", "prompt", "facts")} == {
            "role": "coder",
            "step": "implement",
            "task": "greet",
            "iteration": 2,
            "prompt": "Greet the world.\n",
            "facts": {"done_when": ["it greets"]},
        }
        assert brief["limits"]["total"] == 20
        assert not any(b"not-in-a-file" in path.read_bytes() for path in (desk.runs / "coder-1.7").iterdir())

    def test_a_planner_without_a_task_gets_an_empty_one(self, desk: Desk) -> None:
        """The variable is there either way."""
        brief = desk.brief(role=Role.PLANNER, step=Step.PLAN, task=None, iteration=0)

        assert desk.run('echo "[$LIZA_TASK]"', brief).text == "[]\n"

    def test_the_reply_holds_the_answer(self, desk: Desk) -> None:
        """End to end: what a script prints is what the worker gets."""
        reply = desk.run("printf 'All good.\\n```liza\\nstatus: done\\nsummary: it greets\\n```\\n'")
        found = parse_answer(reply.text, Step.IMPLEMENT, prompt=desk.brief().prompt)

        assert isinstance(found, ParsedAnswer)
        assert isinstance(found.value, Implement)
        assert found.value.summary == "it greets"

    def test_only_what_is_allowed_of_our_environment_reaches_an_agent(self, desk: Desk) -> None:
        """A secret that it never had cannot leak."""
        name = desk.script("#!/bin/sh\nenv\n")
        plain = CommandAgent([name], environment=ENVIRONMENT).run(desk.brief(), RunControl()).text
        told = (
            CommandAgent([name], environment=ENVIRONMENT, passing=["DATABASE_PASSWORD"])
            .run(desk.brief(), RunControl())
            .text
        )

        assert "HOME=/nowhere\n" in plain
        assert "LC_ALL=C.UTF-8\n" in plain
        assert "DATABASE_PASSWORD" not in plain
        assert "DATABASE_PASSWORD=[masked]\n" in told
        assert not any(SECRET.encode() in path.read_bytes() for path in (desk.runs / "coder-1.7").iterdir())

    def test_git_asks_nobody_and_leaves_nobody_behind(self, desk: Desk) -> None:
        """An editor or a password prompt would wait for ever; housekeeping would outlive the run."""
        script = "git init -q . && git config gc.auto && git config maintenance.auto && git var GIT_EDITOR"

        assert desk.run(script).text.split() == ["0", "false", "true"]


class TestFailures:
    @pytest.mark.parametrize(
        ("argv", "sentence"),
        [
            ([], "the agent's command is empty; say in agents.default.command what to run"),
            (
                ["no-such-agent"],
                "there is no program 'no-such-agent' on the PATH; install it, or mend the agent's command",
            ),
            (["./gone"], "the command '{cwd}/gone' does not exist; mend the agent's command"),
            (["./agent"], "'{cwd}/agent' is not executable; `chmod +x` makes a script so"),
            (["./folder"], "'{cwd}/folder' is not executable; `chmod +x` makes a script so"),
        ],
    )
    def test_a_command_that_cannot_run(self, desk: Desk, argv: list[str], sentence: str) -> None:
        """One sentence that names it and says what to do."""
        desk.script("#!/bin/sh\n", mode=0o644)
        (desk.cwd / "folder").mkdir()
        reply = CommandAgent(argv, environment=ENVIRONMENT).run(desk.brief(), RunControl())

        assert (reply.ending, reply.why) == (RunEnding.NOT_STARTED, sentence.format(cwd=desk.cwd))

    def test_a_worktree_that_somebody_deleted(self, desk: Desk) -> None:
        """It is named, and nothing is run elsewhere."""
        desk.cwd.rmdir()
        reply = CommandAgent(["true"], environment=ENVIRONMENT).run(desk.brief(), RunControl())

        assert reply.why == f"the working directory {desk.cwd} does not exist"

    def test_an_interpreter_that_does_not_exist(self, desk: Desk) -> None:
        """What the system says is passed on."""
        name = desk.script("#!/no/such/interpreter\n")
        reply = CommandAgent([name], environment=ENVIRONMENT).run(desk.brief(), RunControl())

        assert reply.ending in {RunEnding.CRASHED, RunEnding.NOT_STARTED}
        assert "./agent: No such file or directory" in reply.why or "cannot be started" in reply.why

    @pytest.mark.parametrize(
        ("script", "ending", "sentence"),
        [
            (
                "true",
                RunEnding.EMPTY,
                "'./agent' ended with exit code 0 and printed nothing and said nothing else",
            ),
            ("echo; echo", RunEnding.EMPTY, "'./agent' ended with exit code 0 and printed nothing"),
            ("echo no key >&2", RunEnding.EMPTY, "printed nothing; it said: no key"),
            (
                "echo x; echo broken >&2; exit 3",
                RunEnding.CRASHED,
                "seconds) with exit code 3; it said: broken",
            ),
            ("exit 1", RunEnding.CRASHED, "'./agent' ended at once (0."),
            ("kill -KILL $$", RunEnding.KILLED, "it was killed (SIGKILL) after 0."),
            ("sh -c 'kill -KILL $$'; exit $?", RunEnding.KILLED, "or by the kernel because memory was short"),
        ],
    )
    def test_an_agent_that_fails_is_quoted(
        self, desk: Desk, script: str, ending: RunEnding, sentence: str
    ) -> None:
        """What it said last is mostly why."""
        reply = desk.run(script)

        assert reply.ending is ending
        assert sentence in reply.why

    def test_binary_is_no_reason_to_fall_over(self, desk: Desk) -> None:
        """Words around it are still read."""
        reply = desk.run(
            "head -c 1000 /dev/urandom; printf '\\n```liza\\nstatus: done\\nsummary: s\\n```\\n'"
        )

        assert reply.ending is RunEnding.DONE
        assert isinstance(parse_answer(reply.text, Step.IMPLEMENT), ParsedAnswer)

    def test_a_limit_that_trips_is_named(self, desk: Desk) -> None:
        """And nothing of the run is left."""
        reply = desk.run("sleep 60", desk.brief(limits=RunLimits(total=0.2)))

        assert (reply.ending, reply.why) == (
            RunEnding.TIMEOUT,
            "it was not done after 0.2 seconds, its limit in all",
        )
        assert sweep(desk.runs) == ((), ())
