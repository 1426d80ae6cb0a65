"""Objects and refs by the one git process that stays: the same answers as of a new one, and as safe."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.errors import GitFailed
from liza.repo import command
from liza.repo.command import close_readers, find_objects
from liza.repo.repository import (
    TreeItem,
    blob_contents,
    blob_sizes,
    commits_between,
    list_tree,
    message_of,
    objects_between,
    write_tree_with,
)
from liza.system.process import process_table
from tests.support.repos import Hand, Home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


OTHERS: Final[set[int]] = set()  # git processes that tests before this one left, or that we adopted from them


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Let each test begin without a process that another one started."""
    close_readers()
    OTHERS.clear()
    OTHERS.update(readers())
    yield
    close_readers()


def readers() -> list[int]:
    """Return the pids of git processes that we started and that are there."""
    us = os.getpid()
    ours = (pid for pid, found in process_table().items() if found.parent == us and found.name == "git")
    return [pid for pid in ours if pid not in OTHERS]


class TestTheProcess:
    def test_one_serves_all_questions(self, home: Home) -> None:
        home.repository.commit_at("HEAD")
        (first,) = readers()
        list_tree(home.repository, home.base)
        home.repository.contains("HEAD", home.base)

        assert readers() == [first]

    def test_few_stay(self, tmp_path: Path) -> None:
        """Whoever looks at many repositories keeps no process for each."""
        for number in range(command.MOST_OPEN + 2):
            Home(tmp_path / str(number)).repository.commit_at("HEAD")

        assert len(readers()) == command.MOST_OPEN

    def test_one_that_was_killed_is_started_again(self, home: Home) -> None:
        home.repository.commit_at("HEAD")
        os.kill(readers()[0], signal.SIGKILL)

        assert home.repository.commit_at("HEAD") == home.base

    def test_one_that_does_not_answer_is_given_up(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pipe in place of a ref holds nobody for ever; the next question is answered."""
        monkeypatch.setattr(command, "QUICK_LIMIT", 0.2)
        os.mkfifo(home.repository.common / "refs" / "heads" / "pipe")

        with pytest.raises(GitFailed, match="did not answer"):
            find_objects(home.repository.common, ["refs/heads/pipe"])
        assert home.repository.commit_at("HEAD") == home.base

    def test_a_fork_has_one_of_its_own(self, home: Home) -> None:
        """Two processes that read the same pipe would get halves of answers."""
        home.repository.commit_at("HEAD")
        child = os.fork()
        if child == 0:
            os._exit(0 if home.repository.commit_at("HEAD") == home.base and len(readers()) == 1 else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert home.repository.commit_at("HEAD") == home.base

    def test_the_callers_environment_leads_nowhere(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_ALTERNATE_OBJECT_DIRECTORIES"):
            monkeypatch.setenv(name, str(tmp_path / "elsewhere"))

        assert home.repository.commit_at("HEAD") == home.base

    def test_objects_that_were_replaced_do_not_count(self, home: Home) -> None:
        other = home.commit({"x": "x"})
        home.git("replace", home.base, other)

        assert list_tree(home.repository, home.base).keys() == {".gitignore", "a.txt", "src/b.py"}

    def test_a_name_of_two_lines_is_no_name(self, home: Home) -> None:
        with pytest.raises(GitFailed, match="no name of an object"):
            find_objects(home.repository.common, ["HEAD\ncontents HEAD"])


class TestAnswers:
    def test_a_ref_is_looked_up_each_time(self, home: Home) -> None:
        assert home.repository.commit_at("refs/heads/main") == home.base
        head = home.commit({"x": "x"})
        assert home.repository.commit_at("refs/heads/main") == head
        home.git("pack-refs", "--all")
        assert home.repository.commit_at("refs/heads/main") == head
        home.git("update-ref", "refs/heads/main", home.base)
        assert home.repository.commit_at("refs/heads/main") == home.base

    def test_objects_that_were_packed_meanwhile_are_found(self, home: Home) -> None:
        home.repository.commit_at("HEAD")
        head = home.commit({"x": "x"})
        home.git("gc", "--quiet", "--prune=now")

        assert home.repository.commit_at(head) == head
        assert home.repository.commit_at("f" * 40) is None

    def test_a_repository_with_the_other_hash(self, tmp_path: Path) -> None:
        hand = Hand(tmp_path)
        hand.git("init", "--quiet", "--object-format=sha256")
        hand.git("config", "user.email", "a@b")
        hand.git("config", "user.name", "a")
        base, head = hand.commit({"a": "1", "d/e": "2"}), hand.commit({"d/f": "3"})
        repository = Home(tmp_path).repository

        assert repository.commit_at("HEAD") == head
        assert list_tree(repository, head).keys() == {"a", "d/e", "d/f"}
        assert [one.commit for one in commits_between(repository, base, head)] == [head]

    def test_a_tree_is_listed_as_git_lists_it(self, home: Home) -> None:
        """Odd names, links, repositories inside, modes, and the order."""
        for name in ("a b/c\td", "a-b", "ab/ü", "a/b/c/d", "line\nfeed"):
            home.write(name, name)
        (home.directory / "link").symlink_to("a-b")
        home.write("run.sh", "x").chmod(0o755)
        home.git("update-index", "--add", "--cacheinfo", f"160000,{home.base},sub")
        home.git("add", "--all")
        home.git("update-index", "--add", "--cacheinfo", f"160000,{home.base},sub")
        home.git("commit", "--quiet", "-m", "odd")
        listed = home.git("ls-tree", "-r", "-z", "--full-tree", "HEAD").split("\0")
        expected = {
            path: (facts.split(" ")[0], facts.split(" ")[2])
            for facts, _, path in (line.partition("\t") for line in listed if line)
        }

        found = list_tree(home.repository, "HEAD")

        assert found == expected
        assert list(found) == list(expected)

    def test_many_and_large_blobs(self, home: Home) -> None:
        files = {f"many/{number}": f"{number}\n" * number for number in range(1, 200)}
        head = home.commit({**files, "large": "x" * 3_000_000})
        items = list_tree(home.repository, head)
        blobs = [item.blob for item in items.values()]

        sizes, contents = blob_sizes(home.repository, blobs), blob_contents(home.repository, blobs)

        assert sizes == {blob: len(content) for blob, content in contents.items()}
        assert contents[items["large"].blob] == b"x" * 3_000_000
        assert contents[items["many/7"].blob] == b"7\n" * 7
        assert blob_sizes(home.repository, ["0" * 40]) == {}

    @pytest.mark.parametrize("is_merge", [False, True])
    def test_commits_are_told_as_git_tells_them(self, home: Home, *, is_merge: bool) -> None:
        home.git("switch", "--quiet", "-c", "side")
        home.commit({"s": "1"})
        home.git("switch", "--quiet", "main")
        home.commit({"m": "1"})
        if is_merge:
            home.git("merge", "--quiet", "--no-edit", "side")
        home.git(
            "commit",
            "--allow-empty",
            "-q",
            "-m",
            "Subject\n\nbody\n\nSigned-off-by: a",
            "--author=B C <d@e>",
        )
        head = home.git("rev-parse", "HEAD")
        shape = "--format=%H|%an <%ae>, %cn <%ce>|%B%x00"
        expected = home.git("log", shape, f"{home.base}..{head}").strip("\0").split("\0")

        found = commits_between(home.repository, home.base, head)

        told = [f"{one.commit}|{one.people}|{one.message}" for one in found]
        assert told == [one.strip() for one in expected if one.strip()]
        assert message_of(home.repository, head).strip() == found[0].message
        listed = home.git("rev-list", "--objects", "--no-object-names", f"{home.base}..{head}").split()
        assert set(listed) <= set(objects_between(home.repository, home.base, head))

    def test_a_message_in_another_encoding_is_read_by_git(self, home: Home) -> None:
        home.git("-c", "i18n.commitEncoding=ISO-8859-1", "commit", "--allow-empty", "-q", "-m", "x")
        raw = home.git("cat-file", "commit", "HEAD").replace("\nx", "\n\udce4", 1)
        path = home.directory / "raw"
        path.write_bytes(raw.encode("utf-8", "surrogateescape") + b"\n")
        head = home.git("hash-object", "-t", "commit", "-w", str(path))

        assert message_of(home.repository, head).strip() == "ä"
        assert commits_between(home.repository, home.base, head)[0].message == "ä"

    def test_ancestors_near_and_far(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beyond what is looked at one by one, git is asked; the answer is the same."""
        heads = [home.base, *(home.commit({"n": str(number)}) for number in range(6))]
        home.git("switch", "--quiet", "--orphan", "other")
        other = home.commit({"o": "1"})
        for most in (command.NEAR, 2):
            monkeypatch.setattr(command, "NEAR", most)
            assert all(home.repository.contains(heads[-1], one) for one in heads)
            assert not home.repository.contains(heads[2], heads[3])
            assert not home.repository.contains(heads[-1], other)
            assert not home.repository.contains("refs/heads/none", other)

    def test_a_commit_that_many_lines_lead_to_is_looked_at_once(self, home: Home) -> None:
        """Every merge has two lines to the merge before it: after a dozen there are thousands of them."""
        tip = home.base
        for number in range(12):
            sides = [_child(home, (tip,), f"{side} {number}") for side in ("left", "right")]
            tip = _child(home, sides, f"merge {number}")
        command.parents_of.cache_clear()

        assert command.is_near_ancestor(home.repository.common, home.base, tip)
        asked = command.parents_of.cache_info()
        assert asked.hits + asked.misses <= command.NEAR

    def test_the_end_of_a_shallow_clone_is_no_damage(self, home: Home, tmp_path: Path) -> None:
        head = home.commit({"x": "x"})
        home.git("clone", "--quiet", "--depth=1", f"file://{home.directory}", str(tmp_path / "shallow"))
        shallow = Home(tmp_path / "shallow").repository

        assert shallow.contains("HEAD", head)
        assert not shallow.contains("HEAD", home.base)


def _child(home: Home, parents: Iterable[str], message: str) -> str:
    tree = home.git("rev-parse", f"{home.base}^{{tree}}")
    return home.git("commit-tree", tree, *(word for one in parents for word in ("-p", one)), "-m", message)


class TestTreesWith:
    def test_paths_come_go_and_change_and_empty_folders_go(self, home: Home) -> None:
        head = home.commit({"d/e/f": "1", "d/g": "2", "h": "3"})
        items = list_tree(home.repository, head)
        changes = {"d/e/f": None, "d/g": TreeItem("100755", items["h"].blob), "new/in/here": items["h"]}

        made = write_tree_with(home.repository, head, changes)

        wanted = {path: item for path, item in items.items() if path != "d/e/f"} | {
            path: item for path, item in changes.items() if item
        }
        assert list_tree(home.repository, made) == wanted
        home.git("fsck", "--strict", "--no-dangling")

    def test_a_file_comes_where_a_folder_was(self, home: Home) -> None:
        head = home.commit({"d/e": "1"})
        items = list_tree(home.repository, head)

        made = write_tree_with(home.repository, head, {"d/e": None, "d": items["a.txt"]})

        assert list_tree(home.repository, made).keys() == {*items, "d"} - {"d/e"}
