"""Coders that report trouble over and over: each report is honest, and the pattern has to stop the run."""

from __future__ import annotations

from typing import Final

from liza.gauntlet.agents.behaviour import ALWAYS, Answer, Run, commit_work, misbehaviour

PATTERNS: Final[dict[str, list[Answer]]] = {
    "retries_in_a_loop": [
        {"type": "retry_loop", "error_pattern": f"connection reset after {n} ms", "count": n}
        for n in (3, 4, 5)
    ],
    "piles_up_debt": [
        {"type": "trade_off", "what": "no types", "why": "no time", "debt": True},
        {"type": "debt_created", "what": "no docs", "why": "no time"},
        {"type": "trade_off", "what": "one big file", "why": "no time", "debt": True},
        {"type": "debt_created", "what": "a copy of it", "why": "no time"},
    ],
    "builds_on_sand": [
        {
            "type": "assumption_violated",
            "assumption": "the price is a whole number",
            "reality": "they are not",
        },
        {"type": "assumption_violated", "assumption": "prices are whole numbers", "reality": "they are not"},
    ],
    "works_around": [
        {"type": "workaround", "what": "sleep before it", "root_cause": "the cache is stale"},
        {"type": "workaround", "what": "sleep after it", "root_cause": "The cache is stale."},
    ],
    "cannot_read_the_spec": [
        {"type": "spec_ambiguity", "spec_ref": "specs/vision.md", "question": "What is a percent?"},
        {"type": "spec_ambiguity", "spec_ref": "specs/vision.md", "question": "What is a price?"},
    ],
    "waits_for_others": [
        {"type": "external_blocker", "service": "rates.example.org", "symptom": "it is down"},
        {"type": "external_blocker", "service": "rates.example.org", "symptom": "it is still down"},
    ],
    "knows_nothing_more": [
        {"type": "hypothesis_exhaustion", "tried": ["caching", "no caching"]},
        {"type": "hypothesis_exhaustion", "tried": ["half caching"]},
    ],
}


def _register(name: str, anomalies: list[Answer]) -> None:
    @misbehaviour(name, until=ALWAYS)
    def _report(_act: Run) -> Answer:
        return {**commit_work(), "anomalies": anomalies}


for _name, _anomalies in PATTERNS.items():
    _register(_name, _anomalies)
