"""What an agent printed, as lines that people can read, and a window of it without reading all of it.

Each coding program prints events in JSON of its own shape; a line that is none of these is shown as it is.
All of it was written by agents: it is masked, and nothing in it acts on a terminal.
"""

from __future__ import annotations

import json
import os
import stat
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.clis.parsing import message_text, value_at
from liza.domain.printed_text import escape_unsafe
from liza.domain.record import strip_colour
from liza.system.files import environment_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


LONGEST_TEXT: Final = 2000  # characters of a line that are shown; --raw has all of it
LONGEST_EVENT: Final = 4 << 20  # bytes of one line that are looked into
SHOWN_OUTPUT: Final = 12  # lines of what a tool printed

Json = dict[str, Any]


class LineKind(StrEnum):
    """What a line of a transcript is; `MARKS` says what stands before each."""

    TEXT = "text"
    THOUGHT = "thought"
    TOOL = "tool"
    COMMAND = "command"
    FILE = "file"
    OUTPUT = "output"
    ERROR = "error"
    NOTE = "note"


MARKS: Final[dict[LineKind, str]] = {
    LineKind.TEXT: "",
    LineKind.THOUGHT: "~ ",
    LineKind.TOOL: "> ",
    LineKind.COMMAND: "$ ",
    LineKind.FILE: "* ",
    LineKind.OUTPUT: "  | ",
    LineKind.ERROR: "! ",
    LineKind.NOTE: "- ",
}


class TranscriptLine(NamedTuple):
    """One line for people, safe to print; *is_part* says that it goes on with the next one."""

    kind: LineKind
    text: str
    is_part: bool = False

    def __str__(self) -> str:
        return f"{MARKS[self.kind]}{self.text}"


class _Fragment(NamedTuple):
    """A piece of what happened; *is_part* says that the text goes on with the next one."""

    kind: LineKind
    text: str
    is_part: bool = False


class TranscriptReader:
    """Turns bytes of a transcript into readable lines, wherever they are cut."""

    def __init__(self) -> None:
        self._bytes = b""
        self._text = _Fragment(LineKind.TEXT, "")
        self._skipped = 0  # bytes of a line that is too long to be looked into

    def feed(self, data: bytes) -> list[TranscriptLine]:
        """Return the lines that *data* completes."""
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        found = [line for raw in lines for line in self._line(raw)]
        if len(self._bytes) > LONGEST_EVENT:
            self._skipped += len(self._bytes)
            self._bytes = b""
        return found

    def rest(self) -> list[TranscriptLine]:
        """Return what has not ended with a line break; the transcript is over, or nobody waits for more."""
        last, self._bytes = self._bytes, b""
        return [*(self._line(last) if last or self._skipped else ()), *self._flush()]

    def _line(self, raw: bytes) -> Iterator[TranscriptLine]:
        if self._skipped or len(raw) > LONGEST_EVENT:
            size, self._skipped = self._skipped + len(raw), 0
            yield from self._flush()
            yield TranscriptLine(LineKind.NOTE, f"a line of {size:,} bytes (`--raw` has it)")
            return
        for fragment in _fragments(raw.decode(errors="replace").rstrip("\r")):
            yield from self._take(fragment)

    def _take(self, fragment: _Fragment) -> Iterator[TranscriptLine]:
        if self._text.text and fragment.kind is not self._text.kind:
            yield from self._flush()
        if not fragment.is_part:
            yield from self._flush()
            yield from _lines(fragment)
            return
        *whole, last = (self._text.text + fragment.text).split("\n")
        yield from (TranscriptLine(fragment.kind, _safe(line)) for line in whole)
        self._text = fragment._replace(text=last)

    def _flush(self) -> Iterator[TranscriptLine]:
        if self._text.text:
            yield from _lines(self._text)
        self._text = _Fragment(LineKind.TEXT, "")


def _lines(fragment: _Fragment) -> Iterator[TranscriptLine]:
    lines = strip_colour(fragment.text).splitlines() or [""]
    shown = lines[:SHOWN_OUTPUT] if fragment.kind is LineKind.OUTPUT else lines
    yield from (TranscriptLine(fragment.kind, _safe(line)) for line in shown)
    if len(shown) < len(lines):
        yield TranscriptLine(fragment.kind, f"… and {len(lines) - len(shown):,} more lines")


def _safe(text: str) -> str:
    """Return *text* masked, on one line, with nothing in it that would act on a terminal."""
    whole = escape_unsafe(environment_mask().text(strip_colour(text)))
    return whole if len(whole) <= LONGEST_TEXT else f"{whole[: LONGEST_TEXT - 1]}…"


def _fragments(line: str) -> Iterator[_Fragment]:
    """Yield what *line* says, as whichever program printed it means it."""
    try:
        found = json.loads(line) if line.startswith(("{", "[")) else None
    except (ValueError, RecursionError):  # no JSON, or none that anybody meant
        found = None
    events = [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]
    if not events or not all(map(_dialect, events)):
        yield _Fragment(LineKind.TEXT, line)
        return
    for event in events:
        if dialect := _dialect(event):
            yield from dialect(event)


def _dialect(event: Json) -> Callable[[Json], Iterator[_Fragment]] | None:
    """Return who can read *event*; None where it is no event of a program that Liza knows."""
    if isinstance(event.get("kind"), str) and event["kind"] in _ACP_KINDS:
        return _acp
    if isinstance(event.get("type"), str):
        return _BY_TYPE.get(event["type"])
    return next((read for key, read in _BY_KEY.items() if key in event), None)


_NAMES_OF_SHELLS: Final = frozenset(
    {"bash", "shell", "run_shell_command", "execute_command", "terminal", "developer__shell", "exec_command"}
)
_NAMES_OF_EDITORS: Final = frozenset(
    {
        *("write", "edit", "multiedit", "notebookedit", "write_file", "edit_file", "replace", "apply_patch"),
        *("str_replace", "str_replace_editor", "text_editor", "developer__text_editor", "create_file"),
    }
)
_PATHS: Final = ("file_path", "filePath", "path", "absolute_path", "filename", "notebook_path")


def _call(name: str, given: object) -> _Fragment:
    """Return a call of the tool *name* as a command, a change of a file, or a call."""
    command = value_at(given, "command") or value_at(given, "cmd")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    if command and (name.lower() in _NAMES_OF_SHELLS or not _path_in(given)):
        return _Fragment(LineKind.COMMAND, str(command))
    if name.lower() in _NAMES_OF_EDITORS and (path := _path_in(given)):
        return _Fragment(LineKind.FILE, f"{name} {path}")
    told = _path_in(given) or (json.dumps(given, ensure_ascii=False) if given else "")
    return _Fragment(LineKind.TOOL, f"{name} {told}".strip())


def _path_in(given: object) -> str:
    return next((str(path) for key in _PATHS if (path := value_at(given, key))), "")


def _output(text: object, *, is_error: bool = False) -> Iterator[_Fragment]:
    said = message_text(text) if isinstance(text, list) else str(text or "")
    if said.strip():
        yield _Fragment(LineKind.ERROR if is_error else LineKind.OUTPUT, said.rstrip("\n"))


def _message(event: Json) -> Iterator[_Fragment]:
    """Read a message of claude, of qwen (`assistant`, `user`), of goose or of gemini (`message`)."""
    inner = event.get("message")
    role = value_at(inner, "role") or event.get("role") or event.get("type")
    content = value_at(inner, "content") if isinstance(inner, dict) else event.get("content")
    if isinstance(content, str):
        if role != "user":  # the prompt, which is in prompt.md
            yield _Fragment(LineKind.TEXT, content, is_part=bool(event.get("delta")))
        return
    for block in _items_of(content):
        if isinstance(block, dict):
            yield from _block(block, str(role), is_part=event.get("type") == "message")


def _block(block: Json, role: str, *, is_part: bool) -> Iterator[_Fragment]:
    match block.get("type"):
        case "text" if role != "user":
            yield _Fragment(LineKind.TEXT, str(block.get("text", "")), is_part=is_part)
        case "thinking" | "reasoning":
            yield _Fragment(LineKind.THOUGHT, str(block.get("thinking") or block.get("text") or ""))
        case "tool_use":
            yield _call(str(block.get("name", "a tool")), block.get("input"))
        case "tool_result":
            yield from _output(block.get("content"), is_error=bool(block.get("is_error")))
        case "toolRequest":
            call = value_at(block, "toolCall", "value")
            yield _call(str(value_at(call, "name") or "a tool"), value_at(call, "arguments"))
        case "toolResponse":
            result = value_at(block, "toolResult", "value")
            yield from _output(value_at(result, "content"), is_error=bool(value_at(result, "isError")))


def _beginning(event: Json) -> Iterator[_Fragment]:
    if model := event.get("model"):
        yield _Fragment(LineKind.NOTE, f"begins with {model}")


def _result(event: Json) -> Iterator[_Fragment]:
    """Read the end of a run; what it says again was said before."""
    is_error = bool(event.get("is_error")) or event.get("status") == "error"
    usd = event.get("total_cost_usd")
    price = f", ${usd:.2f}" if isinstance(usd, int | float) else ""
    word = str(event.get("subtype") or event.get("status") or "done")
    yield _Fragment(LineKind.ERROR if is_error else LineKind.NOTE, f"ended: {word}{price}")
    if is_error:
        yield from _output(event.get("result") or value_at(event, "error", "message"), is_error=True)


def _error(event: Json) -> Iterator[_Fragment]:
    inner = event.get("error")
    text = event.get("message") or value_at(inner, "message") or value_at(inner, "data", "message") or inner
    yield _Fragment(LineKind.ERROR, str(text or json.dumps(event)))


def _item(event: Json) -> Iterator[_Fragment]:
    """Read an item of codex, of which the beginning of a call counts, and the end of all else."""
    item = event.get("item")
    read = _ITEMS.get((str(event.get("type")), str(value_at(item, "type"))))
    if read:
        yield from read(item)


def _run_output(item: object) -> Iterator[_Fragment]:
    yield from _output(value_at(item, "aggregated_output"))
    if code := value_at(item, "exit_code"):
        yield _Fragment(LineKind.ERROR, f"exit code {code}")


def _changed_files(item: object) -> Iterator[_Fragment]:
    for change in _items_of(value_at(item, "changes")):
        yield _Fragment(LineKind.FILE, f"{value_at(change, 'kind') or 'changed'} {value_at(change, 'path')}")


def _called_tool(item: object) -> Iterator[_Fragment]:
    told = value_at(item, "tool") or value_at(item, "query") or ""
    yield _Fragment(LineKind.TOOL, f"{value_at(item, 'server') or value_at(item, 'type')} {told}")


def _text_item(kind: LineKind, key: str) -> Callable[[object], Iterator[_Fragment]]:
    def read(item: object) -> Iterator[_Fragment]:
        yield _Fragment(kind, str(value_at(item, key) or ""))

    return read


_ITEMS: Final[dict[tuple[str, str], Callable[[object], Iterator[_Fragment]]]] = {
    ("item.completed", "agent_message"): _text_item(LineKind.TEXT, "text"),
    ("item.completed", "reasoning"): _text_item(LineKind.THOUGHT, "text"),
    ("item.started", "command_execution"): _text_item(LineKind.COMMAND, "command"),
    ("item.completed", "command_execution"): _run_output,
    ("item.completed", "file_change"): _changed_files,
    ("item.started", "mcp_tool_call"): _called_tool,
    ("item.started", "web_search"): _called_tool,
    ("item.completed", "error"): _text_item(LineKind.ERROR, "message"),
}


def _items_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _part(event: Json) -> Iterator[_Fragment]:
    """Read a part of opencode, or a call of gemini, which is called the same."""
    part = event.get("part")
    if "tool_name" in event:
        yield _call(str(event["tool_name"]), event.get("parameters"))
        return
    if value_at(part, "type") != "tool":
        kind = LineKind.THOUGHT if event.get("type") == "reasoning" else LineKind.TEXT
        yield _Fragment(kind, str(value_at(part, "text") or event.get("text") or ""))
        return
    yield _call(str(value_at(part, "tool") or "a tool"), value_at(part, "state", "input"))
    failed = value_at(part, "state", "error")
    yield from _output(failed or value_at(part, "state", "output"), is_error=bool(failed))


def _tool_result(event: Json) -> Iterator[_Fragment]:
    is_error = event.get("status") == "error"
    yield from _output(event.get("output") or value_at(event, "error", "message"), is_error=is_error)


def _nothing(_: Json) -> Iterator[_Fragment]:
    yield from ()


_BY_TYPE: Final[dict[str, Callable[[Json], Iterator[_Fragment]]]] = {
    "assistant": _message,
    "user": _message,
    "message": _message,
    "system": _beginning,
    "init": _beginning,
    "result": _result,
    "error": _error,
    "turn.failed": _error,
    "item.started": _item,
    "item.updated": _nothing,
    "item.completed": _item,
    "thread.started": _nothing,
    "turn.started": _nothing,
    "turn.completed": _nothing,
    "text": _part,
    "reasoning": _part,
    "tool_use": _part,
    "tool_result": _tool_result,
    "step_start": _nothing,
    "step_finish": _nothing,
    "complete": _nothing,
    "rate_limit_event": _nothing,
    "stream_event": _nothing,
}

_ACP_KINDS: Final = frozenset({"update", "denied", "session", "prompt", "error"})


def _acp(event: Json) -> Iterator[_Fragment]:
    """Read an event of an agent that speaks the Agent Client Protocol."""
    data = event.get("data")
    match event["kind"], value_at(data, "sessionUpdate"):
        case "update", "agent_message_chunk":
            yield _Fragment(LineKind.TEXT, str(value_at(data, "content", "text") or ""), is_part=True)
        case "update", "agent_thought_chunk":
            yield _Fragment(LineKind.THOUGHT, str(value_at(data, "content", "text") or ""), is_part=True)
        case "update", "tool_call":
            title = str(value_at(data, "title") or value_at(data, "kind") or "a tool")
            kinds = {"execute": LineKind.COMMAND, "edit": LineKind.FILE, "delete": LineKind.FILE}
            yield _Fragment(kinds.get(str(value_at(data, "kind")), LineKind.TOOL), title)
        case "update", "tool_call_update":
            for block in _items_of(value_at(data, "content")):
                is_error = value_at(data, "status") == "failed"
                yield from _output(value_at(block, "content", "text"), is_error=is_error)
        case "denied", _:
            yield _Fragment(LineKind.ERROR, f"not allowed: {data}")
        case "error", _:
            yield _Fragment(LineKind.ERROR, str(data))


def _said(event: Json) -> Iterator[_Fragment]:
    """Read a turn of the model that Liza talks to by itself."""
    if event.get("said"):
        yield _Fragment(LineKind.TEXT, str(event["said"]))
    for call in _items_of(event.get("calls")):
        given = value_at(call, "arguments")
        try:
            given = json.loads(given) if isinstance(given, str) else given
        except ValueError:
            given = {"command": given}
        yield _call(str(value_at(call, "tool") or "a tool"), given)


def _fault(event: Json) -> Iterator[_Fragment]:
    yield _Fragment(LineKind.ERROR, f"{event['fault']}; tried again in {event.get('again_in')} s")


_BY_KEY: Final[dict[str, Callable[[Json], Iterator[_Fragment]]]] = {
    "said": _said,
    "spent": _nothing,
    "fault": _fault,
    "tool": lambda event: _output(event.get("result")),
    "finished": _nothing,
}


# A window of a transcript, from its end or further back, without reading all of it: its size may be any.

WINDOW: Final = 64 << 10  # bytes from the end that are looked at first; more, until there are lines enough
MOST: Final = 8 << 20  # bytes from the end that are looked at in all
CHUNK: Final = 1 << 20  # bytes that are read at a time


def last_lines(path: Path, count: int) -> tuple[TranscriptLine, ...]:
    """Return the last *count* readable lines in the last `WINDOW` bytes of *path*; none where it is gone."""
    try:
        return last_window(path, count, most=WINDOW).lines
    except OSError:
        return ()


class TranscriptWindow(NamedTuple):
    """Readable lines; earlier ones end at the offset *start*, and what has not been read begins at *end*."""

    lines: tuple[TranscriptLine, ...]
    start: int
    end: int


def last_window(path: Path, count: int, *, most: int = MOST, before: int | None = None) -> TranscriptWindow:
    """Return the last *count* readable lines of *path*, or of what it has before the offset *before*."""
    size = min(WINDOW, most)
    while True:
        data, start = end_bytes(path, size, before)
        # The first line is cut unless the file begins with it; what is left of an event cannot be read.
        cut = data.find(b"\n") + 1 if start else 0
        if (cut in {0, len(data)} and start) and size >= most:
            return _endless_line(path, start + len(data))
        found = _readable(data[cut:], start + cut)
        if start == 0 or len(found.lines) >= count or size >= most:
            return _last(found, count)
        size *= 4


class _Found(NamedTuple):
    lines: list[tuple[TranscriptLine, int]]  # with the offset of the line of the file that completed it
    end: int


def _readable(data: bytes, offset: int) -> _Found:
    reader, lines = TranscriptReader(), list[tuple[TranscriptLine, int]]()
    *whole, last = data.split(b"\n")
    for raw in whole:
        lines += [(line, offset) for line in reader.feed(raw + b"\n")]
        offset += len(raw) + 1
    reader.feed(last)
    return _Found([*lines, *((line, offset) for line in reader.rest())], offset)


def _last(found: _Found, count: int) -> TranscriptWindow:
    hidden, shown = (found.lines[:-count], found.lines[-count:]) if count else (found.lines, [])
    start = shown[0][1] if shown else found.end
    if hidden and hidden[-1][1] == start:  # an event of many lines, cut: who goes back sees it as a whole
        start = next((place for _, place in shown if place > start), start)
    return TranscriptWindow(tuple(line for line, _ in shown), start, found.end)


def _endless_line(path: Path, end: int) -> TranscriptWindow:
    """Return a window that tells of the line before *end*, which is too long to be read."""
    start = end - 1
    with open_plain(path) as file:
        while start > 0:
            size = min(CHUNK, start)
            file.seek(start - size)
            place = file.read(size).rfind(b"\n")
            if place >= 0:
                start += place + 1 - size
                break
            start -= size
    told = TranscriptLine(LineKind.NOTE, f"a line of {end - start:,} bytes (`--raw` has it)")
    return TranscriptWindow((told,), start, end)


def end_bytes(path: Path, size: int, before: int | None = None) -> tuple[bytes, int]:
    """Return the last *size* bytes of *path*, or those before an offset, and where they begin."""
    with open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
        end = end if before is None else min(before, end)
        start = max(0, end - size)
        file.seek(start)
        return file.read(end - start), start


def bytes_from(path: Path, offset: int) -> bytes:
    """Return some bytes of *path* from *offset* on; none where there are none yet."""
    with open_plain(path) as file:
        file.seek(offset)
        return file.read(CHUNK)


def open_plain(path: Path) -> IO[bytes]:
    """Open the plain file *path*; a link, or a pipe that would keep us waiting, is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return os.fdopen(descriptor, "rb")
