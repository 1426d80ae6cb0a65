"""What a run has cost so far, told while it goes on: a line `{"spent": {"usd": 0.31}}` of what it prints.

Every line tells the sum since the run began, so that only the last one counts.
"""

from __future__ import annotations

import json
from typing import Final

from liza.agents.pricing import priced
from liza.domain.spending import Provenance, Reported, Usage

SPENT: Final = '{"spent": '  # how such a line begins


def spent_in(out: str) -> Usage | None:
    """Return the usage that the last such line of *out* tells, or None where there is none."""
    for line in reversed(out.splitlines()):
        if line.startswith(SPENT):
            try:
                told = Reported.model_validate(json.loads(line)["spent"])
            except ValueError:  # cut, or no usage at all
                continue
            return Usage(**told.model_dump(), provenance=Provenance.REPORTED)
    return None


def usd_in(out: str, model: str | None) -> float | None:
    """Return what a run that printed *out* has cost so far, by its own word or by its tokens."""
    told = spent_in(out)
    return priced(told, model, "", "").usd if told else None
