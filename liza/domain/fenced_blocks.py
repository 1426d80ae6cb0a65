"""Finds an agent's answer in its output: a fenced block tagged `liza`, or the end of the output.

Output quotes files, diffs and other agents. So a block inside a longer or different fence is a quotation, the
last block counts, and an untagged block counts only at the very end: a quoted or withdrawn verdict must not
take effect.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.visible_text import strip_colour
from liza.domain.yaml_emit import FORBIDDEN_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Collection

TAG: Final = "liza"
OTHER_TAGS: Final = frozenset({"", "json", "yaml", "yml"})  # of a last block that somebody forgot to tag


class FencedBlock(NamedTuple):
    """What stands between two fences, without them."""

    body: str
    is_closed: bool


class _Fence(NamedTuple):
    line: int
    indent: int
    mark: str  # ``` or ~~~, perhaps longer
    tag: str  # the words behind the mark

    def closes(self, other: _Fence) -> bool:
        return not self.tag and self.mark.startswith(other.mark)

    @property
    def is_ours(self) -> bool:
        return TAG in re.split(r"[\s{}.:,]+", self.tag.casefold())


_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,}) *([^`]*)")
_UNFIT: Final = re.compile(f"(?!\t)[{FORBIDDEN_CHARACTERS}]")
_QUOTE_MARKS: Final = " \t+>"  # what stands before a line of a diff or of a quotation


def tagged_blocks(text: str) -> list[FencedBlock]:
    """Return the blocks tagged `liza` in *text*, in order; one inside a longer or other fence is a quotation.

    A block inside a fence of its own length is taken: that fence cannot quote it, so somebody forgot to
    close it. Inside a block, a fence closes it only at its own indentation or left of it: what stands
    deeper is text in the YAML.
    """
    lines = _clean(text).split("\n")
    fences = _fences(lines)
    reach = _closing_reach(fences)
    found, position = [], 0
    while position < len(fences):
        fence = fences[position]
        if fence.is_ours:
            end, position = _end_of_block(fences, position)
            body = "\n".join(lines[fence.line + 1 : end.line if end else len(lines)])
            found.append(FencedBlock(body, end is not None and end.closes(fence)))
        else:
            position = (
                _position_after(fences, position) if reach[position] >= len(fence.mark) else position + 1
            )
    return found


def untagged_blocks(text: str) -> list[FencedBlock]:
    """Return the closed blocks in *text* that might hold YAML but are not tagged as an answer, in order."""
    lines = _clean(text).split("\n")
    return [FencedBlock(_lines_between(lines, *span), is_closed=True) for span in _untagged_spans(lines)]


def last_untagged_block(text: str) -> FencedBlock | None:
    """Return the closed block at the very end of *text* that is tagged as YAML, as JSON or not at all."""
    lines = _clean(text).rstrip().split("\n")
    spans = _untagged_spans(lines)
    if not spans or spans[-1][1].line != len(lines) - 1:
        return None
    return FencedBlock(_lines_between(lines, *spans[-1]), is_closed=True)


def last_unfenced_block(text: str, keys: Collection[str]) -> FencedBlock | None:
    """Return the lines at the very end of *text* that begin with one of *keys*, or a JSON object there."""
    lines = _clean(text).rstrip().split("\n")
    start = len(lines)
    known = re.compile(rf"\W{{0,3}}(?:{'|'.join(map(re.escape, keys))})\W{{0,3}}:", re.IGNORECASE)
    begins = None
    while start and not _parse_fence(0, lines[start - 1]):
        line = lines[start - 1]
        if line.startswith("{") or known.match(line):
            begins = start - 1
        elif line.strip() and not line[0].isspace() and not re.match(r"[-\]}]|\d+[.)] ", line):
            break
        start -= 1
    return None if begins is None else FencedBlock("\n".join(lines[begins:]), is_closed=True)


def is_quoted(body: str, prompt: str) -> bool:
    """Return whether *body* occurs in *prompt*, also as part of a diff or quotation."""
    wanted = _without_quote_marks(body)
    return wanted.count("\n") > 0 and f"\n{wanted}\n" in f"\n{_without_quote_marks(prompt)}\n"


def _without_quote_marks(text: str) -> str:
    lines = (line.strip(_QUOTE_MARKS) for line in _clean(text).split("\n"))
    return "\n".join(line for line in lines if line)


def _lines_between(lines: list[str], start: _Fence, end: _Fence) -> str:
    return "\n".join(lines[start.line + 1 : end.line])


def _untagged_spans(lines: list[str]) -> list[tuple[_Fence, _Fence]]:
    fences = _fences(lines)
    reach = _closing_reach(fences)
    spans, position = [], 0
    while position < len(fences):
        fence = fences[position]
        end = position
        if reach[position] >= len(fence.mark):
            end = _position_after(fences, position)
        if end > position + 1 and fences[end - 1].closes(fence) and fence.tag.casefold() in OTHER_TAGS:
            spans.append((fence, fences[end - 1]))
        position = max(end, position + 1)
    return spans


def _fences(lines: list[str]) -> list[_Fence]:
    return [fence for number, line in enumerate(lines) if (fence := _parse_fence(number, line))]


def _clean(text: str) -> str:
    text = strip_colour(text.replace("\r\n", "\n").replace("\r", "\n"))
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def _parse_fence(number: int, line: str) -> _Fence | None:
    match = _FENCE.fullmatch(line)
    return _Fence(number, len(match[1]), match[2], match[3].strip()) if match else None


def _closing_reach(fences: list[_Fence]) -> list[int]:
    """Return for each fence the longest mark of its kind that could close it further down.

    With it, a fence that nothing closes costs no search: a hundred thousand of them would take minutes.
    """
    longest = {"`": 0, "~": 0}
    reach = []
    for fence in reversed(fences):
        reach.append(longest[fence.mark[0]])
        if not fence.tag:
            longest[fence.mark[0]] = max(longest[fence.mark[0]], len(fence.mark))
    return reach[::-1]


def _end_of_block(fences: list[_Fence], position: int) -> tuple[_Fence | None, int]:
    """Return the fence at which the block at *position* ends, and where to read on."""
    start = fences[position]
    for number in range(position + 1, len(fences)):
        fence = fences[number]
        if fence.indent <= start.indent:
            if fence.closes(start):
                return fence, number + 1
            if fence.is_ours:
                return fence, number
    return None, len(fences)


def _position_after(fences: list[_Fence], position: int) -> int:
    """Return where to read on behind the ordinary fence at *position*."""
    start = fences[position]
    for number in range(position + 1, len(fences)):
        fence = fences[number]
        if fence.closes(start):
            return number + 1
        if fence.is_ours and fence.mark.startswith(start.mark):
            return number
    return position + 1
