"""What the output of real coding programs means: captured runs, the words of limits, the table itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

import pytest

from liza.agents.clis.agent import CliAgent, effort_of
from liza.agents.clis.errors import ERROR_PATTERNS, provider_limit, reset_time
from liza.agents.clis.spec import PERMISSION_BY_STEP, Cli, Effort, ParsedRun, Permission, RunOutput
from liza.agents.clis.table import CLIS
from liza.agents.protocol import Brief, Provenance, Session
from liza.domain.answer_parsing import ParsedAnswer, parse_answer
from liza.domain.answers import ROLE_OF_STEP, Step
from liza.domain.config import AgentChoice
from liza.errors import UsageError
from liza.system.run_control import RunEnding

CAPTURES: Final = Path(__file__).parents[2] / "captures"
NOW: Final = datetime(2026, 11, 16, 8, tzinfo=UTC)  # a Monday


def read(cli: str, run: str) -> ParsedRun:
    """Parse a captured run: what a real program printed, with paths made up."""
    folder = CAPTURES / cli / run

    def text(name: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    printed = RunOutput(text("stdout"), text("stderr"), int(text("code")), text("report"))
    return CLIS[cli].parse(printed, NOW)


class Expected(NamedTuple):
    run: str
    ending: RunEnding
    text: str = ""  # what the text begins with
    tokens: tuple[int, int] | None = None
    usd: float | None = None
    why: str = ""


DONE, CRASHED, AUTH, LIMITED = RunEnding.DONE, RunEnding.CRASHED, RunEnding.AUTH, RunEnding.RATE_LIMITED
WROTE, CUT = "Done: wrote hello.py", "this text is cut in the middle"
BUDGET, TURNS = "Reached maximum budget", "Reached maximum number of turns"
ONE, TWO, FOUR = (1200, 34), (2400, 68), (4800, 136)
RUNS: Final = (
    Expected("aider/broken", DONE, CUT, ONE),  # nothing tells; the answer is not there, and so is unreadable
    Expected("aider/limited", LIMITED, why="RateLimitError"),
    Expected("aider/reviewed", DONE, "hello.py\n```\n<<<<<<< SEARCH", ONE),
    Expected("aider/unauthorized", AUTH, why="AuthenticationError"),  # with exit code 0
    Expected("claude/broken", DONE, CUT, ONE, 0.00411),  # it asked again without a stream
    Expected("claude/budget", CRASHED, "", ONE, 0.00685, BUDGET),
    Expected("claude/cut", DONE, "x", ONE, 0.00685),
    Expected("claude/denied", DONE, WROTE, TWO, 0.00822, "not allowed to use Write"),
    Expected("claude/down", CRASHED, why="Unable to connect"),
    Expected("claude/err401r", AUTH, why="Failed to authenticate"),  # its subtype says success
    Expected("claude/err429x2", DONE, "recovered", ONE, 0.00685),
    Expected("claude/err500", CRASHED, why="500 scripted"),
    Expected("claude/limited", LIMITED, why="(429)"),
    Expected("claude/maxturns", CRASHED, "", ONE, 0.00685, TURNS),
    Expected("claude/resume", DONE, "second turn done", TWO, 0.00822),
    Expected("claude/reviewed", DONE, "ok then", FOUR, 0.01644, "not allowed to use Bash"),
    Expected("claude/stream", DONE, WROTE, TWO, 0.00822),
    Expected("claude/unauthorized", AUTH, why="401"),
    Expected("claude/write", DONE, WROTE, TWO, 0.00822),
    Expected("codex/broken", CRASHED, why="stream disconnected"),
    Expected("codex/cut", CRASHED, why="stream disconnected"),
    Expected("codex/err401", AUTH, why="401 Unauthorized"),
    Expected("codex/err429", LIMITED, why="429 Too Many Requests"),
    Expected("codex/err500", LIMITED, why="high demand"),
    Expected("codex/limited", LIMITED, why="429"),
    Expected("codex/net2", DONE, "x", TWO),
    Expected("codex/resume", DONE, WROTE, FOUR),  # of the whole thread: this run had half of it
    Expected("codex/reviewed", DONE, "ok then", FOUR),
    Expected("codex/ro", DONE, WROTE, TWO),  # it says so, and there is no file
    Expected("codex/unauthorized", AUTH, why="401"),
    Expected("codex/write", DONE, WROTE, TWO),
    Expected("gemini/broken", DONE, CUT, ONE),
    Expected("gemini/err401", AUTH, why="401"),
    Expected("gemini/implemented", DONE, "ok then", FOUR),
    Expected("gemini/limited", LIMITED),  # still trying when it was ended
    Expected("gemini/reviewed", DONE, "ok", ONE),
    Expected("gemini/unauthorized", AUTH, why="401"),
    Expected("gemini/write", DONE, WROTE, TWO),
    Expected("goose/broken", DONE, CUT),
    Expected("goose/err401", AUTH, why="Authentication failed"),  # with exit code 0, and completed
    Expected("goose/limited", LIMITED, why="Rate limit exceeded"),
    Expected("goose/reviewed", DONE, "ok then", FOUR),
    Expected("goose/stream", DONE, WROTE, TWO),
    Expected("goose/unauthorized", AUTH, why="Authentication failed"),
    Expected("goose/write", DONE, WROTE),
    Expected("mini/broken", CRASHED, why="RepeatedFormatError"),
    Expected("mini/limited", LIMITED, why="RateLimitError"),
    Expected("mini/reviewed", DONE, "```liza", TWO),
    Expected("mini/unauthorized", AUTH, why="AuthenticationError"),
    Expected("opencode/broken", CRASHED, CUT, why="was cut"),
    Expected("opencode/cut", CRASHED, CUT, why="was cut"),
    Expected("opencode/denied", DONE, WROTE, TWO, 0.002536),
    Expected("opencode/err401", AUTH, why="401"),
    Expected("opencode/limited", LIMITED, why="429"),
    Expected("opencode/resume", DONE, "resumed ok", ONE, 0.001268),
    Expected("opencode/reviewed", DONE, "ok", ONE),
    Expected("opencode/unauthorized", AUTH, why="401"),
    Expected("opencode/write", DONE, WROTE, TWO, 0.002536),
    Expected("qwen/broken", DONE, CUT),
    Expected("qwen/err401", AUTH, why="401"),  # with exit code 0, and no error by its own word
    Expected("qwen/limited", CRASHED, why="cancelled"),
    Expected("qwen/reviewed", DONE, "ok", TWO),
    Expected("qwen/unauthorized", AUTH, why="401"),
    Expected("qwen/write", DONE, WROTE, TWO),
)


class TestCaptures:
    def test_every_captured_run_is_expected(self) -> None:
        """A capture that nothing looks at proves nothing."""
        there = {f"{folder.parent.name}/{folder.name}" for folder in CAPTURES.glob("*/*")}

        assert there == {expected.run for expected in RUNS}

    @pytest.mark.parametrize("expected", RUNS, ids=lambda expected: expected.run)
    def test_a_run_means_what_its_program_meant(self, expected: Expected) -> None:
        """Exit code 0 is no success, nor is a program's own `success`; usage is what it reports."""
        parsed = read(*expected.run.split("/"))

        assert parsed.ending is expected.ending
        assert parsed.text.startswith(expected.text)
        assert expected.why in parsed.why
        tokens = expected.tokens or (None, None)
        assert (parsed.usage.tokens_in, parsed.usage.tokens_out) == tokens
        assert parsed.usage.usd == (pytest.approx(expected.usd) if expected.usd else None)
        known = expected.tokens is not None
        assert (parsed.usage.provenance is Provenance.REPORTED) == known

    @pytest.mark.parametrize("cli", [cli for cli in CLIS if (CAPTURES / cli / "reviewed").exists()])
    def test_an_answer_is_found_in_what_the_agent_said(self, cli: str) -> None:
        """The same block through every dialect; gemini, opencode and qwen had no tool to play the script."""
        parsed = read(cli, "reviewed")

        found = parse_answer(parsed.text, Step.REVIEW)

        assert isinstance(found, ParsedAnswer) == (cli not in {"gemini", "opencode", "qwen"})

    @pytest.mark.parametrize("cli", ["claude", "codex", "gemini", "goose", "opencode", "qwen"])
    def test_what_a_tool_printed_is_not_the_agents_word(self, cli: str) -> None:
        """A file of the repository that a tool shows could hold an answer."""
        run = {"claude": "stream", "goose": "stream", "gemini": "implemented"}.get(cli, "write")
        stdout = (CAPTURES / cli / run / "stdout").read_text()

        assert "hello.py" in stdout.replace(WROTE, "")
        assert "hello.py" not in read(cli, run).text.replace(WROTE, "")

    def test_a_program_that_goes_on_with_a_session_names_it(self) -> None:
        assert read("codex", "resume").session == "01a1e20f-0f57-7290-8365-6ada7f42a287"
        assert read("claude", "write").session == "411fa534-8dd9-4664-95b4-823339ca8aef"
        assert (read("opencode", "resume").session or "").startswith("ses_")

    @pytest.mark.parametrize("cli", CLIS)
    @pytest.mark.parametrize("out", ["", "{", "[]\n[1]\n{}\n", '{"type":"result","result":', "\x00\xff{}"])
    def test_garbage_is_no_success_and_no_traceback(self, cli: str, out: str) -> None:
        """A program may print anything, also half of it."""
        parsed = CLIS[cli].parse(RunOutput(out, "", 0, out), NOW)

        assert parsed.ending in {RunEnding.EMPTY, RunEnding.CRASHED}

    @pytest.mark.parametrize("cli", CLIS)
    def test_another_exit_code_is_a_failure_that_stderr_explains(self, cli: str) -> None:
        parsed = CLIS[cli].parse(RunOutput("", "Error: invalid api key\n", 1), NOW)

        assert parsed.ending is RunEnding.AUTH
        assert "invalid api key" in parsed.why

    def test_a_claude_that_was_ended_while_it_tried_again_met_a_limit(self) -> None:
        """Its default retries outlast any patience with a bad key."""
        retry = '{"type":"system","subtype":"api_retry","error_status":401,"error":"authentication_failed"}\n'

        assert CLIS["claude"].parse(RunOutput(retry, "", -15), NOW).ending is RunEnding.AUTH


class TestLimits:
    @pytest.mark.parametrize(
        ("sign", "said"), [(sign, said) for sign in ERROR_PATTERNS for said in sign.said]
    )
    def test_what_is_known_to_be_said_is_told_apart(self, sign: object, said: str) -> None:
        """Each text meets its own row first."""
        found = provider_limit(said, None, NOW)

        assert found is not None
        assert found.ending is getattr(sign, "ending", None)

    @pytest.mark.parametrize(
        ("status", "said", "ending"),
        [
            (401, "anything at all, such as rate limit", RunEnding.AUTH),
            (402, "", RunEnding.QUOTA),
            (429, "", RunEnding.RATE_LIMITED),
            (429, "You exceeded your current quota, please check your plan", RunEnding.QUOTA),
            (429, "the request was not authorized for this many", RunEnding.RATE_LIMITED),
            (529, "", RunEnding.RATE_LIMITED),
            (500, "boom", None),
            (None, "TypeError: cannot read properties of undefined", None),
            (None, "HTTP 429", RunEnding.RATE_LIMITED),
            (None, "it wrote 429 lines", None),
        ],
    )
    def test_a_status_counts_where_words_say_nothing_better(
        self, status: int | None, said: str, ending: RunEnding | None
    ) -> None:
        found = provider_limit(said, status, NOW)

        assert (found.ending if found else None) is ending

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ("Please try again in 20s.", NOW + timedelta(seconds=20)),
            ("Please try again in 6m0s.", NOW + timedelta(minutes=6)),
            ("try again in 3 days 4 hours 5 minutes.", NOW + timedelta(days=3, hours=4, minutes=5)),
            ("Please retry in 34.5s.", NOW + timedelta(seconds=34.5)),
            ("Your quota will reset after 1h2m3s.", NOW + timedelta(hours=1, minutes=2, seconds=3)),
            ("retry-after: 30", NOW + timedelta(seconds=30)),
            ('"retryDelay": "12s"', NOW + timedelta(seconds=12)),
            ("usage limit reached|1794820000", datetime.fromtimestamp(1794820000, UTC)),
            ('"resets_at":1794820000', datetime.fromtimestamp(1794820000, UTC)),
            ('"resets_in_seconds":90', NOW + timedelta(seconds=90)),
            ("limit reached ∙ resets 3pm", datetime(2026, 11, 16, 15, tzinfo=UTC)),
            ("limit reached, resets at 7am", datetime(2026, 11, 17, 7, tzinfo=UTC)),
            ("resets 3pm (Europe/Berlin)", datetime(2026, 11, 16, 14, tzinfo=UTC)),
            ("resets 12:30am", datetime(2026, 11, 17, 0, 30, tzinfo=UTC)),
            ("resets Mon 12:00am", datetime(2026, 11, 23, tzinfo=UTC)),
            ("resets Nov 20 at 9am", datetime(2026, 11, 20, 9, tzinfo=UTC)),
            ("resets Jan 2, 9am", datetime(2027, 1, 2, 9, tzinfo=UTC)),
            ("try again at 15:45", datetime(2026, 11, 16, 15, 45, tzinfo=UTC)),
            ("reset: 2026-11-16T09:00:00Z", datetime(2026, 11, 16, 9, tzinfo=UTC)),
            ("resets at 99pm", None),
            ("it said nothing about when", None),
        ],
    )
    def test_the_end_of_a_limit_is_read(self, said: str, expected: datetime | None) -> None:
        """Whoever waits too long idles for hours, whoever waits too little storms."""
        assert reset_time(said, NOW) == expected

    def test_a_clock_time_without_a_zone_is_local(self) -> None:
        """A program prints the time of the machine that it runs on."""
        local = NOW.astimezone(timezone(timedelta(hours=-5)))

        assert reset_time("resets at 4am", local) == datetime(2026, 11, 16, 9, tzinfo=UTC)


def command_line(cli: Cli, step: Step, tmp: Path, **choice: object) -> tuple[str, ...]:
    agent = CliAgent(cli, AgentChoice.model_validate(choice), tmp, environment={"PATH": "/nowhere"})
    brief = Brief(
        run="coder-1.x", role=ROLE_OF_STEP[step], step=step, prompt="p", cwd=tmp, folder=tmp / "run"
    )
    return agent.argv(brief, tmp / "home")


class TestTheTable:
    def test_only_implementing_may_write(self) -> None:
        """Plans, checkpoints and reviews are read-only for every program."""
        assert {step for step in Step if PERMISSION_BY_STEP[step] is Permission.WRITE} == {Step.IMPLEMENT}

    @pytest.mark.parametrize("name", CLIS)
    def test_a_row_is_whole(self, name: str, tmp_path: Path) -> None:
        """Both ways, a key that logs in, and no placeholder that stays."""
        cli = CLIS[name]

        assert set(cli.permission_flags) == set(Permission)
        assert cli.keys
        assert cli.endpoints
        assert cli.writable
        for step in Step:
            words = command_line(cli, step, tmp_path, model="m", effort="high")
            assert words[0] == cli.programs[0]
            assert "m" in " ".join(words)
            assert not [word for word in words if Template(word).get_identifiers()]

    @pytest.mark.parametrize("name", [name for name, cli in CLIS.items() if cli.has_read_only_mode])
    def test_reading_and_writing_differ(self, name: str) -> None:
        """Or else a reviewer could edit."""
        ways = CLIS[name].permission_flags

        assert ways[Permission.READ] != ways[Permission.WRITE]

    @pytest.mark.parametrize("name", CLIS)
    def test_the_prompt_is_no_argument(self, name: str, tmp_path: Path) -> None:
        """The kernel refuses an argument of more than 128 KiB, and others on the machine can read it."""
        assert "p" not in command_line(CLIS[name], Step.PLAN, tmp_path)

    @pytest.mark.parametrize(
        ("name", "effort", "expected"),
        [
            ("claude", "minimal", "low"),
            ("claude", "xhigh", "max"),
            ("claude", "HIGH", "high"),
            ("codex", "max", "xhigh"),
            ("codex", "minimal", "minimal"),
            ("gemini", "high", None),
        ],
    )
    def test_an_effort_is_said_in_each_programs_words(
        self, name: str, effort: str, expected: str | None
    ) -> None:
        assert effort_of(CLIS[name], effort) == expected
        assert set(CLIS[name].efforts) in ({*Effort}, set())

    def test_an_unknown_effort_is_named(self) -> None:
        with pytest.raises(UsageError, match="no effort 'heroic'; known: minimal, low"):
            effort_of(CLIS["claude"], "heroic")

    @pytest.mark.parametrize("name", [name for name, cli in CLIS.items() if cli.resume])
    def test_a_session_is_resumed_by_its_id(self, name: str, tmp_path: Path) -> None:
        agent = CliAgent(CLIS[name], AgentChoice(), tmp_path, environment={})
        brief = Brief(
            run="r", role=ROLE_OF_STEP[Step.REVIEW], step=Step.REVIEW, prompt="p", cwd=tmp_path,
            folder=tmp_path, session=Session(id="the-session"),
        )  # fmt: skip

        assert "the-session" in agent.argv(brief, tmp_path)

    def test_arguments_of_the_settings_come_before_the_prompt(self, tmp_path: Path) -> None:
        words = command_line(CLIS["codex"], Step.REVIEW, tmp_path, arguments=["-c", "x=1"])

        assert words[-3:] == ("-c", "x=1", "-")
