"""How an agent's YAML may be read: as it stands, and where that is no YAML, line by line.

Models write YAML as people do, by eye: a colon inside a sentence, a line that begins with a backtick, a list
with numbers, a tab. A second reading quotes what can only be a text. It never changes what a text says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.yaml_parse import BadYaml, parse_yaml_loosely

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from liza.domain.yaml_parse import LooseYaml

TAB_WIDTHS: Final = (4, 2, 8)  # spaces that a tab may stand for; the first with which the text can be read

_BLOCK_TEXT: Final = re.compile(r"[|>][+-]?\d?[+-]?\s*(?:#.*)?")
_BULLET: Final = re.compile(r"(?P<lead>\s*)(?P<mark>[-*•]|\d{1,3}[.)])(?P<gap>\s+)(?P<rest>\S.*)")
_NUMBERED: Final = re.compile(r"(?P<lead>\s*)(?P<mark>\d{1,3}[.)])(?=\s+\S)")
_REFERENCE: Final = re.compile(r"[&*]\w+(?:\s|$)")  # of YAML's own, which nobody may use here
_BRACKETED: Final = re.compile(r"\[[^\[\]]*\]\s+\S.*|\{[^{}]*\}\s+\S.*")  # "[greet] now works" is a text
_KEY: Final = re.compile(r"(?P<key>\*{0,2}\"?[A-Za-z_][\w -]*?\"?:?\*{0,2})\s*:?(?P<gap>\s+|$)(?P<value>.*)")


def lenient_parses(text: str, keys: Collection[str]) -> Iterator[LooseYaml | BadYaml]:
    """Yield the parses of *text*, the likeliest first; *keys* are all words that may be keys."""
    text = "\n".join(_with_bullets(text.split("\n")))
    widths = TAB_WIDTHS if "\t" in text else TAB_WIDTHS[:1]
    for width in widths:
        yield _try_parse(text.replace("\t", " " * width))
    for width in widths:
        mended = "\n".join(_LineRepair(text.replace("\t", " " * width), keys).mended())
        if mended != text:
            yield _try_parse(mended)


def _with_bullets(lines: list[str]) -> Iterator[str]:
    """Yield *lines* with marks of YAML for those numbers that count the items below a key."""
    column, before = -1, ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        match = _NUMBERED.match(line)
        if match and (indent == column or before.endswith(":")):
            column = indent
            yield f"{match['lead']}-{' ' * (len(match['mark']) - 1)}{line[match.end() :]}"
        else:
            column = column if indent > column or not line.strip() else -1
            yield line
        before = line.rstrip() or before


def _try_parse(text: str) -> LooseYaml | BadYaml:
    try:
        return parse_yaml_loosely(text)
    except BadYaml as error:
        return error


class _Line(NamedTuple):
    """A line taken apart: what stands before the key, the key with its colon, and the value."""

    lead: str  # indentation and marks of lists
    key: str
    value: str

    @property
    def column(self) -> int:
        """Return from which column on a line belongs to what this one began."""
        return len(self.lead) - len(self.lead.lstrip()) if not self.key else len(self.lead)


class _LineRepair:
    """Repairs YAML line by line: quotes values that can only be text."""

    def __init__(self, text: str, keys: Collection[str]) -> None:
        self._lines = text.split("\n")
        self._keys = {_normal_form(key) for key in keys}
        self._at = 0

    def mended(self) -> Iterator[str]:
        while self._at < len(self._lines):
            raw = self._lines[self._at]
            self._at += 1
            if not raw.strip() or raw.lstrip().startswith("#") or raw.startswith("---"):
                yield raw
                continue
            line = self._split_line(raw)
            if _BLOCK_TEXT.fullmatch(line.value):
                yield f"{line.lead}{line.key}{line.value}"
                yield from self._indented_lines(line.column)
            elif not line.value or not _is_unquoted_text(line.value):
                yield f"{line.lead}{line.key}{line.value}"
            else:
                rest = " ".join(part.strip() for part in self._continuation_lines(line.column))
                yield f"{line.lead}{line.key}{_quote(f'{line.value} {rest}'.strip())}"

    def _split_line(self, raw: str) -> _Line:
        lead = raw[: len(raw) - len(raw.lstrip())]
        rest = raw[len(lead) :]
        while match := _BULLET.fullmatch(rest):
            lead += "-" + " " * (len(match["mark"]) + len(match["gap"]) - 1)
            rest = match["rest"]
        match = _KEY.fullmatch(rest)
        if match and ":" in rest[: match.start("gap") + 1] and self._is_key(match["key"], lead):
            return _Line(
                lead, f"{_normal_form(match['key'])}:{' ' if match['value'] else ''}", match["value"].strip()
            )
        return _Line(lead, "", rest.strip())

    def _is_key(self, word: str, lead: str) -> bool:
        """Return whether *word* is meant as a key: one that is known, or a bare word at the very left."""
        return _normal_form(word) in self._keys or (not lead and bool(re.fullmatch(r"[a-z_]+:?", word)))

    def _indented_lines(self, column: int) -> Iterator[str]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip()) <= column:
                return
            self._at += 1
            yield line

    def _continuation_lines(self, column: int) -> Iterator[str]:
        """Take the lines that go on with a text: deeper, and neither a key nor an item of a list."""
        for line in self._indented_lines(column):
            apart = self._split_line(line)
            if apart.key or "-" in apart.lead:
                self._at -= 1
                return
            yield line


def _normal_form(word: str) -> str:
    return re.sub(r"[\s-]+", "_", word.strip('*": ').casefold())


def _is_unquoted_text(value: str) -> bool:
    """Return whether *value* can only be a text that is not quoted, and no value of YAML, whole or cut."""
    if value[0] in "[{":
        return bool(_BRACKETED.fullmatch(value))
    if _REFERENCE.match(value):
        return False
    read = _try_parse(value)
    return isinstance(read, BadYaml) or isinstance(read.data, dict | list)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
