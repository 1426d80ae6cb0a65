"""What a text of YAML says, and on which line: the plain part of YAML, with everything odd refused by name.

No aliases, no tags beyond the core, no tabs, no duplicate keys.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import yaml

from liza.domain.yaml_emit import DEEPEST, FORBIDDEN_CHARACTERS, SURROGATE, Json

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
