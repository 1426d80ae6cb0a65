"""Any model by litellm, which is imported here alone, and only when a conversation begins."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from liza.agents.llm.faults import Fault, FaultHandling, handling_of, reset_in_headers
from liza.agents.llm.loop import ModelReply, ToolCall
from liza.domain.model import Provenance, Usage
from liza.domain.record import utc_now
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from liza.agents.llm.loop import Message

CALL_SECONDS: Final = 600.0  # one answer of a model may take
LONGEST_WHY: Final = 300  # characters of what a provider says
LITELLM_MISSING: Final = "the litellm backend needs its libraries; `pip install 'liza[llm]'` installs them"


class LiteLlmModel:
    """The model *name*, such as openai/gpt-5-mini, as litellm reaches it."""

    def __init__(self, name: str, effort: str | None = None) -> None:
        try:
            import litellm  # noqa: PLC0415 - it takes seconds and 168 MB, and no other process needs it
        except ImportError as error:
            raise Fault(FaultHandling(RunEnding.NOT_STARTED), f"{LITELLM_MISSING} ({error})") from error
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        litellm.drop_params = True  # a model without reasoning ignores the effort
        self._litellm = litellm
        self._name = name
        self._options: dict[str, Any] = {"reasoning_effort": effort} if effort else {}

    def complete(
        self, history: Sequence[Message], tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None
    ) -> ModelReply:
        options = dict(self._options)
        if tools:
            options["tools"] = list(tools)
        if schema is not None:
            form = {"name": "answer", "schema": schema, "strict": False}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        try:
            reply = self._litellm.completion(
                model=self._name,
                messages=list(history),
                timeout=CALL_SECONDS,
                max_retries=0,  # what is worth another try is ours to say
                num_retries=0,
                **options,
            )
        except Exception as error:
            raise fault_of(error) from error
        return self._said(reply)

    def _said(self, reply: Any) -> ModelReply:  # noqa: ANN401 - litellm's own, whose types come and go
        if not reply.choices:
            raise Fault(
                FaultHandling(RunEnding.CRASHED, is_transient=True), "the provider answered without an answer"
            )
        choice = reply.choices[0]
        calls = tuple(
            ToolCall(call.id or f"call-{number}", call.function.name or "", call.function.arguments or "")
            for number, call in enumerate(choice.message.tool_calls or ())
        )
        text = choice.message.content or ""
        return ModelReply(text, calls, self._usage(reply), is_cut=choice.finish_reason == "length")

    def _usage(self, reply: Any) -> Usage:  # noqa: ANN401 - as above
        used = getattr(reply, "usage", None)
        details = getattr(used, "prompt_tokens_details", None)
        usd: float | None = None
        # A model that litellm has no price for is priced by our own table, or estimated.
        with suppress(Exception):
            usd = float(self._litellm.completion_cost(completion_response=reply, model=self._name)) or None
        return Usage(
            tokens_in=getattr(used, "prompt_tokens", None),
            tokens_out=getattr(used, "completion_tokens", None),
            tokens_cached=getattr(details, "cached_tokens", None),
            usd=usd,
            model=self._name,
            provenance=Provenance.UNKNOWN if usd is None else Provenance.PRICED,
        )


def fault_of(error: Exception) -> Fault:
    """Return what an exception of litellm means; its names are a table."""
    message = " ".join(str(error).split())
    names = [kind.__name__ for kind in type(error).__mro__]
    response = getattr(error, "response", None)
    headers = {**(getattr(error, "litellm_response_headers", None) or {})}
    headers.update(getattr(response, "headers", None) or {})
    cure = handling_of(names, message)
    reset = None
    if cure.ending in {RunEnding.RATE_LIMITED, RunEnding.QUOTA}:
        reset = reset_in_headers({str(name): str(value) for name, value in headers.items()}, utc_now())
    return Fault(cure, message[:LONGEST_WHY], reset)
