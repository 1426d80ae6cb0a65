"""Dialects of other systems: what counts, what is refused, and that one kind of reading comes of all."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.domain.answer_parsing import ParsedAnswer, UnreadableAnswer, read_answer
from liza.domain.answers import Implement, Step
from liza.domain.dialects import (
    DIALECTS,
    HAND_OVER,
    SIGNAL_PATTERN,
    SIGNAL_RESULTS,
    DialectReading,
    SignalBlock,
    patch_in,
    read_dialect,
    render_signal_block,
)
from liza.domain.memory import MemoryType
from liza.domain.model import Outcome, Risk
from liza.errors import UsageError

ROLES = [
    "human",
    "planner",
    "actor",
    "judge",
    "worker",
    "reviewer",
    "complexity_assessor",
    "coordinator",
    "coder",
]
CANONICAL = """\
Some words before.

### SIGNAL BLOCK

- Agent: Judge
- Result: INSUFFICIENT
- Loop Summary: two tests are red
- Confidence: 8
- Next: Planner
- Issues Found: tests/test_a.py fails
- Risk: Medium

**Signature**: 1:2:3
"""


def block(role: str, text: str, prompt: str = "") -> DialectReading:
    return read_dialect("signal_block", text, role=role, prompt=prompt)


def line(role: str, text: str) -> DialectReading:
    return read_dialect("agentium", text, role=role)


def verdict(text: str, role: str = "reviewer") -> DialectReading:
    return read_dialect("verdict", text, role=role)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_who_is_asked_for_the_answer_alone_may_give_our_own_block(dialect: str) -> None:
    own = "```liza\nstatus: done\nsummary: it is there\n```"

    found = read_answer(dialect, own, Step.IMPLEMENT, role="worker", prompt="")

    assert isinstance(found, ParsedAnswer)
    assert isinstance(found.value, Implement)


def test_a_word_that_says_another_thing_is_not_passed_over_for_our_block() -> None:
    text = "AGENTIUM_EVAL: PERHAPS\n\n```liza\nverdict: approve\nreason: fine\n```"

    assert isinstance(read_answer("agentium", text, Step.REVIEW, role="judge", prompt=""), UnreadableAnswer)


class TestSignalBlock:
    def test_the_canonical_form(self) -> None:
        found = block("judge", CANONICAL)

        assert (found.outcome, found.word, found.reason) == (
            Outcome.REVISE,
            "INSUFFICIENT",
            "two tests are red",
        )
        assert (found.confidence, found.next_role, found.risk) == (8, "planner", "medium")
        assert found.feedback == ("tests/test_a.py fails",)
        assert found.fields["signature"] == "1:2:3"
        assert found.problem is None

    @pytest.mark.parametrize(
        "text",
        [
            "## SIGNAL BLOCK (Judge)\nAgent: Judge\nResult: PASS\nStep Summary: fine\nNext: Human\n",
            "SIGNAL BLOCK\n* **Agent**: Judge (review)\n* **Result:** PASS — GOAL 2 DONE\n* Summary: fine\n",
            "**SIGNAL BLOCK**\n  - Result: `PASS`\n  - Goal Summary: fine\n---\n- Result: INSUFFICIENT\n",
            "```\n### SIGNAL BLOCK\n- Agent: JUDGE\n- Result: PASS\n- Summary: fine\n```\n",
            "### SIGNAL BLOCK\r\n- Agent: Judge\r\n- Result: PASS\r\n- Summary: fine\r\n",
            "SIGNAL BLOCK\n- Result: SUFFICIENT\n- Summary: fine\n# Signature\nProject=x|Agent=Judge|Step=3",
            "### SIGNAL BLOCK\n- Result: PASS\n- Summary: fine\n### What comes next\nResult: FAIL\n",
        ],
    )
    def test_forms_that_are_met_in_the_wild(self, text: str) -> None:
        found = block("judge", text)

        assert (found.outcome, found.reason, found.problem) == (Outcome.PASS, "fine", None)

    @pytest.mark.parametrize(
        ("role", "word"), [(role, word) for role, words in SIGNAL_RESULTS.items() for word in words]
    )
    @pytest.mark.parametrize("speaker", SIGNAL_RESULTS)
    def test_the_table_decides_who_may_say_what(self, role: str, word: str, speaker: str) -> None:
        text = f"### SIGNAL BLOCK\n- Agent: {speaker.capitalize()}\n- Result: {word}\n- Summary: s?\n"

        found = block(role, text)

        if speaker == role:
            assert (found.outcome, found.word) == (SIGNAL_RESULTS[role][word], word)
        else:
            assert found.outcome is Outcome.NONE
            assert found.problem == (
                f"the SIGNAL BLOCK is in the name of {speaker!r}, and the {role} was asked; write your own"
            )

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("no block", "there is no SIGNAL BLOCK of your own; end your answer with one"),
            (
                "### SIGNAL BLOCK\n- Agent: Judge\n",
                "has no Result; use one of PASS, SUFFICIENT, INSUFFICIENT",
            ),
            ("### SIGNAL BLOCK\n- Result: READY\n", "'READY' is no result of the judge; use one of PASS,"),
            ("### SIGNAL BLOCK\n- Result: SUCCESS\n", "'SUCCESS' is no result of the judge"),
            ("### SIGNAL BLOCK\n- Result: PASSED\n", "'PASSED' is no result of the judge"),
            ("### SIGNAL BLOCK\n- Result: PASS | INSUFFICIENT\n", "says two things; say one"),
            (
                "### SIGNAL BLOCK\n- Result: PASS\n- Result: INSUFFICIENT\n",
                "says Result twice, and not the same",
            ),
            ("### SIGNAL BLOCK\n- Result: PASS\n- Blockers: tests are red\n", "and Blockers are named"),
            (
                "### SIGNAL BLOCK\n- Result: PASS\n# Signature\nProject=x | Agent=Actor | Step=2\n",
                "in the name of 'actor'",
            ),
        ],
    )
    def test_what_does_not_count_is_told(self, text: str, says: str) -> None:
        found = block("judge", text)

        assert found.outcome is Outcome.NONE
        assert found.problem
        assert says in found.problem

    def test_the_last_block_counts_and_one_of_the_prompt_does_not(self) -> None:
        early = "### SIGNAL BLOCK\n- Agent: Judge\n- Result: PASS\n- Summary: old\n- Next: Human\n"

        assert block("judge", f"{early}\n{CANONICAL}").word == "INSUFFICIENT"
        assert block("judge", f"I quote:\n{early}", prompt=f"history:\n{early}").outcome is Outcome.NONE

    def test_a_block_of_the_prompt_that_is_repeated_without_end_is_none(self) -> None:
        quoted = "### SIGNAL BLOCK\n- Agent: Judge\n- Result: PASS\n- Summary: old\n"

        assert block("judge", quoted * 20_000, prompt="words\n" * 20_000 + quoted).outcome is Outcome.NONE

    def test_a_question_is_for_a_person(self) -> None:
        text = (
            "1. Which port?\n2) Which host?\n\n### SIGNAL BLOCK\n- Result: CLARIFICATION_NEEDED\n- Next: {}\n"
        )

        assert block("planner", text.format("Human")).questions == ("Which port?", "Which host?")
        assert block("planner", text.format("Human")).outcome is Outcome.ASK
        assert "only a person can answer" in str(block("planner", text.format("Actor")).problem)

    @pytest.mark.parametrize(
        ("role", "body", "outcome", "label"),
        [
            ("judge", "Result: PASS\n- Next: Planner", Outcome.PASS, "progressing"),
            ("judge", "Result: PASS\n- Next: Human", Outcome.PASS, "sufficient"),
            (
                "judge",
                "Result: PASS\n- Goal Status: INSUFFICIENT so far\n- Next: Human",
                Outcome.PASS,
                "progressing",
            ),
            ("human", "Result: APPROVED\n- Next: Planner", Outcome.PASS, "more_loops"),
            ("human", "Result: APPROVED", Outcome.PASS, None),
            ("actor", "Result: FAIL\n- Next: Planner", Outcome.REVISE, None),
            ("actor", "Result: FAIL\n- Next: Human", Outcome.BLOCK, None),
            ("judge", "Result: INSUFFICIENT\n- Next: Human", Outcome.REVISE, None),
            ("judge", "Result: INSUFFICIENT\n- Blockers: no database\n- Next: Human", Outcome.BLOCK, None),
        ],
    )
    def test_who_is_next_and_the_goal_make_the_label(
        self, role: str, body: str, outcome: Outcome, label: str | None
    ) -> None:
        found = block(role, f"### SIGNAL BLOCK\n- {body}\n")

        assert (found.outcome, found.label) == (outcome, label)

    @pytest.mark.parametrize(
        ("value", "number", "odd"),
        [
            ("9 (straightforward)", 9, False),
            ("[8-10]", 8, False),
            ("7/10", 7, False),
            ("12", 10, True),
            ("-1", 0, True),
            ("high", None, True),
        ],
    )
    def test_confidence_is_a_number_from_0_to_10(self, value: str, number: int | None, odd: bool) -> None:
        found = block("judge", f"### SIGNAL BLOCK\n- Result: PASS\n- Confidence: {value}\n")

        assert (found.confidence, bool(found.oddities)) == (number, odd)

    def test_what_the_next_agent_needs_is_looked_for(self) -> None:
        assert block("judge", CANONICAL).oddities == (
            "the block tells the planner nothing of: diagnosis, root cause, recommended changes",
        )
        full = "".join(f"- {keys[-1].capitalize()}: something\n" for keys in HAND_OVER["judge", "planner"])
        told = block("judge", f"### SIGNAL BLOCK\n- Result: PASS\n- Next: Planner\n{full}")
        assert told.oddities == ()

    def test_a_signature_is_compared_also_in_its_dotted_form(self) -> None:
        text = "### SIGNAL BLOCK\n- Result: PASS\n\n**Signature**: {}\n"

        def remarks(signed: str, due: str) -> tuple[str, ...]:
            found = read_answer(
                "signal_block", text.format(signed), Step.REVIEW, role="judge", prompt="", signature=due
            )
            assert isinstance(found, ParsedAnswer)
            return found.remarks

        assert remarks("4.4.2", "4:4:2") == remarks("", "1:1:3") == remarks("1:1:2", "") == ()
        assert remarks("1:1:2", "1:1:3") == ("the signature is 1:1:2, and 1:1:3 was due",)

    @given(
        st.text(), st.sampled_from(sorted(SIGNAL_RESULTS)), st.sampled_from(sorted(SIGNAL_RESULTS)), st.data()
    )
    def test_what_is_written_is_read_back(
        self, summary: str, role: str, following: str, data: st.DataObject
    ) -> None:
        word = data.draw(st.sampled_from(sorted(SIGNAL_RESULTS[role])))
        next_role = "human" if SIGNAL_RESULTS[role][word] is Outcome.ASK else following
        written = SignalBlock(role, word, summary, next_role, "3:1:2", 7, {"Files Changed": "a.py"})

        text = render_signal_block(written)
        found = block(role, text)

        assert SIGNAL_PATTERN.search(text)
        assert (found.word, found.next_role, found.confidence) == (word, next_role, 7)
        assert found.fields["signature"] == "3:1:2"
        assert found.fields["files changed"] == "a.py"


class TestAgentium:
    @pytest.mark.parametrize(
        ("role", "text", "outcome", "label", "reason"),
        [
            ("judge", "AGENTIUM_EVAL: ADVANCE", Outcome.PASS, None, None),
            ("judge", "words\n  `AGENTIUM_EVAL: ITERATE add a test`\n", Outcome.REVISE, None, "add a test"),
            ("judge", "**AGENTIUM_EVAL: BLOCKED no access**", Outcome.BLOCK, None, "no access"),
            ("judge", "AGENTIUM_EVAL: ADVANCE\nAGENTIUM_EVAL: ITERATE no", Outcome.REVISE, None, "no"),
            ("complexity_assessor", "AGENTIUM_EVAL: SIMPLE one line", Outcome.PASS, "SIMPLE", "one line"),
            ("reviewer", "AGENTIUM_EVAL: ITERATE x", Outcome.REVISE, None, "x"),
            ("worker", "done", Outcome.PASS, None, None),
            (
                "worker",
                "AGENTIUM_STATUS: NOTHING_TO_DO it is there",
                Outcome.PASS,
                "NOTHING_TO_DO",
                "it is there",
            ),
            (
                "worker",
                "AGENTIUM_STATUS: TESTS_FAILED\nAGENTIUM_STATUS: FAILED why",
                Outcome.BLOCK,
                None,
                "why",
            ),
            ("worker", "AGENTIUM_STATUS:TESTS_FAILED 3 of 9", Outcome.REVISE, None, "3 of 9"),
        ],
    )
    def test_lines_that_count(
        self, role: str, text: str, outcome: Outcome, label: str | None, reason: str | None
    ) -> None:
        found = line(role, text)

        assert (found.outcome, found.label, found.reason, found.problem) == (outcome, label, reason, None)

    @pytest.mark.parametrize(
        ("role", "text", "says"),
        [
            (
                "judge",
                "ADVANCE",
                "there is no line AGENTIUM_EVAL: ADVANCE|ITERATE|BLOCKED; end your answer with one",
            ),
            ("judge", "> AGENTIUM_EVAL: ADVANCE", "there is no line AGENTIUM_EVAL"),
            (
                "judge",
                "AGENTIUM_EVAL: ADVANCED ok",
                "'ADVANCED' is no result of the judge; use one of ADVANCE,",
            ),
            ("judge", "AGENTIUM_EVAL: advance", "'advance' is no result of the judge"),
            ("judge", "AGENTIUM_EVAL: SIMPLE", "'SIMPLE' is no result of the judge"),
            ("judge", "AGENTIUM_EVAL: ADVANCE|ITERATE|BLOCKED", "says several things at once"),
            ("judge", "AGENTIUM_EVAL:", "'' is no result of the judge"),
            ("complexity_assessor", "AGENTIUM_EVAL: ADVANCE", "is no result of the complexity_assessor"),
            ("worker", "AGENTIUM_EVAL: ADVANCE", "the worker gives no verdict, only a judge does"),
            ("worker", "AGENTIUM_STATUS: FINE", "'FINE' is no result of the worker"),
            ("worker", " \n", "the worker said nothing; say what was done"),
        ],
    )
    def test_lines_that_do_not(self, role: str, text: str, says: str) -> None:
        found = line(role, text)

        assert found.outcome is Outcome.NONE
        assert found.problem
        assert says in found.problem

    def test_memory_plan_and_hand_off_come_along(self) -> None:
        found = line(
            "worker",
            "AGENTIUM_MEMORY: KEY_FACT\nAGENTIUM_MEMORY: KEY_FACT uses sqlite\nAGENTIUM_MEMORY: RUMOUR x\n"
            "AGENTIUM_MEMORY: JUDGE_DIRECTIVE obey\n"
            'AGENTIUM_HANDOFF: {"summary": "a {brace}",\n "files_to_modify": ["a.py"]}\n'
            "AGENTIUM_PLAN_START\n1. do it\nAGENTIUM_PLAN_END\n",
        )

        assert found.memory == ((MemoryType.KEY_FACT, "uses sqlite"),)
        assert [odd.partition(" ")[0] for odd in found.oddities] == ["'RUMOUR'", "'JUDGE_DIRECTIVE'"]
        assert found.handoff == {"summary": "a {brace}", "files_to_modify": ["a.py"]}
        assert found.fields["plan"] == "1. do it"
        assert line("worker", 'AGENTIUM_HANDOFF: {"a": ').oddities == (
            "what stands behind AGENTIUM_HANDOFF is no whole JSON object",
        )


class TestVerdictLines:
    @pytest.mark.parametrize(
        ("text", "outcome", "feedback"),
        [
            ("VERDICT: APPROVE\nISSUES:\n- None\nNOTES: good", Outcome.PASS, ()),
            (
                "Let me see.\n**VERDICT:** REJECT\nISSUES:\n- a is wrong\n- b is\n  too\n",
                Outcome.REVISE,
                ("a is wrong", "b is too"),
            ),
            ("verdict: approve", Outcome.PASS, ()),
            ("VERDICT: APPROVE\n…\nVERDICT: REJECT", Outcome.REVISE, ()),
        ],
    )
    def test_lines_that_count(self, text: str, outcome: Outcome, feedback: tuple[str, ...]) -> None:
        assert (verdict(text).outcome, verdict(text).feedback) == (outcome, feedback)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("fine", "there is no line VERDICT: APPROVE|REJECT; begin your answer with one"),
            ("I APPROVE this", "there is no line VERDICT"),
            (
                "VERDICT: DO NOT APPROVE",
                "'DO NOT APPROVE' is no result of the reviewer; use one of APPROVE, REJECT",
            ),
            ("VERDICT: APPROVE|REJECT", "says two things; say one"),
            ("VERDICT: APPROVED", "is no result of the reviewer"),
            ("VERDICT: APPROVE\nISSUES:\n- it deletes the database", "and ISSUES that block are named"),
            ("", "there is no line VERDICT"),
        ],
    )
    def test_lines_that_do_not(self, text: str, says: str) -> None:
        assert verdict(text).outcome is Outcome.NONE
        assert says in str(verdict(text).problem)

    def test_sections_of_coordinator_and_planner(self) -> None:
        plan = verdict("PLAN:\n1. do it\nRISKS:\n- none\nTESTS:\n- pytest\n", "planner")

        assert dict(plan.fields) == {"plan": "1. do it", "risks": "- none", "tests": "- pytest"}
        assert verdict("PLAN:\n1. do it\n", "planner").problem == (
            "there is no section RISKS: in what the planner said; add it"
        )
        assert verdict("COORDINATOR_NOTES:\n- look at a.py", "coordinator").outcome is Outcome.PASS

    @pytest.mark.parametrize("before", ["", "Here it is:\n\n", "```diff\n"])
    @pytest.mark.parametrize("start", ["diff --git a/x b/x\n--- a/x\n+++ b/x\n", "--- a/x\n+++ b/x\n"])
    def test_a_patch_is_found_in_what_a_coder_says(self, before: str, start: str) -> None:
        patch = f"{start}@@ -1 +1 @@\n-a\n+b\n"
        text = f"{before}{patch}" + ("```\nThat is all.\n" if "`" in before else "")

        assert patch_in(text) == patch
        assert verdict(text, "coder").fields["patch"] == patch
        assert patch_in("I changed nothing") == ""


@pytest.mark.parametrize(
    "piece",
    [
        "```diff\n",
        "AGENTIUM_PLAN_START\n",
        "SIGNAL BLOCK\n",
        "AGENTIUM_HANDOFF: {",
        "<!--",
        "- a: ?\n",
        "PLAN:",
    ],
)
@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_megabyte_of_beginnings_without_ends_is_read(piece: str, name: str) -> None:
    """What an agent never closes must not be looked for again from each place where it began."""
    text = piece * (1_000_000 // len(piece))

    for role in ("coder", "worker", "judge"):
        read_dialect(name, text, role=role)


@given(st.text(max_size=300), st.sampled_from(ROLES), st.sampled_from(sorted(DIALECTS)))
def test_no_text_breaks_a_reader_and_no_verdict_comes_of_nothing(text: str, role: str, name: str) -> None:
    """Whatever an agent says, there is an outcome or a sentence, never both."""
    found = read_dialect(name, text, role=role)

    assert (found.outcome is Outcome.NONE) == (found.problem is not None)
    if role in {"judge", "reviewer", "complexity_assessor"} and found.outcome is not Outcome.NONE:
        assert found.word


def test_an_unknown_dialect_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"^there is no dialect 'agentum'; did you mean 'agentium'\?$"):
        read_dialect("agentum", "", role="judge")


def test_a_planner_that_speaks_in_blocks_issues_a_step() -> None:
    block = """### SIGNAL BLOCK

- Agent: Planner
- Result: PLAN_CREATED
- Loop Summary: Greet the world
- Confidence: 8
- Next: Actor
- What to change: greet in greeter.py:5
- Files in Scope: `greeter.py`, test_greeter.py
- Estimated LOC: about 12
- Risk: low
- Success criteria: it greets
- What to avoid: other files
"""
    found = read_answer("signal_block", block, Step.IMPLEMENT, role="planner", prompt="")
    assert isinstance(found, ParsedAnswer)
    assert isinstance(found.value, Implement)
    step = found.value.step
    assert step is not None
    assert (step.files, step.loc_estimate, step.risk) == (("greeter.py", "test_greeter.py"), 12, Risk.LOW)
    assert found.value.confidence == 8

    without = read_answer(
        "signal_block", block.replace("- Risk: low\n", ""), Step.IMPLEMENT, role="planner", prompt=""
    )
    assert isinstance(without, ParsedAnswer)
    assert isinstance(without.value, Implement)
    assert without.value.step is None


FORMS: Final = [
    ("signal_block", "planner", "PLAN_CREATED"),
    ("signal_block", "actor", "SUCCESS"),
    ("signal_block", "judge", "INSUFFICIENT"),
    ("agentium", "worker", "COMPLETE"),
    ("agentium", "judge", "ITERATE"),
    ("agentium", "complexity_assessor", "SIMPLE"),
    ("verdict", "reviewer", "REJECT"),
    ("verdict", "coordinator", ""),
    ("verdict", "planner", ""),
]


@pytest.mark.parametrize(("name", "role", "word"), FORMS)
def test_what_is_asked_for_is_what_is_read(name: str, role: str, word: str) -> None:
    """The form of a dialect, filled in, is an answer; where a word decides, every word is named."""
    form = DIALECTS[name].form(role)

    filled = form.replace("<word>", word).replace("<type>", "KEY_FACT").replace("<who goes on>", "Human")
    found = read_dialect(name, re.sub(r"<[^>]*>", "1", filled), role=role)

    assert (found.outcome is not Outcome.NONE, found.word or "") == (True, word), found
    assert word in form


@pytest.mark.parametrize(("name", "role"), [row[:2] for row in FORMS if row[2]])
def test_an_echo_of_the_form_decides_nothing(name: str, role: str) -> None:
    assert read_dialect(name, DIALECTS[name].form(role), role=role).outcome is Outcome.NONE
