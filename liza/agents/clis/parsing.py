"""Shared by all output parsers: JSON lines among other output, token counts, and the ending of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from liza.agents.clis.errors import provider_limit
from liza.agents.clis.spec import ParsedRun
from liza.agents.protocol import Provenance, Usage
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from liza.agents.clis.spec import RunOutput

MOST_QUOTED: Final = 300  # characters of an error that a reply quotes
STDERR_TAIL: Final = 2000  # characters of stderr in which a reason is looked for

Json = dict[str, Any]


def json_objects(out: str) -> Iterator[Json]:
    """Yield the objects in *out*, one a line, or in a list; a line that is none is skipped."""
    for line in out.splitlines():
        if line.startswith(("{", "[")):
            try:
                found = json.loads(line)
            except ValueError:  # cut, or a banner: the rest is still worth reading
                continue
            yield from (
                one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)
            )


def value_at(value: object, *path: str) -> Any:  # noqa: ANN401 - others' JSON
    """Return the value at *path* in nested objects; None where a part is absent or no object."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def message_text(blocks: object) -> str:
    """Return the text of a message that consists of blocks, without its tool calls and their results."""
    if isinstance(blocks, str):
        return blocks
    if not isinstance(blocks, list):
        return ""
    return "\n".join(
        str(block.get("text", ""))
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text"
    )


def join_texts(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def token_count(value: object) -> int:
    """Return a token count from untrusted JSON; 0 where it is no number."""
    return max(0, int(value)) if isinstance(value, int | float) else 0


def usage_from_counts(tokens_in: int, tokens_out: int, usd: object = None) -> Usage:
    """Return the usage that the program reported; unknown where all counts are zero."""
    cost = float(usd) if isinstance(usd, int | float) and usd >= 0 else None
    if not (tokens_in or tokens_out or cost):
        return Usage()
    return Usage(tokens_in=tokens_in, tokens_out=tokens_out, usd=cost, provenance=Provenance.REPORTED)


def with_ending(
    printed: RunOutput,
    now: datetime,
    parsed: ParsedRun,
    *,
    trouble: str = "",
    status: int | None = None,
) -> ParsedRun:
    """Return *parsed* with its ending; *trouble* is the program's own error message, if it printed one.

    Exit code 0 alone is no success, and no other code is a failure of the provider by itself.
    """
    if not trouble and printed.code not in {0, None}:
        trouble = _last_words(printed)
    if trouble:
        why = " ".join(trouble.split())[:MOST_QUOTED]
        found = provider_limit(trouble, status, now)
        if found is None:
            return parsed._replace(ending=RunEnding.CRASHED, why=f"it said: {why}")
        return parsed._replace(ending=found.ending, why=f"it said: {why}", reset=found.reset)
    if not parsed.text.strip():
        return parsed._replace(ending=RunEnding.EMPTY, why="it ended by itself and said nothing")
    return parsed._replace(ending=RunEnding.DONE)


def _last_words(printed: RunOutput) -> str:
    said = (printed.err.strip() or printed.out.strip())[-STDERR_TAIL:]
    return said or f"nothing, and ended with exit code {printed.code}"
