"""Which code a gate and an agent see: that of the tree, and never that of the user's checkout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from liza.domain.model import Outcome, Status
from liza.errors import UnfitRepository
from tests.support.few import few
from tests.support.installed_projects import FINDER, INSTALLERS, RIGHT, InstalledProject, package
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

INSTALLATIONS = {f"{name} {mode}": (name, mode) for name in INSTALLERS for mode in ("require", "off")}
RELATIVE = ".venv/bin/python -m unittest discover -q -s tests"


@pytest.mark.parametrize(
    ("install", "mode"), few(INSTALLATIONS, "path require", "finder off", "links require")
)
def test_a_gate_tests_the_work_and_not_the_checkout(tmp_path: Path, install: str, mode: str) -> None:
    """By a path of the environment, relative or absolute: red where the tree is wrong, green where right."""
    if mode == "require":
        skip_without_sandbox()
    ground = InstalledProject(tmp_path, install, mode=mode)
    wrong, right = ground.base, ground.commit(package(RIGHT))

    for line in (RELATIVE, f"{ground.root}/{RELATIVE}"):
        assert ground.tried(right, line, checkout=wrong).outcome is Outcome.PASS, line
        red = ground.tried(wrong, line, checkout=right)
        assert red.outcome is Outcome.REVISE, line
        assert "AssertionError" in str(red.evidence), line


class TestWithoutASandbox:
    @pytest.fixture
    def ground(self, tmp_path: Path) -> InstalledProject:
        return InstalledProject(tmp_path, mode="off")

    def test_paths_of_the_checkout_in_a_command_mean_the_tree(self, ground: InstalledProject) -> None:
        """Also where the command goes there first, or names a worktree as its agent saw it."""
        ground.commit({"here.txt": "the tree's"})
        head = ground.home.git("rev-parse", "HEAD")
        root = ground.root
        names = f"here.txt {root}/here.txt '{root}/.worktrees/t1/here.txt'"
        line = f"cd {root} && cat {names} && test -d {root}/.venv"

        verdict = ground.tried(head, line, checkout=ground.base)

        assert verdict.evidence
        assert verdict.evidence.tail == "the tree's" * 3, verdict

    def test_variables_that_lead_to_the_checkout_lead_to_the_tree(
        self, ground: InstalledProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a person set for their own shell is inherited, and would decide about the work."""
        right = ground.commit(package(RIGHT))
        monkeypatch.setenv("PYTHONPATH", f"{ground.root}/src")

        assert ground.tried(right, RELATIVE, checkout=ground.base).outcome is Outcome.PASS

    @pytest.mark.parametrize(
        ("mapping", "modules"),
        [
            ({"pk": "pk"}, {"pk/__init__.py": RIGHT, "queue.py": "raise SystemExit('not the library')\n"}),
            ({"pk": "lib/other"}, {"lib/other/__init__.py": RIGHT}),
            ({"pk": "code"}, {"code.py": RIGHT}),
        ],
    )
    def test_a_package_is_found_wherever_it_is(
        self, tmp_path: Path, mapping: dict[str, str], modules: dict[str, str]
    ) -> None:
        """Beside files that would hide Python's own, under another name, as a single module."""
        ground = InstalledProject(tmp_path, mode="off")
        site = next(ground.root.glob(".venv/lib/python*/site-packages"))
        (site / "__editable__.pk-1.0.pth").unlink()
        places = {name: f"{ground.root}/{path}" for name, path in mapping.items()}
        (site / "__editable___pk_1_0_finder.py").write_text(FINDER.format(mapping=places))
        right = ground.commit(modules)
        line = ".venv/bin/python -P -c 'import queue, pk; assert pk.add(2, 2) == 4'"

        assert ground.tried(right, line, checkout=ground.base).outcome is Outcome.PASS

    @pytest.mark.parametrize("line", [".venv/bin/python -I -m pytest", "cd src; .venv/bin/python3 -vE x.py"])
    def test_what_cannot_be_led_elsewhere_is_refused(self, ground: InstalledProject, line: str) -> None:
        """In one sentence that names the file and what to do."""
        with pytest.raises(UnfitRepository, match=r"__editable__.pk-1.0.pth leads Python.*`gates.setup`"):
            ground.tried(ground.base, line, checkout=ground.base)

    def test_an_installation_that_nobody_can_read_is_refused(self, ground: InstalledProject) -> None:
        """A build tool with a loader of its own says only that it is editable."""
        site = next(ground.root.glob(".venv/lib/python*/site-packages"))
        (site / "__editable__.pk-1.0.pth").write_text("import _pk_loader")

        with pytest.raises(UnfitRepository, match=r"direct_url.json leads Python to your checkout"):
            ground.tried(ground.base, RELATIVE, checkout=ground.base)

    def test_links_between_the_packages_of_a_project_lead_to_the_tree(self, ground: InstalledProject) -> None:
        """As npm makes them for workspaces; their programs and what others made are found, too."""
        root, modules = ground.root, ground.root / "node_modules"
        for name in ("@us", ".bin", "lib"):
            (modules / name).mkdir(parents=True)
        (modules / "lib" / "index.js").write_text("lib ")
        (modules / "@us" / "core").symlink_to("../../packages/core")
        (modules / ".bin" / "core").symlink_to("../@us/core/cli.js")
        ground.home.write(".gitignore", "/node_modules/\n")
        wrong = ground.commit({"packages/core/cli.js": "wrong "})
        right = ground.commit({"packages/core/cli.js": "right "})
        names = "node_modules/lib/index.js node_modules/@us/core/cli.js node_modules/.bin/core"
        verdict = ground.tried(right, f"cat {names}; git status --porcelain", checkout=wrong)

        assert verdict.evidence
        assert verdict.evidence.tail == "lib right right"
        assert not list(root.glob(".worktrees/.pool/*/node_modules"))


PYTHON = f"{sys.base_prefix}/bin/python3"
PLANT = (
    f"{PYTHON} -c 'import os, site; p = site.getusersitepackages(); os.makedirs(p, exist_ok=True); "
    'open(p + "/usercustomize.py", "w").write("import os; os._exit(0)")\'; '
    "echo script-shell=/bin/true > ~/.npmrc; mkdir -p ~/.cargo; echo x > ~/.cargo/config.toml; exit 1"
)


@pytest.mark.parametrize("mode", ["require", "off"])
class TestTheHomeOfAGate:
    @pytest.fixture(autouse=True)
    def _is_possible(self, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if mode == "require":
            skip_without_sandbox()
        (tmp_path / "person").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "person"))

    def test_what_one_attempt_plants_there_is_not_found_by_the_next(self, tmp_path: Path, mode: str) -> None:
        """Else a plain wrong attempt is green, since an earlier one prepared the interpreter for it."""
        ground = InstalledProject(tmp_path, mode=mode)
        planted = ground.ran_on(ground.base, PLANT)
        ran = ground.ran_on(ground.base, f"cat ~/.npmrc ~/.cargo/config.toml; {PYTHON} -c 'assert False'")

        assert "Traceback" not in planted.said
        assert "AssertionError" in ran.said
        assert "script-shell" not in ran.said
        assert list((tmp_path / "person").iterdir()) == []

    def test_what_setup_left_there_is_as_it_left_it(self, tmp_path: Path, mode: str) -> None:
        """Each command finds it, and none finds what another did to it."""
        lint = "cat ~/tool; echo spoiled > ~/tool; touch ~/more"
        test = 'test "$(cat ~/tool)" = good && test ! -e ~/more'
        gates = {"setup": "test ! -e ~/tool && echo good > ~/tool", "lint": lint, "test": test}
        team = ScriptedTeam(tmp_path, sandbox={"mode": mode}, gates=gates)
        team.task()

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED, team.state.task("t1").history[-1]
        assert not list(team.home.glob("sandboxes/*.gate-*/home/tool"))
