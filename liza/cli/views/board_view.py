"""The one model of all views: what terminal, page, report and `--json` show, as frozen values.

`gather.Gatherer` reads the board, its journal, the runs on disk and who is alive into `BoardFacts`,
`BoardPast` and `RunRecord`s. From these, `board_view` and `history_view` make what is shown, and touch
nothing. Both work at a past revision as well, where `is_past` says that nobody knows who was alive then.

Texts in it are as people and agents wrote them: whoever draws them escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.select import backend_of, configured_choice
from liza.cli.views import costs
from liza.cli.views.cycles import cycle_metrics
from liza.cli.views.headline import Headline, RunStanding, headline_of
from liza.cli.views.hosts import HostRow, host_views
from liza.cli.views.past import BurnUpPoint, TimelineSpan, burn_up, seconds_by_status, timeline
from liza.cli.views.progress import Forecast, NewsItem, displayed_agent, forecast_of, latest_news
from liza.cli.views.questions import OpenQuestion, open_questions
from liza.cli.views.runs import GATE, RunRecord
from liza.cli.views.status import most_rounds, place_text
from liza.daemon.policy import planner, progress
from liza.daemon.policy.pick import status_since
from liza.daemon.policy.staffing import team_of
from liza.domain import budget
from liza.domain.anomalies import anomaly_facts
from liza.domain.answers import Step
from liza.domain.changes import Figures, figures
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import STATUS_MEANING, USD_DIGITS, Role, Status, WorkerRecord, WorkerStatus, waits_for
from liza.domain.report_words import Tally, tally_of
from liza.domain.rules import trip_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from liza.board.protocol import Alert, HostSign
    from liza.cli.views.costs import CostSum
    from liza.cli.views.past import BoardPast, TaskMove
    from liza.domain.config import Config
    from liza.domain.cycle_archive import MeasuredMetric
    from liza.domain.model import State, Task, TaskAccount
    from liza.system.process import ResourceUse

SHOWN_NEWS: Final = 50
FIRST_STEP: Final = {Role.PLANNER: Step.PLAN, Role.CODER: Step.IMPLEMENT, Role.REVIEWER: Step.REVIEW}


class LiveRun(NamedTuple):
    """The run of an agent that goes on: what it printed last, and what its processes use."""

    record: RunRecord
    lines: tuple[str, ...] = ()
    use: ResourceUse | None = None


class BoardFacts(NamedTuple):
    """A board at one moment, and what was seen around it; `gather` reads it, `board_view` shows it."""

    state: State
    now: datetime
    switches: Mapping[str, str] = {}
    is_running: bool = True
    live_workers: frozenset[str] | None = None  # None: not known, as in the past
    shortage: str | None = None  # why the disk lets nothing new start
    alerts: tuple[Alert, ...] = ()
    runs: Mapping[str, LiveRun] = {}  # those that go on, by worker
    trouble: str | None = None  # why what a person saved was not taken, or the board could not be read
    is_past: bool = False
    hosts: tuple[HostSign, ...] = ()  # that share the board; none on one machine


class GoalView(NamedTuple):
    description: str
    status: str
    number: int
    spec: str | None
    since: datetime
    completed: datetime | None
    queued: tuple[str, ...]
    past: tuple[str, ...]


class GateResult(NamedTuple):
    """What a gate said in the current round of a task."""

    gate: str
    outcome: str
    reason: str
    confidence: int | None


class TaskView(NamedTuple):
    """One task as it stands; *why* says what it waits for, or what sent it back."""

    id: str
    description: str
    status: Status
    phase: str | None
    place: str  # where it is in a workflow of several phases, with its loop or round; else nothing
    kind: str
    priority: int
    holder: str | None
    since: datetime  # that it is in this status
    created: datetime
    created_by: str
    iteration: int  # rounds of its current coder
    max_iterations: int | None  # None where nothing limits the rounds
    attempt: int
    rejections: int  # in all
    depends_on: tuple[str, ...]
    waits_for: tuple[str, ...]
    why: str
    gates: tuple[GateResult, ...]
    usd: float
    cap_usd: float
    is_tainted: bool
    is_over: bool
    needs_person: bool
    base_commit: str | None
    review_commit: str | None
    merge_commit: str | None
    spec: str | None
    superseded_by: tuple[str, ...]


class WorkerView(NamedTuple):
    """One worker: what it does with which agent since when; *is_alive* is None where nobody can know."""

    id: str
    role: str
    status: str
    is_alive: bool | None
    agent: str  # the program, or the backend, with its model
    task: str | None
    task_status: str | None
    step: str | None  # what its agent is asked for, or which gate judges its work
    run: str | None
    since: datetime | None
    seconds: float
    lines: tuple[str, ...]  # what its agent printed last
    use: ResourceUse | None
    why: str  # it was stopped
    crashes: int
    refusals: int


class TaskCost(NamedTuple):
    task: str
    usd: float
    runs: int
    cap_usd: float


class MoneyView(NamedTuple):
    """What was spent of what may be; *usd* is the sum of the three behind it."""

    usd: float
    reported: float
    priced: float
    estimated: float
    reserved: float  # set aside for runs that go on
    cap_usd: float
    runs: int
    unreported: int
    is_asking: bool
    providers: tuple[str, ...]  # those that are closed, each in a sentence
    tasks: tuple[TaskCost, ...]  # the dearest first


class AnomalyView(NamedTuple):
    id: str
    type: str
    task: str | None
    by: str
    at: datetime
    says: str
    is_open: bool


class TripView(NamedTuple):
    id: str
    rule: str
    severity: str
    action: str
    at: datetime
    says: str
    evidence: tuple[str, ...]
    tasks: tuple[str, ...]
    resolved_at: datetime | None
    resolution: str | None


class NoteView(NamedTuple):
    id: str
    at: datetime
    about: str | None
    message: str
    is_read: bool


class DiscoveryView(NamedTuple):
    id: str
    by: str
    task: str | None
    at: datetime
    description: str
    became_task: str | None


class BoardView(NamedTuple):
    """All that is shown of a board at one moment."""

    revision: int
    at: datetime
    is_past: bool
    headline: Headline
    trouble: str | None
    goal: GoalView
    switches: Mapping[str, str]
    tally: Tally
    questions: tuple[OpenQuestion, ...]
    alerts: tuple[Alert, ...]
    tasks: tuple[TaskView, ...]
    archived: Mapping[str, Status]
    workers: tuple[WorkerView, ...]
    hosts: tuple[HostRow, ...]
    money: MoneyView
    forecast: Forecast
    anomalies: tuple[AnomalyView, ...]
    trips: tuple[TripView, ...]
    notes: tuple[NoteView, ...]
    discovered: tuple[DiscoveryView, ...]
    news: tuple[NewsItem, ...]  # what happened last, oldest first
    integration_branch: str

    def task(self, name: str) -> TaskView | None:
        return next((task for task in self.tasks if task.id == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; questions say what can be done about them."""
        found = view_json(self)
        for shown, question in zip(found["questions"], self.questions, strict=True):
            shown["actions"] = [str(action) for action in question.actions]
        return {**found, "headline": {**found["headline"], "sentence": str(self.headline)}}


class HistoryView(NamedTuple):
    """What happened up to a moment, as plots and reports need it."""

    began: datetime | None
    at: datetime
    descriptions: Mapping[str, str]  # of every task that ever was
    merges: Mapping[str, str]  # the commit by which each task was merged
    moves: tuple[TaskMove, ...]
    spans: tuple[TimelineSpan, ...]
    burn_up: tuple[BurnUpPoint, ...]
    seconds_by_status: Mapping[str, float]
    runs: tuple[RunRecord, ...]
    cost: CostSum
    cost_per_merge: float | None
    costs: Mapping[str, Mapping[str, CostSum]]  # by task, role, model and outcome, the dearest first
    cycles: tuple[MeasuredMetric, ...]  # what cycles come to beside their targets, where there are any
    figures: Figures  # of all sprints together: reviewers' agreement, rejections by kind, gates

    def to_json(self) -> dict[str, Any]:
        return dict(view_json(self))


def view_json(value: Any) -> Any:  # noqa: ANN401 - any value of a view
    """Return *value* of a view as JSON values: times in UTC, tuples with names as objects."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): view_json(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [view_json(one) for one in value]
    return str(value) if isinstance(value, str) else value


def board_view(facts: BoardFacts, known: KnownRows | None = None) -> BoardView:
    """Return what is shown of *facts*; *known* are the rows of a look before, which may be used again."""
    state, now = facts.state, facts.now
    headline = headline_of(
        state,
        facts.switches,
        is_running=facts.is_running,
        only=progress.only_people(state, now),
        shortage=facts.shortage,
    )
    questions = open_questions(state)
    return BoardView(
        revision=state.revision,
        at=now,
        is_past=facts.is_past,
        headline=_past_headline(headline) if facts.is_past else headline,
        trouble=facts.trouble,
        goal=_goal(state),
        switches=dict(facts.switches),
        tally=tally_of(state),
        questions=questions,
        alerts=facts.alerts,
        tasks=task_views(state, questions, {} if known is None else known),
        archived=dict(state.archived),
        workers=_workers(facts),
        hosts=host_views(facts.hosts),
        money=money_view(state),
        forecast=forecast_of(state, now),
        anomalies=_anomalies(state),
        trips=_trips(state),
        notes=_notes(state),
        discovered=_discoveries(state),
        news=tuple(latest_news(state, SHOWN_NEWS)),
        integration_branch=state.config.integration_branch,
    )


def _past_headline(headline: Headline) -> Headline:
    """Return *headline* for a moment that is over: there is nothing to type, and no matter who was alive."""
    says = headline.says.removeprefix("Nobody works: ").removeprefix("It goes on: ")
    word = RunStanding.GOING if headline.standing is RunStanding.STOPPED else headline.standing
    return Headline(word, f"It stood so: {says}", "")


def _goal(state: State) -> GoalView:
    goal = state.goal
    return GoalView(
        goal.description,
        str(goal.status),
        goal.number,
        goal.spec_ref,
        goal.since,
        goal.completed,
        tuple(one.description for one in goal.queued),
        tuple(one.description for one in goal.past),
    )


def task_views(state: State, questions: Iterable[OpenQuestion], known: KnownRows) -> tuple[TaskView, ...]:
    """Return the tasks that are on the board, in its order; a row of which all is *known* is taken again."""
    asking = {question.subject for question in questions}
    found = {}
    for name, task in state.tasks.items():
        lacking = waits_for(state, task) if task.depends_on and task.status not in TERMINAL else ()
        given = _RowFacts(task, state.accounts.get(name), state.config, lacking, name in asking)
        before = known.get(name)
        is_same = before is not None and _is_same(before[0], given)
        found[name] = before if before is not None and is_same else (given, _task(state, given))
    known.clear()
    known.update(found)
    return tuple(row for _, row in found.values())


class _RowFacts(NamedTuple):
    """All that a row of a task is made of."""

    task: Task
    account: TaskAccount | None
    config: Config
    lacking: tuple[str, ...]
    needs_person: bool


KnownRows = dict[str, tuple[_RowFacts, TaskView]]


def _is_same(one: _RowFacts, other: _RowFacts) -> bool:
    """Return whether both give the same row; records are frozen, and one that changed is another object."""
    same_records = one.task is other.task and one.account is other.account and one.config is other.config
    return same_records and one[3:] == other[3:]


def _task(state: State, given: _RowFacts) -> TaskView:
    task, lacking = given.task, given.lacking
    return TaskView(
        id=task.id,
        description=task.description,
        status=task.status,
        phase=task.position.phase if task.position else task.phase,
        place=place_text(state, task),
        kind=str(task.kind),
        priority=task.priority,
        holder=task.lease.holder if task.lease else None,
        since=status_since(task),
        created=task.created,
        created_by=task.created_by,
        iteration=task.iteration,
        max_iterations=most_rounds(state, task),
        attempt=task.attempt,
        rejections=task.review_cycles_total,
        depends_on=task.depends_on,
        waits_for=lacking,
        why=_why(task, lacking),
        gates=tuple(
            GateResult(one.gate, str(one.outcome), one.reason or "", one.confidence) for one in task.verdicts
        ),
        usd=budget.spent_on(state, task.id).usd,
        cap_usd=budget.task_cap(state, task.id),
        is_tainted=task.is_tainted,
        is_over=task.status in TERMINAL,
        needs_person=given.needs_person,
        base_commit=task.base_commit,
        review_commit=task.review_commit,
        merge_commit=task.merge_commit,
        spec=task.spec_ref,
        superseded_by=task.superseded_by,
    )


def _why(task: Task, lacking: tuple[str, ...]) -> str:
    """Return what sent *task* back, what it asks, what it waits for, or else what its status means."""
    if lacking and task.status in {Status.IDLE, Status.DRAFT}:
        return f"waits for {', '.join(lacking)}"
    if task.status is Status.APPROVED and task.is_tainted:
        return "it passed by force; a person has to accept that"
    held = f"{task.lease.holder} holds it" if task.lease else None
    return _REASON_OF.get(task.status, _no_reason)(task) or held or STATUS_MEANING[task.status]


def _no_reason(_: Task) -> None:
    return None


_REASON_OF: Final[dict[Status, Callable[[Task], str | None]]] = {
    Status.BLOCKED: lambda task: task.blocked_reason,
    Status.AWAITING_APPROVAL: lambda task: task.approval_question,
    Status.REJECTED: lambda task: task.rejection_reason,
    Status.INTEGRATION_FAILED: lambda task: (
        task.integration_failure.reason if task.integration_failure else None
    ),
    Status.SUPERSEDED: lambda task: task.rescope_reason,
    Status.ABANDONED: lambda task: task.closing_reason,
    Status.NOTHING_TO_DO: lambda task: task.closing_reason,
}


def _workers(facts: BoardFacts) -> tuple[WorkerView, ...]:
    state = facts.state
    held = {task.lease.holder: task for task in state.tasks.values() if task.lease}
    thinks = planner.plan_request(state) is not None
    roles: dict[str, Role] = {
        **team_of(state),
        **{agent.id: agent.role for agent in state.agents.values()},
    }
    return tuple(
        _worker(facts, name, role, held.get(name), thinks=thinks)
        for name, role in roles.items()
        if name in state.agents or name in held or not facts.is_past
    )


def _worker(facts: BoardFacts, name: str, role: Role, task: Task | None, *, thinks: bool) -> WorkerView:
    known, live = facts.state.agents.get(name), facts.runs.get(name)
    if live and live.record.role == GATE and task is None:
        live = None  # its task went on, so that the gate has said what it had to say
    since = live.record.began if live else _taken_at(task, name) if task else known.since if known else None
    step = live.record.step if live else None
    return WorkerView(
        id=name,
        role=str(role),
        status=_worker_status(known, task, thinks=thinks),
        is_alive=None if facts.live_workers is None else name in facts.live_workers,
        agent=agent_label(facts.state, role, Step(step) if step in set(Step) else FIRST_STEP[role]),
        task=live.record.task if live and live.record.task else task.id if task else None,
        task_status=str(task.status) if task else None,
        step=step,
        run=live.record.run if live else None,
        since=since,
        seconds=max(0.0, (facts.now - since).total_seconds()) if since else 0.0,
        lines=live.lines if live else (),
        use=live.use if live else None,
        why=(known.stopped_reason or "") if known else "",
        crashes=len(known.crashes) if known else 0,
        refusals=known.refusals if known else 0,
    )


def _worker_status(known: WorkerRecord | None, task: Task | None, *, thinks: bool) -> str:
    if known is None:
        return "at work" if task else "not started"
    if task is not None and known.status is not WorkerStatus.STOPPED:
        return "at work"
    return str(displayed_agent(known, thinks=thinks).status).lower()


def _taken_at(task: Task, holder: str) -> datetime:
    return next((entry.at for entry in reversed(task.history) if entry.by == holder), task.created)


def agent_label(state: State, role: Role, step: Step) -> str:
    """Return who does *step* by the settings: a backend and a model; `auto` is whoever is installed."""
    choice = configured_choice(state.config.agents, role, step)
    return " ".join(filter(None, (backend_of(choice), choice.model))) or "auto"


def money_view(state: State) -> MoneyView:
    """Return what was spent, as the board has it."""
    total = state.spend.total
    accounts = sorted(state.accounts.values(), key=lambda one: (-one.spent.usd, one.id))
    return MoneyView(
        usd=total.usd,
        reported=total.reported,
        priced=total.priced,
        estimated=total.estimated,
        reserved=round(sum(one.usd for one in state.spend.reserved), USD_DIGITS),
        cap_usd=state.config.budget.run_usd,
        runs=total.runs,
        unreported=total.unreported,
        is_asking=budget.is_budget_question_open(state),
        providers=tuple(
            budget.provider_sentence_with_fallback(state, one) for one in budget.closed_providers(state)
        ),
        tasks=tuple(
            TaskCost(one.id, one.spent.usd, one.spent.runs, budget.task_cap(state, one.id))
            for one in accounts
        ),
    )


def _anomalies(state: State) -> tuple[AnomalyView, ...]:
    return tuple(
        AnomalyView(
            one.id,
            one.type,
            one.task_id,
            one.logged_by,
            one.timestamp,
            anomaly_facts(one),
            one.processed is None,
        )
        for one in state.anomalies.values()
    )


def _trips(state: State) -> tuple[TripView, ...]:
    return tuple(
        TripView(
            trip.id,
            trip.rule,
            trip.severity,
            str(trip.action),
            trip.at,
            trip_sentence(trip).removeprefix(f"{trip.id}: "),
            trip.says or trip.evidence,
            trip.tasks,
            trip.resolved_at,
            trip.resolution,
        )
        for trip in state.circuit_breaker.trips
    )


def _notes(state: State) -> tuple[NoteView, ...]:
    return tuple(
        NoteView(note.id, note.timestamp, note.about, note.message, note.processed is not None)
        for note in state.human_notes.values()
    )


def _discoveries(state: State) -> tuple[DiscoveryView, ...]:
    return tuple(
        DiscoveryView(one.id, one.discovered_by, one.task_id, one.timestamp, one.description, one.became_task)
        for one in state.discovered.values()
    )


def history_view(facts: BoardFacts, past: BoardPast, runs: Iterable[RunRecord]) -> HistoryView:
    """Return what happened up to the moment of *facts*, whose *past* and *runs* these are."""
    state, now, known = facts.state, facts.now, tuple(runs)
    spans = timeline(past.moves)
    paid = costs.run_costs(known, state, past.moves)
    return HistoryView(
        began=past.began,
        at=now,
        descriptions=past.descriptions,
        merges=past.merges,
        moves=past.moves,
        spans=spans,
        burn_up=burn_up(past.moves),
        seconds_by_status=seconds_by_status(spans, now),
        runs=known,
        cost=costs.cost_sum(paid),
        cost_per_merge=costs.cost_per_merge(paid, state),
        costs={way: costs.costs_by(paid, way) for way in costs.GROUPINGS},
        cycles=cycle_metrics(state, past.moves),
        figures=figures(state, now, past.metrics, state.goal.created),
    )
