"""Ideas, their scores and their table; the rule for later reviews; the gate of several metrics."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.experiment_config import CLAMP, Grade, MetricKind, MetricRule, grade_metrics, improvement
from liza.domain.ideas import (
    Idea,
    IdeaSummary,
    ResultsFile,
    Score,
    ScoreColumn,
    dropped_issues_name,
    first_ideas,
    new_ideas,
    rank_ideas,
    round_name,
    run_id,
    score_against,
    score_in_file,
    score_in_text,
    split_ideas,
    summary_text,
    sweep_variables,
)
from liza.domain.review_rounds import converge
from liza.errors import UsageError

COLUMN = ScoreColumn(column="sharpe")
KEYS = [
    *("run_id", "idea", "coordinator", "plan", "patch_applied", "patch_error", "review_verdict"),
    *("tests_exit_code", "sweep_exit_code", "results_csv", "score"),
]


def results(text: str | None, why: str = "") -> ResultsFile:
    return ResultsFile("r.csv", None if text is None else text.encode(), why)


class TestIdeas:
    def test_the_first_are_taken_and_too_many_are_refused(self) -> None:
        ideas = split_ideas("a\n\nb\r\n\r\nc", "ideas.txt")

        assert first_ideas(ideas, None) == ideas
        assert [idea.text for idea in first_ideas(ideas, 2)] == ["a", "b"]
        with pytest.raises(
            UsageError, match=r"^4 ideas are asked for, and 3 ideas can be tried; choose from 1 to 3$"
        ):
            first_ideas(ideas, 4)
        with pytest.raises(UsageError, match="and one idea can be tried"):
            first_ideas(ideas[:1], 0)

    def test_a_run_is_named_by_its_moment_and_idea(self) -> None:
        assert run_id(datetime(2026, 1, 31, 12, 5, 7, tzinfo=UTC), 3) == "20260131_120507_03"

    @given(st.lists(st.text(max_size=12)), st.lists(st.text(max_size=12)))
    def test_no_idea_is_tried_twice(self, ideas: list[str], known: list[str]) -> None:
        fresh = new_ideas(ideas, known)

        assert new_ideas(fresh, known) == fresh
        assert new_ideas(ideas, [*known, *fresh]) == ()
        assert all(idea.strip() for idea in fresh)

    @given(st.lists(st.text(alphabet="ab \n", max_size=10).filter(str.strip), min_size=1))
    def test_every_paragraph_is_an_idea(self, texts: list[str]) -> None:
        found = split_ideas("\n\n".join(texts), "x")

        assert all(idea.text == idea.text.strip() and "\n\n" not in idea.text for idea in found)
        assert "".join("".join(idea.text.split()) for idea in found) == "".join(
            "".join(text.split()) for text in texts
        )

    def test_a_line_of_blanks_of_any_kind_is_blank(self) -> None:
        assert [idea.text for idea in split_ideas("a\n\u00a0\t\nb\n\u2003\nc", "x")] == ["a", "b", "c"]


class TestScore:
    def test_what_is_printed_last_behind_the_word_counts_though_it_is_no_number(self) -> None:
        assert score_in_text("loss 3.5\nloss=2\n", "loss").value == 2
        assert score_in_text("loss 3.5\nloss: NaN\n", "loss").value is None
        assert score_in_text("loss 3.5\nloss -inf\n", "loss").value is None

    @pytest.mark.parametrize(("higher", "score"), [(True, 1.0), (False, -1.0)])
    def test_it_is_the_candidate_s_mean_beside_the_baseline_s(self, higher: bool, score: float) -> None:
        wanted = ScoreColumn(column="sharpe", higher_is_better=higher)

        found = score_against(wanted, baseline=results("sharpe\n1\n3\n"), candidate=results("sharpe\n3\n3\n"))

        assert found == Score(column="sharpe", score=score, baseline_mean=2, candidate_mean=3, delta=1)

    @pytest.mark.parametrize("cell", ["x", "nan", "-inf", '"1,5"', ""])
    def test_what_is_left_out_of_it_is_told(self, cell: str) -> None:
        """A sweep that broke off for half of its configurations is not as good as the other half."""
        candidate = results(f"config_id,sharpe\n0,3\n1,{cell}\n")
        found = score_against(COLUMN, baseline=results("sharpe\n1\n"), candidate=candidate)

        told = "the candidate: 1 of 2 values are no finite numbers, and left out"
        assert (found.score, found.note) == (2.0, told)
        assert IdeaSummary(
            run_id="r", idea="i", patch_applied=True, review_verdict="APPROVE", score=found
        ).end == (f"scored; {told}")

    def test_a_json_without_the_path_is_not_one_without_a_number_there(self) -> None:
        def why(text: str) -> str:
            return score_in_file("r.json", text.encode(), "a.score").why

        assert why('{"a": {}}') == "r.json has nothing at a.score"
        assert why('{"a": [{"score": NaN}, {"score": "1,5"}]}') == "r.json has no number at a.score"

    def test_a_mark_before_the_first_column_is_no_part_of_its_name(self) -> None:
        marked = results("\ufeffsharpe\n2\n")

        assert score_against(COLUMN, baseline=marked, candidate=marked).score == 0
        assert score_in_file("r.json", '\ufeff{"sharpe": 2}'.encode(), "sharpe").value == 2

    @pytest.mark.parametrize(
        ("baseline", "candidate", "note"),
        [
            (results(None, "is not there"), results("sharpe\n1\n"), "the baseline r.csv is not there"),
            (results("sharpe\n1\n"), results(None, "was not written"), "the candidate r.csv was not written"),
            (results("x\n1\n"), results("sharpe\n1\n"), "the baseline: r.csv has no column sharpe; it has x"),
            (
                results("sharpe\n1\n"),
                results("sharpe\nhigh\n"),
                "the candidate: r.csv has no number in sharpe",
            ),
            (results("\x00"), results("sharpe\n1\n"), "the baseline: r.csv has no column sharpe"),
            (
                results("sharpe\n1\n"),
                results("sharpe,x,sharpe\n1,2,9\n"),
                "the candidate: r.csv has 2 columns sharpe; give each its own name",
            ),
        ],
    )
    def test_where_there_is_none_a_note_says_why(
        self, baseline: ResultsFile, candidate: ResultsFile, note: str
    ) -> None:
        found = score_against(COLUMN, baseline=baseline, candidate=candidate)

        assert (found.score, found.delta) == (None, None)
        assert note in str(found.note)

    def test_the_columns_that_there_are_come_with_the_note(self) -> None:
        found = score_against(COLUMN, baseline=results("a,b\n1,2\n"), candidate=results("c\n1\n"))

        assert (found.baseline_columns, found.candidate_columns) == (("a", "b"), ("c",))

    def test_only_the_first_configurations_count(self) -> None:
        wanted = ScoreColumn(column="s", first_configurations=2)
        numbered, plain = results("config_id,s\n5,9\n0,1\n1,3\n"), results("s\n1\n5\n90\n")

        found = score_against(wanted, baseline=numbered, candidate=plain)

        assert (found.baseline_mean, found.candidate_mean) == (2, 3)


class TestReport:
    def test_a_summary_has_exactly_its_keys(self) -> None:
        summary = IdeaSummary(run_id="r", idea="x")

        assert list(json.loads(summary_text(summary))) == KEYS
        assert list(IdeaSummary.model_fields) == KEYS

    def test_the_best_score_is_first_and_failures_say_why(self) -> None:
        def tried(name: str, **facts: object) -> IdeaSummary:
            usual = {"run_id": name, "idea": f"{name} is tried\nbecause", "patch_applied": True}
            return IdeaSummary.model_validate({**usual, "review_verdict": "APPROVE", **facts})

        rows = rank_ideas(
            [
                tried("bad", score={"column": "s", "score": -1.0}),
                tried("good", score={"column": "s", "score": 2.0}),
                tried("empty", patch_applied=False, patch_error="the patch is empty"),
                tried("rejected", review_verdict="REJECT"),
                tried("red", tests_exit_code=1),
                tried("unswept", sweep_exit_code=2, score={"column": "s", "note": "r.csv was not written"}),
            ]
        )

        assert [(row.rank, row.title, row.score, row.end, row.patch) for row in rows] == [
            (1, "good is tried", 2.0, "scored", "good/patch.diff"),
            (2, "bad is tried", -1.0, "scored", "bad/patch.diff"),
            (None, "empty is tried", None, "error: the patch is empty", None),
            (None, "red is tried", None, "tests failed (1)", "red/patch.diff"),
            (None, "rejected is tried", None, "review: REJECT", "rejected/patch.diff"),
            (None, "unswept is tried", None, "no score: r.csv was not written", "unswept/patch.diff"),
        ]

    def test_a_sweep_is_told_where_its_private_output_goes(self) -> None:
        assert sweep_variables("/out/run_1", "/out/run_1/r.csv", 3) == {
            "AGENTIC_OUTPUT_DIR": "/out/run_1",
            "AGENTIC_RESULTS_CSV": "/out/run_1/r.csv",
            "AGENTIC_SWEEP_CONFIG_LIMIT": "3",
        }
        assert "AGENTIC_SWEEP_CONFIG_LIMIT" not in sweep_variables("o", "r", None)

    def test_files_of_later_rounds_have_their_number(self) -> None:
        assert [round_name("review.md", number) for number in (0, 1)] == ["review.md", "review_round_1.md"]
        assert dropped_issues_name(2) == "review_round_2_dropped_new_issues.txt"
        assert Idea("a title\nmore", "x").title == "a title"


class TestConvergence:
    def test_a_later_review_may_insist_and_adds_nothing(self) -> None:
        found = converge(
            ("Off by one in loop at a.py:10", "no test"),
            ("off by one in loop at a.py:12!", "the name is ugly"),
            notes="- CRITICAL_NEW: it deletes files\nelse fine",
        )

        assert found.kept == ("off by one in loop at a.py:12!",)
        assert found.dropped == ("the name is ugly",)
        assert found.critical == ("it deletes files",)
        assert not found.is_settled
        assert converge(("no test",), ("the name is ugly",)).is_settled

    @given(st.lists(st.text(max_size=20)), st.lists(st.text(max_size=20)))
    def test_every_issue_is_kept_or_dropped_and_only_old_ones_are_kept(
        self, first: list[str], later: list[str]
    ) -> None:
        found = converge(tuple(first), tuple(later))

        assert sorted([*found.kept, *found.dropped]) == sorted(later)
        assert converge(tuple(first), tuple(first)).dropped == ()


figures = st.floats(-1e6, 1e6)


class TestMetricGate:
    RULES = (
        MetricRule(column="sharpe", kind=MetricKind.PRIMARY, weight=2),
        MetricRule(column="drawdown", kind=MetricKind.RISK, higher_is_better=False),
        MetricRule(column="trades"),
    )
    BASE = {"sharpe": 1.0, "drawdown": 10.0, "trades": 100.0}  # noqa: RUF012 - read only

    @pytest.mark.parametrize(
        ("candidate", "grade", "explore"),
        [
            ({"sharpe": 1.3, "drawdown": 10.0, "trades": 100.0}, Grade.STRONG, True),
            ({"sharpe": 1.1, "drawdown": 10.0, "trades": 100.0}, Grade.PROMISING, True),
            ({"sharpe": 1.0, "drawdown": 10.0, "trades": 100.0}, Grade.MIXED, False),
            ({"sharpe": 1.001, "drawdown": 9.99, "trades": 100.0}, Grade.MIXED, True),
            ({"sharpe": 0.9, "drawdown": 5.0, "trades": 100.0}, Grade.PROMISING, False),
            ({"sharpe": 2.0, "drawdown": 11.5, "trades": 100.0}, Grade.STRONG, False),
            ({"sharpe": 0.5, "drawdown": 10.0, "trades": 100.0}, Grade.WEAK, False),
            ({}, Grade.MIXED, False),
        ],
    )
    def test_grades_and_what_is_worth_to_go_on_with(
        self, candidate: dict[str, float], grade: Grade, explore: bool
    ) -> None:
        found = grade_metrics(self.RULES, self.BASE, candidate)

        assert (found.grade, found.should_explore) == (grade, explore)

    def test_a_metric_that_is_missing_counts_for_nothing_and_is_told(self) -> None:
        found = grade_metrics(self.RULES, self.BASE, {"sharpe": 1.2})

        assert found.score == pytest.approx(0.2)
        assert found.missing == ("drawdown", "trades")

    @given(figures, figures, st.booleans())
    def test_one_metric_is_clamped_and_its_direction_is_a_mirror(
        self, baseline: float, candidate: float, higher: bool
    ) -> None:
        rule = MetricRule(column="x", higher_is_better=higher)
        mirrored = rule.replace(higher_is_better=not higher)

        value = improvement(rule, baseline, candidate)

        assert -CLAMP <= value <= CLAMP
        assert improvement(mirrored, baseline, candidate) == -value
        assert (value > 0) == ((candidate > baseline) is higher and candidate != baseline)
