"""What all dialects share: lines of JSON taken out of whatever else is printed, and the way to an ending."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from liza.agents.clis.errors import limit
from liza.agents.clis.spec import Parsed
from liza.agents.protocol import Provenance, Usage
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from liza.agents.clis.spec import Printed

MOST_QUOTED: Final = 300  # characters of an error that a reply quotes
TAIL: Final = 2000  # characters of stderr in which a reason is looked for

Json = dict[str, Any]


def events(out: str) -> Iterator[Json]:
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


def dug(value: object, *path: str) -> Any:  # noqa: ANN401 - others' JSON
    """Return what is at *path* in *value*; None where something on the way is absent or of another shape."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(blocks: object) -> str:
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


def joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def count(value: object) -> int:
    """Return a number of tokens that somebody else wrote."""
    return max(0, int(value)) if isinstance(value, int | float) else 0


def reported(tokens_in: int, tokens_out: int, usd: object = None) -> Usage:
    """Return a usage as the program itself tells it; nothing counted is nothing known."""
    cost = float(usd) if isinstance(usd, int | float) and usd >= 0 else None
    if not (tokens_in or tokens_out or cost):
        return Usage()
    return Usage(tokens_in=tokens_in, tokens_out=tokens_out, usd=cost, provenance=Provenance.REPORTED)


def concluded(
    printed: Printed,
    now: datetime,
    parsed: Parsed,
    *,
    trouble: str = "",
    status: int | None = None,
) -> Parsed:
    """Give *parsed* its ending: *trouble* is what went wrong, in the program's words, if it said so.

    Exit code 0 alone is no success, and no other code is a failure of the provider by itself.
    """
    if not trouble and printed.code not in {0, None}:
        trouble = _last_words(printed)
    if trouble:
        why = " ".join(trouble.split())[:MOST_QUOTED]
        found = limit(trouble, status, now)
        if found is None:
            return parsed._replace(ending=Ending.CRASHED, why=f"it said: {why}")
        return parsed._replace(ending=found.ending, why=f"it said: {why}", reset=found.reset)
    if not parsed.text.strip():
        return parsed._replace(ending=Ending.EMPTY, why="it ended by itself and said nothing")
    return parsed._replace(ending=Ending.DONE)


def _last_words(printed: Printed) -> str:
    said = (printed.err.strip() or printed.out.strip())[-TAIL:]
    return said or f"nothing, and ended with exit code {printed.code}"
