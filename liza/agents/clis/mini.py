"""What mini-swe-agent writes into its trajectory file; its screen is for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from liza.agents.clis.parsing import (
    join_texts,
    message_text,
    token_count,
    usage_from_counts,
    value_at,
    with_ending,
)
from liza.agents.clis.spec import ParsedRun
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.spec import RunOutput


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    try:
        report = json.loads(printed.report)
    except ValueError:
        report = {}
    messages = [one for one in value_at(report, "messages") or () if value_at(one, "role") == "assistant"]
    usages = [value_at(one, "extra", "response", "usage") for one in messages]
    parsed = ParsedRun(
        RunEnding.DONE,
        # Not its submission: that is what a command printed, and so may come from the repository.
        text=join_texts(message_text(value_at(one, "content")) for one in messages),
        usage=usage_from_counts(
            sum(token_count(value_at(usage, "prompt_tokens")) for usage in usages),
            sum(token_count(value_at(usage, "completion_tokens")) for usage in usages),
            value_at(report, "info", "model_stats", "instance_cost") or None,
        ),
    )
    return with_ending(
        printed, now, parsed, trouble=_trouble(printed, value_at(report, "info", "exit_status"))
    )


def _trouble(printed: RunOutput, status: object) -> str:
    if status in {None, "", "Submitted"}:
        return ""
    # A traceback in a box ends with what went wrong, and its frame is all that is repeated.
    return f"{status}: {printed.err.strip()[-600:]}"
