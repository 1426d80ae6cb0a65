"""What agents print becomes lines for people, whatever program printed it and wherever it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.cli.views.transcript import LONGEST_EVENT, LineKind, TranscriptReader, last_lines, last_window

CAPTURES: Final = Path(__file__).parents[2] / "captures"


def shown(data: bytes | str) -> list[str]:
    reader = TranscriptReader()
    found = reader.feed(data.encode() if isinstance(data, str) else data)
    return [str(line) for line in [*found, *reader.rest()]]


def event(**fields: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(fields) + "\n"


class TestPrograms:
    """Each reads what the real program printed, which is kept in tests/captures."""

    @pytest.mark.parametrize(
        ("capture", "lines"),
        [
            ("claude/stream", ["* Write /srv/repo/stream/hello.py"]),
            ("codex/write", ["$ /bin/bash -lc \"cat > '/srv/repo/codex-write/hello.py' <<'EOF_SCRIPT'"]),
            ("codex/err429", ["! exceeded retry limit, last status: 429 Too Many Requests"]),
            ("gemini/implemented", ["* write_file /srv/gemini-implement/repo/hello.py"]),
            (
                "gemini/implemented",
                ["$ git diff --output=/srv/gemini-implement/repo/viagit.txt", "- ended: success"],
            ),
            ("opencode/denied", ["print('hello')"]),
            ("aider/reviewed", ["verdict: approve", "Tokens: 1.2k sent, 34 received."]),
            ("qwen/err401", ["[API Error: 401 scripted 401]"]),
            (
                "goose/broken",
                ["this text is cut in the middle of the stream and it is long enough to be cut in "],
            ),
        ],
    )
    def test_a_capture_is_readable(self, capture: str, lines: list[str]) -> None:
        found = shown((CAPTURES / capture / "stdout").read_bytes())

        assert [line for line in lines if not any(line in one for one in found)] == []

    @pytest.mark.parametrize(
        "path", sorted(CAPTURES.glob("*/*/stdout")), ids=lambda path: "/".join(path.parts[-3:-1])
    )
    def test_no_event_is_left_as_json(self, path: Path) -> None:
        """A program that Liza knows is never shown in its own notation."""
        assert [line for line in shown(path.read_bytes()) if line.startswith('{"type"')] == []

    def test_the_protocol_of_editors_is_read(self) -> None:
        pieces = [
            event(kind="session", data="s1"),
            event(kind="update", data={"sessionUpdate": "agent_message_chunk", "content": {"text": "Hel"}}),
            event(
                kind="update", data={"sessionUpdate": "agent_message_chunk", "content": {"text": "lo\nyou"}}
            ),
            event(kind="update", data={"sessionUpdate": "tool_call", "kind": "execute", "title": "make"}),
            event(kind="denied", data="rm"),
            event(kind="prompt", data={"stopReason": "end_turn"}),
        ]

        assert shown("".join(pieces)) == ["Hello", "you", "$ make", "! not allowed: rm"]

    def test_a_model_that_liza_talks_to_itself_is_read(self) -> None:
        calls = [{"id": "1", "tool": "shell", "arguments": '{"command": "ls"}'}]
        pieces = [
            event(said="I look.", calls=calls),
            event(spent={"tokens_in": 1}),
            event(tool="shell", result="a.py\nb.py"),
            event(fault="429", again_in=2.0),
            event(finished={}),
        ]

        assert shown("".join(pieces)) == [
            *("I look.", "$ ls", "  | a.py", "  | b.py", "! 429; tried again in 2.0 s"),
        ]

    def test_json_of_somebodys_own_program_is_left_as_it_is(self) -> None:
        assert shown('{"progress": 3}\n[1, 2]\n') == ['{"progress": 3}', "[1, 2]"]


class TestReading:
    def test_what_would_act_on_a_terminal_is_written_out(self) -> None:
        found = shown(
            event(type="text", part={"type": "text", "text": "\x1b]0;owned\x07a\u202eb\x1b[31mred"})
        )

        assert found == ["\\x1b]0;owned\\x07a\\u202ebred"]

    def test_secrets_are_masked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACME_TOKEN", "hunter2hunter2")

        assert shown("the key is hunter2hunter2\n") == ["the key is [masked]"]

    def test_long_output_of_a_tool_is_cut_and_counted(self) -> None:
        output = "\n".join(map(str, range(100)))
        found = shown(event(type="tool_result", status="success", output=output))

        assert len(found) == 13
        assert found[-1] == "  | … and 88 more lines"

    def test_a_line_that_is_too_long_is_told(self) -> None:
        found = shown(b'{"type":"text","part":"' + b"x" * (LONGEST_EVENT + 1) + b'"}\nlater\n')

        assert found == [f"- a line of {LONGEST_EVENT + 26:,} bytes (`--raw` has it)", "later"]

    @given(data=st.binary(max_size=200), cut=st.integers(0, 200))
    def test_where_bytes_are_cut_makes_no_difference(self, data: bytes, cut: int) -> None:
        reader = TranscriptReader()
        found = [*reader.feed(data[:cut]), *reader.feed(data[cut:]), *reader.rest()]

        assert [str(line) for line in found] == shown(data)

    @given(
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "kind",
                    "message",
                    "content",
                    "item",
                    "part",
                    "data",
                    "said",
                    "calls",
                    "tool",
                    "error",
                ]
            ),
            st.recursive(
                st.sampled_from(["assistant", "update", "tool_use", "item.completed", "text", "file_change"])
                | st.none()
                | st.integers()
                | st.booleans(),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(["type", "role", "content", "changes", "state", "text", "command"]),
                        inner,
                        max_size=3,
                    )
                ),
                max_leaves=8,
            ),
        )
    )
    def test_no_json_of_an_agent_breaks_it(self, value: dict[str, Any]) -> None:
        assert isinstance(shown(json.dumps(value)), list)

    @pytest.mark.parametrize("line", ["[" * 100_000, "{" * 5000, '{"type":', "\x00" * 50])
    def test_nor_does_what_is_no_json(self, line: str) -> None:
        assert len(shown(line)) == 1


class TestTail:
    def test_the_end_of_a_huge_file_is_read_without_the_rest(self, tmp_path: Path) -> None:
        """Half a gigabyte, most of which is not even there."""
        path = tmp_path / "stdout"
        with path.open("wb") as file:
            file.seek(500 << 20)
            file.write(b"\none\ntwo\nthree\n")

        assert [str(line) for line in last_lines(path, 2)] == ["two", "three"]

    def test_it_looks_further_back_until_there_are_lines_enough(self, tmp_path: Path) -> None:
        path = tmp_path / "stdout"
        silent = event(type="step_start", part={"x": "y" * 1000})
        path.write_text("first\n" + silent * 200 + "last\n")
        found = last_window(path, 2)

        assert [line.text for line in found.lines] == ["first", "last"]
        assert found.lines[0].kind is LineKind.TEXT
        assert (found.start, found.end) == (0, path.stat().st_size)

    def test_going_back_window_by_window_shows_every_line_once(self, tmp_path: Path) -> None:
        path = tmp_path / "stdout"
        path.write_text("".join(f"line {number}\n" for number in range(300)) + "no end")
        seen, before = list[str](), None
        while before != 0:
            found = last_window(path, 70, before=before)
            seen[:0], before = [line.text for line in found.lines], found.start

        assert seen == [*(f"line {number}" for number in range(300)), "no end"]

    def test_an_event_of_many_lines_is_seen_as_a_whole_by_who_goes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "stdout"
        said = event(type="item.completed", item={"type": "agent_message", "text": "a\nb\nc"})
        path.write_text(f"first\n{said}last\n")
        found = last_window(path, 2)

        assert [line.text for line in found.lines] == ["c", "last"]
        assert [line.text for line in last_window(path, 9, before=found.start).lines] == [
            "first",
            "a",
            "b",
            "c",
        ]

    def test_a_line_that_is_longer_than_any_window_is_told_and_stepped_over(self, tmp_path: Path) -> None:
        path = tmp_path / "stdout"
        with path.open("wb") as file:
            file.write(b"first\n")
            file.seek(20 << 20)
            file.write(b"\n")
        found = last_window(path, 5)

        assert [str(line) for line in found.lines] == ["- a line of 20,971,515 bytes (`--raw` has it)"]
        assert [line.text for line in last_window(path, 5, before=found.start).lines] == ["first"]

    def test_a_file_that_is_gone_has_no_lines(self, tmp_path: Path) -> None:
        assert last_lines(tmp_path / "none", 3) == ()
