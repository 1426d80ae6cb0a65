"""Submission: the facts of what is handed in, whatever the agent says about it."""

from pathlib import Path

import pytest

from liza.repo.worktree import inspect_submission
from tests.support.repos import Hand, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def reasons(home: Home, base: str | None = None) -> str:
    worktree = home.worktrees.of("t1")
    assert worktree
    return "\n".join(inspect_submission(worktree, "t1", base or home.base).reasons)


def test_committed_work_on_the_branch_is_taken(home: Home) -> None:
    """One commit or several, and ignored files do not count."""
    worktree, agent = home.task()
    agent.commit({"c.txt": "c\n"})
    head = agent.commit({"d.txt": "d\n"})
    agent.write("build.log", "ignored\n")

    found = inspect_submission(worktree, "t1", home.base)

    assert (found.head, found.reasons) == (head, ())


def test_nothing_committed(home: Home) -> None:
    """The base is not work."""
    home.task()
    assert reasons(home) == "t1: nothing was committed since the base"


def test_a_dirty_tree(home: Home) -> None:
    """Pains, B: submit took any tree; an untracked file left the task approved for ever."""
    _, agent = home.task()
    agent.commit({"c.txt": "c\n"})
    agent.write("a.txt", "changed\n")
    agent.write("new/file with space.txt", "new\n")

    assert reasons(home) == (
        "t1: the worktree has uncommitted changes (a.txt); commit or remove them\n"
        "t1: the worktree has untracked files (new/file with space.txt); commit or remove them"
    )


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_are_hidden_by_flags(home: Home, flag: str) -> None:
    """`git status` of the agent says that all is clean."""
    _, agent = home.task()
    agent.commit({"c.txt": "c\n"})
    agent.write("a.txt", "changed\n")
    agent.git("update-index", flag, "a.txt")
    assert agent.git("status", "--porcelain") == ""

    assert "uncommitted changes (a.txt)" in reasons(home)


def test_staged_but_not_committed(home: Home) -> None:
    """The commit is what gets reviewed, not the index."""
    _, agent = home.task()
    agent.commit({"c.txt": "c\n"})
    agent.write("d.txt", "d\n")
    agent.git("add", "d.txt")

    assert "untracked files (d.txt)" in reasons(home)


def test_a_stale_lock_does_not_hide_the_facts(home: Home) -> None:
    """They are read through an index of our own."""
    worktree, agent = home.task()
    head = agent.commit({"c.txt": "c\n"})
    (worktree.admin / "index.lock").touch()

    assert inspect_submission(worktree, "t1", home.base).head == head
    assert reasons(home) == ""


def test_another_branch(home: Home) -> None:
    """Work elsewhere cannot be found again by the task's name."""
    _, agent = home.task()
    agent.git("checkout", "--quiet", "-b", "feature")
    agent.commit({"c.txt": "c\n"})

    assert reasons(home) == "t1: the worktree is on the branch feature; check out task/t1 and commit there"


def test_a_detached_head(home: Home) -> None:
    """As in the middle of a rebase."""
    _, agent = home.task()
    agent.git("checkout", "--quiet", "--detach")
    agent.commit({"c.txt": "c\n"})

    assert reasons(home) == "t1: the worktree is on no branch; check out task/t1 and commit there"


def test_history_that_does_not_come_from_the_base(home: Home) -> None:
    """An orphan, or a branch reset to before the base, would merge who knows what."""
    first = home.base
    base = home.commit({"a.txt": "newer\n"})
    home.task(base=base)
    agent = Hand(home.directory / ".worktrees" / "t1")
    agent.git("reset", "--quiet", "--hard", first)
    agent.commit({"c.txt": "c\n"})

    assert "does not descend from the base" in reasons(home, base)


def test_a_broken_head(home: Home) -> None:
    """The sentence says what to check out."""
    worktree, _ = home.task()
    (worktree.admin / "HEAD").write_text("ref: refs/heads/nothing\n")

    assert "HEAD of the worktree names no commit; check out task/t1" in reasons(home)


def test_a_worktree_that_is_gone(home: Home) -> None:
    """Somebody may delete it while the agent runs."""
    worktree, agent = home.task()
    agent.commit({"c.txt": "c\n"})
    worktree.path.rename(worktree.path.with_name("elsewhere"))

    assert "is gone" in inspect_submission(worktree, "t1", home.base).reasons[0]


def test_liza_s_own_files_and_repositories_in_the_commit(home: Home) -> None:
    """Pains, B: a model committed `.liza/` and a worktree as a submodule."""
    _, agent = home.task()
    agent.write(".liza/state.yaml", "x\n")
    agent.write(".Worktrees/x/y.txt", "x\n")
    agent.git("add", "--force", ".liza", ".Worktrees")
    Hand(agent.directory).git("init", "--quiet", "inner")
    Hand(agent.directory / "inner").commit({"i.txt": "i\n"})
    agent.git("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    agent.git("commit", "--quiet", "-m", "all of it")

    found = reasons(home)

    assert "inner: a repository inside the repository cannot be merged" in found
    assert ".liza/state.yaml belongs to Liza" in found
    assert ".Worktrees/x/y.txt belongs to Liza" in found


def test_many_paths_are_counted(home: Home) -> None:
    """A sentence is not a listing."""
    _, agent = home.task()
    for number in range(7):
        agent.write(f"f{number}", "x\n")

    assert "(f0, f1, f2, f3, f4 and 2 more)" in reasons(home)
