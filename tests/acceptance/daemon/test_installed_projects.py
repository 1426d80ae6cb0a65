"""A run over a package that is installed from the checkout: what breaks it is refused, a fix is merged."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.model import Status
from tests.support.installed_projects import PYPROJECT, by_path, make_venv
from tests.support.repos import Home
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 250.0  # seconds for two tasks on a busy machine
CODE: Final = "def double(n):\n    return n + 2\n\n\ndef half(n):\n    return n // 2\n"
HEAD: Final = (
    "import pathlib\nimport unittest\n\nfrom pk import double, half\n\n\nclass T(unittest.TestCase):\n"
)
OLD: Final = f"{HEAD}    def test_half(self):\n        self.assertEqual(half(6), 3)\n"
MENDS: Final = {
    "src/pk/__init__.py": CODE.replace("n + 2", "n * 2"),
    "tests/test_double.py": f"{HEAD}    def test_double(self):\n        self.assertEqual(double(6), 12)\n",
}
# Its own test is red without the work and green with it, and says nothing about the code.
BREAKS: Final = {
    "src/pk/__init__.py": CODE.replace("n // 2", "n // 3"),
    "new.txt": "new\n",
    "tests/test_new.py": f"{HEAD}    def test_new(self):\n"
    "        self.assertTrue(pathlib.Path('new.txt').exists())\n",
}


@pytest.mark.parametrize("mode", ["off", pytest.param("require", marks=pytest.mark.torture)])
def test_what_breaks_the_work_is_refused_and_the_right_fix_is_merged(tmp_path: Path, mode: str) -> None:
    """The user's own checkout, which an editable installation leads to, would say the opposite."""
    if mode == "require":
        skip_without_sandbox()
    home = Home(tmp_path / "project")
    home.commit(
        {
            "pyproject.toml": PYPROJECT,
            ".gitignore": ".venv/\n__pycache__/\n",
            "src/pk/__init__.py": CODE,
            "tests/test_half.py": OLD,
        }
    )
    by_path(home.directory, make_venv(home.directory / ".venv"))
    script = {
        f"implement {name}": {"write": files, "answer": {"status": "done", "summary": name}}
        for name, files in (("mends", MENDS), ("breaks", BREAKS))
    }
    gates = {"test": f"{home.directory}/.venv/bin/python -m unittest discover -q -s tests"}
    team = ScriptedTeam(tmp_path, script, gates=gates, sandbox={"mode": mode}, workers={"coder": 2})
    team.task("mends")
    team.task("breaks")

    words = [sys.executable, "-m", "liza", "-C", str(home.directory), "run", "--until-idle"]
    subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)

    assert team.status("mends") is Status.MERGED, team.state.task("mends").history[-1]
    assert team.status("breaks") is Status.BLOCKED
    assert team.merged("src/pk/__init__.py") == MENDS["src/pk/__init__.py"].strip()
    assert "new.txt" not in home.git("ls-tree", "--name-only", team.ref)
