"""The position of a task moves with its status, by the engine, in the update in which an event happens."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, task_violations
from liza.domain.config import Config, Limits
from liza.domain.lifecycle import label_of
from liza.domain.model import (
    RELEASE,
    TAINT,
    End,
    Lease,
    Outcome,
    Position,
    Role,
    Stage,
    Status,
    Task,
    Verdict,
)
from liza.errors import Refused
from liza.workflow import transition
from liza.workflow.document import NamedSettings, load_workflow, parse_workflow
from liza.workflow.transition import accept_task, apply, new_task_at_start
from tests.support.sample_tasks import (
    ASK_HUMAN,
    CODER,
    DOCUMENT,
    FAIL_INTEGRATION,
    FIND_NOTHING,
    FORCE_PASS,
    HOUR,
    NOW,
    PLANNER,
    REVIEWER,
    advance,
    approve,
    board,
    claim,
    new_task,
    reject,
    start_merge,
    submit,
    take_review,
    task_in,
    walked,
)

ROOT: Final = Path(__file__).parents[3]
LEASE: Final = Lease(holder="coder-1", token="t", expires=NOW + HOUR)  # noqa: S106
# The only modules that may say where a task is.
MOVERS: Final = {
    "liza/domain/model.py",
    *(f"liza/workflow/{name}.py" for name in ("engine", "transition")),
}


def at(task: Task) -> Position:
    assert task.position is not None
    return task.position


def where(task: Task) -> tuple[str, Stage, End | None]:
    return at(task).phase, at(task).stage, at(task).end


class TestLabels:
    @pytest.mark.parametrize("status", Status)
    def test_every_status_is_the_label_of_the_position_that_leads_to_it(self, status: Status) -> None:
        task = task_in(status)

        assert label_of(at(task), task.lease) is status

    @pytest.mark.parametrize(
        ("fields", "lease", "label"),
        [
            ({}, None, Status.IDLE),
            ({}, LEASE, Status.WORKING),
            ({"waiting": RELEASE}, None, Status.DRAFT),
            ({"waiting": "risk"}, None, Status.BLOCKED),
            ({"waiting": "yes", "worked": True}, None, Status.AWAITING_APPROVAL),
            ({"waiting": "yes", "stage": Stage.JUDGE}, None, Status.AWAITING_APPROVAL),
            ({"waiting": TAINT, "stage": Stage.EFFECT}, None, Status.AWAITING_APPROVAL),
            ({"worked": True}, None, Status.READY_FOR_REVIEW),
            ({"back_from": Stage.WORK}, None, Status.REJECTED),
            ({"back_from": Stage.JUDGE}, LEASE, Status.WORKING),
            ({"back_from": Stage.EFFECT}, None, Status.INTEGRATION_FAILED),
            ({"end": End.DONE, "stage": Stage.JUDGE}, None, Status.COMPLETE),
            ({"end": End.DONE, "stage": Stage.EFFECT}, None, Status.MERGED),
            ({"end": End.PAUSED}, None, Status.BLOCKED),
        ],
    )
    def test_a_position_has_one_label(
        self, fields: dict[str, object], lease: Lease | None, label: Status
    ) -> None:
        assert label_of(Position.model_validate({"phase": "CODE", **fields}), lease) is label


class TestTheWay:
    def test_a_task_begins_at_the_start_and_a_draft_waits_to_be_released(self) -> None:
        assert where(new_task()) == ("CODE", Stage.WORK, None)
        draft = new_task(status=Status.DRAFT)
        assert at(draft).waiting == RELEASE
        assert at(walked(draft, (e.Ready(), HUMAN))).waiting is None

    def test_the_usual_way_leads_through_the_phases(self) -> None:
        task = walked(new_task(), claim(), submit())
        assert where(task) == ("REVIEW", Stage.JUDGE, None)
        assert (at(task).made_in, at(task).runs) == ("CODE", (CODER.run,))
        task = walked(task, take_review(), approve())
        assert where(task) == ("INTEGRATE", Stage.EFFECT, None)
        assert [one.gate for one in at(task).approvals] == ["review"]
        done = walked(task, start_merge(), (e.Land(commit=start_merge()[0].commit), REVIEWER))  # type: ignore[attr-defined]
        assert where(done) == ("INTEGRATE", Stage.EFFECT, End.DONE)

    def test_what_is_sent_back_knows_from_where_until_it_is_given_back(self) -> None:
        rejected = walked(task_in(Status.READY_FOR_REVIEW), reject())
        assert (at(rejected).phase, at(rejected).back_from) == ("CODE", Stage.JUDGE)
        failed = walked(task_in(Status.APPROVED), FAIL_INTEGRATION)
        assert at(failed).back_from is Stage.EFFECT
        released = walked(rejected, claim(), (e.Release(reason="enough"), CODER))
        assert at(released).back_from is None

    def test_a_retried_merge_is_back_where_it_merges(self) -> None:
        failed = walked(task_in(Status.APPROVED), FAIL_INTEGRATION)

        again = walked(failed, (e.Answer(merge=True, guidance="now"), HUMAN))

        assert where(again) == ("INTEGRATE", Stage.EFFECT, None)

    def test_a_person_who_is_asked_stands_in_for_the_gate(self) -> None:
        asked = walked(new_task(), claim(), submit(), ASK_HUMAN)
        assert at(asked).waiting == "review"
        assert where(walked(asked, approve(HUMAN)))[0] == "INTEGRATE"
        assert where(walked(asked, reject(HUMAN)))[0] == "CODE"

    def test_nothing_to_do_ends_where_somebody_agrees(self) -> None:
        claimed = walked(new_task(), claim(), FIND_NOTHING, take_review())
        assert at(claimed).nothing

        agreed = walked(claimed, (e.Report(reason="so it is"), REVIEWER))

        assert at(agreed).end is End.NOTHING_TO_DO

    def test_a_forced_pass_taints_the_position_until_a_person_accepts_it(self) -> None:
        forced = walked(new_task(), claim(), submit(), FORCE_PASS)
        assert (at(forced).phase, at(forced).taints, at(forced).is_tainted) == (
            "INTEGRATE",
            ("iterations exhausted",),
            True,
        )
        assert not at(walked(forced, (e.Accept(reason="I looked"), HUMAN))).is_tainted

    def test_why_a_person_said_yes_stays_in_the_history(self) -> None:
        asking = board(task_in(Status.AWAITING_APPROVAL))

        task = accept_task("t1", "I tried it", by=HUMAN, at=NOW + HOUR)(asking).task("t1")

        assert (task.history[-1].event, task.history[-1].facts["reason"]) == ("approve", "I tried it")


class TestTheFloor:
    FLOW: Final = load_workflow(Config().workflow)

    def handed_in(self) -> Task:
        said = Verdict(gate="checkpoint", outcome=Outcome.PASS, at=NOW)
        task = new_task_at_start(self.FLOW, new_task().replace(history=()), by=PLANNER, at=NOW)
        task = transition.advance(self.FLOW, task, claim()[0], by=CODER, at=NOW)
        hand_in = submit()[0].replace(verdicts=(said,))
        task = transition.advance(self.FLOW, task, hand_in, by=CODER, at=NOW)
        return transition.advance(self.FLOW, task, take_review()[0], by=REVIEWER, at=NOW)

    def test_nothing_is_approved_while_a_machine_has_not_spoken(self) -> None:
        """Work whose gates were broken is handed in as it is; whoever reviews it has to ask them."""
        task = self.handed_in()
        assert (task.status, where(task)[0], at(task).worked) == (Status.READY_FOR_REVIEW, "CODE", True)

        with pytest.raises(Refused, match="may not approve it, because the workflow liza is at CODE"):
            transition.advance(self.FLOW, task, approve()[0], by=REVIEWER, at=NOW)

    def test_it_is_approved_once_all_have(self) -> None:
        task = self.handed_in()
        gates = [gate.id for phase in ("CODE", "REVIEW") for gate in self.FLOW.phases[phase].gates]
        said = tuple(Verdict(gate=name, outcome=Outcome.PASS, at=NOW) for name in gates[1:])

        done = transition.advance(self.FLOW, task, approve()[0].replace(verdicts=said), by=REVIEWER, at=NOW)

        assert (done.status, where(done)[0]) == (Status.APPROVED, "INTEGRATE")

    def test_one_no_among_them_is_no_approval(self) -> None:
        task = self.handed_in()
        no = Verdict(gate="diff", outcome=Outcome.REVISE, at=NOW, reason="it is empty")

        said = transition.advance(self.FLOW, task, approve()[0].replace(verdicts=(no,)), by=REVIEWER, at=NOW)

        assert (said.status, said.rejection_reason) == (Status.REJECTED, "it is empty")

    def test_a_task_without_a_position_cannot_move(self) -> None:
        with pytest.raises(Refused, match="it has no position in the workflow"):
            advance(new_task().replace(position=None), claim()[0], by=CODER, at=NOW)


class TestRounds:
    LIMITS: Final = Config(limits=Limits(max_coder_iterations=2))

    @pytest.mark.parametrize("by", [REVIEWER, HUMAN])
    def test_the_last_round_blocks_in_the_update_that_used_it_up(self, by: object) -> None:
        """Whoever sends it back: nobody has to claim it once more for that."""
        ask = [take_review()] if by is REVIEWER else [ASK_HUMAN]
        state = board(new_task(), config=self.LIMITS)
        deeds = [claim(), submit(), *ask, reject(by), claim(), submit(), *ask, reject(by)]  # type: ignore[arg-type]
        for event, actor in deeds:
            state = apply(event, to="t1", by=actor, at=NOW)(state)

        task = state.task("t1")
        assert task.status is Status.BLOCKED
        assert task.blocked_reason == "Max iterations (2) reached without approval"
        assert (task.history[-1].event, task.history[-1].by) == ("block", SUPERVISOR.id)

    def test_another_chance_is_one_with_all_rounds(self) -> None:
        blocked = walked(new_task(), claim(), submit(), take_review(), reject(), claim())
        stopped = walked(blocked, (e.Block(reason="why", questions=("What?",)), CODER))
        assert at(stopped).end is End.BLOCKED

        again = walked(stopped, (e.Answer(), HUMAN))

        assert (where(again), at(again).iterations["CODE"]) == (("CODE", Stage.WORK, None), 1)


class TestTheDocumentEndsIt:
    """What is sent back and may not be tried again ends as the document says, in the same update."""

    @pytest.mark.parametrize(
        ("old", "new", "status", "end"),
        [
            ("next: REVIEW}", "on_exhausted: pause, next: REVIEW}", Status.BLOCKED, End.PAUSED),
            ("next: REVIEW}", "on_exhausted: stop, next: REVIEW}", Status.ABANDONED, End.STOPPED),
            ("edges: {revise: CODE}, next: INTEGRATE", "edges: {revise: STOPPED}, next: INTEGRATE",
             Status.ABANDONED, End.STOPPED),
            ("edges: {revise: CODE}, next: INTEGRATE", "edges: {revise: BLOCKED}, next: INTEGRATE",
             Status.BLOCKED, End.BLOCKED),
        ],
    )  # fmt: skip
    def test_after_a_rejection(self, old: str, new: str, status: Status, end: End) -> None:
        text = DOCUMENT.replace(old, new)
        flow = parse_workflow(text, "ours.yaml", NamedSettings(Limits(max_coder_iterations=1)))
        task = new_task_at_start(flow, new_task().replace(history=()), by=PLANNER, at=NOW)
        for event, actor in (claim(), submit(), take_review(), reject()):
            task = transition.advance(flow, task, event, by=actor, at=NOW)

        assert (task.status, at(task).end) == (status, end)
        assert [one.role for one in task.history[-2:]] == [Role.REVIEWER, Role.SUPERVISOR]
        assert list(task_violations(task)) == []

    def test_after_a_merge_that_failed(self) -> None:
        text = DOCUMENT.replace("edges: {revise: CODE}, next: DONE", "edges: {revise: STOPPED}, next: DONE")
        flow = parse_workflow(text, "ours.yaml")
        task = new_task_at_start(flow, new_task().replace(history=()), by=PLANNER, at=NOW)
        for event, actor in (claim(), submit(), take_review(), approve(), FAIL_INTEGRATION):
            task = transition.advance(flow, task, event, by=actor, at=NOW)

        assert (task.status, task.closing_reason) == (Status.ABANDONED, "conflict")


def test_where_the_rounds_lead_is_the_documents_word() -> None:
    """A document without a limit gives as many as are needed."""
    text = """
name: patient
says: as long as it takes
start: MAKE
phases:
  MAKE: {worker: coder, next: LOOK}
  LOOK: {gates: [{id: look, kind: agent, role: reviewer}], edges: {revise: MAKE}, next: KEEP}
  KEEP: {gates: [{id: merge, kind: effect, effect: merge}], edges: {revise: MAKE}, next: DONE}
"""
    flow = parse_workflow(text, "patient.yaml")
    task = new_task_at_start(flow, new_task().replace(history=()), by=PLANNER, at=NOW)
    for _ in range(30):
        for event, actor in (claim(), submit(), take_review(), reject()):
            task = transition.advance(flow, task, event, by=actor, at=NOW)

    assert (task.status, where(task)[0], at(task).iterations["MAKE"]) == (Status.REJECTED, "MAKE", 31)


def test_only_the_engine_says_where_a_task_is() -> None:
    """A position that is put together elsewhere would be a second machine."""
    found = []
    for path in sorted((ROOT / "liza").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if name in MOVERS or "osition" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            makes = isinstance(node.func, ast.Name) and node.func.id == "Position"
            if makes or any(word.arg == "position" for word in node.keywords):
                found.append(f"{name}:{node.lineno}")
    assert found == []
