"""A board's text cut where its parts begin, so that only what was touched has to be parsed."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple


class YamlBlock(NamedTuple):
    section: str  # "" for what stands above the first section
    item: bool
    line: int
    text: str


# All but the tab are, or hide, a line break for YAML and none for us.
_FOREIGN: Final = ("\t", "\r", "\x85", "\u2028", "\u2029", "\ufeff")
# Below, only single characters are repeated possessively: Python before 3.11.5 gets groups wrong.
_END = r"(?=\n|\Z)"
_KEY = r"[A-Za-z_][A-Za-z0-9_.-]*+"
_DOUBLE = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
_SINGLE = r"'[^'\n]*+(?:''[^'\n]*+)*'"
_NAME = f"(?:{_KEY}|{_DOUBLE}):"
_ATOM = rf" *+(?:[\w./-]++|{_DOUBLE}|{_SINGLE}) *+"
_FLOW = rf"""\[(?:{_ATOM}(?:,{_ATOM})*)?\]|\{{[^\n\[\]{{}}"'#]*+\}}"""
_WORDS = r"(?:[\w/(.$+~^<=;\\]|-(?=\w))[^:\n]*+(?::[^ \n][^:\n]*+)*"
_VALUE = rf"(?:{_WORDS}|(?:{_DOUBLE}|{_SINGLE}|{_FLOW})? *+(?:(?<= )#.*+)?)"
# A line that closes each quote and bracket it opens. Nothing else can swallow a line at column 0: block
# scalars and unquoted ones end there.
_CLOSED = rf" *+(?:#.*+|(?:- ++)*(?:{_NAME}(?: ++|{_END}))?{_VALUE}){_END}"
_BLOCK_SCALAR = r"[|>][-+0-9]*+(?=\n)"
# The first two conditions are for speed: an ordinary line, or one without a mark that could matter, is
# left at once. Block scalars are passed over whole, for quotes in prose open nothing.
_UNCLOSED = re.compile(
    rf"\n(?! *+(?:- )?{_KEY}:(?: [\w/]|\n))"
    r"""(?=[^\n"'\[{|>]*+["'\[{|>])"""
    rf"(?:( *+)(?:-|{_NAME}) {_BLOCK_SCALAR}(?:\n(?:\1 .*+| *+{_END}))*"
    rf"|( *+)- {_NAME} {_BLOCK_SCALAR}(?:\n(?:\2   .*+| *+{_END}))*"
    rf"|(?P<unclosed>(?!{_CLOSED})))"
)
# A line at column 0 that opens neither gives its section a second block, and that is unsound.
_START = re.compile(rf"\n(?=[^ #\n])(?:(?P<section>{_KEY}):(?=[ \n]|\Z)|(?P<item>- )|)")
_BLANK = r"(?: *+(?:#.*+)?\n)* *+(?:#.*+)?"
_HEADER = re.compile(_BLANK)
_BARE = re.compile(rf"{_KEY}:(?: ++#.*+| *+)\n{_BLANK}")


def split_blocks(text: str) -> list[YamlBlock] | None:
    """Cut *text* into sections and the items of those that are lists; return None where that is not sure.

    Parsing block by block then means the same as parsing the whole. A list's section holds no value of its
    own, and its items are parsed below its name: `parse(f"{block.section}:\\n{block.text}")`.
    """
    if any(mark in text for mark in _FOREIGN) or next(unclosed_lines(text), None) is not None:
        return None
    blocks = _cut_blocks(text, list(_START.finditer("\n" + text)))
    return blocks if _is_sound(blocks) else None


def unclosed_lines(text: str) -> Iterator[int]:
    """Yield the lines that seem to open a quote or a bracket without closing it."""
    lines = "\n" + text
    for found in _UNCLOSED.finditer(lines):
        if found.lastgroup == "unclosed":
            yield lines.count("\n", 0, found.start()) + 1


def _cut_blocks(text: str, starts: list[re.Match[str]]) -> list[YamlBlock]:
    cuts = [*(start.start() for start in starts), len(text)]
    blocks = [YamlBlock("", item=False, line=1, text=text[: cuts[0]])] if cuts[0] else []
    name, line = "", 1 + text.count("\n", 0, cuts[0])
    for start, begin, end in zip(starts, cuts, cuts[1:], strict=False):
        name = start["section"] or name
        part = text[begin:end]
        blocks.append(YamlBlock(name, start.lastgroup == "item", line, part))
        line += part.count("\n")
    return blocks


def _is_sound(blocks: list[YamlBlock]) -> bool:
    sections = [block.section for block in blocks if not block.item]
    if len(set(sections)) < len(sections):
        return False
    if blocks and not blocks[0].section and not _HEADER.fullmatch(blocks[0].text):
        return False
    firsts = (before for before, block in pairwise(blocks) if block.item and not before.item)
    return all(_BARE.fullmatch(before.text) for before in firsts)
