"""Real projects with their own tests, by the command that a person would write, in the sandbox and without.

For each a right fix is merged, a breaking change is refused, and a command that cannot work is told in a
sentence before any agent runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from liza.domain.model import Status
from liza.system.sandbox.bubblewrap import sandbox_obstacle
from tests.real.checkout import INTEGRATION, Checkout
from tests.real.projects import PROJECTS, TOOLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.projects import Real

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (TOOLS / "bin").is_dir(), reason="the projects are not there: `make test-real` fetches them"
    ),
]

SANDBOXES: Final = ("require", "off")
WAYS: Final = [
    pytest.param(
        project, command, sandbox,
        id=f"{project.name}-{command.format(root='')}-{sandbox}",
        marks=pytest.mark.xdist_group(project.name),
    )
    for project in PROJECTS for command in project.commands for sandbox in SANDBOXES
]  # fmt: skip
WRONG: Final = [
    pytest.param(project, id=project.name, marks=pytest.mark.xdist_group(project.name))
    for project in PROJECTS
]


@pytest.fixture(scope="session")
def checkouts() -> dict[str, Checkout]:
    return {}


@pytest.fixture
def checkout(
    project: Real, checkouts: dict[str, Checkout], tmp_path_factory: pytest.TempPathFactory
) -> Checkout:
    """Return the project, unpacked and installed once for all of its tests."""
    if project.name not in checkouts:
        checkouts[project.name] = Checkout(tmp_path_factory.mktemp(project.name), project)
    return checkouts[project.name]


def need(sandbox: str) -> None:
    if sandbox == "require" and (why := sandbox_obstacle()):
        pytest.skip(f"the sandbox is not tested: {why}")


@pytest.mark.parametrize(("project", "command", "sandbox"), WAYS)
def test_the_right_fix_is_merged_and_the_breaking_change_refused(
    checkout: Checkout, project: Real, command: str, sandbox: str, tmp_path: Path
) -> None:
    need(sandbox)
    checkout.begin(command, sandbox=sandbox)
    before = checkout.git("status", "--porcelain")
    assert checkout.liza("init", "Put the project right").code == 0

    done = checkout.liza("run", "--until-idle")

    state = checkout.state()
    shown = f"{done.out}\n{done.err}"
    assert done.code == 3, shown
    assert state.status_of("mend") is Status.MERGED, shown
    assert state.task("mend").iteration == 1, shown
    assert state.status_of("break") is Status.BLOCKED, shown
    assert project.mended.new.strip() in checkout.file(project.mended.path)
    assert project.broken.old in checkout.file(project.broken.path)
    tested = checkout.tested(INTEGRATION, tmp_path / "merged")
    assert tested.code == 0, tested.out + tested.err
    verified = checkout.liza("verify")
    assert verified.code == 0, verified
    assert checkout.git("status", "--porcelain") == before
    assert checkout.git("rev-parse", "main") == checkout.base


@pytest.mark.parametrize("project", WRONG)
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_wrong_command_is_told_before_any_agent_runs(
    checkout: Checkout, project: Real, sandbox: str
) -> None:
    need(sandbox)
    checkout.begin(project.wrong, sandbox=sandbox)
    assert checkout.liza("init", "Put the project right").code == 0

    done = checkout.liza("run", "--until-idle")

    wrong = project.wrong.format(root=checkout.root)
    assert done.code not in (0, 4), done
    assert checkout.asked() == []
    assert "Traceback" not in done.out + done.err
    said = [line for line in (done.out + done.err).splitlines() if wrong in line]
    assert said, done
