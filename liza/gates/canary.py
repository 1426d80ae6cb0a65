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

from liza.gates.context import GateContext, TreeRun, result_of
from liza.gates.failures import failed_tests
from liza.gates.files import suffix_of, word_set
from liza.gates.finding import summarize_names
from liza.gates.known_runners import is_runner_file, runner_of, with_only_file
from liza.gates.languages import has_tests, is_for_tests, is_test, language_of
from liza.gates.results import CachedResult
from liza.repo.diff import EXECUTABLE
from liza.repo.objects import TreeItem, blob_contents, blob_sizes, write_tree_with
from liza.system import python_parser
from liza.system.run_control import RunEnding

LARGEST_TEST: Final = 200_000  # bytes of a test file that is turned into a failure
MOST_AT_ONCE: Final = 200  # test files that are made to fail together
CODE: Final = "code"
TESTS: Final = "tests"
_FILES: Final = ("100644", EXECUTABLE)
_COMMON_STEMS: Final = frozenset({"", "__init__", "index", "mod", "main", "lib", "test", "tests"})

# Languages that are compiled or loaded whole, so that nonsense in a file is noticed by whoever uses it.
_SOURCES: Final = word_set(
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


class CanaryOutcome(StrEnum):
    """What a canary showed."""

    SEES = "sees"
    BLIND = "blind"
    UNKNOWN = "unknown"  # none could be made, or nothing can be concluded from it


class CanaryResult(NamedTuple):
    """What a canary showed of *line*, and how it was made."""

    sight: CanaryOutcome
    how: str
    result: CachedResult | None = None


def run_code_canary(case: GateContext, line: str) -> CanaryResult:
    """Break all source files of the base and return whether *line* turns red; cached by base and command.

    Where there is no source file that could be broken, test files are.
    """
    known = case.results.of(case.base_tree, line, CODE)
    if known is not None and not known.is_green:
        return CanaryResult(CanaryOutcome.SEES, "kept", known)
    broken, what = _source_files(case, line), "source"
    if not broken:
        broken, what = _test_files(case), "test"
    if not broken:
        return CanaryResult(
            CanaryOutcome.UNKNOWN, "there is neither code nor a test in a language that can be broken"
        )
    blob = _write_blob(case, NONSENSE % _random_name())
    tree = write_tree_with(
        case.repository, case.base_tree, {path: TreeItem(mode, blob) for path, mode in broken.items()}
    )
    trial = case.run_on(tree, "canary", line)
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE:
        return CanaryResult(CanaryOutcome.UNKNOWN, "the project's setup did not get through with broken code")
    result = result_of(case.base_tree, trial)
    noticed = _is_redder(line, trial, case.results.of(case.base_tree, line))
    case.results.keep(result.replace(is_green=not noticed), CODE)
    how = f"{len(broken)} {what} files were turned into nonsense"
    return CanaryResult(CanaryOutcome.SEES if noticed else CanaryOutcome.BLIND, how, result)


def _source_files(case: GateContext, line: str) -> dict[str, str]:
    """Return the project's own source files with their modes, but for those that run or build it."""
    named = {word.removeprefix("./") for word in _shell_words(line)}
    return {
        path: item.mode
        for path, item in case.base_files.items()
        if suffix_of(path) in _SOURCES
        and item.mode in _FILES
        and not (is_for_tests(path) or is_runner_file(path) or _TOOLING.search(path) or path in named)
    }


def _test_files(case: GateContext) -> dict[str, str]:
    return {
        path: item.mode for path, item in case.base_files.items() if is_test(path) and item.mode in _FILES
    }


def _write_blob(case: GateContext, text: str) -> str:
    return case.repository.git("hash-object", "-w", "--stdin", stdin=text.encode())


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _is_redder(line: str, trial: TreeRun, before: CachedResult | None) -> bool:
    """Return whether the run has failures beyond those that were there before anything was broken."""
    if trial.ran.is_green:
        return False
    if before is None or before.is_green or before.failed is None:
        return True
    failed = failed_tests(line, trial.ran.said)
    return failed is None or bool(failed - before.known_red)


class FailingTests(NamedTuple):
    """Tests that were turned into failures, and the command that runs them."""

    items: Mapping[str, TreeItem]
    line: str

    @property
    def named(self) -> str:
        return summarize_names(self.items)


def run_test_canary(case: GateContext, line: str) -> CanaryResult:
    """Make tests fail on the head and return whether *line* turns red; cached by tree and command."""
    known = case.results.of(case.tree, line, TESTS)
    if known is not None and not known.is_green:
        return CanaryResult(CanaryOutcome.SEES, "kept", known)
    shown = [_try_failing_tests(case, line, bait) for bait in _failing_variants(case, line)]
    blind = next((one for one in shown if one.sight is CanaryOutcome.BLIND), None)
    seen = next((one for one in shown if one.sight is CanaryOutcome.SEES), None)
    if blind is None and seen is not None and seen.result is not None:
        case.results.keep(seen.result.replace(is_green=False), TESTS)
    none = CanaryResult(CanaryOutcome.UNKNOWN, "no test was found that could be made to fail")
    return blind or seen or next(iter(shown), none)


def _try_failing_tests(case: GateContext, line: str, bait: FailingTests) -> CanaryResult:
    trial, before = _run_failing_tests(case, case.tree, bait), case.results.of(case.base_tree, line)
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE:
        return CanaryResult(CanaryOutcome.UNKNOWN, "the command was not through")
    result = result_of(case.tree, trial).replace(line=line)
    if _is_redder(bait.line, trial, before):
        return CanaryResult(CanaryOutcome.SEES, bait.named, result)
    if not _is_redder(bait.line, _run_failing_tests(case, case.base_tree, bait), before):
        return CanaryResult(
            CanaryOutcome.UNKNOWN, f"{bait.named} is not run by the command on the base either"
        )
    return CanaryResult(CanaryOutcome.BLIND, bait.named, result)


def _run_failing_tests(case: GateContext, tree: str, bait: FailingTests) -> TreeRun:
    return case.run_on(write_tree_with(case.repository, tree, bait.items), "canary", bait.line)


def _failing_variants(case: GateContext, line: str) -> Iterator[FailingTests]:
    """Yield what to try: an old test that looks at what was changed, and one that came with the change.

    Where the command can only run everything, all old tests are made to fail at once.
    """
    old, new = _candidates(case, case.base_files), _candidates(case, _changed_tests(case))
    if runner_of(line) is None:
        failing = {path: _failing_item(case, path, text) for path, text in (old or new)[:MOST_AT_ONCE]}
        items = {path: item for path, item in failing.items() if item}
        if items:
            yield FailingTests(items, line)
        return
    for candidates in (old, new):
        found = (
            (path, with_only_file(line, path), _failing_item(case, path, text)) for path, text in candidates
        )
        bait = next((FailingTests({path: item}, only) for path, only, item in found if only and item), None)
        if bait:
            yield bait


def _changed_tests(case: GateContext) -> dict[str, TreeItem]:
    return {entry.path: case.head_files[entry.path] for entry in case.diff if entry.is_there}


def _candidates(case: GateContext, files: Mapping[str, TreeItem]) -> list[tuple[str, str]]:
    """Return test files with their text: those first that name a module that was changed, then small ones."""
    tests = {path: item.blob for path, item in files.items() if _can_be_broken(path) and item.mode in _FILES}
    size = blob_sizes(case.repository, tests.values())
    small = {path: blob for path, blob in tests.items() if size.get(blob, LARGEST_TEST) < LARGEST_TEST}
    data = blob_contents(case.repository, small.values())
    texts = {path: data.get(blob, b"").decode("utf-8", "replace") for path, blob in small.items()}
    stems = {basename(entry.path).partition(".")[0] for entry in case.diff} - _COMMON_STEMS
    about = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(stems)))})\b") if stems else None

    def rank(path: str) -> tuple[bool, int, str]:
        return not (about and about.search(texts[path])), len(texts[path]), path

    return [(path, texts[path]) for path in sorted(texts, key=rank) if has_tests(path, texts[path])]


def _failing_item(case: GateContext, path: str, text: str) -> TreeItem | None:
    failing = _failing_text(path, text)
    found = case.base_files.get(path) or case.head_files[path]
    return TreeItem(found.mode, _write_blob(case, failing)) if failing is not None else None


def _can_be_broken(path: str) -> bool:
    language = language_of(path)
    return language is not None and (is_test(path) or language.inline) and not is_runner_file(path)


def _random_name() -> str:
    """Return a random name, so that no code can look for it."""
    return f"zq{secrets.token_hex(5)}"


def _failing_text(path: str, text: str) -> str | None:
    """Return *text* with tests in it that fail after all that it did before."""
    language = language_of(path)
    make = _FAILURES.get(language.name) if language else None
    return make(path, text) if make else None


def _python(_: str, text: str) -> str | None:
    """Let every test fail at its end, after the code under test ran, and add one that fails by itself."""
    try:
        module = python_parser.parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    word = _random_name()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            node.body.append(python_parser.parse_python(f"raise AssertionError({word!r})").body[0])
    more = (
        f"import unittest as {word}\n"
        f"class Test{word}({word}.TestCase):\n"
        f"    def test_{word}(self):\n"
        f"        raise AssertionError({word!r})\n"
    )
    return f"{ast.unparse(ast.fix_missing_locations(module))}\n{more}"


def _javascript(_: str, text: str) -> str:
    call = "it" if re.search(r"\bit\s*\(", text) and not re.search(r"\btest\s*\(", text) else "test"
    word = _random_name()
    return f'{text}\n;{call}("{word}", () => {{ throw new Error("{word}"); }});\n'


def _go(_: str, text: str) -> str:
    word = _random_name()
    return f'{text}\nfunc Test{word.capitalize()}(t *testing.T) {{ t.Fatal("{word}") }}\n'


def _rust(_: str, text: str) -> str:
    word = _random_name()
    return f'{text}\n#[cfg(test)]\nmod {word} {{\n    #[test]\n    fn {word}() {{ panic!("{word}") }}\n}}\n'


def _ruby(_: str, text: str) -> str:
    return f'{text}\nraise "{_random_name()}"\n'


def _shell(path: str, text: str) -> str:
    word = _random_name()
    if path.endswith(".bats"):
        return f'{text}\n@test "{word}" {{\n  false\n}}\n'
    first, _, rest = text.partition("\n")
    return f"{first}\nexit 1\n{rest}" if first.startswith("#!") else f"exit 1\n{text}"


def _nonsense(_: str, __: str) -> str:
    return NONSENSE % _random_name()


_FAILURES: Final[dict[str, Callable[[str, str], str | None]]] = {
    "Python": _python,
    "JavaScript": _javascript,
    "Go": _go,
    "Rust": _rust,
    "Java": _nonsense,
    "Ruby": _ruby,
    "shell": _shell,
}
