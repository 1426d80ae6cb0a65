"""The cost of a run while it is running, from lines `{"spent": {"usd": 0.31}}` in its output.

Each line has the total since the run began, so only the last one counts.
"""

from __future__ import annotations

import json
from typing import Final

from liza.agents.pricing import with_cost
from liza.domain.spending import Provenance, ReportedUsage, Usage

SPENT_PREFIX: Final = '{"spent": '  # how such a line begins


def usage_in(out: str) -> Usage | None:
    """Return the usage that the last such line of *out* tells, or None where there is none."""
    for line in reversed(out.splitlines()):
        if line.startswith(SPENT_PREFIX):
            try:
                told = ReportedUsage.model_validate(json.loads(line)["spent"])
            except ValueError:  # cut, or no usage at all
                continue
            return Usage(**told.model_dump(), provenance=Provenance.REPORTED)
    return None


def usd_in(out: str, model: str | None) -> float | None:
    """Return what a run that printed *out* has cost so far, by its own word or by its tokens."""
    told = usage_in(out)
    return with_cost(told, model, "", "").usd if told else None
