"""What a file is, by path, mode and language: tables, so that nobody's word decides what is a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from liza.domain.model import TaskScope
from liza.repo.repository import EXECUTABLE, DiffEntry
from liza.system import files

# Paths as people and agents write them: files, directories and globs, perhaps inside a sentence.

_WILD: Final = re.compile(r"[*?\[{]")
_PATHLIKE: Final = re.compile(r"/|\.\w{1,10}$|[*]")
_ASIDE: Final = re.compile(r"\s+[(#\u2013\u2014-]|:\s")  # behind it, a sentence says something about the path
_GLOB: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]/]+\]|\{[^{}]*\}|.", re.DOTALL)


class ScopePatterns(NamedTuple):
    """A task's scope as paths; *prose* is what only a reader can judge."""

    inside: tuple[str, ...]
    outside: tuple[str, ...]
    prose: tuple[str, ...]

    def includes(self, path: str) -> bool:
        return any(matches(pattern, path) for pattern in self.inside)

    def excludes(self, path: str) -> bool:
        """Return whether *path* is out; a different case, or a deeper directory, does not get round it."""
        folded = path.casefold()
        return any(matches(pattern.casefold(), folded, anywhere=True) for pattern in self.outside)

    def names(self, path: str) -> bool:
        """Return whether the scope means this very file; a directory or a glob around it is no name."""
        return path in self.inside


def scope_patterns(scope: TaskScope) -> ScopePatterns:
    """Return *scope* with its paths taken out of the words around them."""
    inside = {entry: paths_in_entry(entry) for entry in scope.include}
    outside = {entry: paths_in_entry(entry) for entry in scope.exclude}
    prose = [entry for entries in (inside, outside) for entry, paths in entries.items() if not paths]
    return ScopePatterns(_flat(inside.values()), _flat(outside.values()), tuple(prose))


def _flat(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(path for group in groups for path in group)


def paths_in_entry(entry: str) -> tuple[str, ...]:
    """Return the paths and globs that *entry* names; nothing where it is a sentence without any."""
    quoted = re.findall(r"`([^`]+)`", entry)
    if quoted:
        return tuple(map(_normalize, quoted))
    named = _ASIDE.split(entry.strip(), maxsplit=1)[0].strip()
    if not re.search(r"\s", named):
        return (_normalize(named.rstrip(",;:")),)
    words = (word.strip(",;:()\"'") for word in entry.split())
    return tuple(_normalize(word) for word in words if _PATHLIKE.search(word))


def _normalize(path: str) -> str:
    path = path.strip().replace("\\", "/")
    while path.startswith(("./", "/")):
        path = path[2:] if path.startswith("./") else path[1:]
    return path.rstrip("/") or "**"


@lru_cache(maxsize=4096)
def matches(pattern: str, path: str, *, anywhere: bool = False) -> bool:
    """Return whether *pattern* is *path*, a directory around it, or a glob that covers it."""
    if pattern in (".", "*", "**"):
        return True
    return bool(_compile_glob(pattern, anywhere=anywhere).fullmatch(path))


@lru_cache(maxsize=1024)
def _compile_glob(pattern: str, *, anywhere: bool) -> re.Pattern[str]:
    # `*.sql` means every such file; `setup.py` in a scope means the one at the top.
    floats = "/" not in pattern and (anywhere or bool(_WILD.search(pattern)))
    body = "".join(_glob_token(found[0]) for found in _GLOB.finditer(pattern))
    return re.compile(f"{'(?:.*/)?' if floats else ''}{body}(?:/.*)?", re.DOTALL)


def _glob_token(token: str) -> str:
    fixed = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in fixed:
        return fixed[token]
    if len(token) > 1 and token.startswith("["):
        inner = token[1:-1].replace("\\", "\\\\")
        return f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
    if len(token) > 1 and token.startswith("{"):
        return f"(?:{'|'.join(re.escape(part) for part in token[1:-1].split(','))})"
    return re.escape(token)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a table that would else be a hundred lines long."""
    return frozenset(text.split())


_DOCS: Final = word_set("md markdown rst txt adoc asciidoc org tex pdf")
_CONFIG: Final = word_set("yaml yml toml json json5 jsonc ini cfg conf env properties lock sum xml")
_DATA: Final = word_set(
    "csv tsv png jpg jpeg gif svg ico webp bmp ttf woff woff2 mp3 mp4 wav html htm css scss less map "
    "po pot mo log snap golden diff patch"
)
_INERT: Final = _DOCS | _CONFIG | _DATA

# What is run by a tool although its name looks harmless.
_RUN: Final = re.compile(
    r"""(?:^|/)(?:
        GNUmakefile | [Mm]akefile | [^/]*\.mk | Dockerfile[^/]* | [^/]*\.Dockerfile | Containerfile
      | Jenkinsfile | \.?[Jj]ustfile | [Rr]akefile(?:\.rb)? | Gemfile | Procfile | Vagrantfile | Brewfile
      | Tiltfile
      | wscript | SCons(?:truct|cript) | (?:build|settings)\.gradle(?:\.kts)? | (?:Grunt|gulp)file(?:\.[^/]*)?
      | CMakeLists\.txt | meson\.build | (?:docker-)?compose[^/]*\.ya?ml | BUILD(?:\.bazel)? | WORKSPACE
      | conftest\.py | sitecustomize\.py | usercustomize\.py | [^/]*\.pth | setup\.py | noxfile\.py
      | \.gitlab-ci\.ya?ml | \.travis\.ya?ml | azure-pipelines\.ya?ml | appveyor\.yml
      | bitbucket-pipelines\.yml
      | \.pre-commit-config\.yaml | \.pre-commit-hooks\.yaml | lefthook\.ya?ml | \.envrc | action\.ya?ml
      | [^/]*\.(?:dist|egg)-info/[^/]*
    )$
    | (?:^|/)\.(?:github|gitea|forgejo)/workflows/ | (?:^|/)\.(?:circleci|buildkite|ci|husky|githooks)/
    """,
    re.VERBOSE,
)

# Nobody writes or reads them: a package manager does.
_GENERATED: Final = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|[^/]+-lock\.ya?ml|go\.sum|[^/]+\.lock(?:b|file)?)$"
)

_PACKAGE_LIST: Final = re.compile(r"(?:^|/)(?:[^/]*requirements|constraints)[^/]*\.txt$")  # of pip's

_SCRIPT: Final = re.compile(r"\.(?:sh|bash|zsh|ksh|fish|sql|ps1|bat|cmd|mk|bats|psql|ddl)$", re.IGNORECASE)
_PACKAGE: Final = re.compile(r"(?:^|/)package\.json$")
_HOOK: Final = re.compile(r'"(?:pre|post)?(?:install|prepare|publish|pack|test|build|start|scripts)"\s*:')

# What coding programs read by themselves, as orders or as settings that run something.
_AGENT_FILES: Final = r"""
        (?:AGENTS?|CLAUDE|GEMINI|QWEN|WARP|CRUSH)(?:\.(?:local|override))?\.md
      | \.(?:claude|codex|gemini|qwen|opencode|cursor|windsurf|cline|roo|kilocode|continue|junie|kiro|amazonq
            |amp|augment|trae|goose|crush|aider|factory|agents)/.*
      | \.(?:cursorrules|windsurfrules|clinerules(?:/.*)?|roorules|roomodes|goosehints|rules)
      | \.github/(?:copilot-instructions\.md|(?:instructions|prompts|agents|chatmodes|skills)/.*)
      | opencode\.jsonc? | \.?mcp\.json | \.aider\.conf\.ya?ml | \.aider\.model\.[^/]* | \.claude\.json
      | \.vscode/.* | \.devcontainer/.* | \.devcontainer\.json | \.idea/.* | \.zed/.* | \.fleet/.*
"""
INSTRUCTIONS: Final = re.compile(rf"(?:^|/)(?:{_AGENT_FILES})$", re.VERBOSE | re.IGNORECASE)

# Whoever writes here changes what runs, who may do what, or where data goes, outside of the code.
SENSITIVE: Final = re.compile(
    rf"""(?:^|/)(?:
        liza\.ya?ml | {_AGENT_FILES} |
        \.github/(?:workflows|actions)/.* | \.(?:gitea|forgejo)/workflows/.* | \.gitlab-ci\.ya?ml
      | \.travis\.ya?ml
      | \.circleci/.* | \.buildkite/.* | Jenkinsfile | azure-pipelines\.ya?ml | bitbucket-pipelines\.yml
      | \.husky/.* | \.githooks/.* | \.pre-commit-config\.yaml | lefthook\.ya?ml | hooks/(?:pre|post)-[a-z-]+
      | \.gitattributes | \.gitmodules | \.gitconfig | \.mailmap | CODEOWNERS
      | \.npmrc | \.yarnrc(?:\.yml)? | \.pypirc | pip\.conf | \.netrc | \.envrc
      | \.env(?:\.(?!example$|sample$|template$)[^/]*)? | \.ssh/.* | \.aws/.* | \.kube/.* | \.docker/.*
      | [^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx) | id_(?:rsa|dsa|ecdsa|ed25519)
      | credentials(?:\.json)? | (?:service[_-]?account|secrets?)[^/]*\.(?:json|ya?ml)
      | Dockerfile[^/]* | Containerfile | sitecustomize\.py | usercustomize\.py | [^/]*\.pth
    )$""",
    re.VERBOSE | re.IGNORECASE,
)


def suffix_of(path: str) -> str:
    before, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return suffix.lower() if before and dot else ""


def is_generated(path: str) -> bool:
    """Return whether *path* is a file in which a package manager notes what it chose."""
    return bool(_GENERATED.search(path))


def is_config(path: str) -> bool:
    """Return whether *path* is a file of settings."""
    return suffix_of(path) in _CONFIG or bool(_PACKAGE_LIST.search(path))


def is_docs(path: str, mode: str = "") -> bool:
    """Return whether *path* is for readers only."""
    return suffix_of(path) in _DOCS and not _PACKAGE_LIST.search(path) and not is_code(path, mode)


def is_code(path: str, mode: str = "") -> bool:
    """Return whether *path* can be run, or decides what is; what nobody knows counts as code."""
    if mode == EXECUTABLE or _RUN.search(path) or is_script(path):
        return True
    suffix = suffix_of(path)
    return bool(suffix) and suffix not in _INERT


def is_script(path: str) -> bool:
    """Return whether lines of *path* are commands: of a shell, a database, make or a build."""
    return bool(_SCRIPT.search(path) or (_RUN.search(path) and not path.endswith(".py")))


def touches_code(entry: DiffEntry) -> bool:
    """Return whether *entry* changes what is run, at either end of a rename."""
    modes = {mode for mode in (entry.old_mode, entry.mode) if mode == EXECUTABLE}
    if any(is_code(path, next(iter(modes), "")) for path in entry.paths):
        return True
    lines = (*entry.added, *entry.removed)
    if any(line.number == 1 and line.text.startswith("#!") for line in lines):
        return True
    return bool(_PACKAGE.search(entry.path)) and any(_HOOK.search(line.text) for line in lines)


def diff_facts(entries: Iterable[DiffEntry]) -> frozenset[str]:
    """Return which of the named predicates hold for a diff."""
    entries = tuple(entries)
    code = any(map(touches_code, entries))
    docs = all(is_docs(path, entry.mode) for entry in entries for path in entry.paths)
    held = {
        "empty_diff": not entries,
        "no_code": not code,
        "no_code_changes": not code,
        "docs_only": bool(entries) and docs and not code,
    }
    return frozenset(name for name, holds in held.items() if holds)


# How tests look in each language: where they are, what marks one, what asserts, what switches one off.


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
    """Return whether *path* is where tests of its language are."""
    language = language_of(path)
    return language is not None and bool(language.place.search(path)) and not path.endswith("conftest.py")


def is_for_tests(path: str) -> bool:
    """Return whether *path* is there for tests only: one of them, or what they read."""
    if is_test(path):
        return True
    # `specs/vision.md` is what is to be built, and no test of it.
    return bool(_SUPPORT.search(path)) and suffix_of(path) not in _PROSE


def is_named_as_test(path: str) -> bool:
    """Return whether the name of the file alone says that it is a test."""
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
    """Return whether *text*, at *path*, has a test in it."""
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
        module = files.parse_python(text)
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
