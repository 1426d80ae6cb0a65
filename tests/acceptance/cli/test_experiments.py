"""Six ideas under the real daemon, and what a person asks and is told about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liza.cli.demo import demo_summary, prepare_repository, run_demo
from liza.cli.main import main
from liza.repo.command import git


def liza(root: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["-C", str(root), *words])
    return int(ended.value.code or 0)


def test_the_demo_tries_six_ideas_and_merges_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = prepare_repository(tmp_path / "demo", "experiment", pace="0")
    root = board.home.parent
    before = git("rev-parse", "HEAD", cwd=root)

    assert run_demo(board, "experiment", print) == 0
    capsys.readouterr()
    assert liza(root, "experiment", "--json") == 0

    rows = json.loads(capsys.readouterr().out)
    assert [(row["run_id"][-2:], row["rank"], row["end"].partition(":")[0]) for row in rows] == [
        *(("01", 1, "scored"), ("02", 2, "scored"), ("03", None, "error"), ("04", None, "review")),
        *(("05", None, "tests failed (1)"), ("06", None, "no score")),
    ]
    assert rows[0]["score"] > 0 > rows[1]["score"]
    assert "Nothing was merged" in demo_summary(board, "experiment")
    assert git("rev-parse", "HEAD", board.read().config.integration_branch, cwd=root).split() == [before] * 2
    assert len(git("worktree", "list", cwd=root).splitlines()) == 1
    git("apply", "--check", f".liza/experiments/{rows[0]['patch']}", cwd=root)
    board.close()


class TestBaseline:
    SETTINGS = "experiment: {sweep: sh s.sh, results: out/r.csv, column: error, baseline: b.csv}\n"

    def refresh(self, root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
        git("init", "--quiet", ".", cwd=root)
        code = liza(root, "baseline", "refresh")
        said = capsys.readouterr()
        return code, said.out + said.err

    def test_results_become_the_baseline(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "liza.yaml").write_text(self.SETTINGS)
        (tmp_path / "out").mkdir()
        (tmp_path / "out/r.csv").write_text("error\n1\n2\n")

        code, said = self.refresh(tmp_path, capsys)

        assert (code, said) == (0, "b.csv is out/r.csv now; the mean of error is 1.5.\n")
        assert (tmp_path / "b.csv").read_text() == "error\n1\n2\n"

    @pytest.mark.parametrize(
        ("settings", "results", "said"),
        [
            (
                "workers: {coder: 1}\n",
                None,
                "there is no sweep to refresh from; set experiment.sweep and its parts in liza.yaml",
            ),
            (SETTINGS, None, "r.csv was not written; run the sweep in your checkout first"),
            (SETTINGS, "profit\n1\n", "r.csv has no column error; it has profit"),
            (SETTINGS, "error\nhigh\n", "r.csv has no number in error"),
            ("experiment: {sweep: s}\n", None, "a sweep needs results and column and baseline as well"),
            ("experiment: {column: x}\n", None, "column does nothing without a sweep"),
            (
                "experiment: {higher_is_better: false}\n",
                None,
                "higher_is_better does nothing without a sweep",
            ),
            ("experiment: {configurations: 2}\n", None, "configurations does nothing without a sweep"),
            (SETTINGS.replace("b.csv", "../b.csv"), None, "'../b.csv' leads out of the repository"),
            (SETTINGS.replace("b.csv", "out/r.csv"), None, "results and baseline are one file"),
        ],
    )
    def test_what_is_wrong_is_one_sentence_and_the_baseline_stays(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        settings: str,
        results: str | None,
        said: str,
    ) -> None:
        (tmp_path / "liza.yaml").write_text(settings)
        (tmp_path / "b.csv").write_text("error\n7\n")
        if results:
            (tmp_path / "out").mkdir()
            (tmp_path / "out/r.csv").write_text(results)

        code, told = self.refresh(tmp_path, capsys)

        assert code == 2
        assert said in told
        assert told.count("\n") == 1
        assert (tmp_path / "b.csv").read_text() == "error\n7\n"


@pytest.mark.parametrize(("ideas", "said"), [(None, "ideas.md is not there"), ("\n \n", "has no idea in it")])
def test_a_board_without_ideas_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ideas: str | None, said: str
) -> None:
    git("init", "--quiet", ".", cwd=tmp_path)
    git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=tmp_path)
    if ideas is not None:
        (tmp_path / "ideas.md").write_text(ideas)

    code = liza(tmp_path, "init", "x", "--workflow", "experiment", "--no-baseline")

    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / ".liza").exists()
