"""A person steers Liza through a coding program that has `liza mcp` as a server of tools."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.domain.changes import ASSISTANT
from tests.agents.real import Project
from tests.agents.script import NOTE, STEERED, STEERING

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]


def test_claude_looks_at_the_board_and_leaves_a_note(tmp_path: Path) -> None:
    """The note is a person's, by an assistant, and the next agents read it."""
    project = Project(tmp_path, "claude")
    project.environment["MCP_TIMEOUT"] = "120000"  # milliseconds that a server may take to start
    server = {"command": sys.executable, "args": ["-m", "liza", "-C", str(project.root), "mcp"]}
    tools = ("mcp__liza__status", "mcp__liza__note")
    done = project.alone(
        *("claude", "-p", STEERING, "--output-format", "json", "--model", "sonnet"),
        *("--strict-mcp-config", "--mcp-config", json.dumps({"mcpServers": {"liza": server}})),
        *("--allowedTools", ",".join(tools)),
    )

    said = json.loads(done.stdout)
    assert (said["is_error"], said["result"], said["permission_denials"]) == (False, STEERED, []), done.stderr
    calls = project.calls()
    assert [call.played for call in calls if call.played in tools] == list(tools), calls
    assert any("Greet people by name" in result for result in calls[-1].results)
    (note,) = project.state.human_notes.values()
    assert note.message == NOTE
    *_, last = FileBoard(project.root / ".liza").entries()
    assert last.by == ASSISTANT.id
