"""What was committed to the copy of a sandbox comes over whole, and under the names that git computes."""

import hashlib
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from liza.errors import GitFailed
from liza.repo.private_gitdir import LARGEST_PACK, PrivateGitDir
from liza.repo.repository import branch_of
from tests.support.repos import Hand, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def copies(home: Home, tmp_path: Path) -> PrivateGitDir:
    worktree, _ = home.task()
    made = PrivateGitDir(worktree, tmp_path / "git", "t1")
    made.create_copies()
    return made


def put_loose(copies: PrivateGitDir, name: str, stored: bytes) -> None:
    path = copies.folder / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(stored)


def loose(content: bytes) -> tuple[str, bytes]:
    """Return a blob as git stores it, with its name."""
    whole = b"blob %d\0%s" % (len(content), content)
    return hashlib.new("sha1", whole, usedforsecurity=False).hexdigest(), zlib.compress(whole)


def commit_there(copies: PrivateGitDir, files: dict[str, str]) -> str:
    """Commit as an agent does whose objects go to the copy."""
    agent, store = Hand(copies.worktree.path), copies.folder / "objects"
    for name, text in files.items():
        agent.write(name, text)
    lent = {
        "GIT_OBJECT_DIRECTORY": str(store),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(copies.worktree.repository.common / "objects"),
    }
    agent.git("add", "--all", **lent)
    tree = agent.git("write-tree", **lent)
    commit = agent.git("commit-tree", "-p", "HEAD", "-m", "work", tree, **lent)
    (copies.folder / "refs" / "t1").write_text(f"{commit}\n")
    return commit


class TestComingOver:
    @pytest.mark.parametrize("largest", [1, LARGEST_PACK + 1])
    def test_objects_of_every_size(self, home: Home, copies: PrivateGitDir, largest: int) -> None:
        """Few and small ones, and such that git itself has to pack them."""
        sizes = (0, 1, 15, 16, 17, 2047, 2048, 2049, 300_000, largest)
        commit = commit_there(copies, {f"f{number}": "x" * size for number, size in enumerate(sizes)})

        copies.import_commits()

        assert home.repository.commit_at(branch_of("t1")) == commit
        home.git("fsck", "--strict", "--connectivity-only", commit)
        found = {int(line.split()[3]) for line in home.git("ls-tree", "-lr", commit).splitlines()}
        assert found >= set(sizes)

    def test_one_under_a_wrong_name_gets_its_own(self, home: Home, copies: PrivateGitDir) -> None:
        """Nobody can put content under the name of another."""
        (name, stored), (other, _) = loose(b"evil\n"), loose(b"good\n")
        put_loose(copies, other, stored)

        copies.import_commits()

        assert home.git("cat-file", "-p", name) == "evil"
        assert home.repository.ask("cat-file", "-e", other).code != 0

    @pytest.mark.parametrize(
        "stored",
        [
            b"",
            b"no zlib",
            zlib.compress(b"blob 5\0four"),
            zlib.compress(b"blob 4\0four")[:-3],
            zlib.compress(b"blub 4\0four"),
            zlib.compress(b"blob 04\0four"),
        ],
    )
    def test_what_is_no_object_is_not_taken(self, home: Home, copies: PrivateGitDir, stored: bytes) -> None:
        name, _ = loose(b"four")
        put_loose(copies, name, stored)

        with suppress(GitFailed):
            copies.import_commits()

        assert home.repository.ask("cat-file", "-e", name).code != 0

    def test_a_small_file_that_unpacks_to_a_large_one_is_left_to_git(
        self, home: Home, copies: PrivateGitDir
    ) -> None:
        name, stored = loose(bytes(2 * LARGEST_PACK))
        put_loose(copies, name, stored)

        copies.import_commits()

        assert home.git("cat-file", "-s", name) == str(2 * LARGEST_PACK)
