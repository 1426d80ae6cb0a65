"""Every dialect by its name.

In each the last signal counts, a word counts only whole, and what a role may not say is refused with a
sentence: an unknown word, a block in the name of another agent, two answers at once. A refusal is no verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from liza.domain.dialects.agentium import read_agentium
from liza.domain.dialects.reading import DialectReading
from liza.domain.dialects.signal_block import read_signal_block
from liza.domain.dialects.verdict_lines import read_verdict_lines
from liza.domain.problems import did_you_mean
from liza.domain.visible_text import strip_colour
from liza.errors import UsageError


class Dialect(NamedTuple):
    """A row: the function that reads a text of a role, with the prompt that it answers; and what for."""

    read: Callable[[str, str, str], DialectReading]
    meaning: str


def read_dialect(name: str, text: str, *, role: str, prompt: str = "") -> DialectReading:
    """Return what *role* said in *text*, which answers *prompt*; raise UsageError for an unknown dialect."""
    if name not in DIALECTS:
        raise UsageError(f"there is no dialect {name!r}; {did_you_mean(name, list(DIALECTS))}")
    plain = strip_colour(text.replace("\r\n", "\n").replace("\r", "\n"))
    return DIALECTS[name].read(plain, role.casefold(), prompt)


DIALECTS: Final[dict[str, Dialect]] = {
    "signal_block": Dialect(read_signal_block, "a SIGNAL BLOCK at the end, with Agent, Result and Next"),
    "agentium": Dialect(read_agentium, "lines that begin with AGENTIUM_EVAL, _STATUS, _MEMORY or _HANDOFF"),
    "verdict": Dialect(
        read_verdict_lines, "VERDICT: APPROVE or REJECT, and sections such as PLAN: and ISSUES:"
    ),
}
