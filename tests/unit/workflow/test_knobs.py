"""Each difference between the workflows is one key of a document, and means the same in all."""

from __future__ import annotations

from typing import Final

import pytest

from liza.workflow.document import parse_workflow
from tests.support.workflow_script import WorkflowScript

PLAIN: Final = """\
name: knobs
says: as little as possible
start: WORK
{top}
phases:
  WORK:
    worker: coder
    next: CHECK
    {work}
  CHECK:
    edges: {{revise: WORK{edges}}}
    next: DONE
    {check}
    gates:
      {before}
      - {{id: review, kind: agent, role: reviewer{review}}}
rules: [{rules}]
"""


def flow(
    *facts: str, top: str = "", work: str = "", edges: str = "", check: str = "", before: str = "",
    review: str = "", rules: str = "",
) -> WorkflowScript:  # fmt: skip
    hats = [f"{name}: {{process: reviewer}}" for name in ("critic", "assessor") if f"role: {name}" in before]
    text = PLAIN.format(
        top=f"{top}\nroles: {{{', '.join(hats)}}}",
        work=work or "session: fresh",
        edges=edges,
        check=check or "session: fresh",
        before=before or "- {id: noted, kind: score, mode: record}",
        review=review,
        rules=rules,
    )
    return WorkflowScript(parse_workflow(text, "knobs.yaml"), *facts)


TWICE: Final = "max_iterations: 2\n    on_exhausted: "


class TestExhaustion:
    @pytest.mark.parametrize(
        ("policy", "end"), [("block", "BLOCKED"), ("pause", "PAUSED"), ("stop", "STOPPED")]
    )
    def test_it_ends_as_the_phase_says(self, policy: str, end: str) -> None:
        story = flow(work=TWICE + policy).play("work pass revise work pass")
        assert story.end is None

        moved = story.say("revise")

        assert story.end == end
        assert moved.exhausted == "Max iterations (2) reached without approval"

    def test_forced_through_it_is_marked(self) -> None:
        story = flow(work=TWICE + "force_pass").play("work pass revise work pass revise")

        assert (story.end, story.position.taints) == ("DONE", ("forced:CHECK",))
        assert story.decisions == ["WORK=pass", "CHECK=revise", "WORK=pass", "CHECK=revise"]

    def test_a_verdict_that_blocks_is_never_forced(self) -> None:
        assert flow(work=TWICE + "force_pass").play("work pass revise work pass block").end == "BLOCKED"

    def test_a_pass_in_the_last_round_is_clean(self) -> None:
        story = flow(work=TWICE + "force_pass").play("work pass revise work pass pass")

        assert (story.end, story.position.taints) == ("DONE", ())

    def test_rounds_outlive_a_way_back_and_not_a_way_on(self) -> None:
        story = flow().play("work pass revise work pass revise work")

        assert story.position.iterations == {"WORK": 3, "CHECK": 1}

    def test_an_edge_may_give_fresh_rounds(self) -> None:
        story = flow(work="max_iterations: 1", edges=", revise/rethink: {to: WORK, reset: true}")

        assert story.play("work pass revise/rethink").next == "WORK:coder"
        assert story.position.iterations["WORK"] == 1

    def test_the_path_says_how_many_rounds(self) -> None:
        assess = "- {id: size, kind: agent, role: assessor, sets_path: true, when: path_unset}"
        small = flow(work="max_iterations: {SMALL: 1, '*': 2}", before=assess)

        assert small.play("work pass/SMALL revise").end == "BLOCKED"
        large = flow(work="max_iterations: {SMALL: 1, '*': 2}", before=assess)
        assert large.play("work pass/LARGE revise work revise").end == "BLOCKED"


class TestSilence:
    @pytest.mark.parametrize(
        ("policy", "end", "then"),
        [("block", "BLOCKED", "-"), ("revise", None, "WORK:coder"), ("stop", "STOPPED", "-")],
    )
    def test_it_means_what_the_gate_says(self, policy: str, end: str | None, then: str) -> None:
        story = flow(review=f", on_none: {policy}").play("work pass none")

        assert (story.end, story.next) == (end, then)

    def test_it_blocks_where_the_gate_says_nothing(self) -> None:
        assert flow().play("work pass none").end == "BLOCKED"

    def test_its_limit_is_that_of_the_rule(self) -> None:
        rule = "{name: no_signal, count: 2, action: block}"
        story = flow(review=", on_none: revise", rules=rule).play("work pass none work pass none")

        assert (story.end, story.position.taints) == ("BLOCKED", ())

    def test_a_verdict_between_two_silences_starts_the_count_anew(self) -> None:
        rule = "{name: no_signal, count: 2, action: block}"
        story = flow(review=", on_none: revise", rules=rule)

        assert story.play("work pass none work pass revise work pass none").end is None


class TestErrors:
    @pytest.mark.parametrize(("then", "end"), [("block", "BLOCKED"), ("stop", "STOPPED"), ("revise", None)])
    def test_a_gate_is_tried_again_and_then_says_what_the_document_says(
        self, then: str, end: str | None
    ) -> None:
        story = flow(review=", on_error: {retry: 2, then: " + then + "}").play("work pass crash crash")
        assert story.next == "review"
        assert story.position.iterations["CHECK"] == 1

        assert story.play("crash").end == end

    def test_force_always_marks(self) -> None:
        story = flow(review=", on_error: {retry: 0, then: force_pass}").play("work pass crash")

        assert (story.end, story.position.taints) == ("DONE", ("forced:CHECK/review",))

    def test_a_verdict_gives_the_next_gate_fresh_attempts(self) -> None:
        two = "- {id: lint, kind: command, command: lint}"
        story = flow(before=two).play("work crash pass crash")

        assert story.next == "review"

    def test_a_worker_that_crashes_costs_an_attempt(self) -> None:
        story = flow(work="max_iterations: 1").play("crash crash crash")

        assert (story.next, story.position.attempt) == ("WORK:coder", 3)

    def test_or_a_round_where_the_document_says_so(self) -> None:
        story = flow(top="crash_consumes_iteration: true", work="max_iterations: 2").play("crash")
        assert story.position.iterations["WORK"] == 2

        assert story.play("crash").end == "BLOCKED"

    def test_work_that_only_crashed_is_not_forced_through(self) -> None:
        story = flow(top="crash_consumes_iteration: true", work=TWICE + "force_pass").play("crash crash")

        assert (story.end, story.position.taints) == ("BLOCKED", ())


class TestModes:
    ADVICE: Final = "- {id: advice, kind: agent, role: critic, mode: advisory}"

    def test_advice_decides_nothing(self) -> None:
        story = flow(before=self.ADVICE).play("work block pass")

        assert (story.end, story.position.taints) == ("DONE", ())

    def test_overriding_it_marks_where_the_judge_says_so(self) -> None:
        story = flow(before=self.ADVICE, review=", taints_on_override: true").play("work revise pass")

        assert story.position.taints == ("overrode_critic",)

    def test_following_it_marks_nothing(self) -> None:
        story = flow(before=self.ADVICE, review=", taints_on_override: true").play("work pass pass")

        assert story.position.taints == ()

    def test_silent_advice_is_none(self) -> None:
        assert flow(before=self.ADVICE).play("work none").next == "review"

    def test_what_is_recorded_decides_nothing(self) -> None:
        assert flow().play("work block pass").end == "DONE"


class TestConditions:
    LAST: Final = ", skip_if: final_iteration"

    def test_a_judge_that_is_left_out_in_the_last_round_leaves_a_mark(self) -> None:
        story = flow(check="max_iterations: 1", review=self.LAST).play("work pass")

        assert (story.end, story.position.taints) == ("DONE", ("skipped:CHECK/review",))

    def test_advice_that_is_left_out_leaves_none(self) -> None:
        advice = "- {id: advice, kind: agent, role: critic, mode: advisory, skip_if: final_iteration}"
        story = flow(check="max_iterations: 1", before=advice).play("work pass")

        assert (story.end, story.position.taints) == ("DONE", ())

    @pytest.mark.parametrize(("facts", "then"), [((), "review"), (("no_code",), "lint")])
    def test_when_asks_a_fact(self, facts: tuple[str, ...], then: str) -> None:
        lint = "- {id: lint, kind: command, command: lint, when: no_code}"

        assert flow(*facts, before=lint).play("work").next == then

    @pytest.mark.parametrize(("facts", "then"), [((), "lint"), (("no_code",), "review")])
    def test_unless_asks_its_contrary(self, facts: tuple[str, ...], then: str) -> None:
        lint = "- {id: lint, kind: command, command: lint, unless: no_code}"
        story = flow(*facts, before=lint).play("work")

        assert story.next == then

    def test_what_the_engine_knows_nobody_tells_it(self) -> None:
        lint = "- {id: lint, kind: command, command: lint, when: final_iteration}"

        assert flow("final_iteration", before=lint).play("work").next == "review"


class TestCollecting:
    TWO: Final = (
        "- {id: lint, kind: command, command: lint}\n      - {id: test, kind: command, command: test}"
    )

    def test_one_at_a_time_the_first_that_fails_decides(self) -> None:
        assert flow(before=self.TWO).play("work revise").next == "WORK:coder"

    def test_collected_all_are_asked(self) -> None:
        story = flow(check="collect: true", before=self.TWO).play("work revise pass")

        assert story.next == "review"

    @pytest.mark.parametrize(
        ("said", "decided"),
        [
            ("pass pass pass", "pass"),
            ("revise pass pass", "revise"),
            ("pass stop revise", "stop"),
            ("stop pass block", "block"),
            ("ask revise pass", "revise"),
        ],
    )
    def test_the_worst_counts(self, said: str, decided: str) -> None:
        story = flow(check="collect: true", before=self.TWO).play("work " + said)

        assert story.decisions[-1] == f"CHECK={decided}"

    def test_a_question_that_nothing_outweighs_is_asked_last(self) -> None:
        story = flow(check="collect: true", before=self.TWO).play("work ask pass pass")
        assert story.next == "wait lint"

        assert story.play("pass").end == "DONE"


class TestPeople:
    OK: Final = "- {id: ok, kind: human}"

    def test_who_approves_is_a_gate_like_another(self) -> None:
        story = flow(before=self.OK).play("work")
        assert story.next == "wait ok"

        assert story.play("pass").next == "review"

    @pytest.mark.parametrize("word", ["none", "ask"])
    def test_a_person_who_does_not_decide_is_waited_for(self, word: str) -> None:
        assert flow(before=self.OK).play(f"work {word} {word}").next == "wait ok"

    def test_an_answer_to_a_gate_gives_the_work_fresh_rounds(self) -> None:
        story = flow(work="max_iterations: 1").play("work pass ask")
        assert story.next == "wait review"

        assert story.play("answer").next == "WORK:coder"
        assert story.position.iterations == {"WORK": 1}

    def test_a_worker_that_asks_where_no_gate_answers_is_blocked_and_then_works_again(self) -> None:
        story = flow(work="max_iterations: 1").play("ask")
        assert story.end == "BLOCKED"

        assert story.play("answer").next == "WORK:coder"
