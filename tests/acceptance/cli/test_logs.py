"""`liza logs`: what an agent says and does, of any size, also while it comes."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.cli.views.logs import LogReader, LogRequest
from tests.support.sample_tasks import NOW, board, new_task
from tests.support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = "coder-1.20260101T120000.1-aaa.checkpoint"
SECOND = "coder-1.20260101T120100.2-bbb.implement"
GATE = "coder-1.20260101T120200.3-ccc.test"
TEXT = json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "I am done."}})
REPLY = {"ending": "done", "text": "yes", "began": "2026-01-01T12:01:00Z", "seconds": 4.0}


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    """A worker with two runs about t1, the second of which has not ended; t2 was never run."""
    found = FileBoard.create(tmp_path / ".liza", board(new_task("t1"), new_task("t2")))
    begin(found, FIRST, "checkpoint", "First words.\n")
    end(found, FIRST)
    begin(found, SECOND, "implement", f"{TEXT}\n")
    return found


def begin(ours: FileBoard, name: str, step: str, said: str) -> None:
    folder = ours.home / "runs" / name
    folder.mkdir(parents=True)
    (folder / "brief.json").write_text(json.dumps({"role": "coder", "step": step, "task": "t1"}))
    (folder / "stdout").write_text(said)


def end(ours: FileBoard, name: str, **more: object) -> None:
    (ours.home / "runs" / name / "reply.json").write_text(json.dumps({**REPLY, **more}))


def say(ours: FileBoard, name: str, text: str) -> None:
    with (ours.home / "runs" / name / "stdout").open("a") as file:
        file.write(text)


def following(ours: FileBoard, subject: str, *steps: Callable[[], object], raw: bool = False) -> list[str]:
    """Return what a follower prints while *steps* happen, one each time that it waits."""
    left = iter(steps)

    def wait(_: float) -> None:
        next(left)()  # a follower that waits for more than happens fails here

    found = [str(line) for line in LogReader(ours, LogRequest(subject, follow=True, raw=raw), wait).lines()]
    assert next(left, None) is None, "it ended before all had happened"
    return found


class TestLooking:
    @pytest.mark.parametrize("subject", ["coder-1", "t1", SECOND])
    def test_a_worker_a_task_or_a_run_names_it(self, ours: FileBoard, subject: str) -> None:
        shown = Shell(ours.home.parent).ok("logs", subject).splitlines()

        assert shown[0].startswith(f"- {SECOND}: coder-1, implement of t1, since 12:01:00Z")
        assert "no process of it is alive" in shown[0]
        assert shown[1:] == ["I am done."]

    def test_a_run_that_failed_says_why(self, ours: FileBoard) -> None:
        (ours.home / "runs" / SECOND / "stderr").write_text("no such model\n")
        end(ours, SECOND, ending="crashed", why="it said: no such model", code=1)

        assert Shell(ours.home.parent).ok("logs", "t1").splitlines()[1:] == [
            *("I am done.", "! no such model", "! it said: no such model", "- crashed after 4 s"),
        ]

    def test_an_agent_that_is_no_process_is_quoted(self, ours: FileBoard) -> None:
        (ours.home / "runs" / SECOND / "stdout").unlink()
        end(ours, SECOND, text="From a recording.\n\nreally")

        assert Shell(ours.home.parent).ok("logs", "t1").splitlines()[1:-1] == [
            "From a recording.",
            "",
            "really",
        ]
        assert Shell(ours.home.parent).ok("logs", "t1", "--raw") == "From a recording.\n\nreally\n"
        assert Shell(ours.home.parent).ok("logs", "t1", "--raw", "-n", "1") == "really\n"

    def test_a_command_of_a_gate_shows_what_it_said_beside(self, ours: FileBoard) -> None:
        folder = ours.home / "runs" / GATE
        folder.mkdir()
        (folder / "stdout").write_text("")
        (folder / "stderr").write_text("Ran 3 tests\n")

        assert Shell(ours.home.parent).ok("logs", "coder-1").splitlines() == [
            f"- {GATE} (a command of a gate)",
            "  | Ran 3 tests",
        ]

    def test_raw_is_what_is_on_disk(self, ours: FileBoard) -> None:
        shell = Shell(ours.home.parent)
        say(ours, SECOND, "\x1b]0;title\x07\n")

        assert shell.ok("logs", "t1", "--raw") == f"{TEXT}\n\\x1b]0;title\\x07\n"
        assert shell.ok("logs", "t1", "--raw", "-n", "1") == "\\x1b]0;title\\x07\n"

    def test_json_names_the_run_and_the_kind(self, ours: FileBoard) -> None:
        lines = [json.loads(line) for line in Shell(ours.home.parent).ok("logs", "t1", "--json").splitlines()]

        assert lines[1] == {"run": SECOND, "kind": "text", "text": "I am done."}

    def test_half_a_gigabyte_is_read_from_its_end(self, ours: FileBoard) -> None:
        with (ours.home / "runs" / SECOND / "stdout").open("r+b") as file:
            file.seek(400 << 20)
            file.write(b"\n")
            file.seek(500 << 20)
            file.write(b"\nalmost\nthere\n")
        shell = Shell(ours.home.parent)

        _, earlier, *shown = shell.ok("logs", "t1", "-n", "2").splitlines()
        assert shown == ["almost", "there"]
        start = (500 << 20) + 1
        assert earlier == f"- {start:,} bytes before this: `liza logs {SECOND} --before {start}`"
        assert shell.ok("logs", "t1", "--raw", "-n", "2").splitlines() == ["almost", "there"]
        _, further, line = shell.ok("logs", SECOND, "--before", str(start)).splitlines()
        assert line.startswith("- a line of 104,857,600 bytes")
        assert further.endswith(f" --before {(400 << 20) + 1}`")

    def test_a_raw_line_of_any_length_is_passed_on_in_pieces(self, ours: FileBoard) -> None:
        long = "é" * (5 << 19)
        say(ours, SECOND, f"{long}\nend\n")
        pieces = [line.line for line in LogReader(ours, LogRequest(SECOND, raw=True), time.sleep).lines()]

        assert max(len(piece.text.encode()) for piece in pieces) < len(long.encode()) / 2
        assert Shell(ours.home.parent).ok("logs", "t1", "--raw") == f"{TEXT}\n{long}\nend\n"


class TestRefusing:
    @pytest.mark.parametrize("subject", ["nobody", "../../etc", "", f"{SECOND}/stdout"])
    def test_what_is_not_there_is_one_sentence(self, ours: FileBoard, subject: str) -> None:
        done = Shell(ours.home.parent)("logs", subject)

        assert done.code == 1
        assert done.err.startswith(f"liza: there is no task, worker or run {subject!r}; ")
        assert done.err.count("\n") == 1

    def test_a_task_that_never_ran_says_so(self, ours: FileBoard) -> None:
        done = Shell(ours.home.parent)("logs", "t2")

        assert done.code == 1
        said = "liza: there is no run of 't2'; nothing of it is in .liza/runs: it has not "
        assert done.err.startswith(said)

    def test_a_folder_of_runs_that_is_gone_says_so(self, ours: FileBoard) -> None:
        shutil.rmtree(ours.home / "runs")

        assert Shell(ours.home.parent)("logs", "coder-1").code == 1

    @pytest.mark.parametrize("words", [["-n", "-1"], ["--before", "-1"], ["--before", "9", "-f"]])
    def test_fewer_than_no_lines_are_refused(self, ours: FileBoard, words: list[str]) -> None:
        assert Shell(ours.home.parent)("logs", "t1", *words).code == 2

    def test_a_pipe_in_its_place_keeps_nobody_waiting(self, ours: FileBoard) -> None:
        path = ours.home / "runs" / SECOND / "stdout"
        path.unlink()
        os.mkfifo(path)

        assert len(Shell(ours.home.parent).ok("logs", "t1").splitlines()) == 1


class TestFollowing:
    def test_it_reads_along_until_the_run_is_over(self, ours: FileBoard) -> None:
        with ours.presence.hold("coder-1", at=NOW):
            shown = following(
                ours,
                SECOND,
                lambda: say(ours, SECOND, "more"),
                lambda: say(ours, SECOND, " of it\nand "),
                lambda: say(ours, SECOND, "the last"),
                lambda: end(ours, SECOND),
            )

        assert shown[1:] == ["I am done.", "more of it", "and the last", "- done after 4 s"]

    def test_a_worker_is_followed_from_run_to_run_while_somebody_runs_it(self, ours: FileBoard) -> None:
        third = "coder-1.20260101T120300.4-ddd.checkpoint"
        run = ExitStack()
        run.enter_context(ours.presence.hold("supervisor", at=NOW))
        with ours.presence.hold("coder-1", at=NOW):
            shown = following(
                ours,
                "coder-1",
                lambda: end(ours, SECOND),
                lambda: begin(ours, third, "checkpoint", "again\n"),
                lambda: end(ours, third),
                run.close,
            )

        assert shown[1:3] == ["I am done.", "- done after 4 s"]
        assert shown[4:] == ["again", "- done after 4 s"]

    def test_a_folder_that_goes_meanwhile_is_told(self, ours: FileBoard) -> None:
        with ours.presence.hold("coder-1", at=NOW):
            shown = following(ours, SECOND, lambda: shutil.rmtree(ours.home / "runs" / SECOND))

        assert shown[-1] == f"! {SECOND} is gone from .liza/runs; nothing more of it comes"

    def test_raw_can_be_followed(self, ours: FileBoard) -> None:
        with ours.presence.hold("coder-1", at=NOW):
            shown = following(
                ours, SECOND, lambda: say(ours, SECOND, "{}\n"), lambda: end(ours, SECOND), raw=True
            )

        assert shown == [TEXT, "{}"]
