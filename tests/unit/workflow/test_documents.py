"""A workflow document is right, or says in one sentence what is wrong and where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from liza.domain.config import Limits
from liza.errors import UsageError
from liza.workflow.document import (
    OPTIONS,
    GateKind,
    NamedSettings,
    load_workflow,
    packaged_names,
    parse_workflow,
)

ROOT: Final = Path(__file__).parents[3]

GOOD: Final = """\
name: ours
says: work, review, merge
start: WORK
phases:
  WORK:
    worker: coder
    max_iterations: 3
    gates:
      - {id: test, kind: command, command: test}
    next: CHECK
  CHECK:
    gates:
      - {id: review, kind: agent, role: reviewer}
    edges: {revise: WORK}
    next: MERGE
  MERGE:
    gates:
      - {id: merge, kind: effect, effect: merge}
    edges: {revise: WORK}
    next: DONE
rules: [no_progress]
"""


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_workflow(text, "ours.yaml")
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


class TestGood:
    @pytest.mark.parametrize("name", packaged_names())
    def test_a_workflow_that_comes_with_liza_has_its_own_name(self, name: str) -> None:
        assert load_workflow(name).name == name

    def test_there_are_four(self) -> None:
        assert packaged_names() == ["cycle", "experiment", "liza", "phased"]

    def test_a_file_of_ones_own_is_named_by_its_path(self, tmp_path: Path) -> None:
        path = tmp_path / "ours.yaml"
        path.write_text(GOOD, encoding="utf-8")

        assert load_workflow(str(path)).name == "ours"

    def test_a_gate_written_once_is_named_again(self) -> None:
        phases = load_workflow("phased").phases

        assert phases["DOCS"].gates == phases["IMPLEMENT"].gates[1:]

    def test_what_only_a_kind_can_be_told_is_an_option(self) -> None:
        merged = load_workflow("liza").phases["INTEGRATE"].named("merge_test")

        assert merged.options == {"command": "test", "tree": "merged"}
        assert load_workflow("liza").phases["CODE"].named("validation").options == {
            "from": "checkpoint.validation"
        }

    def test_a_limit_may_be_that_of_the_configuration(self) -> None:
        assert (
            load_workflow("liza", NamedSettings(Limits(max_coder_iterations=4))).phases["CODE"].most(None)
            == 4
        )

    def test_a_rule_may_watch_another_phase(self) -> None:
        rule = parse_workflow(
            edited("[no_progress]", "[{name: rejected_3x, phase: CHECK}]"), "ours.yaml"
        ).watched_rules()[0]

        assert (rule.name, rule.counts.phase) == ("rejected_3x", "CHECK")

    def test_a_session_of_one_path_leaves_the_others_fresh(self) -> None:
        ours = parse_workflow(edited("max_iterations: 3", "session: {SIMPLE: resume}"), "ours.yaml")

        assert ours.phases["WORK"].session_mode("SIMPLE") == "resume"
        assert ours.phases["WORK"].session_mode(None) == "fresh"

    def test_every_kind_of_gate_has_its_options(self) -> None:
        assert set(OPTIONS) == set(GateKind)

    def test_no_code_knows_a_workflow_by_name(self) -> None:
        """A fifth one is as good as the four."""
        names = re.compile(rf"[\"'](?:{'|'.join(packaged_names())})[\"']")
        sources = sorted((ROOT / "liza" / "workflow").glob("*.py"))

        assert [path.name for path in sources if names.search(path.read_text(encoding="utf-8"))] == []


class TestMistakes:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("start: WORK", "start: WROK", "line 3: start: there is no phase 'WROK'; did you mean 'WORK'?"),
            (
                "next: CHECK",
                "next: CHEK",
                "line 10: phases.WORK.next: there is no phase 'CHEK'; did you mean",
            ),
            (
                "{revise: WORK}",
                "{revise: WERK}",
                "line 14: phases.CHECK.edges.revise: there is no phase 'WERK'",
            ),
            ("{revise: WORK}", "{revize: WORK}", "'revize' is no outcome of a phase; did you mean 'revise'?"),
            (
                "max_iterations: 3",
                "max_iteration: 3",
                "line 7: phases.WORK.max_iteration: 'max_iteration' is not a",
            ),
            (
                "max_iterations: 3",
                "max_iterations: max_coders",
                "there is no limit 'max_coders'; did you mean",
            ),
            ("max_iterations: 3", "max_iterations: 0", "line 7: phases.WORK.max_iterations"),
            ("max_iterations: 3", "on_exhausted: forcepass", "did you mean 'force_pass'?"),
            (
                "kind: command",
                "kind: comand",
                "line 9: phases.WORK.gates[0].kind: 'comand' is not one of the known",
            ),
            (
                "command: test",
                "comand: test",
                "'comand' is not a key that belongs to a gate of kind command; did",
            ),
            ("command: test", "command: test, when: nocode", "did you mean 'no_code'?"),
            ("command: test", "command: test, mode: advise", "did you mean 'advisory'?"),
            (
                "    next: DONE\n",
                "",
                "line 16: phases.MERGE: it does not say where a pass leads; add `next: PHASE`",
            ),
            (
                "next: MERGE",
                "next: DONE",
                "phases.MERGE: nothing leads to it; add an edge to it, or remove it",
            ),
            (
                "[no_progress]",
                "[no_progres]",
                "rules[0]: there is no rule 'no_progres'; did you mean 'no_progress'?",
            ),
            ("[no_progress]", "[{name: rejected_3x, phase: X}]", "rules[0].phase: there is no phase 'X'"),
            (
                "[no_progress]",
                "[{name: no_progress, minutes: 5}]",
                "rules[0].minutes: 'minutes' does nothing for no_progress; it can be told action or count",
            ),
            (
                "[no_progress]",
                "[{name: no_progress, action: checkpoint}]",
                "rules[0].action: 'checkpoint' cannot be done to a task; use one of alert, ask, block,",
            ),
            (
                "[no_progress]",
                "[{name: retry_cluster, action: block}]",
                "rules[0].action: 'block' cannot be done to a board; use one of alert, checkpoint, pause",
            ),
            (
                "[no_progress]",
                "[{name: session_duration, count: 3}]",
                "rules[0].count: 'count' does nothing for session_duration; it can be told action or minutes",
            ),
            (
                "[no_progress]",
                "[checkout_drift]",
                "line 21: rules[0]: checkout_drift watches over every workflow as it is; leave it out",
            ),
            (
                "[no_progress]",
                "[max_review_cycles]",
                "counts what REVIEW decides, and there is no such phase",
            ),
            ("[no_progress]", "[actor_fail_pause]", "counts what ACT decides, and there is no such phase"),
            (
                "effect: merge",
                "effect: merg",
                "line 18: phases.MERGE.gates[0].effect: there is no effect 'merg'",
            ),
            ("role: reviewer", "mode: decide", "the gate 'review' says no role; add `role:`, who judges"),
            ("  CHECK:\n", "  CHECK: \n    worker\n", "ours.yaml is no workflow: line"),
            ("start: WORK\n", "", "start: it is missing; add it"),
        ],
    )
    def test_it_is_told_with_its_line_and_the_nearest_right_word(self, old: str, new: str, said: str) -> None:
        told = refusal(edited(old, new))

        assert told.startswith("ours.yaml is no workflow: ")
        assert said in told

    def test_a_gate_is_once_in_a_phase(self) -> None:
        twice = edited("command: test}", "command: test}\n      - test")

        assert "line 10: phases.WORK.gates[1]: the gate 'test' is already in WORK" in refusal(twice)

    def test_an_id_means_one_gate_in_all_phases(self) -> None:
        """A later phase that names it, and a verdict that is kept by it, would mean either."""
        other = edited("id: review, kind: agent, role: reviewer", "id: test, kind: agent, role: reviewer")

        told = "phases.CHECK.gates[0]: another gate 'test' is written out above; write `- test` where"
        assert told in refusal(other)

    def test_a_gate_that_is_named_is_defined_above(self) -> None:
        said = refusal(edited("- {id: review, kind: agent, role: reviewer}", "- tset"))

        assert "phases.CHECK.gates[0]: no phase above defines a gate 'tset'; did you mean 'test'?" in said

    def test_a_phase_is_no_end(self) -> None:
        said = refusal(GOOD.replace("MERGE", "PAUSED"))

        assert "phases.PAUSED: PAUSED is an end, not a phase; give the phase another name" in said

    def test_work_has_to_be_able_to_be_done(self) -> None:
        assert "no way leads to DONE" in refusal(edited("next: DONE", "next: STOPPED"))

    def test_what_is_no_yaml(self) -> None:
        assert refusal("a: 1\n- b\n").startswith("ours.yaml is no workflow: line 2: ")

    def test_a_name_that_nobody_has(self) -> None:
        with pytest.raises(UsageError, match="there is no workflow 'lisa'; did you mean 'liza'"):
            load_workflow("lisa")

    @pytest.mark.parametrize("content", [None, b"\xff"])
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "ours.yaml"
        if content:
            path.write_bytes(content)

        with pytest.raises(UsageError, match=r"cannot read the workflow .*ours\.yaml"):
            load_workflow(str(path))


REVIEW: Final = "{id: review, kind: agent, role: reviewer}"
HUMAN: Final = "{id: ok, kind: human"


class TestFloor:
    def test_the_document_that_the_others_are_made_from_is_good(self) -> None:
        assert parse_workflow(GOOD, "ours.yaml").start == "WORK"

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            # Nobody, or only machines, or only advice.
            (
                REVIEW,
                "{id: lint, kind: command, command: lint}",
                "merge would happen to work that nobody let pass",
            ),
            (
                REVIEW,
                "{id: review, kind: agent, role: reviewer, mode: advisory}",
                "merge would happen to work",
            ),
            (REVIEW, "{id: review, kind: agent, role: reviewer, mode: record}", "merge would happen to work"),
            # Somebody, but not always.
            (
                REVIEW,
                "{id: review, kind: agent, role: reviewer, unless: no_code}",
                "merge would happen to work",
            ),
            (
                REVIEW,
                "{id: review, kind: agent, role: reviewer, skip_if: empty_output}",
                "merge would happen",
            ),
            (
                "next: CHECK",
                "edges: {pass/small: MERGE}\n    next: CHECK",
                "merge would happen to work that nobody",
            ),
            ("{revise: WORK}", "{revise: MERGE}", "merge would happen to work that nobody let pass"),
            ("{revise: WORK}", "{revise: WORK, stop: DONE}", "work that nobody let pass would be DONE"),
            # Its own maker.
            ("role: reviewer", "role: coder", "a coder judges nothing"),
            # Only a choice of the path.
            (
                REVIEW,
                "{id: review, kind: agent, role: reviewer, sets_path: true}",
                "merge would happen to work",
            ),
        ],
    )
    def test_nothing_is_merged_or_done_that_nobody_else_let_pass(self, old: str, new: str, said: str) -> None:
        assert said in refusal(edited(old, new))

    def test_who_approves_before_the_work_has_not_approved_the_work(self) -> None:
        before = edited("- {id: test, kind: command, command: test}", f"- {HUMAN}, at: before}}")
        assert parse_workflow(before, "ours.yaml").name == "ours"

        unseen = before.replace(REVIEW, "{id: test, kind: command, command: test}")
        assert "merge would happen" in refusal(unseen)

    def test_a_phase_that_does_not_count_cannot_let_itself_be_merged(self) -> None:
        """Forced through without a mark, it would be merged though nobody ever let it pass."""
        lenient = edited(
            "max_iterations: 3", "max_iterations: 3\n    on_exhausted: force_pass\n    blocking: false"
        )

        assert "merge would happen to work that nobody let pass" in refusal(lenient)

    @pytest.mark.parametrize("policy", ["pass", "ask", "none", "pass/EASY"])
    def test_no_verdict_is_no_pass(self, policy: str) -> None:
        said = refusal(edited("role: reviewer", f"role: reviewer, on_none: {policy}"))

        assert "line 13: phases.CHECK.gates[0].on_none: no verdict of review would become" in said

    @pytest.mark.parametrize("policy", ["block", "revise", "stop"])
    def test_no_verdict_may_mean_anything_else(self, policy: str) -> None:
        ours = parse_workflow(edited("role: reviewer", f"role: reviewer, on_none: {policy}"), "ours.yaml")

        assert ours.phases["CHECK"].gates[0].on_none.outcome == policy

    def test_only_a_gate_with_a_judge_after_it_may_fall_back_to_a_path(self) -> None:
        plain = "{id: size, kind: agent, role: reviewer, sets_path: true, on_none: pass/EASY}"
        leaves = plain.replace("sets_path", "skip_rest_on: EASY, sets_path")

        good = parse_workflow(edited(f"- {REVIEW}", f"- {plain}\n      - {REVIEW}"), "ours.yaml")
        assert good.phases["CHECK"].gates[0].on_none.label == "EASY"
        for gates in (f"- {leaves}\n      - {REVIEW}", f"- {REVIEW}\n      - {plain}"):
            assert "would become a pass" in refusal(edited(f"- {REVIEW}", gates))

    def test_a_choice_of_the_path_that_leaves_the_judge_out_is_no_approval(self) -> None:
        assess = "{id: size, kind: agent, role: reviewer, sets_path: true, skip_rest_on: EASY}"

        assert "merge would happen" in refusal(edited(f"- {REVIEW}", f"- {assess}\n      - {REVIEW}"))

    @pytest.mark.parametrize("policy", ["pass", "approve", "stop"])
    def test_the_silence_of_a_person_approves_nothing(self, policy: str) -> None:
        said = refusal(edited(REVIEW, f"{HUMAN}, on_timeout: {policy}}}"))

        assert f"the silence of a person at ok would become {policy}; use `remind`" in said

    @pytest.mark.parametrize("key", ["on_none: block", "on_error: {retry: 1}"])
    def test_a_person_is_waited_for(self, key: str) -> None:
        assert "the person at ok is waited for" in refusal(edited(REVIEW, f"{HUMAN}, {key}}}"))

    def test_a_person_decides(self) -> None:
        assert "a gate of kind human always decides" in refusal(edited(REVIEW, f"{HUMAN}, mode: advisory}}"))

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("effect: merge}", "effect: merge, mode: record}", "a gate of kind effect always decides"),
            (
                "effect: merge}",
                "effect: merge, on_error: {then: force_pass}}",
                "merge would be called done by force",
            ),
            ("effect: merge}", "effect: merge, unless: no_code}", "merge could be left out"),
            (
                "    next: DONE",
                "    on_exhausted: force_pass\n    next: DONE",
                "merge would be called done by force",
            ),
        ],
    )
    def test_what_is_called_done_was_done(self, old: str, new: str, said: str) -> None:
        assert said in refusal(edited(old, new))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("    next: DONE", "    effects: {revise: [archive]}\n    next: DONE"),
            ("    next: CHECK", "    effects: {after_work: [commit_or_merge]}\n    next: CHECK"),
            ("rules:", "at_end: [finalize_pr]\nrules:"),
        ],
    )
    def test_only_what_passed_is_shown_as_good(self, old: str, new: str) -> None:
        assert "would happen to work that did not pass; put it under `pass`" in refusal(edited(old, new))

    def test_an_effect_on_a_pass_is_judged_like_a_merge(self) -> None:
        early = edited("    next: CHECK", "    effects: {pass: [archive]}\n    next: CHECK")

        assert "phases.WORK: archive would happen to work that nobody let pass" in refusal(early)
