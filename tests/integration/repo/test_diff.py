"""What differs between two trees, read from git as it really prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.errors import GitFailed
from liza.repo.repository import (
    EXECUTABLE,
    LINK,
    DiffLine,
    PatchLine,
    TreeItem,
    blob_contents,
    blob_sizes,
    commits_between,
    diff_text,
    diff_trees,
    list_tree,
    patch_between,
    write_tree_with,
)
from tests.support.repos import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class TestDiff:
    def test_every_kind_of_change_is_told_apart(self, home: Home) -> None:
        """Added, changed, renamed, deleted, another type, another mode, empty, no text."""
        (home.directory / "x.bin").write_bytes(b"a\0b")
        (home.directory / "src/b.py").unlink()
        (home.directory / "src/b.py").symlink_to("c.py")
        home.git("mv", "a.txt", "d.txt")
        (home.directory / ".gitignore").chmod(0o755)
        head = home.commit({"src/c.py": "C = 1\nD = 2", "empty": ""})

        entries = {entry.path: entry for entry in diff_trees(home.repository, home.base, head)}

        assert {path: entry.status for path, entry in entries.items()} == {
            ".gitignore": "M",
            "d.txt": "R",
            "empty": "A",
            "src/b.py": "T",
            "src/c.py": "A",
            "x.bin": "A",
        }
        assert entries["d.txt"].paths == ("a.txt", "d.txt")
        assert (entries["d.txt"].loc, entries["x.bin"].loc, entries["x.bin"].is_binary) == (0, 0, True)
        assert entries["src/c.py"].added == (DiffLine(1, "C = 1"), DiffLine(2, "D = 2"))
        assert (entries["src/b.py"].mode, entries["src/b.py"].removed) == (LINK, (DiffLine(1, "B = 1"),))
        assert entries[".gitignore"].mode == EXECUTABLE

    def test_lines_that_look_like_a_diff_are_lines(self, home: Home) -> None:
        """An author cannot hide the rest of a file behind a line that looks like git's own."""
        text = "diff --git a/x b/x\n@@ -1 +1 @@\n--- a/x\n+++ b/x\n\\ No newline\n"
        head = home.commit({"a.txt": text, "b.txt": "after\n"})

        entries = {entry.path: entry for entry in diff_trees(home.repository, home.base, head)}

        assert [line.text for line in entries["a.txt"].added] == text.splitlines()
        assert [line.text for line in entries["a.txt"].removed] == ["one", "two", "three"]
        assert entries["b.txt"].added == (DiffLine(1, "after"),)

    def test_attributes_hide_nothing(self, home: Home) -> None:
        """A file that says of others that they are no text is not believed."""
        head = home.commit({".gitattributes": "*.py -diff binary\n", "src/b.py": "B = 2\n"})

        (entry,) = [
            entry for entry in diff_trees(home.repository, home.base, head) if entry.path == "src/b.py"
        ]

        assert (entry.is_binary, entry.added, entry.loc) == (False, (DiffLine(1, "B = 2"),), 2)

    def test_names_are_taken_as_they_are(self, home: Home) -> None:
        """Newlines, quotes and bytes that are no UTF-8 survive."""
        names = ["a\nb", 'c"d', "e\udcff"]
        head = home.commit(dict.fromkeys(names, "x\n"))

        assert sorted(entry.path for entry in diff_trees(home.repository, home.base, head)) == sorted(names)

    def test_what_is_no_commit_is_an_error(self, home: Home) -> None:
        """Nothing is not the same as no difference."""
        with pytest.raises(GitFailed):
            diff_trees(home.repository, home.base, "0" * 40)


class TestObjects:
    def test_many_files_are_read_at_once(self, home: Home) -> None:
        """With their sizes, and without what is not there."""
        files = list_tree(home.repository, home.base)
        blob = files["a.txt"].blob

        assert blob_contents(home.repository, [blob, "0" * 40]) == {blob: b"one\ntwo\nthree\n"}
        assert blob_sizes(home.repository, [blob, "0" * 40]) == {blob: 14}

    def test_a_tree_is_put_together(self, home: Home) -> None:
        """A path is put, another taken away; a file may come where a directory was."""
        files = list_tree(home.repository, home.base)
        item = TreeItem("100644", files["a.txt"].blob)

        tree = write_tree_with(home.repository, home.base, {"src/b.py": None, "src": item, "a.txt": None})

        assert sorted(list_tree(home.repository, tree)) == [".gitignore", "src"]

    def test_the_commits_on_the_way_are_told(self, home: Home) -> None:
        """Newest first, each with what it was made from; one without a parent is made from nothing."""
        first = home.commit({"b.txt": "b\n"})
        home.git("checkout", "--quiet", "--orphan", "other")
        home.git("commit", "--quiet", "-m", "alone")
        alone = home.git("rev-parse", "HEAD")

        assert [(one.before, one.message) for one in commits_between(home.repository, home.base, first)] == [
            (home.base, "add b.txt")
        ]
        (change,) = commits_between(home.repository, first, alone)
        assert {entry.path for entry in diff_trees(home.repository, change.before, alone)} >= {
            "a.txt",
            "b.txt",
        }


class TestPatch:
    def test_each_file_has_its_lines_with_their_numbers(self, home: Home) -> None:
        base = home.commit({"n.txt": "".join(f"{number}\n" for number in range(1, 10))})
        head = home.commit(
            {"n.txt": "".join(f"{number}\n" for number in range(1, 10) if number != 5) + "x\n"}
        )
        (found,) = patch_between(home.repository, base, head)

        assert (found.path, found.status, found.count("+"), found.count("-")) == ("n.txt", "M", 1, 1)
        assert [line for line in found.lines if line.sign in "+-"] == [
            PatchLine("-", "5", old=5),
            PatchLine("+", "x", new=9),
        ]
        assert PatchLine(" ", "6", old=6, new=5) in found.lines

    def test_renames_types_and_what_is_no_text_are_told(self, home: Home) -> None:
        (home.directory / "x.bin").write_bytes(b"a\0b")
        (home.directory / "src/b.py").unlink()
        (home.directory / "src/b.py").symlink_to("c.py")
        home.git("mv", "a.txt", "d.txt")
        head = home.commit({"src/c.py": "--- a\n+++ b\n@@ -1 +1 @@\ndiff --git a b"})
        found = {one.path: one for one in patch_between(home.repository, home.base, head)}

        assert {path: one.status for path, one in found.items()} == {
            "d.txt": "R",
            "src/b.py": "T",
            "src/c.py": "A",
            "x.bin": "A",
        }
        assert found["d.txt"].source == "a.txt"
        assert (found["x.bin"].is_binary, found["x.bin"].lines) == (True, ())
        assert [line.text for line in found["src/c.py"].lines[1:]] == [
            *("--- a", "+++ b", "@@ -1 +1 @@", "diff --git a b"),
        ]
        assert not any(one.is_binary for path, one in found.items() if path != "x.bin")


@pytest.mark.parametrize(
    "settings",
    [
        {"diff.external": "echo difft"},
        {"diff.noprefix": "true", "color.ui": "always"},
        {"diff.mnemonicPrefix": "true", "diff.context": "0", "diff.algorithm": "patience"},
        {"diff.table.command": "echo tool"},
        {"diff.table.textconv": "echo text"},
        {"diff.table.binary": "true"},
    ],
)
def test_a_reviewer_is_shown_a_plain_difference(home: Home, tmp_path: Path, settings: dict[str, str]) -> None:
    """Whatever the user has set up for reading differences, as by a tool of their own."""
    (tmp_path / "attributes").write_text("*.txt diff=table\n")
    for key, value in {"core.attributesFile": str(tmp_path / "attributes"), **settings}.items():
        home.git("config", key, value)
    text = (home.directory / "a.txt").read_text()
    head = home.commit({"a.txt": f"{text}one more\n", "new name.txt": "x\n"})

    shown = diff_text(home.repository, home.base, head)

    assert "diff --git a/a.txt b/a.txt\n" in shown
    assert "\n+one more\n" in shown
    assert "+++ b/new name.txt" in shown
