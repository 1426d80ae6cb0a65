"""The command line as a stranger uses it: real processes in a real repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.support.shell import NOBODY, ROOT, Shell


@pytest.fixture
def empty(tmp_path: Path) -> Shell:
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a board and one task, to be copied: each test would make the same."""
    made = Shell(tmp_path_factory.mktemp("project"))
    subprocess.run(["git", "init", "--quiet", "."], cwd=made.directory, check=True)
    made.ok("init", "Build a greeter")
    made.ok("task", "add", "--id", "t1", "--description", "Say hello", "--done-when", "it prints hello")
    return made.directory


@pytest.fixture
def liza(project: Path, tmp_path: Path) -> Shell:
    shutil.copytree(project, tmp_path, symlinks=True, dirs_exist_ok=True)
    return Shell(tmp_path)


def add(liza: Shell, name: str, *words: str) -> str:
    return liza.ok("task", "add", "--id", name, "--description", f"Do {name}", "--done-when", "done", *words)


class TestInit:
    def test_makes_a_board_that_git_ignores_without_touching_the_users_files(self, empty: Shell) -> None:
        made = empty.ok("init", "Build a greeter")
        assert "Build a greeter" in made
        assert "Next: make a first commit" in made
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=empty.directory, capture_output=True, text=True, check=True
        )
        assert status.stdout == ""
        assert not (empty.directory / ".gitignore").exists()

    def test_says_what_it_detected(self, empty: Shell) -> None:
        (empty.directory / "Makefile").write_text("test:\n\ttrue\n")
        assert "make test  (Makefile is there)" in empty.ok("init", "x")
        assert empty.board()["config"]["gates"] == {"test": "make test"}

    def test_the_teams_file_is_above_what_was_detected_and_below_the_flags(self, empty: Shell) -> None:
        (empty.directory / "Makefile").write_text("test:\n\ttrue\n")
        (empty.directory / "a.md").write_text("a")
        (empty.directory / "b.md").write_text("b")
        (empty.directory / "liza.yaml").write_text("spec: a.md\ngates: {test: tox}\n")
        empty.ok("init", "x", "--spec", "b.md")
        config = empty.board()["config"]
        assert (config["spec"], config["gates"]["test"]) == ("b.md", "tox")

    @pytest.mark.parametrize(
        ("team", "words"),
        [
            ("worker: {}\n", ["'worker' is not a key", "did you mean 'workers'?"]),
            (
                "limits: {max_review_cycle: 3}\n",
                ["limits.max_review_cycle", "did you mean 'max_review_cycles'?"],
            ),
            ("workers: {coder: 0}\n", ["workers.coder", "at least 1"]),
            ("workers: [\n", ["liza.yaml: line"]),
            ("workflow: waterfall\n", ["there is no workflow 'waterfall'"]),
            ("spec: nowhere.md\n", ["nowhere.md"]),
            (
                "agents: {default: {backend: goose, effort: high}}\n",
                ["agents.default: `effort` does nothing"],
            ),
            ("workflow: experiment\nexperiment: {archive: true}\n", ["archive moves files of a directory"]),
        ],
    )
    def test_a_wrong_team_file_is_one_sentence_and_makes_nothing(
        self, empty: Shell, team: str, words: list[str]
    ) -> None:
        (empty.directory / "liza.yaml").write_text(team)
        done = empty("init", "x")
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert all(word in done.err for word in words), done.err
        assert not empty.home.exists()

    def test_outside_a_repository_it_says_so(self, tmp_path: Path) -> None:
        done = Shell(tmp_path)("init", "x", GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
        assert done.code == 2
        assert "not in a git repository" in done.err

    @pytest.mark.parametrize("words", [("",), ("x", "--spec", "nope.md"), ("x", "--workflow", "nope"), ()])
    def test_wrong_words_are_exit_2(self, empty: Shell, words: tuple[str, ...]) -> None:
        assert empty("init", *words).code == 2
        assert not empty.home.exists()

    def test_a_second_time_is_refused_and_changes_nothing(self, liza: Shell) -> None:
        before = liza.state.read_bytes()
        done = liza("init", "Something else")
        assert done.code == 1
        assert "already" in done.err
        assert liza.state.read_bytes() == before

    def test_without_a_board_every_command_names_init(self, empty: Shell) -> None:
        for words in (["status"], ["note", "x"], ["validate"], ["log"], ["pause"], ["board"]):
            done = empty(*words)
            assert (done.code, "liza init" in done.err) == (2, True), done


class TestNotesAndTasks:
    @pytest.mark.parametrize("turns", [6, pytest.param(25, marks=pytest.mark.torture)])
    def test_eight_shells_write_notes_at_once_and_none_is_lost(self, empty: Shell, turns: int) -> None:
        """Issue: 200 notes, a valid board, a journal that replays to the same bytes."""
        empty.ok("init", "Build a greeter")

        def shell(number: int) -> None:
            for turn in range(turns):
                empty.ok("note", f"note {turn} of {number}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(shell, range(8)))
        notes = empty.board()["human_notes"]
        assert {note["message"] for note in notes} == {
            f"note {t} of {n}" for t in range(turns) for n in range(8)
        }
        assert empty.ok("validate").startswith(f"VALID: revision {8 * turns + 1}")
        assert empty.ok("board", "--at", str(8 * turns + 1)).encode() == empty.state.read_bytes()

    def test_a_task_is_added_with_lists_in_either_form(self, liza: Shell) -> None:
        add(liza, "t2", "--in", "a", "b", "--in", "c", "--out", "d", "--depends-on", "t1")
        task = json.loads(liza.ok("task", "show", "t2", "--json"))
        assert task["scope"] == {"in": ["a", "b", "c"], "out": ["d"]}
        assert (task["status"], task["depends_on"]) == ("IDLE", ["t1"])

    @pytest.mark.parametrize(
        "name", ["../x", "a b", "a'b", 'a"b', "a\nb", "", "-x", ".", "a/b", "x.lock", "$(x)", "a;b"]
    )
    def test_an_id_that_is_a_path_or_a_shell_word_is_refused_at_the_door(
        self, liza: Shell, name: str
    ) -> None:
        before = liza.state.read_bytes()
        done = liza("task", "add", f"--id={name}", "--description", "x", "--done-when", "y")
        assert (done.code, "not an id" in done.err) == (2, True), done
        assert liza.state.read_bytes() == before

    @pytest.mark.parametrize("name", ["budget", "plan", "Goal", "planner", "run"])
    def test_an_id_that_other_commands_take_for_something_else_is_refused(
        self, liza: Shell, name: str
    ) -> None:
        """`liza answer budget 30` would answer the task, and the budget could not be raised any more."""
        done = liza("task", "add", "--id", name, "--description", "x", "--done-when", "y")
        why = f"`liza answer` and `liza explain` take {name!r} for something else; choose another"
        assert (done.code, done.err) == (2, f"liza: the task was not added: id: {why}\n")

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["--in", "../x"], "the path '../x' leads out of the repository; give one inside"),
            (["--out", "/etc"], "the path '/etc' leads out of the repository; give one inside"),
            (["--in", "a", "--out", "a"], "'a' is both in and out; decide"),
        ],
    )
    def test_a_scope_that_allows_nothing_is_refused(self, liza: Shell, words: list[str], why: str) -> None:
        done = liza("task", "add", "--id", "t2", "--description", "x", "--done-when", "y", *words)
        assert (done.code, done.err) == (2, f"liza: the task was not added: scope: {why}\n")

    def test_what_cannot_be_added_is_refused_with_a_sentence(self, liza: Shell) -> None:
        twice = liza("task", "add", "--id", "t1", "--description", "x", "--done-when", "y")
        assert (twice.code, "t1: there is such a task already (IDLE)" in twice.err) == (1, True)
        lost = liza(
            "task", "add", "--id", "t2", "--description", "x", "--done-when", "y", "--depends-on", "t0"
        )
        assert (lost.code, "there is no task 't0'" in lost.err) == (5, True)
        assert [task["id"] for task in liza.board()["tasks"]] == ["t1"]

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["note", " "], 2, "the note is empty"),
            (["note", "x", "--for", "t9"], 1, "there is no task 't9'"),
            (["answer", "t1", "x"], 1, "t1: it asks nothing, because it is IDLE"),
            (["task", "release", "t1"], 1, "t1: human may not release a task that is IDLE"),
            (["task", "retry", "t1"], 1, "t1: human may not retry a task that is IDLE"),
            (["task", "show", "t9"], 1, "there is no task 't9'"),
            (["board", "--at", "99"], 1, "there is no revision '99'"),
            (["board", "--at", "soon"], 2, "'soon' is no moment"),
            (["log", "-n", "-1"], 2, "--last -1"),
            (["staus"], 2, "there is no command 'staus'; did you mean 'status'? `liza --help` lists all"),
            (["xyzzy"], 2, "there is no command 'xyzzy'; `liza --help` lists all"),
            (["task", "shwo"], 2, "there is no command 'shwo'; did you mean 'show'?"),
            (["validate", "nowhere"], 2, "does not exist"),
        ],
    )
    def test_wrong_requests_are_one_sentence_and_a_code(
        self, liza: Shell, words: list[str], code: int, said: str
    ) -> None:
        done = liza(*words)
        assert (done.code, said in done.err, "Traceback" in done.err) == (code, True, False), done

    def test_a_note_that_is_not_text_is_refused(self, liza: Shell) -> None:
        done = subprocess.run(
            [sys.executable.encode(), b"-m", b"liza", b"note", b"\xff\xfe"],
            cwd=liza.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, b"not UTF-8" in done.stderr) == (2, True)

    def test_blocked_is_answered_and_goes_on(self, liza: Shell) -> None:
        liza.edit(
            "  status: IDLE\n",
            "  status: BLOCKED\n  blocked_reason: unclear\n  blocked_questions: [Which language?]\n",
        )
        status = liza.ok("status")
        assert "Which language?" in status
        assert 'liza answer t1 "…"' in status
        liza.ok("answer", "t1", "English")
        task = json.loads(liza.ok("task", "show", "t1", "--json"))
        assert (task["status"], task["guidance"]) == ("IDLE", "English")
        assert [entry["event"] for entry in task["history"]] == ["added", "block", "retry"]
        notes = liza.board()["human_notes"]
        assert [(note["message"], note["for"], "processed" in note) for note in notes] == [
            ("English", "t1", True)
        ]

    def test_a_task_is_given_up_for_a_reason_and_for_good(self, liza: Shell) -> None:
        assert liza("task", "abandon", "t1").code == 2
        assert (
            liza("task", "abandon", "t1", "--reason", " ").err == "liza: the reason is empty; say something\n"
        )
        liza.ok("task", "abandon", "t1", "--reason", "nobody wants it")
        (task,) = liza.board()["tasks"]
        assert (task["status"], task["closing_reason"]) == ("ABANDONED", "nobody wants it")
        assert (
            "may not abandon a task that is ABANDONED" in liza("task", "abandon", "t1", "--reason", "x").err
        )


class TestLookingBack:
    def test_the_board_at_an_earlier_time_is_what_status_printed_then(self, liza: Shell) -> None:
        """Issue: `liza board --at` an earlier time equals what `liza status --json` printed then."""
        printed = []
        for turn in range(4):
            liza.ok("note", f"turn {turn}")
            printed.append((datetime.now(UTC).isoformat(), liza.ok("status", "--json")))
        add(liza, "t2")
        for time, said in printed:
            assert liza.ok("board", "--at", time, "--json") == said

    def test_every_revision_can_be_printed_and_compared(self, liza: Shell) -> None:
        texts = [liza.state.read_text()]
        for turn in range(3):
            liza.ok("note", f"turn {turn}")
            texts.append(liza.state.read_text())
        assert [liza.ok("board", "--at", str(revision)) for revision in range(2, 6)] == texts
        assert "+ human_notes.note-1.message: turn 0" in liza.ok("board", "diff", "2", "3")
        found = json.loads(liza.ok("board", "diff", "3", "4", "--json"))
        assert {"path": "human_notes.note-2.message", "before": None, "after": "turn 1"} in found

    def test_the_log_can_be_followed(self, liza: Shell) -> None:
        follower = subprocess.Popen(
            [sys.executable, "-m", "liza", "log", "-f"],
            cwd=liza.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert follower.stdout
            assert "init" in follower.stdout.readline()
            assert "added t1" in follower.stdout.readline()
            liza.ok("note", "hello")
            assert re.search(r"human +note$", follower.stdout.readline())
        finally:
            follower.kill()
            follower.communicate()

    def test_the_log_of_one_task_in_json(self, liza: Shell) -> None:
        liza.ok("note", "x")
        lines = [json.loads(line) for line in liza.ok("log", "--task", "t1", "--json").splitlines()]
        assert [line["what"] for line in lines] == ["added t1"]

    def test_a_reader_that_leaves_early_is_no_error(self, liza: Shell) -> None:
        script = f'{sys.executable} -m liza log | head -n 1; exit "${{PIPESTATUS[0]}}"'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=liza.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


BAD_EDITS = {
    "wrong YAML": ("tasks:\n", "tasks: [\n", "mend the YAML there"),
    "unknown status": ("status: IDLE", "status: DONE", "'DONE' is not one of the known words"),
    "unknown key": ("  description: Say", "  descripton: Say", "did you mean 'description'?"),
    "pushed to MERGED": ("status: IDLE", "status: MERGED", "may not move a task from IDLE to MERGED"),
    "changed history": ("event: added", "event: amend", "history is append-only"),
    "lowered revision": ("revision: 2", "revision: 1", "was written as revision 2, and now says 1"),
    "raised revision": ("revision: 2", "revision: 9", "was written as revision 2, and now says 9"),
    "another version": ("version: 2", "version: 7", "version 7, and this Liza reads version 2"),
    "cycle": ("  done_when:", "  depends_on: [t1]\n  done_when:", "it waits for itself"),
    "missing dependency": ("  done_when:", "  depends_on: [t0]\n  done_when:", "there is no task 't0'"),
    "removed task": ("- id: t1", "- id: t5", "tasks.t1: the task was removed"),
    "cut off": ("agents: []", "", "it has no agents: the file looks cut off"),
    "naive time": (
        "human_notes: []",
        "human_notes:\n- {message: x, timestamp: 2026-01-01T00:00:00}",
        "no time zone",
    ),
}


class TestEdits:
    @pytest.mark.parametrize("case", BAD_EDITS)
    def test_a_bad_edit_has_its_own_sentence_and_the_good_board_stays(self, liza: Shell, case: str) -> None:
        old, new, said = BAD_EDITS[case]
        before = liza.board()["tasks"]
        text = liza.edit(old, new)
        checked = liza("validate")
        assert (checked.code, said in checked.err) == (5, True), checked
        assert liza.state.read_text() == text  # asking changes nothing
        found = liza("status", "--json")
        assert (found.code, said in found.err) == (5, True), found
        assert json.loads(found.out)["tasks"] == before
        assert liza.kept() == [text]
        assert (liza.home / "PAUSE").exists()
        assert said in (liza.home / "alerts.log").read_text()
        assert liza.ok("validate").startswith("VALID")
        assert "PAUSE" in liza.ok("status")
        assert "PAUSE" in liza.ok("resume")

    @pytest.mark.parametrize("content", [b"", b"version: 1\n", b"\xff\xfe\x00", b"- a\n- b\n", b"just words"])
    def test_a_file_that_is_no_board_is_kept_and_the_board_comes_back(
        self, liza: Shell, content: bytes
    ) -> None:
        good = liza.state.read_bytes()
        liza.state.write_bytes(content)
        assert liza("validate").code == 5
        done = liza("note", "x")
        assert (done.code, "Traceback" in done.err) == (5, False), done.err
        assert [path.read_bytes() for path in (liza.home / "rejected").iterdir()] == [content]
        assert b"- id: t1" in liza.state.read_bytes()
        assert len(good) <= len(liza.state.read_bytes())

    def test_two_tasks_of_one_id_are_refused_with_both_lines(self, liza: Shell) -> None:
        add(liza, "t2")
        liza.edit("- id: t2", "- id: t1")
        done = liza("status")
        assert done.code == 5
        assert "the id 't1' is used twice" in done.err

    def test_a_cycle_is_named_with_its_ring(self, liza: Shell) -> None:
        add(liza, "t2", "--depends-on", "t1")
        liza.edit("  done_when:", "  depends_on: [t2]\n  done_when:")
        done = liza("status")
        assert (done.code, "t1 waits for t2 waits for t1: a cycle" in done.err) == (5, True), done

    def test_a_good_edit_is_taken_whoever_wrote_it(self, liza: Shell) -> None:
        """People's scripts load and dump the whole file, and lose its comments and order."""
        board = yaml.safe_load(liza.state.read_text())
        board["human_notes"].append({"message": "from a script", "for": "t1"})
        board["config"]["workers"]["coder"] = 4
        board["tasks"].append({"id": "t2", "description": "New", "done_when": ["x"]})
        liza.state.write_text(yaml.safe_dump(board))
        state = liza.board()
        assert [note["message"] for note in state["human_notes"]] == ["from a script"]
        assert [task["id"] for task in state["tasks"]] == ["t1", "t2"]
        assert state["config"]["workers"]["coder"] == 4
        assert not (liza.home / "PAUSE").exists()

    def test_a_stale_copy_is_merged_with_what_came_after_it(self, liza: Shell) -> None:
        old = liza.state.read_text()
        liza.ok("note", "meanwhile")
        add(liza, "t2")
        liza.state.write_text(old.replace("Say hello", "Say hello twice"))
        state = liza.board()
        assert [task["description"] for task in state["tasks"]] == ["Say hello twice", "Do t2"]
        assert [note["message"] for note in state["human_notes"]] == ["meanwhile"]

    def test_a_symlink_is_refused_and_left_alone(self, liza: Shell) -> None:
        elsewhere = liza.directory / "elsewhere.yaml"
        liza.state.rename(elsewhere)
        liza.state.symlink_to(elsewhere)
        for words in (["status"], ["note", "x"], ["validate"]):
            done = liza(*words)
            assert (done.code, "is a link to" in done.err) == (5, True), done
        assert liza.state.is_symlink()

    def test_a_removed_state_file_is_written_anew(self, liza: Shell) -> None:
        before = liza.state.read_bytes()
        liza.state.unlink()
        liza.ok("status")
        assert liza.state.read_bytes() == before

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
    def test_a_board_that_is_not_writable_is_the_environments_fault(self, liza: Shell) -> None:
        for path in [liza.home, *liza.home.iterdir()]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        directory = liza.directory
        while directory != directory.parent:
            directory.chmod(directory.stat().st_mode | 0o055)
            directory = directory.parent
        done = liza("note", "x", user=NOBODY)
        assert (done.code, "Permission denied" in done.err, "Traceback" in done.err) == (1, True, False), done
        assert liza("status", user=NOBODY).code == 0
        done = liza("init", "x", user=NOBODY)
        trust = f"as by `git config --global --add safe.directory {liza.directory}`"
        assert (done.code, trust in done.err, len(done.err.splitlines())) == (1, True, 1), done


class TestEditor:
    def script(self, liza: Shell, body: str) -> str:
        path = liza.directory / "editor.sh"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def test_a_good_edit_is_saved_in_one_step(self, liza: Shell) -> None:
        said = liza.ok("edit", EDITOR=self.script(liza, 'sed -i "s/Say hello/Say hi/" "$1"'), VISUAL="")
        assert said == "Saved as revision 3.\n"
        assert liza.board()["tasks"][0]["description"] == "Say hi"

    def test_a_bad_edit_is_refused_before_it_counts_and_its_text_kept(self, liza: Shell) -> None:
        before = liza.state.read_bytes()
        done = liza("edit", VISUAL=self.script(liza, 'sed -i "s/IDLE/MERGED/" "$1"'))
        assert (done.code, "from IDLE to MERGED" in done.err) == (5, True), done
        assert liza.state.read_bytes() == before
        assert not (liza.home / "PAUSE").exists()
        assert "MERGED" in liza.kept()[0]

    def test_what_others_wrote_while_the_editor_was_open_is_kept(self, liza: Shell) -> None:
        body = f'{sys.executable} -m liza note meanwhile && sed -i "s/Say hello/Say hi/" "$1"'
        liza.ok("edit", VISUAL=self.script(liza, body))
        state = liza.board()
        assert state["tasks"][0]["description"] == "Say hi"
        assert [note["message"] for note in state["human_notes"]] == ["meanwhile"]

    def test_no_change_no_editor_and_a_failing_editor(self, liza: Shell) -> None:
        assert liza.ok("edit", VISUAL="true") == "Nothing was changed.\n"
        assert liza("edit", VISUAL="", EDITOR="").code == 2
        assert liza("edit", VISUAL="no-such-editor").code == 2
        assert liza("edit", VISUAL="false").code == 1


class TestSwitches:
    @pytest.mark.parametrize("name", ["pause", "checkpoint", "abort"])
    def test_a_switch_is_a_file_and_is_taken_back(self, liza: Shell, name: str) -> None:
        liza.ok(name, "wait for me")
        assert (liza.home / name.upper()).read_text() == "wait for me\n"
        assert f"{name.upper()}: wait for me" in liza.ok("status")
        assert name.upper() in liza.ok("resume")
        assert not (liza.home / name.upper()).exists()
        assert liza.ok("resume") == "No switch was thrown.\n"


class TestSpecs:
    def test_a_spec_that_is_no_file_is_refused(self, liza: Shell) -> None:
        """Else the task would be BLOCKED when its turn comes."""
        words = ("task", "add", "--id", "s1", "--description", "x", "--done-when", "y", "--spec")
        done = liza(*words, "no/such.md")
        assert (done.code, "is not a file; give a path that exists" in done.err) == (2, True)
        (liza.directory / "there.md").write_text("# Part\n")
        liza.ok(*words, "there.md#part")
        added = next(task for task in liza.board()["tasks"] if task["id"] == "s1")
        assert added["spec_ref"] == "there.md#part"


class TestValidate:
    def test_the_example_board_and_settings_load(self, empty: Shell) -> None:
        assert empty.ok("validate", str(ROOT / ".liza.example/state.yaml")).startswith("VALID")
        (empty.directory / "liza.yaml").write_text((ROOT / ".liza.example/liza.yaml").read_text())
        (empty.directory / "agent.py").write_text((ROOT / ".liza.example/agent.py").read_text())
        assert "is not a file of this repository; write it, or leave `spec` out" in empty("init", "x").err
        (empty.directory / "specs").mkdir()
        (empty.directory / "specs/vision.md").write_text("x")
        empty.ok("init", "x")

    def test_every_violation_of_a_file_is_reported_with_its_line(self, empty: Shell) -> None:
        text = (ROOT / ".liza.example/state.yaml").read_text()
        text = text.replace("approved_by: reviewer-1", "approved_by: coder-1").replace(
            "- hello\n", "- nobody\n"
        )
        path = empty.directory / "board.yaml"
        path.write_text(text)
        done = empty("validate", str(path), "--json")
        assert done.code == 5
        wrong = json.loads(done.out)["violations"]
        paths = {violation["path"] for violation in wrong}
        assert {"tasks.hello.approved_by", "tasks.bye.depends_on"} <= paths
        lines = text.splitlines()
        for violation in wrong:
            assert violation["path"].rpartition(".")[2] in lines[violation["line"] - 1]

    def test_a_file_that_is_no_board_is_called_by_its_name(self, empty: Shell) -> None:
        (empty.directory / "notes.txt").write_text("x\n")
        done = empty("validate", "notes.txt")
        first, second = done.err.splitlines()
        assert (done.code, first) == (5, f"liza: {empty.directory / 'notes.txt'} is not valid")
        assert second == "  line 1: notes.txt: the top must be keys with values; mend the YAML there"

    def test_the_script_of_the_contract_does_the_same(self, liza: Shell) -> None:
        tools = liza.directory / "bin"
        tools.mkdir()
        (tools / "liza").write_text(f'#!/bin/sh\nexec {sys.executable} -m liza "$@"\n')
        (tools / "liza").chmod(0o755)
        script = (ROOT / "scripts/liza-validate.sh").read_text()
        (tools / "liza-validate.sh").write_text(script)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tools}:{os.environ['PATH']}"}
        words = ["sh", str(tools / "liza-validate.sh")]
        assert subprocess.run(words, cwd=liza.directory, env=environment, check=False).returncode == 0
        liza.edit("status: IDLE", "status: MERGED")
        assert subprocess.run(words, cwd=liza.directory, env=environment, check=False).returncode == 5

    def test_a_damaged_journal_is_found(self, liza: Shell) -> None:
        journal = liza.home / "journal.jsonl"
        journal.write_text(
            journal.read_text().replace("Say hello", "Say hullo").replace("greeter", "grouter")
        )
        done = liza("validate")
        assert (done.code, "was changed after it was written" in done.err) == (5, True), done


def test_help_names_every_command_and_every_exit_code(empty: Shell) -> None:
    said = empty.ok("--help")
    for name in ("init", "status", "validate", "edit", "note", "answer", "task", "log", "board", "pause"):
        assert name in said
    assert re.search(r"5 the board", re.sub(r"\s+", " ", said))


class TestOptionsWithoutEffect:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (
                "run --plan-bound --detach --until-idle",
                "--detach and --until-idle do nothing beside --plan-bound",
            ),
            ("run --plan-bound --no-baseline", "--no-baseline does nothing beside --plan-bound"),
            ("task show t1 --json --yaml", "--json does nothing beside --yaml"),
            ("diff t1 --json --stat", "--json does nothing beside --stat"),
            ("logs t1 --json --raw", "--json does nothing beside --raw"),
            ("gauntlet --list --jobs 2", "--jobs does nothing beside --list"),
            ("experiment", "the workflow liza tries no ideas; `workflow: experiment` does"),
        ],
    )
    def test_are_refused_in_one_sentence(self, liza: Shell, words: str, says: str) -> None:
        done = liza(*words.split())

        assert (done.code, done.out) == (2, "")
        assert says in done.err
        assert len(done.err.splitlines()) == 1

    def test_the_log_of_a_task_that_never_was_is_no_empty_page(self, liza: Shell) -> None:
        done = liza("log", "--task", "nope")

        assert (done.code, done.out) == (1, "")
        assert "there is no task 'nope'" in done.err
        assert "t1" in liza.ok("log", "--task", "t1")


class TestWordsThatMeanNothing:
    @pytest.mark.parametrize(
        ("words", "code", "sentence"),
        [
            ("board --at 99999999999999d", 2, "'99999999999999d' is no moment"),
            ("report --since 99999999999d", 2, "'99999999999d' is no moment"),
            ("report --since 2999-01-01", 2, "'2999-01-01' is still to come; give an age"),
            ("board --at 0001-01-01T00:00:00+14:00", 2, "is no moment"),
            ("board --at 900d", 1, "the board was made later, as `liza log` says"),
            ("run --label a/b", 2, "--label: 'a/b' is not an id: use up to 64 letters"),
            ("host --label a/b", 2, "--label: 'a/b' is not an id: use up to 64 letters"),
            ("replay nowhere", 2, "name a folder like .liza/runs, or a YAML file"),
            ("-C nowhere status", 2, "-C nowhere: there is no such directory; name one that exists"),
            ("task nope", 2, "there is no command 'nope'; `liza task --help` lists all"),
            ("task aded", 2, "there is no command 'aded'; did you mean 'add'? `liza task --help` lists all"),
        ],
    )
    def test_get_one_sentence_and_the_code_of_their_kind(
        self, liza: Shell, words: str, code: int, sentence: str
    ) -> None:
        done = liza(*words.split(" "))
        assert (done.code, done.out) == (code, ""), done
        assert sentence in done.err
        assert "Traceback" not in done.err
        assert "Errno" not in done.err


def run_in_shell(liza: Shell, words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} -m liza {words}"],
        cwd=liza.directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


class TestStandardStreams:
    @pytest.mark.parametrize(
        "words", ["status >&-", "note hello >&-", "note hello <&- >&- 2>&-", "--help 2>&-", "mcp <&-"]
    )
    def test_that_are_closed_stand_in_nobodys_way(self, liza: Shell, words: str) -> None:
        """The first file that is opened then must not be one of them: it may be the journal."""
        done = run_in_shell(liza, words)

        assert (done.returncode, done.stderr) == (0, b"")
        assert liza.ok("validate").startswith("VALID")

    @pytest.mark.parametrize("words", ["status", "note hello"])
    def test_that_take_nothing_are_named(self, liza: Shell, words: str) -> None:
        """As a file on a full disk: in one sentence, not by the whole way through our code."""
        done = run_in_shell(liza, f"{words} >/dev/full")

        assert done.returncode == 1
        assert done.stderr == b"liza: standard output cannot be written: No space left on device\n"

    def test_whoever_read_them_may_leave(self, liza: Shell) -> None:
        """`liza log | head -1` is no mishap."""
        done = run_in_shell(liza, "log | true")

        assert (done.returncode, done.stderr) == (0, b"")

    def test_what_failed_is_a_failure_though_the_reader_left(self) -> None:
        """A script that looks at the code must not go on because a pager was closed."""
        code = (
            "import os, sys; from liza.cli.process import exit_code_of, prepare_process; "
            "from liza.errors import LizaError\n"
            "def run():\n    print('x'); raise LizaError('it failed')\n"
            "prepare_process(); sys.exit(exit_code_of(run))"
        )
        reader, writer = os.pipe()
        os.close(reader)
        words = [sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        with os.fdopen(writer, "w") as gone:
            done = subprocess.run(
                words, stdout=gone, stderr=subprocess.PIPE, text=True, env=environment, check=False
            )

        assert (done.returncode, done.stderr) == (1, "liza: it failed\n")

    def test_that_lack_a_sign_get_its_number(self, liza: Shell) -> None:
        """In a locale that is not UTF-8."""
        liza.ok("note", "caf\u00e9 \u2026")
        done = run_in_shell(liza, "status", PYTHONIOENCODING="ascii")

        assert (done.returncode, done.stderr) == (0, b"")
        assert rb"caf\xe9 \u2026" in done.stdout
