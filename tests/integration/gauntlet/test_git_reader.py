"""What the gauntlet's judge reads of a repository is what git has there, whatever surrounds it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from liza.gauntlet.git_reader import contents_since, file_in_commit, files_of_commit, shared_objects
from tests.support.repos import Hand

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "refs/heads/main"


def repository(directory: Path, **files: str) -> Hand:
    directory.mkdir()
    hand = Hand(directory)
    hand.git("init", "--quiet", "--initial-branch=main")
    hand.commit({"plain.txt": "one\n", **files})
    return hand


@pytest.fixture
def person(tmp_path: Path) -> Hand:
    return repository(tmp_path / "project", **{"below/deep/ünder.txt": "two\n"})


@pytest.fixture
def root(person: Hand) -> Path:
    return person.directory


def listed(person: Hand) -> dict[str, str]:
    """Return the files of the branch as git lists them."""
    lines = filter(None, person.git("ls-tree", "-r", "-z", "--full-tree", MAIN).split("\0"))
    facts = (line.partition("\t") for line in lines)
    return {path: f"{words.split()[0]} {words.split()[2]}" for words, _, path in facts}


def test_files_are_those_that_git_lists(person: Hand, root: Path) -> None:
    (root / "run.sh").write_text("true\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("plain.txt")
    person.git("add", ".")
    person.git("update-index", "--add", "--cacheinfo", f"160000,{person.git('rev-parse', 'HEAD')},module")
    person.git("commit", "-qm", "Odd entries")

    found = files_of_commit(root, MAIN)
    assert found == listed(person)
    assert found is not None
    assert {value.split()[0] for value in found.values()} == {"100644", "100755", "120000", "160000"}


def test_packed_refs_and_objects_are_read(person: Hand, root: Path) -> None:
    person.git("gc", "--quiet")
    assert files_of_commit(root, MAIN) == listed(person)


def test_no_branch_is_no_files(root: Path) -> None:
    assert files_of_commit(root, "refs/heads/liza/integration") is None


def test_a_pipe_in_place_of_a_ref_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / ".git" / "refs" / "heads" / "trap")
    assert files_of_commit(root, "refs/heads/trap") is None


def test_variables_of_git_lead_nowhere_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "empty"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert file_in_commit(root, MAIN, "plain.txt") == b"one\n"


def test_content_that_a_later_commit_took_away_again_is_seen(person: Hand, root: Path) -> None:
    base = person.git("rev-parse", "HEAD")
    person.commit({"plain.txt": "a secret\n"})
    person.commit({"plain.txt": "one\n"})

    found = list(contents_since(root, base, MAIN))
    assert b"a secret\n" in found
    assert found.count(b"add plain.txt\n") == len(("there", "and away"))
    assert b"two\n" not in found


def test_objects_of_another_repository_are_found(person: Hand, root: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", **{"theirs.txt": "private\n"})
    assert list(shared_objects(root, other.directory)) == [person.git("hash-object", "plain.txt")]
