"""Fingerprints: whatever an agent touches outside of its worktree is said in a sentence."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.repo.snapshot import Part, drift, take_fingerprint
from tests.support.repos import INTEGRATION, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path / "home")
    home.repository.ensure_branch("integration")
    home.git("branch", "task/t1")
    home.write("dirty.txt", "dirty\n")
    return home


def hooked(home: Home) -> None:
    hook = home.repository.common / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")


def put_into(name: str) -> Callable[[Home], None]:
    def write(home: Home) -> None:
        path = home.repository.common / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n")

    return write


def same_size_and_time(home: Home) -> None:
    path = home.directory / "a.txt"
    facts = path.stat()
    path.write_text("one\ntwo\nTHREE\n"[: facts.st_size])
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def hidden(home: Home) -> None:
    home.git("update-index", "--assume-unchanged", "a.txt")
    home.write("a.txt", "changed\n")


DEEDS: dict[str, tuple[Callable[[Home], object], Part, str]] = {
    "configuration": (
        lambda home: home.git("config", "user.name", "Claude"),
        Part.CONFIGURATION,
        "config was changed",
    ),
    "the user's configuration": (
        lambda home: home.git("config", "--global", "user.name", "Claude"),
        Part.CONFIGURATION,
        ".gitconfig was added",
    ),
    "a hook": (hooked, Part.CONFIGURATION, "pre-commit was added"),
    "attributes": (put_into("info/attributes"), Part.CONFIGURATION, "attributes was added"),
    "excludes": (put_into("info/exclude"), Part.CONFIGURATION, "exclude was changed"),
    "alternates": (put_into("objects/info/alternates"), Part.CONFIGURATION, "alternates was added"),
    "grafts": (put_into("info/grafts"), Part.CONFIGURATION, "grafts was added"),
    "a switch": (
        lambda home: home.git("checkout", "--quiet", "task/t1"),
        Part.HEAD,
        "your checkout went from main to task/t1",
    ),
    "a commit on main": (
        lambda home: home.commit({"c.txt": "c\n"}),
        Part.REFS,
        "the branch main was changed: ",
    ),
    "a new branch": (
        lambda home: home.git("branch", "mine"),
        Part.REFS,
        "the branch mine was added: nothing, now",
    ),
    "a tag": (lambda home: home.git("tag", "v1"), Part.REFS, "refs/tags/v1 was added"),
    "a lost branch": (
        lambda home: home.git("branch", "-D", "integration"),
        Part.REFS,
        "integration was removed",
    ),
    "a stash": (lambda home: home.git("stash", "--include-untracked"), Part.REFS, "refs/stash was added"),
    "a replaced object": (
        lambda home: home.git(
            "replace", "--force", home.base, home.git("commit-tree", "-m", "x", "HEAD^{tree}")
        ),
        Part.REFS,
        "refs/replace/",
    ),
    "a symbolic ref": (
        lambda home: home.git("symbolic-ref", INTEGRATION, "refs/heads/main"),
        Part.REFS,
        "the branch integration was changed: ",
    ),
    "staging": (
        lambda home: home.git("add", "dirty.txt"),
        Part.INDEX,
        "the index of your checkout was changed",
    ),
    "a flag in the index": (hidden, Part.INDEX, "the index of your checkout was changed"),
    "a tracked file": (
        lambda home: home.write("a.txt", "x\n"),
        Part.FILES,
        "a.txt in your checkout was changed",
    ),
    "a file of the same size and time": (
        same_size_and_time,
        Part.FILES,
        "a.txt in your checkout was changed",
    ),
    "a file that was dirty": (
        lambda home: home.write("dirty.txt", "DIRTY\n"),
        Part.FILES,
        "dirty.txt in your",
    ),
    "a new file": (lambda home: home.write("new.txt", "x\n"), Part.FILES, "new.txt in your checkout"),
    "a deleted file": (
        lambda home: (home.directory / "a.txt").unlink(),
        Part.FILES,
        "a.txt in your checkout",
    ),
    "a clean-up": (
        lambda home: (home.directory / "dirty.txt").unlink(),
        Part.FILES,
        "dirty.txt in your checkout",
    ),
    "a mode": (lambda home: (home.directory / "a.txt").chmod(0o755), Part.FILES, "a.txt in your checkout"),
}


@pytest.mark.parametrize("name", DEEDS)
def test_what_an_agent_must_not_touch(home: Home, name: str) -> None:
    """Pains, A12: the agent edits the main checkout, or commits to main."""
    deed, part, sentence = DEEDS[name]
    before = take_fingerprint(home.repository)

    deed(home)

    moved = drift(before, take_fingerprint(home.repository, since=before))
    assert [found for found in moved if found.part is part and sentence in str(found)], moved


def test_work_in_a_worktree_is_no_drift(home: Home) -> None:
    """Commits on the task's own branch, salvage, and the board's own files are what a run is made of."""
    _, agent = home.task("t2")
    before = take_fingerprint(home.repository)

    agent.commit({"c.txt": "c\n"})
    agent.write("half.txt", "half\n")
    home.git("update-ref", "refs/liza/salvage/t2/1", "HEAD")
    home.write(".liza/state.yaml", "x\n")
    home.git("status")

    after = take_fingerprint(home.repository, since=before)
    assert drift(before, after, ["refs/heads/task/t2"]) == []
    assert drift(before, after, ["refs/heads/task/*"]) == []
    assert [moved.part for moved in drift(before, after)] == [Part.REFS]


def test_nothing_runs_where_the_configuration_moved(home: Home, tmp_path: Path) -> None:
    """A planted filter is a program: it is noticed before any git could run it."""
    before = take_fingerprint(home.repository)
    home.write(".gitattributes", "* filter=trap\n")
    home.git("config", "filter.trap.clean", f"touch {tmp_path}/sprung; cat")
    home.write("a.txt", "changed\n")

    after = take_fingerprint(home.repository, since=before)

    assert not (tmp_path / "sprung").exists()
    assert not after.looked
    assert [moved.part for moved in drift(before, after)] == [Part.CONFIGURATION]


def test_looking_changes_nothing(home: Home) -> None:
    """Not even the index, which `git status` would refresh."""
    os.utime(home.directory / "a.txt", (1, 1))
    before = (home.repository.home / "index").read_bytes()

    first = take_fingerprint(home.repository)

    assert (home.repository.home / "index").read_bytes() == before
    assert take_fingerprint(home.repository, since=first) == first


def test_large_and_many_files_are_known_by_their_times(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look must not take longer than git's own."""
    monkeypatch.setattr("liza.repo.snapshot.READ_BYTES", 3)
    monkeypatch.setattr("liza.repo.snapshot.READ_FILES", 1)
    home.write("big.bin", "x" * 10)
    before = take_fingerprint(home.repository)
    assert drift(before, take_fingerprint(home.repository)) == []

    home.write("big.bin", "y" * 10)

    assert [str(moved) for moved in drift(before, take_fingerprint(home.repository))] == [
        "big.bin in your checkout was changed"
    ]


def test_many_files_are_counted(home: Home) -> None:
    """The first of them are named."""
    before = take_fingerprint(home.repository)
    for number in range(25):
        home.write(f"f{number:02}", "x\n")

    moved = drift(before, take_fingerprint(home.repository))

    assert len(moved) == 21
    assert str(moved[-1]) == "5 more files in your checkout were changed"
