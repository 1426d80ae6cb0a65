"""How tests look in each language: where they are, what marks one, what asserts, what switches one off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from liza.gates.files import suffix_of
from liza.system import python_parser


class Language(NamedTuple):
    """A row: *place* is where tests are, *mark* what every test has, *inline* tests beside the code."""

    name: str
    suffixes: frozenset[str]
    place: re.Pattern[str]
    mark: re.Pattern[str]
    asserts: re.Pattern[str]
    skips: re.Pattern[str]
    comment: str
    inline: bool = False


def _language(  # noqa: PLR0913 - a row has as many columns as the table
    name: str, suffixes: str, place: str, mark: str, asserts: str, skips: str, *, comment: str = "//"
) -> Language:
    return Language(
        name,
        frozenset(suffixes.split()),
        place=re.compile(place),
        mark=re.compile(mark, re.MULTILINE),
        asserts=re.compile(asserts),
        skips=re.compile(skips, re.MULTILINE),
        comment=comment,
    )


LANGUAGES: Final = (
    _language(
        "Python",
        "py",
        r"(?:^|/)(?:test_[^/]*|[^/]*_test|tests?)\.py$|(?:^|/)tests?/(?:.*/)?[^/]+\.py$",
        r"^\s*(?:async\s+)?def test|^\s*class \w*Test\w*",
        r"\bassert\b|\.assert\w+\(|\.fail\(|pytest\.(?:raises|warns|fail|deprecated_call)|\.(?:raises|exactly)\(",
        r"@(?:pytest\.mark|mark)\.(?:skip|xfail)\b(?!if)|@(?:unittest\.)?(?:skip|expectedFailure)\b"
        r"|\bpytest\.(?:skip|xfail|exit)\(|\.skipTest\(|pytestmark\s*=.*\b(?:skip|xfail)\b(?!if)"
        r"|raise\s+(?:unittest\.)?SkipTest|collect_ignore|__test__\s*=\s*False",
        comment="#",
    ),
    _language(
        "JavaScript",
        "js jsx ts tsx mjs cjs mts cts",
        r"\.(?:test|spec)\.[cm]?[jt]sx?$|(?:^|/)(?:__tests__|tests?|spec)/|(?:^|/)test[-_][^/]*$",
        r"\b(?:it|test|describe|suite)(?:\.\w+)*\s*\(",
        r"\bassert\b|\bexpect\s*\(|\.should\b|\bt\.(?:is|not|deepEqual|ok|equal|throws|true|false|assert)\b",
        r"\b(?:it|test|describe|suite)\.(?:skip|todo|only|fails)\b|\bx(?:it|test|describe)\s*\(|\bfdescribe\b"
        r"|\bfit\s*\(|\{\s*skip:\s*(?!false)|\bt\.(?:skip|todo)\(",
    ),
    _language(
        "Go",
        "go",
        r"_test\.go$",
        r"^func (?:Test|Fuzz|Example|Benchmark)\w*\(",
        r"\b[tbf]\.(?:Error|Fatal|Fail)\w*|\b(?:assert|require|is|qt)\.\w+\(|//\s*(?:Unordered o|O)utput:",
        r"\bt\.Skip\w*\(|^//\s*\+build\s+ignore|^//go:build ignore",
    ),
    _language(
        "Rust",
        "rs",
        r"(?:^|/)tests/",
        r"#\[(?:\w+::)*test\b|#\[cfg\(test\)\]|#\[rstest",
        r"\bassert\w*!|\bpanic!|should_panic|\.unwrap\(\)|\.expect\(|\?;",
        r"#\[ignore",
    )._replace(inline=True),
    _language(
        "Java",
        "java kt kts scala groovy",
        r"(?:^|/)src/test/|(?:Tests?|IT|Spec)\.(?:java|kt|scala|groovy)$|(?:^|/)Test[A-Z]\w*\.java$",
        r"@(?:Test|ParameterizedTest|RepeatedTest|Property)\b|\bfun `|\bshould\b.*\bin\b",
        r"\bassert\w*\s*[({]|\bverify\w*\s*\(|\bfail\s*\(|\bexpect\w*|\bshould\w*",
        r"@(?:Disabled|Ignore)\b|\bassume\w*\(false",
    ),
    _language(
        "Ruby",
        "rb",
        r"_(?:spec|test)\.rb$|(?:^|/)test_[^/]*\.rb$|(?:^|/)(?:spec|test)/",
        r"^\s*(?:it|test|specify|describe|context)\b|^\s*def test_",
        r"\bexpect\b|\bassert\w*|\brefute\w*|\bmust_\w+|\bshould\b",
        r"^\s*(?:skip|pending|xit|xdescribe|xcontext)\b|,\s*:?skip\b",
        comment="#",
    ),
    _language(
        "shell",
        "sh bash bats zsh",
        r"\.bats$|(?:^|/)tests?/|(?:^|/)test[-_][^/]*$|[-_]test\.\w+$",
        r"@test\b|\[\[? |\btest\b|assert|grep|\bdiff\b|\bcmp\b",
        r"\[\[? |(?<!@)\btest\b|assert|grep|\bdiff\b|\bcmp\b|\bexit\b|\brun\b",
        r"^\s*skip\b|^\s*exit 0\s*$",
        comment="#",
    ),
)

_BY_SUFFIX: Final = {suffix: language for language in LANGUAGES for suffix in language.suffixes}

# Beside tests: what they read and share.
_SUPPORT: Final = re.compile(
    r"(?:^|/)(?:tests?|spec|specs|__tests__|testdata|fixtures|__snapshots__|__mocks__)/|(?:^|/)conftest\.py$"
)
_PLACE: Final = re.compile(
    r"(?:[^/]+/)*?(?:tests?|specs?|__tests__|testdata|fixtures|__snapshots__|__mocks__)(?=/)"
)
_BESIDE: Final = ("testdata", "fixtures", "__snapshots__", "__mocks__", "__tests__")
# Where a project without any tests would put its first ones.
_USUAL: Final = frozenset({"test", "tests", "spec", "__tests__", "src/test"})
_PROSE: Final = frozenset({"md", "rst", "txt", "adoc"})


def language_of(path: str) -> Language | None:
    return _BY_SUFFIX.get(suffix_of(path))


def is_test(path: str) -> bool:
    """Say whether *path* is where tests of its language are."""
    language = language_of(path)
    return language is not None and bool(language.place.search(path)) and not path.endswith("conftest.py")


def is_for_tests(path: str) -> bool:
    """Say whether *path* is there for tests only: one of them, or what they read."""
    if is_test(path):
        return True
    # `specs/vision.md` is what is to be built, and no test of it.
    return bool(_SUPPORT.search(path)) and suffix_of(path) not in _PROSE


def is_named_as_test(path: str) -> bool:
    """Say whether the name of the file alone says that it is a test."""
    return is_test(path.rsplit("/", 1)[-1])


def folders_for_tests(paths: Iterable[str]) -> frozenset[str]:
    """Return the directories for tests in a repository of *paths*: the usual ones, and those in use.

    A directory that is only called `test` or `fixtures` is a place for anything.
    """
    found = set(_USUAL)
    for path in paths:
        if is_named_as_test(path):
            folder = path.rpartition("/")[0]
            found |= {f"{folder}/{name}".lstrip("/") for name in _BESIDE}
            if place := _PLACE.match(path):
                found.add(place[0])
    return frozenset(found)


def folder_for_tests(path: str) -> str | None:
    """Return the outermost directory of *path* that is called as those for tests are."""
    match = _PLACE.match(path)
    return match[0] if match else None


def has_tests(path: str, text: str) -> bool:
    """Say whether *text*, at *path*, has a test in it."""
    language = language_of(path)
    return language is not None and bool(language.mark.search(text))


class Flaw(NamedTuple):
    """Something about a test that makes it prove less than it seems to."""

    line: int | None
    what: str


def is_comment(path: str, line: str) -> bool:
    language = language_of(path)
    text = line.strip()
    return not text or (language is not None and text.startswith(language.comment))


def skip_in(path: str, line: str) -> str | None:
    """Return what on *line* switches a test off."""
    language = language_of(path)
    if language is None or is_comment(path, line):
        return None
    found = language.skips.search(line)
    return found[0].strip() if found else None


def assertions(path: str, text: str) -> int:
    """Return how many assertions *text* has; comments do not count."""
    language = language_of(path)
    if language is None:
        return 0
    lines = (line for line in text.splitlines() if not is_comment(path, line))
    return sum(1 for line in lines if language.asserts.search(line))


def names_of_tests(path: str, text: str) -> dict[str, int]:
    """Return the names of the tests in *text*, with their lines; only where the language is easy to read."""
    if not path.endswith(".py"):
        found = (match for pattern in _NAMES for match in pattern.finditer(text))
        return {match["name"]: text.count("\n", 0, match.start()) + 1 for match in found}
    return {name: node.lineno for name, node in _functions(text)}


_NAMES: Final = (
    re.compile(r"^func (?P<name>(?:Test|Fuzz|Example)\w+)\(", re.MULTILINE),
    re.compile(r"\b(?:it|test)(?:\.\w+)*\s*\(\s*(?P<quote>['\"`])(?P<name>.+?)(?P=quote)"),
    re.compile(r"^\s*def (?P<name>test_\w+)", re.MULTILINE),
    re.compile(r"#\[(?:\w+::)*test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async\s+)?fn (?P<name>\w+)"),
    re.compile(r"@Test\b[^{;]*?\b(?:void|fun) (?P<name>\w+)", re.DOTALL),
    re.compile(r"^@test\s+(?P<quote>['\"])(?P<name>.+?)(?P=quote)", re.MULTILINE),
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(text: str) -> Iterator[tuple[str, _Function]]:
    try:
        module = python_parser.parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(module):
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield node.name, node


def hollow_tests(path: str, text: str) -> list[Flaw]:
    """Return the tests in *text* that cannot fail: without an assertion, or asserting what is always so."""
    if path.endswith(".py"):
        return [
            Flaw(node.lineno, f"{name} asserts nothing")
            for name, node in _functions(text)
            if not any(_can_fail(inner) for inner in ast.walk(node))
        ]
    if has_tests(path, text) and not assertions(path, text):
        return [Flaw(None, "no test in it asserts anything")]
    return []


_RAISING: Final = re.compile(
    r"assert|raises|warns|fail|check|verify|expect|must|should|validate", re.IGNORECASE
)


def _can_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return not _is_always_so(node.test)
    if isinstance(node, ast.Raise):
        return True
    return isinstance(node, ast.Call) and bool(_RAISING.search(_name_of(node.func)))


def _is_always_so(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple):
        return bool(test.elts)  # `assert (x == 1, "why")` is a tuple, and always true
    if isinstance(test, ast.Compare) and len(test.comparators) == 1:
        same = ast.dump(test.left) == ast.dump(test.comparators[0])
        return same and isinstance(test.ops[0], ast.Eq | ast.Is) and not isinstance(test.left, ast.Call)
    return (
        isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and any(map(_is_always_so, test.values))
    )


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
