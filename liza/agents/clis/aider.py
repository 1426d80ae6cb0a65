"""What aider prints and logs: plain text on its screen, and what its model said in its history file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.agents.clis.parsing import join_texts, usage_from_counts, with_ending
from liza.agents.clis.spec import ParsedRun
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.clis.spec import RunOutput
    from liza.agents.protocol import Usage

_ANSWER_LINE: Final = "ASSISTANT "
_ANSWER_START: Final = "LLM RESPONSE "
_TROUBLE: Final = re.compile(r"^(litellm\.\w*(?:Error|Exception)\b.*(?:\n.+)*)", re.MULTILINE)
_TOKENS: Final = re.compile(r"^Tokens: ([\d.]+)(k|M)? sent.*?([\d.]+)(k|M)? received", re.MULTILINE)
_COST: Final = re.compile(r"Cost: \$([\d.]+) message")
_SCALE: Final = {"": 1, "k": 1_000, "M": 1_000_000}


def parse(printed: RunOutput, now: datetime) -> ParsedRun:
    text = _answer_text(printed.report)
    trouble = _TROUBLE.findall(printed.out)
    # An error that aider got over by trying again is followed by an answer.
    parsed = ParsedRun(RunEnding.DONE, text=text, usage=_usage(printed.out))
    return with_ending(printed, now, parsed, trouble="" if text or not trouble else trouble[-1])


def _answer_text(history: str) -> str:
    """Return what the model said; on the screen an edit looks like an answer, and fences lose their tag."""
    answers: list[list[str]] = []
    spoken = False
    for line in history.splitlines():
        if line.startswith(_ANSWER_START):
            answers.append([])
            spoken = True
        elif spoken and line.rstrip() == _ANSWER_LINE.rstrip():
            answers[-1].append("")
        elif spoken and line.startswith(_ANSWER_LINE):
            answers[-1].append(line.removeprefix(_ANSWER_LINE))
        else:
            spoken = False
    return join_texts("\n".join(lines) for lines in answers)


def _usage(out: str) -> Usage:
    into = out_of = 0.0
    for sent, scale, received, other in _TOKENS.findall(out):
        into += float(sent) * _SCALE[scale]
        out_of += float(received) * _SCALE[other]
    costs = [float(cost.rstrip(".")) for cost in _COST.findall(out)]
    return usage_from_counts(round(into), round(out_of), sum(costs) if costs else None)
