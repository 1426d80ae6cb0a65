"""The lifecycle: every cell of the table, and the stories that the contract tells about it."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import product

import pytest

from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, task_violations
from liza.domain.lifecycle import (
    BY_SOURCE,
    CLAIMABLE,
    EVENT_BY_WORD,
    EVENTS,
    INITIAL_STATUSES,
    REQUIRES,
    SUCCEEDED,
    TERMINAL,
    TRANSITIONS,
    event_name,
    is_allowed_entry,
    moves,
    unmet_requirements,
)
from liza.domain.model import STATUS_MEANING, Actor, Role, Status, Task
from liza.errors import Forbidden, LeaseLost, Refused
from tests.support.sample_tasks import (
    ACCEPT_TAINT,
    ACTORS,
    ASK_HUMAN,
    BASE,
    CODER,
    CONFIRM,
    EXAMPLES,
    FAIL_INTEGRATION,
    FIND_NOTHING,
    FORCE_PASS,
    HOUR,
    MERGE,
    MERGED,
    NOW,
    OTHER_CODER,
    OTHER_REVIEWER,
    PLANNER,
    REVIEWER,
    SECOND,
    WORK,
    Deed,
    advance,
    approve,
    block,
    claim,
    commit,
    example_of,
    lease_of,
    new_task,
    reject,
    start_merge,
    submit,
    take_review,
    task_in,
    walked,
    worker,
)

LATER = NOW + 60 * SECOND
CELLS = list(product(Status, EVENTS, Role))
IN_A_ROW = [
    (status, event, role)
    for status, event, role in CELLS
    if (row := BY_SOURCE.get((status, event))) and role in row.who
]
FORBIDDEN = [cell for cell in CELLS if cell not in set(IN_A_ROW)]


def is_anothers_job(status: Status, event: type[e.Event], role: Role) -> bool:
    """Return whether a planner would have to work, which no role of the plain workflow asks of one."""
    return role is Role.PLANNER and (event is e.Take or BY_SOURCE[status, event].held)


ALLOWED = [cell for cell in IN_A_ROW if not is_anothers_job(*cell)]
HELD_BY_WORKERS = [
    (status, event, role)
    for status, event, role in ALLOWED
    if BY_SOURCE[status, event].held and role in {Role.CODER, Role.REVIEWER}
]

Cell = tuple[Status, type[e.Event], Role]


def label(value: object) -> str:
    return event_name(value) if isinstance(value, type) and issubclass(value, e.Event) else str(value)


def for_cells(cells: Sequence[Cell]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("status", "event", "role"), cells, ids=label)


def lines_lead(source: Status, target: Status) -> bool:
    return any((source, target) == (one, other) for _, one, other in moves())


def may(role: Role, event: type[e.Event]) -> bool:
    return any(row.event is event and role in row.who for row in TRANSITIONS)


class TestEveryCell:
    @for_cells(ALLOWED)
    def test_a_row_takes_the_task_where_it_says(
        self, status: Status, event: type[e.Event], role: Role
    ) -> None:
        """What the table allows happens, keeps the promises of the target and is told by one entry."""
        task, actor = task_in(status, ready_for=event), ACTORS[role]

        moved = advance(task, example_of(event, actor, status), by=actor, at=LATER)

        row = BY_SOURCE[status, event]
        assert moved.status in (row.targets or {status}) | ({status} if event is e.Reclaim else set())
        word = example_of(event, actor, status).word(actor, status, moved.status)
        assert word in event.words
        assert unmet_requirements(moved) == []
        assert list(task_violations(moved)) == []
        assert moved.history[: len(task.history)] == task.history
        assert [
            (entry.at, entry.event, entry.by, entry.role, entry.source, entry.target)
            for entry in moved.history[len(task.history) :]
        ] == ([] if event.silent else [(LATER, word, actor.id, role, status, moved.status)])
        assert all(map(is_allowed_entry, moved.history))

    @pytest.mark.parametrize("status", Status)
    def test_what_has_no_row_is_forbidden(self, status: Status) -> None:
        """The sentence names the task, who wanted what, and the status in the way."""
        for event, role in ((event, role) for source, event, role in FORBIDDEN if source is status):
            actor = ACTORS[role]
            verb = EXAMPLES[event](actor).verb_by(actor)

            with pytest.raises(Forbidden) as caught:
                advance(task_in(status), EXAMPLES[event](actor), by=actor, at=LATER)

            assert str(caught.value) == f"t1: {actor.id} may not {verb} a task that is {status}"

    def test_only_renewing_is_silent(self) -> None:
        """History would otherwise be mostly heartbeats."""
        assert [event for event in EVENTS if event.silent] == [e.Renew]


class TestTheTable:
    def test_no_two_rows_answer_for_the_same_event_and_status(self) -> None:
        """A second row would silently replace the first."""
        assert len(BY_SOURCE) == sum(len(row.sources) for row in TRANSITIONS)

    def test_every_status_can_be_reached(self) -> None:
        """A status that nothing leads to is a promise to nobody."""
        assert INITIAL_STATUSES.union(*(row.targets for row in TRANSITIONS)) == set(Status)

    def test_every_event_has_a_row_and_a_name_of_its_own(self) -> None:
        """History and the journal name events: two of one name could not be told apart."""
        kinds = {kind for kind in vars(e).values() if isinstance(kind, type) and issubclass(kind, e.Event)}

        assert set(EVENTS) == kinds - {e.Event}
        assert len(EVENT_BY_WORD) == sum(len(event.words) for event in EVENTS)

    def test_what_history_calls_a_report_is_one_of_its_words(self) -> None:
        told = {word for words in e.REPORT_WORDS.values() for word in words.values()}

        assert told | {"find_nothing", "force_pass"} == set(e.Report.words)

    def test_every_status_has_a_meaning_and_promises(self) -> None:
        assert set(STATUS_MEANING) == set(REQUIRES) == set(Status)
        assert all(REQUIRES.values())

    def test_there_is_an_example_of_every_event(self) -> None:
        """A new event is tested in every cell, or this fails."""
        assert set(EXAMPLES) == set(EVENTS)

    def test_final_statuses_are_those_of_the_contract(self) -> None:
        assert {
            Status.MERGED,
            Status.COMPLETE,
            Status.NOTHING_TO_DO,
            Status.SUPERSEDED,
            Status.ABANDONED,
        } == TERMINAL
        assert SUCCEEDED < TERMINAL

    def test_claimable_statuses_are_those_of_the_contract(self) -> None:
        """New work, rejected work and work that did not merge wait for a coder; nothing else does."""
        assert {Status.IDLE, Status.REJECTED, Status.INTEGRATION_FAILED} == CLAIMABLE


class TestForbiddenByTheContract:
    @pytest.mark.parametrize(
        ("source", "target"),
        [
            (Status.IDLE, Status.READY_FOR_REVIEW),
            (Status.IDLE, Status.APPROVED),
            (Status.IDLE, Status.MERGED),
            (Status.WORKING, Status.APPROVED),
            (Status.WORKING, Status.MERGED),
            (Status.READY_FOR_REVIEW, Status.MERGED),
            (Status.REJECTED, Status.APPROVED),
            (Status.REJECTED, Status.MERGED),
            (Status.AWAITING_APPROVAL, Status.MERGED),
            (Status.INTEGRATION_FAILED, Status.MERGED),
            (Status.BLOCKED, Status.MERGED),
        ],
    )
    def test_no_row_leads_there(self, source: Status, target: Status) -> None:
        """No step of the way to the integration branch can be left out."""
        assert not lines_lead(source, target)

    @pytest.mark.parametrize("status", [Status.READY_FOR_REVIEW, Status.APPROVED, Status.AWAITING_APPROVAL])
    def test_a_coder_neither_judges_nor_merges(self, status: Status) -> None:
        assert not [
            event for event in EVENTS if (row := BY_SOURCE.get((status, event))) and Role.CODER in row.who
        ]

    @pytest.mark.parametrize("status", [Status.IDLE, Status.REJECTED, Status.WORKING])
    def test_a_reviewer_does_not_implement(self, status: Status) -> None:
        assert not [
            event for event in EVENTS if (row := BY_SOURCE.get((status, event))) and Role.REVIEWER in row.who
        ]

    @pytest.mark.parametrize("event", [claim()[0], submit()[0]], ids=["take", "report"])
    def test_a_planner_works_only_where_the_workflow_has_a_job_for_one(self, event: e.Event) -> None:
        planner = PLANNER.replace(token=CODER.token)
        held = task_in(Status.WORKING)
        lease = held.lease and held.lease.replace(holder=planner.id)
        task = task_in(Status.IDLE) if isinstance(event, e.Take) else held.replace(lease=lease)
        if isinstance(event, e.Take):
            event = event.replace(lease=lease_of(planner))

        with pytest.raises(Refused, match="because its next job is one for a coder"):
            advance(task, event, by=planner, at=LATER)

    def test_only_people_accept_a_taint_and_decide_what_waits_for_them(self) -> None:
        """No clock approves: what awaits approval leaves by a person's event only."""
        out = [row for row in TRANSITIONS if Status.AWAITING_APPROVAL in row.sources]

        assert all(row.who == {Role.HUMAN} for row in out)
        assert {role for role in Role if may(role, e.Accept)} == {Role.HUMAN}

    def test_nothing_is_approved_without_a_verdict_but_by_a_tainting_force(self) -> None:
        """A missing verdict never becomes a clean pass."""
        into = {name for name, _, target in moves() if target is Status.APPROVED}

        assert into == {"approve", "answer"}  # an answer: to merge what was approved before
        assert walked(new_task(), claim(), submit(), FORCE_PASS).is_tainted
        with pytest.raises(Refused, match="nobody has judged it"):
            walked(new_task(), claim(), submit(), approve(SUPERVISOR))
        with pytest.raises(Refused, match="only a rule forces work through"):
            walked(new_task(), claim(), submit(), take_review(), (FORCE_PASS[0], REVIEWER))

    @pytest.mark.parametrize("status", sorted(TERMINAL))
    def test_terminal_is_final(self, status: Status) -> None:
        """Nobody moves, amends or marks what is over."""
        assert not [event for event in EVENTS if (status, event) in BY_SOURCE]


class TestTokens:
    def test_a_worker_without_a_lease_can_only_begin_release_a_plan_or_deal_with_a_failed_merge(self) -> None:
        """Whatever else a coder or a reviewer does, it does while it holds the task."""
        unfenced = {
            (event_name(row.event), role, source)
            for (source, _), row in BY_SOURCE.items()
            for role in row.who & {Role.CODER, Role.REVIEWER}
            if not row.held
        }

        assert unfenced == {
            *(("take", Role.CODER, status) for status in CLAIMABLE),
            *(("take", Role.REVIEWER, status) for status in (Status.READY_FOR_REVIEW, Status.APPROVED)),
            ("ready", Role.REVIEWER, Status.DRAFT),
            ("answer", Role.REVIEWER, Status.INTEGRATION_FAILED),
            ("answer", Role.REVIEWER, Status.BLOCKED),
            ("block", Role.REVIEWER, Status.INTEGRATION_FAILED),
        }

    @for_cells(HELD_BY_WORKERS)
    @pytest.mark.parametrize("token", ["another token", None])
    def test_a_worker_without_the_token_is_refused(
        self, status: Status, event: type[e.Event], role: Role, token: str | None
    ) -> None:
        """Having the name of the holder is not enough: an earlier process of that name had it too."""
        actor = ACTORS[role].replace(token=token)

        with pytest.raises(LeaseLost, match=rf"^t1: {actor.id} may not .* it, because the lease is "):
            advance(task_in(status, ready_for=event), EXAMPLES[event](actor), by=actor, at=LATER)

    @for_cells(HELD_BY_WORKERS)
    def test_a_stolen_token_does_not_help_another_worker(
        self, status: Status, event: type[e.Event], role: Role
    ) -> None:
        thief = ACTORS[role].replace(id=f"{role}-9")

        with pytest.raises(LeaseLost):
            advance(task_in(status, ready_for=event), EXAMPLES[event](thief), by=thief, at=LATER)

    @for_cells(HELD_BY_WORKERS)
    def test_only_renewing_is_possible_after_the_end_of_the_lease(
        self, status: Status, event: type[e.Event], role: Role
    ) -> None:
        """A lease past its time that nobody took over yet is still its holder's to renew."""
        task, actor = task_in(status, ready_for=event), ACTORS[role]
        end = NOW + HOUR
        if event is e.Renew:
            moved = advance(task, e.Renew(expires=end + HOUR), by=actor, at=end)
            assert moved.lease
            assert moved.lease.expires == end + HOUR
        else:
            with pytest.raises(LeaseLost, match="the lease ended at 2026-01-01T13:00:00Z"):
                advance(task, EXAMPLES[event](actor), by=actor, at=end)

    @for_cells(HELD_BY_WORKERS)
    def test_the_lease_counts_until_its_very_end(
        self, status: Status, event: type[e.Event], role: Role
    ) -> None:
        task, actor = task_in(status, ready_for=event), ACTORS[role]
        last_moment = NOW + HOUR - timedelta(microseconds=1)

        moved = advance(task, EXAMPLES[event](actor), by=actor, at=last_moment)

        assert moved != task

    def test_a_late_coder_cannot_write_after_another_took_over(self) -> None:
        """The first coder was thought dead, its task reclaimed and claimed; then it comes back."""
        taken = walked(new_task(), claim(), (e.Reclaim(reason="silent"), SUPERVISOR), claim(OTHER_CODER))

        with pytest.raises(LeaseLost, match="coder-2's"):
            walked(taken, submit(CODER))
        assert walked(taken, submit(OTHER_CODER)).authors == ("coder-1", "coder-2")

    def test_a_late_process_of_the_same_name_cannot_write(self) -> None:
        """A restarted worker has its old name and a new token; the process it replaced has the old one."""
        reborn = worker("coder-1", token="another token of coder-1")  # noqa: S106
        taken = walked(new_task(), claim(), (e.Reclaim(reason="died"), SUPERVISOR), claim(reborn))

        with pytest.raises(LeaseLost, match="by another token"):
            walked(taken, submit(CODER))

    def test_a_late_reviewer_cannot_write_after_another_took_the_review(self) -> None:
        """A review whose lease is over may be taken by another reviewer without anybody's leave."""
        end = NOW + HOUR
        taken = walked(task_in(Status.READY_FOR_REVIEW), take_review(OTHER_REVIEWER, at=end), at=end)

        with pytest.raises(LeaseLost, match="reviewer-2's"):
            walked(taken, approve(REVIEWER), at=end)
        assert walked(taken, approve(OTHER_REVIEWER), at=end).approved_by == "reviewer-2"

    def test_a_late_reviewer_cannot_block_what_was_rejected_meanwhile(self) -> None:
        """Without the lease, a reviewer has no say in a task that is back with the coders."""
        with pytest.raises(Forbidden):
            walked(task_in(Status.REJECTED), block(REVIEWER))

    def test_nobody_writes_after_the_task_was_given_back(self) -> None:
        released = walked(task_in(Status.READY_FOR_REVIEW), (e.Release(reason="tired"), REVIEWER))

        with pytest.raises(LeaseLost, match="nobody holds its lease any more; stop working on it"):
            walked(released, approve())

    def test_a_review_that_is_held_cannot_be_taken(self) -> None:
        with pytest.raises(Refused, match="reviewer-1 holds it until 13:00:00Z"):
            walked(task_in(Status.READY_FOR_REVIEW), take_review(OTHER_REVIEWER))

    @pytest.mark.parametrize(
        ("task", "event", "by"),
        [
            (task_in(Status.IDLE), claim()[0], OTHER_CODER),
            (walked(new_task(), claim(), submit()), take_review()[0], OTHER_REVIEWER),
        ],
        ids=["claim", "take_review"],
    )
    def test_nobody_takes_a_task_for_another(self, task: Task, event: e.Event, by: Actor) -> None:
        with pytest.raises(Refused, match="the lease is made out to "):
            advance(task, event, by=by, at=LATER)

    @pytest.mark.parametrize(
        ("task", "event", "by"),
        [
            (task_in(Status.IDLE), claim()[0], CODER),
            (walked(new_task(), claim(), submit()), take_review()[0], REVIEWER),
        ],
        ids=["claim", "take_review"],
    )
    def test_a_lease_that_is_over_is_worth_nothing(self, task: Task, event: e.Event, by: Actor) -> None:
        with pytest.raises(Refused, match="the lease is over already"):
            advance(task, event, by=by, at=NOW + HOUR)

    def test_a_lease_is_not_renewed_into_the_past(self) -> None:
        with pytest.raises(Refused, match="in the past"):
            walked(task_in(Status.WORKING), (e.Renew(expires=NOW), CODER))

    def test_what_nobody_holds_is_not_taken_away(self) -> None:
        """A reclaim that comes twice, as after a crash of the supervisor, is refused the second time."""
        submitted = walked(new_task(), claim(), submit())

        with pytest.raises(Refused, match="nobody holds it"):
            walked(submitted, (e.Reclaim(reason="died"), SUPERVISOR))

    def test_history_does_not_keep_tokens(self) -> None:
        """The journal and transcripts are read by many; a token is for one."""
        told = walked(new_task(), claim(), submit(), take_review())

        assert "token of" not in str([entry.facts for entry in told.history])


class TestSelfApproval:
    def test_an_author_cannot_take_the_review_under_the_same_id(self) -> None:
        """Whatever role a configuration gives it: the name stands for the worker."""
        turncoat = CODER.replace(role=Role.REVIEWER, run="another run")

        with pytest.raises(Refused, match="nobody judges their own work"):
            walked(new_task(), claim(), submit(), take_review(turncoat))

    def test_an_earlier_author_cannot_take_the_review_either(self) -> None:
        """Part of what is reviewed is still theirs."""
        turncoat = CODER.replace(role=Role.REVIEWER, run="another run")
        handed_over = walked(
            new_task(),
            claim(),
            (e.Release(failed=True, reason="stuck"), CODER),
            claim(OTHER_CODER),
            submit(OTHER_CODER),
        )

        with pytest.raises(Refused, match="nobody judges their own work"):
            walked(handed_over, take_review(turncoat))

    def test_the_run_that_produced_the_work_cannot_take_the_review(self) -> None:
        """Two names for one run of an agent are still one run."""
        alias = REVIEWER.replace(run=CODER.run)

        with pytest.raises(Refused, match="the run that produced the work cannot judge it"):
            walked(new_task(), claim(), submit(), take_review(alias))

    @pytest.mark.parametrize(
        "verdict", [approve()[0], reject()[0], CONFIRM[0]], ids=["approve", "reject", "confirm"]
    )
    def test_the_run_that_produced_the_work_supplies_no_verdict(self, verdict: e.Event) -> None:
        """Also when the review was taken before the run began."""
        outcome = FIND_NOTHING if verdict is CONFIRM[0] else submit()
        reviewed = walked(new_task(), claim(), outcome, take_review())

        with pytest.raises(Refused, match="the run that produced the work cannot judge it"):
            walked(reviewed, (verdict, REVIEWER.replace(run=CODER.run)))

    def test_an_absent_run_is_not_the_same_as_an_absent_run(self) -> None:
        """Alarms of the shell version went off because nothing equalled nothing."""
        coder, reviewer = CODER.replace(run=None), REVIEWER.replace(run=None)

        approved = walked(new_task(), claim(coder), submit(coder), take_review(reviewer), approve(reviewer))

        assert approved.submitted_run is None
        assert approved.approved_by == "reviewer-1"

    def test_a_person_does_not_approve_under_an_authors_name(self) -> None:
        alias = HUMAN.replace(id=CODER.id)

        with pytest.raises(Refused, match="nobody judges their own work"):
            walked(task_in(Status.AWAITING_APPROVAL), approve(alias))


class TestVerdicts:
    def test_a_verdict_counts_for_the_commit_that_it_judged(self) -> None:
        """A crafted or stale commit id approves nothing."""
        with pytest.raises(Refused, match="the verdict is on 000000070000, but 0000c0de0000 was submitted"):
            walked(task_in(Status.READY_FOR_REVIEW), (e.Report(commit=commit(7)), REVIEWER))

    def test_a_submission_that_is_its_base_is_refused(self) -> None:
        """Nothing was done, so there is nothing to review."""
        with pytest.raises(Refused, match="nothing was done"):
            walked(task_in(Status.WORKING), (e.Report(commit=BASE), CODER))

    @pytest.mark.parametrize(
        "deed", [(e.Report(commit=BASE), REVIEWER), FORCE_PASS], ids=["approve", "force"]
    )
    def test_nothing_to_do_is_not_passed_as_if_it_were_work(self, deed: Deed) -> None:
        """It would be merged, and the board would call merged what has no change."""
        claimed_nothing = walked(new_task(), claim(), FIND_NOTHING, take_review())

        with pytest.raises(Refused, match="it carries no change"):
            walked(claimed_nothing, deed)

    def test_work_is_not_confirmed_away(self) -> None:
        with pytest.raises(Refused, match="it carries a change to be judged"):
            walked(task_in(Status.READY_FOR_REVIEW), CONFIRM)

    def test_nothing_to_do_can_be_rejected_and_then_done(self) -> None:
        done = walked(new_task(), claim(), FIND_NOTHING, take_review(), reject(), claim(), submit())

        assert (done.nothing_to_do, done.review_commit) == (None, WORK)

    def test_another_merge_than_the_one_started_is_refused(self) -> None:
        """MERGED is written for the merge that was announced, so that a crash in between can be told."""
        with pytest.raises(Refused, match="no merge as 000000070000 was started"):
            walked(task_in(Status.APPROVED), start_merge(), (e.Land(commit=commit(7)), REVIEWER))

    def test_a_merge_that_was_not_started_is_refused(self) -> None:
        with pytest.raises(Refused, match="was started"):
            walked(task_in(Status.APPROVED), MERGED)

    def test_a_merge_is_retried_only_after_it_failed(self) -> None:
        with pytest.raises(Refused, match="it was not an approved task that failed to merge"):
            walked(task_in(Status.BLOCKED), (e.Answer(merge=True, guidance="why not"), HUMAN))

    def test_a_retried_merge_needs_no_second_review(self) -> None:
        """The conflict was resolved on the branch; the work is the one that was approved."""
        retried = walked(
            task_in(Status.INTEGRATION_FAILED),
            (e.Answer(merge=True, guidance="resolved"), HUMAN),
            start_merge(SUPERVISOR),
        )

        assert (retried.approved_by, retried.review_commit) == ("reviewer-1", WORK)

    def test_the_checkpoint_is_written_once_a_claim(self) -> None:
        """It says what was intended before; one written afterwards would say what was done."""
        checkpoint = (EXAMPLES[e.Write](CODER), CODER)
        written = walked(new_task(), claim(), checkpoint)

        with pytest.raises(Refused, match="its work is announced already"):
            walked(written, checkpoint)
        assert walked(written, submit(), take_review(), reject(), claim()).checkpoint is None

    def test_the_checkpoint_is_told_as_the_contract_names_it(self) -> None:
        written = walked(new_task(), claim(), (EXAMPLES[e.Write](CODER), CODER))

        assert written.history[-1].event == "pre_execution_checkpoint"
        assert written.history[-1].facts == {"intent": "add a greeting"}

    def test_a_new_claim_forgets_the_review_but_not_the_feedback(self) -> None:
        again = walked(task_in(Status.REJECTED), claim())

        assert (again.review_commit, again.submitted_run, again.approved_by) == (None, None, None)
        assert again.rejection_reason == "no test"

    @pytest.mark.parametrize(
        "deeds",
        [(claim(),), (block(), (e.Answer(guidance="so"), PLANNER)), (block(), (e.Answer(), HUMAN))],
        ids=["claim", "unblock", "retry"],
    )
    def test_work_that_did_not_merge_is_judged_anew(self, deeds: tuple[Deed, ...]) -> None:
        """Nothing of the old verdict may serve for the new work."""
        again = walked(task_in(Status.INTEGRATION_FAILED), *deeds)

        assert (again.review_commit, again.submitted_run, again.approved_by) == (None, None, None)
        assert (again.merging, again.integration_failure, again.nothing_to_do) == (None, None, None)

    def test_whoever_blocks_keeps_their_questions_beside_the_planners(self) -> None:
        task = walked(new_task(), block(), (e.Defer(questions=("Or red?",)), PLANNER))

        assert (task.blocked_questions, task.planner_questions) == (("Which colour?",), ("Or red?",))
        assert task.questions == ("Which colour?", "Or red?")

    def test_a_planner_gives_fresh_rounds_after_a_limit_once(self) -> None:
        limit = e.Block(reason="rejected", questions=("What now?",), rule="rejected_3x"), SUPERVISOR
        unblock = (e.Answer(guidance="so"), PLANNER)

        once = walked(task_in(Status.REJECTED), limit, unblock)
        assert (once.iteration, once.review_cycles_current, once.decisions) == (0, 0, ())
        assert walked(once, limit).asked is not None
        assert walked(once, block()).asked is None  # a coder's own question is another thing
        assert walked(new_task(), *(block(), unblock) * 3, block()).asked is not None

    @pytest.mark.parametrize("deed", [(e.Answer(guidance="so"), PLANNER), (e.Answer(guidance="so"), HUMAN)])
    def test_an_answer_takes_the_questions_away(self, deed: Deed) -> None:
        answered = walked(task_in(Status.BLOCKED), deed)

        assert (answered.blocked_reason, answered.blocked_questions, answered.guidance) == (None, (), "so")

    def test_guidance_is_spent_with_the_submission(self) -> None:
        """The next coder would otherwise be told what was already done."""
        guided = walked(task_in(Status.BLOCKED), (e.Answer(guidance="blue"), HUMAN), claim())

        assert guided.guidance == "blue"
        assert walked(guided, submit()).guidance is None

    def test_what_cannot_be_amended_is_named(self) -> None:
        with pytest.raises(Refused, match="merge_commit, status cannot be amended"):
            walked(task_in(Status.IDLE), (e.Amend(fields={"status": "MERGED", "merge_commit": MERGE}), HUMAN))

    @pytest.mark.parametrize("fields", [{"depends_on": 5}, {"description": " "}, {"kind": "song"}], ids=str)
    def test_an_amendment_is_of_the_types_that_a_task_has(self, fields: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="validation error"):
            e.Amend(fields=fields)

    def test_a_task_does_not_replace_itself(self) -> None:
        with pytest.raises(Refused, match="it cannot replace itself"):
            walked(new_task(), (e.Supersede(superseded_by=("t1",), rescope_reason="hm"), PLANNER))


class TestTaint:
    FORCED = (claim(), submit(), FORCE_PASS)

    def test_a_forced_task_does_not_succeed_until_a_person_accepts_it(self) -> None:
        forced, merge = walked(new_task(), *self.FORCED), start_merge(SUPERVISOR)

        with pytest.raises(Refused, match="a pass was forced and nobody accepted it"):
            walked(forced, merge)
        assert walked(forced, ACCEPT_TAINT, merge).history[-1].by == "supervisor"

    @pytest.mark.parametrize(
        "deed",
        [
            ASK_HUMAN,
            (e.Block(reason="x", questions=("?",)), SUPERVISOR),
            (e.Abandon(reason="x"), HUMAN),
        ],
    )
    def test_nobody_takes_a_task_away_from_a_merge_that_has_begun(self, deed: Deed) -> None:
        """The branch may hold it already: the merge is first finished, or found to have failed."""
        merging = walked(task_in(Status.APPROVED), start_merge())
        with pytest.raises(Refused, match="its merge has begun"):
            walked(merging, deed)

    def test_a_taint_survives_a_failed_integration(self) -> None:
        failed = walked(new_task(), *self.FORCED, (FAIL_INTEGRATION[0], SUPERVISOR))

        assert walked(failed, (e.Answer(merge=True, guidance="again"), SUPERVISOR)).is_tainted

    def test_an_accepted_taint_stays_on_record(self) -> None:
        accepted = walked(new_task(), *self.FORCED, ACCEPT_TAINT)

        assert [(taint.mark, taint.accepted_by) for taint in accepted.taints] == [
            ("iterations exhausted", "human")
        ]

    def test_an_accepted_taint_does_not_cover_the_next(self) -> None:
        twice = walked(new_task(), *self.FORCED, ACCEPT_TAINT, ASK_HUMAN, reject(HUMAN), *self.FORCED)

        assert twice.is_tainted
        assert [taint.accepted_by for taint in twice.taints] == ["human", None]

    def test_there_has_to_be_a_taint_to_accept(self) -> None:
        with pytest.raises(Refused, match="it has no taint to accept"):
            walked(task_in(Status.APPROVED), ACCEPT_TAINT)


class TestCounters:
    def counts(self, task: Task) -> tuple[int, int, int, int]:
        return task.iteration, task.attempt, task.review_cycles_current, task.review_cycles_total

    REJECTED = (submit(), take_review(), reject())

    def test_the_first_claim_begins_at_one(self) -> None:
        assert self.counts(walked(new_task(), claim())) == (1, 1, 0, 0)

    def test_a_rejected_round_is_followed_by_the_next(self) -> None:
        again = walked(new_task(), claim(), *self.REJECTED, claim(), *self.REJECTED, claim())

        assert self.counts(again) == (3, 1, 2, 2)

    @pytest.mark.parametrize(
        "end",
        [(e.Release(reason="context full", used_up=True), CODER), (e.Reclaim(reason="died"), SUPERVISOR)],
    )
    def test_an_attempt_without_an_outcome_repeats_its_round(self, end: Deed) -> None:
        """A crash is an attempt, not an iteration: three of them must not exhaust the coder."""
        again = walked(new_task(), claim(), end, claim(), end, claim())

        assert self.counts(again) == (1, 3, 0, 0)

    @pytest.mark.parametrize(
        "end",
        [
            (e.Reclaim(reason="coder-1 does not run", killed=True), SUPERVISOR),
            (e.Release(reason="the supervisor is gone"), CODER),
            (e.Release(reason="asked to wait a minute"), CODER),
        ],
    )
    def test_who_kills_or_stops_workers_uses_up_neither_rounds_nor_attempts(self, end: Deed) -> None:
        """However often it happens, the rule that looks for progress sees one attempt in vain."""
        task = new_task()
        for _ in range(20):
            task = walked(task, claim(), end)
        assert (task.iteration, task.attempt) == (1, 1)

    def test_another_coder_starts_anew_but_totals_stay(self) -> None:
        other = walked(new_task(), claim(), *self.REJECTED, claim(), *self.REJECTED, claim(OTHER_CODER))

        assert self.counts(other) == (1, 1, 0, 2)

    def test_coming_back_after_another_coder_is_a_new_start_too(self) -> None:
        back = walked(
            new_task(),
            claim(),
            *self.REJECTED,
            claim(OTHER_CODER),
            (e.Release(failed=True, reason="no"), OTHER_CODER),
            claim(),
        )

        assert self.counts(back) == (1, 1, 0, 1)
        assert back.authors == ("coder-2", "coder-1")

    def test_a_coder_that_gives_up_is_remembered_once(self) -> None:
        fail, other = (
            (e.Release(failed=True, reason="no"), CODER),
            (e.Release(failed=True, reason="no"), OTHER_CODER),
        )
        task = walked(new_task(), claim(), fail, claim(), fail, claim(OTHER_CODER), other)

        assert task.failed_by == ("coder-1", "coder-2")

    def test_giving_up_ends_the_round(self) -> None:
        again = walked(new_task(), claim(), (e.Release(failed=True, reason="no"), CODER), claim())

        assert self.counts(again) == (2, 1, 0, 0)

    def test_the_supervisor_fails_the_coder_not_itself(self) -> None:
        assert walked(
            new_task(), claim(), (e.Release(failed=True, reason="crashed"), SUPERVISOR)
        ).failed_by == ("coder-1",)

    def test_what_did_not_merge_is_a_new_round(self) -> None:
        assert self.counts(walked(task_in(Status.INTEGRATION_FAILED), claim())) == (2, 1, 0, 0)

    def test_unblocking_goes_on_counting(self) -> None:
        asked = walked(
            new_task(), claim(), *self.REJECTED, claim(), block(), (e.Answer(guidance="so"), PLANNER)
        )

        assert self.counts(walked(asked, claim())) == (3, 1, 1, 1)

    def test_a_person_gives_another_chance_with_fresh_counters(self) -> None:
        asked = walked(new_task(), claim(), *self.REJECTED, claim(), block(), (e.Answer(), HUMAN))

        assert self.counts(asked) == (0, 0, 0, 1)
        assert self.counts(walked(asked, claim())) == (1, 1, 0, 1)

    def test_a_persons_rejection_counts_like_a_reviewers(self) -> None:
        assert self.counts(walked(task_in(Status.AWAITING_APPROVAL), reject(HUMAN))) == (1, 0, 1, 1)


class TestHolders:
    def test_a_coder_is_free_once_it_submitted(self) -> None:
        """A coder of the shell version stayed busy after its task was merged."""
        submitted = walked(new_task(), claim(), submit())

        assert (submitted.lease, submitted.assigned_to) == (None, "coder-1")

    @pytest.mark.parametrize("status", sorted(TERMINAL))
    def test_what_is_over_is_nobodys(self, status: Status) -> None:
        assert (task_in(status).lease, task_in(status).assigned_to) == (None, None)

    def test_a_reviewer_that_lets_go_leaves_the_coders_name(self) -> None:
        released = walked(task_in(Status.READY_FOR_REVIEW), (e.Release(reason="tired"), REVIEWER))

        assert (released.lease, released.assigned_to) == (None, "coder-1")

    def test_a_coder_that_lets_go_takes_its_name_along(self) -> None:
        released = walked(task_in(Status.WORKING), (e.Release(reason="tired"), CODER))

        assert (released.lease, released.assigned_to) == (None, None)

    def test_a_reviewer_keeps_what_it_approved_to_merge_it(self) -> None:
        assert task_in(Status.APPROVED).lease == lease_of(REVIEWER)

    def test_people_and_the_supervisor_need_no_token(self) -> None:
        held = task_in(Status.WORKING)

        deeds: list[tuple[Actor, type[e.Event]]] = [
            (HUMAN, e.Release),
            (SUPERVISOR, e.Reclaim),
            (SUPERVISOR, e.Release),
        ]
        for actor, event in deeds:
            assert walked(held, (EXAMPLES[event](actor), actor)).lease is None


class TestHistory:
    def test_a_clock_that_was_set_back_does_not_turn_history_around(self) -> None:
        """Every later change of that board would otherwise be refused, until the clock caught up."""
        claimed = task_in(Status.WORKING)

        moved = advance(claimed, e.Report(commit=WORK), by=CODER, at=NOW - HOUR)

        assert moved.history[-1].at == claimed.history[-1].at
        assert list(task_violations(moved)) == []

    def test_a_whole_life_is_told_in_order(self) -> None:
        told = [entry.event for entry in task_in(Status.MERGED).history]

        assert told == ["added", "claim", "submit", "take_review", "approve", "start_merge", "merge"]
        assert set(Counter(told).values()) == {1}

    def test_a_worker_is_not_who_adds_tasks(self) -> None:
        """A coder that finds work logs a discovery; what becomes of it is the planner's decision."""
        (entry,) = new_task().history

        assert is_allowed_entry(entry)
        assert not is_allowed_entry(entry.replace(role=Role.CODER))
        assert not is_allowed_entry(entry.replace(target=Status.MERGED))
        assert not is_allowed_entry(entry.replace(event="claim"))
