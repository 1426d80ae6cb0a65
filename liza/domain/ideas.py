"""Ideas to try, as people write them down: one a paragraph of a file, or one a file of a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from liza.domain.similarity import normalize
from liza.errors import UsageError


class Idea(NamedTuple):
    text: str
    source: str  # the file that it is from

    @property
    def title(self) -> str:
        return self.text.splitlines()[0].strip()


def split_ideas(text: str, source: str) -> tuple[Idea, ...]:
    """Return the ideas of a file; blank lines separate them."""
    paragraphs = re.split(r"\n(?:[ \t]*\n)+", text.removeprefix("\ufeff").replace("\r\n", "\n"))
    found = tuple(Idea(part.strip(), source) for part in paragraphs if part.strip())
    if not found:
        raise UsageError(f"{source} has no idea in it; write one a paragraph, with a blank line between two")
    return found


def ideas_of_files(texts: Mapping[str, str], source: str) -> tuple[Idea, ...]:
    """Return the ideas of a directory, one a file, by name."""
    if not texts:
        raise UsageError(f"{source} has no idea in it; write one a file, such as {source}/01.md")
    for name, text in sorted(texts.items()):
        if not text.strip():
            raise UsageError(f"the idea {name} is blank; write it down, or remove the file")
    return tuple(Idea(text.strip(), name) for name, text in sorted(texts.items()))


def first_ideas(ideas: tuple[Idea, ...], count: int | None) -> tuple[Idea, ...]:
    """Return the first *count* ideas, or all; raise where there are fewer."""
    if count is None:
        return ideas
    if not 1 <= count <= len(ideas):
        said = "one idea" if len(ideas) == 1 else f"{len(ideas)} ideas"
        raise UsageError(
            f"{count} ideas are asked for, and {said} can be tried; choose from 1 to {len(ideas)}"
        )
    return ideas[:count]


def new_ideas(ideas: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return *ideas* without blank ones and without those that say the same as another or as one *known*."""
    seen = {normalize(idea) for idea in known}
    found = []
    for idea in ideas:
        words = normalize(idea)
        if idea.strip() and words not in seen:
            seen.add(words)
            found.append(idea.strip())
    return tuple(found)


def run_id(at: datetime, index: int) -> str:
    """Return the name of the run of idea number *index*, from 1."""
    return f"{at:%Y%m%d_%H%M%S}_{index:02d}"
