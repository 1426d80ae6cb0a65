"""What aider prints and logs: plain text on its screen, and what its model said in its history file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.agents.clis.parsing import concluded, joined, reported
from liza.agents.clis.spec import Parsed
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.spec import Printed
    from liza.agents.protocol import Usage

_SPOKEN: Final = "ASSISTANT "
_ANSWER: Final = "LLM RESPONSE "
_TROUBLE: Final = re.compile(r"^(litellm\.\w*(?:Error|Exception)\b.*(?:\n.+)*)", re.MULTILINE)
_TOKENS: Final = re.compile(r"^Tokens: ([\d.]+)(k|M)? sent.*?([\d.]+)(k|M)? received", re.MULTILINE)
_COST: Final = re.compile(r"Cost: \$([\d.]+) message")
_SCALE: Final = {"": 1, "k": 1_000, "M": 1_000_000}


def parse(printed: Printed, now: datetime) -> Parsed:
    text = _said(printed.report)
    trouble = _TROUBLE.findall(printed.out)
    # An error that aider got over by trying again is followed by an answer.
    parsed = Parsed(Ending.DONE, text=text, usage=_usage(printed.out))
    return concluded(printed, now, parsed, trouble="" if text or not trouble else trouble[-1])


def _said(history: str) -> str:
    """Return what the model said; on the screen an edit looks like an answer, and fences lose their tag."""
    answers: list[list[str]] = []
    spoken = False
    for line in history.splitlines():
        if line.startswith(_ANSWER):
            answers.append([])
            spoken = True
        elif spoken and line.rstrip() == _SPOKEN.rstrip():
            answers[-1].append("")
        elif spoken and line.startswith(_SPOKEN):
            answers[-1].append(line.removeprefix(_SPOKEN))
        else:
            spoken = False
    return joined("\n".join(lines) for lines in answers)


def _usage(out: str) -> Usage:
    into = out_of = 0.0
    for sent, scale, received, other in _TOKENS.findall(out):
        into += float(sent) * _SCALE[scale]
        out_of += float(received) * _SCALE[other]
    costs = [float(cost.rstrip(".")) for cost in _COST.findall(out)]
    return reported(round(into), round(out_of), sum(costs) if costs else None)
