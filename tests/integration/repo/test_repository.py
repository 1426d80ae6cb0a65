"""The repository as facts: what it answers, what it refuses, and what it never runs."""

import os
import time
from pathlib import Path
from shutil import which

import pytest

from liza.errors import GitFailed, LizaError, UnfitRepository, UsageError
from liza.repo.command import ask_git, git, top_level
from liza.repo.repository import Repository, branch_of
from liza.system.disk_space import disk_usage
from tests.support.repos import INTEGRATION, NOW, Hand, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class TestTheDoor:
    def test_pointers_of_the_caller_do_not_lead_elsewhere(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`liza` called from a hook works on its own repository."""
        other = Home(tmp_path / "other")
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"):
            monkeypatch.setenv(name, str(other.repository.common))

        assert top_level(home.directory) == home.directory

    def test_what_git_says_is_the_sentence(self, home: Home) -> None:
        """A failure of git is an expected one, in git's own words."""
        with pytest.raises(GitFailed, match=r"git cat-file failed: .*Not a valid object name nope"):
            git("cat-file", "-p", "nope", cwd=home.directory)

    def test_a_git_that_was_killed_is_asked_again(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It said nothing: a supervisor whose git dies must not say that there is no repository."""
        mark, tools = tmp_path / "killed", tmp_path / "tools"
        tools.mkdir()
        dies_once = f"if ! test -e {mark}; then touch {mark}; kill -KILL $$; fi"
        (tools / "git").write_text(f'#!/bin/sh\n{dies_once}\nexec {which("git")} "$@"\n')
        (tools / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

        assert top_level(home.directory) == home.directory
        assert mark.exists()

    def test_a_directory_that_is_gone_is_not_a_missing_git(self, tmp_path: Path) -> None:
        """Python raises the same error for both."""
        with pytest.raises(LizaError, match="gone is gone"):
            git("version", cwd=tmp_path / "gone")

    def test_git_that_is_missing_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The one sentence that helps is: install it."""
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(LizaError, match="git is not installed"):
            git("version", cwd=tmp_path)

    def test_not_a_repository(self, tmp_path: Path) -> None:
        """The sentence says what to do."""
        with pytest.raises(UsageError, match="not in a git repository; run `git init`"):
            Repository.around(tmp_path)

    def test_replaced_objects_do_not_count(self, home: Home) -> None:
        """History cannot be made to look otherwise than it is."""
        other = home.commit({"a.txt": "other\n"})
        home.git("replace", home.base, other)

        assert home.git("show", f"{home.base}:a.txt") == "other"
        assert home.repository.git("show", f"{home.base}:a.txt") == "one\ntwo\nthree"

    def test_nothing_that_the_configuration_names_is_run_by_habit(self, home: Home, tmp_path: Path) -> None:
        """Hooks, monitors, signing, editors, pagers and prompts are all off."""
        trap = tmp_path / "trap"
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
        trap.chmod(0o755)
        hooks = tmp_path / "hooks"
        hooks.mkdir()
        for name in ("post-checkout", "post-index-change", "reference-transaction", "post-commit"):
            (hooks / name).symlink_to(trap)
        settings = ("core.fsmonitor", "core.editor", "core.pager", "gpg.program", "core.askPass")
        for setting in settings:
            home.git("config", setting, str(trap))
        home.git("config", "core.hooksPath", str(hooks))
        home.git("config", "commit.gpgSign", "true")
        (tmp_path / "sprung").unlink(missing_ok=True)

        _, agent = home.task()
        home.repository.commit_tree(home.repository.tree_of("HEAD"), parents=(), message="m", at=NOW)
        home.worktrees.release("t1", at=NOW)
        ask_git("status", cwd=home.directory)

        assert not (tmp_path / "sprung").exists()
        assert not agent.directory.exists()


class TestFacts:
    def test_commits_and_trees(self, home: Home) -> None:
        """What is not there is None, never an error."""
        assert home.repository.commit_at("refs/heads/main") == home.base
        assert home.repository.commit_at(home.base) == home.base
        assert home.repository.commit_at("refs/heads/none") is None
        assert home.repository.commit_at("0" * 40) is None
        assert home.repository.commit_at("--all") is None

    def test_contains(self, home: Home) -> None:
        """What does not exist contains nothing and is contained in nothing."""
        later = home.commit({"a.txt": "later\n"})

        assert home.repository.contains("refs/heads/main", home.base)
        assert home.repository.contains(later, home.base)
        assert not home.repository.contains(home.base, later)
        assert not home.repository.contains("refs/heads/none", home.base)
        assert not home.repository.contains("refs/heads/main", "0" * 40)

    def test_started_in_a_linked_worktree(self, home: Home, tmp_path: Path) -> None:
        """A user may run Liza in any worktree of theirs."""
        home.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        repository = Repository.around(tmp_path / "side")

        assert repository.root == tmp_path / "side"
        assert repository.common == home.repository.common
        assert repository.home == home.repository.common / "worktrees" / "side"
        assert repository.ensure_branch("integration") == INTEGRATION

    def test_space(self, home: Home) -> None:
        """The floor that blocks admission needs a number."""
        assert 0 < disk_usage(home.directory).free <= disk_usage(home.directory).total
        assert "GB are free" in str(disk_usage(home.directory))


class TestIntegrationBranch:
    def test_it_begins_at_head_and_then_stays(self, home: Home) -> None:
        """Only a merge moves it."""
        home.repository.ensure_branch("integration")
        home.commit({"a.txt": "later\n"})

        assert home.repository.ensure_branch("integration") == INTEGRATION
        assert home.repository.commit_at(INTEGRATION) == home.base

    def test_a_detached_head_is_fine(self, home: Home) -> None:
        """A commit is all that is needed."""
        home.git("checkout", "--quiet", "--detach")
        home.repository.ensure_branch("integration")

        assert home.repository.commit_at(INTEGRATION) == home.base

    def test_no_commit_yet(self, tmp_path: Path) -> None:
        """There is nothing to branch from, and the sentence gives the command."""
        Hand(tmp_path).git("init", "--quiet")
        with pytest.raises(UnfitRepository, match=r"has no commit yet; make one, as by `git commit --allow"):
            Repository.around(tmp_path).ensure_branch("integration")

    @pytest.mark.parametrize("name", ["", "a..b", "-x", "a b", "x.lock", "@{-1}", "task/x", "salvage"])
    def test_a_name_that_cannot_be(self, home: Home, name: str) -> None:
        """Settings are checked where they are used."""
        with pytest.raises(UsageError, match="choose another"):
            home.repository.ensure_branch(name)

    def test_checked_out_by_the_user(self, home: Home) -> None:
        """Moving it would make the user's files look changed."""
        home.git("checkout", "--quiet", "-b", "integration")
        with pytest.raises(UnfitRepository, match=r"checked out in .*home.*switch --detach`"):
            home.repository.ensure_branch("integration")

    def test_checked_out_in_another_worktree_of_the_user(self, home: Home, tmp_path: Path) -> None:
        """Any worktree counts but Liza's own."""
        home.git("worktree", "add", "--quiet", "-b", "integration", str(tmp_path / "side"))
        with pytest.raises(UnfitRepository, match="side"):
            home.repository.ensure_branch("integration")

    def test_an_agent_that_checks_it_out_stops_nothing(self, home: Home) -> None:
        """What happens in a task's worktree is that task's problem."""
        home.repository.ensure_branch("integration")
        _, agent = home.task()
        agent.git("checkout", "--quiet", "integration")

        assert home.repository.ensure_branch("integration") == INTEGRATION

    def test_a_git_that_is_too_old(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would fail at the first merge, hours later."""
        old = tmp_path / "bin" / "git"
        old.parent.mkdir()
        old.write_text("#!/bin/sh\necho git version 2.30.2\n")
        old.chmod(0o755)
        monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
        with pytest.raises(UnfitRepository, match=r"install 2\.38 or newer"):
            home.repository.ensure_branch("integration")

    def test_a_branch_in_the_way_of_the_tasks(self, home: Home) -> None:
        """Git cannot have `task` and `task/t1` at once."""
        home.git("branch", "task")
        with pytest.raises(UnfitRepository, match="git branch -m task task-old"):
            home.repository.ensure_branch("integration")


class TestMovingRefs:
    def test_a_lost_race_is_a_value(self, home: Home) -> None:
        """The ref moves only from where the caller saw it."""
        later = home.commit({"a.txt": "later\n"})
        other = home.commit({"a.txt": "other\n"})
        move = home.repository.move_ref

        assert move(INTEGRATION, to=home.base, expected=None, why="begin")
        assert not move(INTEGRATION, to=later, expected=None, why="late")
        assert not move(INTEGRATION, to=later, expected=other, why="wrong")
        assert move(INTEGRATION, to=later, expected=home.base, why="right")
        assert move(INTEGRATION, to=later, expected=home.base, why="again")
        assert home.repository.commit_at(INTEGRATION) == later

    def test_a_ref_that_is_gone_is_a_lost_race(self, home: Home) -> None:
        """Somebody may delete the integration branch in mid-run."""
        assert not home.repository.move_ref(INTEGRATION, to=home.base, expected=home.base, why="gone")
        assert home.repository.delete(INTEGRATION, expected=home.base)

    def test_a_ref_that_points_at_the_users_branch_does_not_move_it(self, home: Home) -> None:
        """An agent may plant a symbolic ref; only the name itself is ever written."""
        later = home.commit({"a.txt": "later\n"})
        home.git("symbolic-ref", INTEGRATION, "refs/heads/main")

        home.repository.move_ref(INTEGRATION, to=home.base, expected=later, why="merge")

        assert home.repository.commit_at("refs/heads/main") == later

    def test_the_lock_of_a_killed_git_is_broken(self, home: Home) -> None:
        """A SIGKILL between lock and rename must not stop every merge that follows."""
        home.repository.ensure_branch("integration")
        later = home.commit({"a.txt": "later\n"})
        lock = home.repository.common / f"{INTEGRATION}.lock"
        lock.touch()
        os.utime(lock, (time.time() - 60, time.time() - 60))

        assert home.repository.move_ref(INTEGRATION, to=later, expected=home.base, why="merge")

    def test_a_task_cannot_leave_its_place(self) -> None:
        """Ids are checked before they come here; the branch is below one name."""
        assert branch_of("goal.2") == "refs/heads/task/goal.2"


class TestSignature:
    def commit(self, home: Home) -> str:
        repository = Repository.around(home.directory)
        tree = repository.tree_of("refs/heads/main")
        commit = repository.commit_tree(tree, parents=(), message="m\n", at=NOW)
        return home.git("show", "--no-patch", "--format=%an <%ae> %cn <%ce> %aI", commit)

    def test_the_users_own_name(self, home: Home) -> None:
        """Merges are made in the name of whoever runs Liza."""
        who = "Ada <ada@example.org>"
        assert self.commit(home) == f"{who} {who} 2026-01-31T12:00:00+00:00"

    def test_lizas_where_the_user_has_none(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fresh machine can merge as well."""
        home.git("config", "--remove-section", "user")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        who = "Liza <liza@localhost>"
        assert self.commit(home) == f"{who} {who} 2026-01-31T12:00:00+00:00"
