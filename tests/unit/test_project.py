"""The house rules: what may import what, where each library lives, what importing may do."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Container, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from liza.cli.examples import EXAMPLES
from liza.domain.config import Config

ROOT: Final = Path(__file__).parents[2]

# Lowest first: a package may import those above it in this list, never one below.
LAYERS: Final = [
    "__init__",
    "errors",
    "domain",
    "workflow",
    "system",
    "board",
    "repo",
    "forges",
    "agents",
    "gates",
    "daemon",
    "gauntlet",
    "cli",
    "__main__",
]

# What these packages know is handed to them.
PURE: Final = ["liza.domain", "liza.workflow.engine", "liza.daemon.policy"]
IMPURE: Final = {"fcntl", "os", "pathlib", "socket", "subprocess", "tempfile", "threading", "time"}

HEIGHTS: Final = {part: height for height, part in enumerate(LAYERS)}

# Where each library may be imported. One that is not here may not be imported at all.
HOMES: Final = {
    "acp": ["liza.agents.acp_bridge"],
    "detect_secrets": ["liza.gates.scan"],
    "filelock": ["liza.system.files"],
    "git": ["liza.gauntlet.git_reader"],
    "litellm": ["liza.agents.llm.model"],
    "mcp": ["liza.cli.mcp_server"],
    "opentelemetry": ["liza.daemon.trace_export"],
    "psutil": ["liza.system"],
    "psycopg": ["liza.board.postgres"],
    "pydantic": ["liza"],
    "pydantic_core": ["liza.board.journal", "liza.domain.problems"],
    "starlette": ["liza.cli.web.app"],
    "uvicorn": ["liza.cli.web.server"],
    "rich": ["liza.cli.terminal"],
    "textual": ["liza.cli.terminal"],
    "watchdog": ["liza.board.polled_watch"],
    "yaml": ["liza.domain.yaml_parse"],
}

# Each takes long enough to import to be felt in `liza --help`.
HEAVY: Final = {
    "asyncio",
    "detect_secrets",
    "filelock",
    "git",
    "litellm",
    "mcp",
    "opentelemetry",
    "psutil",
    "psycopg",
    "pydantic",
    "rich",
    "starlette",
    "uvicorn",
    "watchdog",
    "yaml",
}

BANNED_WORDS: Final = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

# Written so that neither pattern matches its own source. What follows a name or a variable is not absolute.
MACHINE_PATH: Final = re.compile(r"(?<![\w.~*)}>-])/(?:work/|root/|home/\w|Users/\w)")
REGISTRY: Final = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|jfrog\.io|index[-_]url")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: Final = {name_of(path): path for path in sorted((ROOT / "liza").rglob("*.py"))}


def syntax_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def package_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def imported(tree: ast.Module, *, package: str) -> Iterator[str]:
    """Yield the dotted name of all that *tree*, in *package*, imports, in functions as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache  # not the trees, which are large, and part of every process that is forked
def imports_of(module: str) -> frozenset[str]:
    return frozenset(imported(syntax_of(module), package=package_of(module)))


def is_within(name: str, homes: Iterable[str]) -> bool:
    return any(name == home or name.startswith(f"{home}.") for home in homes)


def module_defining(name: str, modules: Container[str]) -> str:
    """Return the longest of *modules* that *name* is or is in."""
    while name not in modules:
        name = name.rpartition(".")[0]
    return name


def targets_of(module: str) -> set[str]:
    """Return the modules of ours that *module* imports."""
    ours = (name for name in imports_of(module) if is_within(name, ["liza"]))
    return {module_defining(name, MODULES) for name in ours}


def part_of(module: str) -> str:
    return "__init__" if module == "liza" else module.split(".")[1]


def height_of(module: str) -> int:
    return HEIGHTS[part_of(module)]


def libraries_of(module: str) -> set[str]:
    roots = {name.partition(".")[0] for name in imports_of(module)}
    return roots - sys.stdlib_module_names - {"liza"}


def runs_git(tree: ast.Module) -> bool:
    """Return whether *tree* has a command line that starts with git."""
    sequences = (node for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple))
    firsts = (sequence.elts[0] for sequence in sequences if sequence.elts)
    return any(isinstance(first, ast.Constant) and first.value == "git" for first in firsts)


def run_python(code: str, *, home: Path) -> subprocess.CompletedProcess[str]:
    """Run *code* in a new interpreter that works, lives and keeps temporary files in *home*."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=home,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def project_files() -> list[Path]:
    """Return every file that is tracked, or would be by `git add --all`."""
    listing = subprocess.run(
        # A checkout that another user owns, as in a container, is still ours to read.
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def is_text(content: bytes) -> bool:
    return b"\0" not in content


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    """Return `path:line: text` for each line of the project that *pattern* is found in."""
    contents = ((path.relative_to(ROOT), path.read_bytes()) for path in project_files())
    return [
        f"{path}:{number}: {line.strip()}"
        for path, content in contents
        if is_text(content)
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


class TestLayers:
    def test_every_module_has_exactly_one_layer(self) -> None:
        """A new module is placed by a decision, not by its first import."""
        assert {part_of(module) for module in MODULES} - set(HEIGHTS) == set()

    def test_imports_point_strictly_down(self) -> None:
        """A module knows only what is below it, or beside it in its own package."""
        assert [
            (module, target)
            for module in MODULES
            for target in targets_of(module)
            if part_of(target) != part_of(module) and height_of(target) >= height_of(module)
        ] == []

    def test_nothing_lies_loose(self) -> None:
        """Each module is in the package whose one line says what belongs there."""
        assert {path.name for path in (ROOT / "liza").glob("*.py")} == {
            "__init__.py",
            "__main__.py",
            "errors.py",
        }

    def test_rules_touch_nothing(self) -> None:
        """A rule is a function of its arguments: it reads no file, starts no process and asks no clock."""
        assert [
            (module, name)
            for module in MODULES
            if is_within(module, PURE)
            for name in imports_of(module)
            if name.partition(".")[0] in IMPURE
        ] == []

    def test_no_import_cycle(self) -> None:
        """Modules can be read, tested and loaded one at a time, also within a package."""
        TopologicalSorter({module: targets_of(module) for module in MODULES}).prepare()

    @pytest.mark.parametrize("module", [name for name, path in MODULES.items() if path.name == "__init__.py"])
    def test_packages_re_export_nothing(self, module: str) -> None:
        """A name has one import path, and importing a module loads nothing behind its back."""
        assert targets_of(module) == set()

    def test_imports_inside_functions_count(self) -> None:
        """A lazy import is a dependency too."""
        tree = ast.parse("def late():\n    from liza.board import watch\n    import liza.cli.main")

        assert set(imported(tree, package="liza")) == {"liza.board.watch", "liza.cli.main"}

    def test_relative_imports_count(self) -> None:
        """A dot does not hide where an import points."""
        tree = ast.parse("from . import watch\nfrom ..errors import LizaError")

        assert set(imported(tree, package="liza.board")) == {"liza.board.watch", "liza.errors.LizaError"}

    def test_a_name_belongs_to_the_innermost_module(self) -> None:
        """`from liza.board import x` is a dependency on x where x is a module, else on the package."""
        modules = ["liza", "liza.board", "liza.board.watch"]

        assert module_defining("liza.board.watch.Watch", modules) == "liza.board.watch"
        assert module_defining("liza.board.watcher", modules) == "liza.board"


# What may be imported of the board from above it, each for a reason.
OPEN_OF_BOARD: Final = {
    "liza.board.protocol": "what an engine promises, and the door to it",
    "liza.board.location": "where a project keeps its board",
    "liza.board.mirror": "a board on any server as files of this machine",
    "liza.board.journal.can_exchange": "a question about the file system, asked before there is a board",
}


class TestBoard:
    def test_nothing_above_names_an_engine(self) -> None:
        """Another engine is one module: whoever is above asks `open_board` for a board, and no more."""
        assert [
            (module, name)
            for module in MODULES
            if height_of(module) > HEIGHTS["board"]
            for name in imports_of(module)
            if is_within(name, ["liza.board"]) and not is_within(name, OPEN_OF_BOARD)
        ] == []

    def test_what_is_open_is_used(self) -> None:
        """A reason that nobody needs any more goes."""
        above = (imports_of(name) for name in MODULES if height_of(name) > HEIGHTS["board"])
        asked = set().union(*above)

        assert {
            place for place in OPEN_OF_BOARD if not any(is_within(name, [place]) for name in asked)
        } == set()


class TestLibraries:
    def test_each_library_is_imported_only_at_home(self) -> None:
        """A foreign library can be replaced, and its exceptions translated, in one place."""
        assert [
            (module, library)
            for module in MODULES
            for library in libraries_of(module)
            if not is_within(module, HOMES.get(library, []))
        ] == []

    def test_git_is_run_through_one_door(self) -> None:
        """Environment, locale and errors of git are settled once, in liza.repo.command."""
        assert [module for module in MODULES if runs_git(syntax_of(module))] == ["liza.repo.command"]

    @pytest.mark.parametrize("source", ["run(['git', 'status'])", "command = ('git', *arguments)"])
    def test_a_git_command_line_is_recognised(self, source: str) -> None:
        """A command line is a list or a tuple, whether passed on or kept."""
        assert runs_git(ast.parse(source))


class TestImporting:
    def test_importing_prints_and_writes_nothing(self, tmp_path: Path) -> None:
        """Side effects happen under main, never because a module was looked at."""
        result = run_python("\n".join(f"import {module}" for module in MODULES), home=tmp_path)

        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif("liza.cli.main" not in MODULES, reason="there is no command line yet")
    def test_the_command_line_starts_without_heavy_libraries(self, tmp_path: Path) -> None:
        """`liza --help` answers at once: a command loads what it needs when it runs."""
        code = f"import sys, liza.cli.main; print(sorted({HEAVY} & set(sys.modules)))"

        result = run_python(code, home=tmp_path)

        assert (result.stdout, result.stderr) == ("[]\n", "")


class TestFiles:
    def test_module_names_come_from_the_domain(self) -> None:
        """A drawer named after nothing gets filled with anything."""
        programs = (path.relative_to(ROOT) for path in project_files() if path.suffix == ".py")

        assert [
            str(path)
            for path in programs
            if BANNED_WORDS & set("_".join(path.with_suffix("").parts).split("_"))
        ] == []

    def test_no_file_names_a_path_of_one_machine(self) -> None:
        """The project works wherever it is cloned."""
        assert lines_matching(MACHINE_PATH) == []

    def test_no_file_names_a_registry(self) -> None:
        """Where packages come from is the choice of whoever installs."""
        assert lines_matching(REGISTRY) == []

    @pytest.mark.parametrize("name", ["work/x", "root/x", "home/ada", "Users/ada"])
    def test_a_path_of_one_machine_is_recognised(self, name: str) -> None:
        """An absolute path is one, and the same below another directory is not."""
        assert MACHINE_PATH.search(f"see /{name}")
        assert not MACHINE_PATH.search(f"see src/{name} and $(DIR)/{name}")

    def test_ci_runs_what_people_run(self) -> None:
        """There is no second way to test that could pass while the first fails."""
        script = ROOT / ".ci" / "run"

        assert os.access(script, os.X_OK)
        assert script.read_text(encoding="utf-8").splitlines()[-1] == "exec make test"


# One name may mean two things only for a reason.
SHARED_CLASS_NAMES: Final[dict[str, str]] = {}


def test_a_class_name_means_one_thing() -> None:
    """Whoever reads a name knows which thing is meant, without looking at the import."""
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in syntax_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    assert twice.keys() == SHARED_CLASS_NAMES.keys(), twice


def test_no_workflow_is_known_by_its_name_outside_of_its_file() -> None:
    """What a document says is all that anybody knows of it; the settings name the one to begin with."""
    names = {path.stem for path in (ROOT / "liza" / "workflow").glob("*.yaml")}
    usual = str(Config.model_fields["workflow"].default)
    found = [
        f"{module}: {node.value}"
        for module in MODULES
        for node in ast.walk(syntax_of(module))
        if isinstance(node, ast.Constant) and node.value in names - {usual}
        # The command that shows what ideas came to has the word of their workflow.
        if not (module.startswith("liza.cli.") and node.value in EXAMPLES)
    ]

    assert len(names) > 1
    assert usual in names
    assert found == []


def test_what_the_extra_llm_pins_can_be_installed_beside_the_rest() -> None:
    """The litellm that is pinned takes no filelock of version 4, whose range has to leave it an older one."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = {one.name: one.specifier for one in map(Requirement, found["dependencies"])}
    assert "litellm==1.106.2" in found["optional-dependencies"]["llm"]
    assert needs["filelock"].contains("3.32.7")
