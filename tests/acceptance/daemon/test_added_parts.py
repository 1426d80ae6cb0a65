"""A package that adds a gate, an effect, an agent backend, a channel and a board engine; a run with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from liza.board.protocol import create_board_at, has_board, open_board, validate_board
from liza.domain.model import Status
from tests.support import scripted_agent
from tests.support.boards import noted
from tests.support.sample_tasks import board as story
from tests.support.shell import ROOT, Done, Shell

if TYPE_CHECKING:
    from pathlib import Path

SITE: Final = ROOT / "tests" / "sample_package"
OURS: Final = (ROOT / "liza/workflow/liza.yaml").read_text()
GATE: Final = "      - {id: words, kind: words, forbidden: FIXME}\n      - {id: refs,"
EFFECT: Final = (
    "      - {id: publish, kind: effect, effect: publish, file: FILE}\n      - {id: merge, kind: effect"
)


class Project(NamedTuple):
    root: Path

    def settings(self, **changes: object) -> None:
        """Write liza.yaml and the workflow that it names, which use all that the package adds."""
        command = [
            str(self.root.parent / "steps"),
            sys.executable,
            "-S",
            scripted_agent.__file__,
            str(self.root.parent / "script"),
        ]
        settings = {
            "workflow": "flows/ours.yaml",
            "agents": {"default": {"backend": "sample", "command": command}},
            "notify": {"channels": {"file": {"file": str(self.root.parent / "told")}}},
            "workers": {"coder": 1},
            "sandbox": {"mode": "off"},
            **changes,
        }
        (self.root / "liza.yaml").write_text(json.dumps(settings))

    def workflow(self, gate: str = GATE, effect: str = EFFECT) -> None:
        (self.root / "flows").mkdir(exist_ok=True)
        text = OURS.replace("      - {id: refs,", gate, 1).replace(
            "      - {id: merge, kind: effect", effect, 1
        )
        text = text.replace("FILE", str(self.root.parent / "published"))
        (self.root / "flows/ours.yaml").write_text(text.replace("name: liza", "name: ours", 1))

    def __call__(self, *words: str, site: str = f"{os.pathsep}{SITE}") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "liza", *words],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{site}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def init(self, site: Path | None = SITE) -> Done:
        """Type `liza init` where the packages in *site* are installed."""
        with pytest.MonkeyPatch.context() as patch:
            if site:
                patch.syspath_prepend(site)
            return Shell(self.root)("init", "Make a file")

    def lines(self, name: str) -> list[str]:
        return (self.root.parent / name).read_text().splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "main"), (*identity, "commit", "-q", "--allow-empty", "-m", "begin")):
        subprocess.run(["git", *words], cwd=root, check=True)
    bad = {"write": {"t1.txt": "FIXME\n"}, "answer": {"status": "done", "summary": "Add t1"}}
    good = {"write": {"t1.txt": "t1\n"}, "answer": {"status": "done", "summary": "Add t1 well"}}
    scripted_agent.save({"implement t1 1": bad, "implement t1 2": good}, tmp_path / "script")
    found = Project(root)
    found.settings()
    found.workflow()
    return found


def test_a_run_uses_one_of_each(project: Project) -> None:
    """The gate sends bad work back, the effect comes before the merge, the channel tells people."""
    made = project("init", "Make a file")
    assert made.returncode == 0, made.stderr

    done = project("run", "--until-idle")

    assert done.returncode == 0, (done.stdout, done.stderr)
    board = open_board(project.root / ".liza")
    task = board.read().task("t1")
    assert task.status is Status.MERGED
    said = [fact for entry in board.entries() for fact in _reasons(entry.put)]
    assert "a forbidden word is in it" in said
    assert {verdict.gate for verdict in task.verdicts} >= {"words"}
    assert project.lines("published") == ["published t1"]
    assert {"asked for plan", "asked for implement", "asked for review"} <= set(project.lines("steps"))
    assert any(line.startswith("project: the goal is COMPLETE") for line in project.lines("told"))


def _reasons(put: dict[str, object]) -> list[str]:
    tasks = put.get("tasks", {})
    rows = tasks.values() if isinstance(tasks, dict) else ()
    return [str(verdict.get("reason")) for row in rows for verdict in row.get("verdicts") or ()]


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            "kind: words",
            "kind: wrods",
            "'wrods' is not one of the known kinds of gate; did you mean 'words'?",
        ),
        ("effect: publish", "effect: publsh", "there is no effect 'publsh'; did you mean 'publish'?"),
        ("forbidden: ", "forbiden: ", "'forbiden' is not a key that belongs here; did you mean 'forbidden'?"),
        (", file: FILE", "", "gates[1].file: it is missing; add it"),
    ],
)
def test_what_is_misspelt_is_refused_with_what_is_known(
    project: Project, right: str, wrong: str, sentence: str
) -> None:
    project.workflow(GATE.replace(right, wrong), EFFECT.replace(right, wrong))

    done = project.init()

    assert done.code == 2
    assert sentence in done.err


def test_an_effect_that_shows_work_is_not_performed_before_somebody_let_it_pass(project: Project) -> None:
    """Nobody knows what a package's effect does, so it is held to what holds for a merge."""
    project.workflow(
        GATE.replace(
            "- {id: refs,", "- {id: early, kind: effect, effect: publish, file: FILE}\n      - {id: refs,"
        )
    )

    done = project.init()

    assert done.code == 2
    assert "publish would happen to work that nobody let pass" in done.err


def test_an_effect_after_the_merge_is_refused(project: Project) -> None:
    project.workflow(
        effect="      - {id: merge, kind: effect, effect: merge}\n"
        + EFFECT.splitlines()[0]
        + "\n      - {id: more, kind: effect"
    )

    done = project.init()

    assert done.code == 2
    assert "it comes after the merge" in done.err


def test_without_the_package_each_is_one_sentence(project: Project) -> None:
    """Whoever clones the project and has not installed it is told what is missing."""
    done = project.init(site=None)
    assert done.code == 2
    assert "'words' is not one of the known kinds of gate" in done.err

    project.settings(workflow="liza")
    done = project.init(site=None)
    assert done.code == 2
    assert "agents.default: there is no backend 'sample'; known: command, replay, litellm, " in done.err

    project.settings(workflow="liza", agents={})
    done = project.init(site=None)
    assert done.code == 2
    assert "there is no notification channel 'file'; known: command, webhook" in done.err


def test_nobody_who_only_looks_loads_the_package(project: Project) -> None:
    """A package that takes long to import, or is broken, costs nobody who does not use it."""
    assert project("init", "Make a file").returncode == 0
    broken = project.root.parent / "broken"
    broken.mkdir()
    (broken / "liza_sample.py").write_text("raise SystemExit('nobody asked for me')\n")
    for name in ("METADATA", "entry_points.txt"):
        path = broken / "liza_sample-1.0.dist-info" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text((SITE / "liza_sample-1.0.dist-info" / name).read_text())

    for words in (("--help",), ("status",), ("log",)):
        done = project(*words, site=f"{os.pathsep}{broken}")
        assert (done.returncode, done.stderr) == (0, ""), words


def test_a_board_of_another_engine_is_opened_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SITE)
    location = f"sample://{tmp_path / 'boards'}"
    assert not has_board(location)
    board = create_board_at(location, story())
    board.update(noted("hello"))
    assert open_board(location).read().revision == validate_board(location).revision == 2
