"""Explains why a command cannot run here whatever the work is, and what a person should try.

One table: a pattern in the command's output, and a function that looks at the machine and explains it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, NamedTuple

from liza.gates.context import (
    CUT_SHORT,
    NOT_STARTED_CODES,
    CommandResult,
    directories_of,
    finds_no_tests,
    languages_of,
)
from liza.gates.files import is_named_as_test, language_of
from liza.repo.pool import Standing, copy_obstacle, standing_of, submodules_of
from liza.repo.repository import Repository
from liza.system.sandbox.bubblewrap import DEPENDENCIES, allowed_environment

_MODULE: Final = re.compile(
    r"No module named '?(?P<name>[\w.]+)'?|cannot import name '(?P<part>\w+)' from '(?P<package>[\w.]+)'"
)
# A shell, a compiler or Go; Python; Ruby; Node; a shell's `cd`; pytest; make; in this order.
_MISSING: Final = re.compile(
    r"""(?:^|:\ |\ )(?!ENOENT)(?P<shell>[^\s:'"]+):\ (?:command\ |[Pp]ermission\ )?
        (?:not\ found|[Nn]o\ such\ file|denied)
      | No\ such\ file\ or\ directory:\ '(?P<python>[^'\n]+)'
      | can't\ open\ file\ '(?P<script>[^'\n]+)'
      | No\ such\ file\ or\ directory\ @\ \w+\ -\ (?P<ruby>\S+)
      | ENOENT:[^\n]*?\ '(?P<node>[^'\n]+)'
      | can't\ cd\ to\ (?P<cd>\S+)
      | file\ or\ directory\ not\ found:\ (?P<pytest>\S+)
      | No\ rule\ to\ make\ target\ '(?P<make>[^'\n]+)',\ needed
    """,
    re.VERBOSE | re.MULTILINE,
)
_NOT_FOUND: Final = re.compile(
    r"^\S*sh: (?:\d+: |line \d+: )?(?P<name>[^\s:]+): (?:command )?not found$", re.MULTILINE
)
# Node; Python.
_READ_ONLY: Final = re.compile(
    r"EROFS:[^\n]*? '(?P<node>[^'\n]+)'|Read-only file system: '(?P<python>[^'\n]+)'"
    r"|path: '(?P<path>[^'\n]+)'(?=\n\})"
)
_NODE_PACKAGE: Final = re.compile(r"Cannot find (?:module|package) '(?P<name>[^']+)'")
# A module that is not named by its path, or a program that npm would have put on the PATH.
_NO_PACKAGE: Final = re.compile(r"Cannot find (?:module|package) '[^./']|\S+: (?:command )?not found")
_REQUIRED_BY: Final = re.compile(r"Require stack:\n- (?P<stack>\S+)|imported from (?P<import>\S+)")
_UNSET: Final = re.compile(
    r"KeyError: '(?P<python>[A-Z][A-Z0-9_]+)'"
    r"|\b(?P<text>[A-Z][A-Z0-9_]{2,})\b[^\n]{0,20} (?:not|un)[ -]?(?:set|defined)"
)
_ENTERED: Final = re.compile(
    r"(?:^|[;&|(]\s*)cd\s+(?P<name>[^\s;&|]+)|(?:\s-C|--prefix|--directory)[ =](?P<option>\S+)"
)
# What a tool says where it does not find the file that it begins with.
_MANIFESTS: Final[tuple[tuple[str, str], ...]] = (
    (r"no makefile found|No rule to make target", "Makefile"),
    (r"package\.json", "package.json"),
    (r"go\.mod file not found|cannot find main module", "go.mod"),
    (r"could not find `?Cargo\.toml", "Cargo.toml"),
    (r"neither 'setup\.py' nor 'pyproject\.toml'", "pyproject.toml"),
    (r"Could not locate Gemfile", "Gemfile"),
)
_OPTION: Final = re.compile(
    r"(?:(?:bad|unknown|invalid|illegal|unrecogni[sz]ed) (?:option|argument|flag)s?|[Nn]o such option)\b"
    r"[^\w\n-]*(?P<name>--?\w[\w-]*)"
)
MOST_NAMED: Final = 8  # targets or scripts in a sentence
_BUILT: Final = (*EXTENSION_SUFFIXES, ".pyd", ".dll", ".dylib", ".node", ".a", ".o")
_SCRIPTS: Final = ("", ".js", ".mjs", ".cjs", ".ts", ".json", ".node", "/index.js", "/index.ts")
UNKNOWN_CAUSE: Final = (
    "try it in a fresh clone: what it needs beside what is committed belongs into `gates.setup`"
)


class CommandSurroundings(NamedTuple):
    """The user's checkout, and whether the command ran in a sandbox."""

    repository: Repository
    is_sandboxed: bool

    @property
    def root(self) -> Path:
        return self.repository.root.resolve()

    def inside(self, name: str, line: str = "") -> Iterator[Path]:
        """Yield the paths of the checkout that *name* may mean, in a tree under test, as *line* names it."""
        path = Path(name).expanduser()
        area = self.repository.area.resolve()
        if path.is_relative_to(area) and len(path.relative_to(area).parts) > 1:
            yield self.root.joinpath(*path.relative_to(area).parts[1:])
        elif path.is_absolute():
            yield path
        else:
            yield from (place / path for place in self.starts(line))

    def starts(self, line: str) -> tuple[Path, ...]:
        """Return the directories of the checkout in which parts of *line* run, the root last."""
        entered = (match["name"] or match["option"] for match in _ENTERED.finditer(line))
        return (*(self.root / name.strip("'\"") for name in entered), self.root)

    def elsewhere(self, name: str) -> str | None:
        """Return the shortest directory below the root in which git has a file, or a directory, *name*."""
        found = self.repository.ask_checkout(
            "ls-files", "-z", "--", f":(glob)**/{name}", f":(glob)**/{name}/**"
        )
        places = {path.rpartition(f"/{name}")[0] for path in found.text.split("\0") if f"/{name}" in path}
        return min(places, key=lambda place: (place.count("/"), place), default=None)


def likely_cause(setting: CommandSurroundings, line: str, ran: CommandResult) -> str:
    """Return what most likely keeps *line* from running, and what to do about it."""
    for explain in _EXPLAINERS:
        if sentence := explain(setting, line, ran):
            return sentence
    return UNKNOWN_CAUSE


def _absent_file(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a program or a file that is not where the command looks for it."""
    said = [next(filter(None, match.groups())) for match in _MISSING.finditer(ran.said)]
    # Where the shell names what it did not find, other words of the line are not to blame.
    guessed = ran.code in NOT_STARTED_CODES and not _NOT_FOUND.search(ran.said)
    names = [*said, *(_program_words(line) if guessed else ())]
    for name in dict.fromkeys(names):
        for there in setting.inside(name, line):
            if there.exists() and (sentence := _explain_hidden(setting, there)):
                return sentence
    for name in dict.fromkeys(said):
        *_, there = setting.inside(name, line)
        inner = str(there.relative_to(setting.root)) if there.is_relative_to(setting.root) else None
        if inner and (place := setting.elsewhere(inner)):
            return _moved(inner, place)
    return _absent_program(setting, line, ran) if ran.code in NOT_STARTED_CODES else None


def _absent_program(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    named = _NOT_FOUND.search(ran.said)
    program = named["name"] if named else next(iter(_program_words(line)), line)
    if "/" in program and not any(there.exists() for there in setting.inside(program, line)):
        return f"there is no {program} on this machine; make it in your checkout, or in `gates.setup`"
    if "/" not in program and (place := _installed_place(setting, program)):
        return f"{program} is not on the PATH, but in your checkout; write `{place}` for it"
    if "/" not in program and shutil.which(program) is None:
        return f"{program} is not on the PATH; install it, or name it by its whole path"
    return None


def _installed_place(setting: CommandSurroundings, program: str) -> str | None:
    """Return where the checkout has *program*, in an environment that was installed there."""
    places = (f"{name}/bin/{program}" for name in DEPENDENCIES if name != "node_modules")
    found = (place for place in (*places, f"node_modules/.bin/{program}") if (setting.root / place).exists())
    return next(found, None)


def _read_only(setting: CommandSurroundings, _line: str, ran: CommandResult) -> str | None:
    """Explain what a command wants to write beside packages of the checkout, such as a cache of theirs."""
    if not setting.is_sandboxed or not re.search(r"EROFS|Read-only file system", ran.said):
        return None
    for match in _READ_ONLY.finditer(ran.said):
        path = setting.root / next(filter(None, match.groups()))
        inner = path.relative_to(setting.root) if path.is_relative_to(setting.root) else Path()
        if inner.parts and inner.parts[0] in DEPENDENCIES:
            return (
                f"it writes to {inner}, and what is installed in your checkout is read-only here; install it "
                "in `gates.setup`, as by `npm ci`, or make that directory and put it into `sandbox.write`"
            )
    return None


def _absent_source(_setting: CommandSurroundings, _line: str, ran: CommandResult) -> str | None:
    """Explain the word of another shell, by which many activate an environment."""
    named = _NOT_FOUND.search(ran.said)
    if ran.code not in NOT_STARTED_CODES or named is None or named["name"] != "source":
        return None
    return "/bin/sh runs it, which has no `source`; write `.` for that, or name programs by their paths"


def _moved(name: str, place: str) -> str:
    return (
        f"there is no {name} where the command runs, but in {place}; put `cd {place} && ` before the command"
    )


def _explain_hidden(setting: CommandSurroundings, there: Path) -> str | None:
    """Return why the tree under test has nothing at *there*, which the user's machine has."""
    if not there.is_relative_to(setting.root):
        if setting.is_sandboxed:
            shown = _path_to_show(there)
            return f"{there} is there, and the sandbox does not show it; put {shown} into `sandbox.show`"
        return f"{there} is there; look at its rights, and at the program that its first line names"
    name = str(there.relative_to(setting.root))
    match standing_of(setting.repository, name):
        case Standing.TRACKED:
            return (
                None
                if there.is_dir() or os.access(there, os.X_OK)
                else f"{name} may not be run: `chmod +x {name}`"
            )
        case Standing.LOOSE:
            return f"{name} is in your checkout, but not in git, so no tree under test has it; commit it"
        case Standing.IGNORED:
            return _ignored(setting, there, name)
        case Standing.SUBMODULE:
            return _empty_submodule(name)


def _ignored(setting: CommandSurroundings, there: Path, name: str) -> str:
    first = Path(name).parts[0]
    why = f"{name} is in your checkout, but not in git, and so not in the tree under test"
    if first in DEPENDENCIES or there.parent.name == "bin":
        if setting.is_sandboxed:
            return f"{there} is there, and the sandbox does not show it; put {first} into `sandbox.show`"
        return f"{why}; make it in `gates.setup`, or name it by its whole path"
    made = "build it in" if name.endswith(_BUILT) else "make it in"
    if copy_obstacle(setting.repository, name):
        return f"{why}; {made} `gates.setup`"
    return f"{why}, since git ignores it; {made} `gates.setup`, or copy it: `worktree: {{copy: [{name}]}}`"


def _path_to_show(there: Path) -> str:
    """Return what to show so that *there* works: a whole environment, not the one program in it."""
    return str(there.parent.parent if there.parent.name == "bin" else there)


def _explain_absent_module(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a Python module that the interpreter of the command does not have."""
    found = _MODULE.search(ran.said)
    if found is None:
        return None
    module = found["name"] or f"{found['package']}.{found['part']}"
    top = module.partition(".")[0]
    if there := _project_module(setting, line, module):
        return _hidden_module(setting, top, there)
    if found["name"] is None:
        return None
    if place := _project_module(setting, line, top):
        where = place.relative_to(setting.root)
        return (
            f"{module} is not in your checkout either ({where}); if it is generated, make it in `gates.setup`"
        )
    return _explain_uninstalled(setting, line, top)


def _explain_uninstalled(setting: CommandSurroundings, line: str, module: str) -> str:
    if own := _own_python(line):
        return (
            f"`{own}` is the Python of Liza's own environment ({sys.prefix}), which has no {module}; leave "
            "that environment (`deactivate`), or name the project's Python by its path"
        )
    if place := setting.elsewhere(f"{module}/__init__.py") or setting.elsewhere(f"{module}.py"):
        return _explain_unseen(module, place)
    return f"its Python has no {module}; install it there, or in `gates.setup`"


def _hidden_module(setting: CommandSurroundings, top: str, there: Path) -> str | None:
    name = str(there.relative_to(setting.root))
    if standing_of(setting.repository, name) is not Standing.TRACKED:
        return _explain_hidden(setting, there)
    at = there.relative_to(setting.root).parts
    place = "/".join(at[: at.index(top)]) if top in at else "/".join(at[:-1])
    return _explain_unseen(top, place or ".")


def _explain_unseen(module: str, place: str) -> str:
    return (
        f"{module} is a package of the project, which Python does not find in the tree under test; "
        f"put `PYTHONPATH={place}` before the command, or `pip install -e .` into `gates.setup`"
    )


def _project_module(setting: CommandSurroundings, line: str, module: str) -> Path | None:
    """Return the file, or the directory, of the checkout that is *module*."""
    inner = Path(*module.split("."))
    for start in setting.starts(line):
        for place in (start / "src", start):
            files = (place / inner.with_name(inner.name + suffix) for suffix in (".py", *EXTENSION_SUFFIXES))
            found = next((file for file in files if file.is_file()), place / inner)
            if found.exists():
                return found
    return None


def _own_python(line: str) -> str | None:
    """Return the word of *line* that is the Python of Liza's own environment."""
    if sys.prefix == sys.base_prefix:
        return None
    path = allowed_environment(os.environ).get("PATH", os.defpath)
    for word in _program_words(line):
        program = shutil.which(word, path=path) if "/" not in word else word
        if program and re.match(r"python[\d.]*$", Path(program).name):
            return word if Path(program).parent == Path(sys.prefix) / "bin" else None
    return None


def _uninstalled_packages(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a Node project of which nobody has installed what it depends on."""
    starts = setting.starts(line)
    if not any((start / "package.json").is_file() for start in starts):
        return None
    if any((start / "node_modules").is_dir() for start in starts) or not _NO_PACKAGE.search(ran.said):
        return None
    return (
        "there is no node_modules in your checkout; run `npm install` there, or make it in `gates.setup` "
        "(`npm ci`)"
    )


def _absent_package(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a module of Node's: a file that was made in the checkout only, or a package."""
    found = _NODE_PACKAGE.search(ran.said)
    if found is None:
        return None
    name = found["name"]
    if name.startswith(("./", "../", "/")):
        return next(
            filter(None, (_explain_hidden(setting, path) for path in _files_meant(setting, line, name, ran))),
            None,
        )
    if not any((start / "node_modules").is_dir() for start in setting.starts(line)):
        return None
    return f"{name} is not found; make `node_modules` in `gates.setup` (`npm ci`)"


def _files_meant(setting: CommandSurroundings, line: str, name: str, ran: CommandResult) -> Iterator[Path]:
    """Yield the files of the checkout that a script may have meant by *name*."""
    by = _REQUIRED_BY.search(ran.said)
    script = next(filter(None, by.groups())).removeprefix("file://") if by else ""
    starts = [path.parent for path in setting.inside(script, line)] if script else [setting.root]
    for start in starts:
        for there in setting.inside(os.path.normpath(start / name)):
            yield from (path for suffix in _SCRIPTS if (path := Path(f"{there}{suffix}")).is_file())


def _explain_unset(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a variable that an ignored `.env` of the checkout would have set."""
    for match in _UNSET.finditer(ran.said):
        name = match["python"] or match["text"]
        for file in (file for start in setting.starts(line) for file in sorted(start.glob(".env*"))):
            if file.is_file() and re.search(rf"(?m)^(?:export )?{name}=", file.read_text(errors="replace")):
                sentence = _explain_hidden(setting, file)
                return f"{name} is set in {file.name}: {sentence}" if sentence else None
    return None


def _wrong_directory(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a tool that begins with a file of which the root has none, and a directory below has one."""
    for pattern, name in _MANIFESTS:
        if not re.search(pattern, ran.said) or any((start / name).exists() for start in setting.starts(line)):
            continue
        if place := setting.elsewhere(name):
            return _moved(name, place)
    return None


def _unknown_name(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a target, a script or an option that the program does not have, and name those that it has."""
    if option := _OPTION.search(ran.said):
        return f"the program does not know {option['name']}; look into its help, and put the command right"
    for pattern, file, names in _NAMED_PARTS:
        found = re.search(pattern, ran.said)
        places = [place / file for place in setting.starts(line)]
        there = next((place for place in places if place.is_file()), None)
        if found and there:
            known = ", ".join(names(there.read_text(errors="replace"))[:MOST_NAMED])
            return f"{file} has no {found['kind']} {found['name']}" + (f"; it has {known}" if known else "")
        if found:
            return f"there is no {file} where the command runs; name where one is, or another command"
    return None


def _targets(makefile: str) -> list[str]:
    found = re.findall(r"(?m)^([A-Za-z0-9][\w. /-]*?)\s*::?(?![=:])", makefile)
    return list(dict.fromkeys(name for names in found for name in names.split()))


def _scripts(manifest: str) -> list[str]:
    try:
        return sorted(json.loads(manifest)["scripts"])
    except (ValueError, KeyError, TypeError):
        return []


_NAMED_PARTS: Final[tuple[tuple[str, str, Callable[[str], list[str]]], ...]] = (
    (r"No rule to make (?P<kind>target) '(?P<name>[^']+)'\.", "Makefile", _targets),
    (r"Missing (?P<kind>script): \"(?P<name>[^\"]+)\"", "package.json", _scripts),
)


def _absent_submodule(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain what a submodule has, where git leaves it empty."""
    names = submodules_of(setting.repository)
    named = [name for name in names if name in ran.said or name in line]
    return _empty_submodule(named[0]) if named else None


def _empty_submodule(name: str) -> str:
    return (
        f"{name} is a submodule, which git leaves empty in the tree under test; "
        f"copy it: `worktree: {{copy: [{name}]}}`"
    )


def _program_words(line: str) -> list[str]:
    """Return the words of *line* that may be programs or files, without variables that are set before."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    return [word for word in words if not word.startswith("-") and "=" not in word and word != "env"]


def _endless(_setting: CommandSurroundings, _line: str, ran: CommandResult) -> str | None:
    """Explain a command that was not through in time."""
    if ran.ending not in CUT_SHORT:
        return None
    return (
        "it needs more time than `limits.agent_minutes` gives it, or it waits for what is not there, such as "
        "input, a service or the network"
    )


def _unseen_tests(setting: CommandSurroundings, line: str, ran: CommandResult) -> str | None:
    """Explain a command that finds none of the tests that git has."""
    if not finds_no_tests(ran):
        return None
    kinds, places = languages_of(line), directories_of(line)
    listed = setting.repository.ask_checkout("ls-files", "-z").text.split("\0")
    found = (
        path
        for path in listed
        if path.startswith(places)
        and is_named_as_test(path)
        and (language := language_of(path))
        and language.name in kinds
    )
    if (first := next(found, None)) is None:
        return None
    return f"it finds none of the project's tests, such as {first}; name them, or the directory that has them"


_EXPLAINERS: Final[tuple[Callable[[CommandSurroundings, str, CommandResult], str | None], ...]] = (
    _endless,
    _unseen_tests,
    _absent_submodule,
    _explain_absent_module,
    _wrong_directory,
    _unknown_name,
    _uninstalled_packages,
    _read_only,
    _absent_source,
    _absent_file,
    _absent_package,
    _explain_unset,
)
