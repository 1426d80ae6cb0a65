"""What mini-swe-agent writes into its trajectory file; its screen is for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from liza.agents.clis.parsing import concluded, count, dug, joined, reported, text_of
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.spec import Printed


def parse(printed: Printed, now: datetime) -> Parsed:
    try:
        report = json.loads(printed.report)
    except ValueError:
        report = {}
    messages = [one for one in dug(report, "messages") or () if dug(one, "role") == "assistant"]
    usages = [dug(one, "extra", "response", "usage") for one in messages]
    parsed = Parsed(
        Ending.DONE,
        # Not its submission: that is what a command printed, and so may come from the repository.
        text=joined(text_of(dug(one, "content")) for one in messages),
        usage=reported(
            sum(count(dug(usage, "prompt_tokens")) for usage in usages),
            sum(count(dug(usage, "completion_tokens")) for usage in usages),
            dug(report, "info", "model_stats", "instance_cost") or None,
        ),
    )
    return concluded(printed, now, parsed, trouble=_trouble(printed, dug(report, "info", "exit_status")))


def _trouble(printed: Printed, status: object) -> str:
    if status in {None, "", "Submitted"}:
        return ""
    # A traceback in a box ends with what went wrong, and its frame is all that is repeated.
    return f"{status}: {printed.err.strip()[-600:]}"
