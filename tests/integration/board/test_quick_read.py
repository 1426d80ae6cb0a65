"""A look at the board that loads and locks nothing more than it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest

from liza.board import journal
from liza.board.file import FileBoard
from liza.board.journal import JournalPosition, replay_entries
from liza.board.quick_read import read_quickly
from liza.cli.views.headline import headline_of
from liza.cli.views.status import status_text
from liza.domain.changes import HUMAN, Change, add_note
from liza.domain.model import CostTotals, State, Status
from tests.support.sample_tasks import NOW, board, new_task, task_in
from tests.support.shell import ROOT, Shell


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    return FileBoard.create(tmp_path / ".liza", board(new_task("t1"), new_task("t2")))


def test_it_is_the_board(ours: FileBoard) -> None:
    """Whoever looks sees what whoever writes has written."""
    ours.update(add_note("hello", about="t1", by=HUMAN, at=NOW))
    spent = CostTotals(runs=1, reported=0.5)
    ours.update(Change("x", "y", lambda state: state.replace(spend=state.spend.replace(total=spent))))

    assert read_quickly(ours.home) == ours.read()


@pytest.fixture
def large(tmp_path: Path) -> FileBoard:
    """A board with a snapshot, with a task in every status and many that wait."""
    told = {number: task_in(status, name=f"is-{number}") for number, status in enumerate(Status)}
    by_holder = {task.lease.holder if task.lease else task.id: task for task in told.values()}  # one each
    tasks = [*by_holder.values(), *(new_task(f"t{number}") for number in range(200))]
    ours = FileBoard.create(tmp_path / ".liza", board(*tasks))
    while not (ours.home / journal.SNAPSHOT).exists():
        ours.update(add_note("x" * 65536, about=None, by=HUMAN, at=NOW))
    return ours


def test_a_look_reads_of_a_large_board_only_the_tasks_it_shows_more_of(large: FileBoard) -> None:
    """What a look costs does not grow with all that is there: tasks that wait are known by the index."""
    seen = read_quickly(large.home)
    assert seen
    assert status_text(seen, {}) == status_text(large.read(), {})
    assert headline_of(seen, {}, is_running=False) == headline_of(large.read(), {}, is_running=False)

    read = [name for name, task in seen.tasks.items() if "created" in task.__dict__]
    assert not [name for name in read if name.startswith("t")]
    assert [seen.tasks[name].created for name in large.read().tasks] == [
        task.created for task in large.read().tasks.values()
    ]
    assert [task.history for task in seen.tasks.values()] == [
        task.history for task in large.read().tasks.values()
    ]


def test_what_came_after_the_snapshot_is_seen_as_well(large: FileBoard) -> None:
    def change(state: State) -> State:
        task = state.task("t7")
        return state.with_task(task.replace(priority=9, description="do it at once"))

    large.update(Change("x", "hurry", change))

    seen = read_quickly(large.home)
    assert seen
    assert seen.task("t7") == large.read().task("t7")
    assert status_text(seen, {}) == status_text(large.read(), {})


def test_a_snapshot_is_the_board_that_was_saved(large: FileBoard) -> None:
    kept = journal.load_snapshot(large.home / journal.SNAPSHOT)
    assert kept
    state = replay_entries(kept.state, large.entries(kept.state.revision))
    assert state == large.read()
    assert list(state.tasks) == list(large.read().tasks)


def test_a_snapshot_knows_archived_tasks_and_settings(large: FileBoard, tmp_path: Path) -> None:
    """Each section is checked by itself, so that a look need not build what checks all of them."""
    known = large.read()
    limits = known.config.limits.replace(free_disk_mb=17)
    state = known.replace(
        archived=MappingProxyType({"old": Status.MERGED}), config=known.config.replace(limits=limits)
    )
    saved = journal.Snapshot(JournalPosition(3, "0"), NOW, state)
    journal.save_snapshot(tmp_path / "copy", saved)
    assert journal.load_snapshot(tmp_path / "copy") == saved


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_snapshot_with_a_hole_is_passed_over(large: FileBoard, share: float) -> None:
    path = large.home / journal.SNAPSHOT
    data = bytearray(path.read_bytes())
    hole = int(len(data) * share)
    data[hole : hole + 16] = bytes(16)[: len(data) - hole]
    path.write_bytes(data)
    assert journal.load_snapshot_parts(path) is None


def test_an_edit_is_for_the_whole_board_to_take(ours: FileBoard) -> None:
    """Nothing that a person saved is overlooked by a quick look."""
    path = ours.home / "state.yaml"
    path.write_text(path.read_text().replace("do t1", "do it well"))

    assert read_quickly(ours.home) is None


def test_what_the_file_does_not_show_yet_is_no_glance(ours: FileBoard) -> None:
    """A writer that died between journal and file is found, too."""
    (ours.home / "state.yaml").unlink()
    assert read_quickly(ours.home) is None


@pytest.mark.parametrize("damage", ["", "nonsense\n"])
def test_a_damaged_journal_is_for_the_whole_board_to_explain(ours: FileBoard, damage: str) -> None:
    """There is one place that says what is wrong."""
    (ours.home / "journal.jsonl").write_text(damage)

    assert read_quickly(ours.home) is None


def modules_of(directory: Path, *words: str) -> set[str]:
    """Return the modules that `liza` with *words* loads in a new project in *directory*."""
    subprocess.run(["git", "init", "-q", "."], cwd=directory, check=True)
    Shell(directory).ok("init", "Build a greeter")
    code = (
        "import json, sys\nfrom liza.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages_in(modules: set[str]) -> set[str]:
    return {".".join(name.split(".")[:2]) for name in modules}


def test_status_loads_neither_git_nor_a_backend(tmp_path: Path) -> None:
    """A person who looks waits for nothing that only workers need."""
    loaded = modules_of(tmp_path, "status")

    heavy = {
        "asyncio",
        "git",
        "litellm",
        "watchdog",
        "yaml",
        "liza.domain.lifecycle",
        "liza.board.edits",
        "liza.daemon.project",
    }
    assert heavy & loaded == set()
    assert packages_in(loaded) & {"liza.agents", "liza.repo", "liza.daemon"} == set()


@pytest.mark.parametrize(
    "words", [("note", "be kind"), ("pause",), ("goal", "and more")], ids=lambda words: words[0]
)
def test_a_word_to_the_agents_loads_neither_them_nor_their_workflow(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Whoever tells a run something changes the board, and no more than that."""
    loaded = packages_in(modules_of(tmp_path, *words))

    assert loaded & {"liza.agents", "liza.daemon", "liza.gates", "liza.repo", "liza.workflow"} == set()


def test_one_snapshot_is_for_all_processes_of_a_machine(
    ours: FileBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds that another has just written one writes none."""
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 4000)
    saved: list[int] = []  # the places in the journal of the snapshots that were there, one after the other
    team = [ours, *(FileBoard(ours.home) for _ in range(3))]
    for one in team:
        one.read()
    for number in range(15):
        for one in team:
            one.update(add_note(f"note {number}", about=None, by=HUMAN, at=NOW))
            there = journal.saved_place(ours.home / journal.SNAPSHOT)
            if there and there[0] not in saved:
                saved.append(there[0])
    assert len(saved) > 1
    assert all(later - earlier > 4000 for earlier, later in pairwise(saved))
