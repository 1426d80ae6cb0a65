"""What a text of YAML says, and on which line: the plain part of it; an agent's YAML is read leniently.

No aliases, no tags beyond the core, no tabs, no duplicate keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import yaml

from liza.domain.record import DEEPEST, FORBIDDEN_CHARACTERS, SURROGATE, Json, strip_colour

if TYPE_CHECKING:
    from collections.abc import Collection


YamlPath: TypeAlias = tuple[str | int, ...]


class BadYaml(ValueError):
    """The text is not YAML, or not the plain part of YAML that the board allows."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(line, problem)
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


class ParsedYaml(NamedTuple):
    data: dict[str, Json]
    lines: dict[YamlPath, int]  # where each key and each list item stands, from 1; () is 1


class LooseYaml(NamedTuple):
    """What a text says where unquoted values are words, whatever they look like."""

    data: Json
    lines: dict[YamlPath, int]


# The loader in C is ten times faster; the pure one speaks the same events.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN = re.compile(f"[{FORBIDDEN_CHARACTERS}]")
_FORBIDDEN_NAMES: Final = {
    "\t": "a tab: indent with spaces, or write \\t in double quotes",
    "\r": "a carriage return: save the file with Unix line ends",
    "\ufeff": "a byte order mark: save the file as plain UTF-8",
}
_TAG = "tag:yaml.org,2002:"
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_CORE: Final[dict[str, Callable[[yaml.ScalarNode], Json]]] = {
    _TAG + "str": _CONSTRUCTOR.construct_scalar,
    _TAG + "null": _CONSTRUCTOR.construct_yaml_null,
    _TAG + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _TAG + "int": _CONSTRUCTOR.construct_yaml_int,
    _TAG + "float": _CONSTRUCTOR.construct_yaml_float,
}
_REFUSED: Final = {
    _TAG + "merge": "merge keys (<<) are not allowed: write the values out",
    _TAG + "value": "a lone = has a meaning of its own in YAML: quote it",
}
_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = frozenset({"true", "false"})  # YAML 1.1 has on, off, yes and no as well
_RESOLVERS: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = yaml.SafeLoader.yaml_implicit_resolvers


def parse_yaml(text: str) -> ParsedYaml:
    """Return the data of *text* and the line of each part; raise BadYaml at the first line that is wrong."""
    text = without_editor_marks(text)
    data, lines = _read(text, _resolve_scalar, needs_keys=True)
    assert isinstance(data, dict)  # noqa: S101 - that is what needing keys means; for the types
    return ParsedYaml(data, lines)


def parse_yaml_loosely(text: str) -> LooseYaml:
    """Return what *text* says, with any top, and every unquoted value as it is written; only null is null.

    For what agents write: `id: 1`, `expect: 3` and `done_when: [yes]` are meant as texts.
    """
    return _read(text, _scalar_as_written, needs_keys=False)


def _read(text: str, scalar: Callable[[yaml.ScalarEvent], Json], *, needs_keys: bool) -> LooseYaml:
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        raise BadYaml(text.count("\n", 0, forbidden.start()) + 1, _forbidden_name(forbidden[0]))
    loader = _LOADER(text)
    try:
        return _EventReader(iter(loader.get_event, None), scalar).document(needs_keys=needs_keys)
    except BadYaml:
        raise
    except yaml.MarkedYAMLError as error:
        raise _translate(error, text) from error
    except (ValueError, OverflowError) as error:  # the pure loader lets chr() refuse \UFFFFFFFF
        raise BadYaml(loader.line + 1, "an escape that stands for no character") from error


def without_editor_marks(text: str) -> str:
    """Return *text* without what some editors add: a byte order mark, and returns before line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _forbidden_name(character: str) -> str:
    return _FORBIDDEN_NAMES.get(character, f"the character U+{ord(character):04X}: write it as an escape")


def _translate(error: yaml.MarkedYAMLError, text: str) -> BadYaml:
    mark, problem = error.problem_mark, error.problem or "this is not YAML"
    # A quote that is never closed fails at the end of the text, and a key without a colon on the line below
    # it; people look for where it began.
    late = mark is None or mark.index >= len(text.rstrip()) or "expected ':'" in problem
    if error.context_mark and late:
        mark, problem = error.context_mark, f"{error.context}, {problem}"
    return BadYaml(mark.line + 1 if mark else 1, problem)


class _EventReader:
    """Builds values from events and not from nodes: composing nodes recurses before anyone can count."""

    def __init__(self, events: Iterator[yaml.Event], scalar: Callable[[yaml.ScalarEvent], Json]) -> None:
        self._next = events.__next__
        self._scalar = scalar
        self._lines: dict[YamlPath, int] = {(): 1}

    def document(self, *, needs_keys: bool) -> LooseYaml:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise BadYaml(1, "the file is empty")
        top = self._next()
        if needs_keys and not isinstance(top, yaml.MappingStartEvent):
            raise BadYaml(_line(top), "the top must be keys with values")
        data = self._node(top, ())
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise BadYaml(_line(after), "a second document starts: only one is allowed")
        return LooseYaml(data, self._lines)

    def _node(self, event: yaml.Event, path: YamlPath) -> Json:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, path)
        raise BadYaml(_line(event), "aliases (*) are not allowed: write the value out")

    def _mapping(self, start: yaml.MappingStartEvent, path: YamlPath) -> dict[str, Json]:
        _check_start(start, path, _TAG + "map")
        record: dict[str, Json] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._word(event)
            below = (*path, key)
            if key in record:
                raise BadYaml(_line(event), f"the key {key} is already on line {self._lines[below]}")
            self._lines[below] = _line(event)
            record[key] = self._node(self._next(), below)
        return record

    def _sequence(self, start: yaml.SequenceStartEvent, path: YamlPath) -> list[Json]:
        _check_start(start, path, _TAG + "seq")
        values: list[Json] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            below = (*path, len(values))
            self._lines[below] = _line(event)
            values.append(self._node(event, below))
        return values

    def _word(self, event: yaml.Event) -> str:
        if isinstance(event, yaml.ScalarEvent):
            key = self._scalar(event)
            if isinstance(key, str):
                return key
        raise BadYaml(_line(event), "key must be a word")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _check_start(event: yaml.CollectionStartEvent, path: YamlPath, tag: str) -> None:
    if len(path) >= DEEPEST:
        raise BadYaml(_line(event), f"nested deeper than {DEEPEST} levels")
    _check_anchor(event)
    if event.tag not in (None, tag):
        raise BadYaml(_line(event), f"the tag {event.tag} is not allowed here")


def _check_anchor(event: yaml.NodeEvent) -> None:
    if event.anchor is not None:
        raise BadYaml(_line(event), f"anchors (&{event.anchor}) are not allowed")


def _scalar_as_written(event: yaml.ScalarEvent) -> Json:
    _check_anchor(event)
    if event.tag is not None and event.tag not in _CORE:
        raise BadYaml(_line(event), f"the tag {event.tag} is not allowed here")
    if event.implicit[0] and event.value in _NOTHING:
        return None
    return _check_scalar(event)


def _resolve_scalar(event: yaml.ScalarEvent) -> Json:
    _check_anchor(event)
    if event.tag is not None:
        return _tagged_value(event, event.tag)
    if event.implicit[0]:
        return _unquoted_value(event)
    return _check_scalar(event)


def _tagged_value(event: yaml.ScalarEvent, tag: str) -> Json:
    if tag not in _CORE:
        raise BadYaml(_line(event), f"the tag {tag} is not allowed here")
    return _check_scalar(event) if tag == _TAG + "str" else _construct(event, tag)


def _unquoted_value(event: yaml.ScalarEvent) -> Json:
    value = event.value
    for tag, pattern in _RESOLVERS.get(value[:1], ()):
        if pattern.match(value):
            # `off` is a mode, `no` may be a name: the field says which, and one for a yes or no takes both.
            is_word = tag == _TAG + "timestamp" or (tag == _TAG + "bool" and value.lower() not in _BOOLEANS)
            return value if is_word else _construct(event, tag)
    return value


def _check_scalar(event: yaml.ScalarEvent) -> str:
    if event.style == '"' and SURROGATE.search(event.value):  # the loader in C has refused it already
        raise BadYaml(_line(event), "an escape that stands for no character")
    return event.value


def _construct(event: yaml.ScalarEvent, tag: str) -> Json:
    if tag not in _CORE:
        raise BadYaml(_line(event), _REFUSED[tag])
    shown = event.value[:40]
    try:
        value = _CORE[tag](yaml.ScalarNode(tag, event.value))
    except (ArithmeticError, LookupError, ValueError) as error:  # 0x_, !!int "", 1:1:… of a thousand parts
        raise BadYaml(_line(event), f"{shown} is no {tag.removeprefix(_TAG)}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise BadYaml(_line(event), f"{shown} is not a finite number")
    return value


# How an agent's YAML may be read: as it stands, and where that is no YAML, line by line.
#
# Models write YAML as people do, by eye: a colon inside a sentence, a line that begins with a backtick, a
# list with numbers, a tab. A second reading quotes what can only be a text. It never changes what a text
# says.


TAB_WIDTHS: Final = (4, 2, 8)  # spaces that a tab may stand for; the first with which the text can be read

_BLOCK_TEXT: Final = re.compile(r"[|>][+-]?\d?[+-]?\s*(?:#.*)?")
_BULLET: Final = re.compile(r"(?P<lead>\s*)(?P<mark>[-*•]|\d{1,3}[.)])(?P<gap>\s+)(?P<rest>\S.*)")
_NUMBERED: Final = re.compile(r"(?P<lead>\s*)(?P<mark>\d{1,3}[.)])(?=\s+\S)")
_REFERENCE: Final = re.compile(r"[&*]\w+(?:\s|$)")  # of YAML's own, which nobody may use here
_BRACKETED: Final = re.compile(r"\[[^\[\]]*\]\s+\S.*|\{[^{}]*\}\s+\S.*")  # "[greet] now works" is a text
_FRAME: Final = re.compile(r"(?:`{3,}|~{3,})?\s*(?:ya?ml|json|liza)?", re.IGNORECASE)
_GLUED: Final = re.compile(r"(?P<key>[A-Za-z_]\w*):(?P<value>[^\s/:].*)")  # `status:done`
_KEY: Final = re.compile(
    r"(?P<key>\*{0,2}[\"`]?[A-Za-z_][\w -]*?[\"`]?:?\*{0,2})\s*:?(?P<gap>\s+|$)(?P<value>.*)"
)
_OTHER_COLON: Final = re.compile(r"(?P<key>[A-Za-z_][\w-]*)\s*(?:=|\N{FULLWIDTH COLON})\s*(?P<value>\S.*)")
_SLASHES: Final = re.compile(r"\s*//")  # how a comment begins in other languages


def lenient_parses(text: str, keys: Collection[str]) -> Iterator[LooseYaml | BadYaml]:
    """Yield the parses of *text*, the likeliest first; *keys* are all words that may be keys."""
    lines = _without_first_indent(_without_frame(text.strip("\n").split("\n")))
    if lines and lines[0].startswith("{"):
        lines = [line for line in lines if not _SLASHES.match(line)]
    text = "\n".join(_with_bullets(lines))
    widths = TAB_WIDTHS if "\t" in text else TAB_WIDTHS[:1]
    for width in widths:
        yield _try_parse(text.replace("\t", " " * width))
    for width in widths:
        mended = "\n".join(_LineRepair(text.replace("\t", " " * width), keys).mended())
        if mended != text:
            yield _try_parse(mended)


def _without_frame(lines: list[str]) -> list[str]:
    """Return *lines* without what only says that YAML begins or ends: a fence, a tag, a last `---`."""
    if lines and _FRAME.fullmatch(lines[0].strip()):
        lines = lines[1:]
    return lines[:-1] if lines and lines[-1].strip() == "---" else lines


def _without_first_indent(lines: list[str]) -> list[str]:
    """Return *lines* with the first as far left as the others: it may have been indented alone."""
    others = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    first = lines[0] if lines else ""
    if not others or min(others) >= len(first) - len(first.lstrip()):
        return lines
    return [first.lstrip(), *lines[1:]]


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
            if _SLASHES.match(raw):
                continue
            if not raw.strip() or raw.lstrip().startswith("#") or raw.startswith("---"):
                yield raw
                continue
            line = self._split_line(raw)
            if _BLOCK_TEXT.fullmatch(line.value):
                yield f"{line.lead}{line.key}{line.value}"
                yield from self._lines_of_text(line.column)
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
        glued = _GLUED.fullmatch(rest) or _OTHER_COLON.fullmatch(rest)
        if glued and _normal_form(glued["key"]) in self._keys:
            rest = f"{glued['key']}: {glued['value']}"
        match = _KEY.fullmatch(rest)
        if match and ":" in rest[: match.start("gap") + 1] and self._is_key(match["key"], lead):
            return _Line(
                lead, f"{_normal_form(match['key'])}:{' ' if match['value'] else ''}", match["value"].strip()
            )
        return _Line(lead, "", rest.strip())

    def _is_key(self, word: str, lead: str) -> bool:
        """Return whether *word* is meant as a key: one that is known, or a bare word at the very left."""
        return _normal_form(word) in self._keys or (not lead and bool(re.fullmatch(r"[a-z_]+:?", word)))

    def _lines_of_text(self, column: int) -> Iterator[str]:
        """Take the lines of a block of text; where none is indented, those up to the next key."""
        deeper = list(self._indented_lines(column))
        yield from deeper
        if any(line.strip() for line in deeper):
            return
        while self._at < len(self._lines) and not self._split_line(self._lines[self._at]).key:
            yield f"{' ' * (column + 1)}{self._lines[self._at]}"
            self._at += 1

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
    return re.sub(r"[\s-]+", "_", word.strip('*"`: ').casefold())


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


# Finds an agent's answer in its output: a fenced block tagged `liza`, or the end of the output.
#
# Output quotes files, diffs and other agents. So a block inside a longer or different fence is a quotation,
# the last block counts, and an untagged block counts only at the very end: a quoted or withdrawn verdict
# must not take effect.

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
        tag = self.tag.casefold()
        words = set(filter(None, re.split(r"[\s{}.:,+/_-]+", tag)))
        return TAG in re.split(r"[\s{}.:,]+", tag) or (TAG in words and words <= {TAG, *OTHER_TAGS})


_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,}) *([^`]*)")
_DEEP_FENCE: Final = re.compile(rf"( {{4,16}})(?:`{{3,}}|~{{3,}}) *{TAG}\b[^`]*", re.IGNORECASE)
MOST_INDENTED: Final = 3  # blocks; each is looked for in all that follows
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


def indented_blocks(text: str) -> list[FencedBlock]:
    """Return the blocks tagged `liza` that are too far right to be any, as below an item of a list."""
    found: list[FencedBlock] = []
    lines = _clean(text).split("\n")
    for number, line in enumerate(lines):
        begin = _DEEP_FENCE.fullmatch(line)
        if begin and len(found) < MOST_INDENTED:
            indent = begin[1]
            rest = (below.removeprefix(indent) for below in lines[number:])
            found += tagged_blocks("\n".join(rest))[:1]
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
    text = strip_colour(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
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
