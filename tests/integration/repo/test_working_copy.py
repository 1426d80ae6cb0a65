"""Experiments begin with the checkout as it is, and with patches that agents wrote as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.errors import UnfitRepository
from liza.repo.repository import Repository
from liza.repo.snapshot import EMPTY, apply_patch, commit_checkout
from tests.support.repos import NOW, Hand, Home, snapshot

if TYPE_CHECKING:
    from pathlib import Path

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n-one\n+ONE\n two\n three\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class TestCheckout:
    def test_what_is_changed_staged_new_and_deleted_comes_along(self, home: Home) -> None:
        """Partly staged files, which a replay of two diffs breaks, are as they are on disk."""
        home.write("a.txt", "staged\n")
        home.git("add", "a.txt")
        home.write("a.txt", "staged\nand changed\n")
        home.write("new.txt", "new\r\n")
        home.write("secret.log", "ignored\n")
        home.write(".liza/state.yaml", "ours\n")
        (home.directory / "src" / "b.py").unlink()
        before = snapshot(home.directory), home.git("status", "--porcelain"), home.git("for-each-ref")

        commit = commit_checkout(home.repository, at=NOW)

        assert home.git("show", f"{commit}:a.txt") == "staged\nand changed"
        assert home.git("ls-tree", "-r", "--name-only", commit).split() == [".gitignore", "a.txt", "new.txt"]
        assert home.git("rev-parse", f"{commit}^") == home.base
        assert (
            snapshot(home.directory),
            home.git("status", "--porcelain"),
            home.git("for-each-ref"),
        ) == before

    def test_a_clean_checkout_is_its_head(self, home: Home) -> None:
        assert commit_checkout(home.repository, at=NOW) == home.base

    def test_a_sparse_checkout_deletes_nothing(self, home: Home) -> None:
        home.git("sparse-checkout", "set", "--no-cone", "/a.txt", "/.gitignore")
        home.write("a.txt", "changed\n")

        commit = commit_checkout(home.repository, at=NOW)

        assert "src/b.py" in home.git("ls-tree", "-r", "--name-only", commit)

    def test_without_a_commit_there_is_nothing_to_begin_with(self, tmp_path: Path) -> None:
        (tmp_path / "bare").mkdir()
        Hand(tmp_path / "bare").git("init", "--quiet")

        with pytest.raises(UnfitRepository, match="has no commit yet; make one first"):
            commit_checkout(Repository.around(tmp_path / "bare"), at=NOW)


class TestPatch:
    def test_one_that_fits_is_applied(self, home: Home) -> None:
        worktree, _ = home.task()

        assert apply_patch(worktree, PATCH) is None
        assert (worktree.path / "a.txt").read_text() == "ONE\ntwo\nthree\n"

    @pytest.mark.parametrize("of_patch", ["\n", "\r\n"])
    @pytest.mark.parametrize("of_file", ["\n", "\r\n"])
    def test_how_lines_end_is_no_part_of_it(self, home: Home, of_file: str, of_patch: str) -> None:
        worktree, _ = home.task()
        path = worktree.path / "a.txt"
        path.write_bytes(path.read_bytes().replace(b"\n", of_file.encode()))

        assert apply_patch(worktree, PATCH.replace("\n", of_patch)) is None
        assert path.read_bytes().decode() == of_file.join(["ONE", "two", "three", ""])

    @pytest.mark.parametrize("patch", ["", " \n"])
    def test_an_empty_one_is_told(self, home: Home, patch: str) -> None:
        assert apply_patch(home.task()[0], patch) == EMPTY

    @pytest.mark.parametrize(
        "patch",
        [
            PATCH.replace("-one", "-four"),
            PATCH + PATCH.replace("a.txt", "b.txt"),
            "--- /dev/null\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n",
            "--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n",
            "I changed a.txt.\n",
        ],
    )
    def test_one_that_does_not_fit_changes_nothing(self, home: Home, patch: str, tmp_path: Path) -> None:
        worktree, _ = home.task()
        before = snapshot(worktree.path)

        assert str(apply_patch(worktree, patch)).startswith("the patch does not apply: ")
        assert snapshot(worktree.path) == before
        assert not (tmp_path / "out.txt").exists()
