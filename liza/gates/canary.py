"""The canary: does a command notice when the code, or a test, is broken on purpose?

Two questions. Of the base, once: with every source file of the project turned into nonsense, is the command
red? If not, it tests something else, such as the user's checkout through an editable installation. Of a
submission: with a test of the base turned into a failure, is the head red? If not, what is judged decides
what the judge says. A green answer counts against a submission only where the base's is red: a test that the
command does not run at all proves nothing.
"""

from __future__ import annotations

import ast
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from posixpath import basename
from typing import Final, NamedTuple

from liza.gates.context import Case, Trial, result_of
from liza.gates.failures import failed_tests
from liza.gates.files import suffix_of, words
from liza.gates.finding import listed
from liza.gates.known_runners import is_runner_file, restricted, runner_of
from liza.gates.languages import has_tests, is_test, is_test_side, language_of
from liza.gates.results import Result
from liza.repo.diff import EXECUTABLE
from liza.repo.objects import Item, contents, grafted, sizes
from liza.system import python_parser
from liza.system.run_control import Ending

LARGEST: Final = 200_000  # bytes of a test file that is turned into a failure
MOST_AT_ONCE: Final = 200  # test files that are made to fail together
CODE: Final = "code"
TESTS: Final = "tests"
_FILES: Final = ("100644", EXECUTABLE)
_COMMON: Final = frozenset({"", "__init__", "index", "mod", "main", "lib", "test", "tests"})

# Languages that are compiled or loaded whole, so that nonsense in a file is noticed by whoever uses it.
_SOURCES: Final = words(
    "py pyx js jsx ts tsx mjs cjs mts cts go rs java kt scala groovy rb c cc cpp cxx h hpp cs swift dart ex "
    "erl hs ml lua pl pm jl zig nim"
)
# What runs, builds or checks the project: broken, it would be red whatever it looks at.
_TOOLING: Final = re.compile(
    r"""(?:^|/)(?:setup|noxfile|tasks|fabfile|dodo|wscript|manage|conf|build|version|_version)\.py$
      | (?:^|/)(?:[Gg]runtfile|[Gg]ulpfile|build|Build)\.\w+$ | \.(?:config|conf|setup)\.\w+$ | (?:^|/)\.
      | (?:^|/)(?:scripts?|tools?|bin|ci|docs?|examples?|benchmarks?|vendor|third_party|node_modules
                 |migrations|generated|build|dist|hack)/
      | \.d\.ts$ | \.gradle\.kts$ | \.min\.js$
    """,
    re.VERBOSE,
)
NONSENSE: Final = ")]} %s ([{\n"


class Sight(StrEnum):
    """What a canary showed."""

    SEES = "sees"
    BLIND = "blind"
    UNKNOWN = "unknown"  # none could be made, or nothing can be concluded from it


class Shown(NamedTuple):
    """What a canary showed of *line*, and how it was made."""

    sight: Sight
    how: str
    result: Result | None = None


def sees_code(case: Case, line: str) -> Shown:
    """Tell whether *line* is red on the base once its code is broken; kept by base and command.

    Where there is no code that could be broken, the tests are.
    """
    known = case.results.of(case.base_tree, line, CODE)
    if known is not None and not known.is_green:
        return Shown(Sight.SEES, "kept", known)
    broken, what = _source_files(case, line), "source"
    if not broken:
        broken, what = _test_files(case), "test"
    if not broken:
        return Shown(Sight.UNKNOWN, "there is neither code nor a test in a language that can be broken")
    blob = _written(case, NONSENSE % _word())
    tree = grafted(case.repository, case.base_tree, {path: Item(mode, blob) for path, mode in broken.items()})
    trial = case.trial(tree, "canary", line)
    if trial.is_setup or trial.ran.ending is not Ending.DONE:
        return Shown(Sight.UNKNOWN, "the project's setup did not get through with broken code")
    result = result_of(case.base_tree, trial)
    noticed = _is_redder(line, trial, case.results.of(case.base_tree, line))
    case.results.keep(result.but(is_green=not noticed), CODE)
    how = f"{len(broken)} {what} files were turned into nonsense"
    return Shown(Sight.SEES if noticed else Sight.BLIND, how, result)


def _source_files(case: Case, line: str) -> dict[str, str]:
    """Return the project's own source files with their modes, but for those that run or build it."""
    named = {word.removeprefix("./") for word in _words(line)}
    return {
        path: item.mode
        for path, item in case.base_files.items()
        if suffix_of(path) in _SOURCES
        and item.mode in _FILES
        and not (is_test_side(path) or is_runner_file(path) or _TOOLING.search(path) or path in named)
    }


def _test_files(case: Case) -> dict[str, str]:
    return {
        path: item.mode for path, item in case.base_files.items() if is_test(path) and item.mode in _FILES
    }


def _written(case: Case, text: str) -> str:
    return case.repository.git("hash-object", "-w", "--stdin", stdin=text.encode())


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _is_redder(line: str, trial: Trial, before: Result | None) -> bool:
    """Tell whether *trial* is red beyond what was red before anything was broken."""
    if trial.ran.is_green:
        return False
    if before is None or before.is_green or before.failed is None:
        return True
    failed = failed_tests(line, trial.ran.said)
    return failed is None or bool(failed - before.known_red)


class Bait(NamedTuple):
    """Tests that were turned into failures, and the command that runs them."""

    items: Mapping[str, Item]
    line: str

    @property
    def named(self) -> str:
        return listed(self.items)


def notices_failure(case: Case, line: str) -> Shown:
    """Tell whether *line* is red on the head once tests are made to fail; kept by tree and command."""
    known = case.results.of(case.tree, line, TESTS)
    if known is not None and not known.is_green:
        return Shown(Sight.SEES, "kept", known)
    shown = [_notices(case, line, bait) for bait in _baits(case, line)]
    blind = next((one for one in shown if one.sight is Sight.BLIND), None)
    seen = next((one for one in shown if one.sight is Sight.SEES), None)
    if blind is None and seen is not None and seen.result is not None:
        case.results.keep(seen.result.but(is_green=False), TESTS)
    none = Shown(Sight.UNKNOWN, "no test was found that could be made to fail")
    return blind or seen or next(iter(shown), none)


def _notices(case: Case, line: str, bait: Bait) -> Shown:
    trial, before = _taken(case, case.tree, bait), case.results.of(case.base_tree, line)
    if trial.is_setup or trial.ran.ending is not Ending.DONE:
        return Shown(Sight.UNKNOWN, "the command was not through")
    result = result_of(case.tree, trial).but(line=line)
    if _is_redder(bait.line, trial, before):
        return Shown(Sight.SEES, bait.named, result)
    if not _is_redder(bait.line, _taken(case, case.base_tree, bait), before):
        return Shown(Sight.UNKNOWN, f"{bait.named} is not run by the command on the base either")
    return Shown(Sight.BLIND, bait.named, result)


def _taken(case: Case, tree: str, bait: Bait) -> Trial:
    return case.trial(grafted(case.repository, tree, bait.items), "canary", bait.line)


def _baits(case: Case, line: str) -> Iterator[Bait]:
    """Yield what to try: an old test that looks at what was changed, and one that came with the change.

    Where the command can only run everything, all old tests are made to fail at once.
    """
    old, new = _candidates(case, case.base_files), _candidates(case, _changed_tests(case))
    if runner_of(line) is None:
        failing = {path: _failed(case, path, text) for path, text in (old or new)[:MOST_AT_ONCE]}
        items = {path: item for path, item in failing.items() if item}
        if items:
            yield Bait(items, line)
        return
    for candidates in (old, new):
        found = ((path, restricted(line, path), _failed(case, path, text)) for path, text in candidates)
        bait = next((Bait({path: item}, only) for path, only, item in found if only and item), None)
        if bait:
            yield bait


def _changed_tests(case: Case) -> dict[str, Item]:
    return {entry.path: case.head_files[entry.path] for entry in case.diff if entry.is_there}


def _candidates(case: Case, files: Mapping[str, Item]) -> list[tuple[str, str]]:
    """Return test files with their text: those first that name a module that was changed, then small ones."""
    tests = {path: item.blob for path, item in files.items() if _may_be_bait(path) and item.mode in _FILES}
    size = sizes(case.repository, tests.values())
    small = {path: blob for path, blob in tests.items() if size.get(blob, LARGEST) < LARGEST}
    data = contents(case.repository, small.values())
    texts = {path: data.get(blob, b"").decode("utf-8", "replace") for path, blob in small.items()}
    stems = {basename(entry.path).partition(".")[0] for entry in case.diff} - _COMMON
    about = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(stems)))})\b") if stems else None

    def rank(path: str) -> tuple[bool, int, str]:
        return not (about and about.search(texts[path])), len(texts[path]), path

    return [(path, texts[path]) for path in sorted(texts, key=rank) if has_tests(path, texts[path])]


def _failed(case: Case, path: str, text: str) -> Item | None:
    failing = _failing(path, text)
    found = case.base_files.get(path) or case.head_files[path]
    return Item(found.mode, _written(case, failing)) if failing is not None else None


def _may_be_bait(path: str) -> bool:
    language = language_of(path)
    return language is not None and (is_test(path) or language.inline) and not is_runner_file(path)


def _word() -> str:
    """Return a name that nobody can know before, so that no code can look for it."""
    return f"zq{secrets.token_hex(5)}"


def _failing(path: str, text: str) -> str | None:
    """Return *text* with tests in it that fail after all that it did before."""
    language = language_of(path)
    make = _FAILURES.get(language.name) if language else None
    return make(path, text) if make else None


def _python(_: str, text: str) -> str | None:
    """Let every test fail at its end, after the code under test ran, and add one that fails by itself."""
    try:
        module = python_parser.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    word = _word()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            node.body.append(python_parser.parse(f"raise AssertionError({word!r})").body[0])
    more = (
        f"import unittest as {word}\n"
        f"class Test{word}({word}.TestCase):\n"
        f"    def test_{word}(self):\n"
        f"        raise AssertionError({word!r})\n"
    )
    return f"{ast.unparse(ast.fix_missing_locations(module))}\n{more}"


def _javascript(_: str, text: str) -> str:
    call = "it" if re.search(r"\bit\s*\(", text) and not re.search(r"\btest\s*\(", text) else "test"
    word = _word()
    return f'{text}\n;{call}("{word}", () => {{ throw new Error("{word}"); }});\n'


def _go(_: str, text: str) -> str:
    word = _word()
    return f'{text}\nfunc Test{word.capitalize()}(t *testing.T) {{ t.Fatal("{word}") }}\n'


def _rust(_: str, text: str) -> str:
    word = _word()
    return f'{text}\n#[cfg(test)]\nmod {word} {{\n    #[test]\n    fn {word}() {{ panic!("{word}") }}\n}}\n'


def _ruby(_: str, text: str) -> str:
    return f'{text}\nraise "{_word()}"\n'


def _shell(path: str, text: str) -> str:
    word = _word()
    if path.endswith(".bats"):
        return f'{text}\n@test "{word}" {{\n  false\n}}\n'
    first, _, rest = text.partition("\n")
    return f"{first}\nexit 1\n{rest}" if first.startswith("#!") else f"exit 1\n{text}"


def _nonsense(_: str, __: str) -> str:
    return NONSENSE % _word()


_FAILURES: Final[dict[str, Callable[[str, str], str | None]]] = {
    "Python": _python,
    "JavaScript": _javascript,
    "Go": _go,
    "Rust": _rust,
    "Java": _nonsense,
    "Ruby": _ruby,
    "shell": _shell,
}
