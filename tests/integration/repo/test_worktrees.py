"""Worktrees: kept for the same coder, fresh for another, and with nothing of the old task in the new one."""

import itertools
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

from liza.errors import UnfitRepository
from liza.repo.pool import POOL_LIMIT, scratch_tree
from liza.repo.worktree import Worktree, inspect_submission
from tests.support.repos import NOW, Hand, Home, snapshot

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def administered(home: Home) -> list[str]:
    directory = home.repository.common / "worktrees"
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


class TestPreparing:
    def test_a_worktree_on_the_branch_of_the_task(self, home: Home) -> None:
        """The agent finds the base checked out on `task/<id>`."""
        worktree, agent = home.task("goal.2")

        assert worktree.path == home.directory / ".worktrees" / "goal.2"
        assert agent.git("symbolic-ref", "HEAD") == "refs/heads/task/goal.2"
        assert agent.git("rev-parse", "HEAD") == home.base
        assert agent.git("status", "--porcelain") == ""
        assert (worktree.path / "src" / "b.py").read_text() == "B = 1\n"

    def test_the_users_checkout_is_untouched(self, home: Home) -> None:
        """Not a byte of it, nor its index, HEAD or branches."""
        home.write("a.txt", "dirty\n")
        home.write("new.txt", "untracked\n")
        home.git("add", "new.txt")
        before = snapshot(home.directory)
        index = (home.repository.home / "index").read_bytes()

        home.task("t1")
        home.worktrees.release("t1", at=NOW)
        home.worktrees.drain()

        assert snapshot(home.directory) == before
        assert (home.repository.home / "index").read_bytes() == index
        assert home.git("symbolic-ref", "HEAD") == "refs/heads/main"

    def test_the_same_coder_finds_everything_as_it_was(self, home: Home) -> None:
        """Commits, staged and unstaged changes, untracked and ignored files."""
        _, agent = home.task()
        agent.commit({"c.txt": "c\n"})
        agent.write("a.txt", "changed\n")
        agent.write("staged.txt", "s\n")
        agent.git("add", "staged.txt")
        agent.write("x.log", "ignored\n")
        before = (
            snapshot(agent.directory),
            agent.git("status", "--porcelain"),
            agent.git("rev-parse", "HEAD"),
        )

        _, agent = home.task()

        assert (
            snapshot(agent.directory),
            agent.git("status", "--porcelain"),
            agent.git("rev-parse", "HEAD"),
        ) == before

    def test_locks_of_a_killed_agent_do_not_stop_the_next_attempt(self, home: Home) -> None:
        """A SIGKILL in the middle of `git commit` leaves them."""
        worktree, agent = home.task()
        (worktree.admin / "index.lock").touch()
        (worktree.admin / "HEAD.lock").touch()
        (home.repository.common / "refs/heads/task/t1.lock").touch()

        _, agent = home.task()

        assert agent.commit({"c.txt": "c\n"})

    def test_another_coder_gets_a_fresh_one(self, home: Home) -> None:
        """Nothing of the first attempt is there, and all of it is saved."""
        _, agent = home.task()
        done = agent.commit({"c.txt": "c\n"})
        agent.write("half.txt", "half\n")

        worktree = home.worktrees.renew("t1", home.base, at=NOW)

        agent = Hand(worktree.path)
        assert agent.git("rev-parse", "task/t1") == agent.git("rev-parse", "HEAD") == home.base
        assert agent.git("status", "--porcelain", "--ignored") == ""
        assert home.reachable(done)
        assert home.git("show", "refs/liza/salvage/t1/1:half.txt") == "half"

    def test_another_coder_after_a_release(self, home: Home) -> None:
        """The branch alone may hold the only copy of the work."""
        _, agent = home.task()
        done = agent.commit({"c.txt": "c\n"})
        home.worktrees.release("t1", at=NOW)

        home.worktrees.renew("t1", home.base, at=NOW)

        assert home.git("rev-parse", "task/t1") == home.base
        assert home.reachable(done)

    def test_a_directory_that_somebody_deleted_is_made_again(self, home: Home) -> None:
        """With the work that was committed."""
        worktree, agent = home.task()
        done = agent.commit({"c.txt": "c\n"})
        shutil.rmtree(worktree.path)
        assert home.worktrees.of("t1") is None
        assert home.worktrees.tasks() == ["t1"]

        _, agent = home.task()

        assert agent.git("rev-parse", "HEAD") == done
        assert agent.git("status", "--porcelain") == ""
        assert len(administered(home)) == 1

    def test_the_whole_area_deleted(self, home: Home) -> None:
        """`rm -rf .worktrees` costs the uncommitted work and nothing else."""
        home.task("t1")
        home.task("t2")
        home.worktrees.release("t2", at=NOW)
        shutil.rmtree(home.directory / ".worktrees")

        _, agent = home.task()

        assert agent.git("status", "--porcelain") == ""

    def test_a_branch_that_the_agent_deleted(self, home: Home) -> None:
        """The task begins again, and the commits are saved."""
        _, agent = home.task()
        done = agent.commit({"c.txt": "c\n"})
        agent.git("checkout", "--quiet", "--detach")
        agent.git("branch", "-D", "task/t1")

        _, agent = home.task()

        assert agent.git("rev-parse", "task/t1") == home.base
        assert home.reachable(done)

    def test_a_directory_of_somebody_else(self, home: Home) -> None:
        """What stands in the way is saved, then cleared."""
        home.write(".worktrees/t1/precious.txt", "mine\n")

        _, agent = home.task()

        assert agent.git("status", "--porcelain", "--ignored") == ""
        assert home.git("show", "refs/liza/salvage/t1/1:precious.txt") == "mine"

    def test_the_users_worktrees_are_not_pruned(self, home: Home, tmp_path: Path) -> None:
        """One may be on a disk that is not mounted just now."""
        home.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        (tmp_path / "side").rename(tmp_path / "unmounted")

        home.task()
        shutil.rmtree(home.directory / ".worktrees")
        home.task()
        home.worktrees.release("t1", at=NOW)
        home.worktrees.drain()

        assert administered(home) == ["side"]


class TestHostileAgents:
    def test_garbage_among_git_s_records(self, home: Home) -> None:
        """It must not end every worker that looks."""
        for name, content in {"x": b"\xff\xfe\0", "y": b"", "z": b"/nowhere/.git\n"}.items():
            (home.repository.common / "worktrees" / name).mkdir(parents=True)
            (home.repository.common / "worktrees" / name / "gitdir").write_bytes(content)

        _, agent = home.task()

        assert agent.git("status", "--porcelain") == ""
        assert home.worktrees.tasks() == ["t1"]

    def test_a_worktree_replaced_by_a_link_to_the_users_checkout(self, home: Home) -> None:
        """Cleaning must not follow it."""
        worktree, agent = home.task()
        shutil.rmtree(worktree.path)
        worktree.path.symlink_to(home.directory)
        home.write("untracked.txt", "the user's\n")

        home.task()
        home.worktrees.release("t1", at=NOW)

        assert (home.directory / "untracked.txt").read_text() == "the user's\n"
        assert not agent.directory.exists()

    def test_the_whole_area_replaced_by_a_link(self, home: Home, tmp_path: Path) -> None:
        """Nothing is removed through it."""
        (home.directory / ".worktrees").symlink_to(tmp_path)
        with pytest.raises(UnfitRepository, match="is a link to"):
            home.task()

    def test_a_repository_of_its_own_instead_of_ours(self, home: Home) -> None:
        """`rm -rf .git; git init` changes nothing that Liza sees, and is put right."""
        worktree, agent = home.task()
        (worktree.path / ".git").unlink()
        agent.git("init", "--quiet", "--initial-branch=task/t1")
        agent.git("config", "core.fsmonitor", "false")
        agent.commit({"c.txt": "c\n"})

        assert "nothing was committed" in " ".join(inspect_submission(worktree, "t1", home.base).reasons)
        _, agent = home.task()

        assert agent.git("rev-parse", "HEAD") == home.base
        assert agent.git("status", "--porcelain") == "?? c.txt"
        aside = Hand(home.directory / ".worktrees/.salvage/t1-1")
        assert aside.git("--git-dir=dot-git", "log", "--format=%s", "task/t1").startswith("add c.txt")

    def test_pointers_to_another_repository_are_ignored(self, home: Home, tmp_path: Path) -> None:
        """Neither `.git` nor `commondir` of a worktree is believed."""
        other = Home(tmp_path / "other")
        worktree, _ = home.task()
        (worktree.path / ".git").write_text(f"gitdir: {other.repository.common}\n")
        (worktree.admin / "commondir").write_text(f"{other.repository.common}\n")
        (worktree.admin / "gitdir").write_text(f"{worktree.path}/.git\n")

        assert worktree.head() == home.base
        _, agent = home.task()
        assert agent.git("rev-parse", "--git-common-dir") == str(home.repository.common)

    def test_configuration_of_the_worktree_runs_nothing(self, home: Home, tmp_path: Path) -> None:
        """It can name filters, and a filter is a program."""
        home.git("config", "extensions.worktreeConfig", "true")
        worktree, agent = home.task()
        agent.write(".gitattributes", "* filter=trap\n")
        agent.git("config", "--worktree", "filter.trap.clean", f"touch {tmp_path}/sprung; cat")
        agent.write("a.txt", "changed\n")

        inspect_submission(worktree, "t1", home.base)
        home.worktrees.release("t1", at=NOW)

        assert not (tmp_path / "sprung").exists()

    def test_a_worktree_inside_a_worktree(self, home: Home) -> None:
        """Its commits are kept, and nothing of it is left."""
        _, agent = home.task()
        agent.git("worktree", "add", "--quiet", "--detach", "inner")
        done = Hand(agent.directory / "inner").commit({"c.txt": "c\n"})

        home.worktrees.release("t1", at=NOW)

        assert home.reachable(done)
        assert administered(home) == ["liza-1"]


def plant(worktree: Worktree, agent: Hand, outside: Path) -> None:
    """Leave something of every kind behind."""
    agent.commit({"c.txt": "committed\n", "a.txt": "one\nmine\nthree\n"})
    agent.write("a.txt", "hidden\n")
    agent.git("update-index", "--assume-unchanged", "a.txt")
    agent.write("src/b.py", "hidden too\n")
    agent.git("update-index", "--skip-worktree", "src/b.py")
    agent.write("untracked.txt", "u\n")
    agent.write("build/ignored.log", "i\n")
    agent.write("staged.txt", "s\n")
    agent.git("add", "--intent-to-add", "staged.txt")
    (agent.directory / "empty" / "deep").mkdir(parents=True)
    Hand(agent.directory / "src").git("init", "--quiet", "nested")
    Hand(agent.directory / "src" / "nested").commit({"n.txt": "n\n"})
    (agent.directory / "out").symlink_to(outside)
    (agent.directory / "src" / "linked").symlink_to(outside, target_is_directory=True)
    locked = agent.write("locked/inner/file.txt", "r\n").parent
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    os.mkfifo(agent.directory / "pipe")
    (agent.directory / ".gitignore").chmod(0o600)
    plant_in_git(worktree, agent)


def plant_in_git(worktree: Worktree, agent: Hand) -> None:
    agent.git("config", "extensions.worktreeConfig", "true")
    agent.git("config", "--worktree", "user.name", "Mallory")
    (worktree.admin / "hooks").mkdir()
    (worktree.admin / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    (worktree.admin / "info").mkdir()
    (worktree.admin / "info" / "sparse-checkout").write_text("/nothing\n")
    (worktree.admin / "MERGE_HEAD").write_text(f"{agent.git('rev-parse', 'HEAD')}\n")
    (worktree.admin / "rebase-merge").mkdir()
    (worktree.admin / "rebase-merge" / "head-name").write_text("refs/heads/task/t1\n")
    (worktree.admin / "BISECT_LOG").write_text("git bisect start\n")
    (worktree.admin / "index.lock").touch()
    (worktree.admin / "HEAD.lock").touch()
    agent.git("update-ref", "refs/worktree/mine", "HEAD")
    agent.git("update-ref", "refs/bisect/bad", "HEAD")


def as_nobody(place: Path) -> int:
    """Lock directories and let them be cleaned, in a child that must not go on as a second pytest."""
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        home = Home(place / "home")
        worktree, agent = home.task()
        agent.write("d/e/f.txt", "x\n")
        for locked in ("d/e", "d", "src"):
            (worktree.path / locked).chmod(0o500)
        saved = home.worktrees.release("t1", at=NOW)
        fresh, agent = home.task("t2")
        assert saved
        assert (fresh.admin, agent.git("status", "--porcelain")) == (worktree.admin, "")
        home.worktrees.release("t2", at=NOW)
        (home.directory / ".worktrees/.pool/liza-1/src").chmod(0o500)
        home.worktrees.drain()
        assert not (home.directory / ".worktrees").exists()
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
        return 1
    return 0


class TestRecycling:
    def test_nothing_of_the_old_task_is_left_in_the_new_one(self, home: Home, tmp_path: Path) -> None:
        """Files of every kind, flags, configuration, hooks and half-done operations are gone."""
        home.task("clean")
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "keep.txt").write_text("keep\n")
        expected = snapshot(home.directory / ".worktrees" / "clean")
        worktree, agent = home.task("t1")
        plant(worktree, agent, outside)

        home.worktrees.release("t1", at=NOW)
        fresh, agent = home.task("t2")

        assert fresh.admin == worktree.admin
        assert snapshot(fresh.path) == expected
        assert agent.git("status", "--porcelain", "--ignored") == ""
        assert {line[0] for line in agent.git("ls-files", "-v").splitlines()} == {"H"}
        assert agent.git("symbolic-ref", "HEAD") == "refs/heads/task/t2"
        assert agent.git("config", "user.name") == "Ada"
        assert agent.git("for-each-ref", "refs/worktree", "refs/bisect") == ""
        assert sorted(path.name for path in fresh.admin.iterdir()) == [
            "HEAD",
            "commondir",
            "gitdir",
            "index",
            "logs",
        ]
        assert (outside / "keep.txt").read_text() == "keep\n"
        assert (fresh.path / ".git").read_text() == f"gitdir: {fresh.admin}\n"

    def test_a_cherry_pick_and_a_rebase_half_done(self, home: Home) -> None:
        """The next agent does not find itself in the middle of somebody's rebase."""
        _, agent = home.task()
        agent.commit({"a.txt": "mine\n"})
        home.commit({"a.txt": "theirs\n"})
        subprocess.run(["git", "rebase", "main"], cwd=agent.directory, capture_output=True, check=False)
        assert "rebase in progress" in agent.git("status")

        home.worktrees.release("t1", at=NOW)
        _, agent = home.task("t2")

        assert agent.git("status") == "On branch task/t2\nnothing to commit, working tree clean"

    def test_the_stash_is_nobodys_but_the_users(self, home: Home) -> None:
        """It is shared by all worktrees, so it stays out of recycling."""
        home.write("a.txt", "stashed\n")
        home.git("stash")
        home.task()
        home.worktrees.release("t1", at=NOW)
        home.task("t2")

        assert home.git("stash", "show", "-p").count("stashed") == 1

    def test_touched_files_are_written_again(self, home: Home) -> None:
        """Even where an agent made its index say that they are as they should be."""
        _, agent = home.task()
        path = agent.write("a.txt", "one\ntwo\nTHREE\n")
        agent.git("update-index", "--cacheinfo", f"100644,{agent.git('hash-object', '-w', 'a.txt')},a.txt")
        path.chmod(0o640)

        home.worktrees.release("t1", at=NOW)
        _, agent = home.task("t2")

        assert (agent.directory / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert stat.S_IMODE((agent.directory / "a.txt").stat().st_mode) != 0o640

    def test_a_worktree_is_whole_where_the_users_is_sparse(self, home: Home) -> None:
        """Liza's worktrees do not inherit what the user hides from their own."""
        home.git("sparse-checkout", "set", "nothing")

        _, agent = home.task()

        assert (agent.directory / "src" / "b.py").exists()

    def test_a_base_with_submodules(self, home: Home, tmp_path: Path) -> None:
        """They are neither fetched nor in the way of recycling."""
        other = Home(tmp_path / "other")
        home.git(
            "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.directory), "sub"
        )
        home.base = home.commit()
        worktree, agent = home.task()
        agent.commit({"c.txt": "c\n"})

        assert inspect_submission(worktree, "t1", home.base).reasons == ()
        home.worktrees.release("t1", at=NOW)
        fresh, agent = home.task("t2")
        assert (fresh.admin, agent.git("status", "--porcelain")) == (worktree.admin, "")

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody without root's rights")
    def test_read_only_directories_are_cleaned_by_an_ordinary_user_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root may remove anything, and we do not run as root in earnest."""
        with tempfile.TemporaryDirectory() as place:
            Home(Path(place) / "home")
            for parent, directories, names in os.walk(place):
                for name in [".", *directories, *names]:
                    os.chown(Path(parent) / name, NOBODY, NOBODY)
            monkeypatch.setenv("HOME", place)
            child = os.fork()
            if child == 0:
                os._exit(as_nobody(Path(place)))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_damage_in_what_we_remember(self, home: Home) -> None:
        """A damaged worktree in the pool costs time, not a task, and no work."""
        worktree, _ = home.task()
        home.worktrees.release("t1", at=NOW)
        waiting = home.directory / ".worktrees" / ".pool" / worktree.admin.name
        worktree.kept_index.write_bytes(b"garbage")
        (waiting / "a.txt").write_text("changed\n")

        _, agent = home.task("t2")
        agent.write("a.txt", "work\n")
        worktree.kept_index.write_bytes(b"garbage")
        saved = home.worktrees.release("t2", at=NOW)

        assert home.git("show", f"{saved and saved.ref}:a.txt") == "work"

    def test_the_pool_has_an_end(self, home: Home) -> None:
        """Worktrees that nobody needs must not fill the disk."""
        names = [f"t{number}" for number in range(POOL_LIMIT + 1)]
        for name in names:
            home.task(name)
        for name in names:
            home.worktrees.release(name, at=NOW)

        assert len(administered(home)) == POOL_LIMIT
        home.worktrees.drain()
        assert administered(home) == []
        assert not (home.directory / ".worktrees").exists()

    def test_draining_leaves_tasks_alone(self, home: Home) -> None:
        """Only what waits goes."""
        home.task("t1")
        home.task("t2")
        home.worktrees.release("t2", at=NOW)

        home.worktrees.drain()

        _, agent = home.task("t1")
        assert agent.git("status", "--porcelain") == ""
        assert len(administered(home)) == 1

    def test_a_merged_branch_is_retired_and_no_other(self, home: Home) -> None:
        """A branch with work that is nowhere else stays."""
        _, agent = home.task("t1")
        agent.commit({"c.txt": "c\n"})
        home.worktrees.release("t1", at=NOW)

        assert not home.worktrees.retire_branch("t1", into="refs/heads/main")
        home.git("merge", "--quiet", "--no-ff", "task/t1")
        assert home.worktrees.retire_branch("t1", into="refs/heads/main")
        assert home.worktrees.retire_branch("t1", into="refs/heads/main")
        assert home.git("for-each-ref", "refs/heads/task") == ""


def work_until(seconds: float, home: Home, commits: Path) -> None:
    """Prepare, commit, give back and begin again, until a signal that nobody handles ends it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    for number in itertools.count():
        for task in ("t1", "t2"):
            _, agent = home.task(task)
            agent.write("c.txt", f"{os.getpid()} {number}\n")
            agent.git("add", "--all")
            agent.git("commit", "--quiet", "-m", "work")
            with commits.open("a") as file:
                file.write(f"{agent.git('rev-parse', 'HEAD')}\n")
            agent.write("half.txt", "half\n")
            if number % 2:
                home.worktrees.release(task, at=NOW)
            else:
                home.worktrees.renew(task, home.base, at=NOW)


class TestCutShort:
    """A process may be killed between any two steps; the step is done again."""

    def test_after_the_move_and_before_git_knew(self, home: Home) -> None:
        worktree, _ = home.task("t1")
        home.worktrees.release("t1", at=NOW)
        (home.directory / ".worktrees" / ".pool" / "liza-1").rename(home.directory / ".worktrees" / "t2")

        fresh, agent = home.task("t2")

        assert (fresh.admin, agent.git("status", "--porcelain")) == (worktree.admin, "")
        assert home.git("for-each-ref", "refs/liza") == ""

    def test_in_the_middle_of_filling(self, home: Home) -> None:
        """Half a checkout is not work that must be saved."""
        worktree, _ = home.task("t1")
        worktree.mark("")
        (worktree.path / "a.txt").unlink()
        (worktree.admin / "index.lock").touch()

        _, agent = home.task("t1")

        assert agent.git("status", "--porcelain") == ""
        assert home.git("for-each-ref", "refs/liza") == ""

    def test_in_the_middle_of_parking(self, home: Home) -> None:
        worktree, _ = home.task("t1")
        worktree.mark("")
        (home.directory / ".worktrees" / ".pool").mkdir(exist_ok=True)
        worktree.path.rename(home.directory / ".worktrees" / ".pool" / "liza-1")

        home.worktrees.release("t1", at=NOW)
        _, agent = home.task("t2")

        assert agent.git("status", "--porcelain") == ""

    def test_releasing_twice(self, home: Home) -> None:
        home.task()
        home.worktrees.release("t1", at=NOW)

        assert home.worktrees.release("t1", at=NOW) is None

    def test_killed_at_any_moment(self, home: Home, tmp_path: Path) -> None:
        """Pains, A17: whatever was committed is reachable, and the next attempt just works."""
        commits = tmp_path / "commits"
        commits.touch()
        chance = random.Random(7)
        # Until some got as far as a commit, however busy the machine is.
        for number in range(60):
            child = os.fork()
            if child == 0:
                work_until(chance.uniform(0.02, 0.3) * (1 + number // 12), home, commits)
            os.waitpid(child, 0)
            if number >= 11 and commits.read_text():
                break

        for task in ("t1", "t2"):
            worktree = home.worktrees.renew(task, home.base, at=NOW)
            assert Hand(worktree.path).git("status", "--porcelain", "--ignored") == ""
        made = set(commits.read_text().split())
        assert made
        assert made <= set(home.git("rev-list", "--glob=refs/*").split())

    def test_many_processes_never_share_a_slot(self, home: Home) -> None:
        """Coders start at the same moment, as at the start of a run."""
        code = (
            "import sys; from pathlib import Path; from liza.repo.pool import Worktrees\n"
            "from liza.repo.repository import Repository; from tests.support.repos import NOW\n"
            "worktrees = Worktrees(Repository.around(Path(sys.argv[1])))\n"
            "for n in range(3):\n"
            "    name = f'{sys.argv[2]}-{n}'; worktrees.prepare(name, sys.argv[3], at=NOW)\n"
            "    n % 2 and worktrees.release(name, at=NOW)\n"
        )
        words = [sys.executable, "-c", code, str(home.directory)]
        root = Path(__file__).parents[3]
        running = [subprocess.Popen([*words, name, home.base], cwd=root) for name in ("p", "q", "r", "s")]

        assert [process.wait(60) for process in running] == [0, 0, 0, 0]
        tasks = home.worktrees.tasks()
        assert tasks == [f"{name}-{number}" for name in "pqrs" for number in (0, 2)]
        found = [home.worktrees.of(task) for task in tasks]
        assert len({worktree.admin for worktree in found if worktree}) == len(tasks)


class TestScratch:
    def test_an_exact_commit_and_then_nothing(self, home: Home) -> None:
        """The gate sees the tree that will be merged, and no trace of it stays."""
        later = home.commit({"a.txt": "later\n"})
        with scratch_tree(home.worktrees, later) as path:
            assert (path / "a.txt").read_text() == "later\n"
            assert Hand(path).git("rev-parse", "HEAD") == later
            (path / "junk").write_text("x")
            assert path.name == ".scratch-1"

        assert not path.exists()
        assert home.worktrees.tasks() == []

    def test_a_bare_tree(self, home: Home) -> None:
        """A merged tree can be looked at before any commit has it."""
        with scratch_tree(home.worktrees, home.repository.tree_of("refs/heads/main")) as path:
            assert Hand(path).git("status", "--porcelain") == ""
            assert (path / "src" / "b.py").exists()

    def test_it_is_recycled(self, home: Home) -> None:
        """And shares the pool with the tasks."""
        for _ in range(2):
            with scratch_tree(home.worktrees, home.base) as path:
                assert snapshot(path).keys() == {"a.txt", "src", "src/b.py", ".gitignore"}
                (path / "junk").write_text("x")
        home.task()

        assert administered(home) == ["liza-1"]

    def test_two_at_once(self, home: Home) -> None:
        """Two reviewers may merge at a time."""
        with scratch_tree(home.worktrees, home.base) as one, scratch_tree(home.worktrees, home.base) as two:
            assert one != two

    def test_a_gate_that_fails_is_cleaned_up_after(self, home: Home) -> None:
        """An exception of the caller goes through, and the directory goes away."""
        with pytest.raises(TimeoutError), scratch_tree(home.worktrees, home.base) as path:
            raise TimeoutError
        assert not path.exists()

    def test_what_a_killed_process_left_is_reused(self, home: Home) -> None:
        """The kernel lets go of its lock, so nobody has to guess whether it lives."""
        stale = home.worktrees.take(home.directory / ".worktrees" / ".scratch-1", home.base)
        (stale.path / "junk").write_text("x")
        lock = home.directory / ".worktrees" / ".scratch-1.lock"

        with scratch_tree(home.worktrees, home.base) as path:
            assert path == stale.path
            assert not (path / "junk").exists()

        home.worktrees.take(stale.path, home.base)
        lock.touch()
        home.worktrees.drain()
        assert administered(home) == []
        assert not (home.directory / ".worktrees").exists()

    def test_draining_leaves_a_gate_that_runs_alone(self, home: Home) -> None:
        """Only what nobody looks at goes."""
        with scratch_tree(home.worktrees, home.base) as path:
            home.worktrees.drain()
            assert (path / "a.txt").exists()
        home.worktrees.drain()
        assert not (home.directory / ".worktrees").exists()


class TestWhatIsCheckedOut:
    def test_a_branch_that_is_another_name_is_what_it_leads_to(self, home: Home) -> None:
        """Whoever makes the branch of a task a name of another branch is told by that."""
        worktree, _ = home.task()
        home.git("branch", "other")
        home.git("symbolic-ref", "refs/heads/task/t1", "refs/heads/other")

        spot = worktree.head_position()

        assert spot is not None
        assert spot.branch == "other"
        assert worktree.branch() == "other"

    @pytest.mark.parametrize("is_packed", [False, True])
    def test_it_is_told_as_git_tells_it(self, home: Home, *, is_packed: bool) -> None:
        worktree, agent = home.task()
        head = agent.commit({"x": "x"})
        if is_packed:
            home.git("pack-refs", "--all")

        assert worktree.head() == head
        assert worktree.head_position() == (head, agent.git("rev-parse", "HEAD^{tree}"), "task/t1")
        agent.git("checkout", "--quiet", "--detach")
        assert worktree.head_position() == (head, agent.git("rev-parse", "HEAD^{tree}"), None)
        agent.git("symbolic-ref", "HEAD", "refs/heads/nowhere")
        assert (worktree.head(), worktree.branch()) == (None, "nowhere")


class TestWhatIsNotInTheTree:
    def test_it_goes_and_nothing_outside_does(self, home: Home, tmp_path: Path) -> None:
        """Ignored files, repositories, links and empty directories; what a link leads to stays."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "mine").write_text("mine")
        worktree, agent = home.task()
        agent.write("x.log", "ignored")
        agent.write("src/deep/er/x", "untracked")
        (agent.directory / "src" / "link").symlink_to(outside)
        (agent.directory / "out").symlink_to(outside)
        (agent.directory / "empty" / "er").mkdir(parents=True)
        agent.git("init", "--quiet", "src/inner")
        shutil.rmtree(agent.directory / "src" / "inner" / ".git" / "hooks", ignore_errors=True)

        worktree.remove_untracked(home.base)

        found = {str(path.relative_to(worktree.path)) for path in worktree.path.rglob("*")}
        assert found == {".git", ".gitignore", "a.txt", "src", "src/b.py"}
        assert (outside / "mine").read_text() == "mine"

    def test_a_folder_that_became_a_link_is_not_followed(self, home: Home, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "b.py").write_text("mine")
        (outside / "other").write_text("mine")
        worktree, agent = home.task()
        shutil.rmtree(agent.directory / "src")
        (agent.directory / "src").symlink_to(outside)

        worktree.remove_untracked(home.base)

        assert {path.name for path in outside.iterdir()} == {"b.py", "other"}

    @pytest.mark.parametrize("name", ["a.txt", ".gitignore", "src/b.py", "src/new"])
    def test_a_pipe_in_place_of_a_file_makes_nobody_wait(self, home: Home, name: str) -> None:
        worktree, agent = home.task()
        (agent.directory / name).unlink(missing_ok=True)
        os.mkfifo(agent.directory / name)

        worktree.fill(home.base)

        found = {str(path.relative_to(worktree.path)) for path in worktree.path.rglob("*")}
        assert found == {".git", ".gitignore", "a.txt", "src", "src/b.py"}
        assert all(path.is_file() for path in worktree.path.rglob("*.*"))

    def test_what_cannot_be_removed_at_first_goes_all_the_same(self, home: Home) -> None:
        worktree, agent = home.task()
        agent.write("locked/inside/x", "x")
        (agent.directory / "locked" / "inside").chmod(0)
        try:
            worktree.fill(home.base)
        finally:
            if (agent.directory / "locked" / "inside").exists():
                (agent.directory / "locked" / "inside").chmod(0o700)

        assert not (agent.directory / "locked").exists()
