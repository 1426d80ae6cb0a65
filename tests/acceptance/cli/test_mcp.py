"""`liza mcp` as an assistant uses it: the SDK's own client, over stdio, on a real board."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from liza.domain.model import Role, Status
from tests.support.shell import ROOT, Shell
from tests.support.web_story import WebStory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from mcp import ClientSession

    from liza.cli.mcp_server import ToolRow


@pytest.fixture
def story(tmp_path: Path) -> WebStory:
    return WebStory(tmp_path / "project")


def tool_rows() -> Sequence[ToolRow]:
    # The SDK takes a second of a core, which every process of the suite would pay for collecting this file.
    from liza.cli.mcp_server import TOOLS  # noqa: PLC0415

    return TOOLS


def talk(story: WebStory, say: Callable[[ClientSession], Awaitable[Any]], *words: str) -> Any:  # noqa: ANN401 - JSON
    """Start the server, let *say* talk to it as a client, and return what came of that."""
    from mcp import ClientSession, StdioServerParameters, stdio_client  # noqa: PLC0415 - as above

    async def run() -> Any:  # noqa: ANN401
        arguments = ["-m", "liza", "-C", str(story.user.directory), "mcp", *words]
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return await say(session)

    return asyncio.run(run())


async def call(session: ClientSession, name: str, **arguments: Any) -> tuple[bool, str]:  # noqa: ANN401
    """Return whether the tool failed, and what it said."""
    found = await session.call_tool(name, arguments)
    return bool(found.is_error), "".join(getattr(part, "text", "") for part in found.content)


class Conversation(NamedTuple):
    """What one assistant saw and what came of its words; starting a server takes a second of a core."""

    story: WebStory
    tools: dict[str, Any]  # name to annotations
    resources: dict[str, str]
    said: dict[str, tuple[bool, str]]


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    story = WebStory(tmp_path_factory.mktemp("talked") / "project")

    async def say(session: ClientSession) -> Conversation:
        tools = {tool.name: tool.annotations for tool in (await session.list_tools()).tools}
        resources = {name: await resource(session, name) for name in ("board", "report", "tasks/greet")}
        return Conversation(story, tools, resources, await steer(session))

    found: Conversation = talk(story, say)
    return found


async def resource(session: ClientSession, name: str) -> str:
    read = await session.read_resource(f"liza://{name}")
    return "".join(getattr(part, "text", "") for part in read.contents)


async def steer(session: ClientSession) -> dict[str, tuple[bool, str]]:
    """Look at everything and change what may be changed; return what each tool said."""
    return {
        "status": await call(session, "status"),
        "explain": await call(session, "explain", subject="colours"),
        "cost": await call(session, "cost"),
        "logs": await call(session, "logs", subject="greet"),
        "diff": await call(session, "diff", task="parse"),
        "answer": await call(session, "answer", task="colours", text="blue"),
        "note": await call(session, "note", text="be brief", about="usage"),
        "add": await call(session, "task_add", id="docs", description="Write it", done_when=["it is"],
                          paths=["docs/"], depends_on=["usage"]),
        "add less": await call(session, "task_add", id="more", description="More", done_when=["it is"]),
        "reject": await call(session, "reject", task="parse", reason="no help"),
        "pause": await call(session, "pause", reason="lunch"),
        "wrong": await call(session, "accept", task="usage", reason="yes"),
        "nobody": await call(session, "explain", subject="../../etc/passwd"),
    }  # fmt: skip


def test_an_assistant_looks_and_steers(talked: Conversation) -> None:
    story, said = talked.story, talked.said
    state = story.board.read()
    assert json.loads(said["status"][1])["headline"]["sentence"].startswith("Nobody works: 1 of 6 tasks done")
    assert "Which colour, blue or green?" in said["explain"][1]
    assert json.loads(said["cost"][1])["total"]["runs"] == 3
    assert "I look at the code." in said["logs"][1]
    assert "+print(sys.argv[1])" in said["diff"][1]
    assert "PAUSE is thrown" in said["pause"][1]
    assert state.task("colours").guidance == "blue"
    assert (state.task("docs").created_by, state.task("docs").depends_on) == ("assistant", ("usage",))
    assert (state.task("more").scope.include, state.task("more").depends_on) == ((), ())
    assert state.task("parse").status is Status.REJECTED
    assert story.board.switches.thrown() == {"PAUSE": "by an assistant: lunch"}
    assert [name for name, (is_error, _) in said.items() if is_error] == ["wrong", "nobody"]
    assert "it asks for no consent" in said["wrong"][1]


def test_approvals_can_be_forbidden_to_it_and_not_to_people(story: WebStory) -> None:
    liza = Shell(story.user.directory)
    liza.edit("approvals: true", "approvals: false")
    story.board.absorb()

    async def say(session: ClientSession) -> list[tuple[bool, str]]:
        said = [
            await call(session, "accept", task="parse", reason="yes"),
            await call(session, "reject", task="parse", reason="no"),
            await call(session, "answer", task="budget", text="500"),
            await call(session, "answer", task="colours", text="blue"),
        ]
        assert story.board.read().task("parse").status is Status.AWAITING_APPROVAL
        liza.ok("answer", "budget", "500")
        liza.edit("approvals: false", "approvals: true")
        story.board.absorb()
        return [*said, await call(session, "accept", task="parse", reason="my user said so")]

    *forbidden, answer, accept = talk(story, say)
    for is_error, text in forbidden:
        assert is_error
        assert "`assistant.approvals` is false, so an assistant may not decide this" in text
    assert not answer[0]
    assert not accept[0]
    task = story.board.read().task("parse")
    assert task.status is Status.APPROVED
    # A person, by an assistant.
    assert (task.history[-1].by, task.history[-1].role) == ("assistant", Role.HUMAN)
    assert list(story.board.entries())[-1].by == "assistant"


def test_what_changes_and_what_destroys_is_marked(talked: Conversation) -> None:
    tools = talked.tools
    assert tools.keys() == {row.name for row in tool_rows()}
    assert {name for name, hints in tools.items() if hints.destructive_hint} == {"accept", "reject"}
    assert {name for name, hints in tools.items() if not hints.read_only_hint} == {
        row.name for row in tool_rows() if row.changes
    }


def test_the_board_is_a_resource(talked: Conversation) -> None:
    found = talked.resources
    assert json.loads(found["board"])["goal"]["description"] == "A greeter that people like"
    assert found["report"].startswith("# A greeter")
    assert json.loads(found["tasks/greet"])["status"] == "MERGED"


def test_read_only_has_nothing_that_changes_anything(story: WebStory) -> None:
    async def say(session: ClientSession) -> tuple[list[str], tuple[bool, str]]:
        listed = [tool.name for tool in (await session.list_tools()).tools]
        return listed, await call(session, "note", text="hello")

    listed, (is_error, _) = talk(story, say, "--read-only")
    assert set(listed) == {row.name for row in tool_rows() if not row.changes}
    assert is_error
    assert story.board.read().human_notes == {}
