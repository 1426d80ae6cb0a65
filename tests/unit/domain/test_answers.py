"""What counts as an answer in what an agent printed, and what is said where none does."""

from __future__ import annotations

from itertools import product
from textwrap import dedent
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.anomalies import Other, TradeOff
from liza.domain.answer_parsing import ParsedAnswer, UnreadableAnswer, parse_answer
from liza.domain.answers import (
    AGENT_ANOMALY_TYPES,
    ANSWER_TYPES,
    ROLE_OF_STEP,
    CheckpointAnswer,
    FeedbackStatus,
    Implement,
    Plan,
    Replan,
    Review,
    Ruling,
    Step,
    WorkStatus,
)
from liza.domain.model import Checkpoint, Role, Severity, TaskKind, Urgency
from liza.domain.yaml_parse import tagged_blocks


def fenced(body: str, fence: str = "```") -> str:
    return f"{fence}liza\n{dedent(body).strip()}\n{fence}\n"


APPROVED: Final = fenced("verdict: approve\nreason: it greets")
REJECTED: Final = fenced("verdict: reject\nreason: not yet\nfeedback: [{message: mend it}]")
EXAMPLES: Final = {
    Step.PLAN: fenced(
        """
        tasks:
          - id: greet
            description: Print a greeting
            done_when: [it greets]
            scope: {in: [src], out: [docs]}
            kind: code
            validation: {command: pytest -q, expect: passed}
          - id: shout
            description: Shout
            done_when: [it is loud]
            depends_on: [greet]
        """
    ),
    Step.REPLAN: fenced("unblock:\n  guidance: use the other door"),
    Step.CHECKPOINT: fenced("intent: greet\nassumptions: [there is a world]\nrisks: none"),
    Step.IMPLEMENT: fenced("status: done\nsummary: it greets"),
    Step.REVIEW: APPROVED,
}


def value_of(text: str, step: Step) -> object:
    found = parse_answer(text, step)
    assert isinstance(found, ParsedAnswer), found
    return found.value


def why(text: str, step: Step) -> str:
    found = parse_answer(text, step)
    assert isinstance(found, UnreadableAnswer), found
    return found.why


class TestFinding:
    def test_the_answer_stands_behind_prose(self) -> None:
        """An agent may say what it likes before it answers."""
        assert value_of(
            f"I looked at it.\n\n```python\nx = 1\n```\n\n{APPROVED}\nBye.", Step.REVIEW
        ) == Review(verdict=Ruling.APPROVE, reason="it greets")

    def test_the_last_block_counts_and_a_different_one_before_it_is_reported(self) -> None:
        """Whoever changes their mind has changed it."""
        found = parse_answer(APPROVED + REJECTED, Step.REVIEW)

        assert isinstance(found, ParsedAnswer)
        assert isinstance(found.value, Review)
        assert found.value.verdict is Ruling.REJECT
        assert found.remarks == (
            "an earlier answer to the review step in the same reply said something else; the last one counts",
        )

    def test_the_same_said_twice_is_no_contradiction(self) -> None:
        """Agents repeat themselves."""
        assert parse_answer(APPROVED + APPROVED, Step.REVIEW) == parse_answer(APPROVED, Step.REVIEW)

    def test_a_broken_last_block_never_falls_back_to_an_earlier_one(self) -> None:
        """An approval that was being taken back must not come true."""
        assert "not readable as YAML" in why(APPROVED + fenced("verdict: [reject"), Step.REVIEW)
        assert "not closed" in why(APPROVED + "```liza\nverdict: reject\n", Step.REVIEW)

    @pytest.mark.parametrize("text", ["", "I approve.", "```yaml\nverdict: approve\n```", "> " + APPROVED])
    def test_without_a_block_there_is_no_answer(self, text: str) -> None:
        """Prose approves nothing, nor does a block of another kind or in a quotation."""
        assert why(text, Step.REVIEW).startswith("the reply has no answer to the review step: end it with")

    def test_a_block_that_is_not_closed_may_be_cut(self) -> None:
        """Half a plan parses as well as a whole one."""
        cut = EXAMPLES[Step.PLAN].rpartition("  - id: shout")[0]

        assert "is not closed and may be cut" in why(cut, Step.PLAN)

    def test_a_block_that_starts_again_counts_from_there(self) -> None:
        """An agent that begins its answer twice means the second."""
        assert value_of("```liza\nverdict: rej\n" + APPROVED, Step.REVIEW) == value_of(APPROVED, Step.REVIEW)

    @pytest.mark.parametrize("fence", ["````", "~~~"])
    def test_a_block_inside_another_kind_of_fence_is_a_quotation(self, fence: str) -> None:
        """That is how Markdown quotes a fence."""
        quoted = f"{fence}markdown\n{APPROVED}{fence}\n"

        assert tagged_blocks(quoted) == []
        assert value_of(quoted + REJECTED, Step.REVIEW) == value_of(REJECTED, Step.REVIEW)

    @pytest.mark.parametrize("before", ["```python\nx = 1\n", "```\n", "````\n", "~~~\n"])
    def test_a_fence_that_somebody_forgot_to_close_hides_nothing(self, before: str) -> None:
        """Otherwise a slip in the prose would swallow the verdict."""
        assert value_of(before + APPROVED, Step.REVIEW) == value_of(APPROVED, Step.REVIEW)

    def test_the_whole_reply_in_a_fence_of_the_same_length(self) -> None:
        """Models like to wrap their reply once more."""
        wrapped = f"```markdown\nSee below.\n{APPROVED}```\n"

        assert value_of(wrapped, Step.REVIEW) == value_of(APPROVED, Step.REVIEW)

    def test_fences_inside_the_yaml_belong_to_it(self) -> None:
        """A suggestion shows code."""
        text = fenced(
            """
            verdict: reject
            reason: no test
            feedback:
              - message: |
                  write
                  ```python
                  assert greet()
                  ```
                severity: concern
            """
        )
        review = value_of(text, Step.REVIEW)

        assert isinstance(review, Review)
        assert review.feedback[0].message == "write\n```python\nassert greet()\n```"
        assert review.feedback[0].severity is Severity.CONCERN

    def test_a_fence_belongs_to_the_yaml_if_it_is_indented_at_all(self) -> None:
        """Markdown would let it close the block."""
        work = value_of(fenced("status: done\nsummary: |\n  ```\n  x\n  ```\n  done"), Step.IMPLEMENT)

        assert isinstance(work, Implement)
        assert work.summary == "```\nx\n```\ndone"

    def test_windows_line_ends_tabs_and_colours_are_cleaned(self) -> None:
        """They come from tools, not from thoughts."""
        text = "\x1b[32m```liza\x1b[0m\r\nverdict: approve\r\nreason: |\r\n  a\tb\x07\r\n```\r\n"
        review = value_of(text, Step.REVIEW)

        assert isinstance(review, Review)
        assert review.reason == "a    b\N{REPLACEMENT CHARACTER}"

    def test_an_example_that_the_prompt_shows_is_no_answer(self) -> None:
        """A client that echoes its prompt would answer with our own words."""
        prompt = f"Answer like this:\n{APPROVED}"

        assert isinstance(parse_answer(prompt, Step.REVIEW, prompt=prompt), UnreadableAnswer)
        assert parse_answer(prompt + REJECTED, Step.REVIEW, prompt=prompt) == parse_answer(
            REJECTED, Step.REVIEW
        )

    def test_a_hundred_thousand_open_fences_take_no_time(self) -> None:
        """Nobody can stall a worker with backticks."""
        assert len(tagged_blocks("````x\n" * 100_000 + APPROVED)) == 1

    @given(
        st.lists(
            st.sampled_from(["```liza", "```", "````", "~~~liza", "~~~", "  ```", "a: 1", "> x", "- *a"])
        )
    )
    def test_no_text_is_too_odd_to_be_judged(self, lines: list[str]) -> None:
        """An answer or a sentence, whatever an agent prints."""
        assert isinstance(parse_answer("\n".join(lines), Step.PLAN), UnreadableAnswer)


class TestSteps:
    def test_every_step_has_a_role_and_a_kind_of_answer(self) -> None:
        """The tables are whole."""
        assert set(ROLE_OF_STEP) == set(ANSWER_TYPES) == set(Step)
        assert set(ROLE_OF_STEP.values()) == {Role.PLANNER, Role.CODER, Role.REVIEWER}

    @pytest.mark.parametrize("step", Step)
    def test_each_example_is_an_answer_of_its_kind(self, step: Step) -> None:
        """The design's table, row by row."""
        assert isinstance(value_of(EXAMPLES[step], step), ANSWER_TYPES[step])

    @pytest.mark.parametrize(
        ("step", "other"),
        [pair for pair in product(Step, Step) if ROLE_OF_STEP[pair[0]] is not ROLE_OF_STEP[pair[1]]],
    )
    def test_the_answer_of_another_role_is_refused_by_name(self, step: Step, other: Step) -> None:
        """A coder that approves itself is told what it was asked for."""
        assert why(EXAMPLES[other], step).startswith(
            f"this is an answer to the {other} step of a {ROLE_OF_STEP[other]}"
        )

    def test_a_slip_of_the_pen_is_no_absent_value(self) -> None:
        """What it says counts, under the name that was meant."""
        found = parse_answer(fenced("verdict: approve\nreason: fine\nconfidense: 9"), Step.REVIEW)

        assert isinstance(found, ParsedAnswer)
        assert isinstance(found.value, Review)
        assert found.value.confidence == 9
        assert found.remarks == ("'confidense' was read as 'confidence'",)

    def test_many_problems_are_named_up_to_a_point(self) -> None:
        """A sentence is to be read."""
        tasks = "\n".join(f"- {{id: t{number}, description: d}}" for number in range(4))
        sentence = why(fenced(f"tasks:\n{tasks}"), Step.PLAN)

        assert sentence.count("it is missing") == 3
        assert sentence.endswith("; and 1 more")

    def test_an_example_that_was_not_filled_in_is_no_answer(self) -> None:
        """A checkpoint could otherwise say <what you will do>."""
        assert "still has <what you will do> from the example" in why(
            fenced("intent: <what you will do>"), Step.CHECKPOINT
        )

    def test_yaml_tricks_are_refused(self) -> None:
        """A small text must not become a large value."""
        assert "anchors" in why(fenced("a: &x [1]\nb: [*x, *x]"), Step.PLAN)


class TestPlans:
    def test_a_plan_has_the_fields_of_the_table(self) -> None:
        """Each becomes a field of the task."""
        plan = value_of(EXAMPLES[Step.PLAN], Step.PLAN)

        assert isinstance(plan, Plan)
        first, second = plan.tasks
        assert (first.id, first.kind, first.scope.include, first.scope.exclude) == (
            "greet",
            TaskKind.CODE,
            ("src",),
            ("docs",),
        )
        assert second.depends_on == ("greet",)

    @pytest.mark.parametrize(
        ("task", "sentence"),
        [
            ("{id: a, description: b}", "line 2: tasks[0].done_when: it is missing"),
            (
                "{id: a, description: b, done_when: []}",
                "tasks[0].done_when: it needs 1 or more entries, and has 0",
            ),
            ("{id: ../a, description: b, done_when: [c]}", "'../a' is not an id"),
            ("{id: a, description: Add unit tests for x, done_when: [c]}", "a only adds tests"),
            ("{id: a, description: b, done_when: [c], scope: {in: [tests/x.py]}}", "a only adds tests"),
            ("{id: a, description: b, done_when: [c], depends_on: [a]}", "a waits for a; no task can start"),
            ("{id: a, description: b, done_when: [c], kind: tests}", "'tests' is not one of the known words"),
        ],
    )
    def test_a_bad_task_is_sent_back_with_one_sentence(self, task: str, sentence: str) -> None:
        """The planner is told what to mend."""
        assert sentence in why(fenced(f"tasks:\n- {task}"), Step.PLAN)

    def test_documents_may_be_about_tests(self) -> None:
        """Only code has to bring its own tests."""
        text = "tasks: [{id: a, kind: docs, description: Write tests chapter, done_when: [it is there]}]"

        assert isinstance(value_of(fenced(text), Step.PLAN), Plan)

    def test_duplicate_ids_and_circles_name_the_tasks(self) -> None:
        """Which dependency to remove is the planner's choice."""
        task = "- {{id: {}, description: d, done_when: [x], depends_on: [{}]}}"
        twice = fenced("tasks:\n" + task.format("a", "") + "\n" + task.format("a", ""))
        circle = fenced("tasks:\n" + task.format("a", "b") + "\n" + task.format("b", "a"))

        assert "the id a is used twice" in why(twice, Step.PLAN)
        assert "waits for" in why(circle, Step.PLAN)

    def test_a_plan_is_tasks_or_questions_or_nothing(self) -> None:
        """Half of each is neither."""
        assert value_of(fenced("questions: [which door?]"), Step.PLAN) == Plan(questions=("which door?",))
        assert value_of(fenced("nothing_to_add: it is all planned"), Step.PLAN)
        assert "exactly one of tasks, questions or nothing_to_add (there is none of them)" in why(
            fenced("tasks: []"), Step.PLAN
        )

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("unblock: {guidance: x}\nabandon: {reason: y}", "there is unblock and abandon"),
            ("tasks: [{id: a, description: b, done_when: [c]}]", "come with a rescope_reason"),
            ("questions: [x]\nrescope_reason: y", "come with a rescope_reason"),
        ],
    )
    def test_a_replan_is_one_of_four_things(self, text: str, sentence: str) -> None:
        """A task cannot be both unblocked and given up."""
        assert sentence in why(fenced(text), Step.REPLAN)

    def test_a_rescope_says_why(self) -> None:
        """It is written beside the tasks that replace the old one."""
        text = "tasks: [{id: a, description: b, done_when: [c]}]\nrescope_reason: it was two things"
        replan = value_of(fenced(text), Step.REPLAN)

        assert isinstance(replan, Replan)
        assert replan.rescope_reason == "it was two things"


class TestWork:
    def test_a_checkpoint_is_what_the_board_keeps(self) -> None:
        """Risks may come as a list; agents write either."""
        text = "intent: greet\nrisks: [rain, snow]\nvalidation: {command: pytest}\nfiles_to_modify: [a.py]"
        found = value_of(fenced(text), Step.CHECKPOINT)

        assert isinstance(found, CheckpointAnswer)
        assert type(found.checkpoint()) is Checkpoint
        assert found.checkpoint().risks == "rain; snow"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("status: blocked\nblocked_reason: x", "one to three blocked_questions"),
            (
                "status: blocked\nblocked_reason: x\nblocked_questions: [a, b, c, d]",
                "up to 3 entries",
            ),
            ("status: done\nsummary: s\nblocked_reason: x", "the status is done, yet something blocks"),
            ("status: done", "the summary is empty"),
            ("status: wip\nsummary: x", "'wip' is not one of the known words"),
        ],
    )
    def test_a_status_comes_with_what_it_needs(self, text: str, sentence: str) -> None:
        """A block without a question can be answered by nobody."""
        assert sentence in why(fenced(text), Step.IMPLEMENT)

    def test_anomalies_and_discoveries_are_read(self) -> None:
        """With the details beside the type, or below `details` as the contract shows them."""
        text = """
            status: nothing_to_do
            summary: it greets already
            anomalies:
              - {type: trade_off, what: a, why: b}
              - {type: trade_off, details: {what: a, why: b}}
            discovered:
              - {description: the door squeaks, urgency: immediate}
            """
        work = value_of(fenced(text), Step.IMPLEMENT)

        assert isinstance(work, Implement)
        assert work.status is WorkStatus.NOTHING_TO_DO
        assert work.anomalies == (TradeOff(what="a", why="b"),) * 2
        assert work.discovered[0].urgency is Urgency.IMMEDIATE

    @pytest.mark.parametrize(
        ("anomaly", "what"),
        [
            ("{type: crash_loop, agent: a, crashes: 3}", "agent: a; crashes: 3"),
            ("{type: trade_off, what: a, wy: b}", "what: a; wy: b"),
            ("{type: trade_off}", "nothing was said of it"),
            ("it rained", "it rained"),
        ],
    )
    def test_what_an_agent_cannot_know_or_say_is_kept_as_a_plain_anomaly(
        self, anomaly: str, what: str
    ) -> None:
        """Conflicts, drift and crash loops are facts that Liza states; no anomaly costs the work."""
        work = value_of(fenced(f"status: done\nsummary: s\nanomalies: [{anomaly}]"), Step.IMPLEMENT)

        assert isinstance(work, Implement)
        assert [one.what for one in work.anomalies if isinstance(one, Other)] == [what]

    def test_the_types_of_anomaly_are_named_as_on_the_board(self) -> None:
        """One list of names."""
        assert all(kind.model_fields["type"].default == name for name, kind in AGENT_ANOMALY_TYPES.items())

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("verdict: reject\nreason: not yet", "line 1: a rejection needs feedback"),
            ("verdict: maybe\nreason: hm", "'maybe' is not one of the known words"),
            ("verdict: approve", "reason: it is missing"),
            ("verdict: reject\nreason: x\nfeedback: [{file: a.py}]", "line 3: feedback[0].message"),
        ],
    )
    def test_a_verdict_can_be_acted_on(self, text: str, sentence: str) -> None:
        """A rejection without feedback sends a coder round in circles."""
        assert sentence in why(fenced(text), Step.REVIEW)

    def test_a_second_review_says_what_became_of_the_first(self) -> None:
        """From the second iteration on."""
        text = "verdict: approve\nreason: x\nprior_feedback: [{message: no test, status: addressed}]"
        review = value_of(fenced(text), Step.REVIEW)

        assert isinstance(review, Review)
        assert review.prior_feedback[0].status is FeedbackStatus.ADDRESSED
