"""`liza salvage`, `verify` and `replay`: going back to what was, as a stranger does."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

import liza.cli.replay
from liza.domain.record import utc_now
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from tests.support.shell import ROOT, Shell
from tests.support.simple_agent import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUNS = ".liza/runs"
ONE_TASK = """
runs:
- {role: coder, step: checkpoint, task: t1, reply: "```liza\\nintent: say hi\\nfiles_to_modify: [a]\\n```"}
- {role: coder, step: implement, task: t1, files: {a: b}, reply: "```liza\\nstatus: done\\nsummary: x\\n```"}
- {role: reviewer, step: review, task: t1, reply: "```liza\\nverdict: approve\\nreason: it is there\\n```"}
"""


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def begun(root: Path, settings: str = "{}") -> Shell:
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    (root / "liza.yaml").write_text(settings)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    shell = Shell(root)
    shell.ok("init", "Write three files")
    return shell


@pytest.fixture
def empty(tmp_path: Path) -> Shell:
    return begun(tmp_path / "project")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A project whose goal was completed by real processes; its tests leave it as it is."""
    team = f"[{sys.executable}, {ROOT / 'tests' / 'support' / 'simple_agent.py'}]"
    settings = f"agents: {{default: {{command: {team}}}}}\nworkers: {{coder: 2}}\n"
    shell = begun(tmp_path_factory.mktemp("ran") / "project", settings)
    shell.ok("run", "--until-idle")
    return shell


@pytest.fixture
def moved(ran: Shell) -> Iterator[Shell]:
    """The same, for a test that moves the integration branch."""
    tip = git(ran.directory, "rev-parse", "liza/integration")
    yield ran
    git(ran.directory, "update-ref", "refs/heads/liza/integration", tip)


class TestSalvage:
    def test_nothing_there_is_said(self, empty: Shell) -> None:
        assert empty.ok("salvage", "list") == "Nothing was salvaged.\n"
        assert empty.ok("salvage", "list", "--json") == "[]\n"

    def test_what_was_saved_is_listed_and_becomes_a_branch(self, empty: Shell) -> None:
        repository = Repository.around(empty.directory)
        worktrees = Worktrees(repository)
        worktree = worktrees.prepare("t1", str(repository.head()), at=utc_now())
        (worktree.path / "idea.txt").write_text("precious\n")
        saved = worktrees.release("t1", at=utc_now())
        assert saved is not None

        listed = json.loads(empty.ok("salvage", "list", "--json"))
        assert [(one["task"], one["number"], one["commit"]) for one in listed] == [("t1", 1, saved.commit)]
        assert "`liza salvage restore t1 1`" in empty.ok("salvage", "list")
        assert "salvage/t1-1" in empty.ok("salvage", "restore", "t1", "1")
        assert git(empty.directory, "show", "salvage/t1-1:idea.txt") == "precious"

        done = empty("salvage", "restore", "t1", "7")
        assert (done.code, done.err) == (1, "liza: there is no salvage 't1 7'; of t1 there is 1\n")
        # git would take it for a pattern
        assert empty("salvage", "restore", "*", "1").err.endswith("of * there is nothing\n")


class TestVerify:
    def test_a_whole_run_is_verified(self, ran: Shell) -> None:
        assert ran.ok("verify") == "VERIFIED: 3 merges\n"
        assert ran.ok("verify", "liza/integration~1..") == "VERIFIED: 1 merges\n"
        assert json.loads(ran.ok("verify", "main..liza/integration", "--json")) == {
            "merges": 3,
            "findings": [],
        }

    def test_no_board_is_needed(self, ran: Shell, tmp_path: Path) -> None:
        """In somebody else's clone history is found consistent, and with the board's key it is proven."""
        git(tmp_path, "clone", "-q", str(ran.directory), "clone")
        clone = Shell(tmp_path / "clone")
        done = clone("verify", "origin/liza/integration")
        assert done.code == 1
        assert done.out.startswith("NOT PROVEN: 3 merges are what their trailers say, but who made them can")
        assert len(done.out.splitlines()) == 1
        key = str(ran.directory / ".liza" / "key")
        assert clone.ok("verify", "origin/liza/integration", "--key", key) == "VERIFIED: 3 merges\n"

    def test_what_nobody_reviewed_is_found(self, moved: Shell) -> None:
        tip = git(moved.directory, "rev-parse", "liza/integration")
        stray = git(moved.directory, "commit-tree", "-p", tip, "-m", "stray", f"{tip}^{{tree}}")
        git(moved.directory, "update-ref", "refs/heads/liza/integration", stray)
        done = moved("verify")
        assert (done.code, done.out) == (1, f"{stray[:12]}: it is no merge, so nobody reviewed it\n")
        (finding,) = json.loads(moved("verify", "--json").out)["findings"]
        assert (finding["commit"], finding["problem"]) == (stray, "not a merge")

    def test_what_is_not_there_is_one_sentence(self, empty: Shell) -> None:
        for words in (("verify",), ("verify", "nowhere.."), ("verify", "--", "-x..main")):
            done = empty(*words)
            assert (done.code, len(done.err.splitlines())) == (1, 1)
            assert "there is no commit" in done.err


class TestReplay:
    def test_a_run_is_rehearsed_under_another_policy(
        self, ran: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Issue: it rehearses a past run under another policy and prints the difference."""
        before = (git(ran.directory, "for-each-ref"), ran.board(), sorted(ran.home.rglob("*")))
        words = ("replay", RUNS, "--with", "workers.coder=1", "limits.max_coder_iterations=3", "--json")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        found = json.loads(ran.ok(*words, TMPDIR=str(tmp_path)))
        recorded, rehearsed = found["recorded"], found["rehearsed"]
        assert found["code"] == 0
        assert recorded["merges"] == rehearsed["merges"] == len(NAMES)
        assert recorded["runs"] == rehearsed["runs"] == 1 + 3 * len(NAMES)
        assert rehearsed["agent_seconds"] == pytest.approx(recorded["agent_seconds"])
        assert recorded["rejections"] == 0
        assert rehearsed["usd"] == pytest.approx(recorded["usd"])
        assert recorded["wall_seconds"] > 0
        assert list(tmp_path.iterdir()) == []
        after = (git(ran.directory, "for-each-ref"), ran.board(), sorted(ran.home.rglob("*")))
        assert after == before

    def test_a_recording_without_a_board_says_what_it_assumes(self, tmp_path: Path, empty: Shell) -> None:
        """And where only people could go on, it ends and says what they would be asked."""
        path = tmp_path / "short.yaml"
        path.write_text(
            "runs:\n- {role: planner, step: plan, seconds: 60, usage: {usd: 0.5},\n"
            '   reply: "```liza\\nquestions: [Which colour?]\\n```"}\n'
        )
        done = empty("replay", str(path))
        assert done.code == 3, done
        rows = {line[:14].strip(): line[14:].split() for line in done.out.splitlines()}
        assert rows["cost, USD"] == ["0.50", "0.50", "+0.00"]
        assert rows["agent time, s"] == ["60.0", "60.0", "+0.0"]
        assert rows["merges"] == ["-", "0", "-"]
        assert "no base commit is known; it began at " in done.out
        assert "it ended early: the plan needs to know: Which colour?" in done.out

    @pytest.mark.torture
    def test_tasks_of_people_are_there_from_the_start(self, tmp_path: Path, empty: Shell) -> None:
        empty.ok(
            "task", "add", "--id", "t1", "--description", "Hi", "--done-when", "it says hi", "--kind", "docs"
        )
        path = tmp_path / "one.yaml"
        path.write_text(ONE_TASK)
        done = empty("replay", str(path), "--json")
        assert (done.code, json.loads(done.out)["rehearsed"]["merges"]) == (0, 1), done
        assert empty.board()["tasks"][0]["status"] == "IDLE"

    @pytest.mark.torture
    def test_where_the_recording_does_not_fit_it_says_so(self, tmp_path: Path, empty: Shell) -> None:
        path = tmp_path / "other.yaml"
        path.write_text("runs:\n- {role: coder, step: implement, task: t1, reply: x}\n")
        done = empty("replay", str(path))
        assert done.code == 3, done
        assert (
            "the recording does not fit 1 of the runs, the first plan: the recording has no run" in done.out
        )

    def test_its_time_is_bounded(self, tmp_path: Path, empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(liza.cli.replay, "PATIENCE", -45.0)
        path = tmp_path / "long.yaml"
        path.write_text("runs:\n- {role: planner, step: plan, seconds: 60, reply: x}\n")
        done = empty("replay", str(path), "--pace", "1")
        assert (done.code, "it was ended: it took longer than 15 s" in done.out) == (4, True), done

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--with", "limits.max_coder_iteration=3"], "did you mean 'max_coder_iterations'?"),
            (["--with", "worker.coder=3"], "did you mean 'workers'?"),
            (["--with", "workers.coder=0"], "workers.coder: it has to be at least 1"),
            (["--with", "workers.coder"], "write KEY=VALUE"),
            (["--with", "agents.default.backend=claude"], "the recorded agents play"),
            (["--pace", "-1"], "is no pace"),
            (["--pace", "nan"], "is no pace"),
        ],
    )
    def test_a_wrong_word_is_a_sentence(self, ran: Shell, words: list[str], said: str) -> None:
        done = ran("replay", RUNS, *words)
        assert (done.code, said in done.err, len(done.err.splitlines())) == (2, True, 1), done

    def test_what_is_no_recording_is_named(self, empty: Shell) -> None:
        done = empty("replay", "nowhere.yaml")
        assert (done.code, "nowhere.yaml; name a folder like .liza/runs" in done.err) == (2, True)
