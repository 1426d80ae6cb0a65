"""Projects with a package that is installed from its checkout, and gates that run on trees of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from typing import TYPE_CHECKING, Any, Final

from liza.daemon.project_sandbox import ProjectSandbox
from liza.domain.config import Config, Gates, SandboxConfig
from liza.gates import context
from liza.gates.context import GateContext
from liza.gates.registry import run_gate
from liza.system import process
from liza.system.run_control import RunControl, RunLimits
from liza.system.sandbox.bubblewrap import RunPurpose, Tenant
from tests.support.gate_cases import GateCase, a_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from liza.domain.model import Verdict

RIGHT: Final = "def add(a, b):\n    return a + b\n"
WRONG: Final = "def add(a, b):\n    return a - b\n"
TEST: Final = (
    "import unittest\nfrom pk import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        assert add(2, 2) == 4\n"
)
PYPROJECT: Final = (
    "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
    "[project]\nname = 'pk'\nversion = '1.0'\n"
)
# What setuptools writes, but for the code that searches: that is what it does with the table.
FINDER: Final = """\
from __future__ import annotations
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

MAPPING: dict[str, str] = {mapping!r}
NAMESPACES: dict[str, list[str]] = {{}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            init = Path(MAPPING[fullname], "__init__.py")
            return spec_from_file_location(fullname, init)
        parent, _, child = fullname.rpartition(".")
        if parent and parent in MAPPING:
            return PathFinder.find_spec(fullname, path=[MAPPING[parent]])
        return None


def install():
    if not any(finder == _EditableFinder for finder in sys.meta_path):
        sys.meta_path.append(_EditableFinder)
"""


def make_venv(path: Path) -> Path:
    """Make a virtual environment with nothing in it; return where packages go."""
    venv.create(path, with_pip=False, symlinks=True)
    return next(path.glob("lib/python*/site-packages"))


def by_path(root: Path, site: Path) -> None:
    """Install as setuptools does for a `src` layout: a file of a path."""
    (site / "__editable__.pk-1.0.pth").write_text(f"{root}/src")
    _record(root, site)


def by_finder(root: Path, site: Path) -> None:
    """Install as setuptools does for a package that is named: a finder with a table."""
    (site / "__editable___pk_1_0_finder.py").write_text(FINDER.format(mapping={"pk": f"{root}/src/pk"}))
    line = "import __editable___pk_1_0_finder; __editable___pk_1_0_finder.install()"
    (site / "__editable__.pk-1.0.pth").write_text(line)
    _record(root, site)


def by_links(root: Path, site: Path) -> None:
    """Install as setuptools does in its strict mode: a directory of links to single files."""
    links = root / "build" / "__editable__.pk-1.0-py3-none-any" / "pk"
    links.mkdir(parents=True)
    (links / "__init__.py").symlink_to(root / "src" / "pk" / "__init__.py")
    (site / "__editable__.pk-1.0.pth").write_text(str(links.parent))
    _record(root, site)


def by_develop(root: Path, site: Path) -> None:
    """Install for real, with what this interpreter has of setuptools; older projects are installed so."""
    code = "import setuptools; setuptools.setup()"
    words = ("-q", "develop", "--no-deps", "--install-dir", str(site))
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code, *words], cwd=root, env=environment, check=True)


def _record(root: Path, site: Path) -> None:
    folder = site / "pk-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pk\nVersion: 1.0\n")
    told = {"dir_info": {"editable": True}, "url": root.as_uri()}
    (folder / "direct_url.json").write_text(json.dumps(told))


INSTALLERS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "path": by_path,
    "finder": by_finder,
    "links": by_links,
    "develop": by_develop,
}


class InstalledProject(GateCase):
    """A package in `src`, installed into the checkout's own environment, and a guard around its gates."""

    def __init__(self, place: Path, install: str = "path", **sandbox: Any) -> None:  # noqa: ANN401 - settings
        super().__init__(place)
        self.root = self.home.directory
        self.begin(package(WRONG))
        INSTALLERS[install](self.root, make_venv(self.root / ".venv"))
        self.base = self.home.commit()
        self.liza = self.root / ".liza"
        self.guard = ProjectSandbox(self.liza, self.home.repository, SandboxConfig.model_validate(sandbox))

    def run(self, line: str, cwd: Path, name: str) -> context.CommandResult:
        self.ran.append((name, line))
        folder = self.runs / f"{name}.{len(self.ran)}"
        job = context.shell_job(line, cwd, folder, RunLimits(total=60))
        with self.guard.wrap(job, Tenant("t1.gate-coder-1", doing=RunPurpose.COMMAND)) as wrapped:
            return context.command_result(process.run_job(wrapped, RunControl()), folder.name)

    def tried(self, head: str, line: str, checkout: str) -> Verdict:
        """Judge *head* by the test command *line*, while the user has *checkout*, its base, checked out."""
        self.home.git("checkout", "-q", checkout)
        with self._case_of(head, line, checkout) as case:
            return run_gate("test", "command", {"command": "test"}, case)

    def ran_on(self, commit: str, line: str) -> context.CommandResult:
        """Run *line* on *commit*, as a gate does."""
        with self._case_of(commit, line, commit) as case:
            return case.run_on(case.tree, "test", line).ran

    def _case_of(self, head: str, line: str, base: str) -> GateContext:
        return GateContext(
            task=a_task(),
            repository=self.home.repository,
            base=base,
            head=head,
            config=Config(gates=Gates(test=line)),
            run=self.run,
        )


def package(code: str, test: str = TEST) -> Mapping[str, str]:
    return {
        "pyproject.toml": PYPROJECT,
        "src/pk/__init__.py": code,
        "tests/test_pk.py": test,
        ".gitignore": ".venv/\nbuild/\n*.egg-info/\n__pycache__/\n",
    }
