"""What is recorded of a run, and that it plays back the same on a real tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from liza.agents.command import CommandAgent
from liza.agents.protocol import Brief, RecordedRun, Recording, RecordingAgent, Reply, load_recording
from liza.agents.replay import SHORTEST_LIMIT, ReplayAgent
from liza.domain.answers import Step
from liza.domain.model import Role
from liza.domain.record import utc_now
from liza.errors import LizaError, UsageError
from liza.repo.snapshot import Patch
from liza.system.run_control import RunControl, RunEnding, RunLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(*words: str, cwd: Path, feed: bytes = b"", **environment: str) -> bytes:
    done = subprocess.run(
        ["git", *words],
        cwd=cwd,
        env={**os.environ, **IDENTITY, **environment},
        input=feed,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise LizaError(done.stderr.decode())
    return done.stdout


class GitTree:
    """The tree as git sees it, without touching the index."""

    def __init__(self, scratch: Path) -> None:
        self._index = str(scratch / "index")

    def mark(self, cwd: Path) -> str:
        head = git("rev-parse", "HEAD", cwd=cwd).decode().strip()
        return f"{head} {self._tree(cwd)}"

    def _tree(self, cwd: Path) -> str:
        git("read-tree", "HEAD", cwd=cwd, GIT_INDEX_FILE=self._index)
        git("add", "--all", cwd=cwd, GIT_INDEX_FILE=self._index)
        return git("write-tree", cwd=cwd, GIT_INDEX_FILE=self._index).decode().strip()

    def patches(self, cwd: Path, mark: str) -> Sequence[Patch]:
        head, at = mark.split()
        found = []
        for commit in git("rev-list", "--reverse", f"{head}..HEAD", cwd=cwd).decode().split():
            message = git("log", "-1", "--format=%B", commit, cwd=cwd).decode().strip()
            found.append(Patch(message=message, diff=git("diff", "--binary", at, commit, cwd=cwd)))
            at = commit
        rest = git("diff", "--binary", at, self._tree(cwd), cwd=cwd)
        return [*found, Patch(diff=rest)] if rest else found

    def apply(self, cwd: Path, patch: Patch) -> None:
        if patch.diff:
            git("apply", "--binary", "-", cwd=cwd, feed=patch.diff)
        if patch.message is not None:
            git("add", "--all", cwd=cwd)
            git("commit", "-q", "--allow-empty", "-m", patch.message, cwd=cwd)


class Desk:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = home / "runs"
        self.tree = GitTree(home)

    def worktree(self, name: str) -> Path:
        cwd = self.home / name
        cwd.mkdir()
        git("init", "-q", "-b", "main", cwd=cwd)
        (cwd / "old").write_text("old\n")
        (cwd / "kept").write_text("kept\n")
        git("add", "--all", cwd=cwd)
        git("commit", "-q", "-m", "begin", cwd=cwd)
        return cwd

    def brief(self, cwd: Path, run: str = "coder-1.1", **changes: object) -> Brief:
        return Brief.model_validate(
            {
                "run": run,
                "role": Role.CODER,
                "step": Step.IMPLEMENT,
                "task": "greet",
                "iteration": 1,
                "prompt": "Greet.",
                "cwd": cwd,
                "folder": self.runs / run,
                "limits": RunLimits(total=20),
                **changes,
            }
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


WORK = """
set -e
cat > /dev/null
printf 'hello\\n' > new
git add new && git commit -q -m 'Greet

At length.'
git rm -q old && git commit -q -m 'Tidy up'
printf '\\000\\377' > binary
echo more >> kept
echo done
"""


def content(cwd: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cwd.iterdir() if path.is_file()}


class TestLimits:
    @pytest.mark.parametrize("ending", ["rate_limited", "quota", "auth"])
    def test_a_limit_of_that_night_is_over(self, desk: Desk, ending: str) -> None:
        """A rehearsal does not wait for a provider that nobody asks."""
        (desk.home / "night.yaml").write_text(
            f"runs: [{{role: coder, step: implement, ending: {ending}, why: too many requests, reply: ''}}]"
        )
        replay = ReplayAgent(load_recording(desk.home / "night.yaml"), desk.tree.apply, pace=0)
        reply = replay.run(desk.brief(desk.worktree("tree"), task=None, iteration=0), RunControl())
        assert reply.ending == ending
        assert reply.reset is not None
        assert reply.reset - utc_now() <= SHORTEST_LIMIT


class TestRecording:
    def test_a_run_plays_back_the_same(self, desk: Desk) -> None:
        """Commits with their messages, new files, deletions, binaries, and what was left without a commit."""
        first, second = desk.worktree("first"), desk.worktree("second")
        agent = CommandAgent(["sh", "-c", WORK], environment={**os.environ, **IDENTITY})
        reply = RecordingAgent(agent, desk.tree).run(desk.brief(first), RunControl())
        again = ReplayAgent(load_recording(desk.runs), desk.tree.apply, pace=0).run(
            desk.brief(second), RunControl()
        )

        assert (reply.ending, reply.text) == (again.ending, again.text) == (RunEnding.DONE, "done\n")
        assert content(second) == content(first)
        assert content(second).keys() == {"new", "kept", "binary"}
        log = [git("log", "--format=%B", "-3", cwd=cwd) for cwd in (first, second)]
        assert log[0] == log[1]
        assert git("status", "--short", cwd=second) == git("status", "--short", cwd=first) != b""

    def test_a_folder_tells_people_what_happened(self, desk: Desk) -> None:
        """All of it in files that an editor opens."""
        agent = CommandAgent(["sh", "-c", WORK], environment={**os.environ, **IDENTITY})
        RecordingAgent(agent, desk.tree).run(desk.brief(desk.worktree("first")), RunControl())
        folder = desk.runs / "coder-1.1"

        assert {path.name for path in folder.iterdir()} == {
            *("brief.json", "prompt.md", "stdout", "stderr", "change.patch", "change.json", "reply.json"),
        }
        assert b"+hello" in (folder / "change.patch").read_bytes()
        assert [part["message"] for part in json.loads((folder / "change.json").read_text())] == [
            "Greet\n\nAt length.",
            "Tidy up",
            None,
        ]
        reply = json.loads((folder / "reply.json").read_text())
        assert (reply["ending"], reply["code"], reply["usage"]["provenance"]) == ("done", 0, "unknown")
        assert reply["seconds"] > 0

    def test_a_run_that_did_not_end_is_not_played(self, desk: Desk) -> None:
        """Its folder has no reply."""
        folder = desk.runs / "coder-1.1"
        folder.mkdir(parents=True)
        (folder / "brief.json").write_text("{}")

        with pytest.raises(UsageError, match="holds no run that ended"):
            load_recording(desk.runs)

    def test_an_agent_that_destroys_its_tree_is_still_heard(self, desk: Desk) -> None:
        """What it said is recorded; what it changed cannot be."""
        agent = CommandAgent(["sh", "-c", "rm -rf .git; echo oops"], environment=dict(os.environ))
        reply = RecordingAgent(agent, desk.tree).run(desk.brief(desk.worktree("first")), RunControl())

        assert reply.text == "oops\n"
        assert load_recording(desk.runs).runs[0].patches == ()


BY_HAND = """
about: by hand
runs:
- role: coder
  step: implement
  task: greet
  iteration: 1
  seconds: 3
  files: {src/greet.py: "print('hi')\\n"}
  delete: [old]
  commit: Greet
  reply: first
- role: coder
  step: implement
  task: greet
  iteration: 1
  reply: second
- role: coder
  step: implement
  task: greet
  files: {src/greet.py: "print('hello')\\n"}
  reply: any iteration
- role: planner
  step: plan
  reply: a plan
  ending: crashed
  why: it fell over
"""


def by_hand(desk: Desk, text: str = BY_HAND) -> Recording:
    path = desk.home / "recording.yaml"
    path.write_text(dedent(text))
    return load_recording(path)


class TestByHand:
    def test_files_are_written_deleted_and_committed(self, desk: Desk) -> None:
        """A recording for a demo is a page of YAML."""
        cwd = desk.worktree("first")
        reply = ReplayAgent(by_hand(desk), desk.tree.apply, pace=0).run(desk.brief(cwd), RunControl())

        assert (reply.text, reply.seconds) == ("first", 3)
        assert (cwd / "src" / "greet.py").read_text() == "print('hi')\n"
        assert not (cwd / "old").exists()
        assert git("log", "-1", "--format=%s", cwd=cwd) == b"Greet\n"
        assert git("status", "--short", cwd=cwd) == b""

    def test_the_same_again_plays_the_next_and_then_the_last(self, desk: Desk) -> None:
        """However often it is asked for."""
        replay = ReplayAgent(by_hand(desk), lambda _, __: None, pace=0)
        briefs = [desk.brief(desk.worktree(name)) for name in "abc"]

        assert [replay.run(brief, RunControl()).text for brief in briefs] == ["first", "second", "second"]

    def test_a_worker_that_was_restarted_goes_on_where_it_was(self, desk: Desk) -> None:
        """What ended is recorded, and what was killed half-way is played again."""
        cwd = desk.worktree("first")

        def played(run: str) -> str:
            replay = ReplayAgent(by_hand(desk), desk.tree.apply, pace=0)
            return RecordingAgent(replay, desk.tree).run(desk.brief(cwd, run), RunControl()).text

        assert played("coder-1.1") == "first"
        (desk.runs / "coder-1.1" / "reply.json").rename(desk.home / "reply.json")
        assert played("coder-1.2") == "first"
        assert played("coder-1.3") == "second"

    def test_a_run_without_an_iteration_fits_any(self, desk: Desk) -> None:
        """An exact one goes first."""
        brief = desk.brief(desk.worktree("first"), iteration=4)

        assert (
            ReplayAgent(by_hand(desk), desk.tree.apply, pace=0).run(brief, RunControl()).text
            == "any iteration"
        )

    def test_a_failure_is_played_back_as_one(self, desk: Desk) -> None:
        """A rehearsal of a bad night is bad in the same places."""
        brief = desk.brief(desk.worktree("first"), role=Role.PLANNER, step=Step.PLAN, task=None, iteration=0)
        reply = ReplayAgent(by_hand(desk), desk.tree.apply, pace=0).run(brief, RunControl())

        assert (reply.ending, reply.why) == (RunEnding.CRASHED, "it fell over")

    def test_what_was_not_recorded_is_named(self, desk: Desk) -> None:
        """With what there is."""
        brief = desk.brief(desk.worktree("first"), task="shout")
        reply = ReplayAgent(by_hand(desk), desk.tree.apply, pace=0).run(brief, RunControl())

        assert (reply.ending, reply.why) == (
            RunEnding.NOT_STARTED,
            "the recording has no run of implement shout in iteration 1; it has implement greet, plan",
        )

    def test_a_change_that_does_not_fit_the_tree_is_a_crash_with_a_reason(self, desk: Desk) -> None:
        """The worker gives the task back, as with any agent that failed."""
        recorded = RecordedRun(
            role=Role.CODER, step=Step.IMPLEMENT, task="greet", patches=(Patch(diff=b"garbage"),), reply="hi"
        )
        replay = ReplayAgent(Recording(runs=(recorded,)), desk.tree.apply, pace=0)
        reply = replay.run(desk.brief(desk.worktree("first")), RunControl())

        assert reply.ending is RunEnding.CRASHED
        assert reply.why.startswith("what was recorded cannot be done in this tree: ")

    def test_a_link_leads_nothing_out_of_the_tree(self, desk: Desk) -> None:
        """A recording comes from anywhere."""
        cwd = desk.worktree("first")
        (cwd / "src").symlink_to(desk.home)
        reply: Reply = ReplayAgent(by_hand(desk), desk.tree.apply, pace=0).run(desk.brief(cwd), RunControl())

        assert "leads out of" in reply.why
        assert not (desk.home / "greet.py").exists()

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("runs: []", "runs: it needs 1 or more entries, and has 0"),
            ("runs: [{role: coder, step: implement, replay: x}]", "did you mean 'reply'?"),
            ("runs: [{role: coder, step: implement, reply: x, delete: [../x]}]", "is not a path inside"),
            (
                "runs: [{role: coder, step: implement, reply: x, files: {.git/config: x}}]",
                "is not a path inside",
            ),
            ("runs: {", "is no recording: line "),
        ],
    )
    def test_a_recording_with_a_mistake_is_refused_with_its_place(
        self, desk: Desk, text: str, sentence: str
    ) -> None:
        """Whoever writes one by hand is told what to mend."""
        with pytest.raises(UsageError) as raised:
            by_hand(desk, text)

        assert sentence in str(raised.value)


class TestPace:
    @pytest.mark.parametrize(("pace", "seconds"), [(0, 0), (1, 3), (0.5, 1.5)])
    def test_a_run_takes_its_time_or_none(self, desk: Desk, pace: float, seconds: float) -> None:
        """Scaled by the pace."""
        waited = []

        def wait(_: RunControl, duration: float) -> bool:
            waited.append(duration)
            return True

        ReplayAgent(by_hand(desk), desk.tree.apply, pace=pace, wait=wait).run(
            desk.brief(desk.worktree("first")), RunControl()
        )

        assert waited == [seconds]

    def test_a_stop_ends_the_wait_and_nothing_is_done(self, desk: Desk) -> None:
        """As with an agent that was stopped before it wrote."""
        cwd = desk.worktree("first")
        stop = RunControl()
        stop.ask()
        reply = ReplayAgent(by_hand(desk), desk.tree.apply, pace=1).run(desk.brief(cwd), stop)

        assert reply.ending is RunEnding.STOPPED
        assert content(cwd).keys() == {"old", "kept"}
