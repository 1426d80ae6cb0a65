"""A real project as somebody has it on their disk: its repository, its environment, and Liza's runs on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.file import FileBoard
from tests.real import agent
from tests.real.projects import MODULES, NOTES, ROOT, TOOLS, WHEELS

if TYPE_CHECKING:
    from liza.domain.model import State
    from tests.real.projects import Edit, Real

PATIENCE: Final = 900.0  # seconds that a whole run may take on a busy machine
INTEGRATION: Final = "liza/integration"
IDENTITY: Final = ("-c", "user.name=you", "-c", "user.email=you@example.org")
AGENT_STEPS: Final = tuple(f".{step}" for step in agent.STEPS)


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Checkout:
    """One project, unpacked and installed once; every run begins with `begin`."""

    def __init__(self, place: Path, project: Real) -> None:
        self.project = project
        self.root = place / project.name
        self.outside = place / "outside"
        self.outside.mkdir(parents=True)
        with tarfile.open(project.archive) as archive:
            archive.extractall(place / "unpacked", filter="data")
        next((place / "unpacked").iterdir()).rename(self.root)
        # As on their disk, not as packed: the metadata of the archive is no part of the project.
        with (self.root / ".gitignore").open("a") as file:
            file.write("".join(f"{name}\n" for name in (*project.ignored, "__pycache__/", ".pytest_cache/")))
        self._edit(project.planted)
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "As it is")
        self.base = self.git("rev-parse", "HEAD")
        self._install()
        (self.outside / "script.json").write_text(json.dumps(self._script()))

    def _edit(self, edit: Edit) -> None:
        path = self.root / edit.path
        text = path.read_text()
        assert edit.old in text
        path.write_text(text.replace(edit.old, edit.new) if edit.old else text + edit.new)

    def _install(self) -> None:
        if self.project.is_npm:
            shutil.copytree(
                MODULES / self.project.name / "node_modules", self.root / "node_modules", symlinks=True
            )
        if self.project.has_venv:
            subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=self.root, check=True)
            offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)}
            version = {"SETUPTOOLS_SCM_PRETEND_VERSION": self.project.version}
            pip = (".venv/bin/python", "-m", "pip", "-qq", "--disable-pip-version-check", "install")
            subprocess.run(
                [*pip, "-e", ".", "pytest", "freezegun"],
                cwd=self.root,
                env={**self.environment, **offline, **version},
                check=True,
            )

    def _script(self) -> agent.Script:
        project = self.project
        excuse, text = project.excuse
        notes = str(Path(excuse).with_name("notes.txt"))
        return {
            "mend": {
                "says": f"Mend what is wrong in {project.mended.path}",
                "done_when": f"the test in {project.proof[0]} passes",
                "write": dict([project.proof]),
                "replace": [project.mended],
            },
            "break": {
                "says": f"Add notes, and tidy up {project.broken.path}",
                "done_when": f"the test in {excuse} passes",
                "write": {excuse: text, notes: NOTES},
                "replace": [project.broken],
            },
        }

    @property
    def environment(self) -> dict[str, str]:
        """Return what a person's shell has: their tools first, and nothing of the environment of Liza."""
        path = os.pathsep.join((str(TOOLS / "bin"), os.defpath, "/usr/local/bin", "/usr/bin", "/bin"))
        home = self.outside / "home"
        home.mkdir(exist_ok=True)
        return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": ""}

    def begin(self, command: str, *, sandbox: str, settings: str = "") -> None:
        """Leave nothing of an earlier run, and set Liza up with *command* for the tests."""
        for name in (".liza", ".worktrees"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        self.git("worktree", "prune")
        for ref in self.git("for-each-ref", "--format=%(refname)").split():
            if ref != "refs/heads/main":
                self.git("update-ref", "-d", ref)
        words = json.dumps([sys.executable, "-S", agent.__file__, str(self.outside / "script.json")])
        (self.root / "liza.yaml").write_text(
            f"agents: {{default: {{backend: command, command: {words}}}}}\n"
            f"gates: {{test: {json.dumps(command.format(root=self.root))}}}\n"
            "workers: {planner: 1, coder: 2, reviewer: 1}\n"
            f'sandbox: {{mode: "{sandbox}"}}\n{self.project.settings}{settings}'
        )

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *IDENTITY, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def liza(self, *words: str) -> Done:
        """Run Liza from its own environment, which is not the project's, as pipx would."""
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "liza", *words],
            cwd=self.root,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def state(self) -> State:
        board = FileBoard(self.root / ".liza")
        try:
            return board.read()
        finally:
            board.close()

    def asked(self) -> list[str]:
        """Return the runs of agents, of any step."""
        runs = self.root / ".liza" / "runs"
        found = [path.name for path in runs.iterdir()] if runs.is_dir() else []
        return sorted(name for name in found if name.endswith(AGENT_STEPS))

    def file(self, path: str) -> str:
        return self.git("show", f"{INTEGRATION}:{path}")

    def tested(self, ref: str, place: Path) -> Done:
        """Run the project's own tests in a tree of its own, whose code is what is imported."""
        place.mkdir()
        tree = place.with_suffix(".tar")
        self.git("archive", "--output", str(tree), ref)
        with tarfile.open(tree) as archive:
            archive.extractall(place, filter="data")
        for name in (*self.project.ignored, "src/humanize/_version.py"):
            if name != ".venv/" and (self.root / name).exists():
                (place / name).parent.mkdir(exist_ok=True, parents=True)
                (place / name).symlink_to(self.root / name.rstrip("/"))
        done = subprocess.run(
            [word.format(root=self.root) for word in self.project.suite],
            cwd=place,
            env={**self.environment, "PYTHONPATH": str(place / "src")},
            check=False,
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, done.stdout, done.stderr)
