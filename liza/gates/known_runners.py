"""Test runners that we know: how to run one file, how to see that tests ran, what decides which do."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Sequence
from posixpath import basename, dirname
from typing import Any, Final, NamedTuple

from liza.gates.files import word_set

_SHELL: Final = re.compile(r"[;&|<>$`\n\\(){}*?~!#]")  # what makes a line more than one plain command


class KnownRunner(NamedTuple):
    """A row: *restricted* narrows a command to one file, *passed* finds how many tests passed."""

    name: str
    is_called: Callable[[Sequence[str]], bool]
    restricted: Callable[[list[str], str], list[str] | None]
    passed: re.Pattern[str]


_VALUED: Final = word_set(
    "-c -k -m -n -p -o -W -r --rootdir --confcutdir --junitxml --maxfail --tb --durations --timeout --cov "
    "--deselect --ignore --dist --maxprocesses --cov-report --color --import-mode"
)


def _calls_any(*names: str) -> Callable[[Sequence[str]], bool]:
    def is_called(words: Sequence[str]) -> bool:
        return any(basename(word) in names for word in words)

    return is_called


def _options(words: Sequence[str]) -> list[str]:
    """Return the options of a command, with their values, and nothing that names what to run."""
    kept, is_value = [], False
    for word in words:
        if word.startswith("-") or is_value:
            kept.append(word)
        is_value = word in _VALUED
    return kept


def _index_after(words: list[str], *names: str) -> int:
    return next(number for number, word in enumerate(words) if basename(word) in names) + 1


def _with_path(*names: str) -> Callable[[list[str], str], list[str] | None]:
    def restricted(words: list[str], path: str) -> list[str] | None:
        start = _index_after(words, *names)
        return [*words[:start], *_options(words[start:]), path]

    return restricted


def _unittest(words: list[str], path: str) -> list[str] | None:
    start = _index_after(words, "unittest")
    if "discover" not in words:
        return [*words[:start], *[word for word in words[start:] if word.startswith("-")], path]
    rest = words[start:]
    pairs = [number for number, word in enumerate(rest) if word in ("-p", "--pattern")]
    kept = [word for number, word in enumerate(rest) if number not in pairs and number - 1 not in pairs]
    return [*words[:start], *kept, "-p", basename(path)]


def _node(words: list[str], path: str) -> list[str] | None:
    start = words.index("--test") + 1
    return [*words[:start], *[word for word in words[start:] if word.startswith("-")], path]


def _go(words: list[str], path: str) -> list[str] | None:
    start = words.index("test") + 1
    options = [word for word in words[start:] if word.startswith("-")]
    return [*words[:start], "-v", "-count=1", *options, f"./{dirname(path)}"]


def _cargo(words: list[str], path: str) -> list[str] | None:
    if not re.fullmatch(r"tests/[^/]+\.rs", path):
        return None
    return [*words, "--test", basename(path).removesuffix(".rs")]


def _calls_pair(program: str, command: str) -> Callable[[Sequence[str]], bool]:
    def is_called(words: Sequence[str]) -> bool:
        return bool(words) and basename(words[0]) == program and command in words

    return is_called


RUNNERS: Final = (
    KnownRunner(
        "pytest",
        _calls_any("pytest", "py.test"),
        _with_path("pytest", "py.test"),
        re.compile(r"\b(\d+) passed"),
    ),
    KnownRunner(
        "unittest", _calls_any("unittest"), _unittest, re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
    ),
    KnownRunner("node", _calls_pair("node", "--test"), _node, re.compile(r"^\S+ pass (\d+)", re.MULTILINE)),
    KnownRunner(
        "jest",
        _calls_any("jest", "vitest", "mocha"),
        _with_path("jest", "vitest", "mocha"),
        re.compile(r"\b(\d+) pass(?:ed|ing)"),
    ),
    KnownRunner("go", _calls_pair("go", "test"), _go, re.compile(r"^(?:ok|\s*--- PASS)()", re.MULTILINE)),
    KnownRunner("cargo", _calls_pair("cargo", "test"), _cargo, re.compile(r"\b(\d+) passed")),
    KnownRunner(
        "rspec", _calls_any("rspec"), _with_path("rspec"), re.compile(r"^(\d+) examples?", re.MULTILINE)
    ),
    KnownRunner("bats", _calls_any("bats"), _with_path("bats"), re.compile(r"^ok ()", re.MULTILINE)),
)

_SKIPPED: Final = re.compile(r"skipped=(\d+)|(\d+) pending")


def runner_of(line: str) -> KnownRunner | None:
    """Return the runner that *line* calls by itself; None where a shell or a script is in between."""
    if _SHELL.search(re.sub(r"'[^']*'", "", line)):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return next((runner for runner in RUNNERS if runner.is_called(words)), None)


def with_only_file(line: str, path: str) -> str | None:
    """Return *line* for the tests of one file, or None where it can only run all of them."""
    runner = runner_of(line)
    if runner is None or path.startswith("-"):
        return None
    words = runner.restricted(shlex.split(line), path)
    return shlex.join(words) if words else None


def passed_count(line: str, said: str) -> int | None:
    """Return how many tests passed by a run of *line* that said *said*; None where it cannot be told."""
    runner = runner_of(line)
    if runner is None:
        return None
    found = runner.passed.findall(said)
    if not found:
        return 0 if _says_no_tests(runner, said) else None
    skipped = sum(int(next(filter(None, groups))) for groups in _SKIPPED.findall(said))
    return max(0, sum(int(count or 1) for count in found) - skipped)


def _says_no_tests(runner: KnownRunner, said: str) -> bool:
    """Return whether the output says that no test ran; no count at all says nothing."""
    return bool(re.search(r"no tests|\b\d+ (?:skipped|deselected|xfailed)|Ran 0 tests", said)) or (
        runner.name in ("go", "bats", "cargo")
    )


# What decides which tests run, and how; an agent's version of these must not judge an agent's work.
_RUNNER_FILE: Final = re.compile(
    r"""(?:^|/)(?:
        conftest\.py | \.?pytest\.(?:ini|toml) | tox\.(?:ini|toml) | \.coveragerc | noxfile\.py | nose2?\.cfg
      | sitecustomize\.py | usercustomize\.py | [^/]*\.pth | [^/]*\.(?:dist|egg)-info/[^/]*
      | (?:pytest|_pytest|unittest|pluggy|nose)(?:\.py|/.*)
      | (?:jest|vitest|karma|ava|playwright)\.config\.[cm]?[jt]s(?:on)? | \.mocharc[^/]* | \.nycrc[^/]*
      | \.rspec | Rakefile | (?:GNU)?Makefile | makefile | [^/]*\.mk | [Jj]ustfile | \.cargo/config(?:\.toml)?
    )$""",
    re.VERBOSE,
)
_MANIFEST: Final = re.compile(r"(?:^|/)(?:pyproject\.toml|package\.json|setup\.cfg)$")
_JSON_KEYS: Final = ("scripts", "jest", "mocha", "vitest", "ava", "nyc", "type")
_TOML_TOOLS: Final = ("pytest", "coverage", "tox", "nox", "hatch", "pdm", "poe", "taskipy")
_CFG_SECTION: Final = re.compile(r"^\[(?:tool:pytest|aliases|coverage[^\]]*|nosetests)\][^\[]*", re.MULTILINE)


def is_runner_file(path: str) -> bool:
    return bool(_RUNNER_FILE.search(path))


def is_manifest(path: str) -> bool:
    """Say whether *path* has settings of a runner among other things, such as dependencies."""
    return bool(_MANIFEST.search(path))


def runner_settings_in(path: str, text: str) -> Any:  # noqa: ANN401 - whatever the manifest says; it is only compared
    """Return what of the manifest *text* decides how tests run."""
    name = basename(path)
    try:
        if name == "package.json":
            data = json.loads(text or "{}")
            return {key: data.get(key) for key in _JSON_KEYS}
        if name == "pyproject.toml":
            tools = tomllib.loads(text).get("tool", {})
            return {key: tools.get(key) for key in _TOML_TOOLS}
    except (ValueError, AttributeError, RecursionError):
        return text
    return _CFG_SECTION.findall(text)
