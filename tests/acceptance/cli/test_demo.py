"""The demo is the first thing a stranger runs: it has to show what it says it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.board.protocol import Board
from liza.cli.demo import OWN_SETTINGS, demo_of, demo_summary, prepare_repository, run_demo
from liza.domain.changes import violations
from liza.domain.config import Config
from liza.domain.cycle_archive import ARCHIVE
from liza.domain.dialects import SIGNAL_PATTERN
from liza.domain.model import GoalStatus, Status
from liza.domain.yaml_parse import parse_yaml
from liza.errors import LizaError, UsageError
from liza.repo.command import git
from liza.repo.repository import Repository
from liza.repo.verify import verify_history
from tests.support.local_forge import ForgeFolder


def events_of(home: Path) -> list[str]:
    return [line for line in (home / "journal.jsonl").read_text().splitlines() if '"event":' in line]


class Show(NamedTuple):
    root: Path
    said: list[str]  # what it told while it ran
    before: tuple[str, str]  # of the user's checkout
    board: Board


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """One whole demo, which all here only look at."""
    root, said = tmp_path_factory.mktemp("show") / "demo", list[str]()
    board = prepare_repository(root, "liza", pace="0.2")
    before = checkout(root)
    with pytest.MonkeyPatch.context() as patch:
        # The python3 of the demo's tests is this one: a shim of a version manager is ten times slower.
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        assert run_demo(board, "liza", said.append) == 0
    yield Show(root, said, before, board)
    board.close()


def checkout(root: Path) -> tuple[str, str]:
    return git("status", "--porcelain", cwd=root), git("rev-parse", "HEAD", cwd=root)


def test_the_demo_rejects_once_resolves_a_conflict_pauses_and_merges_all(show: Show) -> None:
    state = show.board.read()
    assert violations(state) == []
    assert state.goal.status is GoalStatus.COMPLETE
    assert {task.status for task in state.tasks.values()} == {Status.MERGED}
    assert len(state.tasks) == 5
    events = "\n".join(events_of(show.board.home))
    assert events.count('"event":"reject"') == 1
    assert '"event":"fail_integration"' in events
    assert [line.split()[0] for line in show.said] == ["PAUSE", "PAUSE"]
    assert verify_history(Repository.around(show.root), "liza/integration") == []
    assert checkout(show.root) == show.before
    assert "Merge command: Greet from the command line" in demo_summary(show.board, "liza")


def test_every_commit_of_the_demo_is_green_and_the_program_works(show: Show, tmp_path: Path) -> None:
    """The merged tree is what was tested, so no commit of integration can be red."""
    chain = git("rev-list", "--first-parent", "--merges", "liza/integration", cwd=show.root).split()
    for commit in chain:
        out = tmp_path / commit
        git("worktree", "add", "--detach", "--quiet", str(out), commit, cwd=show.root)
        tests = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"], cwd=out, capture_output=True, check=False
        )
        assert tests.returncode == 0, tests.stderr
    words = [sys.executable, "-m", "greeter", "Ada"]
    done = subprocess.run(words, cwd=tmp_path / chain[0], capture_output=True, text=True, check=True)
    assert done.stdout == "Hello, Ada!\n"


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        prepare_repository(tmp_path, "liza")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(UsageError, match="mine is no directory"):
        prepare_repository(tmp_path / "mine", "liza")


def test_a_directory_that_cannot_be_made_is_told_in_a_sentence() -> None:
    with pytest.raises(LizaError, match=r"^cannot make the demo in /proc/demo: .*; nothing was changed$"):
        prepare_repository(Path("/proc/demo"), "liza")


@pytest.mark.torture
def test_the_demo_of_a_cycle_is_judged_twice_approved_by_a_person_and_archived(tmp_path: Path) -> None:
    board, said = prepare_repository(tmp_path / "demo", "cycle", pace="0"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        assert run_demo(board, "cycle", said.append) == 0

    assert said[0] == "A person types: liza task accept goal-1"
    assert board.read().status_of("goal-1") is Status.MERGED
    (archive,) = (tmp_path / "demo" / ARCHIVE).iterdir()
    words = [found[1] for found in SIGNAL_PATTERN.findall(archive.read_text())]
    assert [words.count(one) for one in ("INSUFFICIENT", "SUCCESS", "APPROVED")] == [1, 2, 1]
    board.close()


def test_a_workflow_without_a_demo_is_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no demo of 'waterfall'; use one of .*liza"):
        prepare_repository(tmp_path / "new", "waterfall")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("workflow", ["liza", "phased", "cycle", "experiment"])
def test_a_demo_ends_with_the_settings_of_its_own_workflow(workflow: str) -> None:
    said = parse_yaml(demo_of(workflow).settings + OWN_SETTINGS).data
    assert isinstance(said, dict)
    assert Config.model_validate(said).workflow == workflow


def test_the_demo_leaves_a_report_for_people_and_for_a_pull_request(show: Show) -> None:
    page, text = ((show.board.home / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    assert text.count("`git show ") == 5
    assert "The goal is complete: 5 of 5 tasks done" in text
    assert "<svg" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.torture
def test_the_demo_of_issues_ends_in_pull_requests_that_are_ready(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    board = prepare_repository(root, "phased", pace="0.1")
    before = checkout(root)
    assert run_demo(board, "phased", lambda _: None) == 0

    tasks = board.read().tasks
    assert {name: task.status for name, task in tasks.items()} == dict.fromkeys(tasks, Status.COMPLETE)
    assert ForgeFolder(root / "tracker").pulls() == {
        "feature/issue-1-greet-somebody-by-name": False,
        "feature/issue-2-say-goodbye": False,
    }
    assert checkout(root) == before
    assert "Nothing was merged" in demo_summary(board, "phased")
    board.close()
