"""What an agent leaves for Liza to touch: programs, links and pipes where files were expected."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.clis.private_home import PrivateHome as ProgramHome
from liza.agents.clis.spec import PermissionFlags
from liza.agents.clis.table import CLIS
from liza.cli.process import anchor
from liza.daemon.recover import recover
from liza.domain.model import Status
from liza.errors import GitFailed
from liza.repo import salvage
from liza.repo.command import ask_git
from liza.repo.private_gitdir import PrivateGitDir
from liza.repo.repository import branch_of
from liza.repo.snapshot import WorktreeTracker, commit_all, roll_back, snapshot, worktree_state
from liza.system.files import make_directory, read_file, remove, remove_file, write_file
from liza.system.process import leftover_processes, sweep
from tests.support.repos import INTEGRATION, NOW, Hand, Home
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 120.0  # seconds that anything may take on a busy machine
NOTE: Final = "note.ipynb"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def planted(mark: Path) -> str:
    return f"#!/bin/sh\ntouch '{mark}'\ncat\n"


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make_deep(place: Path, depth: int) -> None:
    """Make directories inside of each other, deeper than a path can tell."""
    here = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


class TestHead:
    @pytest.mark.parametrize("branch", ["main", INTEGRATION, "task/other", "task/t1/../../main"])
    def test_what_is_left_is_committed_on_no_branch_but_the_tasks_own(self, home: Home, branch: str) -> None:
        """An agent can write what HEAD says, and Liza moved the user's branch for it."""
        home.git("branch", "--force", "task/other", "main")
        before = home.git("for-each-ref", "--format=%(refname) %(objectname)")
        worktree, agent = home.task()
        agent.write("a.txt", "b\n")
        (worktree.admin / "HEAD").write_text(f"ref: refs/heads/{branch}\n")

        assert commit_all(worktree, "left", at=NOW) is None

        after = home.git("for-each-ref", "--format=%(refname) %(objectname)")
        assert set(before.splitlines()) <= set(after.splitlines())


class TestDepth:
    @pytest.mark.parametrize("depth", [1100, 2500])  # deeper than Python's stack, and than any path
    def test_a_deep_directory_stops_nobody(self, home: Home, depth: int) -> None:
        """It ended the worker, three times, and with it the run."""
        worktree, agent = home.task()
        make_deep(worktree.path, depth)
        agent.write("a.txt", "b\n")

        head, tree = worktree_state(worktree)
        roll_back(worktree, "t1", head=head, tree=tree, at=NOW)
        home.worktrees.release("t1", at=NOW)

        assert home.git("show", f"{tree}:a.txt") == "b"
        again, _ = home.task()
        assert not (again.path / "d").exists()

    def test_it_is_removed_wherever_it_is(self, tmp_path: Path) -> None:
        """As in the private home of an agent, or in its directory for temporary files."""
        for name in ("one", "two", "three"):
            (tmp_path / name).mkdir()
            make_deep(tmp_path / name, 1100)
            (tmp_path / name / "d").chmod(0)
            (tmp_path / name / "link").symlink_to(tmp_path)
        (tmp_path / "kept").write_text("x\n")

        remove(tmp_path / "one")
        remove_file(tmp_path, "two")
        write_file(tmp_path, "three", b"x\n")

        assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "three"]

    def test_git_s_own_directory_may_be_deep(self, home: Home) -> None:
        worktree, _ = home.task()
        make_deep(worktree.admin, 2500)

        assert worktree_state(worktree)
        home.worktrees.release("t1", at=NOW)


class TestFilters:
    @pytest.mark.parametrize(
        "command",
        [
            "python3 -m filtering",
            "./tools/filter.sh",
            "tools/filter.sh %f",
            '"$(git rev-parse --show-toplevel)"/tools/filter.sh',
            'sh "$GIT_WORK_TREE/tools/filter.sh"; cat',
            'cd "$OLDPWD" && ./tools/filter.sh',
            "make --silent filter",
        ],
    )
    def test_no_worktree_decides_which_program_a_filter_is(
        self, home: Home, tmp_path: Path, command: str
    ) -> None:
        """Git starts it in the top directory of the worktree, where everything is the agent's."""
        mark = tmp_path / "ran"
        for kind in ("clean", "smudge"):
            home.git("config", f"filter.notebook.{kind}", command)
        worktree, agent = home.task()
        executable(worktree.path / "tools/filter.sh", planted(mark))
        python = f"import pathlib, sys\npathlib.Path({str(mark)!r}).touch()\nprint(sys.stdin.read())\n"
        agent.write("filtering.py", python)
        agent.write("Makefile", f"filter:\n\t@touch '{mark}'; cat\n")
        agent.write(".gitattributes", "*.ipynb filter=notebook\n")
        agent.write(NOTE, "x\n")

        head, tree = worktree_state(worktree)
        worktree.repository.commit_tree(tree, parents=(head,), message="x\n", at=NOW)
        agent.write(NOTE, "y\n")
        roll_back(worktree, "t1", head=head, tree=tree, at=NOW)
        home.worktrees.release("t1", at=NOW)

        assert not mark.exists()

    @pytest.mark.parametrize("command", ["./tools/filter.sh", "python3 -m filtering", "tr x y"])
    def test_the_filter_that_the_user_has_goes_on_working(self, home: Home, command: str) -> None:
        """As in the user's own checkout: there it is found by the same words."""
        executable(home.directory / "tools/filter.sh", "#!/bin/sh\nexec tr x y\n")
        home.write("filtering.py", "import sys\nsys.stdout.write(sys.stdin.read().replace('x', 'y'))\n")
        home.git("config", "filter.notebook.clean", command)
        home.git("config", "filter.notebook.required", "true")
        worktree, agent = home.task()
        agent.write(".gitattributes", "*.ipynb filter=notebook\n")
        agent.write(NOTE, "x\n")

        assert home.git("show", f"{snapshot(worktree)}:{NOTE}") == "y"

    def test_a_filter_that_stays_for_all_files_is_tamed_too(self, home: Home, tmp_path: Path) -> None:
        home.git("config", "filter.notebook.process", "./tools/filter.sh")
        home.git("config", "filter.notebook.required", "true")
        worktree, agent = home.task()
        executable(worktree.path / "tools/filter.sh", planted(tmp_path / "ran"))
        agent.write(".gitattributes", "*.ipynb filter=notebook\n")
        agent.write(NOTE, "x\n")

        with pytest.raises(GitFailed):
            snapshot(worktree)

        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("setting", ["diff.notebook.command", "diff.notebook.textconv", "diff.external"])
    def test_no_worktree_decides_which_program_shows_a_difference(
        self, home: Home, tmp_path: Path, setting: str
    ) -> None:
        """What a run did is kept as a patch; the user's tools for reading one take no part in it."""
        mark = tmp_path / "ran"
        home.git("config", setting, "./tools/diff.sh")
        worktree, agent = home.task()
        trees = WorktreeTracker(home.worktrees)
        before = trees.mark(worktree.path)
        executable(worktree.path / "tools/diff.sh", planted(mark))
        agent.write(".gitattributes", "*.ipynb diff=notebook\n")
        agent.commit({NOTE: "x\n"})
        agent.write(NOTE, "y\n")

        committed, left = trees.patches(worktree.path, before)

        assert not mark.exists()
        assert b"\n+x\n" in committed.diff
        assert b"\n+y\n" in left.diff

    def test_a_repository_inside_runs_nothing_of_its_own(self, home: Home, tmp_path: Path) -> None:
        """`git add` starts git in it, with the configuration that is there."""
        worktree, agent = home.task()
        agent.git("init", "--quiet", "inner")
        inner = Hand(worktree.path / "inner")
        inner.commit({".gitattributes": "* filter=own\n", "f": "f\n"})
        agent.commit()
        executable(tmp_path / "evil.sh", planted(tmp_path / "ran"))
        for key in ("filter.own.clean", "core.fsmonitor", "diff.external"):
            inner.git("config", key, str(tmp_path / "evil.sh"))
        inner.write("f", "another\n")

        snapshot(worktree)
        home.worktrees.release("t1", at=NOW)

        assert not (tmp_path / "ran").exists()

    def test_all_kinds_of_change_are_staged(self, home: Home) -> None:
        """What `git add --all` would do: it is not asked, so it is compared."""
        worktree, agent = home.task()
        agent.commit({"gone.txt": "g\n", "dir/a": "a\n", "file": "f\n", "mode.sh": "m\n", "to-link": "l\n"})
        shutil.rmtree(worktree.path / "dir")
        (worktree.path / "dir").symlink_to("src")
        for name in ("gone.txt", "file", "to-link"):
            (worktree.path / name).unlink()
        agent.write("file/inside", "i\n")
        (worktree.path / "to-link").symlink_to("a.txt")
        (worktree.path / "mode.sh").chmod(0o755)
        agent.write("x.log", "ignored\n")
        agent.write("näme\nof two lines", "n\n")

        found = snapshot(worktree)

        agent.git("add", "--all")
        assert found == agent.git("write-tree")


class TestPrograms:
    def test_a_relative_entry_of_the_search_path_stays_where_the_person_was(self, tmp_path: Path) -> None:
        """With `.` in the PATH, a worktree's own `git` would be the one that Liza starts."""
        found = anchor(":.:node_modules/.bin:/usr/bin", tmp_path)

        assert found == f"{tmp_path}:{tmp_path}:{tmp_path}/node_modules/.bin:/usr/bin"


class TestAnotherRepository:
    FSMONITOR: Final = "rm -rf .git && git init -q && git config core.fsmonitor $PWD/evil.sh"

    @pytest.mark.parametrize("lie", ["true", 'echo /nowhere/.git > "$(git rev-parse --git-dir)/gitdir"'])
    def test_it_is_gone_before_the_task_is_let_go(self, tmp_path: Path, lie: str) -> None:
        """The next prompt that runs git in the directory would start what its configuration names."""
        act = {
            "run": f"{lie}; {self.FSMONITOR}",
            "answer": {"status": "blocked", "blocked_reason": "?", "blocked_questions": ["?"]},
        }
        team = ScriptedTeam(tmp_path, {"implement": act})
        team.task()

        team.turn("coder-1")

        assert team.status() is Status.BLOCKED, team.state.task("t1").history[-1]
        path = team.user.directory / ".worktrees" / "t1"
        assert (path / ".git").read_text().startswith("gitdir: ")
        assert Hand(path).git("config", "--get", "--default", "", "core.fsmonitor") == ""
        aside = team.user.directory / ".worktrees" / ".salvage"
        assert not list(aside.rglob(".git")), "nor is it armed where it was moved to"
        assert list(aside.rglob("dot-git"))

    def test_it_is_gone_also_where_its_worker_was_killed(self, tmp_path: Path) -> None:
        """Nobody was left to mend it at the end of the run; whoever gives the task back does."""
        team = ScriptedTeam(tmp_path)
        act = {
            "run": f"{self.FSMONITOR}; echo $PPID > {team.outside}/note",
            "until": str(team.outside / "never"),
        }
        team.script({"implement": act})
        team.task()
        with team.process("coder-1") as worker:
            team.noted()
            worker.kill()
            worker.wait()
        path = team.user.directory / ".worktrees" / "t1"
        assert (path / ".git").is_dir()

        recover(team.home, dry_run=False)

        assert team.status() is Status.IDLE
        assert (path / ".git").read_text().startswith("gitdir: ")
        assert Hand(path).git("config", "--get", "--default", "", "core.fsmonitor") == ""

    def test_an_agent_cannot_pass_its_records_off_as_those_of_another_task(self, home: Home) -> None:
        mine, _ = home.task("t1")
        other, agent = home.task("t2")
        agent.write("theirs.txt", "t\n")

        (mine.admin / "gitdir").write_text(f"{other.path}/.git\n")

        assert home.worktrees.of("t2") == other
        assert home.worktrees.of("t1") == mine
        assert home.task("t2")[0] == other
        assert (other.path / "theirs.txt").exists()


class TestLinks:
    def test_packs_from_elsewhere_are_not_taken_over(self, home: Home, tmp_path: Path) -> None:
        private = Home(tmp_path / "private")
        secret = private.commit({"secret.txt": "s\n"})
        private.git("repack", "-adq")
        worktree, _ = home.task()
        gitdir = PrivateGitDir(worktree, tmp_path / "gitdir", "t1")
        gitdir.create_copies()
        objects = tmp_path / "gitdir" / "objects"
        (objects / "pack").symlink_to(private.directory / ".git/objects/pack")
        # One that is asked for by name would be found in the packs as well.
        (objects / secret[:2]).mkdir()
        (objects / secret[:2] / secret[2:]).write_bytes(b"")

        with pytest.raises(GitFailed):
            gitdir.import_commits()

        assert home.repository.ask("cat-file", "-e", secret).code != 0

    def test_a_pipe_among_the_objects_holds_nobody_up(self, home: Home, tmp_path: Path) -> None:
        worktree, _ = home.task()
        gitdir = PrivateGitDir(worktree, tmp_path / "gitdir", "t1")
        gitdir.create_copies()
        pack = tmp_path / "gitdir" / "objects" / "pack"
        pack.mkdir()
        for name in (f"pack-{'a' * 40}.idx", f"pack-{'a' * 40}.pack", "multi-pack-index"):
            os.mkfifo(pack / name)
        os.mkfifo(tmp_path / "gitdir" / "refs" / "t2")

        gitdir.import_commits()

        assert home.repository.commit_at(branch_of("t1")) == home.base

    def test_liza_s_own_names_lead_nowhere(self, home: Home, tmp_path: Path) -> None:
        """The names of its drafts can be guessed, and lie in a directory that an agent can write."""
        worktree, _ = home.task()
        precious = tmp_path / "precious"
        precious.write_text("p\n")
        for name in ("index", "HEAD", "gitdir", "commondir"):
            (worktree.admin / f"{name}.liza-{os.getpid()}").symlink_to(precious)
        shutil.rmtree(worktree.admin / "logs")
        (worktree.admin / "logs").symlink_to(tmp_path)

        worktree.reset(home.base)

        assert precious.read_text() == "p\n"
        assert not (tmp_path / "HEAD").exists()

    @pytest.mark.parametrize("name", sorted(name for name, cli in CLIS.items() if cli.credentials))
    def test_a_private_home_is_emptied_furnished_and_left_without_following_any(
        self, tmp_path: Path, name: str
    ) -> None:
        """`.claude -> ~/.claude` deleted the person's login."""
        cli, person, path = CLIS[name], tmp_path / "person", tmp_path / "homes" / "coder-1"
        for login in cli.credentials:
            (person / login).parent.mkdir(parents=True, exist_ok=True)
            (person / login).write_text("mine")
        home = ProgramHome(path, cli, {"HOME": str(person)}, keep=False)
        home.populate(PermissionFlags())
        assert all((path / login).read_text() == "mine" for login in cli.credentials)
        for login in cli.credentials:
            top = login.partition("/")[0]
            shutil.rmtree(path / top, ignore_errors=True)
            (path / top).unlink(missing_ok=True)
            (path / top).symlink_to(person / top)
        if cli.report:
            (path / cli.report).unlink(missing_ok=True)
            (path / cli.report).symlink_to(person / cli.credentials[0])

        home.remove_logins()
        assert home.report() == ""
        again = ProgramHome(path, cli, {"HOME": str(person)}, keep=True)
        again.populate(PermissionFlags())
        again.prompt("go")

        assert all((person / login).read_text() == "mine" for login in cli.credentials)
        assert all(not (path / login.partition("/")[0]).is_symlink() for login in cli.credentials)


class TestPipes:
    def test_git_does_not_wait_for_one(self, home: Home, tmp_path: Path) -> None:
        """In the place of what git opens by its name, also where it may not list the directory."""
        worktree, agent = home.task()
        agent.write("new.txt", "n\n")
        agent.write("more/deep/x", "x\n")
        for name in (".gitattributes", "more/.gitignore", "more/deep/.gitattributes", "src/.gitignore"):
            os.mkfifo(worktree.path / name)
        (worktree.path / "more").chmod(stat.S_IXUSR)
        for name in ("HEAD", "index", "config.worktree", "FETCH_HEAD"):
            (worktree.admin / name).unlink(missing_ok=True)
            os.mkfifo(worktree.admin / name)
        os.mkfifo(tmp_path / "pipe")
        (worktree.admin / "ORIG_HEAD").symlink_to(tmp_path / "pipe")

        assert worktree.head() is None
        saved = salvage.save_work(home.repository, "t1", worktree, at=NOW)
        fresh, _ = home.task()

        assert saved
        assert home.git("show", f"{saved.ref}:new.txt") == "n"
        assert fresh.head() == home.base

    def test_one_in_a_worktree_that_is_worked_in_holds_up_no_other(self, home: Home) -> None:
        """Git reads HEAD of every worktree when it adds one, and when it says where a branch is."""
        worktree, _ = home.task("t1")
        (worktree.admin / "HEAD").unlink()
        os.mkfifo(worktree.admin / "HEAD")

        other, agent = home.task("t2")
        agent.commit({"b.txt": "b\n"})

        assert other.branch() == "task/t2"
        assert home.repository.checked_out_at("refs/heads/main") == home.directory
        home.repository.require_free(INTEGRATION)

    def test_what_a_killed_worker_waited_for_is_ended(self, tmp_path: Path) -> None:
        """Its git is no agent's process, and bears a mark all the same."""
        os.mkfifo(tmp_path / "pipe")
        code = (
            "from pathlib import Path; from liza.repo.command import ask_git, mark_processes\n"
            f"mark_processes('LIZA_RUN', '{tmp_path}/runs/coder-1.git')\n"
            f"ask_git('hash-object', '{tmp_path}/pipe', cwd=Path('{tmp_path}'))"
        )
        worker = subprocess.Popen([sys.executable, "-c", code])
        try:
            deadline = time.monotonic() + PATIENCE
            while not leftover_processes(tmp_path / "runs", lambda _: True):
                assert time.monotonic() < deadline
        finally:
            worker.kill()
            worker.wait()

        assert sweep(tmp_path / "runs").survivors == ()
        assert leftover_processes(tmp_path / "runs", lambda _: True) == []

    def test_a_call_has_an_end(self, tmp_path: Path) -> None:
        """Whatever it waits for; what it started ends with it."""
        os.mkfifo(tmp_path / "pipe")

        with pytest.raises(GitFailed, match=r"not done after 0\.3 seconds"):
            ask_git("hash-object", str(tmp_path / "pipe"), cwd=tmp_path, limit=0.3)


class TestBeneath:
    @pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", ".."])
    def test_no_name_leads_out(self, tmp_path: Path, name: str) -> None:
        for do in (read_file, remove_file):
            with pytest.raises(OSError, match="leads out"):
                do(tmp_path, name)

    def test_a_link_on_the_way_is_neither_read_nor_written_through(self, tmp_path: Path) -> None:
        mine, yours = tmp_path / "mine", tmp_path / "yours"
        mine.mkdir()
        yours.mkdir()
        (yours / "x").write_text("y\n")
        (mine / "d").symlink_to(yours)
        with pytest.raises(OSError, match="Not a directory"):
            read_file(mine, "d/x")
        remove_file(mine, "d/x")
        assert not (mine / "d").is_symlink()

        (mine / "d").symlink_to(yours)
        make_directory(mine, "d/e")
        write_file(mine, "d/x", b"m\n")

        assert read_file(mine, "d/x") == b"m\n"
        assert (yours / "x").read_text() == "y\n"
        assert not (yours / "e").exists()
