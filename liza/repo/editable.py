"""Packages that an interpreter finds in the user's checkout, and how it finds them in another tree instead.

`pip install -e .` writes a path of the checkout into a file of the environment. Where there is no sandbox, a
test that is run with this environment in another tree would import the checkout: it would be judged by code
that nobody handed in. What such files say is read here, and a PYTHONPATH is made that comes before it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from liza.errors import UnfitRepository
from liza.repo.dependencies import STRICT_EDITABLE_PREFIX
from liza.repo.repository import AREA
from liza.system import python_parser
from liza.system.sandbox.bubblewrap import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PATIENCE: Final = 10.0  # seconds for an interpreter to say where its packages are; it takes a few hundredths
_ASK: Final = "import json, site; print(json.dumps([*site.getsitepackages(), site.getusersitepackages()]))"
_FINDER: Final = re.compile(r"__editable__.*finder\.py|_editable_impl_.*\.py|__editable__.*\.py")
_CODE: Final = ("import ", "import\t")
# Options by which Python does not look at PYTHONPATH at all.
_ISOLATED: Final = re.compile(r"python[\d.]*\s+(?:-\S+\s+)*?-[A-Za-z]*[IE]")


class EditableLink(NamedTuple):
    """One editable installation: the *file* that points into the checkout, and the *path* it names."""

    file: Path
    path: Path
    name: str | None = None  # of the module that is there; None: all that is in *path* can be imported


def editable_links(site: Path, root: Path, installed: Iterable[Path]) -> Iterator[EditableLink]:
    """Yield how the packages in *site* lead into the checkout *root*, but for what is *installed* there."""
    for lead in _links_in_site(site):
        if lead.path.is_relative_to(root) and not is_below(lead.path, installed):
            yield lead


def unexplained_install(site: Path, root: Path, leads: Sequence[EditableLink]) -> Path | None:
    """Return the record of an editable installation from *root* that *leads* do not explain."""
    for record in sorted(site.glob("*.dist-info/direct_url.json")):
        told = _json(record)
        where = Path(unquote(urlsplit(str(told.get("url", ""))).path) or "/")
        is_editable = bool(told.get("dir_info", {}).get("editable"))
        if (
            is_editable
            and where.is_relative_to(root)
            and not any(is_below(one.path, [where]) for one in leads)
        ):
            return record
    return None


def _links_in_site(site: Path) -> Iterator[EditableLink]:
    for file in sorted([*site.glob("*.pth"), *site.glob("*.egg-link")]):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.startswith((*_CODE, "#")) and not line.startswith(".."):
                yield EditableLink(file, Path(os.path.normpath(site / line.strip())))
    for file in sorted(site.glob("*.py")):
        if _FINDER.fullmatch(file.name):
            yield from (EditableLink(file, Path(path), name) for name, path in _mapping(file).items())


def _mapping(file: Path) -> dict[str, str]:
    """Return the table of modules that a finder of setuptools' has."""
    try:
        tree = python_parser.parse_python(file.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            try:
                return dict(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                return {}
    return {}


def _json(path: Path) -> dict[str, dict[str, object]]:
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def search_path(leads: Iterable[EditableLink], root: Path, top: Path, links: Path) -> list[str]:
    """Return the directories of the tree *top* in which the modules of *leads* are found first.

    Modules that are found under another name than that of their directory get one in *links*.
    """
    found: dict[Path, None] = {}
    for lead in leads:
        for base, name, path in _search_entries(lead):
            here = top / base.relative_to(root)
            if name is None and (base != root or not _hides_the_library(top)):
                found[here] = None
                continue
            found[links] = None
            _make_links(links, name, top / path.relative_to(root), here)
    return [str(path) for path in found]


def _search_entries(lead: EditableLink) -> Iterator[tuple[Path, str | None, Path]]:
    """Yield the directory to search, the name that it has to be found by where that differs, and its path."""
    if lead.name is not None:
        parts = lead.name.split(".")
        is_there = lead.path.parts[-len(parts) :] == tuple(parts)
        base = lead.path.parents[len(parts) - 1] if is_there else lead.path.parent
        yield base, None if is_there else lead.name, lead.path
    elif lead.path.name.startswith(STRICT_EDITABLE_PREFIX):
        yield from ((base, None, base) for base in dict.fromkeys(_link_sources(lead.path)))
    else:
        yield lead.path, None, lead.path


def _link_sources(directory: Path) -> Iterator[Path]:
    """Yield where the files are that a strict installation has links to, without the path inside of it."""
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory).parts
        if path.is_symlink() and (real := path.resolve()).parts[-len(inside) :] == inside:
            yield real.parents[len(inside) - 1]


def _hides_the_library(top: Path) -> bool:
    """Return whether a directory, searched before Python's own, would hide modules of that."""
    names = {path.stem for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return bool(names & sys.stdlib_module_names)


def _make_links(links: Path, name: str | None, path: Path, here: Path) -> None:
    """Put links to what can be imported into *links*: one module by its *name*, or all but Python's own."""
    wanted = {name.replace(".", "/"): path} if name else _importable(here)
    for at, target in wanted.items():
        suffix = "" if target.is_dir() else ".py"
        link = links / f"{at}{suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target if target.is_dir() else target.with_suffix(".py"))


def _importable(top: Path) -> dict[str, Path]:
    found = [path for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return {path.stem: path for path in found if path.stem not in sys.stdlib_module_names}


def site_packages(environment: Mapping[str, str], line: str, installed: Iterable[Path]) -> list[Path]:
    """Return where the interpreters have their packages that *line* may run."""
    words = [Path(word) for word in re.findall(r"(?:^|[\s='\"])(/[^\s'\";|&]+)", line)]
    path = environment.get("PATH", os.defpath)
    homes = [*installed, *(word.parent.parent for word in words if word.parent.name == "bin")]
    homes += [Path(environment["VIRTUAL_ENV"])] if environment.get("VIRTUAL_ENV") else []
    homes += [Path(word).parent for word in path.split(os.pathsep) if Path(word).name == "bin"]
    found = [
        site
        for home in homes
        if (home / "pyvenv.cfg").exists()
        for site in home.glob("lib/python*/site-packages")
    ]
    programs = dict.fromkeys(shutil.which(name, path=path) for name in ("python3", "python"))
    found += [Path(site) for program in programs if program for site in _site_packages_of(program)]
    return [site for site in dict.fromkeys(found) if site.is_dir()]


@cache
def _site_packages_of(program: str) -> tuple[str, ...]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [program, "-c", _ASK],
            cwd="/",
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        return tuple(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


class Redirection(NamedTuple):
    """How what runs in the tree *top* finds that tree, and never the checkout *root* that it belongs to."""

    root: Path
    top: Path
    installed: Sequence[Path]  # in the checkout
    links: Path  # a directory for modules that are found under another name than that of their file

    def require_redirectable(self, environment: Mapping[str, str], line: str) -> None:
        """Refuse to run *line* where it would import the checkout and cannot be led elsewhere."""
        for site in site_packages(environment, line, self.installed):
            leads = list(editable_links(site, self.root, self.installed))
            if record := unexplained_install(site, self.root, leads):
                raise ImportsUserCheckout(record)
            if leads and _ISOLATED.search(line):
                raise ImportsUserCheckout(
                    leads[0].file, f", and `{line}` ignores where else to look (-I, -E)"
                )

    def environment(self, environment: Mapping[str, str], line: str = "") -> dict[str, str]:
        """Return *environment* with every search path in it leading to the tree."""
        known = site_packages(environment, line, self.installed)
        leads = [lead for site in known for lead in editable_links(site, self.root, self.installed)]
        mapped = {
            name: os.pathsep.join(map(self._mapped, value.split(os.pathsep)))
            for name in ("PATH", "PYTHONPATH", "NODE_PATH")
            if (value := environment.get(name))
        }
        first = [*search_path(leads, self.root, self.top, self.links), mapped.get("PYTHONPATH", "")]
        python = {"PYTHONPATH": os.pathsep.join(filter(None, first))} if any(first) else {}
        return {**environment, **mapped, **python}

    def _mapped(self, word: str) -> str:
        path = Path(word)
        if not path.is_relative_to(self.root) or is_below(path, [*self.installed, self.top]):
            return word
        return str(self.top / path.relative_to(self.root))

    def line(self, line: str) -> str:
        """Return *line* with the paths of the checkout, or of a worktree, as those of the tree."""
        stay = [re.escape(str(path.relative_to(self.root))) for path in self.installed]
        own = rf"{re.escape(str(self.root))}(?:/{re.escape(AREA)}/[^/\s'\";]+)?(?![\w.-])"
        kept = rf"(?!/(?:{'|'.join(stay)})(?![\w.-]))" if stay else ""
        return re.sub(own + kept, lambda _: str(self.top), line)


class ImportsUserCheckout(UnfitRepository):
    """Tests would import the user's checkout."""

    def __init__(self, file: Path, more: str = "") -> None:
        super().__init__(
            f"{file} leads Python to your checkout, so tests would judge that instead of the work{more}; "
            "install bubblewrap for a sandbox, or let `gates.setup` make an environment in each tree, as by "
            "`python3 -m venv .venv && .venv/bin/pip install -e .`"
        )
