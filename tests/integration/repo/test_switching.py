"""A checkout goes from tree to tree: it is exactly each, whatever was done in it, and git says so, too."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.errors import GitFailed
from liza.repo.pool import refill, scratch_tree
from liza.repo.repository import TreeItem, list_tree, write_tree_with
from liza.repo.worktree import cached_index, read_index
from tests.support.repos import Hand, Home, snapshot

WIDTH = 20  # bytes of a hash
NAMES = ("a", "b/c", "b/d/e", "b/d", "b", "ü.txt", "x y/z", "tool.sh", "link", "b/f.py", ".github/x")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def commit_some(home: Home, chance: random.Random) -> str:
    """Commit some of NAMES: files, programs and links; what is in the way of another goes."""
    home.git("rm", "-rq", "--ignore-unmatch", ".")
    for name in chance.sample(NAMES, k=chance.randint(1, len(NAMES))):
        path = home.directory / name
        if path.is_dir() or any(parent.is_file() for parent in path.parents):
            continue
        if name == "link":
            path.symlink_to(chance.choice(["a", "nowhere"]))
        else:
            home.write(name, f"{chance.randint(0, 3)}\n").chmod(chance.choice([0o644, 0o755]))
    return home.commit({"always": "x\n"})


def change_in_place(path: Path) -> None:
    facts = path.stat()
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def swap_for_directory(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def swap_for_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap_for_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def take_its_folder_away(path: Path) -> None:
    parent = path.parent if path.parent.name else path
    if not (parent / ".git").exists():
        shutil.rmtree(parent)


HARM: tuple[Callable[[Path], object], ...] = (
    change_in_place,
    Path.unlink,
    swap_for_directory,
    swap_for_pipe,
    swap_for_link,
    take_its_folder_away,
    lambda path: path.chmod(0o600),
    lambda path: path.parent.chmod(0o700),
    lambda path: path.with_name("more").write_text("untracked"),
    lambda path: (path.parent / "empty" / "er").mkdir(parents=True, exist_ok=True),
    lambda path: os.link(path, path.with_name("also")),
)


class TestSwitching:
    @pytest.mark.parametrize("seed", range(3))
    def test_it_is_each_tree_exactly(self, home: Home, seed: int) -> None:
        """Whatever a command did to the one before, and git finds nothing that differs."""
        chance = random.Random(seed)
        trees = {}
        for _ in range(6):
            commit = commit_some(home, chance)
            trees[commit] = snapshot(home.directory)
        with scratch_tree(home.worktrees, home.base) as path:
            for step in range(40):
                commit = chance.choice(list(trees))
                refill(home.worktrees, path, commit)
                assert snapshot(path) == trees[commit], step
                if step % 5 == 0:
                    hand = Hand(path)
                    assert hand.git("status", "--porcelain", "--ignored") == ""
                    assert hand.git("rev-parse", "HEAD") == commit
                    assert hand.git("write-tree") == hand.git("rev-parse", "HEAD^{tree}")
                files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".git"]
                for harm in chance.sample(HARM, k=2):
                    file = chance.choice(files)
                    if file.is_file() and not file.is_symlink():
                        harm(file)

    def test_what_nobody_touched_is_not_written_again(self, home: Home) -> None:
        later = home.commit({"a.txt": "later\n"})
        with scratch_tree(home.worktrees, home.base) as path:
            before = (path / "src" / "b.py").stat()
            (path / "a.txt").write_text("by a command\n")
            refill(home.worktrees, path, later)
            after = (path / "src" / "b.py").stat()

            assert (path / "a.txt").read_text() == "later\n"
            assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)

    def test_a_change_within_a_tick_of_the_clock_is_seen(self, home: Home) -> None:
        """Of the same size and with the time put back, right after the checkout, again and again."""
        with scratch_tree(home.worktrees, home.base) as path:
            for _ in range(50):
                change_in_place(path / "a.txt")
                refill(home.worktrees, path, home.base)
                assert (path / "a.txt").read_text() == "one\ntwo\nthree\n"

    def test_files_that_are_written_otherwise_are_left_to_git(self, home: Home) -> None:
        one = home.commit({".gitattributes": "*.txt text eol=crlf\n", "n.txt": "one\n"})
        two = home.commit({"n.txt": "two\n"})
        with scratch_tree(home.worktrees, one) as path:
            refill(home.worktrees, path, two)
            assert (path / "n.txt").read_bytes() == b"two\r\n"

    def test_and_where_a_setting_says_so(self, home: Home) -> None:
        later = home.commit({"n.txt": "two\n"})
        home.git("config", "core.autocrlf", "true")
        with scratch_tree(home.worktrees, home.base) as path:
            refill(home.worktrees, path, later)
            assert (path / "n.txt").read_bytes() == b"two\r\n"

    def test_attributes_that_come_with_a_tree_count(self, home: Home) -> None:
        later = home.commit({".gitattributes": "*.txt eol=crlf\n", "n.txt": "two\n"})
        with scratch_tree(home.worktrees, home.base) as path:
            refill(home.worktrees, path, later)
            assert (path / "n.txt").read_bytes() == b"two\r\n"

    @pytest.mark.parametrize("name", [".git", "..", ".GIT"])
    def test_a_tree_that_git_refuses_is_refused(self, home: Home, name: str) -> None:
        """Nothing is written where its names lead: into a repository, or out of the directory."""
        blob = home.git("hash-object", "-w", str(home.write("evil", "evil\n")))
        inner = home.git("mktree", stdin=f"100644 blob {blob}\tconfig\n")
        tree = home.git("mktree", stdin=f"040000 tree {inner}\t{name}\n")
        with scratch_tree(home.worktrees, home.base) as path:
            link = (path / ".git").read_text()
            with pytest.raises(GitFailed):
                refill(home.worktrees, path, tree)
            assert (path / ".git").read_text() == link
            assert not (path.parent / "config").exists()
            refill(home.worktrees, path, home.base)
            assert snapshot(path).keys() == {"a.txt", "src", "src/b.py", ".gitignore"}


class TestListing:
    def test_a_tree_is_listed_as_git_lists_it(self, home: Home) -> None:
        """In its order, whatever was listed before."""
        chance = random.Random(7)
        for _ in range(20):
            commit = commit_some(home, chance)
            lines = home.git("-c", "core.quotePath=false", "ls-tree", "-r", commit).splitlines()
            theirs = [
                (path, *facts.split()[::2]) for facts, _, path in (line.partition("\t") for line in lines)
            ]
            ours = [(path, *item) for path, item in list_tree(home.repository, commit).items()]
            assert ours == theirs


class TestTheIndex:
    def test_it_is_what_git_would_write(self, home: Home) -> None:
        """Entry by entry, also of a name whose length fills its last word."""
        tree = home.repository.tree_of(home.base)
        blob = home.git("rev-parse", "HEAD:a.txt")
        items = {"n" * length: TreeItem("100644", blob) for length in range(1, 20)}
        with scratch_tree(home.worktrees, home.base) as path:
            refill(home.worktrees, path, write_tree_with(home.repository, tree, items))
            index = path.parent / ".kept" / "liza-1" / "index"
            ours = read_index(index, WIDTH)
            hand = Hand(path)
            hand.git("read-tree", "--reset", "HEAD")
            hand.git("update-index", "--refresh")
            theirs = read_index(
                Path(hand.git("rev-parse", "--path-format=absolute", "--git-path", "index")), WIDTH
            )

        assert ours is not None
        assert theirs is not None
        assert list(ours.entries) == list(theirs.entries)
        assert ours.entries == theirs.entries
        assert ours.folders == theirs.folders == {"src"}

    def test_another_format_is_left_to_git(self, home: Home) -> None:
        home.git("update-index", "--index-version", "4")
        assert read_index(home.directory / ".git" / "index", WIDTH) is None
        assert cached_index(home.directory / ".git" / "index", WIDTH) is None
