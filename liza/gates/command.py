"""The command gate: the project's own commands, and those that agents say prove their work, run by us.

They run on a checkout of exactly the head's tree, never in the agent's worktree: what is not committed
cannot help, and what they change is not what is judged.
"""

from __future__ import annotations

import ast
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from posixpath import basename
from shlex import quote
from typing import Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from liza.domain.model import Feedback, Outcome, Task, Validation
from liza.domain.record import NonEmptyStr, Record, strip_colour
from liza.errors import BrokenGate
from liza.gates.context import (
    CUT_SHORT,
    NOT_STARTED_CODES,
    CachedResult,
    Finding,
    GateContext,
    TreeRun,
    blocker,
    cause_of,
    concern,
    covers_too_little,
    describe_ending,
    evidence_of,
    failed_tests,
    finds_no_tests,
    has_blocker,
    is_manifest,
    is_runner_file,
    is_same_cause,
    let_pass,
    most_important,
    outcome_of,
    passed_count,
    reason_for,
    result_of,
    revise,
    runner_of,
    runner_settings_in,
    summarize_names,
    summarize_tests,
    tail,
    unknown,
    with_only_file,
)
from liza.gates.files import (
    has_tests,
    is_config,
    is_for_tests,
    is_generated,
    is_script,
    is_test,
    language_of,
    suffix_of,
    word_set,
)
from liza.gates.scan import forbidden_command_in
from liza.repo.command import write_blob
from liza.repo.repository import EXECUTABLE, DiffEntry, TreeItem, blob_contents, blob_sizes, write_tree_with
from liza.system.files import parse_python
from liza.system.run_control import RunEnding

# The canary: does a command notice when the code, or a test, is broken on purpose?
#
# Two questions. Of the base, once: with every source file of the project turned into nonsense, is the command
# red? If not, it tests something else, such as the user's checkout through an editable installation. Of a
# submission: with a test of the base turned into a failure, is the head red? If not, what is judged decides
# what the judge says. A green answer counts against a submission only where the base's is red: a test that
# the command does not run at all proves nothing.

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


def run_code_canary(context: GateContext, line: str) -> CanaryResult:
    """Break all source files of the base and return whether *line* turns red; cached by base and command.

    Where there is no source file that could be broken, test files are.
    """
    known = context.results.of(context.base_tree, line, CODE)
    if known is not None and not known.is_green:
        return CanaryResult(CanaryOutcome.SEES, "kept", known)
    broken, what = _source_files(context, line), "source"
    if not broken:
        broken, what = _test_files(context), "test"
    if not broken:
        return CanaryResult(
            CanaryOutcome.UNKNOWN, "there is neither code nor a test in a language that can be broken"
        )
    blob = _write_blob(context, NONSENSE % _random_name())
    tree = write_tree_with(
        context.repository, context.base_tree, {path: TreeItem(mode, blob) for path, mode in broken.items()}
    )
    trial = context.run_on(tree, "canary", line)
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE:
        return CanaryResult(CanaryOutcome.UNKNOWN, "the project's setup did not get through with broken code")
    result = result_of(context.base_tree, trial)
    noticed = _is_redder(line, trial, context.results.of(context.base_tree, line))
    context.results.keep(result.replace(is_green=not noticed), CODE)
    how = f"{len(broken)} {what} files were turned into nonsense"
    return CanaryResult(CanaryOutcome.SEES if noticed else CanaryOutcome.BLIND, how, result)


def _source_files(context: GateContext, line: str) -> dict[str, str]:
    """Return the project's own source files with their modes, but for those that run or build it."""
    named = {word.removeprefix("./") for word in _shell_words(line)}
    return {
        path: item.mode
        for path, item in context.base_files.items()
        if suffix_of(path) in _SOURCES
        and item.mode in _FILES
        and not (is_for_tests(path) or is_runner_file(path) or _TOOLING.search(path) or path in named)
    }


def _test_files(context: GateContext) -> dict[str, str]:
    return {
        path: item.mode for path, item in context.base_files.items() if is_test(path) and item.mode in _FILES
    }


def _write_blob(context: GateContext, text: str) -> str:
    return write_blob(context.repository.common, text.encode())


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _is_redder(line: str, trial: TreeRun, before: CachedResult | None) -> bool:
    """Return whether the run has failures beyond those that were there before anything was broken."""
    if trial.ran.is_green or covers_too_little(trial.ran):
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


def run_test_canary(context: GateContext, line: str) -> CanaryResult:
    """Make tests fail on the head and return whether *line* turns red; cached by tree and command."""
    known = context.results.of(context.tree, line, TESTS)
    if known is not None and not known.is_green:
        return CanaryResult(CanaryOutcome.SEES, "kept", known)
    shown = [_try_failing_tests(context, line, bait) for bait in _failing_variants(context, line)]
    blind = next((one for one in shown if one.sight is CanaryOutcome.BLIND), None)
    seen = next((one for one in shown if one.sight is CanaryOutcome.SEES), None)
    if blind is None and seen is not None and seen.result is not None:
        context.results.keep(seen.result.replace(is_green=False), TESTS)
    none = CanaryResult(CanaryOutcome.UNKNOWN, "no test was found that could be made to fail")
    return blind or seen or next(iter(shown), none)


def _try_failing_tests(context: GateContext, line: str, bait: FailingTests) -> CanaryResult:
    trial, before = (
        _run_failing_tests(context, context.tree, bait),
        context.results.of(context.base_tree, line),
    )
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE:
        return CanaryResult(CanaryOutcome.UNKNOWN, "the command was not through")
    result = result_of(context.tree, trial).replace(line=line)
    if _is_redder(bait.line, trial, before):
        return CanaryResult(CanaryOutcome.SEES, bait.named, result)
    known = context.base_result("test", line)
    if not known.is_green and known.failed is None:
        return CanaryResult(CanaryOutcome.UNKNOWN, "the base is red by itself, and nobody knows where")
    if not _is_redder(bait.line, _run_failing_tests(context, context.base_tree, bait), known):
        return CanaryResult(
            CanaryOutcome.UNKNOWN, f"{bait.named} is not run by the command on the base either"
        )
    return CanaryResult(CanaryOutcome.BLIND, bait.named, result)


def _run_failing_tests(context: GateContext, tree: str, bait: FailingTests) -> TreeRun:
    return context.run_on(write_tree_with(context.repository, tree, bait.items), "canary", bait.line)


def _failing_variants(context: GateContext, line: str) -> Iterator[FailingTests]:
    """Yield what to try: an old test that looks at what was changed, and one that came with the change.

    Where the command can only run everything, all old tests are made to fail at once.
    """
    old, new = _candidates(context, context.base_files), _candidates(context, _changed_tests(context))
    if runner_of(line) is None:
        failing = {
            path: _failing_item(context, line, path, text) for path, text in (old or new)[:MOST_AT_ONCE]
        }
        items = {path: item for path, item in failing.items() if item}
        if items:
            yield FailingTests(items, line)
        return
    for candidates in (old, new):
        found = (
            (path, with_only_file(line, path), _failing_item(context, line, path, text))
            for path, text in candidates
        )
        bait = next((FailingTests({path: item}, only) for path, only, item in found if only and item), None)
        if bait:
            yield bait


def _changed_tests(context: GateContext) -> dict[str, TreeItem]:
    return {entry.path: context.head_files[entry.path] for entry in context.diff if entry.is_there}


def _candidates(context: GateContext, files: Mapping[str, TreeItem]) -> list[tuple[str, str]]:
    """Return test files with their text: those first that name a module that was changed, then small ones."""
    tests = {path: item.blob for path, item in files.items() if _can_be_broken(path) and item.mode in _FILES}
    size = blob_sizes(context.repository, tests.values())
    small = {path: blob for path, blob in tests.items() if size.get(blob, LARGEST_TEST) < LARGEST_TEST}
    data = blob_contents(context.repository, small.values())
    texts = {path: data.get(blob, b"").decode("utf-8", "replace") for path, blob in small.items()}
    stems = {basename(entry.path).partition(".")[0] for entry in context.diff} - _COMMON_STEMS
    about = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(stems)))})\b") if stems else None

    def rank(path: str) -> tuple[bool, int, str]:
        return not (about and about.search(texts[path])), len(texts[path]), path

    return [(path, texts[path]) for path in sorted(texts, key=rank) if has_tests(path, texts[path])]


def _failing_item(context: GateContext, line: str, path: str, text: str) -> TreeItem | None:
    failing = _failing_text(line, path, text)
    found = context.base_files.get(path) or context.head_files[path]
    return TreeItem(found.mode, _write_blob(context, failing)) if failing is not None else None


def _can_be_broken(path: str) -> bool:
    language = language_of(path)
    return language is not None and (is_test(path) or language.inline) and not is_runner_file(path)


def _random_name() -> str:
    """Return a random name, so that no code can look for it."""
    return f"zq{secrets.token_hex(5)}"


def _failing_text(line: str, path: str, text: str) -> str | None:
    """Return *text* with tests in it that fail after all that it did before."""
    language = language_of(path)
    make = _FAILURES.get(language.name) if language else None
    runner = runner_of(line)
    if make is _python and runner and runner.name == "pytest":
        return _python_functions(text) or make(path, text)
    return make(path, text) if make else None


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _fail_at_end(nodes: Iterable[ast.AST], word: str) -> None:
    """Let every test among *nodes* fail at its end, after the code under test ran."""
    for node in nodes:
        if isinstance(node, _Function) and node.name.startswith("test"):
            node.body.append(parse_python(f"raise AssertionError({word!r})").body[0])


def _python_functions(text: str) -> str | None:
    """Let the test functions of pytest fail, and nothing else: it runs those of classes in another way, so
    that a change which swallows what functions say would still be red by the others.
    """
    try:
        module = parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not any(isinstance(node, _Function) and node.name.startswith("test") for node in module.body):
        return None
    word = _random_name()
    _fail_at_end(module.body, word)
    return f"{ast.unparse(ast.fix_missing_locations(module))}\ndef test_{word}():\n    assert not {word!r}\n"


def _python(_: str, text: str) -> str | None:
    """Let every test fail, and add one that fails by itself."""
    try:
        module = parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    word = _random_name()
    _fail_at_end(ast.walk(module), word)
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


# Finds the changed files that decide how tests run: runner settings, scripts, build files.

# Where a build says what it calls: a file that one of these names steers as much as they do.
_BUILDS: Final = (
    *("Makefile", "makefile", "GNUmakefile", "package.json", "tox.ini", "noxfile.py", "justfile", "Justfile"),
    *("Rakefile", "pyproject.toml", "setup.cfg"),
)


# What builds or loads the code as well as its tests: work may need another one, and it may turn tests off.
_BUILD_FILE: Final = re.compile(
    r"""(?:^|/)(?:(?:vite|babel|webpack|rollup|tsup)\.config\.[cm]?[jt]s | \.babelrc[^/]* | \.swcrc
      | \.npmrc | \.yarnrc | \.pnpmfile\.cjs | go\.(?:mod|work) | build\.rs | rust-toolchain
      | mix\.exs | build\.(?:sbt|zig))$""",
    re.VERBOSE,
)
# Code that ends the process, hooks into its end or its imports, or reaches into a runner, in any file.
_STEERING_CODE: Final = re.compile(
    r"""\bos\.(?:_exit|abort|kill|Exit)\b | \bsys\.(?:exit|modules|meta_path|settrace|setprofile|excepthook)\b
      | \bSystemExit\b | \batexit\b | \bbuiltins\b | \b_pytest\b | TestResult | TestProgram | wasSuccessful
      | \bprocess\.(?:exit|reallyExit|kill|abort|exitCode|on|once)\b | \bprocess::(?:exit|abort)
      | \bglobal(?:This)?\.(?:it|test|describe|expect|assert|process)\b | \bModule\._\w+ | \bexit!
      | \bset_hook\b | \bat_exit\b | \bSystem\.exit\b | \bRuntime\b.*\b(?:halt|exit)\b
      | \bsyscall\.(?:Exit|Kill)\b
    """,
    re.VERBOSE,
)
# And outside of tests, code that names a runner at all, or what its tests assert by.
_RUNNER_IMPORT: Final = re.compile(
    r"""\b(?:import|from|require|use|using)\b\W*(?:unittest|pytest|pluggy|doctest|nose2?|testing|minitest|rspec
        |(?:node:)?(?:test|assert)['"/]|@?(?:vitest|jest|mocha|chai|tape|ava)\b)""",
    re.VERBOSE,
)


def steering_paths(context: GateContext, line: str) -> list[str]:
    """Return the paths of the diff that could decide what *line* runs, or how it ends."""
    called = _build_texts(context, line)
    return [
        path
        for entry in context.diff
        for path in entry.paths
        if is_runner_file(path)
        or _BUILD_FILE.search(path)
        or (is_manifest(path) and has_new_runner_settings(context, path))
        or (is_config(path) and not is_generated(path) and not is_manifest(path))
        or is_script(path)
        or EXECUTABLE in (entry.mode, entry.old_mode)
        or basename(path) in called
        or _has_steering_code(entry)
    ]


def _has_steering_code(entry: DiffEntry) -> bool:
    patterns = [_STEERING_CODE] if is_for_tests(entry.path) else [_STEERING_CODE, _RUNNER_IMPORT]
    return any(pattern.search(line.text) for line in entry.added for pattern in patterns)


def _build_texts(context: GateContext, line: str) -> str:
    """Return all texts that say what *line* calls, before the change and after it."""
    blobs = {
        files[name].blob
        for files in (context.base_files, context.head_files)
        for name in _BUILDS
        if name in files
    }
    texts = blob_contents(context.repository, blobs).values()
    return "\n".join([line, *(text.decode("utf-8", "replace") for text in texts)])


def has_new_runner_settings(context: GateContext, path: str) -> bool:
    """Return whether the runner settings in the manifest *path* differ from the base; dependencies do not
    count.
    """
    texts = []
    for files in (context.base_files, context.head_files):
        found = files.get(path)
        data = blob_contents(context.repository, [found.blob]).get(found.blob, b"") if found else b""
        texts.append(runner_settings_in(path, data.decode("utf-8", "replace")))
    return bool(texts[0] != texts[1])


# What a command is said to print, compared with what it printed; and checks inside `done_when` lines.

# What speaks of success without quoting anything that is printed.
_EXIT: Final = re.compile(
    r"(?:all )?(?:the )?(?:new |old |unit |existing )*tests? (?:should |must )?"
    r"(?:pass(?:es)?|succeeds?|(?:is|are) green)\.?"
    r"|(?=.*(?:exit|code|status|succeed))(?:(?:it|the command) )?(?:should |must )?"
    r"(?:succeeds?|(?:(?:ends?|exits?|returns?)(?: with)?(?: an?)? ?)?"
    r"(?:exit )?(?:code|status)?(?: of)? ?(?:0|zero))\.?",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|sec|seconds?)\b")
_QUOTES: Final = "`'\"“”"


class DoneWhenCheck(NamedTuple):
    """A command that a `done_when` line carries, with what it has to print and its exit code."""

    line: str
    command: str
    expect: str = ""
    code: int = 0


_CHECK: Final = re.compile(
    r"""^\s*(?:running\s+|run\s+|the\s+command\s+)?`(?P<command>[^`]+)`\s*
    (?:(?P<verb>prints?|outputs?|shows?|says?|displays?)\s+(?P<expect>\S.*?)
      |(?:exits?|ends?|returns?)\s+(?:with\s+)?(?:exit\s+)?(?:code\s+|status\s+)?(?P<code>\d{1,3})
      |passes|succeeds|is\s+green|works|runs(?:\s+without\s+errors?)?)?
    \s*[.;]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
# `add(2, 3)` is a call in some language, `README.md` a file: neither is a command.
_COMMAND: Final = re.compile(r"(?:\w+=\S* )*[\w./+-]+(?:\s|$)")
_CALLISH: Final = re.compile(r"^[\w.]+\(.*\)$")


def check_in(line: str) -> DoneWhenCheck | None:
    """Return the check that *line* carries, or None where only a reader can judge it."""
    match = _CHECK.match(line)
    if match is None:
        return None
    command = match["command"].strip()
    if not _COMMAND.match(command) or _CALLISH.match(command) or _is_file_name(command, match):
        return None
    return DoneWhenCheck(line, command, unquote(match["expect"] or ""), int(match["code"] or 0))


def _is_file_name(command: str, match: re.Match[str]) -> bool:
    alone = " " not in command and not command.startswith("./")
    return alone and bool(re.search(r"\.(?!sh$)\w{1,5}$", command)) and not match["expect"]


def checks_of(task: Task) -> list[DoneWhenCheck]:
    """Return the checks of all `done_when` lines."""
    return [check for line in task.done_when if (check := check_in(line))]


def unquote(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1]
    return text


def missing_output(expect: str, said: str) -> list[str]:
    """Return the lines of *expect* that *said* does not have.

    Case, space, colours and how long something took are no difference; an expectation that only speaks of
    the exit code is met by it.
    """
    wanted = [unquote(line) for line in expect.splitlines() if line.strip()]
    heard = _normal_form(said)
    return [line for line in wanted if not _EXIT.fullmatch(line.strip()) and _normal_form(line) not in heard]


def _normal_form(text: str) -> str:
    text = _DURATION.sub("#s", strip_colour(text))
    return " ".join(text.split()).casefold()


NO_SUCH_COMMAND: Final = 127  # what a shell ends with
PROJECT: Final = frozenset({"setup", "test", "lint"})  # whose commands are the project's own, not an agent's
SHOWN_OUTPUT: Final = 400  # characters of a command's output in a message; the evidence has more

_PLACE: Final = re.compile(
    r"^(?:\s*File \")?(?P<file>[\w./+-]+\.\w+)(?:\", line |:)(?P<line>\d+)(?P<rest>.*)$", re.MULTILINE
)


class CommandOptions(Record):
    command: Literal["setup", "test", "lint"] | None = None
    source: Literal["checkpoint.validation", "task.validation", "done_when"] | None = Field(
        default=None, alias="from"
    )
    run: NonEmptyStr | None = None
    expect: str = ""
    keep: tuple[NonEmptyStr, ...] = ()
    # A folder of the repository; `settings`: that of the experiment.
    directory: NonEmptyStr | None = None
    mode: Literal["gate", "record"] = "gate"

    @model_validator(mode="after")
    def _is_one_command(self) -> Self:
        if sum(1 for one in (self.command, self.source, self.run) if one) != 1:
            raise ValueError("give exactly one of command, from or run")
        return self


def judge(options: CommandOptions, context: GateContext) -> Finding:
    """Run what *options* name; in the mode `record`, what comes of it does not decide."""
    found = _judge_for(options)(options, context)
    if options.mode == "record" and found.outcome is Outcome.REVISE:
        return let_pass(f"recorded: {found.reason}", found.feedback, found.evidence, label="recorded")
    return found


def _judge_for(options: CommandOptions) -> Callable[[CommandOptions, GateContext], Finding]:
    if options.source == "done_when":
        return _judge_done_when
    return _judge_claim if options.source else _judge_project_command


def _judge_project_command(options: CommandOptions, context: GateContext) -> Finding:
    name = options.command or "run"
    line = options.run or getattr(context.config.gates, name)
    if line is None:
        return let_pass(f"not set up: there is no {name} command in the settings", label="skipped")
    line = in_directory(_directory_of(options, context), line)
    trial = (
        context.run_setup_on(context.tree)
        if name == "setup"
        else context.run_on(context.tree, name, line, options.keep)
    )
    found = finding_of(name, trial, options.expect)
    if name in PROJECT:
        found = compare_with_base(name, context, trial, found)
    return check_trust(context, trial, found) if name == "test" and found.outcome is Outcome.PASS else found


def in_directory(directory: str | None, line: str) -> str:
    """Return the command *line* as it is run in *directory*, a folder of the checkout."""
    return f"cd {quote(directory)} && {line}" if directory else line


def _directory_of(options: CommandOptions, context: GateContext) -> str | None:
    is_set = options.directory == "settings"
    return context.config.experiment.test_directory if is_set else options.directory


def check_trust(context: GateContext, trial: TreeRun, found: Finding) -> Finding:
    """Return *found*, unless the change under test may have decided the runner's result itself."""
    if context.tree == context.base_tree or "docs_only" in context.facts:
        return found
    line, steers = trial.line, steering_paths(context, trial.line)
    if doubt := _contradiction(context, trial, steers):
        return revise("the tests' word cannot be taken", [blocker(doubt)], found.evidence)
    if runner_of(line) is None and not steers:
        return found
    shown = run_test_canary(context, line)
    if shown.sight is not CanaryOutcome.BLIND:
        return found
    message = (
        f"`{line}` passes on this work although tests in {shown.how} were made to fail; on the base it "
        "notices. Something in the change decides what the runner says: take it out"
    )
    feedback = [blocker(message), *(concern("this can decide what the runner says", path) for path in steers)]
    seen = evidence_of(line, trial.ran).replace(run=shown.result.run) if shown.result else found.evidence
    return revise("the tests stay green whatever fails", most_important(feedback), seen)


def _contradiction(context: GateContext, trial: TreeRun, steers: Sequence[str]) -> str | None:
    """Return how the runner's report, its exit code and what it did on the base contradict each other."""
    before = context.results.of(context.base_tree, trial.line)
    if before is None or not trial.ran.is_green:
        return None
    if before.is_reported and trial.report is None:
        return "the runner ended well and left no report, as it does on the base; the code must not end it"
    if before.is_green and trial.report and trial.report.failed:
        failed = summarize_tests(trial.report.failed)
        return f"it ended with exit code 0, and its report has failed tests: {failed}"
    unnamed = [path for path in steers if not context.bounds.names(path)]
    lost = _missing_tests(trial, before) if unnamed else None
    return f"{lost}, and {summarize_tests(unnamed)} can decide which run" if lost else None


def _missing_tests(trial: TreeRun, before: CachedResult) -> str | None:
    """Return which tests that pass on the base do not run any more, or how many."""
    if trial.report and before.names:
        gone = frozenset(before.names) - trial.report.names - trial.report.failed
        return f"tests that pass on the base do not run any more ({summarize_tests(gone)})" if gone else None
    now = passed_count(trial.line, trial.ran.said)
    if now is None or not before.passed or now >= before.passed:
        return None
    return f"{now} tests pass, {before.passed} did on the base"


def compare_with_base(name: str, context: GateContext, trial: TreeRun, found: Finding) -> Finding:
    """Return *found* without failures that the base has too; raise BrokenGate where the command cannot judge.

    A command that cannot start, or fails in the same way without the work, is no coder's mistake. Tests that
    are red on the base count neither for nor against the work.
    """
    name, ran = "setup" if trial.is_setup else name, trial.ran
    if found.outcome is Outcome.NONE and ran.ending is RunEnding.NOT_STARTED:
        raise BrokenGate(name, trial.line, describe_ending(ran), context.likely(trial.line, ran), ran.run)
    if found.outcome is not Outcome.REVISE or ran.is_green:
        return found
    if ran.ending in CUT_SHORT:
        require_end_on_base(name, context, trial)
        return found
    before = context.base_result(name, trial.line, afresh=ran.code in NOT_STARTED_CODES)
    if before.is_empty and finds_no_tests(ran):
        return let_pass(f"{name} finds no tests yet, as on the base", (), evidence_of(trial.line, ran))
    if before.is_green or before.is_empty:
        return found
    failed, cause = failed_tests(trial.line, ran.said), cause_of(trial.line, ran)
    if before.failed and failed is not None:
        return _judge_new_failures(name, trial, failed - before.known_red, before.known_red)
    if before.code == ran.code and is_same_cause(before.cause, cause):
        raise BrokenGate(
            name, trial.line, cause or describe_ending(ran), context.likely(trial.line, ran), ran.run
        )
    return found


def require_end_on_base(name: str, context: GateContext, trial: TreeRun) -> None:
    """Raise where *trial*, which took too long, takes too long without the work as well.

    What was kept is not believed: a service that the command waits for may have been there at that time.
    """
    if context.base_result(name, trial.line, afresh=True).ending in CUT_SHORT:
        ran = trial.ran
        raise BrokenGate(name, trial.line, describe_ending(ran), context.likely(trial.line, ran), ran.run)


def _judge_new_failures(name: str, trial: TreeRun, new: frozenset[str], known: frozenset[str]) -> Finding:
    shown = evidence_of(trial.line, trial.ran)
    note = concern(
        f"{len(known)} tests are red on the base as well and do not count: {summarize_tests(known)}"
    )
    if not new:
        return let_pass(f"{name} passed, but for tests that are red on the base", [note], shown)
    message = (
        f"`{trial.line}` {describe_ending(trial.ran)}; these tests pass on the base: {summarize_tests(new)}"
    )
    feedback = most_important([blocker(message), note, *named_places(trial.ran.said)])
    return revise(f"{name} failed: {summarize_tests(new)}", feedback, shown)


def finding_of(name: str, trial: TreeRun, expect: str = "") -> Finding:
    """Return what *trial* says about its tree."""
    name = "setup" if trial.is_setup else name
    shown, outcome = evidence_of(trial.line, trial.ran), outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return unknown(f"{name} ({trial.line}) {describe_ending(trial.ran)}", shown)
    if outcome is Outcome.REVISE:
        message = f"`{trial.line}` {describe_ending(trial.ran)}; its last lines are shown with this"
        places_named = named_places(trial.ran.said)
        return revise(
            reason_for(name, trial.line, trial.ran), most_important([blocker(message), *places_named]), shown
        )
    if gaps := missing_output(expect, trial.ran.said):
        reason = f"{name} did not print what it has to"
        return revise(reason, [blocker(f"{gap!r} is not in its output") for gap in gaps], shown)
    return let_pass(f"{name} ({trial.line}) passed", (), shown)


def named_places(said: str) -> list[Feedback]:
    """Return the places inside the repository that the output of a failed command names."""
    found = {
        (match["file"].removeprefix("./"), int(match["line"])): match["rest"]
        for match in _PLACE.finditer(said)
    }
    inside = {place: rest for place, rest in found.items() if not place[0].startswith(("/", ".."))}
    return [
        concern(rest.strip(" :") or "the output names this place", file, line)
        for (file, line), rest in list(inside.items())[-5:]
    ]


def _judge_claim(options: CommandOptions, context: GateContext) -> Finding:
    """Run what the agent says validates its work: a claim that is not true is told as such."""
    validation = _validation(options, context)
    if validation is None:
        note = concern("the checkpoint names no validation, so nothing of what it claims was run")
        return let_pass(f"not set up: {options.source} is empty", [note], label="skipped")
    line = validation.command
    if bad := forbidden_command_in(line):
        reason = f"the validation is not run: {bad} is forbidden"
        return revise(reason, [blocker(f"{reason}; name a command that only looks")])
    trial = context.run_on(context.tree, "validation", line)
    if _is_program_absent(line, trial):
        note = concern(f"`{line}` was not run: there is no such command here")
        return let_pass("the validation names a command that is not here", [note], label="skipped")
    found = finding_of("validation", trial)
    if found.outcome is Outcome.REVISE and not trial.is_setup:
        claim = f"the checkpoint claims that `{line}` succeeds, and that is not true of the committed work"
        return found._replace(feedback=most_important([blocker(claim), *found.feedback]))
    if found.outcome is not Outcome.PASS or not missing_output(validation.expect, trial.ran.said):
        return found
    claim = (
        f"the checkpoint claims that `{line}` prints {validation.expect.strip()!r}; it printed "
        f"{tail(trial.ran.said)[-SHOWN_OUTPUT:]!r}"
    )
    return revise(f"validation ({line}) did not print what was claimed", [blocker(claim)], found.evidence)


def _validation(options: CommandOptions, context: GateContext) -> Validation | None:
    if options.source == "task.validation":
        return context.task.validation
    return context.checkpoint.validation if context.checkpoint else None


def _judge_done_when(_: CommandOptions, context: GateContext) -> Finding:
    """Run the checks that the `done_when` lines carry."""
    checks = checks_of(context.task)
    if not checks:
        return let_pass("not set up: no done_when line carries a command", label="skipped")
    results = [
        (check, context.run_on(context.tree, "done-when", check.command))
        for check in _runnable_checks(checks)
    ]
    refused = [check for check in checks if forbidden_command_in(check.command)]
    feedback = [blocker(f"{check.line!r} is not run: its command is forbidden") for check in refused]
    for check, trial in results:
        feedback += _unmet(check, trial)
    stopped = next((trial for _, trial in results if outcome_of(trial.ran) is Outcome.NONE), None)
    if stopped:
        return finding_of("done_when", stopped)
    worst = next(
        (trial for check, trial in results if _unmet(check, trial)), results[-1][1] if results else None
    )
    shown = evidence_of(worst.line, worst.ran) if worst else None
    if has_blocker(feedback):
        return revise("a done_when line is not met", most_important(feedback), shown)
    return let_pass("every done_when line that carries a command is met", most_important(feedback), shown)


def _runnable_checks(checks: Sequence[DoneWhenCheck]) -> list[DoneWhenCheck]:
    return [check for check in checks if not forbidden_command_in(check.command)]


def _is_program_absent(line: str, trial: TreeRun) -> bool:
    """Return whether *line* is a program that this machine does not have: nobody's work can change that."""
    return not trial.is_setup and trial.ran.code == NO_SUCH_COMMAND and "/" not in line.split(maxsplit=1)[0]


def _unmet(check: DoneWhenCheck, trial: TreeRun) -> list[Feedback]:
    ran = trial.ran
    if trial.is_setup:
        return [blocker(f"setup ({trial.line}) {describe_ending(ran)}, so {check.line!r} cannot be checked")]
    if _is_program_absent(check.command, trial):
        return [concern(f"{check.line!r} was not checked: there is no such command here")]
    if ran.ending is not RunEnding.DONE or ran.code != check.code:
        return [blocker(f"{check.line!r} is not met: the command {describe_ending(ran)}")]
    gaps = missing_output(check.expect, ran.said)
    printed = tail(ran.said)[-SHOWN_OUTPUT:]
    return [blocker(f"{check.line!r} is not met: it printed {printed!r}")] if gaps else []
