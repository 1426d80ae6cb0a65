"""The four protocols that coding programs speak with models: what is asked, and how an answer is sent.

Each wire reads a request into parts and tools, and writes what is said as one document and as a stream.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tests.agents.script import Part, Said, Tool

Json = dict[str, Any]
Event = tuple[str | None, Json | str]  # its name, where the protocol has names, and its data

TOKENS_IN: Final = 1200  # that every call is said to have used
TOKENS_OUT: Final = 34
PIECE: Final = 60  # characters that a stream carries at once


class Asked(NamedTuple):
    model: str
    parts: Sequence[Part]
    tools: Sequence[Tool]
    streams: bool


class Wire(Protocol):
    """How one protocol reads and writes."""

    def read(self, body: Json, path: str) -> Asked: ...

    def whole(self, said: Said, model: str) -> Json: ...

    def stream(self, said: Said, model: str) -> Iterator[Event]: ...

    def refusal(self, status: int, kind: str, message: str) -> Json: ...


def _text(content: object) -> str:
    """Return the words in *content*, which is a text or a list of blocks, some of them with a text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            _text(one.get("text") or one.get("content")) for one in content if isinstance(one, dict)
        )
    return ""


def _pieces(text: str) -> Iterator[str]:
    yield from (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _tool(described: Mapping[str, Any], schema: str) -> Tool:
    return Tool(described["name"], (described.get(schema) or {}).get("properties", {}))


class Chat:
    """OpenAI's chat completions."""

    def read(self, body: Json, path: str) -> Asked:  # noqa: ARG002 - the protocol's
        parts = [self._part(message) for message in body.get("messages", [])]
        tools = [_tool(one["function"], "parameters") for one in body.get("tools") or [] if "function" in one]
        return Asked(body.get("model", ""), parts, tools, bool(body.get("stream")))

    def _part(self, message: Json) -> Part:
        text = _text(message.get("content"))
        if message["role"] == "tool":
            return Part(results=(text,))
        return Part(text) if message["role"] != "assistant" else Part()

    def whole(self, said: Said, model: str) -> Json:
        message: Json = {"role": "assistant", "content": said.text or None}
        if said.call:
            message["tool_calls"] = [self._call(said)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(said)}
        return {**self._head(model), "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    def stream(self, said: Said, model: str) -> Iterator[Event]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in _pieces(said.text)]
        if said.call:
            call = self._call(said) | {"index": 0}
            arguments = call["function"]["arguments"]
            deltas.append({"tool_calls": [call | {"function": call["function"] | {"arguments": ""}}]})
            deltas += [
                {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
                for piece in _pieces(arguments)
            ]
        head = {**self._head(model), "object": "chat.completion.chunk"}
        for delta in deltas:
            yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": self._finish(said)}]}
        yield None, {**head, "choices": [], "usage": self._usage()}
        yield None, "[DONE]"

    def refusal(self, status: int, kind: str, message: str) -> Json:
        return {"error": {"message": message, "type": kind, "code": str(status)}}

    def _head(self, model: str) -> Json:
        return {"id": "chatcmpl-1", "created": 1, "model": model}

    def _finish(self, said: Said) -> str:
        return "tool_calls" if said.call else "stop"

    def _call(self, said: Said) -> Json:
        assert said.call
        function = {"name": said.call.tool.name, "arguments": json.dumps(said.call.arguments)}
        return {"id": _id(said), "type": "function", "function": function}

    def _usage(self) -> Json:
        total = TOKENS_IN + TOKENS_OUT
        return {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": total}


class Responses:
    """OpenAI's Responses."""

    def read(self, body: Json, path: str) -> Asked:  # noqa: ARG002 - the protocol's
        items = body.get("input", [])
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        tools = [tool for one in body.get("tools") or [] for tool in self._tools(one)]
        return Asked(
            body.get("model", ""), [self._part(item) for item in items], tools, bool(body.get("stream"))
        )

    def _part(self, item: Json) -> Part:
        if item.get("type", "message") == "message":
            return Part(_text(item.get("content"))) if item.get("role") == "user" else Part()
        if str(item.get("type")).endswith("_output"):
            output = item.get("output")
            return Part(results=(output if isinstance(output, str) else _text(output) or json.dumps(output),))
        return Part()

    def _tools(self, described: Json) -> Iterator[Tool]:
        kind = described.get("type")
        if kind == "function":
            yield _tool(described, "parameters")
        elif kind == "custom":
            yield Tool(described["name"], is_freeform=True)
        elif kind == "local_shell":
            yield Tool("local_shell")

    def whole(self, said: Said, model: str) -> Json:
        usage = {
            "input_tokens": TOKENS_IN,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": TOKENS_OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOKENS_IN + TOKENS_OUT,
        }
        output = {"output": self._items(said), "usage": usage}
        return {"id": "resp_1", "object": "response", "status": "completed", "model": model, **output}

    def _items(self, said: Said) -> list[Json]:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        words = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        items: list[Json] = [words | {"content": content}] if said.text else []
        if said.call:
            call = {"id": f"fc_{_id(said)}", "call_id": _id(said), "name": said.call.tool.name}
            if said.call.tool.is_freeform:
                call |= {"type": "custom_tool_call", "input": said.call.arguments}
            else:
                call |= {"type": "function_call", "arguments": json.dumps(said.call.arguments)}
            items.append(call | {"status": "completed"})
        return items

    def stream(self, said: Said, model: str) -> Iterator[Event]:
        whole = self.whole(said, model)
        begun = whole | {"status": "in_progress", "output": [], "usage": None}
        yield from self._event("response.created", response=begun)
        for index, item in enumerate(whole["output"]):
            yield from self._event("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                for piece in _pieces(said.text):
                    yield from self._event("response.output_text.delta", **place, delta=piece)
            yield from self._event("response.output_item.done", output_index=index, item=item)
        yield from self._event("response.completed", response=whole)

    def _event(self, kind: str, **data: object) -> Iterator[Event]:
        yield kind, {"type": kind, **data}

    def refusal(self, status: int, kind: str, message: str) -> Json:
        return {"error": {"message": message, "type": kind, "code": str(status)}}


class Messages:
    """Anthropic's messages."""

    def read(self, body: Json, path: str) -> Asked:  # noqa: ARG002 - the protocol's
        tools = [_tool(one, "input_schema") for one in body.get("tools") or [] if "name" in one]
        parts = [self._part(message) for message in body.get("messages", [])]
        return Asked(body.get("model", ""), parts, tools, bool(body.get("stream")))

    def _part(self, message: Json) -> Part:
        content = message.get("content")
        if message["role"] != "user":
            return Part()
        blocks = content if isinstance(content, list) else []
        results = tuple(_text(one.get("content")) for one in blocks if one.get("type") == "tool_result")
        texts = [one for one in blocks if one.get("type") == "text"]
        return Part(content if isinstance(content, str) else _text(texts), results)

    def whole(self, said: Said, model: str) -> Json:
        return {
            "id": f"msg_{secrets.token_hex(8)}",  # claude takes two with one id for one
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._blocks(said),
            "stop_reason": self._stop(said),
            "stop_sequence": None,
            "usage": self._usage() | {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
        }

    def _blocks(self, said: Said) -> list[Json]:
        blocks: list[Json] = [{"type": "text", "text": said.text}] if said.text else []
        if said.call:
            call = {"id": f"toolu_{_id(said)}", "name": said.call.tool.name, "input": said.call.arguments}
            blocks.append({"type": "tool_use", **call})
        return blocks

    def _stop(self, said: Said) -> str:
        return "tool_use" if said.call else "end_turn"

    def _usage(self) -> Json:
        return {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}

    def stream(self, said: Said, model: str) -> Iterator[Event]:
        empty = self.whole(said, model) | {"content": [], "stop_reason": None}
        yield from self._event("message_start", message=empty)
        for index, one in enumerate(self._blocks(said)):
            is_text = one["type"] == "text"
            begun: Json = {**one, "text": ""} if is_text else {**one, "input": {}}
            yield from self._event("content_block_start", index=index, content_block=begun)
            for piece in _pieces(one["text"] if is_text else json.dumps(one["input"])):
                kind, name = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
                yield from self._event("content_block_delta", index=index, delta={"type": kind, name: piece})
            yield from self._event("content_block_stop", index=index)
        end = {"stop_reason": self._stop(said), "stop_sequence": None}
        yield from self._event("message_delta", delta=end, usage=self._usage())
        yield from self._event("message_stop")

    def _event(self, kind: str, **data: object) -> Iterator[Event]:
        yield kind, {"type": kind, **data}

    def refusal(self, status: int, kind: str, message: str) -> Json:  # noqa: ARG002 - the protocol's
        return {"type": "error", "error": {"type": kind, "message": message}}


class Gemini:
    """Google's generateContent."""

    def read(self, body: Json, path: str) -> Asked:
        parts = [self._part(content) for content in body.get("contents", [])]
        described = [one for tool in body.get("tools") or [] for one in tool.get("functionDeclarations", [])]
        schema = "parametersJsonSchema"
        tools = [_tool(one, schema if schema in one else "parameters") for one in described]
        return Asked(path.rpartition("/")[2].partition(":")[0], parts, tools, "stream" in path)

    def _part(self, content: Json) -> Part:
        if content.get("role", "user") != "user":
            return Part()
        parts = content.get("parts", [])
        found = [one["functionResponse"] for one in parts if "functionResponse" in one]
        return Part(_text(parts), tuple(json.dumps(one.get("response")) for one in found))

    def whole(self, said: Said, model: str) -> Json:
        parts: list[Json] = [{"text": said.text}] if said.text else []
        if said.call:
            parts.append({"functionCall": {"name": said.call.tool.name, "args": said.call.arguments}})
        total = TOKENS_IN + TOKENS_OUT
        usage = {
            "promptTokenCount": TOKENS_IN,
            "candidatesTokenCount": TOKENS_OUT,
            "totalTokenCount": total,
        }
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "modelVersion": model, "usageMetadata": usage}

    def stream(self, said: Said, model: str) -> Iterator[Event]:
        yield None, self.whole(said, model)

    def refusal(self, status: int, kind: str, message: str) -> Json:
        return {"error": {"code": status, "message": message, "status": kind}}


# By what a path has in it, in any case.
WIRES: Final[dict[str, Wire]] = {
    "/chat/completions": Chat(),
    "/responses": Responses(),
    "/messages": Messages(),
    "generateContent": Gemini(),
}


def _id(said: Said) -> str:
    """Return an id that no other call of the conversation has: programs drop a call they have seen."""
    assert said.call
    return f"call_{said.call.number}_{abs(hash(json.dumps(said.call.arguments)))}"
