"""Salvage: after any removal, everything that was made can be had again."""

import os
from pathlib import Path

import pytest

from liza.errors import NotThere, Refused
from liza.repo import salvage
from tests.support.repos import NOW, Hand, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def files_of(home: Home, ref: str) -> set[str]:
    return set(home.git("ls-tree", "-r", "--name-only", ref).splitlines())


class TestSaving:
    def test_uncommitted_work_of_every_kind(self, home: Home) -> None:
        """Changed, deleted, staged, untracked, executable, linked; not what is ignored."""
        _, agent = home.task()
        agent.write("a.txt", "changed\n")
        (agent.directory / "src" / "b.py").unlink()
        agent.write("staged.txt", "s\n")
        agent.git("add", "staged.txt")
        agent.write("new/ünïcode name.txt", "n\n")
        agent.write("run.sh", "#!/bin/sh\n").chmod(0o755)
        (agent.directory / "link").symlink_to("a.txt")
        agent.write("x.log", "ignored\n")

        saved = home.worktrees.release("t1", at=NOW)

        assert saved
        assert saved.ref == "refs/liza/salvage/t1/1"
        assert home.git("show", f"{saved.ref}:a.txt") == "changed"
        assert files_of(home, saved.ref) == {
            ".gitignore", "a.txt", "staged.txt", "run.sh", "link", '"new/\\303\\274n\\303\\257code name.txt"'
        }  # fmt: skip
        assert home.git("ls-tree", saved.ref, "run.sh").startswith("100755")
        assert home.git("ls-tree", saved.ref, "link").startswith("120000")
        assert home.git("rev-parse", f"{saved.ref}^") == home.base
        assert "6 uncommitted" in saved.subject

    def test_a_clean_worktree_leaves_nothing(self, home: Home) -> None:
        """What is on the branch needs no second copy."""
        _, agent = home.task()
        agent.commit({"c.txt": "c\n"})

        assert home.worktrees.release("t1", at=NOW) is None
        assert salvage.list_salvages(home.repository) == []

    def test_the_index_of_the_agent_is_not_touched(self, home: Home) -> None:
        """Saving may happen while the same coder goes on."""
        worktree, agent = home.task()
        agent.write("a.txt", "changed\n")
        agent.git("add", "a.txt")
        before = (worktree.admin / "index").read_bytes()

        assert salvage.save_work(home.repository, "t1", worktree, at=NOW)

        assert (worktree.admin / "index").read_bytes() == before
        assert agent.git("status", "--porcelain") == "M  a.txt"

    def test_commits_that_no_branch_has_any_more(self, home: Home) -> None:
        """Amended, reset away, made on a detached HEAD, dropped by a rebase: all are kept."""
        _, agent = home.task()
        amended = agent.commit({"c.txt": "c\n"})
        agent.git("commit", "--quiet", "--amend", "-m", "better")
        reset = agent.commit({"d.txt": "d\n"})
        agent.git("reset", "--quiet", "--hard", "HEAD^")
        agent.git("checkout", "--quiet", "--detach")
        detached = agent.commit({"e.txt": "e\n"})
        agent.git("checkout", "--quiet", "task/t1")

        saved = home.worktrees.release("t1", at=NOW)

        assert saved
        assert all(home.reachable(commit) for commit in (amended, reset, detached))
        assert "3 lost commits" in saved.subject

    def test_commits_are_found_where_reflogs_are_off(self, home: Home) -> None:
        """The user's habits do not cost an agent's work."""
        home.git("config", "core.logAllRefUpdates", "false")
        _, agent = home.task()
        amended = agent.commit({"c.txt": "c\n"})
        agent.git("commit", "--quiet", "--amend", "-m", "better")

        home.worktrees.release("t1", at=NOW)

        assert home.reachable(amended)

    def test_hidden_changes(self, home: Home) -> None:
        """Flags in the index do not make work disappear."""
        _, agent = home.task()
        agent.write("a.txt", "changed\n")
        agent.git("update-index", "--assume-unchanged", "a.txt")

        home.worktrees.release("t1", at=NOW)

        assert home.git("show", "refs/liza/salvage/t1/1:a.txt") == "changed"

    def test_files_that_became_directories_and_links(self, home: Home, tmp_path: Path) -> None:
        """Nothing is read through a link, and nothing outside is taken for the work."""
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "b.py").write_text("outside\n")
        _, agent = home.task()
        (agent.directory / "a.txt").unlink()
        agent.write("a.txt/inner.txt", "i\n")
        (agent.directory / "src" / "b.py").unlink()
        (agent.directory / "src").rmdir()
        (agent.directory / "src").symlink_to(tmp_path / "outside", target_is_directory=True)

        home.worktrees.release("t1", at=NOW)

        assert files_of(home, "refs/liza/salvage/t1/1") == {".gitignore", "a.txt/inner.txt", "src"}
        assert (tmp_path / "outside" / "b.py").read_text() == "outside\n"

    def test_what_is_too_large_is_moved_aside(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is neither lost nor for ever in the user's repository, and the commit says where it is."""
        monkeypatch.setattr(salvage, "LARGEST_FILE", 100)
        _, agent = home.task()
        agent.write("data/big.bin", "x" * 101)
        agent.write("small.txt", "s\n")

        saved = home.worktrees.release("t1", at=NOW)

        assert saved
        assert (home.directory / ".worktrees/.salvage/t1-1/data/big.bin").stat().st_size == 101
        assert "data/big.bin" not in files_of(home, saved.ref)
        assert ".salvage/t1-1/data/big.bin" in home.git("show", "--no-patch", "--format=%B", saved.ref)
        home.worktrees.drain()
        assert (home.directory / ".worktrees/.salvage/t1-1/data/big.bin").exists()

    def test_a_repository_inside_keeps_its_history(self, home: Home) -> None:
        """Git would only remember a hash of it."""
        _, agent = home.task()
        Hand(agent.directory).git("init", "--quiet", "inner")
        Hand(agent.directory / "inner").commit({"i.txt": "i\n"})

        saved = home.worktrees.release("t1", at=NOW)

        assert saved
        aside = Hand(home.directory / ".worktrees/.salvage/t1-1/inner")
        assert aside.git("--git-dir=dot-git", "log", "--format=%s") == "add i.txt"

    def test_pipes_hold_nobody_up(self, home: Home) -> None:
        """Neither in the place of a file, nor in that of git's link."""
        _, agent = home.task()
        agent.write("new.txt", "n\n")
        for name in ("a.txt", ".git"):
            (agent.directory / name).unlink()
            os.mkfifo(agent.directory / name)

        home.worktrees.release("t1", at=NOW)

        assert files_of(home, "refs/liza/salvage/t1/1") == {".gitignore", "new.txt", "src/b.py"}

    def test_a_submodule_that_the_agent_filled(self, home: Home, tmp_path: Path) -> None:
        """Its commits are in a repository of its own, which is kept."""
        other = Home(tmp_path / "other")
        words = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
        home.git(*words, "add", str(other.directory), "sub")
        home.base = home.commit()
        _, agent = home.task()
        agent.git("clone", "--quiet", str(other.directory), "sub")
        Hand(agent.directory / "sub").git(
            "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "x", "--allow-empty"
        )

        saved = home.worktrees.release("t1", at=NOW)

        assert saved
        aside = Hand(home.directory / ".worktrees/.salvage/t1-1/sub")
        assert aside.git("--git-dir=dot-git", "log", "--format=%s", "-1") == "x"

    def test_unreadable_files(self, home: Home) -> None:
        """An agent may take its own rights away."""
        _, agent = home.task()
        agent.write("new.txt", "n\n").chmod(0)

        home.worktrees.release("t1", at=NOW)

        assert home.git("show", "refs/liza/salvage/t1/1:new.txt") == "n"

    def test_a_step_repeated_after_a_crash_adds_nothing(self, home: Home) -> None:
        """The worktree goes after the salvage is recorded, and a kill may come between."""
        worktree, agent = home.task()
        agent.write("a.txt", "changed\n")
        first = salvage.save_work(home.repository, "t1", worktree, at=NOW)

        assert home.worktrees.release("t1", at=NOW) == first
        assert salvage.list_salvages(home.repository) == [first]

    def test_salvage_needs_no_name_of_the_user(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fresh machine loses nothing either."""
        home.git("config", "--remove-section", "user")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        _, agent = home.task()
        agent.write("a.txt", "changed\n")

        assert home.worktrees.release("t1", at=NOW)


class TestRestoring:
    def test_a_branch_is_made_and_none_is_overwritten(self, home: Home) -> None:
        """Restoring twice is harmless, and a branch with other commits is left alone."""
        _, agent = home.task()
        agent.write("a.txt", "changed\n")
        saved = home.worktrees.release("t1", at=NOW)
        assert saved

        assert salvage.restore_salvage(home.repository, "t1", 1) == saved.branch == "salvage/t1-1"
        assert salvage.restore_salvage(home.repository, "t1", 1) == "salvage/t1-1"
        assert home.git("show", "salvage/t1-1:a.txt") == "changed"

        home.git("branch", "--force", "salvage/t1-1", "main")
        with pytest.raises(Refused, match="is there already, with other commits; rename it"):
            salvage.restore_salvage(home.repository, "t1", 1)
        assert home.git("rev-parse", "salvage/t1-1") == home.base

    def test_what_is_not_there(self, home: Home) -> None:
        """The sentence says what is."""
        _, agent = home.task()
        agent.write("a.txt", "changed\n")
        home.worktrees.release("t1", at=NOW)

        with pytest.raises(NotThere, match=r"no salvage 't1 7'; of t1 there is 1$"):
            salvage.restore_salvage(home.repository, "t1", 7)
        with pytest.raises(NotThere, match="of t2 there is nothing"):
            salvage.restore_salvage(home.repository, "t2", 1)

    def test_listing_by_task(self, home: Home) -> None:
        """`t1` is not `t10`."""
        for name in ("t1", "t10", "t1"):
            _, agent = home.task(name)
            agent.write("a.txt", f"changed {len(salvage.list_salvages(home.repository))}\n")
            home.worktrees.release(name, at=NOW)

        assert [(saved.task, saved.number) for saved in salvage.list_salvages(home.repository)] == [
            ("t1", 1),
            ("t1", 2),
            ("t10", 1),
        ]
        assert [saved.number for saved in salvage.list_salvages(home.repository, "t1")] == [1, 2]
        assert "`liza salvage restore t10 1` makes the branch salvage/t10-1" in str(
            salvage.list_salvages(home.repository, "t10")[0]
        )
