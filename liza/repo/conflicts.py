"""Conflicts that take no thought: whitespace, the order of imports, and additions that do not touch.

A pure function over the three versions of a file. It errs on the side of the human: a region that fits no
rule leaves the whole file in conflict, and a result that no longer parses is not a result. What is resolved
here still has to pass the gates on the merged tree.
"""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import groupby, takewhile
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from liza.system import files

MOST_LINES: Final = 20_000  # lines of a file; nobody reviews more
MOST_PAIRS: Final = 500_000  # equal lines to weigh against each other: about half a second

Lines = Sequence[str]


class Versions(NamedTuple):
    """A file as both sides found it and as each left it; *base* is None where both added it."""

    path: str
    base: str | None
    ours: str
    theirs: str


class Region(NamedTuple):
    """A piece of the file in all three versions."""

    base: Lines
    ours: Lines
    theirs: Lines

    @property
    def settled(self) -> Lines | None:
        """The lines that need no rule, because at most one side changed them; None where both did."""
        if self.ours in (self.base, self.theirs):
            return self.theirs
        return self.ours if self.theirs == self.base else None


class FileSyntax(NamedTuple):
    """What a kind of file makes of white space, of imports and of comments."""

    imports: re.Pattern[str] | None = None
    indentation_matters: bool = True
    spacing_matters: bool = True
    blank_lines_matter: bool = False
    is_prose: bool = False
    comment: tuple[str, ...] = ("#",)
    statements_end: str = ""  # with which characters, if there is a rule
    parses: Callable[[str], object] = str


def resolve_file(versions: Versions) -> str | None:
    """Return the file with every conflict in it resolved, or None where one of them takes thought."""
    path, base, ours, theirs = versions
    language = syntax_of(path)
    texts = (_split(base or ""), _split(ours), _split(theirs))
    if max(map(len, texts)) > MOST_LINES:
        return None
    if base is None:
        return _assemble([Region(*texts)], language, RESOLUTION_RULES[:1])
    pieces = list(regions(*texts))
    if all(piece.settled is not None for piece in pieces):
        return None  # git saw a conflict and we see none: who is right takes thought
    return _assemble(pieces, language, RESOLUTION_RULES) or _assemble(
        _merge_import_regions(pieces, language), language, RESOLUTION_RULES
    )


def _assemble(pieces: Sequence[Region], language: FileSyntax, rules: Sequence[ResolutionRule]) -> str | None:
    text: list[str] = []
    for piece in pieces:
        solutions = (piece.settled, *(rule(piece, language) for rule in rules))
        solved = next((solution for solution in solutions if solution is not None), None)
        if solved is None:
            return None
        text += solved
    return "".join(text) if _is_parsable("".join(text), language) else None


def _split(text: str) -> list[str]:
    """Split at line feeds only, as git does."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def regions(base: Lines, ours: Lines, theirs: Lines) -> Iterator[Region]:
    """Yield the file in pieces: by turns one on which the three differ, and a line that all of them have."""
    at_base = at_ours = at_theirs = 0
    for start, end, mine, other in _common_runs(base, ours, theirs):
        yield Region(base[at_base:start], ours[at_ours:mine], theirs[at_theirs:other])
        for line in base[start:end]:
            yield Region([line], [line], [line])
        at_base, at_ours, at_theirs = end, mine + end - start, other + end - start


def _merge_import_regions(pieces: Iterable[Region], language: FileSyntax) -> list[Region]:
    """Join adjacent regions that are all imports: a line comparison takes sorting for deleting."""
    found: list[Region] = []
    for are_imports, group in groupby(pieces, lambda piece: _are_imports(piece, language)):
        members = list(group)
        whole = Region(
            *([line for lines in versions for line in lines] for versions in zip(*members, strict=True))
        )
        found += [whole] if are_imports else members
    return found


def _are_imports(region: Region, language: FileSyntax) -> bool:
    lines = [line.strip() for lines in region for line in lines if line.strip()]
    return language.imports is not None and all(map(language.imports.fullmatch, lines))


def _common_runs(base: Lines, ours: Lines, theirs: Lines) -> Iterator[tuple[int, int, int, int]]:
    """Yield where all three have the same lines: start and end in base, start in ours and in theirs."""
    mine, other = _equal_runs(base, ours), _equal_runs(base, theirs)
    while mine and other:
        (left, right, size), (start, place, length) = mine[0], other[0]
        first, last = max(left, start), min(left + size, start + length)
        if first < last:
            yield first, last, right + first - left, place + first - start
        (mine if left + size < start + length else other).pop(0)
    yield len(base), len(base), len(ours), len(theirs)


def _equal_runs(base: Lines, side: Lines) -> list[tuple[int, int, int]]:
    """Return the runs of equal lines; those at both ends are cut off first, since matching is slow."""
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(base, side, strict=False)))
    rest = zip(reversed(base[head:]), reversed(side[head:]), strict=False)
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
    middle = _matching_blocks(base[head : len(base) - tail], side[head : len(side) - tail])
    found = [(0, 0, head), *((head + a, head + b, size) for a, b, size in middle)]
    return [*found, (len(base) - tail, len(side) - tail, tail)]


def _matching_blocks(base: Lines, side: Lines) -> list[Match]:
    """Return the runs of equal lines; none where finding them would take too long."""
    mine, other = Counter(base), Counter(side)
    if sum(mine[line] * other[line] for line in mine) > MOST_PAIRS:
        return []
    return SequenceMatcher(None, base, side, autojunk=False).get_matching_blocks()[:-1]


def resolve_whitespace(region: Region, language: FileSyntax) -> Lines | None:
    """Resolve a region where one side changed only white space: take the other side."""
    base, ours, theirs = (_significant_lines(lines, language) for lines in region)
    if theirs in (base, ours):
        return region.ours
    return region.theirs if ours == base else None


def _significant_lines(lines: Lines, language: FileSyntax) -> list[str]:
    plain = [_significant_text(line.rstrip(), language) for line in lines]
    return plain if language.blank_lines_matter else [line for line in plain if line]


def _significant_text(line: str, language: FileSyntax) -> str:
    bare = line.lstrip()
    indentation = line[: len(line) - len(bare)] if language.indentation_matters else ""
    if language.spacing_matters or _QUOTES.search(bare):
        return indentation + bare
    return indentation + _LOOSE_SPACE.sub("", _SPACE.sub(" ", bare))


def resolve_imports(region: Region, language: FileSyntax) -> Lines | None:
    """Resolve a region of imports from which neither side removed one: keep all of them."""
    pattern = language.imports
    parts = [[line for line in lines if line.strip()] for lines in region]
    base, ours, theirs = parts
    everything = [line for part in parts for line in part]
    if pattern is None or not ours or not theirs or not _are_imports(region, language):
        return None
    if len({_indentation(line) for line in everything}) > 1 or not set(base) <= set(ours) & set(theirs):
        return None
    new = [line for line in theirs if line not in ours]
    mine = [line for line in ours if line not in theirs]
    if _imported_names(new, pattern) & _imported_names(mine, pattern):
        return None
    return _with_imports(region, ours, new, theirs)


def _with_imports(region: Region, ours: list[str], new: list[str], theirs: list[str]) -> Lines:
    """Add the *new* lines to ours: in order where both sides are in order, else behind the last import."""
    if not new:
        return region.ours
    together = [*map(_with_newline, ours), *map(_with_newline, new)]
    is_in_order = ours == sorted(ours) and theirs == sorted(theirs) and len(ours) == len(region.ours)
    if is_in_order:
        return sorted(together)
    last = max(place for place, line in enumerate(region.ours) if line.strip())
    return [*map(_with_newline, region.ours[: last + 1]), *map(_with_newline, new), *region.ours[last + 1 :]]


def _imported_names(lines: Lines, pattern: re.Pattern[str]) -> set[str]:
    """Return the names that import lines bring in."""
    found = (pattern.fullmatch(line.strip()) for line in lines)
    lists = (next(filter(None, match.groups()), "") for match in found if match)
    names = (name.split()[-1:] for names in lists for name in re.sub(r"[{}()]", "", names).split(","))
    return {name for words in names for name in words} - {"*", "_", "."}


def resolve_additions(region: Region, language: FileSyntax) -> Lines | None:
    """Resolve a region where both sides added complete, unrelated lines: keep both."""
    if any(line.strip() for line in region.base) or not (region.ours and region.theirs):
        return None
    blocks = (_AddedBlock.of(region.ours, language), _AddedBlock.of(region.theirs, language))
    if not all(block and block.is_whole for block in blocks):
        return None
    ours, theirs = blocks
    if ours is None or theirs is None or not ours.is_compatible_with(theirs):
        return None
    return [*map(_with_newline, region.ours), *region.theirs]


class _AddedBlock(NamedTuple):
    """Added lines, without the blank ones around them."""

    lines: Lines
    language: FileSyntax

    @classmethod
    def of(cls, lines: Lines, language: FileSyntax) -> _AddedBlock | None:
        full = [line.rstrip() for line in lines if line.strip()]
        return cls(full, language) if full else None

    @property
    def indentation(self) -> str:
        return _indentation(self.lines[0])

    @property
    def is_whole(self) -> bool:
        """Return whether the lines are complete: no open bracket, no part of a longer statement."""
        if any(not line.startswith(self.indentation) for line in self.lines):
            return False
        if self.language.is_prose:
            return True
        if self.language.imports and any(map(self.language.imports.fullmatch, self._outermost)):
            return False  # what imports may do together is for the rule before
        first, last = self.lines[0].strip(), self.lines[-1].strip()
        return not (
            _LEANS_BACK.match(first)
            or _LEANS_FORWARD.search(last)
            or last.startswith(self.language.comment)
            or any(
                _JUMPS.match(line.strip()) or _LONE_STRING.fullmatch(line.strip()) for line in self._outermost
            )
            or self._trails_off(last)
            or not _is_balanced(self.lines)
        )

    def _trails_off(self, last: str) -> bool:
        """Return whether *last* may be the rest of something, as the last element of a list or a result."""
        ends = self.language.statements_end
        return bool(ends) and last[-1] not in ends and not _DEFINES.match(last)

    @property
    def _outermost(self) -> list[str]:
        return [line for line in self.lines if _indentation(line) == self.indentation]

    @property
    def names(self) -> set[str]:
        """What the outermost lines define; a name inside of a function is nobody else's business."""
        found = (match for line in self._outermost for match in _DEFINES.finditer(line.strip()))
        return {next(filter(None, match.groups())) for match in found}

    @property
    def words(self) -> set[str]:
        return set(_WORD.findall("\n".join(self.lines)))

    def is_compatible_with(self, other: _AddedBlock) -> bool:
        """Return whether both may stand one after the other, in either order."""
        shared = set(self._outermost) & set(other._outermost)
        if self.indentation != other.indentation or any(map(_SAYS_SOMETHING.match, shared)):
            return False
        if self.lines[-1].endswith(",") != other.lines[-1].endswith(","):
            return False
        if self.names & other.names:
            return False
        return self.language.is_prose or not (self.names & other.words or other.names & self.words)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _with_newline(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"


def _is_balanced(lines: Lines) -> bool:
    """Return whether every bracket and long quote that opens in *lines* closes in them, and no other does."""
    text = "\n".join(lines)
    if any(text.count(quote) % 2 for quote in ('"""', "'''", "`")) or text.count("/*") != text.count("*/"):
        return False
    open_brackets: list[str] = []
    for character in _STRING.sub("", text):
        if character in _PAIRS.values():
            open_brackets.append(character)
        elif character in _PAIRS and (not open_brackets or open_brackets.pop() != _PAIRS[character]):
            return False
    return not open_brackets


def _is_parsable(text: str, language: FileSyntax) -> bool:
    """Return whether *text* can be read by whoever reads such files."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            language.parses(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parse_json(text: str) -> object:
    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            message = "a key is there twice"
            raise ValueError(message)
        return found

    return json.loads(text, object_pairs_hook=distinct)


ResolutionRule = Callable[[Region, FileSyntax], Lines | None]
RESOLUTION_RULES: Final[tuple[ResolutionRule, ...]] = (resolve_whitespace, resolve_imports, resolve_additions)

_QUOTES: Final = re.compile(r"[\"'`/#]")  # what is within quotes or a comment is not ours to judge
_SPACE: Final = re.compile(r"\s+")
_LOOSE_SPACE: Final = re.compile(r"(?<=\w) (?=[^\w\s])|(?<=[^\w\s]) (?=\w)")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_STRING: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_LONE_STRING: Final = re.compile(rf"\w*(?:{_STRING.pattern})")  # two in a row are one string, to some
_SAYS_SOMETHING: Final = re.compile(r"\s*[^\s@\W]")
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}
_JUMPS: Final = re.compile(r"(?:return|raise|throw|break|continue|goto|yield|exit|pass)\b")
_LEANS_BACK: Final = re.compile(
    r"(?:else|elif|elsif|except|catch|finally|case|default|when|rescue|ensure|then|do|and|or|end|fi|done|esac)\b"
    r"|[.)\]}+*/?:|&=,]"
)
_LEANS_FORWARD: Final = re.compile(
    r"^(?:@|#\[|\[\w+\]$|template\s*<)|(?:[\\:=+*/|&.(\[{<-]|\band|\bor|\bnot)$"
)
_DEFINES: Final = re.compile(
    r"^(?:(?:export|default|pub(?:\(\w+\))?|public|private|protected|static|final|abstract|async|unsafe|extern)\s+)*"
    r"(?:def|class|function\*?|fn|func(?:\s*\([^)]*\))?|struct|enum|union|interface|trait|impl|type|typedef|"
    r"const|let|var|val|module|mod|namespace|package|#define|alias)\s+([A-Za-z_$][\w$]*)"
    r"|^([A-Za-z_$][\w$.\[\]-]*)\s*(?::\s*[^=]+)?(?:[-+*/|&^%]|//|\*\*|<<|>>|:|\?|\|\||&&|\?\?)?=(?!=)"
    r"|^[-\s]*[\"']?([\w$./ -]+?)[\"']?\s*:(?![:=])"
    r"|^([\w.-]+)\s*(?:[=~!<>]=|@)"
    r"|^(?:[\w:<>,&*\s]+\s[*&]?)?([A-Za-z_]\w*)\s*\([^;]*\)\s*(?:const\s*)?\{"
    r"|^\[+([^\]]+)\]+\s*$"
    r"|^#+\s+(.+)$"
)

_PYTHON_IMPORT: Final = re.compile(
    r"import ([\w.]+(?: as \w+)?(?:, *[\w.]+(?: as \w+)?)*)"
    r"|from (?!__future__)[\w.]+ import (\w+(?: as \w+)?(?:, *\w+(?: as \w+)?)*)"
)
_SCRIPT_IMPORT: Final = re.compile(
    r"import (?:type )?([\w$*{}, ]+?) from (?:\"[^\"]+\"|'[^']+');?"
    r"|(?:const|let|var) ([\w$]+|\{[\w$, ]+\}) = require\((?:\"[^\"]+\"|'[^']+')\);?"
)
_INCLUDE: Final = re.compile(r"#\s*include\s+[<\"]([^>\"]+)[>\"]")
_GO_IMPORT: Final = re.compile(r"(?:import\s+)?(?:([\w.]+)\s+\"[^\"]+\"|\"(?:[^\"]*/)?([^\"/]+)\")")
_JAVA_IMPORT: Final = re.compile(r"import (?:static )?(?:\w+\.)*([\w*]+);?")
_RUST_IMPORT: Final = re.compile(r"(?:pub )?use (?:\w+::)*(\w+(?: as \w+)?|\*);")

_SLASHES: Final = ("//", "/*", "*")
_BRACES: Final = FileSyntax(
    indentation_matters=False, spacing_matters=False, comment=_SLASHES, statements_end=";},)>"
)
_PROSE: Final = FileSyntax(is_prose=True, blank_lines_matter=True, comment=())
_LANGUAGES: Final[dict[str, FileSyntax]] = {
    ".py .pyi": FileSyntax(imports=_PYTHON_IMPORT, spacing_matters=False, parses=files.parse_python),
    ".js .jsx .ts .tsx .mjs .cjs .mts .cts": _BRACES._replace(imports=_SCRIPT_IMPORT),
    ".c .h .cc .cpp .cxx .hh .hpp .m .mm": _BRACES._replace(imports=_INCLUDE),
    ".go": _BRACES._replace(imports=_GO_IMPORT),
    ".java .kt .scala .groovy": _BRACES._replace(imports=_JAVA_IMPORT),
    ".rs": _BRACES._replace(imports=_RUST_IMPORT),
    ".cs .swift .php .css .scss": _BRACES,
    ".json": FileSyntax(indentation_matters=False, parses=_parse_json),
    ".toml": FileSyntax(indentation_matters=False, parses=tomllib.loads),
    ".ini .cfg .env .properties": FileSyntax(comment=("#", ";")),
    ".md .rst .txt .adoc .csv .tsv": _PROSE,
}
_BY_SUFFIX: Final = {
    suffix: language for suffixes, language in _LANGUAGES.items() for suffix in suffixes.split()
}
_PROSE_NAMES: Final = {
    "README",
    "CHANGELOG",
    "NEWS",
    "AUTHORS",
    "CONTRIBUTORS",
    ".gitignore",
    ".dockerignore",
}
# YAML, shell, Makefiles and all we have not thought about.
_UNKNOWN: Final = FileSyntax(blank_lines_matter=True)


def syntax_of(path: str) -> FileSyntax:
    name = PurePosixPath(path)
    default = _PROSE if name.name in _PROSE_NAMES else _UNKNOWN
    return _BY_SUFFIX.get(name.suffix.lower(), default)
