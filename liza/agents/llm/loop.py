"""The conversation with a model: one history that only grows, tools until there are none to call, an answer.

It knows no library: a model is whatever can `complete` a history.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from liza.agents.llm.faults import Fault
from liza.domain.answer_parsing import ParsedAnswer, parse_answer
from liza.domain.model import USD_DIGITS, Provenance, Usage
from liza.domain.record import utc_now
from liza.domain.yaml_parse import TAG
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from liza.agents.llm.tools import Toolbox
    from liza.domain.answers import Step

Message = dict[str, Any]

RETRY_DELAYS: Final = (1.0, 2.0, 4.0, 8.0)  # seconds before each further try of what may pass
LONGEST_WAIT: Final = 60.0  # seconds that a conversation waits for a limit once it has begun
MOST_WAITS: Final = 3
MOST_NUDGES: Final = 2  # times that a model which stopped is told that its answer is missing or cut
SYSTEM: Final = (
    "You are a coding agent that works alone: nobody sees what you write until you are done, and nobody "
    "answers questions. Use the tools to look and to work; what you have not seen, you do not know. {may} "
    "When you are done, answer with a last block as the task describes it: a line ```{tag}, YAML, a line ```."
)
MAY_WRITE: Final = "You may change files in the working directory, and nothing else."
MAY_READ: Final = "You only read: your commands run in a copy of the working directory, without git."
NUDGE: Final = "That was no answer that can be read: {why}. Give it now, in full, and nothing else."


class ToolCall(NamedTuple):
    id: str
    tool: str
    arguments: str  # JSON, as the model wrote it


class ModelReply(NamedTuple):
    """What a model said to a history."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    is_cut: bool = False  # it reached the limit of what it may say at once


class Model(Protocol):
    def complete(
        self, history: Sequence[Message], tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None
    ) -> ModelReply:
        """Return what comes next; raise Fault where it cannot be had, as it is now."""
        ...


class ConversationLimits(NamedTuple):
    """What one conversation may use."""

    calls: int = 80
    tokens: int = 3_000_000
    usd: float = 3.0


@dataclass
class ConversationEnd:
    ending: RunEnding
    text: str = ""
    why: str = ""
    reset: datetime | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass
class Conversation:
    """One run of the agent; *tell* gets each thing that happens, for the transcript."""

    model: Model
    tools: Toolbox
    step: Step
    schema: Mapping[str, Any]
    tell: Callable[[Mapping[str, Any]], None]
    bounds: ConversationLimits = field(default_factory=ConversationLimits)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], datetime] = utc_now
    history: list[Message] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    waits: int = 0

    def run(self, prompt: str) -> ConversationEnd:
        may = MAY_WRITE if self.tools.writes else MAY_READ
        self.history = [
            {"role": "system", "content": SYSTEM.format(may=may, tag=TAG)},
            {"role": "user", "content": prompt},
        ]
        try:
            end = self._converse(prompt)
        except Fault as fault:
            end = ConversationEnd(fault.handling.ending, self._last_words(), str(fault), fault.reset)
        end.usage = self.usage
        return end

    def _converse(self, prompt: str) -> ConversationEnd:
        nudges = 0
        while self._has_budget():
            said = self._ask(self.tools.schemas(), None)
            if said.calls:
                self._run_tools(said.calls)
                continue
            missing = self._missing(said, prompt)
            if missing is None:
                return ConversationEnd(RunEnding.DONE, said.text)
            nudges += 1
            if nudges > MOST_NUDGES:
                return ConversationEnd(
                    RunEnding.DONE if said.text.strip() else RunEnding.EMPTY, said.text, ""
                )
            self.history.append({"role": "user", "content": NUDGE.format(why=missing)})
            if formed := self._ask_by_schema():
                return ConversationEnd(RunEnding.DONE, formed)
        return ConversationEnd(RunEnding.TIMEOUT, self._last_words(), self._exhausted_budget())

    def _missing(self, said: ModelReply, prompt: str) -> str | None:
        if said.is_cut:
            return "it was cut, because it was too long"
        found = parse_answer(said.text, self.step, prompt=prompt)
        return None if isinstance(found, ParsedAnswer) else found.why

    def _ask_by_schema(self) -> str | None:
        """Ask for the answer by JSON schema; return None where the model cannot do that."""
        try:
            said = self._ask((), self.schema)
        except Fault as fault:
            if fault.handling.ending is not RunEnding.CRASHED or fault.handling.is_transient:
                raise
            return None
        try:
            value = json.loads(said.text)
        except ValueError:
            return None
        block = f"```{TAG}\n{json.dumps(value)}\n```\n"
        return block if isinstance(parse_answer(block, self.step), ParsedAnswer) else None

    def _ask(self, tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None) -> ModelReply:
        said = self._complete_with_retries(tools, schema)
        self.calls += 1
        self.usage = add_usage(self.usage, said.usage)
        self.history.append(_history_message(said))
        self.tell({"said": said.text, "calls": [call._asdict() for call in said.calls]})
        spent = self.usage.model_dump(exclude={"provenance"}, exclude_none=True)
        self.tell({"spent": spent})
        return said

    def _complete_with_retries(
        self, tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None
    ) -> ModelReply:
        """Complete the history; retry transient faults, and wait for a rate limit that ends soon."""
        for delay in (*RETRY_DELAYS, None):
            try:
                return self.model.complete(self.history, tools, schema)
            except Fault as fault:
                wait = delay if fault.handling.is_transient else self._wait(fault)
                if wait is None:
                    raise
                self.tell({"fault": str(fault), "again_in": wait})
                self.sleep(wait)
        raise AssertionError(RETRY_DELAYS)

    def _wait(self, fault: Fault) -> float | None:
        if fault.handling.ending is not RunEnding.RATE_LIMITED or self.calls == 0 or self.waits >= MOST_WAITS:
            return None
        left = (fault.reset - self.clock()).total_seconds() if fault.reset else LONGEST_WAIT
        self.waits += 1
        return max(left, 0.0) if left <= LONGEST_WAIT else None

    def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            try:
                arguments = json.loads(call.arguments or "{}")
            except ValueError:
                arguments = None
            result = self.tools.use(call.tool, arguments)
            self.tell({"tool": call.tool, "result": result})
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def _has_budget(self) -> bool:
        return not self._exhausted_budget()

    def _exhausted_budget(self) -> str:
        tokens = (self.usage.tokens_in or 0) + (self.usage.tokens_out or 0)
        if self.calls >= self.bounds.calls:
            return f"it called its model {self.calls} times, its limit"
        if tokens >= self.bounds.tokens:
            return f"it used {tokens} tokens, and may use {self.bounds.tokens}"
        if (self.usage.usd or 0) >= self.bounds.usd:
            return f"it cost ${self.usage.usd:.2f}, and one run may cost ${self.bounds.usd:.2f}"
        return ""

    def _last_words(self) -> str:
        said = (message["content"] for message in reversed(self.history) if message["role"] == "assistant")
        return next((text for text in said if text), "")


def _history_message(said: ModelReply) -> Message:
    message: Message = {"role": "assistant", "content": said.text}
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in said.calls
        ]
    return message


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages; a price that is missing once is missing in the sum."""
    is_first = one == Usage()
    usd = other.usd if is_first else None
    if not is_first and one.usd is not None and other.usd is not None:
        usd = one.usd + other.usd
    return Usage(
        tokens_in=(one.tokens_in or 0) + (other.tokens_in or 0),
        tokens_out=(one.tokens_out or 0) + (other.tokens_out or 0),
        tokens_cached=(one.tokens_cached or 0) + (other.tokens_cached or 0),
        usd=None if usd is None else round(usd, USD_DIGITS),
        model=other.model or one.model,
        provenance=Provenance.UNKNOWN if usd is None else Provenance.PRICED,
    )
