"""Ideas, results and baseline on disk: what is wrong is told, what is old does not count."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from liza.daemon.experiment_files import (
    FileStamp,
    IdeaFolder,
    archive_idea,
    read_ideas,
    read_results,
    read_summaries,
    refresh_baseline,
)
from liza.domain.ideas import IdeaSummary, ScoreColumn
from liza.errors import LizaError, UsageError
from liza.gates.score import read_baseline

COLUMN = ScoreColumn(column="sharpe")


class TestIdeas:
    def test_a_file_has_one_a_paragraph_and_a_directory_one_a_file(self, tmp_path: Path) -> None:
        one = tmp_path / "ideas.txt"
        one.write_text("IDEA: a\nFILES: x\n\n \nIDEA: b\n")
        many = tmp_path / "ideas"
        many.mkdir()
        (many / "02.md").write_text("second\n\nwith two paragraphs\n")
        (many / "01.md").write_bytes(b"\xef\xbb\xbffirst\r\n")
        for name in (".hidden", "01.md~", "#02.md#", "02.md.bak"):
            (many / name).write_text("of an editor")

        assert [idea.text for idea in read_ideas(one)] == ["IDEA: a\nFILES: x", "IDEA: b"]
        assert [idea.text for idea in read_ideas(many)] == ["first", "second\n\nwith two paragraphs"]

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("ideas.txt", b"", "has no idea in it; write one a paragraph"),
            ("ideas.txt", b" \n\t\n", "has no idea in it"),
            ("ideas.txt", b"\xff\xfe", "is no text: byte 0 is no UTF-8; save it as UTF-8"),
            ("ideas.txt", None, "is not there; write your ideas into it"),
            ("ideas/1.md", b" \n", "is blank; write it down, or remove the file"),
            ("ideas/1.md", b"\xef\xbb\xbf\r\n", "is blank; write it down, or remove the file"),
            ("ideas.txt", b"\xef\xbb\xbf", "has no idea in it"),
        ],
    )
    def test_what_is_no_idea_is_one_sentence(
        self, tmp_path: Path, name: str, content: bytes | None, says: str
    ) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(UsageError, match=says):
            read_ideas(tmp_path / Path(name).parts[0])

    def test_an_empty_directory_is_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="has no idea in it; write one a file"):
            read_ideas(tmp_path)

    def test_what_was_tried_is_moved_and_replaces_nothing(self, tmp_path: Path) -> None:
        for number, run in enumerate(["r1", "r2"]):
            (tmp_path / "a.md").write_text(f"idea {number}")
            archive_idea(read_ideas(tmp_path)[0], run)

        assert (tmp_path / "completed" / "a.md").read_text() == "idea 0"
        assert (tmp_path / "completed" / "r2_a.md").read_text() == "idea 1"
        assert not (tmp_path / "a.md").exists()
        (tmp_path / "a.md").write_text("idea 2")
        with pytest.raises(LizaError, match="cannot be moved"):
            archive_idea(read_ideas(tmp_path)[0], "r2")
        assert (tmp_path / "a.md").read_text() == "idea 2"


class TestResults:
    def test_a_file_that_the_sweep_did_not_write_does_not_count(self, tmp_path: Path) -> None:
        """Seen upstream: the sweep failed, and the results of the run before were scored."""
        path = tmp_path / "results.csv"
        path.write_text("sharpe\n1\n")
        before = FileStamp.of(path)

        assert read_results(path, before).why == "is from an earlier run: the sweep did not write it"
        os.utime(path, ns=(0, 0))
        path.write_text("sharpe\n2\n")
        assert read_results(path, before).data == b"sharpe\n2\n"

    def test_a_missing_one_and_one_that_cannot_be_read_are_told(self, tmp_path: Path) -> None:
        assert read_results(tmp_path / "results.csv", None).why == "was not written"
        assert read_results(tmp_path, None).why == "cannot be read: Is a directory"
        assert read_baseline(tmp_path / "b.csv").why == "is not there; make one with `liza baseline refresh`"

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (None, "was not written"),
            ("speed\n1\n", "results.csv has no column sharpe; it has speed"),
            ("sharpe\nfast\n", "results.csv has no number in sharpe"),
            ("", "results.csv has no column sharpe; it has no columns"),
        ],
    )
    def test_results_without_a_number_become_no_baseline(
        self, tmp_path: Path, content: str | None, says: str
    ) -> None:
        results, baseline = tmp_path / "results.csv", tmp_path / "base" / "baseline.csv"
        baseline.parent.mkdir()
        baseline.write_text("sharpe\n9\n")
        if content is not None:
            results.write_text(content)

        with pytest.raises(UsageError, match=f"^the baseline stays as it is: .*{says}"):
            refresh_baseline(results, baseline, COLUMN)
        assert baseline.read_text() == "sharpe\n9\n"

    def test_the_baseline_becomes_what_was_measured(self, tmp_path: Path) -> None:
        results, baseline = tmp_path / "results.csv", tmp_path / "new" / "baseline.csv"
        results.write_text("sharpe\n1\n2\n")

        assert refresh_baseline(results, baseline, COLUMN) == 1.5
        assert baseline.read_text() == "sharpe\n1\n2\n"


class TestArtifacts:
    def test_each_has_its_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MODEL_API_KEY", "sesame-sesame-sesame")
        folder = IdeaFolder(tmp_path / "20260131_120000_01")
        summary = IdeaSummary(run_id="20260131_120000_01", idea="try it")

        folder.write("idea.md", "try it")
        for role in ("coordinator", "planner", "coder", "reviewer"):
            folder.write_role(role, "prompt sesame-sesame-sesame", "answer")
        folder.write_role("reviewer", "prompt", "again", number=1)
        folder.keep_results(read_results(tmp_path / "none.csv", None))
        (tmp_path / "results.csv").write_text("sharpe\n1\n")
        assert (
            folder.keep_results(read_results(tmp_path / "results.csv", None))
            == "meta_config_sweep_results.csv"
        )
        folder.write_summary(summary)

        assert sorted(path.name for path in folder.path.iterdir()) == [
            *("coder_prompt.txt", "coordinator.md", "coordinator_prompt.txt", "idea.md"),
            *("meta_config_sweep_results.csv", "patch.diff", "plan.md", "planner_prompt.txt", "review.md"),
            *("review_round_1.md", "reviewer_prompt.txt", "reviewer_prompt_round_1.txt", "summary.json"),
        ]
        assert (folder.path / "coder_prompt.txt").read_text() == "prompt [masked]"
        assert read_summaries(tmp_path) == (summary,)

    def test_a_summary_that_is_not_whole_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "r1").mkdir()
        (tmp_path / "r1" / "summary.json").write_text('{"run_id": ')
        IdeaFolder(tmp_path / "r2").write_summary(IdeaSummary(run_id="r2", idea="x"))

        assert [one.run_id for one in read_summaries(tmp_path)] == ["r2"]
        assert json.loads((tmp_path / "r2" / "summary.json").read_text())["run_id"] == "r2"
