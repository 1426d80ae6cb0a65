"""Ideas are tried one by one against a baseline: every end leaves its files, and nothing else."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.cli.views.experiments import experiment_text, graded_ideas
from liza.domain.ideas import IdeaSummary
from liza.domain.model import GoalStatus, Status
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = ("planner-1", "coder-1", "reviewer-1")
SWEEP: Final = """\
if [ -e stale ]; then exit 0; fi
value=$(cat value)
printf 'config_id,sharpe,drawdown\\n0,%s,0.2\\n1,%s,0.2\\n' $value $value > "$AGENTIC_RESULTS_CSV"
if [ -e noisy ]; then echo 'it broke late'; exit 3; fi
if [ -e broken ]; then rm "$AGENTIC_RESULTS_CSV"; echo 'it broke' >&2; exit 2; fi
"""
EXPERIMENT: Final = {
    "sweep": "sh sweep.sh",
    "results": "results.csv",
    "column": "sharpe",
    "baseline": "baseline.csv",
}
SCRIPT: Final[dict[str, Any]] = {
    "implement/coordinator": {"answer": {"status": "done", "summary": "- only the value may change"}},
    "implement/planner": {"answer": {"status": "done", "summary": "PLAN:\n1. change it"}},
    "implement/coder": {"run": "echo 2.0 > value", "answer": {"status": "done", "summary": "Raise it"}},
}
FOLDER: Final = "a folder"
NO: Final = {"answer": {"verdict": "reject", "reason": "it cheats", "feedback": [{"message": "it cheats"}]}}


def write(team: ScriptedTeam, **files: str) -> None:
    for name, text in files.items():
        (team.user.directory / name.replace("__", ".")).write_text(text)


def laboratory(
    directory: Path,
    script: dict[str, Any],
    ideas: str = "be better\n",
    **settings: Any,  # noqa: ANN401 - whatever a run may be told
) -> ScriptedTeam:
    """Return a team with a project that has a sweep and a baseline, committed, and *ideas*, which are not."""
    experiment = {**EXPERIMENT, **settings.pop("experiment", {})}
    settings = {"workflow": "experiment", "experiment": experiment, **settings}
    team = ScriptedTeam(directory, {**SCRIPT, **script}, **settings)
    write(team, sweep__sh=SWEEP, value="1.0\n", test__sh="! grep -q boom value\n")
    team.user.git("add", ".")
    team.user.git("commit", "--quiet", "-m", "a laboratory")
    write(team, baseline__csv="config_id,sharpe,drawdown\n0,1.0,0.2\n1,1.0,0.2\n", ideas__md=ideas)
    return team


def summaries(team: ScriptedTeam) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text()) for path in sorted((team.home / "experiments").glob("*/summary.json"))
    ]


def try_ideas(directory: Path, script: dict[str, Any], *ideas: str, **settings: Any) -> ScriptedTeam:  # noqa: ANN401 - as above
    team = laboratory(directory, script, "\n\n".join(ideas or ("be better",)), **settings)
    team.turns(*ALL)
    return team


SIX: Final = ("good", "bad", "empty", "rejected", "red\nwith a second line", "broken")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> ScriptedTeam:
    done = {"status": "done", "summary": "Change it"}
    script = {
        "implement/coder": {"answer": done},
        "implement idea-1-1": [
            SCRIPT["implement/coordinator"],
            SCRIPT["implement/planner"],
            SCRIPT["implement/coder"],
        ],
        **{
            f"implement idea-1-{number}": [
                SCRIPT["implement/coordinator"],
                SCRIPT["implement/planner"],
                {"run": run, "answer": done},
            ]
            for number, run in {
                2: "echo 0.5 > value",
                3: "true",
                4: "echo 9.0 > value",
                5: "echo boom > value",
                6: "touch broken",
            }.items()
        },
        "review idea-1-4": NO,
    }
    directory = tmp_path_factory.mktemp("six")
    return try_ideas(directory, script, *SIX, gates={"test": "sh test.sh"})


class TestSixIdeas:
    """Good, bad, an empty patch, rejected, failing tests, failing sweep."""

    def test_every_idea_has_its_summary_with_exactly_its_keys(self, team: ScriptedTeam) -> None:
        found = summaries(team)

        assert [list(one) for one in found] == [list(IdeaSummary.model_fields)] * 6
        assert [one["idea"] for one in found] == list(SIX)
        assert [one["patch_applied"] for one in found] == [True, True, False, True, True, True]
        assert [one["review_verdict"] for one in found] == [
            "APPROVE",
            "APPROVE",
            None,
            "REJECT",
            "APPROVE",
            "APPROVE",
        ]
        assert [one["tests_exit_code"] for one in found] == [0, 0, None, None, 1, 0]
        assert [one["sweep_exit_code"] for one in found] == [0, 0, None, None, None, 2]
        scores = [one["score"]["score"] if one["score"] else None for one in found]
        assert scores == [1.0, -0.5, None, None, None, None]
        assert found[5]["score"]["note"].startswith("the candidate results.csv was not written by the sweep")
        assert {(one["coordinator"], one["plan"]) for one in found} == {
            ("- only the value may change", "PLAN:\n1. change it")
        }

    def test_every_artifact_is_in_its_place(self, team: ScriptedTeam) -> None:
        folders = sorted((team.home / "experiments").iterdir())
        files = [{path.name for path in folder.iterdir()} for folder in folders]
        roles = {"coordinator_prompt.txt", "coordinator.md", "planner_prompt.txt", "plan.md"}
        coded = {"idea.md", "summary.json", *roles, "coder_prompt.txt", "patch.diff"}
        reviewed = {*coded, "reviewer_prompt.txt", "review.md"}
        scored = {*reviewed, "tests.log", "sweep.log", "meta_config_sweep_results.csv"}

        assert files == [
            *(scored, scored, coded, reviewed, {*reviewed, "tests.log"}),
            scored - {"meta_config_sweep_results.csv"},
        ]
        assert (folders[4] / "idea.md").read_text() == "red\nwith a second line\n"
        assert "it broke" in (folders[5] / "sweep.log").read_text()
        assert folders[0].name.endswith("_01")

    def test_the_patch_of_the_best_idea_applies_to_your_checkout(self, team: ScriptedTeam) -> None:
        text = experiment_text(team.home, graded_ideas(team.home, team.state.config.experiment))
        lines = text.splitlines()

        assert [line.split()[:3] for line in lines[1:3]] == [["1", "+1", "good"], ["2", "-0.5", "bad"]]
        assert [line.split("  ")[-2].strip() for line in lines[3:7]] == [
            *("error: idea-1-3: nothing was committed since the base", "review: REJECT", "tests failed (1)"),
            f"no score: {summaries(team)[5]['score']['note']}",
        ]
        command = lines[-1].partition("git apply ")[2]
        team.user.git("apply", "--check", command)

    def test_nothing_is_merged_and_no_worktree_is_left(self, team: ScriptedTeam) -> None:
        assert {task.status for task in team.state.tasks.values()} == {Status.COMPLETE, Status.ABANDONED}
        assert team.head() == team.user.base
        assert not [task for task in team.state.tasks if team.user.worktrees.of(task)]


class TestBase:
    def test_ideas_start_from_the_checkout_as_it_is_where_that_is_wanted(self, tmp_path: Path) -> None:
        team = laboratory(
            tmp_path,
            {"implement/coder": {"run": "cat new >> value", "answer": {"status": "done", "summary": "x"}}},
            experiment={"base_on_working_tree": True},
        )
        write(team, value="4", new=".5\n")
        (tmp_path / "disk").mkdir()
        (team.home / "experiments").symlink_to(tmp_path / "disk")
        team.turns(*ALL)

        (found,) = summaries(team)
        assert list((tmp_path / "disk").iterdir())
        assert found["score"]["candidate_mean"] == 4.5
        assert team.user.git("status", "--porcelain", "value") == "M value"

    def test_a_worktree_is_kept_where_that_is_wanted(self, tmp_path: Path) -> None:
        team = try_ideas(tmp_path, {}, experiment={"keep_worktrees": True})

        worktree = team.user.worktrees.of("idea-1-1")
        assert worktree
        assert (worktree.path / "value").read_text() == "2.0\n"


class TestSweep:
    def test_a_sweep_that_fails_is_scored_where_its_results_are_new(self, tmp_path: Path) -> None:
        code = {"run": "echo 2.0 > value; touch noisy", "answer": {"status": "done", "summary": "x"}}
        (found,) = summaries(try_ideas(tmp_path, {"implement/coder": code}))

        assert (found["sweep_exit_code"], found["score"]["score"]) == (3, 1.0)

    def test_results_from_an_earlier_run_do_not_count(self, tmp_path: Path) -> None:
        stale = {
            "run": "printf 'sharpe\\n99\\n' > results.csv; touch stale",
            "answer": {"status": "done", "summary": "x"},
        }
        (found,) = summaries(try_ideas(tmp_path, {"implement/coder": stale}))

        assert (found["sweep_exit_code"], found["results_csv"], found["score"]["score"]) == (0, None, None)

    @pytest.mark.parametrize(
        ("baseline", "column", "note"),
        [
            (None, "sharpe", "the baseline baseline.csv is not there; make one with `liza baseline refresh`"),
            ("sharpe\n1\n", "profit", "baseline.csv has no column profit; it has sharpe"),
            ("sharpe\nhigh\n", "sharpe", "the baseline: baseline.csv has no number in sharpe"),
            (FOLDER, "sharpe", "baseline.csv cannot be read: Is a directory"),
        ],
    )
    def test_what_cannot_be_compared_has_a_note_and_no_score(
        self, tmp_path: Path, baseline: str | None, column: str, note: str
    ) -> None:
        team = laboratory(tmp_path, {}, experiment={"column": column})
        path = team.user.directory / "baseline.csv"
        path.unlink()
        if baseline == FOLDER:
            path.mkdir()
        elif baseline:
            path.write_text(baseline)
        team.turns(*ALL)

        (found,) = summaries(team)
        assert found["score"]["score"] is None
        assert note in found["score"]["note"]
        assert team.status("idea-1-1") is Status.COMPLETE

    def test_metrics_grade_an_idea_beside_its_score(self, tmp_path: Path) -> None:
        metrics = [
            {"column": "sharpe", "kind": "primary"},
            {"column": "drawdown", "kind": "risk", "higher_is_better": False},
        ]
        team = try_ideas(tmp_path, {}, experiment={"metrics": metrics})

        (idea,) = graded_ideas(team.home, team.state.config.experiment)
        assert idea.to_json()["grade"] == "strong"
        assert idea.to_json()["should_explore"]


class TestFailingAgents:
    """An idea whose agents fail is an error, and the next begins."""

    BAD: Final = {"print": "no answer", "exit": 1}
    BLOCKED: Final = {
        "answer": {"status": "blocked", "blocked_reason": "odd\nindeed", "blocked_questions": ["Why?"]}
    }

    def test_an_agent_that_is_blocked_ends_its_idea_alone(self, tmp_path: Path) -> None:
        """Whichever of its three it is."""
        acts = [SCRIPT[f"implement/{hat}"] for hat in ("coordinator", "planner", "coder")]
        script = {f"implement idea-1-{n + 1}": [*acts[:n], self.BLOCKED, *acts[n + 1 :]] for n in range(3)}
        team = try_ideas(tmp_path, script, "odd", "strange", "peculiar", "fine")

        *bad, good = summaries(team)
        assert [(one["patch_applied"], one["patch_error"]) for one in bad] == [(False, "odd\nindeed")] * 3
        table = experiment_text(team.home, graded_ideas(team.home, team.state.config.experiment))
        assert sum("error: odd indeed  experiments/" in line for line in table.splitlines()) == 3
        assert good["score"]["score"] == 1.0
        assert {team.status(f"idea-1-{n + 1}") for n in range(3)} == {Status.ABANDONED}

    def test_an_agent_that_crashes_ends_its_idea_alone(self, tmp_path: Path) -> None:
        team = try_ideas(tmp_path, {"implement idea-1-1": self.BAD}, "odd", "fine")

        bad, good = summaries(team)
        assert not bad["patch_applied"]
        assert bad["patch_error"]
        assert good["score"]["score"] == 1.0


def rejects(*points: str, reason: str = "not yet") -> dict[str, Any]:
    return {
        "answer": {"verdict": "reject", "reason": reason, "feedback": [{"message": one} for one in points]}
    }


class TestReviewRounds:
    """A coder may try again, as often as the settings say, and a review cannot ask for ever more."""

    DONE: Final = {"status": "done", "summary": "Change it"}

    def coder(self, *commands: str) -> dict[str, Any]:
        return {"implement/coder": [{"run": run, "answer": self.DONE} for run in commands]}

    def test_a_rejected_patch_is_mended_in_the_same_worktree(self, tmp_path: Path) -> None:
        script = {
            **self.coder("echo 2.0 > value", "echo 1 > mended"),
            "review/reviewer": [rejects("mend it"), {"answer": {"verdict": "approve", "reason": "good"}}],
        }
        team = try_ideas(tmp_path, script, experiment={"review_rounds": 2})

        (found,) = summaries(team)
        assert (found["review_verdict"], found["score"]["score"]) == ("APPROVE", 1.0)
        (folder,) = (team.home / "experiments").iterdir()
        patch = (folder / "patch.diff").read_text()
        assert "+2.0" in patch
        assert "b/mended" in patch
        assert {"review_round_1.md", "coder_prompt_round_1.txt"} <= {one.name for one in folder.iterdir()}
        assert "mend it" in (folder / "coder_prompt_round_1.txt").read_text()

    @pytest.mark.parametrize(
        ("proceed", "end", "score"), [(False, "review: REJECT", None), (True, "scored, not approved", 1.0)]
    )
    def test_after_the_last_round_it_stops_or_is_scored_and_marked(
        self, tmp_path: Path, *, proceed: bool, end: str, score: float | None
    ) -> None:
        script = {**self.coder("echo 2.0 > value", "echo 1 > more"), "review/reviewer": rejects("no")}
        team = try_ideas(tmp_path, script, experiment={"review_rounds": 1, "proceed_unapproved": proceed})

        (found,) = graded_ideas(team.home, team.state.config.experiment)
        assert (found.row.end, found.row.score, team.status("idea-1-1")) == (end, score, Status.ABANDONED)
        assert team.state.task("idea-1-1").is_tainted is proceed
        assert summaries(team)[0]["review_verdict"] == "REJECT"

    def test_what_was_never_made_is_not_scored_by_force(self, tmp_path: Path) -> None:
        script = self.coder("true")
        team = try_ideas(tmp_path, script, "odd", "odd too", experiment={"proceed_unapproved": True})

        assert [one["score"] for one in summaries(team)] == [None, None]
        assert {task.status for task in team.state.tasks.values()} == {Status.ABANDONED}

    def test_a_later_review_may_insist_and_add_nothing(self, tmp_path: Path) -> None:
        script = {
            **self.coder("echo 2.0 > value", "echo 1 > a", "echo 1 > b"),
            "review/reviewer": [
                rejects("name it better", "add a test"),
                rejects("Add a test!", "use another language"),
                rejects("rewrite it all", reason="hm\nCRITICAL_NEW: it deletes the data"),
            ],
        }
        team = try_ideas(tmp_path, script, experiment={"review_rounds": 3, "converge": True})

        (found,) = summaries(team)
        assert (found["review_verdict"], found["score"]["score"]) == ("APPROVE", 1.0)
        (folder,) = (team.home / "experiments").iterdir()
        late = {one.name: one.read_text() for one in folder.glob("*dropped*")}
        assert late == {
            "review_round_1_dropped_new_issues.txt": "use another language\n",
            "review_round_2_dropped_new_issues.txt": "rewrite it all\n",
        }
        told = (folder / "coder_prompt_round_2.txt").read_text()
        assert "Add a test!" in told
        assert "- blocker: use another language" not in told
        assert "it deletes the data; look at it before you apply" in (team.home / "alerts.log").read_text()


class TestSearch:
    """The best of a depth is what the ideas of the next one begin with, for as long as that is worth it."""

    METRICS: Final = [{"column": "sharpe", "kind": "primary"}, {"column": "drawdown", "kind": "risk"}]
    # Each idea adds to what it begins with; the fourth makes it worse.
    CODER: Final = """\
case $LIZA_TASK in *-1) by=1;; *-2) by=3;; *-3) by=2;; *) by=-9;; esac
value=$(cat value | cut -d. -f1); echo $((value + by)).0 > value; touch $LIZA_TASK
"""

    def search(self, directory: Path, ideas: str, **search: Any) -> ScriptedTeam:  # noqa: ANN401 - settings
        code = {"run": self.CODER, "answer": {"status": "done", "summary": "Add to it"}}
        team = laboratory(
            directory,
            {"implement/coder": code},
            "\n\n".join(ideas.split()),
            experiment={"metrics": self.METRICS, "search": {"ideas": 2, **search}},
        )
        team.turns(*ALL)
        return team

    def test_the_best_is_gone_on_with(self, tmp_path: Path) -> None:
        team = self.search(tmp_path, "one two three four five")

        state = team.state
        begins = {name: task.depends_on for name, task in state.tasks.items()}
        second = ("idea-1-2",)
        assert begins == {
            "idea-1-1": (),
            "idea-1-2": (),
            "idea-1-3": second,
            "idea-1-4": second,
            "idea-1-5": ("idea-1-3",),
        }
        assert state.goal.search_ended == "no idea of the last depth is worth to go on with"
        assert state.goal.status is GoalStatus.COMPLETE
        rows = graded_ideas(team.home, state.config.experiment)
        assert [(one.row.title, one.row.score) for one in rows][:2] == [("three", 5.0), ("two", 3.0)]
        # The patch has all that it was tried on.
        patch = (team.home / "experiments" / str(rows[0].row.patch)).read_text()
        assert {"idea-1-2", "idea-1-3"} <= {line.rpartition("/")[2] for line in patch.splitlines()}
        team.user.git("apply", "--check", f".liza/experiments/{rows[0].row.patch}")
        prompts = [path.read_text() for path in (team.home / "runs").glob("*/prompt.md")]
        assert any("Begin with what idea-1-2 made, and keep it: two" in text for text in prompts)

    @pytest.mark.parametrize(
        ("ideas", "settings", "ended", "tried"),
        [
            ("one two three four", {"depth": 1}, "the depth of 1 is reached", 2),
            ("one two three four", {"most": 3}, "3 ideas were tried", 3),
            ("one Two two", {}, "every idea was tried", 2),
        ],
    )
    def test_it_ends_with_a_sentence(
        self, tmp_path: Path, ideas: str, settings: dict[str, int], ended: str, tried: int
    ) -> None:
        team = self.search(tmp_path, ideas, **settings)

        assert (team.state.goal.search_ended, len(team.state.tasks)) == (ended, tried)

    def test_a_baseline_without_a_metric_pauses_with_a_sentence(self, tmp_path: Path) -> None:
        team = laboratory(
            tmp_path, {}, "a\n\nb", experiment={"metrics": [{"column": "profit"}], "search": {"ideas": 1}}
        )
        for _ in range(4):
            team.turn("planner-1"), team.turn("coder-1"), team.turn("reviewer-1")

        said = (team.home / "PAUSE").read_text()
        assert "the search cannot go on without its baseline: it has no number in profit" in said


class TestPatches:
    """A coder may answer with a patch, where the document says that it speaks that dialect."""

    PATCH: Final = """\
--- a/value
+++ b/value
@@ -1 +1 @@
-1.0
+3.0
"""

    NOTES: Final = "COORDINATOR_NOTES:\n- only the value may change\n"
    PLAN: Final = "PLAN:\n1. change it\nRISKS:\n- none\nTESTS:\n- sh test.sh\n"

    def try_patch(self, directory: Path, text: str, plans: tuple[str, ...] = (PLAN,)) -> ScriptedTeam:
        """Let agents try an idea who all speak in sections and verdicts."""
        script = {
            "implement/coordinator": {"print": self.NOTES},
            "implement/planner": [{"print": plan} for plan in plans],
            "implement/coder": {"print": text},
            "review": {"print": "VERDICT: APPROVE\nISSUES:\n- none\nNOTES: good\n"},
        }
        team = laboratory(directory, script, workflow="patches.yaml")
        text = files("liza.workflow").joinpath("experiment.yaml").read_text()
        write(team, patches__yaml=re.sub(r"access: (read|write)", r"access: \1, dialect: verdict", text))
        team.turns(*ALL)
        return team

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_a_patch_is_applied_and_scored(self, tmp_path: Path, end: str) -> None:
        text = f"Here it is.\n\n```diff\n{self.PATCH}```\nThat is all.\n".replace("\n", end)
        team = self.try_patch(tmp_path, text, ("PLAN:\n1. change it\n", self.PLAN))

        (found,) = summaries(team)
        assert (found["patch_applied"], found["score"]["score"]) == (True, 2.0)
        assert (found["coordinator"], found["plan"]) == (self.NOTES.strip(), self.PLAN.strip())
        # A plan that says nothing of risks is asked for again.
        refusal = team.state.agents["planner-1"].refusal
        assert refusal
        assert refusal.why == "there is no section RISKS: in what the planner said; add it"

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("I would rather not.", "the patch is empty"),
            (PATCH.replace("1.0", "7.0"), "the patch does not apply"),
        ],
    )
    def test_what_does_not_apply_ends_the_idea_before_its_review(
        self, tmp_path: Path, text: str, error: str
    ) -> None:
        team = self.try_patch(tmp_path, text)

        (found,) = summaries(team)
        assert found["patch_error"].startswith(error)
        assert (found["patch_applied"], found["review_verdict"]) == (False, None)
        (folder,) = (team.home / "experiments").iterdir()
        assert (folder / "patch.diff").read_text() == (text if "@@" in text else "")


class TestIdeas:
    def test_a_directory_has_one_a_file_and_a_tried_one_is_moved_away(self, tmp_path: Path) -> None:
        team = laboratory(tmp_path, {}, experiment={"ideas": "ideas", "archive": True, "first": 1})
        folder = team.user.directory / "ideas"
        folder.mkdir()
        (folder / "01.md").write_text("be better\n\nin two paragraphs\n")
        (folder / "02.md").write_text("not yet\n")
        team.turns(*ALL)

        (found,) = summaries(team)
        assert found["idea"] == "be better\n\nin two paragraphs"
        assert sorted(path.name for path in folder.rglob("*.md")) == ["01.md", "02.md"]
        assert (folder / "completed/01.md").is_file()

    def test_without_ideas_the_run_pauses_with_a_sentence(self, tmp_path: Path) -> None:
        team = laboratory(tmp_path, {}, "   \n  ")
        team.turn("planner-1")

        assert "has no idea in it; write one a paragraph" in (team.home / "PAUSE").read_text()
        assert not team.state.tasks
